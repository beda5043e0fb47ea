//! Flock's command line, run as users run it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::world::World;

/// Runs it; returns whether it succeeded, and what it said.
pub fn flock(world: &World, args: &[&str]) -> (bool, String) {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("command-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_flock"));
    let process = world
        .lab
        .spawn(&name, binary, args, &BTreeMap::new())
        .expect("flock starts");
    let status = process
        .wait(Duration::from_secs(60))
        .expect("flock")
        .expect("flock ends in time");
    let log = world.lab.logs().expect("logs").join(format!("{name}.log"));
    (
        status.success(),
        std::fs::read_to_string(log).expect("its output"),
    )
}
