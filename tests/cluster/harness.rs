//! Runs tables of tests in one cluster, and takes the cluster down at the end.

use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Trial};

use crate::world::World;

/// A test and its name, which is a sentence.
pub type Test = (&'static str, fn(&World));

/// Runs the tests that the command line asks for in the cluster that `start` makes, and ends the process. Those
/// that disturb others run `alone`: after them, one at a time.
pub fn run(tests: &[Test], alone: &[Test], start: fn() -> World) {
    let mut arguments = Arguments::from_args();
    if arguments.list {
        let all = tests.iter().chain(alone);
        let trials = all.map(|(name, _)| Trial::test(*name, || Ok(()))).collect();
        libtest_mimic::run(&arguments, trials).exit();
    }
    // They wait more than they work.
    arguments.test_threads.get_or_insert(6);
    let world = Arc::new(start());
    let side_by_side = round(&arguments, &world, tests);
    arguments.test_threads = Some(1);
    let one_by_one = (!alone.is_empty()).then(|| round(&arguments, &world, alone));
    let failed = side_by_side.has_failed() || one_by_one.as_ref().is_some_and(Conclusion::has_failed);
    if failed {
        world.keep();
    }
    // `exit` runs no destructors, and this one takes the cluster down.
    drop(world);
    match one_by_one {
        Some(last) if !side_by_side.has_failed() => last.exit(),
        _ => side_by_side.exit(),
    }
}

fn round(arguments: &Arguments, world: &Arc<World>, tests: &[Test]) -> Conclusion {
    let trials = tests
        .iter()
        .map(|(name, test)| {
            let (world, test) = (Arc::clone(world), *test);
            Trial::test(*name, move || {
                test(&world);
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(arguments, trials)
}
