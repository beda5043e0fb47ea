//! `cargo xtask chaos`: the randomized test, for as long as one likes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;
use flock_lab::chaos::{Settings, run as shake};

use crate::image::root;
use crate::say;
use crate::test::build_flock;

/// How long, and with which operations.
#[derive(Debug, Args)]
pub(crate) struct Chaos {
    /// For how many seconds.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// What the operations follow from; by default another one each time, which is printed.
    #[arg(long)]
    seed: Option<u64>,
}

/// Shakes a cluster and prints what came of it.
pub(crate) fn run(chaos: &Chaos) -> Result<()> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let seed = chaos.seed.unwrap_or(now);
    let binary = build_flock()?;
    say(&format!(
        "seed {seed}: cargo xtask chaos --seconds {} --seed {seed} does the same again",
        chaos.seconds
    ));
    let settings = Settings {
        time: Duration::from_secs(chaos.seconds),
        seed,
    };
    let report = shake(&root(), &binary, settings, &mut |line| say(line))?;
    say(&report.to_string());
    if !report.violations.is_empty() {
        bail!("seed {seed} broke what must hold");
    }
    Ok(())
}
