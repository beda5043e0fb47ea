//! Nodes that go, come back, come back as another machine, or only fall silent.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{annotated, members, with, workload};
use crate::pool::Pool;
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "node_loss::the_same_machine_gets_its_member_back_and_another_one_does_not",
        machines,
    ),
    ("node_loss::a_silent_node_keeps_its_member_however_long", silent),
    (
        "node_loss::out_of_service_waits_by_default_and_heals_when_the_node_is_back",
        out_of_service_waits,
    ),
    (
        "node_loss::out_of_service_reassigns_where_that_is_asked_for",
        out_of_service_reassigns,
    ),
    (
        "node_loss::a_deleted_node_reassigns_only_once_the_old_pod_object_is_gone",
        deleted_reassigns,
    ),
    (
        "node_loss::a_drained_node_gets_its_member_back_when_it_is_uncordoned",
        drained,
    ),
    (
        "node_loss::a_pool_scaled_to_zero_and_back_has_every_member_at_home_again",
        scaled_to_zero,
    ),
];

fn reassign(workload: Value) -> Value {
    annotated(workload, &json!({ "flock.dev/on-node-loss": "Reassign" }))
}

fn start(pool: &Pool<'_>, workload: Value, count: u32) -> Vec<String> {
    pool.scene.apply(&pool.workload(workload));
    pool.scene.eventually_ready(&members(0..count));
    members(0..count).iter().map(|pod| pool.home(pod)).collect()
}

/// A time in which Flock would have acted if it were to: more than the grace of these tests.
fn beyond_the_grace() {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(6) {
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn is_gated(pool: &Pool<'_>, pod: &str) -> bool {
    let spec = pool.scene.pod(pod).and_then(|pod| pod.spec).unwrap_or_default();
    spec.scheduling_gates.is_some_and(|gates| !gates.is_empty())
}

fn machines(world: &World) {
    let pool = Pool::new(world, "machine", &["a", "b", "c"]);
    let scene = &pool.scene;
    let home = start(&pool, workload("ReplicaSet", "db", 2), 2)[1].clone();
    pool.delete(&home);
    pool.collect("db-1");
    scene.eventually_event(
        "db",
        "which is gone: it waits until the same machine registers again",
    );
    pool.add(&home, |node| node.machine_id = Some("stranger".into()));
    scene.eventually_event("db", "the node of this name is machine stranger now");
    beyond_the_grace();
    assert!(is_gated(&pool, "db-1"));
    assert_eq!(pool.carriers(1), Vec::<String>::new());
    pool.delete(&home);
    pool.add(&home, |_| {});
    scene.eventually_ready(&members(0..2));
    assert_eq!(pool.home("db-1"), home);
}

fn silent(world: &World) {
    let pool = Pool::new(world, "silent", &["a", "b", "c"]);
    let scene = &pool.scene;
    let homes = start(&pool, reassign(workload("ReplicaSet", "db", 3)), 3);
    let writes = pool.node_writes();
    pool.fail(&homes[1]);
    scene.run(&["delete", "pod", "db-1", "--wait=false"]);
    scene.eventually_event("db", "db-1 is to end, but its node");
    beyond_the_grace();
    assert!(
        scene.pod("db-1").unwrap().metadata.deletion_timestamp.is_some(),
        "the old object is still there"
    );
    assert_eq!(
        scene
            .recording
            .created()
            .iter()
            .filter(|name| *name == "db-1")
            .count(),
        1
    );
    assert_eq!(pool.node_writes(), writes);
    for other in [0, 2] {
        assert_eq!(pool.home(&format!("db-{other}")), homes[other]);
    }
    pool.recover(&homes[1]);
    scene.eventually_ready(&members(0..3));
    assert_eq!(pool.home("db-1"), homes[1]);
}

/// Declares a node's machine to be off.
fn declare_off(pool: &Pool<'_>, short: &str) {
    pool.fail(short);
    let node = pool.node(short);
    pool.scene.run(&[
        "taint",
        "node",
        &node,
        "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
    ]);
}

fn out_of_service_waits(world: &World) {
    let pool = Pool::new(world, "off", &["a", "b", "c"]);
    let scene = &pool.scene;
    let homes = start(&pool, workload("ReplicaSet", "db", 2), 2);
    scene.run(&["delete", "pod", "db-1", "--wait=false"]);
    declare_off(&pool, &homes[1]);
    // The pod garbage collector removes the old object: it may, since the machine is off.
    scene.eventually_event(
        "db",
        "which is out of service: it waits for it; to give up its data",
    );
    beyond_the_grace();
    assert_eq!(pool.carriers(1), [homes[1].clone()]);
    scene.run(&[
        "taint",
        "node",
        &pool.node(&homes[1]),
        "node.kubernetes.io/out-of-service-",
    ]);
    pool.recover(&homes[1]);
    scene.eventually_ready(&members(0..2));
    assert_eq!(pool.home("db-1"), homes[1]);
}

fn out_of_service_reassigns(world: &World) {
    let mut pool = Pool::new(world, "offre", &["a", "b", "c"]);
    pool.scene.may_move = true;
    let scene = &pool.scene;
    let homes = start(&pool, reassign(workload("ReplicaSet", "db", 2)), 2);
    let free = ["a", "b", "c"]
        .into_iter()
        .find(|name| !homes.contains(&(*name).to_owned()))
        .unwrap();
    declare_off(&pool, &homes[1]);
    pool.collect("db-1");
    scene.eventually_ready(&members(0..2));
    assert_eq!(pool.home("db-1"), free);
    scene.eventually_event(
        "db",
        &format!("its data stayed behind on {}", pool.node(&homes[1])),
    );
    scene.eventually("one label", || {
        (pool.carriers(1) == [free.to_owned()]).then_some(())
    });
    scene.run(&[
        "taint",
        "node",
        &pool.node(&homes[1]),
        "node.kubernetes.io/out-of-service-",
    ]);
    pool.recover(&homes[1]);
    pool.quiet();
    assert_eq!(pool.carriers(1), [free]);
}

fn deleted_reassigns(world: &World) {
    let mut pool = Pool::new(world, "delre", &["a", "b", "c"]);
    pool.scene.may_move = true;
    let scene = &pool.scene;
    let homes = start(&pool, reassign(workload("ReplicaSet", "db", 2)), 2);
    let free = ["a", "b", "c"]
        .into_iter()
        .find(|name| !homes.contains(&(*name).to_owned()))
        .unwrap();
    pool.quiet();
    let (record, writes) = (pool.record(), pool.node_writes());
    pool.delete(&homes[1]);
    beyond_the_grace();
    assert!(
        scene
            .pod("db-1")
            .is_some_and(|pod| pod.spec.unwrap().node_name.is_some()),
        "the old object is there"
    );
    assert_eq!((pool.record(), pool.node_writes()), (record, writes));
    pool.collect("db-1");
    scene.eventually_ready(&members(0..2));
    assert_eq!(pool.home("db-1"), free);
    scene.eventually_event(
        "db",
        &format!("its data stayed behind on {}", pool.node(&homes[1])),
    );
    // Coming back does not bring it back.
    pool.add(&homes[1], |_| {});
    pool.quiet();
    assert_eq!(pool.carriers(1), [free]);
}

fn drained(world: &World) {
    let pool = Pool::new(world, "drain", &["a", "b", "c"]);
    let scene = &pool.scene;
    scene.apply(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "db" },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "db" } } },
    }));
    let home = start(&pool, workload("ReplicaSet", "db", 3), 3)[1].clone();
    let node = pool.node(&home);
    let begin = Instant::now();
    scene.run(&[
        "drain",
        &node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=60s",
    ]);
    println!("drained after {:?}", begin.elapsed());
    scene.eventually_event("db", "where its data is: cordoned");
    assert_eq!(pool.carriers(1).join(" "), home);
    assert_eq!(scene.pod("db-1").and_then(|pod| pod.spec?.node_name), None);
    scene.run(&["uncordon", &node]);
    scene.eventually_ready(&members(0..3));
    assert_eq!(pool.home("db-1"), home);
}

fn scaled_to_zero(world: &World) {
    let pool = Pool::new(world, "zero", &["a", "b", "c"]);
    let scene = &pool.scene;
    let set = with(reassign(workload("ReplicaSet", "db", 3)), &json!({}));
    let homes = start(&pool, set, 3);
    for name in &homes {
        pool.delete(name);
    }
    for pod in members(0..3) {
        pool.collect(&pod);
    }
    scene.eventually("three members that wait", || {
        (scene.pods().len() == 3 && members(0..3).iter().all(|pod| is_gated(&pool, pod))).then_some(())
    });
    beyond_the_grace();
    // No node is free for the first that comes but to its own member.
    for name in homes.iter().rev() {
        pool.add(name, |_| {});
    }
    scene.eventually_ready(&members(0..3));
    assert_eq!(
        members(0..3).iter().map(|pod| pool.home(pod)).collect::<Vec<_>>(),
        homes
    );
}
