//! Whether this replica may be called, and why not.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus_client::{metrics::gauge::Gauge, registry::Registry};

use crate::metrics::made;

/// Why each condition does not hold; `None` where it does.
type Conditions = BTreeMap<&'static str, Option<Cow<'static, str>>>;

/// Named conditions, all of which have to hold; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<Conditions>>,
    ready: Gauge,
}

/// One of the conditions.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Makes the metric known to the registry.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            ready: made(
                registry,
                "ready",
                "1 while the replica may be called: caches, certificate and port are in order",
            ),
            ..Self::default()
        }
    }

    /// Adds a condition that does not hold yet.
    pub fn condition(&self, name: &'static str) -> Condition {
        let condition = Condition {
            name,
            readiness: self.clone(),
        };
        condition.unmet("not yet");
        condition
    }

    /// The conditions that do not hold, with the reasons.
    pub fn unmet(&self) -> Vec<(&'static str, Cow<'static, str>)> {
        let conditions = self.conditions.lock();
        conditions
            .iter()
            .filter_map(|(name, reason)| Some((*name, reason.clone()?)))
            .collect()
    }

    /// Whether all conditions hold.
    pub fn is_ready(&self) -> bool {
        self.conditions.lock().values().all(Option::is_none)
    }

    fn set(&self, name: &'static str, reason: Option<Cow<'static, str>>) {
        let ready = {
            let mut conditions = self.conditions.lock();
            conditions.insert(name, reason);
            conditions.values().all(Option::is_none)
        };
        self.ready.set(ready.into());
    }
}

impl Condition {
    /// It holds.
    pub fn met(&self) {
        self.readiness.set(self.name, None);
    }

    /// It does not hold, for this reason.
    pub fn unmet(&self, reason: impl Into<Cow<'static, str>>) {
        self.readiness.set(self.name, Some(reason.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_every_condition_holds() {
        let readiness = Readiness::default();
        let (caches, certificate) = (readiness.condition("caches"), readiness.condition("certificate"));
        assert_eq!(readiness.unmet().len(), 2);
        caches.met();
        certificate.unmet("its Secret cannot be read");
        assert!(!readiness.is_ready());
        assert_eq!(
            readiness.unmet(),
            [("certificate", "its Secret cannot be read".into())]
        );
        assert_eq!(readiness.ready.get(), 0);
        certificate.met();
        assert!(readiness.is_ready());
        assert_eq!(readiness.ready.get(), 1);
        caches.unmet("the watch is behind");
        assert!(!readiness.is_ready());
    }
}
