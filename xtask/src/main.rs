//! Flock's own commands: `cargo xtask --help` lists them.

mod chaos;
mod count;
mod demo;
mod fuzz;
mod image;
mod install;
mod lab;
mod soak;
mod test;
mod wait;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Flock's own build, lab, demo and test commands.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs real Kubernetes clusters on this machine.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Shows a plain ReplicaSet of three etcd members become a flock on a real cluster.
    Demo(demo::Demo),
    /// Disturbs the installation on real kubelets under a steady stream of creations.
    Soak(soak::Soak),
    /// Runs all tests, on real clusters where one is needed.
    Test(test::Test),
    /// Shakes a cluster with random operations and judges every event.
    Chaos(chaos::Chaos),
    /// Fuzzes what Flock reads from others; needs a nightly compiler.
    Fuzz(fuzz::Fuzz),
    /// Writes Flock's image as an OCI archive.
    Image(image::Build),
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Lab(command) => lab::run(command),
        Command::Demo(demo) => demo::run(&demo).map(|()| ExitCode::SUCCESS),
        Command::Soak(soak) => soak::run(&soak).map(|()| ExitCode::SUCCESS),
        Command::Test(test) => test::run(&test).map(|()| ExitCode::SUCCESS),
        Command::Chaos(chaos) => chaos::run(&chaos).map(|()| ExitCode::SUCCESS),
        Command::Fuzz(fuzz) => fuzz::run(&fuzz).map(|()| ExitCode::SUCCESS),
        Command::Image(build) => image::run(&build).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        lab::complain(&error);
        ExitCode::FAILURE
    })
}

/// Writes a line for a person. A closed standard output is no reason to fail.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
