//! `flock release` and `flock status`, as users run them.

use serde_json::json;

use crate::command;
use crate::harness::Test;
use crate::objects::{annotated, members, workload};
use crate::pool::Pool;
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "release::a_member_whose_node_is_gone_starts_elsewhere_once_it_is_released",
        node_gone,
    ),
    (
        "release::a_member_that_runs_is_refused_and_nobody_is_asked_without_a_terminal",
        refused,
    ),
    ("release::a_released_flock_leaves_nothing_behind", whole_flock),
    ("release::a_member_waiting_for_a_cordoned_node_is_freed", cordoned),
    (
        "release::a_member_is_told_that_its_data_is_lost_only_where_it_misses_data",
        data_lost,
    ),
];

/// Runs Flock's command line in the pool's namespace.
fn flock(pool: &Pool<'_>, args: &[&str]) -> (bool, String) {
    let namespace = ["--namespace", &pool.scene.namespace];
    command::flock(pool.scene.world, &[args, &namespace].concat())
}

fn run(pool: &Pool<'_>, args: &[&str]) -> String {
    let (good, text) = flock(pool, args);
    assert!(good, "{args:?}: {text}");
    text
}

fn node_gone(world: &World) {
    let mut pool = Pool::new(world, "rel", &["a", "b", "c"]);
    pool.scene.may_move = true;
    let scene = &pool.scene;
    let set = annotated(
        workload("ReplicaSet", "db", 2),
        &json!({ "flock.dev/pin": "Exclusive" }),
    );
    scene.apply(&pool.workload(set));
    scene.eventually_ready(&members(0..2));
    let homes: Vec<_> = members(0..2).iter().map(|pod| pool.home(pod)).collect();
    let free = ["a", "b", "c"]
        .into_iter()
        .find(|name| !homes.contains(&(*name).to_owned()))
        .unwrap();
    pool.delete(&homes[1]);
    pool.collect("db-1");
    scene.eventually_event("db", "flock release db 1 --namespace");
    let status = run(&pool, &["status", "db"]);
    assert!(status.contains("1 of 2 members are Ready"), "{status}");
    assert!(
        status.contains(&format!("{} (gone)", pool.node(&homes[1]))),
        "{status}"
    );
    assert!(status.contains("flock release db 1 --namespace"), "{status}");
    let told = run(&pool, &["release", "db", "1", "--yes"]);
    assert!(
        told.contains(&format!(
            "db-1 leaves node {}; it has no volumes",
            pool.node(&homes[1])
        )),
        "{told}"
    );
    scene.eventually_ready(&members(0..2));
    assert_eq!(pool.home("db-1"), free);
    // The old machine comes back to an ordinal that is another's.
    pool.add(&homes[1], |_| {});
    pool.quiet();
    assert_eq!(pool.carriers(1), [free]);
    assert_eq!(pool.record()["1"]["released"], json!(null));
}

fn refused(world: &World) {
    let pool = Pool::new(world, "relrun", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let (good, text) = flock(&pool, &["release", "db", "0", "--yes"]);
    assert!(!good && text.contains("db-0 is bound to node"), "{text}");
    let (good, text) = flock(&pool, &["release", "db", "5", "--yes"]);
    assert!(!good && text.contains("db-5 has no place"), "{text}");
    let (good, text) = flock(&pool, &["release", "db", "x", "--yes"]);
    assert!(!good && text.contains('x'), "{text}");
    scene.scale("rs/db", 0);
    scene.eventually("no pod", || scene.pods().is_empty().then_some(()));
    let (good, text) = flock(&pool, &["release", "db", "0"]);
    assert!(!good && text.contains("there is no terminal to ask on"), "{text}");
    pool.quiet();
    assert_eq!(pool.carriers(0).len(), 1, "nothing was released");
}

fn whole_flock(world: &World) {
    let pool = Pool::new(world, "relall", &["a", "b"]);
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 2)));
    scene.eventually_ready(&members(0..2));
    scene.run(&["delete", "rs", "db"]);
    scene.eventually("no pod", || scene.pods().is_empty().then_some(()));
    pool.quiet();
    assert_eq!(
        (pool.carriers(0).len(), pool.carriers(1).len()),
        (1, 1),
        "places outlive the workload"
    );
    let told = run(&pool, &["release", "db", "-y"]);
    assert!(
        told.contains("db-0 released") && told.contains("db-1 released"),
        "{told}"
    );
    scene.eventually("no Service", || {
        scene.kubectl(&["get", "service", "db"]).is_err().then_some(())
    });
    assert_eq!((pool.carriers(0), pool.carriers(1)), (vec![], vec![]));
    let status = run(&pool, &["status"]);
    assert!(status.contains("no flock in namespace"), "{status}");
}

fn cordoned(world: &World) {
    let mut pool = Pool::new(world, "relcord", &["a", "b"]);
    pool.scene.may_move = true;
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    let home = pool.home("db-0");
    scene.run(&["cordon", &pool.node(&home)]);
    scene.delete_pods(&["db-0"]);
    scene.eventually_event("db", "where its data is: cordoned");
    run(&pool, &["release", "db", "--yes"]);
    scene.eventually_ready(&["db-0"]);
    assert_ne!(pool.home("db-0"), home);
}

/// Kubelets that kwok plays miss no data, so a test says it in their stead; `tests/real` has the rest.
fn data_lost(world: &World) {
    let pool = Pool::new(world, "rellost", &["a", "b"]);
    let scene = &pool.scene;
    let lost = |ordinal: &str| flock(&pool, &["release", "db", ordinal, "--data-lost", "--yes"]);
    let ordered = annotated(
        workload("ReplicaSet", "db", 2),
        &json!({ "flock.dev/start": "Ordered", "lab.flock.dev/ready-after": "1h" }),
    );
    scene.apply(&pool.workload(ordered));
    scene.eventually("a member that waits for its turn", || scene.pod("db-1"));
    let (good, text) = lost("7");
    assert!(!good && text.contains("db-7 has no pod"), "{text}");
    let (good, text) = lost("1");
    assert!(
        !good && text.contains("nothing says that data of db-1 is missing"),
        "{text}"
    );
    let (good, text) = flock(&pool, &["release", "db", "--data-lost", "--yes"]);
    assert!(!good && text.contains("required"), "{text}");

    let uid = scene.pod("db-1").unwrap().metadata.uid.unwrap();
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "Event", "metadata": { "name": "missed" },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "name": "db-1", "namespace": scene.namespace, "uid": uid },
        "type": "Warning", "reason": "DataMissing", "message": "db-1 misses data. To give that data up and start without it: x",
    }));
    let (good, text) = flock(&pool, &["release", "db", "1", "--data-lost"]);
    assert!(!good && text.contains("there is no terminal to ask on"), "{text}");
    let told = || scene.get("pod/db-1")["metadata"]["annotations"]["flock.dev/data-lost"].clone();
    assert_eq!(told(), json!(null));
    let (good, text) = lost("1");
    assert!(
        good && text.starts_with("db-1 misses data\ndb-1 starts without"),
        "{text}"
    );
    assert_eq!(told(), json!(uid));
    let (good, text) = lost("1");
    assert!(good && text.contains("was told already"), "{text}");

    // Patches with a uid are for that object alone.
    let another =
        json!({ "metadata": { "uid": "00000000-0000-0000-0000-000000000000", "annotations": { "x": "y" } } });
    for object in ["pod/db-1".to_owned(), format!("node/{}", pool.node("a"))] {
        let patched = scene.kubectl(&["patch", &object, "--type=merge", "-p", &another.to_string()]);
        let error = format!("{:#}", patched.unwrap_err());
        assert!(error.contains("metadata.uid"), "{error}");
        assert!(error.contains("field is immutable"), "{error}");
    }
}
