//! Flock.
fn main() {}
