//! How many members wait, and why: the metric behind the alert for members that wait for an administrator.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::identity::FlockKey;
use crate::metrics::ReconcileMetrics;

use super::plan::Note;

/// The waits of every flock, as of its last look.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<FlockKey, BTreeMap<&'static str, usize>>);

impl Waits {
    /// Takes in what was said of a flock, and shows the sums.
    pub(super) fn note(&mut self, key: &FlockKey, notes: &[Note], metrics: &ReconcileMetrics) {
        let mut now = BTreeMap::new();
        for note in notes.iter().filter(|note| note.warning) {
            *now.entry(note.reason).or_default() += 1;
        }
        let before = if now.is_empty() {
            self.0.remove(key)
        } else {
            self.0.insert(key.clone(), now.clone())
        };
        let before = before.unwrap_or_default();
        if before == now {
            return;
        }
        let changed: BTreeSet<_> = before.keys().chain(now.keys()).copied().collect();
        for reason in changed {
            let count = self.0.values().filter_map(|waits| waits.get(reason)).sum();
            metrics.waiting(reason, count);
        }
    }

    /// Another replica leads now, and shows them.
    pub(super) fn clear(&mut self, metrics: &ReconcileMetrics) {
        for reason in self.0.drain().flat_map(|(_, waits)| waits.into_keys()) {
            metrics.waiting(reason, 0);
        }
        metrics.places(0);
    }
}
