//! The manifests in front of a real API server: it takes them as they are, and each policy accepts what it should and
//! refuses what it should, with the credentials of those who would do it.
//!
//! Flock itself does not run here. What holds without it is the point.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cluster;
#[allow(dead_code, reason = "shared with manifests.rs, which uses the rest")]
#[path = "../manifests/files.rs"]
mod files;
mod members;
mod nodes;
mod own_account;
mod paths;
mod server;
mod workloads;
