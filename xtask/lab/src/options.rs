//! What a lab is made with.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::components::DEFAULT_KUBERNETES;
use crate::net;

/// Names the version of Kubernetes of labs that are started without one being asked for.
pub const KUBERNETES_VARIABLE: &str = "FLOCK_LAB_KUBERNETES";

/// The nodes of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Node objects whose pods kwok plays: cheap, for tests and benchmarks.
    Fake {
        /// How many, named `node-0`, `node-1`, …; more can be added later.
        count: usize,
        /// Over how many zones they are spread in turn: `zone-0`, `zone-1`, …
        zones: usize,
    },
    /// A kubelet and a container runtime for each, with containers that run.
    Real {
        /// How many, named `node-0`, `node-1`, …
        count: usize,
    },
}

/// Settings of a lab. The constructors set what production clusters have.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own, set by name"
)]
pub struct Options {
    /// The lab's name; None: one that no other lab has.
    pub name: Option<String>,
    /// The version of Kubernetes, such as `1.36.3`.
    pub kubernetes: String,
    /// Its nodes.
    pub nodes: Nodes,
    /// Whether the lab ends with this process, in whatever way that ends.
    pub lifeline: bool,
    /// Lifts the client-side request limits of controller manager and scheduler out of the way.
    pub raised_limits: bool,
    /// After how long without a heartbeat a node is unready; None: Kubernetes' own default.
    pub node_monitor_grace: Option<Duration>,
    /// Whether kube-proxy runs, which makes Services' addresses work; labs with real nodes always have it.
    pub kube_proxy: bool,
    /// Keeps logs and data after the lab's end. FLOCK_LAB_KEEP=1 does the same.
    pub keep_state: bool,
    /// More flags for a component, by its name, such as `kube-apiserver`.
    pub extra_args: BTreeMap<String, Vec<String>>,
}

impl Options {
    /// A lab with `count` fake nodes in three zones, which ends with this process.
    pub fn fake(count: usize) -> Self {
        Self::with(Nodes::Fake { count, zones: 3 })
    }

    /// A lab with `count` real nodes, which ends with this process.
    pub fn real(count: usize) -> Self {
        Self::with(Nodes::Real { count })
    }

    fn with(nodes: Nodes) -> Self {
        Self {
            name: None,
            kubernetes: std::env::var(KUBERNETES_VARIABLE).unwrap_or_else(|_| DEFAULT_KUBERNETES.to_owned()),
            nodes,
            lifeline: true,
            raised_limits: false,
            node_monitor_grace: None,
            kube_proxy: matches!(nodes, Nodes::Real { .. }),
            keep_state: std::env::var_os("FLOCK_LAB_KEEP").is_some_and(|value| value == "1"),
            extra_args: BTreeMap::new(),
        }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Adds a flag for a component: `arg("kube-apiserver", "--v=4")`.
    #[must_use]
    pub fn arg(mut self, component: &str, flag: impl Into<String>) -> Self {
        self.extra_args
            .entry(component.to_owned())
            .or_default()
            .push(flag.into());
        self
    }

    pub(crate) fn args_of(&self, component: &str) -> Vec<String> {
        self.extra_args.get(component).cloned().unwrap_or_default()
    }

    pub(crate) fn is_real(&self) -> bool {
        matches!(self.nodes, Nodes::Real { .. })
    }

    /// How long a fake node's lease is good for; it is renewed four times in that time.
    pub(crate) fn node_lease_seconds(&self) -> u64 {
        // The default of kubelets is 40 s against a grace of 50 s; whole seconds are the least there is.
        self.node_monitor_grace
            .map_or(40, |grace| (grace.as_secs() * 4 / 5).clamp(1, 40))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let (count, most) = match self.nodes {
            Nodes::Fake { count, zones } if zones >= 1 => (count, net::MAX_FAKE_NODES),
            Nodes::Fake { .. } => bail!("fake nodes need at least one zone"),
            Nodes::Real { count } => (count, net::MAX_REAL_NODES),
        };
        if count > most {
            bail!("a lab can have at most {most} nodes of this kind, not {count}");
        }
        Ok(())
    }
}
