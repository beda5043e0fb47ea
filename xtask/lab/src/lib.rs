//! A real Kubernetes cluster on one Linux machine, for Flock's demo, tests and benchmarks.
#![forbid(unsafe_code)]

mod cgroup;
mod components;
mod control_plane;
mod digest;
mod dirs;
mod dns;
mod fake;
mod flock;
mod host;
pub mod image;
mod lab;
mod list;
mod net;
mod nodes;
mod options;
mod pid;
mod pki;
mod process;
mod progress;
mod real;
mod sandbox;
mod service;
mod start;
mod state;

use std::path::{Path, PathBuf};

pub use components::{Components, DEFAULT_KUBERNETES};
pub use dirs::{LAB_DIR_VARIABLE, lab_dir};
pub use fake::FakeNode;
pub use flock::Flock;
pub use host::find_program;
pub use lab::Lab;
pub use list::{Summary, list, remove};
pub use options::{Nodes, Options};
pub use pid::ProcessId;
pub use process::{Process, Signal};
pub use progress::human;
pub use real::real_nodes_possible;

/// Where the API server writes its audit log.
fn audit_log_path(run: &Path) -> PathBuf {
    run.join("logs").join("audit.log")
}
