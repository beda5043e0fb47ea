//! The Services, and which of them Flock made.

use std::collections::{BTreeSet, HashMap};

use super::{ServiceFacts, newer};
use crate::identity::FlockKey;

/// The Services that may matter to a flock.
#[derive(Debug, Default)]
pub(super) struct Services {
    all: HashMap<(String, String), ServiceFacts>,
    /// The names of the Services that Flock made for each flock.
    made: HashMap<FlockKey, BTreeSet<String>>,
}

impl Services {
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&ServiceFacts> {
        self.all.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &ServiceFacts> {
        self.all.values()
    }

    /// Those that Flock made for `key`.
    pub(super) fn made_for(&self, key: &FlockKey) -> impl Iterator<Item = &ServiceFacts> {
        let names = self.made.get(key).into_iter().flatten();
        let namespace = key.namespace.clone();
        names.filter_map(move |name| self.get(namespace.as_str(), name))
    }

    /// The flocks that Flock made one for.
    pub(super) fn flocks(&self) -> impl Iterator<Item = &FlockKey> {
        self.made.keys()
    }

    /// Takes in a Service; false if a newer version of it is known.
    pub(super) fn apply(&mut self, service: ServiceFacts) -> bool {
        let id = (service.namespace.clone(), service.name.clone());
        if let Some(old) = self.all.get(&id)
            && old.uid == service.uid
            && newer(&old.resource_version, &service.resource_version)
        {
            return false;
        }
        let made_for = service.made_for.clone();
        let name = service.name.clone();
        let old = self.all.insert(id, service);
        if let Some(old) = old.filter(|old| old.made_for != made_for) {
            self.unindex(&old);
        }
        if let Some(key) = made_for {
            self.made.entry(key).or_default().insert(name);
        }
        true
    }

    /// Forgets a Service.
    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(service) = self.all.remove(&(namespace.to_owned(), name.to_owned())) {
            self.unindex(&service);
        }
    }

    fn unindex(&mut self, service: &ServiceFacts) {
        let Some(key) = &service.made_for else { return };
        if let Some(names) = self.made.get_mut(key) {
            names.remove(&service.name);
            if names.is_empty() {
                self.made.remove(key);
            }
        }
    }
}
