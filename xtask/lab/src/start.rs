//! How a lab starts: from nothing, or by joining one that runs.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::Api;

use crate::components::Components;
use crate::lab::{Cluster, Lab, path_variable, runtime};
use crate::options::{Nodes, Options};
use crate::pki::Pki;
use crate::progress::{human, say};
use crate::sandbox::Sandbox;
use crate::service::Services;
use crate::state::{self, State};
use crate::{FakeNode, ProcessId, control_plane, dirs, fake, host, net};

/// The rights of CoreDNS, which a cluster's installer brings, not the API server.
const RBAC: &str = include_str!("rbac.json");

impl Lab {
    /// Builds what is missing, and starts a lab. Nothing is left when it fails, except, for a person to look
    /// at, its logs.
    pub fn start(mut options: Options) -> Result<Self> {
        options.check()?;
        host::require_root()?;
        host::install_missing(host::BASE_TOOLS)?;
        if options.is_real() {
            host::install_missing(host::NODE_TOOLS)?;
        }
        if options.kube_proxy {
            host::install_missing(host::PROXY_TOOLS)?;
        }
        let name = options.name.take().unwrap_or_else(unique_name);
        dirs::check_name(&name)?;
        let components = Components::new(&options.kubernetes)?;
        components.ensure(options.is_real())?;
        if options.kube_proxy {
            components.ensure_program("kube-proxy")?;
        }

        // Building says by itself how long it takes.
        let started = Instant::now();
        state::sweep()?;
        let run = dirs::run_dir()?.join(&name);
        let Some(lock) = dirs::try_lock(&state::lock_path(&run))? else {
            bail!("lab {name} is in use by another process: stop that one, or give this lab another --name")
        };
        if State::read(&run).is_some_and(|state| state.init.is_alive()) {
            bail!(
                "lab {name} runs already: use it, end it with `cargo xtask lab down --name {name}`, or give another --name"
            )
        }
        state::clear(&run)?;
        let logs = run.join("logs");
        fs::create_dir_all(&logs).with_context(|| format!("{} could not be made", logs.display()))?;

        let lab = Self::create(&name, &run, components, &options, lock)?;
        if let Err(error) = lab.bring_up(&options) {
            lab.keep_state();
            return Err(error.context(format!(
                "lab {name} could not be started; its logs are in {}",
                logs.display()
            )));
        }
        if !options.lifeline {
            lab.outlive_process()?;
        }
        say(format_args!(
            "Lab {name} is ready after {}",
            human(started.elapsed())
        ));
        Ok(lab)
    }

    /// Joins the lab `name`, which another process started.
    pub fn attach(name: &str) -> Result<Self> {
        dirs::check_name(name)?;
        let run = dirs::run_dir()?.join(name);
        let state = State::read(&run)
            .filter(|state| state.init.is_alive())
            .with_context(|| {
                format!("no lab {name} runs: start it with `cargo xtask lab up --name {name}`")
            })?;
        host::require_root()?;
        let components = Components::new(&state.kubernetes)?;
        let pki = Pki::open(&run)?;
        let sandbox = Arc::new(Sandbox::open(state.init)?);
        let services = Services::new(&run, Arc::clone(&sandbox), path_variable(&components)?, state);
        // What an attached process starts goes on without it.
        services.keep();
        Self::assemble(name, &run, components, pki, sandbox, services, None)
    }

    /// The namespaces and the authority: everything that a lab has before its first program.
    fn create(
        name: &str,
        run: &Path,
        components: Components,
        options: &Options,
        lock: fs::File,
    ) -> Result<Self> {
        let mut addresses = vec![net::API_SERVER.to_string(), net::DNS.to_string()];
        if let Nodes::Real { count } = options.nodes {
            addresses.extend((0..count).map(|index| net::real_node_ip(index).to_string()));
        }
        let pki = Pki::create(run)?;
        control_plane::issue_certificates(&pki)?;
        let sandbox = Arc::new(Sandbox::create(&addresses, &run.join("logs/init.log"))?);
        let state = State {
            init: sandbox.init(),
            owner: Some(ProcessId::of(i32::try_from(std::process::id())?)?),
            kubernetes: components.kubernetes().to_owned(),
            real: options.is_real(),
            nodes: Vec::new(),
            next_node: 0,
            node_lease_seconds: options.node_lease_seconds(),
            services: std::collections::BTreeMap::new(),
        };
        state.write(run)?;
        let services = Services::new(run, Arc::clone(&sandbox), path_variable(&components)?, state);
        let mut lab = Self::assemble(name, run, components, pki, sandbox, services, Some(lock))?;
        if options.keep_state {
            lab.keep_state();
        }
        if let Some(cluster) = &mut lab.cluster {
            cluster.kubelet_args = options.args_of("kubelet");
        }
        Ok(lab)
    }

    fn assemble(
        name: &str,
        run: &Path,
        components: Components,
        pki: Pki,
        sandbox: Arc<Sandbox>,
        services: Services,
        lock: Option<fs::File>,
    ) -> Result<Self> {
        let kubeconfig = pki.kubeconfig("admin", &["system:masters"])?;
        let runtime = Some(runtime(Some(Arc::clone(&sandbox)))?);
        let keep_state = AtomicBool::new(false);
        let cluster = Some(Cluster {
            run: run.to_owned(),
            components,
            pki,
            sandbox,
            services,
            lock: Mutex::new(lock),
            keep_state,
            kubelet_args: Vec::new(),
        });
        Ok(Self {
            name: name.to_owned(),
            kubeconfig,
            runtime,
            cluster,
        })
    }

    /// Starts the programs, one after the other where one needs another.
    fn bring_up(&self, options: &Options) -> Result<()> {
        let Cluster {
            run,
            components,
            pki,
            services,
            ..
        } = self.cluster()?;
        services.add(control_plane::etcd(components, run))?;
        services.add(control_plane::api_server(components, run, pki, options)?)?;
        self.wait_ready("kube-apiserver")?;
        services.add(control_plane::controller_manager(components, pki, options)?)?;
        services.add(control_plane::scheduler(components, pki, options)?)?;
        self.apply(RBAC)?;
        services.add(control_plane::coredns(components, pki, run, options)?)?;
        match options.nodes {
            Nodes::Fake { count, zones } => {
                services.add(fake::kwok(components, pki, run, options)?)?;
                for index in 0..count {
                    self.add_fake_node(&FakeNode::new(
                        format!("node-{index}"),
                        format!("zone-{}", index % zones),
                    ))?;
                }
            }
            Nodes::Real { count } => self.add_real_nodes(count)?,
        }
        if options.kube_proxy {
            services.add(control_plane::proxy(components, pki, run, options)?)?;
        }
        self.wait_until("service accounts are made", async || {
            let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
            Ok(accounts.get_opt("default").await?.is_some())
        })?;
        self.wait_ready("coredns")?;
        self.wait_nodes_ready()?;
        if options.kube_proxy {
            self.wait_ready("kube-proxy")
        } else {
            Ok(())
        }
    }
}

/// A name that no other lab of this machine has: two processes with one number can't run at once, and what a
/// dead one left is swept before the next starts.
fn unique_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("p{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
