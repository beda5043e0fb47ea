//! What is on disk of a lab, and the removal of what dead labs left.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::pid::ProcessId;
use crate::{cgroup, dirs};

/// A program of the cluster: how it is started, and which process it is now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServiceState {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// The node in whose mounts it runs, by the service that holds them.
    pub(crate) mounts_of: Option<String>,
    /// None while it is stopped on purpose.
    pub(crate) process: Option<ProcessId>,
}

/// The file `lab.json` of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) init: ProcessId,
    /// The process that the lab ends with; None: it ends when it is told to.
    pub(crate) owner: Option<ProcessId>,
    pub(crate) kubernetes: String,
    pub(crate) real: bool,
    pub(crate) nodes: Vec<String>,
    /// The number that the next fake node gets.
    pub(crate) next_node: usize,
    pub(crate) node_lease_seconds: u64,
    pub(crate) services: BTreeMap<String, ServiceState>,
}

impl State {
    /// Reads the state of the lab in folder `run`; None when it has none that can be read.
    pub(crate) fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(run.join("lab.json")).ok()?).ok()
    }

    /// Writes it whole or not at all.
    pub(crate) fn write(&self, run: &Path) -> Result<()> {
        let (path, unfinished) = (run.join("lab.json"), run.join("lab.json.unfinished"));
        fs::write(&unfinished, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("{} can't be written", path.display()))
    }
}

/// The file whose lock says that a lab of this name starts, stops, or is run by the holder.
pub(crate) fn lock_path(run: &Path) -> PathBuf {
    run.with_extension("lock")
}

/// The marker that keeps the state of a dead lab for a person to look at.
pub(crate) fn keep_path(run: &Path) -> PathBuf {
    run.join("keep")
}

/// Removes what the dead lab in folder `run` left. The caller holds its lock.
pub(crate) fn clear(run: &Path) -> Result<()> {
    if let Some(name) = run.file_name() {
        cgroup::remove_lab(&name.to_string_lossy());
    }
    if run.exists() {
        fs::remove_dir_all(run).with_context(|| {
            format!(
                "the state of a stopped lab in {} can't be removed: remove it by hand",
                run.display()
            )
        })?;
    }
    Ok(())
}

/// Removes everything of the dead lab in folder `run`, the lock included.
pub(crate) fn remove(run: &Path, lock: File) -> Result<()> {
    clear(run)?;
    // While it is locked: whoever waits for it sees that the name is gone and starts over.
    let _ = fs::remove_file(lock_path(run));
    drop(lock);
    Ok(())
}

/// Removes what labs left whose process was killed: nobody else would ever do it.
pub(crate) fn sweep() -> Result<()> {
    for run in labs()? {
        if keep_path(&run).exists() {
            continue;
        }
        // A lab that starts, or that a live process owns, holds its lock.
        let Some(lock) = dirs::try_lock(&lock_path(&run))? else {
            continue;
        };
        if State::read(&run).is_none_or(|state| !state.init.is_alive()) {
            remove(&run, lock)?;
        }
    }
    Ok(())
}

/// The folders of all labs, alive or not.
pub(crate) fn labs() -> Result<Vec<PathBuf>> {
    let dir = dirs::run_dir()?;
    let entries = fs::read_dir(&dir).with_context(|| format!("{} can't be read", dir.display()))?;
    let mut labs: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|path| path.is_dir())
        .collect();
    labs.sort();
    Ok(labs)
}
