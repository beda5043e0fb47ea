//! One program that runs in a lab: a component of the cluster, or one that a test starts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
pub use nix::sys::signal::Signal;

use crate::pid::ProcessId;

/// How often an end is looked for.
const POLL: Duration = Duration::from_millis(5);

/// A program in the lab. Dropping it kills it, unless it belongs to a lab that was made by somebody else.
#[derive(Debug)]
pub struct Process {
    name: String,
    id: ProcessId,
    log: PathBuf,
    /// None: started by another process, so that its exit status is not to be had.
    child: Option<Arc<Mutex<Child>>>,
    kill_on_drop: bool,
}

impl Process {
    pub(crate) fn started(name: &str, child: Arc<Mutex<Child>>, log: PathBuf) -> Result<Self> {
        let pid = child.lock().unwrap_or_else(PoisonError::into_inner).id();
        let id = ProcessId::of(i32::try_from(pid).unwrap_or_default())?;
        Ok(Self {
            name: name.to_owned(),
            id,
            log,
            child: Some(child),
            kill_on_drop: true,
        })
    }

    pub(crate) fn attached(name: &str, id: ProcessId, log: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            id,
            log,
            child: None,
            kill_on_drop: false,
        }
    }

    /// Lets the program outlive this value.
    pub(crate) fn keep(&mut self) {
        self.kill_on_drop = false;
    }

    /// The name that it was started under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number and start time, as seen from outside the lab.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The file with its standard output and standard error.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// What it has written so far.
    pub fn log_text(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Whether it runs (or is stopped by a signal, but not ended).
    pub fn is_alive(&self) -> bool {
        self.id.is_alive()
    }

    /// Sends a signal to exactly this program; none when it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.id.signal(signal)
    }

    /// Waits for its end. The status is None where another process started it.
    pub fn wait(&self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(child) = &self.child {
                if let Some(status) = child.lock().unwrap_or_else(PoisonError::into_inner).try_wait()? {
                    return Ok(Some(status));
                }
            } else if !self.id.is_alive() {
                return Ok(None);
            }
            if Instant::now() >= deadline {
                bail!(
                    "{} (process {}) still runs after {timeout:?}; its log is {}",
                    self.name,
                    self.id.pid,
                    self.log.display()
                );
            }
            thread::sleep(POLL);
        }
    }

    /// Asks it to end with SIGTERM, and kills it when it has not within `grace`.
    pub fn terminate(&self, grace: Duration) -> Result<Option<ExitStatus>> {
        // A stopped program sees no SIGTERM before it goes on.
        self.signal(Signal::SIGTERM)?;
        self.signal(Signal::SIGCONT)?;
        self.wait(grace).or_else(|_| self.kill())
    }

    /// Ends it at once, without a word to it.
    pub fn kill(&self) -> Result<Option<ExitStatus>> {
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(10))
    }

    /// The sentence for a program that ended although it should run: what it said last and where the rest is.
    pub(crate) fn post_mortem(&self) -> String {
        let text = self.log_text();
        let last = text.trim().lines().last().unwrap_or("nothing");
        format!(
            "{} ended; it said last {last:?}, and all of it is in {}",
            self.name,
            self.log.display()
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.kill_on_drop {
            let _ = self.kill();
        }
    }
}
