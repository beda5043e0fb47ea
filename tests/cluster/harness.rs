//! Runs a table of tests in one cluster, and takes the cluster down at the end.

use std::sync::Arc;

use libtest_mimic::{Arguments, Trial};

use crate::world::World;

/// A test and its name, which is a sentence.
pub type Test = (&'static str, fn(&World));

/// Runs the tests that the command line asks for in the cluster that `start` makes, and ends the process.
pub fn run(tests: &[Test], start: fn() -> World) {
    let mut arguments = Arguments::from_args();
    // They wait more than they work.
    arguments.test_threads.get_or_insert(6);
    if arguments.list {
        let trials = tests
            .iter()
            .map(|(name, _)| Trial::test(*name, || Ok(())))
            .collect();
        libtest_mimic::run(&arguments, trials).exit();
    }
    let world = Arc::new(start());
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
