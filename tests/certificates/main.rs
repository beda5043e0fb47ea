//! The keeper of the certificates against a real API server, which calls webhooks by what the keeper publishes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test says by panicking that something is not as it should be"
)]

mod agreement;
mod callers;
#[expect(dead_code, reason = "the tests of the server use more of it")]
#[path = "../serving/client.rs"]
mod client;
mod frozen;
mod outage;
mod paused;
mod processes;
mod repair;
mod replica;
mod replicas;
mod rotation;
mod scene;
