//! The metrics, all under the prefix `flock`. Labels are closed sets, touched at start so that they begin at 0.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// What the webhook counts.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    requests: Family<VerdictLabel, Counter>,
    workloads: Family<VerdictLabel, Counter>,
    duration: Histogram,
    reservations: Gauge,
    /// Requests to the API server that decisions needed; none does on the normal path.
    pub lookups: Counter,
    /// Handlers that panicked; each was answered with HTTP 500.
    pub panics: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

const VERDICTS: [&str; 14] = [
    "member",
    "untouched",
    "unreadable",
    "error",
    "name",
    "annotation",
    "owner",
    "identity",
    "spec",
    "volume",
    "revision",
    "replicas",
    "held",
    "gone",
];

/// Of the validating webhook.
const WORKLOAD_VERDICTS: [&str; 5] = ["fits", "warned", "denied", "untouched", "unreadable"];

impl AdmissionMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            workloads: Family::default(),
            // From what a decision takes to what the API server waits for: 50 µs … 10 s.
            duration: Histogram::new([
                0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0, 3.0, 10.0,
            ]),
            reservations: Gauge::default(),
            lookups: Counter::default(),
            panics: Counter::default(),
        };
        for verdict in VERDICTS {
            drop(metrics.requests.get_or_create(&VerdictLabel { verdict }));
        }
        for verdict in WORKLOAD_VERDICTS {
            drop(metrics.workloads.get_or_create(&VerdictLabel { verdict }));
        }
        let registry = registry.sub_registry_with_prefix("flock");
        registry.register(
            "admission_requests",
            "Reviews answered by the mutating webhook, by verdict",
            metrics.requests.clone(),
        );
        registry.register(
            "workload_reviews",
            "Reviews answered by the validating webhook, by verdict",
            metrics.workloads.clone(),
        );
        registry.register_with_unit(
            "admission_duration",
            "Time from the review's last byte to the answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "reservations",
            "Ordinals given away whose pods the watch has not shown yet",
            metrics.reservations.clone(),
        );
        registry.register(
            "admission_lookups",
            "Requests to the API server that decisions about pods needed beyond the caches",
            metrics.lookups.clone(),
        );
        registry.register(
            "admission_panics",
            "Reviews whose handler panicked",
            metrics.panics.clone(),
        );
        metrics
    }

    /// A review was answered.
    pub fn answered(&self, verdict: &'static str, took: Duration) {
        self.requests.get_or_create(&VerdictLabel { verdict }).inc();
        self.duration.observe(took.as_secs_f64());
    }

    /// A workload was judged.
    pub fn judged(&self, verdict: &'static str) {
        self.workloads.get_or_create(&VerdictLabel { verdict }).inc();
    }

    /// How many ordinals are reserved now.
    pub fn reservations(&self, count: usize) {
        self.reservations.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// What the reconciler counts.
#[derive(Clone, Debug)]
pub struct ReconcileMetrics {
    runs: Counter,
    actions: Family<ActionLabel, Counter>,
    errors: Counter,
    waits: Family<ReasonLabel, Gauge<i64, std::sync::atomic::AtomicI64>>,
    places: Gauge,
    leader: Gauge,
    cache_synced: Gauge<f64, AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabel {
    action: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

impl ReconcileMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            runs: Counter::default(),
            actions: Family::default(),
            errors: Counter::default(),
            waits: Family::default(),
            places: Gauge::default(),
            leader: Gauge::default(),
            cache_synced: Gauge::default(),
        };
        let registry = registry.sub_registry_with_prefix("flock");
        registry.register(
            "reconcile_runs",
            "Flocks looked at by the reconciler",
            metrics.runs.clone(),
        );
        registry.register(
            "reconcile_actions",
            "Writes of the reconciler, by kind",
            metrics.actions.clone(),
        );
        registry.register(
            "reconcile_errors",
            "Writes of the reconciler that failed",
            metrics.errors.clone(),
        );
        registry.register("waits", "Members that wait, by reason", metrics.waits.clone());
        registry.register("places", "Ordinals that have a node", metrics.places.clone());
        registry.register(
            "leader",
            "1 on the replica that reconciles",
            metrics.leader.clone(),
        );
        registry.register(
            "cache_synced",
            "1 once every watch was listed",
            metrics.cache_synced.clone(),
        );
        metrics
    }

    /// A flock was looked at.
    pub fn ran(&self) {
        self.runs.inc();
    }

    /// A write was made.
    pub fn acted(&self, action: &'static str) {
        self.actions.get_or_create(&ActionLabel { action }).inc();
    }

    /// A write failed.
    pub fn failed(&self) {
        self.errors.inc();
    }

    /// How many members wait for this reason now.
    pub fn waiting(&self, reason: &'static str, count: usize) {
        self.waits
            .get_or_create(&ReasonLabel { reason })
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// How many ordinals have a node.
    pub fn places(&self, count: usize) {
        self.places.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether this replica leads.
    pub fn leads(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Whether the caches are complete.
    pub fn synced(&self, synced: bool) {
        self.cache_synced.set(if synced { 1.0 } else { 0.0 });
    }
}
