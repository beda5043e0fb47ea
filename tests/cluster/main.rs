//! Flock on a real control plane: etcd, API server, controller manager and scheduler, with nodes that kwok plays.
//!
//! All tests share one cluster and one installation of Flock with two replicas; each has a namespace of its own,
//! in which every event of every pod is recorded, so that the invariants are checked over the whole run and not
//! only at its end.

// A test says what it expects where it expects it, and its modules are private to it anyway.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout
)]

mod admission;
mod asleep;
mod burst;
#[expect(dead_code, reason = "the tests of the server use more of it")]
#[path = "../serving/client.rs"]
mod client;
mod command;
mod doctor;
mod fencing;
mod harness;
mod identity;
mod idle;
mod injector;
mod lifecycle;
mod node_loss;
mod objects;
mod outage;
mod places;
mod pool;
mod release;
mod rollout;
mod scene;
mod storage;
mod stored;
mod uninstall;
mod upgrade;
mod world;

use world::World;

fn main() {
    let tests = [
        // The longest, which waits while others work.
        idle::TESTS,
        admission::TESTS,
        fencing::TESTS,
        identity::TESTS,
        lifecycle::TESTS,
        node_loss::TESTS,
        places::TESTS,
        release::TESTS,
        rollout::TESTS,
        storage::TESTS,
        stored::TESTS,
    ];
    let alone = [
        asleep::ALONE,
        burst::ALONE,
        doctor::ALONE,
        outage::ALONE,
        uninstall::ALONE,
        upgrade::ALONE,
    ]
    .concat();
    harness::run(&tests.concat(), &alone, World::fake);
}
