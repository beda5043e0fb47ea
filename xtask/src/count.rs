//! Counts what test runners say.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// How tests ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Whether the command itself says that all is well.
    pub(crate) succeeded: bool,
}

impl Counts {
    /// Adds what one line says, if it is a runner's closing line.
    fn add(&mut self, line: &str) {
        let Some(rest) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in rest.split([';', '.']).map(str::trim) {
            let mut words = part.split(' ');
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            match (number, words.next()) {
                (Some(number), Some("passed")) => self.passed += number,
                (Some(number), Some("failed")) => self.failed += number,
                _ => {}
            }
        }
    }
}

/// Runs a command, passes its output on, and counts.
pub(crate) fn run(mut command: Command) -> Result<Counts> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cargo could not be started")?;
    let mut counts = Counts::default();
    if let Some(output) = child.stdout.take() {
        let mut out = std::io::stdout().lock();
        for line in BufReader::new(output).lines() {
            let line = line.context("the output of cargo cannot be read")?;
            counts.add(&line);
            writeln!(out, "{line}")?;
        }
    }
    counts.succeeded = child.wait()?.success();
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up_and_others_are_not() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 62 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s",
        );
        counts.add("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out");
        counts.add("100 passed; 100 failed");
        assert_eq!(
            counts,
            Counts {
                passed: 65,
                failed: 2,
                succeeded: false
            }
        );
    }
}
