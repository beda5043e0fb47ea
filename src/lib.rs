//! Flock.
pub mod identity;
pub mod place;
pub mod tls;
