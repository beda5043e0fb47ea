//! Metrics of a server.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// Why a request did not reach its handler, or got no answer from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
pub(super) enum Refused {
    body_slow,
    body_too_large,
    body_unreadable,
    content_type,
    deadline,
    no_room,
    panic,
}

impl Refused {
    const ALL: [Self; 7] = [
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
    reason: Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabel {
    reason: Dropped,
}

/// Metrics of a server; clones share them.
#[derive(Debug, Clone, Default)]
pub struct ServeMetrics {
    pub(super) connections: Gauge,
    refused: Family<RequestLabel, Counter>,
    dropped: Family<ConnectionLabel, Counter>,
}

impl ServeMetrics {
    /// Makes the metrics known to the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        for reason in Refused::ALL {
            drop(metrics.refused.get_or_create(&RequestLabel { reason }));
        }
        for reason in Dropped::ALL {
            drop(metrics.dropped.get_or_create(&ConnectionLabel { reason }));
        }
        registry.register(
            "server_connections",
            "Open connections",
            metrics.connections.clone(),
        );
        registry.register(
            "server_requests_refused",
            "Requests that were answered without a decision, by reason",
            metrics.refused.clone(),
        );
        registry.register(
            "server_connections_dropped",
            "Connections that ended before their time, by reason",
            metrics.dropped.clone(),
        );
        metrics
    }

    pub(super) fn refused(&self, reason: Refused) {
        self.refused.get_or_create(&RequestLabel { reason }).inc();
    }

    pub(super) fn dropped(&self, reason: Dropped) {
        self.dropped.get_or_create(&ConnectionLabel { reason }).inc();
    }

    /// How many handlers panicked.
    pub fn panics(&self) -> u64 {
        self.refused
            .get_or_create(&RequestLabel {
                reason: Refused::panic,
            })
            .get()
    }
}
