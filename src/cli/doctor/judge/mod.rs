//! What is right and what is not: pure functions of what was seen.

pub mod bundle;
pub mod flocks;
pub mod members;
pub mod policies;
pub mod probe;
pub mod replicas;
pub mod rights;
pub mod server;
pub mod setup;
pub mod webhooks;
