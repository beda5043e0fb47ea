//! Flock makes ordinary ReplicaSets and Deployments stateful: a mutating admission webhook and a small reconciler.
//!
//! How the parts hang together is in `ARCHITECTURE.md`.

pub mod admission;
pub mod args;
pub mod cli;
pub mod identity;
pub mod leader;
pub mod metrics;
pub mod outdated;
pub mod patience;
pub mod place;
pub mod prepare;
pub mod reconcile;
pub mod run;
pub mod serve;
pub mod storage;
pub mod telemetry;
pub mod tls;
pub mod view;
