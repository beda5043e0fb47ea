//! A short run of the randomized test, which `cargo xtask chaos` runs for as long as one likes.

// A test says what it expects where it expects it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::path::Path;
use std::time::Duration;

use flock_lab::chaos::{Settings, run};

#[test]
fn random_operations_break_no_invariant_and_end_with_just_the_wanted_members() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
    let settings = Settings {
        time: Duration::from_secs(20),
        seed: 1,
    };
    let report =
        run(root, binary, settings, &mut |line| println!("{line}")).expect("the cluster can be shaken");
    println!("{report}");
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.operations > 20, "{report}");
}
