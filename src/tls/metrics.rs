//! Metrics of the certificates.

use std::sync::atomic::AtomicU64;

use jiff::Timestamp;
use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use super::status::LeafStatus;
use crate::metrics::{counters, made};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: Certificate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
enum Certificate {
    ca,
    leaf,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabel {
    object: Written,
}

/// The kinds of objects that the keeper writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types)]
pub(super) enum Written {
    secret,
    configuration,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConfigurationLabel {
    configuration: &'static str,
}

/// Metrics of the certificates; clones share them.
#[derive(Debug, Clone, Default)]
pub struct CertificateMetrics {
    expiry: Family<CertificateLabel, Gauge<f64, AtomicU64>>,
    signed: Counter,
    writes: Family<ObjectLabel, Counter>,
    failures: Counter,
    configured: Family<ConfigurationLabel, Gauge>,
}

impl CertificateMetrics {
    /// Makes the metrics known to the registry.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            expiry: made(
                registry,
                "certificate_expiry_timestamp_seconds",
                "When the serving certificate and its CA expire, in Unix time",
            ),
            signed: made(
                registry,
                "certificate_leaves",
                "Serving certificates taken into use",
            ),
            writes: counters(
                registry,
                "certificate_writes",
                "Changes of the CA's Secret and of the webhook configurations' caBundle",
                [Written::secret, Written::configuration].map(|object| ObjectLabel { object }),
            ),
            failures: made(
                registry,
                "certificate_failures",
                "Attempts to read, make or publish a certificate that failed",
            ),
            configured: made(
                registry,
                "webhook_config_ok",
                "1 while the webhook configuration exists and each of its webhooks trusts the certificate that is served",
            ),
        }
    }

    pub(super) fn leaf_taken(&self) {
        self.signed.inc();
    }

    pub(super) fn wrote(&self, object: Written) {
        self.writes.get_or_create(&ObjectLabel { object }).inc();
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    /// Whether the `mutating` or the `validating` configuration is as it should be.
    pub fn configured(&self, configuration: &'static str, ok: bool) {
        self.configured
            .get_or_create(&ConfigurationLabel { configuration })
            .set(ok.into());
    }

    /// What is served.
    pub fn observe(&self, status: &LeafStatus) {
        let set = |certificate, time: Timestamp| {
            let seconds = time.as_duration().as_secs_f64();
            self.expiry
                .get_or_create(&CertificateLabel { certificate })
                .set(seconds);
        };
        set(Certificate::leaf, status.not_after);
        if let Some(not_after) = status.ca_not_after {
            set(Certificate::ca, not_after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_told_for_leaf_and_ca_and_counters_begin_at_zero() {
        let mut registry = Registry::default();
        let metrics = CertificateMetrics::register(&mut registry);
        metrics.observe(&LeafStatus {
            not_after: Timestamp::from_second(1_900_000_000).unwrap(),
            ca_not_after: Timestamp::from_second(1_930_000_000).ok(),
            serial: "01".into(),
            trusted: true,
        });
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "certificate_expiry_timestamp_seconds{certificate=\"leaf\"} 1900000000.0",
            "certificate_expiry_timestamp_seconds{certificate=\"ca\"} 1930000000.0",
            "certificate_writes_total{object=\"secret\"} 0",
            "certificate_writes_total{object=\"configuration\"} 0",
            "certificate_failures_total 0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
