//! The webhooks from outside: reviews in, answers out, through the router that the server uses. Patches are applied
//! by an implementation of RFC 6902 that has nothing to do with Flock's.

// Modules of a test are private to it anyway.
#![allow(unreachable_pub)]

mod golden;
mod inject;
mod patches;
mod reviews;
mod setup;
mod workloads;
