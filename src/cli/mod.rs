//! The commands for people.

pub mod inject;
pub mod look;
pub mod release;
pub mod status;
