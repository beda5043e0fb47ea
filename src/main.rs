//! The binary: parses, sets up logs and cryptography, runs.

use std::process::ExitCode;

use flock::args::Cli;

fn main() -> ExitCode {
    let cli = Cli::read();
    match flock::run::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Logs may not be set up yet, and this is the last line anyway.
            #[allow(clippy::print_stderr)]
            {
                eprintln!("flock: {error:#}");
            }
            ExitCode::from(flock::run::exit_code(&error))
        }
    }
}
