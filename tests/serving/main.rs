//! A real server on the loopback, seen from outside: limits, slow and hostile peers, certificates, the end.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test says by panicking that something is not as it should be"
)]

mod callers;
mod client;
mod client_ca;
mod directory;
mod limits;
mod operation;
mod rotation;
mod setup;
mod shutdown;
mod slow;
