//! `cargo xtask demo`: a plain ReplicaSet of three etcd members becomes a flock on a real cluster.
//!
//! Each step makes a claim and fails where it does not hold.

mod cluster;
mod etcd;
mod steps;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use flock_lab::{DEFAULT_KUBERNETES, human};

use crate::say;
use cluster::Cluster;

/// How to run the demo.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Leaves the cluster up afterwards.
    #[arg(long)]
    keep: bool,
    /// Nodes that kwok plays: names, nodes and DNS are shown, containers do not run.
    #[arg(long)]
    fake: bool,
    /// The version of Kubernetes.
    #[arg(long, default_value = DEFAULT_KUBERNETES, conflicts_with = "kubeconfig")]
    kubernetes: String,
    /// Uses the cluster of this kubeconfig instead of a lab. Its nodes must have the images of `cargo xtask image`.
    #[arg(long, value_name = "FILE", conflicts_with = "fake")]
    kubeconfig: Option<PathBuf>,
}

/// Runs it.
pub(crate) fn run(demo: &Demo) -> Result<()> {
    let begin = Instant::now();
    let cluster = Cluster::start(demo)?;
    let shown = steps::run(&cluster);
    match &shown {
        Ok(()) => say(&format!("\nAll claims held, in {}.", human(begin.elapsed()))),
        Err(_) => cluster.keep_logs(),
    }
    cluster.end(demo.keep && shown.is_ok())?;
    shown
}
