//! A lab that runs: what one can do with it.

use std::fs::{self, File};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::runtime::{Builder, Runtime};

use crate::components::Components;
use crate::pki::Pki;
use crate::sandbox::Sandbox;
use crate::service::Services;
use crate::{dirs, net, state};

/// A cluster: one that the lab runs, or one that exists elsewhere.
///
/// Dropping it ends what this value started: every process of the cluster, its network and its mounts, and,
/// unless it is to be kept, its state on disk.
#[derive(Debug)]
pub struct Lab {
    pub(crate) name: String,
    pub(crate) kubeconfig: PathBuf,
    /// The environment's own runtime, on whose threads the lab's network is entered.
    pub(crate) runtime: Option<Runtime>,
    /// None: a cluster that exists elsewhere.
    pub(crate) cluster: Option<Cluster>,
}

/// What only a cluster of the lab's own has.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) run: PathBuf,
    pub(crate) components: Components,
    pub(crate) pki: Pki,
    pub(crate) sandbox: Arc<Sandbox>,
    pub(crate) services: Services,
    /// Held by the process that runs the lab; None in one that is only attached to it.
    pub(crate) lock: Mutex<Option<File>>,
    pub(crate) keep_state: AtomicBool,
    /// More flags for kubelets.
    pub(crate) kubelet_args: Vec<String>,
}

impl Lab {
    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn cluster(&self) -> Result<&Cluster> {
        self.cluster.as_ref().with_context(|| {
            format!(
                "the cluster of {} is not the lab's own, so its parts can't be touched: leave --kubeconfig out to use a lab",
                self.kubeconfig.display()
            )
        })
    }

    /// Uses the cluster that `kubeconfig` leads to instead of one of the lab's own.
    pub fn existing(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = kubeconfig.canonicalize().with_context(|| {
            format!(
                "the kubeconfig {} can't be read: give the path of one that can",
                kubeconfig.display()
            )
        })?;
        let runtime = Some(Builder::new_multi_thread().enable_all().build()?);
        let lab = Self {
            name: "existing".to_owned(),
            kubeconfig,
            runtime,
            cluster: None,
        };
        let version = lab.block_on(async {
            let client = lab.client().await?;
            Ok::<_, anyhow::Error>(client.apiserver_version().await?)
        });
        match version {
            Ok(_) => Ok(lab),
            Err(error) => Err(error.context(format!(
                "the cluster of {} can't be reached: check that it runs and that the file's address and credentials are right",
                lab.kubeconfig.display()
            ))),
        }
    }

    /// Joins the current thread, and the threads that it starts from then on, to the lab's network, for good.
    pub fn enter(&self) -> Result<()> {
        self.cluster
            .as_ref()
            .map_or(Ok(()), |cluster| cluster.sandbox.enter_network())
    }

    /// A runtime whose threads, those for blocking work too, are in the lab's network. The thread that calls
    /// its `block_on` is not: call [`Lab::enter`] on it before, or use [`Lab::block_on`].
    pub fn runtime(&self) -> Result<Runtime> {
        runtime(self.cluster.as_ref().map(|cluster| Arc::clone(&cluster.sandbox)))
    }

    /// Runs `future` to its end in the lab's network, on the lab's own runtime.
    pub fn block_on<F>(&self, future: F) -> F::Output
    where
        F: Future + Send,
        F::Output: Send,
    {
        let handle = self.runtime.as_ref().map(Runtime::handle);
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                // Where the lab has ended, whatever the future connects to is gone as well, and it says so.
                let _ = self.enter();
                match handle {
                    Some(handle) => handle.block_on(future),
                    // Only a lab that is being dropped has no runtime, and nobody else has that one.
                    None => unreachable!("a lab is used while it is dropped"),
                }
            });
            match running.join() {
                Ok(output) => output,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// The administrator's kubeconfig. Its address is only reached from inside of the lab.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The kubeconfig of any user with a client certificate: `kubeconfig_for("system:node:node-0",
    /// &["system:nodes"])` is a kubelet's.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.cluster()?.pki.kubeconfig(user, groups)
    }

    /// The API server's address, as seen from inside of the lab.
    pub fn api_server_url(&self) -> &'static str {
        net::API_SERVER_URL
    }

    /// The address, in the lab's network, that processes of the lab are reached at by pods and the API server;
    /// loopback will do for the API server.
    pub fn host_ip(&self) -> std::net::IpAddr {
        net::API_SERVER.into()
    }

    /// The certificate of the authority that signed the API server's, in PEM.
    pub fn ca_certificate(&self) -> Result<PathBuf> {
        Ok(self.cluster()?.pki.path("ca.crt"))
    }

    /// A client with the administrator's rights. It connects from whatever thread runs it, so it is made and
    /// used on threads of [`Lab::runtime`], in [`Lab::block_on`], or after [`Lab::enter`].
    pub async fn client(&self) -> Result<kube::Client> {
        self.client_of(&self.kubeconfig).await
    }

    /// A client with the rights of `kubeconfig`, such as one of [`Lab::kubeconfig_for`].
    pub async fn client_of(&self, kubeconfig: &Path) -> Result<kube::Client> {
        let failure = || format!("the kubeconfig {} can't be used", kubeconfig.display());
        let file = Kubeconfig::read_from(kubeconfig).with_context(failure)?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
        kube::Client::try_from(config.with_context(failure)?).with_context(failure)
    }

    /// The file that the API server writes every request into, one JSON object to a line.
    pub fn audit_log(&self) -> Result<PathBuf> {
        Ok(crate::audit_log_path(&self.cluster()?.run))
    }

    /// The folder of this lab's state: logs, keys, data.
    pub fn dir(&self) -> Result<&Path> {
        Ok(&self.cluster()?.run)
    }

    /// The folder with a log file for each program.
    pub fn logs(&self) -> Result<PathBuf> {
        Ok(self.cluster()?.run.join("logs"))
    }

    /// The lab's programs, such as etcdctl for an image.
    pub fn components(&self) -> Result<&Components> {
        Ok(&self.cluster()?.components)
    }

    /// Keeps logs and data on disk after the lab's end, for a person to look at.
    pub fn keep_state(&self) {
        if let Some(cluster) = &self.cluster {
            cluster.keep_state.store(true, Ordering::Relaxed);
        }
    }

    /// Lets the lab go on after this process; `cargo xtask lab down` or [`Lab::down`] ends it.
    pub(crate) fn outlive_process(&self) -> Result<()> {
        let cluster = self.cluster()?;
        cluster.services.keep();
        cluster.services.update_state(|state| state.owner = None)?;
        cluster.sandbox.keep()?;
        cluster.lock.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(())
    }

    /// Lets the lab go on after this process, for a person to look around in.
    pub fn keep_running(self) -> Result<()> {
        self.outlive_process()
    }

    /// Ends the lab, and says when something of it is left.
    pub fn down(mut self) -> Result<()> {
        self.tear_down()
    }

    /// Whether the cluster ends with this value.
    fn owns_cluster(&self) -> bool {
        let lock = self
            .cluster
            .as_ref()
            .map(|cluster| cluster.lock.lock().unwrap_or_else(PoisonError::into_inner));
        lock.is_some_and(|lock| lock.is_some())
    }

    fn tear_down(&mut self) -> Result<()> {
        if let Some(runtime) = self.runtime.take() {
            // Dropping it would wait, which threads of another runtime may not.
            runtime.shutdown_background();
        }
        let Some(cluster) = self.cluster.take() else {
            return Ok(());
        };
        let own = cluster.lock.into_inner().unwrap_or_else(PoisonError::into_inner);
        let lock = match own {
            Some(lock) => lock,
            None => dirs::try_lock(&state::lock_path(&cluster.run))?.with_context(|| {
                let owner = cluster.services.state().owner.map_or(String::new(), |owner| format!(" {}", owner.pid));
                format!("lab {} belongs to process{owner}, which still runs: end that process, and the lab ends with it", self.name)
            })?,
        };
        cluster.sandbox.destroy()?;
        // Ended with the sandbox; dropped before the files that it writes into are removed.
        drop(cluster.services);
        if cluster.keep_state.load(Ordering::Relaxed) || thread::panicking() {
            let keep = state::keep_path(&cluster.run);
            return fs::write(&keep, "").with_context(|| format!("{} can't be written", keep.display()));
        }
        state::remove(&cluster.run, lock)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Only the process that runs the lab ends it by dropping it.
        if self.owns_cluster()
            && let Err(error) = self.tear_down()
        {
            crate::progress::say(format_args!("{error:#}"));
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A runtime whose threads are in the network of `sandbox`.
pub(crate) fn runtime(sandbox: Option<Arc<Sandbox>>) -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_thread_start(move || {
            if let Some(sandbox) = &sandbox {
                // A thread that can't enter finds nothing to connect to, and its work fails with that.
                let _ = sandbox.enter_network();
            }
        })
        .build()
        .map_err(|error| anyhow!(error).context("no threads could be started"))
}

/// PATH for programs of the lab: its own first.
pub(crate) fn path_variable(components: &Components) -> Result<std::ffi::OsString> {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let dirs = components
        .bin_dirs()
        .into_iter()
        .chain(std::env::split_paths(&own))
        .chain(administrators);
    std::env::join_paths(dirs).context("PATH can't be made: a folder's name holds a colon")
}
