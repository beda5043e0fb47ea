//! `cargo xtask image`: Flock's image as an OCI archive, without a container engine.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use flock_lab::{find_program, human, image::Image};

pub(crate) use flock_lab::workspace_dir as root;

use crate::say;

/// The image's name in the manifests.
pub(crate) const NAME: &str = "flock:dev";

/// Where to write it.
#[derive(Debug, Args)]
pub(crate) struct Build {
    /// The archive to write.
    #[arg(long, default_value = "target/image/flock.tar")]
    output: PathBuf,
    /// The image's name.
    #[arg(long, default_value = NAME)]
    name: String,
    /// Compiles with fewer optimisations, in less than half the time.
    #[arg(long)]
    quick: bool,
}

/// Runs the command.
pub(crate) fn run(build: &Build) -> Result<()> {
    write(&build.name, &build.output, build.quick)?;
    say(&format!(
        "{} is in {}; load it with your engine, such as",
        build.name,
        build.output.display()
    ));
    say(&format!(
        "  kind load image-archive {0}   or   ctr -n k8s.io image import {0}",
        build.output.display()
    ));
    Ok(())
}

/// Builds the static program and writes the image.
pub(crate) fn write(name: &str, output: &Path, quick: bool) -> Result<()> {
    let program = static_binary(quick)?;
    if let Some(parent) = output.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("{} cannot be made", parent.display()))?;
    }
    Image::new(name)
        .program("flock", program)
        .user("65532:65532")
        .entrypoint(["/flock"])
        .write(output)
}

/// Flock for any Linux of this architecture: linked with musl, so that it needs nothing of the image it runs in.
fn static_binary(quick: bool) -> Result<PathBuf> {
    let profile = if quick { "quick" } else { "release" };
    let begin = Instant::now();
    let target = format!("{ARCH}-unknown-linux-musl");
    ensure_target(&target)?;
    let mut cargo = cargo();
    cargo.args([
        "build",
        "--quiet",
        "--profile",
        profile,
        "--locked",
        "--package",
        "flock",
        "--bin",
        "flock",
    ]);
    cargo.args(["--target", &target]);
    // ring compiles a little C, for which the headers of any libc will do; the linker takes Rust's own musl.
    if find_program("musl-gcc").is_none() {
        cargo.env(format!("CC_{}", target.replace('-', "_")), "cc");
    }
    let status = cargo.status().context("cargo could not be started")?;
    if !status.success() {
        bail!("the static program could not be built ({status}); cargo has said why");
    }
    let program = target_dir().join(&target).join(profile).join("flock");
    say(&format!("Built the static program in {}", human(begin.elapsed())));
    Ok(program)
}

fn ensure_target(target: &str) -> Result<()> {
    let rustup = |args: &[&str]| Command::new("rustup").args(args).current_dir(root()).output();
    let missing = || format!("Rust's standard library for {target} is missing: rustup target add {target}");
    let installed = rustup(&["target", "list", "--installed"]).with_context(missing)?;
    if String::from_utf8_lossy(&installed.stdout)
        .lines()
        .any(|line| line == target)
    {
        return Ok(());
    }
    say(&format!("Adding Rust's standard library for {target}"));
    let added = rustup(&["target", "add", target]).with_context(missing)?;
    if !added.status.success() {
        bail!("{}\n{}", missing(), String::from_utf8_lossy(&added.stderr));
    }
    Ok(())
}

/// The cargo that runs us, in the project's folder.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// Where cargo builds.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |target| root().join(target))
}
