//! The serving certificate: where it comes from, how it is renewed, and who is told to trust it.
//!
//! `lifetime`, `pem`, `issue`, `authority`, `rotation` and `leaf` decide, without a clock or a cluster of their own; `keeper`
//! watches and writes, `directory` reads a mounted pair instead, and `resolver` serves whichever it is. `callers` checks the
//! certificates of those who call, where that is asked for, by the CAs that `client_ca` reads.

pub mod authority;
mod callers;
mod client_ca;
mod config;
mod configuration;
mod directory;
mod file;
pub mod issue;
mod keeper;
pub mod leaf;
pub mod lifetime;
mod metrics;
mod names;
mod objects;
pub mod pem;
mod resolver;
pub mod rotation;
mod secret;
mod signatures;
mod status;
mod watches;

pub use callers::{ClientCaFault, ClientVerifier};
pub use client_ca::{ClientCaError, ClientCaKeeper};
pub use config::{KeeperConfig, KeeperError};
pub use directory::{DirectoryError, DirectoryKeeper};
pub use keeper::Keeper;
pub use metrics::CertificateMetrics;
pub use resolver::{ClientAuth, ConfigError, LeafResolver, crypto_provider, server_config};
pub use secret::request_rotation;
pub use signatures::Signatures;
pub use status::LeafStatus;
