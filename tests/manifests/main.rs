//! The manifests are tested code: what is promised of them is checked on what stands in the repository.
//!
//! Whether an API server agrees with them is for `policies.rs` to find out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod access;
mod admission;
mod documents;
mod examples;
mod files;
mod monitoring;
mod server;
mod variants;
