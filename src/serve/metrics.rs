//! Metrics of the servers.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::metrics::{counters, made};

/// Which port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
enum Server {
    #[default]
    webhook,
    admin,
}

impl Server {
    const ALL: [Self; 2] = [Self::webhook, Self::admin];

    /// Itself with each of these.
    fn each<T: Copy>(all: &[T]) -> impl Iterator<Item = (Self, T)> {
        Self::ALL
            .into_iter()
            .flat_map(move |server| all.iter().map(move |one| (server, *one)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabel {
    server: Server,
}

/// Why a request did not reach its handler, or got no answer from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
pub(super) enum Refused {
    body_late,
    body_slow,
    body_too_large,
    body_unreadable,
    content_type,
    deadline,
    no_room,
    panic,
}

impl Refused {
    pub(super) const ALL: [Self; 8] = [
        Self::body_late,
        Self::body_slow,
        Self::body_too_large,
        Self::body_unreadable,
        Self::content_type,
        Self::deadline,
        Self::no_room,
        Self::panic,
    ];
}

/// Why a connection ended before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
pub(super) enum Dropped {
    accept,
    client_certificate,
    handshake,
    handshake_timeout,
    no_request,
    no_room,
}

impl Dropped {
    const ALL: [Self; 6] = [
        Self::accept,
        Self::client_certificate,
        Self::handshake,
        Self::handshake_timeout,
        Self::no_request,
        Self::no_room,
    ];
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    server: Server,
    reason: Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabel {
    server: Server,
    reason: Dropped,
}

/// Metrics of one server; they are of all servers, and clones share them.
#[derive(Debug, Clone, Default)]
pub struct ServeMetrics {
    server: Server,
    connections: Family<ServerLabel, Gauge>,
    refused: Family<RequestLabel, Counter>,
    dropped: Family<ConnectionLabel, Counter>,
}

impl ServeMetrics {
    /// Makes the metrics known to the registry; they count for the webhook's port.
    pub fn register(registry: &mut Registry) -> Self {
        let connections: Family<ServerLabel, Gauge> =
            made(registry, "server_connections", "Open connections, by server");
        for server in Server::ALL {
            drop(connections.get_or_create(&ServerLabel { server }));
        }
        Self {
            server: Server::webhook,
            connections,
            refused: counters(
                registry,
                "server_requests_refused",
                "Requests that were answered without a decision, by server and reason",
                Server::each(&Refused::ALL).map(|(server, reason)| RequestLabel { server, reason }),
            ),
            dropped: counters(
                registry,
                "server_connections_dropped",
                "Connections that ended before their time, by server and reason",
                Server::each(&Dropped::ALL).map(|(server, reason)| ConnectionLabel { server, reason }),
            ),
        }
    }

    /// The same, to count for the admin port.
    #[must_use]
    pub fn admin(&self) -> Self {
        Self {
            server: Server::admin,
            ..self.clone()
        }
    }

    pub(super) fn opened(&self) {
        let server = self.server;
        self.connections.get_or_create(&ServerLabel { server }).inc();
    }

    pub(super) fn closed(&self) {
        let server = self.server;
        self.connections.get_or_create(&ServerLabel { server }).dec();
    }

    pub(super) fn refused(&self, reason: Refused) {
        let server = self.server;
        self.refused.get_or_create(&RequestLabel { server, reason }).inc();
    }

    pub(super) fn dropped(&self, reason: Dropped) {
        let server = self.server;
        self.dropped
            .get_or_create(&ConnectionLabel { server, reason })
            .inc();
    }
}
