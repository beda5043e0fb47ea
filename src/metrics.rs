//! What webhook and reconciler count; `run::Metrics` has the whole list. Labels are closed sets. A counter with labels
//! begins at 0 for each of them, as nobody sees an increase that begins with nothing.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::reconcile::ACTIONS;

/// Makes a metric and registers it.
pub(crate) fn made<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Makes a counter for each of these labels and registers them.
pub(crate) fn counters<L>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    labels: impl IntoIterator<Item = L>,
) -> Family<L, Counter>
where
    L: EncodeLabelSet + Clone + Eq + std::hash::Hash + std::fmt::Debug + Send + Sync + 'static,
{
    let family: Family<L, Counter> = made(registry, name, help);
    for label in labels {
        drop(family.get_or_create(&label));
    }
    family
}

/// What the webhook counts.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    requests: Family<VerdictLabel, Counter>,
    workloads: Family<VerdictLabel, Counter>,
    duration: Histogram,
    /// Requests to the API server that decisions needed; none does on the normal path.
    pub lookups: Counter,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

const VERDICTS: [&str; 15] = [
    "member",
    "untouched",
    "unreadable",
    "error",
    "unanswered",
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
const WORKLOAD_VERDICTS: [&str; 6] = [
    "fits",
    "warned",
    "denied",
    "untouched",
    "unreadable",
    "unanswered",
];

impl AdmissionMetrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        // From what a decision takes to what the API server waits for: 50 µs … 10 s.
        let duration = Histogram::new([
            0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0, 3.0, 10.0,
        ]);
        registry.register_with_unit(
            "admission_duration",
            "Time from the review's last byte to the answer",
            Unit::Seconds,
            duration.clone(),
        );
        Self {
            requests: counters(
                registry,
                "admission_requests",
                "Reviews that reached the mutating webhook, by verdict",
                VERDICTS.map(|verdict| VerdictLabel { verdict }),
            ),
            workloads: counters(
                registry,
                "workload_reviews",
                "Reviews that reached the validating webhook, by verdict",
                WORKLOAD_VERDICTS.map(|verdict| VerdictLabel { verdict }),
            ),
            duration,
            lookups: made(
                registry,
                "admission_lookups",
                "Requests to the API server that decisions about pods needed beyond the caches",
            ),
        }
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
        Self {
            runs: made(registry, "reconcile_runs", "Flocks looked at by the reconciler"),
            actions: counters(
                registry,
                "reconcile_actions",
                "Writes of the reconciler, by kind",
                ACTIONS.map(|action| ActionLabel { action }),
            ),
            errors: made(
                registry,
                "reconcile_errors",
                "Writes and lookups of the reconciler that failed or were not answered",
            ),
            waits: made(registry, "waits", "Members that wait, by reason"),
            places: made(registry, "places", "Ordinals that have a node"),
            leader: made(registry, "leader", "1 on the replica that reconciles"),
            cache_synced: made(registry, "cache_synced", "1 once every watch was listed"),
        }
    }

    /// A flock was looked at.
    pub fn ran(&self) {
        self.runs.inc();
    }

    /// A write was made.
    pub fn acted(&self, action: &'static str) {
        self.actions.get_or_create(&ActionLabel { action }).inc();
    }

    /// A write or a lookup failed.
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
