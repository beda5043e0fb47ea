//! Flock's own commands: `cargo xtask --help` lists them.

mod lab;

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
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Lab(command) => lab::run(command),
    };
    result.unwrap_or_else(|error| {
        lab::complain(&error);
        ExitCode::FAILURE
    })
}
