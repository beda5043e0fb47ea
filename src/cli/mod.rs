//! The commands for people.

mod columns;
pub mod doctor;
pub mod inject;
pub mod look;
pub mod release;
pub mod status;
