//! The programs of a cluster, each under a name by which it is stopped, started and looked at.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::process::Process;
use crate::sandbox::Sandbox;
use crate::state::{ServiceState, State};

/// How long a program of the cluster may take to end by itself when it is asked to.
const GRACE: Duration = Duration::from_secs(10);

/// How to start a program of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// The service whose mounts it shares instead of the lab's own.
    pub(crate) mounts_of: Option<String>,
}

impl Service {
    pub(crate) fn new(name: impl Into<String>, program: PathBuf, args: Vec<String>) -> Self {
        Self {
            name: name.into(),
            program,
            args,
            mounts_of: None,
        }
    }
}

/// All programs of one lab's cluster.
#[derive(Debug)]
pub(crate) struct Services {
    run: PathBuf,
    sandbox: Arc<Sandbox>,
    /// PATH of every program: the components' folders first.
    path: OsString,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    state: State,
    processes: BTreeMap<String, Process>,
    /// Programs outlive this process.
    kept: bool,
}

impl Services {
    pub(crate) fn new(run: &Path, sandbox: Arc<Sandbox>, path: OsString, state: State) -> Self {
        let processes = state
            .services
            .iter()
            .filter_map(|(name, service)| {
                Some((
                    name.clone(),
                    Process::attached(name, service.process?, log_path(run, name)),
                ))
            })
            .collect();
        let table = Mutex::new(Table {
            state,
            processes,
            kept: false,
        });
        Self {
            run: run.to_owned(),
            sandbox,
            path,
            table,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets all programs outlive this process.
    pub(crate) fn keep(&self) {
        let mut table = self.table();
        table.kept = true;
        table.processes.values_mut().for_each(Process::keep);
    }

    /// Changes what is known of the lab, and writes it down.
    pub(crate) fn update_state(&self, change: impl FnOnce(&mut State)) -> Result<()> {
        let mut table = self.table();
        change(&mut table.state);
        table.state.write(&self.run)
    }

    pub(crate) fn state(&self) -> State {
        self.table().state.clone()
    }

    /// Adds a program and starts it.
    pub(crate) fn add(&self, service: Service) -> Result<()> {
        let Service {
            name,
            program,
            args,
            mounts_of,
        } = service;
        let state = ServiceState {
            program,
            args,
            mounts_of,
            process: None,
        };
        self.table().state.services.insert(name.clone(), state);
        self.start(&name)
    }

    /// Starts a program that is stopped; nothing happens when it runs.
    pub(crate) fn start(&self, name: &str) -> Result<()> {
        let mut table = self.table();
        if table.processes.get(name).is_some_and(Process::is_alive) {
            return Ok(());
        }
        let service = find(&table.state, name)?.clone();
        let holder = service
            .mounts_of
            .as_deref()
            .and_then(|holder| table.state.services.get(holder)?.process);
        let log = log_path(&self.run, name);
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .with_context(|| format!("{} can't be written", log.display()))?;
        let mut command = Command::new(&service.program);
        command
            .args(&service.args)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", "/root")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(output.try_clone().context("a log file can't be shared")?)
            .stderr(output);
        let child = self.sandbox.spawn(command, holder)?;
        let mut process = Process::started(name, child, log)?;
        if table.kept {
            process.keep();
        }
        if let Some(state) = table.state.services.get_mut(name) {
            state.process = Some(process.id());
        }
        table.processes.insert(name.to_owned(), process);
        table.state.write(&self.run)
    }

    /// Ends a program: with a chance to finish, or at once.
    pub(crate) fn stop(&self, name: &str, at_once: bool) -> Result<()> {
        let mut table = self.table();
        find(&table.state, name)?;
        let Some(process) = table.processes.remove(name) else {
            return Ok(());
        };
        if at_once {
            process.kill()
        } else {
            process.terminate(GRACE)
        }?;
        if let Some(state) = table.state.services.get_mut(name) {
            state.process = None;
        }
        table.state.write(&self.run)
    }

    /// Sends a signal to a program that runs.
    pub(crate) fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let table = self.table();
        find(&table.state, name)?;
        match table.processes.get(name) {
            Some(process) => process.signal(signal),
            None => bail!("{name} is stopped, so it can't be sent {signal}: start it first"),
        }
    }

    /// Fails with what it said last when one of the programs that should run has ended.
    pub(crate) fn check(&self, concerns: impl Fn(&str) -> bool) -> Result<()> {
        let table = self.table();
        let ended = |(name, process): &(&String, &Process)| concerns(name) && !process.is_alive();
        match table.processes.iter().find(ended) {
            Some((_, ended)) => bail!(ended.post_mortem()),
            None => Ok(()),
        }
    }

    /// The programs that have ended though nobody stopped them.
    pub(crate) fn ended(&self) -> Vec<String> {
        let table = self.table();
        let ended = table.processes.iter().filter(|(_, process)| !process.is_alive());
        ended.map(|(name, _)| name.clone()).collect()
    }

    /// Each program's name, and whether it runs.
    pub(crate) fn list(&self) -> Vec<(String, bool)> {
        let table = self.table();
        let alive = |name: &String| table.processes.get(name).is_some_and(Process::is_alive);
        table
            .state
            .services
            .keys()
            .map(|name| (name.clone(), alive(name)))
            .collect()
    }

    /// The process of a program that runs.
    pub(crate) fn process_id(&self, name: &str) -> Result<crate::ProcessId> {
        let table = self.table();
        find(&table.state, name)?;
        table
            .processes
            .get(name)
            .map(Process::id)
            .with_context(|| format!("{name} is stopped"))
    }
}

fn find<'a>(state: &'a State, name: &str) -> Result<&'a ServiceState> {
    state.services.get(name).with_context(|| {
        let known: Vec<&str> = state.services.keys().map(String::as_str).collect();
        format!("the lab has no component {name:?}; it has {}", known.join(", "))
    })
}

/// The log file of a program.
pub(crate) fn log_path(run: &Path, name: &str) -> PathBuf {
    run.join("logs").join(format!("{name}.log"))
}
