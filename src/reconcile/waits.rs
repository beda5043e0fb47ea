//! How many members wait, and why: the metric behind the alert for members that wait for an administrator.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::identity::FlockKey;
use crate::metrics::ReconcileMetrics;

use super::plan::Waiting;

/// The waits of every flock, as of its last look.
#[derive(Debug, Default)]
pub(super) struct Waits(HashMap<FlockKey, BTreeMap<&'static str, usize>>);

impl Waits {
    /// Takes in who waits in a flock, and shows the sums.
    pub(super) fn note(&mut self, key: &FlockKey, waiting: &Waiting, metrics: &ReconcileMetrics) {
        let now: BTreeMap<_, _> = waiting
            .iter()
            .map(|(reason, members)| (*reason, members.len()))
            .collect();
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

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::identity::Ordinal;

    fn waiting(reason: &'static str, ordinals: &[u32]) -> Waiting {
        let ordinals = ordinals.iter().filter_map(|number| Ordinal::new(*number));
        Waiting::from([(reason, ordinals.collect())])
    }

    #[test]
    fn members_are_summed_over_flocks_and_count_no_more_once_they_start() {
        let mut registry = Registry::default();
        let metrics = ReconcileMetrics::register(&mut registry);
        let shown = |reason: &str| {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let line = format!("waits{{reason=\"{reason}\"}} ");
            text.lines()
                .find_map(|shown| shown.strip_prefix(&line)?.parse::<usize>().ok())
        };
        let [one, other] = ["one", "other"].map(|flock| FlockKey::parse("default", flock).unwrap());
        let mut waits = Waits::default();
        waits.note(&one, &waiting("WaitingForNode", &[0, 3]), &metrics);
        waits.note(&other, &waiting("WaitingForNode", &[1]), &metrics);
        assert_eq!(shown("WaitingForNode"), Some(3));
        waits.note(&one, &waiting("NoPlace", &[0]), &metrics);
        assert_eq!((shown("WaitingForNode"), shown("NoPlace")), (Some(1), Some(1)));
        waits.clear(&metrics);
        assert_eq!((shown("WaitingForNode"), shown("NoPlace")), (Some(0), Some(0)));
    }
}
