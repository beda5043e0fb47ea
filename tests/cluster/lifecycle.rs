//! What happens to members between their first start and their last end.

use std::time::Duration;

use flock_lab::recording::{is_ready, name};
use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{annotated, bare, members, plain, shared, with, workload};
use crate::world::{Scene, World};

pub const TESTS: &[Test] = &[
    (
        "an_ordered_flock_starts_each_member_after_the_lower_ones",
        ordered,
    ),
    ("the_order_can_be_switched_while_members_wait", switched),
    ("an_ordered_flock_never_waits_for_an_old_revision", ordered_undo),
    ("pods_that_are_over_make_room_for_their_successors", bury),
    ("scaling_down_lets_the_highest_leave", scale_down),
    ("a_user_s_own_deletion_cost_stays", own_cost),
    ("a_gap_left_by_scaling_down_is_filled_by_the_highest", compact),
    ("scaling_back_refills_just_what_is_missing", scale_back),
    ("pods_without_the_label_are_none_of_flock_s_business", unlabelled),
    ("a_template_that_loses_the_label_leaves_its_flock", leaves),
    ("a_quota_s_end_is_noticed_though_its_refusal_came_first", quota),
    (
        "a_claim_left_by_the_previous_incarnation_does_not_hold_a_member_up",
        ephemeral_claim,
    ),
    ("host_ports_and_an_own_shared_claim_stay_as_they_are", host_port),
    ("a_drained_node_s_member_waits_for_its_node", drained),
];

fn ordered(world: &World) {
    let scene = world.namespace("ordered");
    let annotations = json!({ "flock.dev/start": "Ordered", "lab.flock.dev/ready-after": "200ms" });
    scene.apply(&annotated(workload("ReplicaSet", "rs", 6), &annotations));
    scene.eventually_ready(&members(0..6));
    // The recording is a watch: it may hear a moment later what a list has shown.
    scene.eventually("six members on record", || {
        (scene.recording.readied().len() == 6).then_some(())
    });
    assert_eq!(
        scene.recording.readied(),
        members(0..6),
        "{}",
        scene.recording.story()
    );
    for pod in members(1..6) {
        let told = scene
            .events(&pod)
            .into_iter()
            .filter(|event| event.starts_with("WaitingForTurn"))
            .count();
        assert!(told <= 1, "{told} events for one wait of {pod}");
    }
    scene.eventually_event("db-5", "Waits until all members below db-5 are Ready");
    scene.quiet();
}

fn switched(world: &World) {
    let scene = world.namespace("switched");
    scene.apply(&annotated(
        with_broken_image(workload("ReplicaSet", "rs", 3)),
        &json!({ "flock.dev/start": "Ordered" }),
    ));
    scene.eventually_event("db-1", "Waits until all members below db-1 are Ready");
    let bound = |pod: &str| scene.pod(pod).and_then(|pod| pod.spec?.node_name);
    scene.eventually("db-0's node", || bound("db-0"));
    assert!(bound("db-1").is_none() && bound("db-2").is_none());
    let parallel = json!({ "spec": { "template": { "metadata": { "annotations": { "flock.dev/start": "Parallel" } } } } });
    scene.patch("rs/rs", &parallel);
    scene.eventually("nodes of the others", || bound("db-1").and(bound("db-2")));
}

fn ordered_undo(world: &World) {
    let scene = world.namespace("ordered-undo");
    scene.apply(&annotated(
        workload("Deployment", "db", 3),
        &json!({ "flock.dev/start": "Ordered" }),
    ));
    scene.eventually_ready(&members(0..3));
    scene.roll("db", "broken");
    scene.eventually("a broken member", || {
        scene.tags().values().any(|tag| tag == "broken").then_some(())
    });
    // One of the old revision that is lost as well must come back, in the revision that is wanted then.
    scene.delete_pods(&["db-0"]);
    scene.roll("db", "3.10");
    scene.eventually_run("3.10", &members(0..3));
    scene.rolled("db");
    scene.quiet();
}

fn bury(world: &World) {
    let scene = world.namespace("bury");
    scene.apply(&workload("ReplicaSet", "rs", 3));
    scene.eventually_ready(&members(0..3));
    let nodes = members(0..3).map_names(|pod| scene.node_of(pod));
    scene.end_pod("db-0", "Failed", "Evicted");
    scene.end_pod("db-1", "Succeeded", "Completed");
    scene.end_pod("db-2", "Failed", "NodeShutdown");
    scene.eventually("three new pods", || {
        (scene.recording.count_created() >= 6).then_some(())
    });
    scene.eventually_ready(&members(0..3));
    assert_eq!(members(0..3).map_names(|pod| scene.node_of(pod)), nodes);
    scene.eventually_event("rs", "Deleted pod db-0, which had ended (Evicted)");
    scene.eventually_event("rs", "Deleted pod db-1, which had ended (Completed)");
    scene.quiet();
    // A bare one is its user's.
    scene.apply(&with(
        bare("solo", &json!({ "name": "solo-0" })),
        &json!({ "spec": { "restartPolicy": "Never" } }),
    ));
    scene.eventually("solo-0", || scene.pod("solo-0")?.spec?.node_name);
    scene.end_pod("solo-0", "Failed", "Evicted");
    scene.eventually_event(
        "solo-0",
        "nobody but its user may remove a bare pod: kubectl delete pod solo-0",
    );
    scene.quiet();
    assert!(scene.pod("solo-0").is_some());
}

fn scale_down(world: &World) {
    let scene = world.namespace("down");
    scene.apply(&workload("ReplicaSet", "rs", 5));
    scene.eventually_ready(&members(0..5));
    // The youngest, which would leave first otherwise.
    scene.delete_pods(&["db-1"]);
    scene.eventually_ready(&members(0..5));
    scene.scale("rs/rs", 3);
    scene.eventually_ready(&members(0..3));
    assert_eq!(scene.recording.count_ran(), 6, "{}", scene.recording.story());
    scene.quiet();
}

fn own_cost(world: &World) {
    let scene = world.namespace("cost");
    let cost = json!({ "controller.kubernetes.io/pod-deletion-cost": "7" });
    scene.apply(&annotated(workload("ReplicaSet", "rs", 2), &cost));
    scene.eventually_ready(&members(0..2));
    assert_eq!(
        scene.get("pod/db-1")["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"],
        "7"
    );
}

fn compact(world: &World) {
    let scene = world.namespace("compact");
    scene.apply(&workload("ReplicaSet", "rs", 5));
    scene.eventually_ready(&members(0..5));
    // A ReplicaSet that is scaled down lets those go first that are not Ready.
    scene.unready("db-0");
    scene.eventually("a ReplicaSet that knows it", || {
        (scene.get("rs/rs")["status"]["readyReplicas"] == 4).then_some(())
    });
    let node = scene.node_of("db-0");
    scene.scale("rs/rs", 3);
    scene.eventually_ready(&members(0..3));
    assert_eq!(scene.node_of("db-0"), node);
    scene.eventually_event(
        "rs",
        "Evicted db-3, which was outside the ordinals 0-2, one of which is vacant",
    );
    scene.quiet();
}

fn scale_back(world: &World) {
    let scene = world.namespace("back");
    scene.apply(&workload("ReplicaSet", "rs", 4));
    scene.eventually_ready(&members(0..4));
    let nodes = members(0..4).map_names(|pod| scene.node_of(pod));
    for (few, many) in [(1, 4), (0, 4)] {
        scene.scale("rs/rs", few);
        scene.eventually_ready(&members(0..few));
        scene.scale("rs/rs", many);
        scene.eventually_ready(&members(0..many));
        assert_eq!(members(0..4).map_names(|pod| scene.node_of(pod)), nodes);
    }
    assert_eq!(scene.recording.names().len(), 4);
    scene.quiet();
}

fn unlabelled(world: &World) {
    let scene = world.namespace("plain");
    scene.apply(&plain(2));
    scene.eventually("two pods", || {
        (scene.pods().iter().filter(|pod| is_ready(pod)).count() == 2).then_some(())
    });
    for pod in scene.pods() {
        let spec = pod.spec.unwrap();
        assert!(spec.hostname.is_none() && spec.subdomain.is_none() && spec.scheduling_gates.is_none());
    }
    assert_eq!(scene.writes().len(), 0);
}

/// The documented way to leave: what is left of the flock is nothing to anyone.
fn leaves(world: &World) {
    let scene = world.namespace("leaves");
    let unpinned = json!({ "flock.dev/pin": "None" });
    scene.apply(&annotated(workload("ReplicaSet", "rs", 2), &unpinned));
    scene.eventually_ready(&["db-0", "db-1"]);
    let label = |value: Value| json!({ "spec": { "template": { "metadata": { "labels": { "flock.dev/name": value } } } } });
    scene.patch("rs/rs", &label(Value::Null));
    scene.delete_pods(&["db-0", "db-1"]);
    scene.eventually("two plain pods", || {
        let pods = scene.pods();
        let plain = pods
            .iter()
            .all(|pod| is_ready(pod) && name(pod).starts_with("rs-"));
        (plain && pods.len() == 2).then_some(())
    });
    scene.eventually("an end of the Service", || {
        scene.kubectl(&["get", "service", "db"]).is_err().then_some(())
    });
    scene.quiet();
    let woken = scene.get("rs/rs")["metadata"]["annotations"]["flock.dev/woken-at"].clone();
    assert_eq!(woken, Value::Null, "a ReplicaSet of no flock is woken");
    scene.run(&["delete", "rs", "rs"]);
    scene.eventually("an end of its pods", || scene.pods().is_empty().then_some(()));
    scene.quiet();
}

fn quota(world: &World) {
    let scene = world.namespace("quota");
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "pods" },
        "spec": { "hard": { "pods": "2" } },
    }));
    scene.eventually("the quota's status", || {
        scene.get("quota/pods")["status"]["hard"]["pods"]
            .as_str()
            .map(drop)
    });
    scene.apply(&workload("ReplicaSet", "rs", 4));
    scene.eventually_event("rs", "exceeded quota");
    scene.eventually("two members", || (scene.pods().len() == 2).then_some(()));
    scene.run(&["delete", "quota", "pods"]);
    scene.eventually_ready(&members(0..4));
    scene.eventually("a recording of all", || {
        (scene.recording.names().len() >= 4).then_some(())
    });
    assert_eq!(scene.recording.names().len(), 4);
}

fn ephemeral_claim(world: &World) {
    let scene = world.namespace("ephemeral");
    let volume = json!([{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } }, "storageClassName": "lab-none",
    } } } }]);
    let object = with(
        workload("ReplicaSet", "rs", 1),
        &json!({ "spec": { "template": { "spec": { "volumes": volume } } } }),
    );
    // A class that never provides anything, and a volume for each claim that a test binds by hand.
    scene.apply(&object);
    bind_scratch(&scene, 0);
    scene.eventually_ready(&members(0..1));
    for round in 1..4 {
        let claim = scene.get("pvc/db-0-scratch")["metadata"]["uid"].clone();
        scene.delete_pods(&["db-0"]);
        scene.eventually("a new claim of the new pod", || {
            let text = scene
                .kubectl(&["get", "pvc", "db-0-scratch", "-o", "json"])
                .ok()?;
            let now: Value = serde_json::from_str(&text).ok()?;
            (now["metadata"]["uid"] != claim && now["metadata"]["deletionTimestamp"].is_null()).then_some(())
        });
        bind_scratch(&scene, round);
        scene.eventually_ready(&members(0..1));
    }
    let namespace = &scene.namespace;
    for round in 0..4 {
        let _ = scene.kubectl(&["delete", "pv", &format!("{namespace}-{round}"), "--wait=false"]);
    }
}

fn bind_scratch(scene: &Scene<'_>, round: usize) {
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": { "name": format!("{}-{round}", scene.namespace) },
        "spec": {
            "capacity": { "storage": "1Mi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "lab-none",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/tmp" },
            "claimRef": { "namespace": scene.namespace, "name": "db-0-scratch" },
        },
    });
    scene.world.lab.apply(&volume.to_string()).expect("a volume");
}

fn host_port(world: &World) {
    let scene = world.namespace("port");
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "mini-claim" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Mi" } }, "storageClassName": "" },
    }));
    let before = scene.get("pvc/mini-claim")["spec"].clone();
    let mut object = with(
        workload("Deployment", "db", 3),
        &json!({ "spec": { "strategy": { "type": "Recreate" } } }),
    );
    object["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{ "containerPort": 9000, "hostPort": 9000 }]);
    scene.apply(&object);
    scene.eventually_ready(&members(0..3));
    scene.roll("db", "3.10");
    scene.eventually_run("3.10", &members(0..3));
    // Another one of the same port finds nodes of its own, as its flock is another.
    let with_claim = json!([{ "name": "storage", "persistentVolumeClaim": { "claimName": "mini-claim" } }]);
    scene.patch(
        "deployment/db",
        &json!({ "spec": { "template": { "spec": { "volumes": with_claim } } } }),
    );
    scene.eventually("members with the user's claim", || {
        let pods = scene.pods();
        let claims = pods.iter().filter(|pod| {
            let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
            volumes.is_some_and(|all| {
                all.iter().any(|v| {
                    v.persistent_volume_claim
                        .as_ref()
                        .is_some_and(|c| c.claim_name == "mini-claim")
                })
            })
        });
        (claims.count() == 3).then_some(())
    });
    assert_eq!(
        scene.get("pvc/mini-claim")["spec"],
        before,
        "a claim of the user's own was changed"
    );
}

fn drained(world: &World) {
    let scene = world.namespace("drained");
    scene.apply(&workload("ReplicaSet", "rs", 2));
    scene.eventually_ready(&members(0..2));
    let node = scene.node_of("db-1");
    scene
        .world
        .lab
        .kubectl(&["cordon", &node])
        .expect("a cordoned node");
    scene.delete_pods(&["db-1"]);
    scene.eventually("its successor", || {
        (scene.recording.count_created() >= 3).then_some(())
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        scene
            .pod("db-1")
            .is_some_and(|pod| pod.spec.unwrap().node_name.is_none())
    );
    scene
        .world
        .lab
        .kubectl(&["uncordon", &node])
        .expect("a node that is not cordoned any more");
    scene.eventually_ready(&members(0..2));
    assert_eq!(scene.node_of("db-1"), node);
}

fn with_broken_image(mut workload: Value) -> Value {
    workload["spec"]["template"]["spec"]["containers"][0]["image"] = json!("registry.k8s.io/pause:broken");
    shared(workload)
}

trait MapNames {
    fn map_names(&self, of: impl Fn(&str) -> String) -> Vec<String>;
}

impl MapNames for Vec<String> {
    fn map_names(&self, of: impl Fn(&str) -> String) -> Vec<String> {
        self.iter().map(|name| of(name)).collect()
    }
}
