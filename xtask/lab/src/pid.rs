//! A process by number *and* start time, so that a number that the kernel gave to somebody else since is
//! never signalled.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// One process, told apart from a later one that reuses its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// The number, as seen from outside the lab.
    pub pid: i32,
    /// Clock ticks between the machine's boot and the process's start.
    pub start: u64,
}

impl ProcessId {
    /// Identifies the process that has the number `pid` now.
    pub fn of(pid: i32) -> Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
            .with_context(|| format!("process {pid} ended before it could be identified"))?;
        let parsed = parse_stat(&stat).with_context(|| format!("/proc/{pid}/stat reads {stat:?}"))?;
        Ok(Self {
            pid,
            start: parsed.start,
        })
    }

    /// Whether the process is there, and neither ending nor a zombie.
    pub fn is_alive(self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.pid))
            .ok()
            .and_then(|stat| parse_stat(&stat))
            .is_some_and(|stat| stat.start == self.start && stat.running)
    }

    /// Sends `signal`, unless the process has ended.
    pub fn signal(self, signal: Signal) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("{signal} could not be sent to process {}", self.pid))
            }
        }
    }

    /// Waits until the process has ended; false when `timeout` passed first.
    pub fn wait_end(self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

/// What `/proc/PID/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    running: bool,
    start: u64,
}

/// The kernel's mark on a process that is ending, PF_EXITING.
const EXITING: u64 = 0x4;

/// Reads `/proc/PID/stat`. The command's name comes second, in parentheses, and may itself hold spaces and
/// parentheses, so fields are counted from the last one.
fn parse_stat(line: &str) -> Option<Stat> {
    let (_, rest) = line.rsplit_once(')')?;
    // The first one here is the third of the line.
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let letter = *fields.first()?;
    let flags: u64 = fields.get(6)?.parse().ok()?;
    let start = fields.get(19)?.parse().ok()?;
    // The first process of a lab may hang in its end, harmless, until somebody reaps what it has killed.
    Some(Stat {
        running: !matches!(letter, "Z" | "X") && flags & EXITING == 0,
        start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_a_name_with_parentheses_and_spaces() {
        let stat = "42 (a) b (c)) S 1 2 3 4 5 64 7 8 9 10 11 12 13 14 15 16 17 18 9001 20 21";
        assert_eq!(
            parse_stat(stat),
            Some(Stat {
                running: true,
                start: 9001
            })
        );
    }

    #[test]
    fn this_process_is_alive_and_the_same_number_with_another_start_is_not() {
        let own = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(own.is_alive());
        let reused = ProcessId {
            start: own.start + 1,
            ..own
        };
        assert!(!reused.is_alive());
        // Were the start time not compared, this would end the test.
        reused.signal(Signal::SIGKILL).unwrap();
    }

    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(id.wait_end(Duration::from_secs(5)));
        child.wait().unwrap();
    }
}
