//! A real Kubernetes cluster on one Linux machine, for Flock's demo, tests and benchmarks.
//!
//! The programs are built once from pinned Go modules: etcd, the control plane, CoreDNS, kwok, and for real
//! nodes kubelet, kube-proxy, containerd and network plugins. runc, iptables and conntrack come from the
//! distribution and are installed when they are missing. It takes root and Go.
//!
//! ```no_run
//! use flock_lab::{Lab, Options};
//! use k8s_openapi::api::core::v1::Node;
//! use kube::api::{Api, ListParams};
//!
//! let lab = Lab::start(Options::fake(3))?;
//! lab.apply(&std::fs::read_to_string("example.yaml")?)?;
//! let nodes = lab.block_on(async {
//!     let nodes: Api<Node> = Api::all(lab.client().await?);
//!     anyhow::Ok(nodes.list(&ListParams::default()).await?)
//! })?;
//! assert_eq!(nodes.items.len(), 3);
//! # anyhow::Ok(())
//! ```
//!
//! # A lab is one tree of processes
//!
//! Every lab has a process-id, a network and a mount namespace of its own, so addresses and ports are fixed, and
//! several labs run at once. Its first process is a shell that holds the other end of a pipe of the process that
//! started the lab. When that process ends in whatever way, SIGKILL included, the shell ends too, and with it the
//! kernel ends every other process and drops network and mounts. Only the state on disk and empty control groups
//! are left then, which the next lab of any name removes. `cargo xtask lab up` tells the shell to go on.
//!
//! The tests' own process stays outside; its *threads* enter the network, see [`Lab::block_on`],
//! [`Lab::runtime`] and [`Lab::enter`]. Programs are started inside by [`Lab::spawn`] and [`Lab::command`]; the
//! API server reaches them as `https://127.0.0.1:PORT` or at [`Lab::host_ip`].
//!
//! # Nodes
//!
//! *Fake* nodes are objects whose pods kwok plays: they run at once, with addresses that DNS answers for, but
//! without containers. Annotations of a pod steer it:
//!
//! | annotation | effect |
//! |---|---|
//! | `lab.flock.dev/ready-after: 500ms` | so long after it was bound the pod is ready; default: at once |
//! | `lab.flock.dev/stop-after: 20s` | so long after the deletion the pod is gone; default: at once |
//!
//! An image with the tag `broken` can't be pulled: its pod waits with `ImagePullBackOff`. Nodes fail, come back,
//! are deleted and register again by [`Lab::fail_fake_node`], [`Lab::recover_fake_node`],
//! [`Lab::delete_fake_node`] and [`Lab::add_fake_node`].
//!
//! *Real* nodes have a kubelet and a container runtime each, with mounts, a machine id and a disk under
//! `/var/lib/flock` of their own. Pods use the images of [`image`] and those of [`Lab::import_image`], with
//! `imagePullPolicy: Never`; there is no registry. See [`Lab::node_disk`], [`Lab::stop_kubelet`] and
//! [`Lab::crash_node`].
//!
//! # What is as in production, and what is not
//!
//! Node and RBAC authorizers, NodeRestriction, PodSecurity, client certificates for every kubelet and component,
//! service account tokens for controllers, and an audit log ([`Lab::audit_log`]) with the bodies of writes to pods,
//! nodes, services, replica sets, deployments, volumes and leases. But etcd speaks without TLS and does not wait
//! for the disk, there is one of each component without leader election, one kube-proxy serves all nodes, and
//! DNS answers are not cached.
//!
//! # Where things are
//!
//! Under `target/lab`, or the folder of the environment variable FLOCK_LAB_DIR: built programs in `components/`,
//! the state of each lab in `run/<name>/`, its logs in `run/<name>/logs/`. The logs of a lab that failed, or whose
//! test panicked, or any lab's with FLOCK_LAB_KEEP=1, stay until `cargo xtask lab down --all`.
#![forbid(unsafe_code)]

pub mod audit;
mod cgroup;
pub mod chaos;
mod components;
mod control_plane;
mod digest;
mod dirs;
mod dns;
mod fake;
mod flock;
mod host;
pub mod image;
pub mod junk;
mod lab;
mod list;
mod net;
mod node_config;
mod nodes;
mod options;
mod parts;
mod pid;
mod pki;
mod process;
mod progress;
mod ready;
mod real;
pub mod recording;
mod run;
mod sandbox;
mod service;
mod start;
mod state;

use std::path::{Path, PathBuf};

pub use components::{Components, DEFAULT_KUBERNETES};
pub use dirs::{LAB_DIR_VARIABLE, lab_dir, workspace_dir};
pub use fake::FakeNode;
pub use flock::Flock;
pub use host::find_program;
pub use lab::Lab;
pub use list::{Summary, list, remove};
pub use options::{KUBERNETES_VARIABLE, Nodes, Options};
pub use pid::ProcessId;
pub use process::{Process, Signal};
pub use progress::human;
pub use real::real_nodes_possible;

/// Where the API server writes its audit log.
fn audit_log_path(run: &Path) -> PathBuf {
    run.join("logs").join("audit.log")
}
