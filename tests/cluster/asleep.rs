//! A leader that stands still for longer than its Lease, as on a frozen machine, and goes on. Alone, since half of all
//! admissions wait for it meanwhile.

use std::time::Duration;

use flock_lab::Signal;
use flock_lab::audit::{Mark, Request};
use serde_json::json;

use crate::harness::Test;
use crate::objects::workload;
use crate::pool::Pool;
use crate::world::World;

pub const ALONE: &[Test] = &[(
    "a_leader_that_slept_through_the_loss_of_its_lease_writes_nothing_of_what_it_had_in_mind",
    asleep,
)];

fn asleep(world: &World) {
    let mut pool = Pool::new(world, "asleep", &["a", "b"]);
    pool.scene.may_move = true;
    let scene = &pool.scene;
    scene.apply(&pool.workload(workload("ReplicaSet", "db", 1)));
    scene.eventually_ready(&["db-0"]);
    pool.quiet();
    let home = pool.home("db-0");
    let other = if home == "a" { "b" } else { "a" };
    let sleeper = world.leader();

    // It is about to put the label back, in 15 seconds. Instead, it sleeps.
    pool.take_label(&home, 0);
    std::thread::sleep(Duration::from_secs(1));
    world.flock.signal(sleeper, Signal::SIGSTOP).expect("it stops");

    // The member moves meanwhile.
    pool.set_label(other, 0);
    scene.eventually("another leader", || {
        (world.metric(1 - sleeper, "flock_leader") > 0.5).then_some(())
    });
    scene.delete_pods(&["db-0"]);
    scene.eventually_ready(&["db-0"]);
    assert_eq!(pool.home("db-0"), other);
    scene.eventually("the record to follow", || {
        (pool.record()["0"]["node"] == json!(pool.node(other))).then_some(())
    });
    pool.quiet();

    let mark = Mark::now(&world.lab.audit_log().expect("the log's path")).expect("the audit log");
    world.flock.signal(sleeper, Signal::SIGCONT).expect("it goes on");
    scene.eventually("an end of its lead", || {
        let leads = world.flock.metric(sleeper, "flock_leader", "");
        leads.is_ok_and(|leads| leads < 0.5).then_some(())
    });
    // Whatever it had in mind is overdue.
    std::thread::sleep(Duration::from_secs(3));
    // Namespaces of other tests may end just now.
    let of_the_scene = |request: &Request| {
        request.namespace == scene.namespace || request.name.starts_with(&scene.namespace)
    };
    let ours = |request: &Request| {
        request.is_write()
            && of_the_scene(request)
            && request.user == "system:serviceaccount:flock-system:flock"
    };
    let writes = mark.since("flock-system", ours).expect("the audit log");
    assert!(writes.is_empty(), "{writes:#?}");
    assert_eq!(pool.carriers(0), [other]);
}
