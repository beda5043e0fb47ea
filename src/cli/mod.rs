//! The commands for people.

pub mod inject;
