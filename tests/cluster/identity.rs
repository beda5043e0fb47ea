//! Names, and who gets them.

use serde_json::json;

use crate::harness::Test;
use crate::objects::{annotated, bare, member_of, members, shared, with, workload};
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "replicas_become_members_on_nodes_of_their_own",
        replicas_become_members,
    ),
    (
        "a_member_of_a_replication_controller_keeps_name_and_node_through_deletions",
        deletions,
    ),
    ("ordinals_are_those_of_the_annotation", ordinals),
    (
        "workloads_of_one_replica_are_the_same_as_one_of_three",
        one_replica_each,
    ),
    ("overlapping_sets_never_give_an_ordinal_twice", overlapping),
    (
        "more_replicas_than_ordinals_are_refused_until_the_set_is_widened",
        too_many,
    ),
    ("a_named_bare_pod_is_a_member_by_its_name", named_bare_pods),
    (
        "a_bare_pod_with_a_generated_name_takes_the_lowest_free_ordinal",
        generated_bare_pods,
    ),
    ("dry_runs_reserve_nothing", dry_runs),
    (
        "pods_of_a_stateful_set_keep_its_names_and_get_nodes",
        stateful_set,
    ),
    ("a_replica_set_without_the_label_on_itself_works", without_label),
    (
        "pods_of_jobs_and_daemon_sets_are_refused_with_the_reason",
        wrong_kinds,
    ),
];

fn replicas_become_members(world: &World) {
    let scene = world.namespace("members");
    scene.apply(&workload("ReplicaSet", "rs", 3));
    scene.eventually_ready(&members(0..3));
    let mut nodes: Vec<_> = members(0..3).iter().map(|pod| scene.node_of(pod)).collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "members share a node");
    scene.quiet();
}

fn deletions(world: &World) {
    let scene = world.namespace("deletions");
    scene.apply(&workload("ReplicationController", "rc", 3));
    scene.eventually_ready(&members(0..3));
    let node = scene.node_of("db-1");
    for _ in 0..5 {
        scene.delete_pods(&["db-1"]);
        scene.eventually_ready(&members(0..3));
        assert_eq!(scene.node_of("db-1"), node);
    }
    scene.quiet();
}

fn ordinals(world: &World) {
    let scene = world.namespace("ordinals");
    let cases = [
        ("ReplicaSet", "a", "2,5-", 3, vec!["a-2", "a-5", "a-6"]),
        ("ReplicaSet", "b", "0-1,7", 3, vec!["b-0", "b-1", "b-7"]),
        ("ReplicationController", "c", "10-20", 2, vec!["c-10", "c-11"]),
        ("Deployment", "d", "3", 1, vec!["d-3"]),
    ];
    let mut wanted = Vec::new();
    for (kind, flock, set, replicas, names) in cases {
        let annotations = json!({ "flock.dev/ordinals": set, "flock.dev/pin": "Shared" });
        scene.apply(&annotated(member_of(flock, kind, flock, replicas), &annotations));
        wanted.extend(names);
    }
    scene.eventually_ready(&wanted);
    scene.scale("rs/a", 1);
    scene.scale("rs/b", 2);
    scene.eventually_ready(&["a-2", "b-0", "b-1", "c-10", "c-11", "d-3"]);
    scene.scale("rs/a", 4);
    scene.eventually_ready(&["a-2", "a-5", "a-6", "a-7", "b-0", "b-1", "c-10", "c-11", "d-3"]);
}

fn one_replica_each(world: &World) {
    let scene = world.namespace("each");
    for ordinal in ["0", "1", "2"] {
        let set = workload("ReplicaSet", &format!("rs-{ordinal}"), 1);
        scene.apply(&annotated(set, &json!({ "flock.dev/ordinals": ordinal })));
    }
    scene.eventually_ready(&members(0..3));
    scene.run(&["delete", "pod", "db-0", "db-1", "db-2", "--wait=false"]);
    scene.eventually("new pods", || {
        (scene.recording.count_created() >= 6).then_some(())
    });
    scene.eventually_ready(&members(0..3));
    for ordinal in 0..3 {
        let pod = scene.get(&format!("pod/db-{ordinal}"));
        assert_eq!(
            pod["metadata"]["ownerReferences"][0]["name"],
            format!("rs-{ordinal}")
        );
    }
    assert_eq!(scene.clashes(), 0);
}

fn overlapping(world: &World) {
    let scene = world.namespace("overlap");
    scene.apply(&workload("ReplicaSet", "first", 2));
    scene.eventually_ready(&members(0..2));
    scene.apply(&workload("ReplicaSet", "second", 2));
    scene.eventually_event(
        "second",
        "every ordinal of 0-1 is held: db-0 (ready, of ReplicaSet first), db-1",
    );
    scene.quiet();
    scene.scale("rs/first", 1);
    scene.eventually("one member of each", || {
        let owner = |pod: &str| {
            let pod = scene.pod(pod)?;
            pod.metadata
                .owner_references?
                .first()
                .map(|owner| owner.name.clone())
        };
        (owner("db-0")? == "first" && owner("db-1")? == "second").then_some(())
    });
    scene.run(&["delete", "rs", "first"]);
    scene.eventually_ready(&members(0..2));
}

fn too_many(world: &World) {
    let scene = world.namespace("many");
    scene.apply(&annotated(
        workload("ReplicaSet", "rs", 2),
        &json!({ "flock.dev/ordinals": "0-1" }),
    ));
    scene.eventually_ready(&members(0..2));
    // As an autoscaler does it, past those who look at what is applied.
    scene.run(&["scale", "rs/rs", "--replicas=3"]);
    scene.eventually_event(
        "rs",
        "3 replicas are wanted, but flock.dev/ordinals (0-1) has 2 ordinals and all are held",
    );
    scene.eventually_ready(&members(0..2));
    scene.quiet();
    let wider =
        json!({ "spec": { "template": { "metadata": { "annotations": { "flock.dev/ordinals": "0-" } } } } });
    scene.patch("rs/rs", &wider);
    scene.eventually_ready(&members(0..3));
}

fn named_bare_pods(world: &World) {
    let scene = world.namespace("named");
    let message = scene.refused(&bare("etcd", &json!({ "name": "etcd0" })));
    assert!(
        message.contains("pod etcd0 cannot be a member of flock etcd: members are named etcd-<ordinal>"),
        "{message}"
    );
    for name in ["etcd-0", "etcd-7"] {
        scene.apply(&bare("etcd", &json!({ "name": name })));
    }
    scene.eventually_ready(&["etcd-0", "etcd-7"]);
    let outside = bare(
        "etcd",
        &json!({ "name": "etcd-1", "annotations": { "flock.dev/ordinals": "2-" } }),
    );
    assert!(
        scene
            .refused(&outside)
            .contains("pod etcd-1 has ordinal 1, which its annotation")
    );
    // One that is over keeps its ordinal, since it is its user's, and its name says so.
    scene.end_pod("etcd-7", "Succeeded", "Completed");
    scene.eventually_event("etcd-7", "kubectl delete pod etcd-7");
    let set = annotated(
        member_of("etcd", "ReplicaSet", "rs", 1),
        &json!({ "flock.dev/ordinals": "7" }),
    );
    scene.apply(&set);
    scene.eventually_event(
        "rs",
        "etcd-7 (over, a bare pod); delete the pods that are not wanted",
    );
    scene.delete_pods(&["etcd-7"]);
    scene.eventually_ready(&["etcd-0", "etcd-7"]);
}

fn generated_bare_pods(world: &World) {
    let scene = world.namespace("generated");
    for _ in 0..3 {
        scene.create(&bare("db", &json!({ "generateName": "whatever-" })));
    }
    scene.eventually_ready(&members(0..3));
    let node = scene.node_of("db-1");
    scene.delete_pods(&["db-1"]);
    scene.quiet();
    scene.eventually_ready(&members([0, 2]));
    scene.create(&bare("db", &json!({ "generateName": "whatever-" })));
    scene.eventually_ready(&members(0..3));
    assert_eq!(scene.node_of("db-1"), node);
}

fn dry_runs(world: &World) {
    let scene = world.namespace("dry");
    let pod = bare("db", &json!({ "generateName": "db-" }));
    for _ in 0..5 {
        assert_eq!(scene.dry_run(&pod), "db-0");
    }
    assert_eq!(scene.writes().len(), 0, "a dry run made Flock write");
    scene.create(&pod);
    scene.eventually_ready(&members([0]));
}

fn stateful_set(world: &World) {
    let scene = world.namespace("stateful");
    let set = |name: &str| {
        with(
            workload("StatefulSet", name, 2),
            &json!({ "spec": { "serviceName": "own" } }),
        )
    };
    let message = scene.refused(&set("other"));
    assert!(
        message.contains("pods of StatefulSet other are named after it"),
        "{message}"
    );
    scene.apply(&set("db"));
    scene.eventually_ready(&members(0..2));
    let node = scene.node_of("db-1");
    scene.delete_pods(&["db-1"]);
    scene.eventually_ready(&members(0..2));
    assert_eq!(scene.node_of("db-1"), node);
    assert_ne!(scene.node_of("db-0"), node);
    assert_eq!(scene.get("pod/db-0")["spec"]["subdomain"], "own");
    scene.quiet();
}

fn without_label(world: &World) {
    let scene = world.namespace("unlabelled");
    let mut set = shared(workload("ReplicaSet", "rs", 2));
    set["metadata"]["labels"] = json!({ "some": "other" });
    scene.apply(&set);
    scene.eventually_ready(&members(0..2));
    scene.delete_pods(&["db-1"]);
    scene.eventually_ready(&members(0..2));
    // At once, while what was looked up of the ReplicaSet is fresh.
    scene.scale("rs/rs", 4);
    let took = scene.eventually_ready(&members(0..4));
    assert!(took.as_secs() < 20, "scaling up took {took:?}");
    scene.scale("rs/rs", 1);
    scene.eventually_ready(&members(0..1));
    scene.quiet();
}

fn wrong_kinds(world: &World) {
    let scene = world.namespace("kinds");
    let template = json!({
        "metadata": { "labels": { "app": "x", "flock.dev/name": "db" } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
    });
    let message = scene.refused(&json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "job" }, "spec": { "template": template },
    }));
    assert!(
        message.contains("pods of a Job cannot be members of flock db"),
        "{message}"
    );
    let mut daemon = member_of("db", "DaemonSet", "daemon", 1);
    daemon["spec"].as_object_mut().expect("a spec").remove("replicas");
    let message = scene.refused(&daemon);
    assert!(
        message.contains("pods of a DaemonSet cannot be members of flock db"),
        "{message}"
    );
    assert_eq!(scene.recording.count_created(), 0);
}
