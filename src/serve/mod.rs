//! Serving: ports, limits, readiness and the end of the process. Nothing here knows what is served.

pub mod admin;
mod answers;
mod bind;
mod bodies;
mod connections;
mod deadline;
mod gate;
mod handshake;
mod joined;
mod metrics;
mod readiness;
mod room;
mod self_check;
mod server;
pub mod shutdown;
mod stall;

use std::time::Duration;

pub use bind::{BindError, bind};
pub use metrics::ServeMetrics;
pub use readiness::{Condition, Readiness};
pub use self_check::{SelfCheckError, dial, self_check};
pub use server::serve;
pub use shutdown::{Grace, Phase, Shutdown, Trigger};

/// The limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeOptions {
    /// Open connections at one time. An API server keeps 25 idle ones, and has as many more as it has calls under
    /// way; each takes up to 50 KiB.
    pub max_connections: u32,
    /// Time for a TLS handshake.
    pub handshake_timeout: Duration,
    /// Time from the handshake to the end of the first request's header. API servers connect when they have a request.
    pub first_request_timeout: Duration,
    /// Time from one request to the end of the next one's header. API servers keep idle connections for 90 s, and
    /// a request that meets a connection which is just being closed is a failed admission: theirs has to end first.
    pub idle_timeout: Duration,
    /// Time for which a peer may take nothing of its answer.
    pub write_timeout: Duration,
    /// The most time for one request, its body included; callers ask for less by `?timeout=`. API servers allow at
    /// most 30 s and 10 by default.
    pub max_request_time: Duration,
    /// Bytes of one body. The API server takes requests of up to 3 MiB, a review holds the object and the old
    /// object, and 1 MiB is left for the rest of it.
    pub max_body: usize,
    /// Bytes that all bodies of more than 16 KiB share. One of more than 256 KiB takes none of it in the end: of those
    /// there is one at a time. With all connections full it is still less than half of what the Deployment may have.
    pub body_memory: usize,
    /// Bytes that all answers of more than 16 KiB share, until they are written.
    pub answer_memory: usize,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            max_connections: 512,
            handshake_timeout: Duration::from_secs(10),
            first_request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(10),
            max_request_time: Duration::from_secs(10),
            max_body: 7 * 1024 * 1024,
            body_memory: 4 * 1024 * 1024,
            answer_memory: 4 * 1024 * 1024,
        }
    }
}

impl ServeOptions {
    /// Limits for the admin port, which serves a few callers without bodies.
    pub fn admin() -> Self {
        Self {
            max_connections: 64,
            max_body: 16 * 1024,
            body_memory: 0,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_kept_longer_than_api_servers_keep_them() {
        assert!(ServeOptions::default().idle_timeout > Duration::from_secs(90));
    }

    #[test]
    fn no_request_outlasts_the_drain() {
        assert!(ServeOptions::default().max_request_time < Grace::default().draining);
    }

    #[test]
    fn two_objects_of_the_largest_size_fit_into_a_body() {
        assert!(ServeOptions::default().max_body > 2 * 3 * 1024 * 1024);
    }
}
