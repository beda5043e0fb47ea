//! Nodes and names for this module's tests.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{NodeFacts, NodeName, Taint, ZONE};
use crate::identity::{FlockKey, Ordinal};

pub(crate) fn key(flock: &str) -> FlockKey {
    FlockKey::parse("default", flock).unwrap()
}

pub(crate) fn ordinal(number: u32) -> Ordinal {
    Ordinal::new(number).unwrap()
}

/// A Ready Linux node, whose machine id is `machine-of-<name>`.
pub(crate) fn node(name: &str) -> NodeFacts {
    NodeFacts {
        name: name.into(),
        uid: format!("uid-of-{name}"),
        resource_version: "1".into(),
        labels: BTreeMap::new(),
        members: BTreeMap::new(),
        garbage_labels: Vec::new(),
        taints: Vec::new(),
        unschedulable: false,
        ready: true,
        machine_id: Some(format!("machine-of-{name}").into()),
        terminating: false,
        os: Some("linux".into()),
    }
}

pub(crate) fn by_name(nodes: impl IntoIterator<Item = NodeFacts>) -> BTreeMap<NodeName, NodeFacts> {
    nodes.into_iter().map(|node| (node.name.clone(), node)).collect()
}

/// Which nodes carry the ordinals of the flock `db`.
pub(crate) fn labels(nodes: &BTreeMap<NodeName, NodeFacts>) -> BTreeMap<Ordinal, BTreeSet<NodeName>> {
    let mut labels: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for node in nodes.values() {
        for ordinal in node.carries(&key("db")) {
            labels.entry(*ordinal).or_default().insert(node.name.clone());
        }
    }
    labels
}

impl NodeFacts {
    pub(crate) fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    pub(crate) fn in_zone(self, zone: &str) -> Self {
        self.with_label(ZONE, zone)
    }

    pub(crate) fn carrying(mut self, key: &FlockKey, number: u32) -> Self {
        self.members
            .entry(key.clone())
            .or_default()
            .insert(ordinal(number));
        self
    }

    pub(crate) fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.taints.push(Taint {
            key: key.into(),
            value: value.into(),
            effect: effect.into(),
        });
        self
    }

    pub(crate) fn cordoned(mut self) -> Self {
        self.unschedulable = true;
        self
    }

    pub(crate) fn not_ready(mut self) -> Self {
        self.ready = false;
        self
    }

    pub(crate) fn on_machine(mut self, id: Option<&str>) -> Self {
        self.machine_id = id.map(Into::into);
        self
    }
}
