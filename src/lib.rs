//! Flock.
pub mod identity;
