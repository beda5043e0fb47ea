//! The serving certificate: where it comes from, how it is renewed, and who is told to trust it.
//!
//! `lifetime`, `pem`, `issue`, `authority`, `rotation` and `leaf` decide, without a clock or a cluster of their own; `keeper`
//! watches and writes, `directory` reads a mounted pair instead, and `resolver` serves whichever it is.

pub mod authority;
mod config;
mod configuration;
mod directory;
pub mod issue;
mod keeper;
pub mod leaf;
pub mod lifetime;
mod metrics;
mod objects;
pub mod pem;
mod resolver;
pub mod rotation;
mod secret;
mod status;
mod watches;

pub use config::{KeeperConfig, KeeperError};
pub use directory::{DirectoryError, DirectoryKeeper};
pub use keeper::Keeper;
pub use metrics::CertificateMetrics;
pub use resolver::{ClientAuth, ConfigError, LeafResolver, crypto_provider, server_config};
pub use secret::request_rotation;
pub use status::LeafStatus;
