//! The webhooks from outside: reviews in, answers out, through the router that the server uses. Patches are applied
//! by an implementation of RFC 6902 that has nothing to do with Flock's.

// A test says what it expects where it expects it, and its modules are private to it anyway.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod golden;
mod inject;
mod kept;
mod patches;
mod reviews;
mod setup;
mod workloads;
