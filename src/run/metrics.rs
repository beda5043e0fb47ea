//! Every metric of the process, under the prefix `flock`. What each one tells is in `docs/operations.md`.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::admission::Reservations;
use crate::metrics::{AdmissionMetrics, ReconcileMetrics};
use crate::serve::{Readiness, ServeMetrics};
use crate::tls::CertificateMetrics;
use crate::view::{SharedView, Source};

/// The metrics of each part, and the registry that has them all.
pub struct Metrics {
    /// What `/metrics` shows.
    pub registry: Registry,
    /// Of the webhooks.
    pub admission: AdmissionMetrics,
    /// Of the reconciler.
    pub reconcile: ReconcileMetrics,
    /// Of the certificates.
    pub certificates: CertificateMetrics,
    /// Of the ports, to count for the webhook's.
    pub serve: ServeMetrics,
    /// Whether the replica is ready.
    pub readiness: Readiness,
}

impl Metrics {
    /// Registers all of them. What `view` and `reservations` hold is read at each scrape: it changes by itself.
    pub fn new(view: SharedView, reservations: Arc<Mutex<Reservations>>) -> Self {
        let mut registry = Registry::with_prefix("flock");
        registry.register_collector(Box::new(AtScrape { view, reservations }));
        Self {
            admission: AdmissionMetrics::register(&mut registry),
            reconcile: ReconcileMetrics::register(&mut registry),
            certificates: CertificateMetrics::register(&mut registry),
            serve: ServeMetrics::register(&mut registry),
            readiness: Readiness::register(&mut registry),
            registry,
        }
    }
}

struct AtScrape {
    view: SharedView,
    reservations: Arc<Mutex<Reservations>>,
}

impl fmt::Debug for AtScrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtScrape")
    }
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct ResourceLabel {
    resource: &'static str,
}

impl Collector for AtScrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let reserved = self.reservations.lock().len();
        let reserved = ConstGauge::new(i64::try_from(reserved).unwrap_or(i64::MAX));
        reserved.encode(encoder.encode_descriptor(
            "reservations",
            "Ordinals given away whose pods the watch has not shown yet.",
            None,
            reserved.metric_type(),
        )?)?;
        let clashes = ConstCounter::new(self.view.read().name_clashes());
        clashes.encode(encoder.encode_descriptor(
            "name_clashes",
            "Creations of members that failed since the name was taken (HTTP 409), as their owners tell.",
            None,
            clashes.metric_type(),
        )?)?;
        let mut ages = encoder.encode_descriptor(
            "cache_age",
            "Time since the watch brought anything: an event, a bookmark, a list or its new begin.",
            Some(&Unit::Seconds),
            <ConstGauge<f64> as TypedMetric>::TYPE,
        )?;
        for source in Source::ALL {
            let age = ConstGauge::new(self.view.silence(source).as_secs_f64());
            let resource = source.name();
            age.encode(ages.encode_family(&ResourceLabel { resource })?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prometheus_client::encoding::text::encode;

    use super::*;
    use crate::identity::Ordinal;
    use crate::view::fixtures::key;

    #[test]
    fn reservations_are_shown_as_they_are_also_once_they_are_settled() {
        let reservations = Arc::new(Mutex::new(Reservations::default()));
        let metrics = Metrics::new(SharedView::default(), Arc::clone(&reservations));
        let shown = || {
            let mut text = String::new();
            encode(&mut text, &metrics.registry).unwrap();
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("flock_reservations "));
            line.unwrap().to_owned()
        };
        reservations
            .lock()
            .reserve(&key(), Ordinal::ZERO, Timestamp::now());
        assert_eq!(shown(), "1");
        reservations.lock().settle(&key(), Ordinal::ZERO);
        assert_eq!(shown(), "0");
    }
}
