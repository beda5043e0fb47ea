//! `cargo xtask fuzz`: coverage-guided fuzzing of what Flock reads from others.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use flock_lab::find_program;

use crate::image::root;
use crate::say;

const TARGETS: [&str; 4] = ["review", "annotations", "secret", "record"];
/// The longest input: what is read is bounded elsewhere, and short inputs find more in the same time.
const LONGEST: &str = "-max_len=16384";

/// How long.
#[derive(Debug, Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
}

/// Runs every target; fails at the first input that breaks one.
pub(crate) fn run(fuzz: &Fuzz) -> Result<()> {
    let targets: Vec<_> = TARGETS
        .iter()
        .filter(|name| fuzz.target.as_deref().is_none_or(|only| only == **name))
        .collect();
    if targets.is_empty() {
        bail!("there is no such target: {}", TARGETS.join(", "));
    }
    if find_program("cargo-fuzz").is_none() {
        say("Installing cargo-fuzz");
        succeed(
            cargo(&["install", "cargo-fuzz", "--locked", "--quiet"]),
            "cargo-fuzz could not be installed",
        )?;
    }
    for target in targets {
        seed(target)?;
        say(&format!("\n{target}, {} s", fuzz.seconds));
        let time = format!("-max_total_time={}", fuzz.seconds);
        let args = [
            "+nightly",
            "fuzz",
            "run",
            target,
            "--",
            &time,
            LONGEST,
            "-timeout=5",
            "-rss_limit_mb=1024",
        ];
        succeed(
            cargo(&args),
            "the fuzzer found an input that breaks it; its path is above",
        )?;
    }
    Ok(())
}

fn cargo(args: &[&str]) -> Command {
    // Through rustup's proxy, which knows +nightly; the one that runs us is a toolchain's own.
    let mut cargo = Command::new("cargo");
    cargo
        .args(args)
        .current_dir(root())
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO");
    cargo
}

fn succeed(mut command: Command, otherwise: &str) -> Result<()> {
    let status = command.status().context("cargo could not be started")?;
    if !status.success() {
        bail!("{otherwise} ({status})");
    }
    Ok(())
}

/// Puts the checked-in seeds into the corpus, which is not checked in.
fn seed(target: &str) -> Result<()> {
    let (seeds, corpus) = (
        root().join("fuzz/seeds").join(target),
        root().join("fuzz/corpus").join(target),
    );
    fs::create_dir_all(&corpus).with_context(|| format!("{} cannot be made", corpus.display()))?;
    copy_all(&seeds, &corpus).with_context(|| format!("the seeds in {} cannot be copied", seeds.display()))
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
