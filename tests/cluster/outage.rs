//! Flock's own end and return. These run alone, since they take Flock from all others.

use std::time::{Duration, Instant};

use flock_lab::Signal;
use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{annotated, bare, members, plain, with, workload};
use crate::world::World;

pub const ALONE: &[Test] = &[
    (
        "without_flock_members_are_refused_and_come_back_by_themselves_with_it",
        down,
    ),
    ("replicas_that_hang_keep_only_members_waiting", hung),
    ("a_rollout_outlives_the_leader", leader_killed),
    ("a_leader_that_is_stopped_in_order_leaves_at_once", leader_stopped),
    ("a_lease_that_somebody_deletes_is_back_in_moments", lease_deleted),
    (
        "a_controller_manager_that_restarts_leaves_one_pod_for_each_ordinal",
        controller_manager,
    ),
];

fn down(world: &World) {
    let scene = world.namespace("down");
    scene.apply(&workload("ReplicaSet", "rs", 3));
    scene.eventually_ready(&members(0..3));
    let node = scene.node_of("db-1");
    for replica in 0..2 {
        world.flock.stop(replica).expect("Flock stops");
    }
    scene.delete_pods(&["db-1"]);
    scene.eventually_event("rs", "failed calling webhook");
    scene.apply(&plain(1));
    scene.eventually("a plain pod", || (scene.pods().len() == 3).then_some(()));
    // Long enough for a back-off that nobody would wait out.
    std::thread::sleep(Duration::from_secs(6));
    assert!(scene.pod("db-1").is_none(), "a member was admitted without Flock");
    for replica in 0..2 {
        world.flock.start(replica).expect("Flock starts");
    }
    for replica in 0..2 {
        world.flock.wait_ready(replica).expect("Flock is ready");
    }
    let begin = Instant::now();
    let pod = scene.eventually("db-1", || {
        scene.pod("db-1").filter(flock_lab::recording::is_ready)
    });
    println!(
        "Flock is back: the member was Ready {:.2?} after it",
        begin.elapsed()
    );
    assert_eq!(pod.spec.unwrap().node_name, Some(node));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

/// A black hole instead of a refused connection: each call that asks Flock ends by its timeout only.
fn hung(world: &World) {
    let scene = world.namespace("hung");
    scene.apply(&workload("ReplicaSet", "rs", 2));
    scene.eventually_ready(&members(0..2));
    for replica in 0..2 {
        world.flock.signal(replica, Signal::SIGSTOP).expect("it stops");
    }
    scene.delete_pods(&["db-1"]);
    // No answer comes from whoever is asked now: what is created was never asked about.
    scene.apply(&plain(1));
    scene.eventually("a plain pod", || (scene.pods().len() == 2).then_some(()));
    // Nor is anything in the namespaces that Flock itself and the cluster stand on, whatever its labels say.
    for namespace in ["flock-system", "kube-system"] {
        let pod = strict(bare("db", &json!({ "name": "labelled", "namespace": namespace })));
        world.lab.apply(&pod.to_string()).expect("a pod");
        let delete = ["delete", "pod", "labelled", "--wait=false", "-n", namespace];
        world.lab.kubectl(&delete).expect("it is deleted");
    }
    scene.eventually_event("rs", "failed calling webhook");
    assert!(scene.pod("db-1").is_none(), "a member was admitted without Flock");
    for replica in 0..2 {
        world.flock.signal(replica, Signal::SIGCONT).expect("it goes on");
    }
    scene.eventually("db-1", || {
        scene.pod("db-1").filter(flock_lab::recording::is_ready)
    });
}

/// As the policy of Flock's namespace and Pod Security `restricted` want it.
fn strict(pod: Value) -> Value {
    let containers = json!([{
        "name": "c", "image": "registry.k8s.io/pause:3.9",
        "securityContext": {
            "privileged": false, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] },
        },
    }]);
    let context = json!({
        "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" },
    });
    let spec = json!({ "securityContext": context, "containers": containers });
    with(pod, &json!({ "spec": spec }))
}

fn leader_killed(world: &World) {
    let scene = world.namespace("killed");
    let slow = json!({ "lab.flock.dev/ready-after": "1s" });
    scene.apply(&annotated(workload("Deployment", "db", 4), &slow));
    scene.eventually_ready(&members(0..4));
    scene.roll("db", "3.10");
    scene.eventually("a first new member", || {
        scene.tags().values().any(|tag| tag == "3.10").then_some(())
    });
    let leader = world.leader();
    world.flock.kill(leader).expect("the leader dies");
    let begin = Instant::now();
    scene.eventually("another leader", || {
        (world.metric(1 - leader, "flock_leader") > 0.5).then_some(())
    });
    let took = begin.elapsed();
    println!("another replica leads {took:.1?} after the leader's sudden death");
    // The Lease's 15 s, a look, and what a busy machine takes besides.
    assert!(took < Duration::from_secs(17 + 8), "{took:?}");
    scene.eventually_run("3.10", &members(0..4));
    scene.rolled("db");
    world.flock.start(leader).expect("it starts again");
    world.flock.wait_ready(leader).expect("it is ready again");
    assert_eq!(
        scene.recording.most_unavailable(&members(0..4), Duration::ZERO),
        1
    );
    assert_eq!(scene.recording.names().len(), 4);
}

fn leader_stopped(world: &World) {
    let scene = world.namespace("stopped");
    let leader = world.leader();
    world.flock.stop(leader).expect("the leader stops");
    let begin = Instant::now();
    scene.eventually("another leader", || {
        (world.metric(1 - leader, "flock_leader") > 0.5).then_some(())
    });
    let took = begin.elapsed();
    println!("another replica leads {took:.1?} after the leader's end");
    // It looks every second; what is left is for a busy machine, and less than the 15 s of the Lease.
    assert!(took < Duration::from_secs(8), "{took:?}");
    world.flock.start(leader).expect("it starts again");
    world.flock.wait_ready(leader).expect("it is ready again");
}

fn lease_deleted(world: &World) {
    let scene = world.namespace("lease");
    let leader = world.leader();
    let holder = [
        "get",
        "lease",
        "flock",
        "-n",
        "flock-system",
        "-o=jsonpath={.spec.holderIdentity}",
    ];
    world
        .lab
        .kubectl(&["delete", "lease", "flock", "-n", "flock-system"])
        .expect("it is deleted");
    scene.eventually("the Lease", || {
        let found = world.lab.kubectl(&holder).ok()?;
        (found == format!("flock-{leader}")).then_some(())
    });
    assert!(world.metric(leader, "flock_leader") > 0.5);
    assert!(world.metric(1 - leader, "flock_leader") < 0.5);
}

fn controller_manager(world: &World) {
    let scene = world.namespace("manager");
    scene.apply(&workload("ReplicaSet", "rs", 5));
    scene.eventually("a first member", || {
        (scene.recording.count_created() > 0).then_some(())
    });
    world.lab.kill("kube-controller-manager").expect("it dies");
    world
        .lab
        .start_component("kube-controller-manager")
        .expect("it starts");
    scene.eventually_ready(&members(0..5));
    scene.eventually("a recording of all", || {
        (scene.recording.names().len() >= 5).then_some(())
    });
    assert_eq!(scene.recording.names().len(), 5);
}
