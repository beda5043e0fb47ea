//! Flock on a real control plane: etcd, API server, controller manager and scheduler, with nodes that kwok plays.
//!
//! All tests share one cluster and one installation of Flock with two replicas; each has a namespace of its own,
//! in which every event of every pod is recorded, so that the invariants are checked over the whole run and not
//! only at its end.

mod identity;
mod record;
mod world;

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use world::World;

fn main() {
    let arguments = Arguments::from_args();
    let tests: &[(&'static str, fn(&World))] = &[identity::TESTS].concat();
    if arguments.list {
        let trials = tests.iter().map(|(name, _)| Trial::test(*name, || Ok(()))).collect();
        libtest_mimic::run(&arguments, trials).exit();
    }
    let world = Arc::new(World::start());
    let trials = tests
        .iter()
        .map(|(name, test)| {
            let (world, test) = (Arc::clone(&world), *test);
            Trial::test(*name, move || {
                test(&world);
                Ok(())
            })
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if conclusion.has_failed() {
        world.keep();
    }
    // `exit` runs no destructors, and this one takes the cluster down.
    drop(world);
    conclusion.exit();
}
