//! The nodes, and by their labels who has a place where.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::newer;
use crate::identity::{FlockKey, Ordinal};
use crate::place::{NodeFacts, NodeName};

/// The nodes and what their labels say.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    all: BTreeMap<NodeName, NodeFacts>,
    places: HashMap<FlockKey, BTreeMap<Ordinal, BTreeSet<NodeName>>>,
    /// Labels that were taken off a node that is still there.
    taken_off: HashMap<FlockKey, BTreeMap<Ordinal, NodeName>>,
    /// Nodes with labels in Flock's domain that mean nothing.
    garbage: BTreeSet<NodeName>,
}

static NO_PLACES: BTreeMap<Ordinal, BTreeSet<NodeName>> = BTreeMap::new();

impl Nodes {
    pub(super) fn all(&self) -> &BTreeMap<NodeName, NodeFacts> {
        &self.all
    }

    /// The nodes that carry the labels of a flock's ordinals.
    pub(super) fn places(&self, key: &FlockKey) -> &BTreeMap<Ordinal, BTreeSet<NodeName>> {
        self.places.get(key).unwrap_or(&NO_PLACES)
    }

    /// The flocks that have a place.
    pub(super) fn placed(&self) -> impl Iterator<Item = &FlockKey> {
        self.places.keys()
    }

    /// How many ordinals have a node.
    pub(super) fn place_count(&self) -> usize {
        self.places.values().map(BTreeMap::len).sum()
    }

    pub(super) fn taken_off(&self, key: &FlockKey, ordinal: Ordinal) -> Option<&NodeName> {
        self.taken_off.get(key)?.get(&ordinal)
    }

    pub(super) fn with_garbage(&self) -> impl Iterator<Item = &NodeFacts> {
        self.garbage.iter().filter_map(|name| self.all.get(name))
    }

    /// Takes in a node; returns the flocks with a place on it before or now, or `None` if nothing has changed that
    /// matters for placing.
    pub(super) fn apply(&mut self, node: NodeFacts) -> Option<BTreeSet<FlockKey>> {
        let old = self.all.get(&node.name);
        if old.is_some_and(|old| old.uid == node.uid && newer(&old.resource_version, &node.resource_version))
        {
            return None;
        }
        if old.is_some_and(|old| same_but_for_version(old, &node)) {
            self.all.insert(node.name.clone(), node);
            return None;
        }
        let members = old.into_iter().flat_map(|old| old.members.keys());
        let concerned = members.chain(node.members.keys()).cloned().collect();
        let old_uid = old.map(|old| old.uid.clone());
        let had = self.unindex(&node.name);
        if old_uid.as_ref() == Some(&node.uid) {
            self.note_taken_off(had, &node);
        } else {
            self.forget_taken_off(&node.name);
        }
        self.index(&node);
        self.all.insert(node.name.clone(), node);
        Some(concerned)
    }

    /// Forgets a node; returns whom that concerns.
    pub(super) fn delete(&mut self, name: &str) -> BTreeSet<FlockKey> {
        let mut concerned: BTreeSet<_> = self.unindex(name).into_keys().collect();
        if self.all.remove(name).is_some() {
            concerned.extend(self.forget_taken_off(name));
        }
        concerned
    }

    fn index(&mut self, node: &NodeFacts) {
        if !node.garbage_labels.is_empty() {
            self.garbage.insert(node.name.clone());
        }
        for (key, ordinals) in &node.members {
            let places = self.places.entry(key.clone()).or_default();
            for ordinal in ordinals {
                places.entry(*ordinal).or_default().insert(node.name.clone());
                if let Some(taken) = self.taken_off.get_mut(key) {
                    taken.remove(ordinal);
                    if taken.is_empty() {
                        self.taken_off.remove(key);
                    }
                }
            }
        }
    }

    /// Takes a node out of the index; returns what it carried.
    fn unindex(&mut self, name: &str) -> BTreeMap<FlockKey, BTreeSet<Ordinal>> {
        let Some(node) = self.all.get(name) else {
            return BTreeMap::new();
        };
        self.garbage.remove(name);
        let had = node.members.clone();
        for (key, ordinals) in &had {
            let Some(places) = self.places.get_mut(key) else {
                continue;
            };
            for ordinal in ordinals {
                if let Some(nodes) = places.get_mut(ordinal) {
                    nodes.remove(name);
                    if nodes.is_empty() {
                        places.remove(ordinal);
                    }
                }
            }
            if places.is_empty() {
                self.places.remove(key);
            }
        }
        had
    }

    /// Notes the labels that a node `had` and that no node has now.
    fn note_taken_off(&mut self, had: BTreeMap<FlockKey, BTreeSet<Ordinal>>, node: &NodeFacts) {
        for (key, ordinals) in had {
            for ordinal in ordinals {
                if !node.carries(&key).contains(&ordinal) && !self.places(&key).contains_key(&ordinal) {
                    self.taken_off
                        .entry(key.clone())
                        .or_default()
                        .insert(ordinal, node.name.clone());
                }
            }
        }
    }

    /// The node is gone, and with it the trace of what was taken off it; returns whom that concerns.
    fn forget_taken_off(&mut self, name: &str) -> Vec<FlockKey> {
        let mut concerned = Vec::new();
        for (key, taken) in &mut self.taken_off {
            let before = taken.len();
            taken.retain(|_, node| **node != *name);
            if taken.len() < before {
                concerned.push(key.clone());
            }
        }
        self.taken_off.retain(|_, taken| !taken.is_empty());
        concerned
    }
}

/// Whether two looks at a node differ at most in the version: heartbeats change nothing for anyone.
fn same_but_for_version(old: &NodeFacts, new: &NodeFacts) -> bool {
    let version = old.resource_version.clone();
    NodeFacts {
        resource_version: version,
        ..new.clone()
    } == *old
}
