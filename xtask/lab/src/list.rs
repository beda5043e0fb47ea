//! The labs of this machine, seen from outside.

use anyhow::{Result, bail};

use crate::lab::Lab;
use crate::state::{self, State};
use crate::{ProcessId, dirs, progress};

/// One lab, as `cargo xtask lab status` shows it.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Whether it runs; what is left of one that does not is kept for a person to look at.
    pub alive: bool,
    /// The version of Kubernetes, or nothing when the lab died while it started.
    pub kubernetes: String,
    /// Whether its nodes are real.
    pub real: bool,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// The process that it ends with, if any.
    pub owner: Option<ProcessId>,
    /// Its folder.
    pub dir: std::path::PathBuf,
}

/// All labs of this machine, the running ones and those whose state is kept.
pub fn list() -> Result<Vec<Summary>> {
    state::sweep()?;
    let summary = |dir: std::path::PathBuf| {
        let name = dir.file_name()?.to_string_lossy().into_owned();
        let state = State::read(&dir);
        let alive = state.as_ref().is_some_and(|state| state.init.is_alive());
        let (kubernetes, real, nodes, owner) = state
            .map(|state| (state.kubernetes, state.real, state.nodes, state.owner))
            .unwrap_or_default();
        Some(Summary {
            name,
            alive,
            kubernetes,
            real,
            nodes,
            owner,
            dir,
        })
    };
    Ok(state::labs()?.into_iter().filter_map(summary).collect())
}

/// Ends the lab `name` if it runs, and removes its state. False: there is no such lab.
pub fn remove(name: &str) -> Result<bool> {
    dirs::check_name(name)?;
    let run = dirs::run_dir()?.join(name);
    if !run.is_dir() {
        return Ok(false);
    }
    let state = State::read(&run);
    if state.as_ref().is_some_and(|state| state.init.is_alive()) {
        Lab::attach(name)?.down()?;
    } else if let Some(lock) = dirs::try_lock(&state::lock_path(&run))? {
        state::remove(&run, lock)?;
    } else {
        bail!("lab {name} is being started or stopped by another process: wait for it, or end that process")
    }
    progress::say(format_args!("Lab {name} is gone"));
    Ok(true)
}
