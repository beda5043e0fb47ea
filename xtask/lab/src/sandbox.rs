//! The namespaces of one lab: one tree of processes with a network and mounts of its own.
//!
//! Process 1 of the tree is a small shell that blocks and reaps. When it dies, the kernel ends every process
//! of the lab and drops its mounts and its network, so nothing can be left behind. It reads its standard input
//! from a pipe whose other end this process holds: when this process dies in whatever way, the shell reads the
//! end of the file and ends. A lab that is to outlive this process sends `keep` first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::Signal;

use crate::pid::ProcessId;

/// What process 1 runs: mounts and network first, then it waits for the end of its input.
const INIT: &str = include_str!("init.sh");
/// How long the kernel may take to end all processes of a lab.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long process 1 may hang in its end because another process does not reap what it started in the lab.
const REAP_TIMEOUT: Duration = Duration::from_secs(2);

/// Children of this process in labs, by the lab's process 1, which the kernel ends only after all of the lab's
/// processes are reaped; those that were started from outside are reaped by whoever started them. One list
/// for the whole process, because it may have joined the same lab more than once.
static CHILDREN: Mutex<BTreeMap<ProcessId, Vec<Arc<Mutex<Child>>>>> = Mutex::new(BTreeMap::new());

/// The namespaces of a lab that runs.
#[derive(Debug)]
pub(crate) struct Sandbox {
    init: ProcessId,
    network: File,
    mounts: File,
    processes: File,
    /// Present in the process that made the lab.
    owned: Mutex<Option<Owned>>,
}

#[derive(Debug)]
struct Owned {
    child: Child,
    lifeline: Option<ChildStdin>,
}

impl Sandbox {
    /// Makes the namespaces. `addresses` are those that the lab's network has besides loopback; the shell's
    /// own words go to `log`.
    pub(crate) fn create(addresses: &[String], log: &Path) -> Result<Self> {
        let log_file = File::create(log).with_context(|| format!("{} can't be written", log.display()))?;
        let mut command = Command::new("bash");
        command
            .args(["-c", INIT, "flock-lab"])
            .args(addresses)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file);
        let spawned = on_own_thread(move || -> Result<Child> {
            // A process-id namespace holds the children of whoever asked for it, so this short-lived thread
            // asks, and its one child becomes process 1.
            unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).context(
                "the kernel refuses new namespaces, so the lab can't run here: run it as root outside of a \
                 confined container, or use a cluster that exists with --kubeconfig FILE",
            )?;
            command.spawn().context("bash could not be started")
        })?;
        let mut owned = Owned {
            child: spawned?,
            lifeline: None,
        };
        owned.lifeline = owned.child.stdin.take();
        match Self::prepare(owned, log) {
            Ok(sandbox) => Ok(sandbox),
            Err((mut owned, error)) => {
                let _ = owned.child.kill();
                let _ = owned.child.wait();
                Err(error)
            }
        }
    }

    fn prepare(mut owned: Owned, log: &Path) -> Result<Self, (Owned, anyhow::Error)> {
        let mut answer = String::new();
        let stdout = owned.child.stdout.take();
        let read = stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut answer));
        if read.is_err() || answer.trim() != "ready" {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let said = said.trim().lines().last().unwrap_or("nothing").to_owned();
            return Err((
                owned,
                anyhow!("the lab's network and mounts could not be set up: the shell said {said:?}"),
            ));
        }
        let pid = i32::try_from(owned.child.id()).unwrap_or_default();
        match ProcessId::of(pid).and_then(Self::open) {
            Ok(mut sandbox) => {
                sandbox.owned = Mutex::new(Some(owned));
                Ok(sandbox)
            }
            Err(error) => Err((owned, error)),
        }
    }

    /// Opens the namespaces of a lab that somebody else made.
    pub(crate) fn open(init: ProcessId) -> Result<Self> {
        let namespace = |kind: &str| {
            let path = format!("/proc/{}/ns/{kind}", init.pid);
            File::open(&path).with_context(|| format!("the lab's namespaces can't be opened ({path})"))
        };
        let (network, mounts, processes) = (namespace("net")?, namespace("mnt")?, namespace("pid")?);
        // Opened by number, so it is checked afterwards that the number still meant the same process.
        if !init.is_alive() {
            bail!("the lab ended");
        }
        let owned = Mutex::new(None);
        Ok(Self {
            init,
            network,
            mounts,
            processes,
            owned,
        })
    }

    /// Process 1 of the lab.
    pub(crate) fn init(&self) -> ProcessId {
        self.init
    }

    /// Lets the lab outlive this process.
    pub(crate) fn keep(&self) -> Result<()> {
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken, so that it is closed afterwards: the shell goes on by itself.
        let lifeline = owned.as_mut().and_then(|owned| owned.lifeline.take());
        lifeline
            .context("this process does not own the lab")?
            .write_all(b"keep\n")
            .context("the lab ended")
    }

    /// Makes the current thread, and threads that it starts from then on, part of the lab's network.
    pub(crate) fn enter_network(&self) -> Result<()> {
        setns(&self.network, CloneFlags::CLONE_NEWNET)
            .context("the lab's network can't be entered, which takes root and a lab that still runs")
    }

    /// Starts `command` inside, with the lab's mounts or those of `node`, one of its processes. The child is
    /// this process's own, so its exit status is known.
    pub(crate) fn spawn(&self, mut command: Command, node: Option<ProcessId>) -> Result<Arc<Mutex<Child>>> {
        let node_mounts = match node {
            Some(holder) => Some(
                File::open(format!("/proc/{}/ns/mnt", holder.pid))
                    .context("the process that holds a node's mounts ended")?,
            ),
            None => None,
        };
        let mounts = node_mounts.as_ref().unwrap_or(&self.mounts);
        command.process_group(0);
        let child = thread::scope(|scope| {
            let spawning = scope.spawn(|| -> Result<Child> {
                // Threads share root and working folder, which a thread with other mounts can't.
                unshare(CloneFlags::CLONE_FS).context("the thread's root can't be its own")?;
                setns(&self.network, CloneFlags::CLONE_NEWNET)
                    .context("the lab's network can't be entered")?;
                setns(&self.processes, CloneFlags::CLONE_NEWPID)
                    .context("the lab's processes can't be joined")?;
                setns(mounts, CloneFlags::CLONE_NEWNS).context("the lab's mounts can't be entered")?;
                let program = command.get_program().to_string_lossy().into_owned();
                command
                    .spawn()
                    .with_context(|| format!("{program} could not be started in the lab"))
            });
            spawning
                .join()
                .unwrap_or_else(|_| Err(anyhow!("the thread that starts programs ended")))
        })?;
        let child = Arc::new(Mutex::new(child));
        let mut all = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        let children = all.entry(self.init).or_default();
        // Reaped ones need no watching any more.
        children.retain(|child| {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            !matches!(child.try_wait(), Ok(Some(_)))
        });
        children.push(Arc::clone(&child));
        Ok(child)
    }

    /// Ends every process of the lab, and waits until the kernel has done so.
    pub(crate) fn destroy(&self) -> Result<()> {
        self.init.signal(Signal::SIGKILL)?;
        let children = CHILDREN
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.init);
        for child in children.into_iter().flatten() {
            let _ = child.lock().unwrap_or_else(PoisonError::into_inner).wait();
        }
        if !self.init.wait_end(TEARDOWN_TIMEOUT) {
            bail!(
                "the lab's first process {} did not end within {TEARDOWN_TIMEOUT:?}",
                self.init.pid
            )
        }
        if let Some(mut owned) = self.owned.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let deadline = Instant::now() + REAP_TIMEOUT;
            while matches!(owned.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }
}

/// Runs `work` on a thread that ends with it, because it changes the thread for good.
fn on_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(work).join()).map_err(|_| io::Error::other("a thread of the lab ended"))
}
