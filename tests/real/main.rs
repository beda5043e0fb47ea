//! Flock on real kubelets: containers that run, and files on the nodes' disks.
//!
//! All tests share one cluster of three nodes. Where a machine cannot run real nodes (no root, a kernel without
//! what pod networks need) the tests are skipped, and say why.

// A test says what it expects where it expects it, and its modules are private to it anyway.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr
)]

#[path = "../cluster/command.rs"]
mod command;
mod doctor;
#[path = "../cluster/harness.rs"]
mod harness;
mod image;
mod names;
mod nodes;
#[expect(dead_code, reason = "the tests with fake nodes use more of it")]
#[path = "../cluster/objects.rs"]
mod objects;
mod provisioner;
#[expect(dead_code, reason = "the tests with fake nodes use more of it")]
#[path = "../cluster/scene.rs"]
mod scene;
mod storage;
#[expect(dead_code, reason = "the tests with fake nodes use more of it")]
#[path = "../cluster/world.rs"]
mod world;

use std::path::Path;

use flock_lab::{Options, real_nodes_possible};

use world::World;

fn main() {
    if let Err(reason) = real_nodes_possible() {
        eprintln!("skipped, since this machine cannot run real nodes: {reason:#}");
        return;
    }
    let alone = [doctor::TESTS, nodes::TESTS].concat();
    let tests = [names::TESTS, storage::TESTS].concat();
    harness::run(&tests, &alone, || {
        let world = World::start(Options::real(3));
        image::import(&world.lab, Path::new(env!("CARGO_BIN_EXE_flock")));
        world
    });
}
