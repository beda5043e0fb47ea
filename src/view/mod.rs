//! What Flock knows of the cluster: small facts taken from watch events, indexed by flock.
//!
//! [`View`] is plain data with plain methods: it does no I/O and reads no clock, so the decisions that take it
//! are tested with views built by hand. `watch` feeds it; [`SharedView`] is how the parts of the process see it.
//!
//! Facts are a few hundred bytes for each object, where the objects themselves are several kilobytes.

mod facts;
mod fetch;
#[cfg(test)]
pub(crate) mod fixtures;
mod flock;
mod shared;
mod storage;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use facts::{
    Controller, Failure, NamespaceFacts, Phase, PodFacts, PortFacts, ServiceFacts, Template, WorkloadFacts,
    WorkloadKind,
};
pub use fetch::fetch_workload;
pub use flock::Flock;
pub use shared::{SharedView, Source};
pub use storage::{ClaimFacts, ClassFacts, HelperFacts, HelperState, StorageView, VolumeFacts};
pub use watch::run;

use crate::identity::{DnsLabel, FlockKey, Ordinal};
use crate::place::{NodeFacts, NodeName};

/// The cluster as far as Flock cares.
#[derive(Debug, Default)]
pub struct View {
    flocks: HashMap<FlockKey, Flock>,
    nodes: BTreeMap<NodeName, NodeFacts>,
    namespaces: HashMap<String, NamespaceFacts>,
    services: HashMap<(String, String), ServiceFacts>,
    places: HashMap<FlockKey, BTreeMap<Ordinal, BTreeSet<NodeName>>>,
    /// The names of the Services that Flock made for each flock.
    made: HashMap<FlockKey, BTreeSet<String>>,
    /// Labels that were taken off a node that is still there.
    taken_off: HashMap<FlockKey, BTreeMap<Ordinal, NodeName>>,
    /// Nodes with labels in Flock's domain that mean nothing.
    garbage: BTreeSet<NodeName>,
    storage: StorageView,
}

static NO_PLACES: BTreeMap<Ordinal, BTreeSet<NodeName>> = BTreeMap::new();
static NO_FLOCK: std::sync::LazyLock<Flock> = std::sync::LazyLock::new(Flock::default);

impl View {
    /// The flock, empty if nothing of it is known.
    pub fn flock(&self, key: &FlockKey) -> &Flock {
        self.flocks.get(key).unwrap_or(&NO_FLOCK)
    }

    /// All flocks that have a pod, a workload, a place, a helper or a Service of Flock's, which may hold a record of
    /// places.
    pub fn flock_keys(&self) -> BTreeSet<FlockKey> {
        let places = self.places.keys().chain(self.made.keys());
        self.flocks
            .keys()
            .chain(places)
            .chain(self.storage.helped())
            .cloned()
            .collect()
    }

    /// The flocks of a namespace that have a pod or a workload.
    pub fn neighbours<'a>(
        &'a self,
        namespace: &'a DnsLabel,
    ) -> impl Iterator<Item = (&'a FlockKey, &'a Flock)> {
        self.flocks
            .iter()
            .filter(move |(key, _)| key.namespace == *namespace)
    }

    /// Claims, PersistentVolumes and helpers.
    pub fn storage(&self) -> &StorageView {
        &self.storage
    }

    /// Where changes of them go.
    pub fn storage_mut(&mut self) -> &mut StorageView {
        &mut self.storage
    }

    /// All nodes by name.
    pub fn nodes(&self) -> &BTreeMap<NodeName, NodeFacts> {
        &self.nodes
    }

    /// The nodes that carry the labels of a flock's ordinals.
    pub fn places(&self, key: &FlockKey) -> &BTreeMap<Ordinal, BTreeSet<NodeName>> {
        self.places.get(key).unwrap_or(&NO_PLACES)
    }

    /// The node on which a member may start: the only one with the ordinal's label, unless the record says that the
    /// machine behind the node's name was another one.
    pub fn place_of(&self, key: &FlockKey, ordinal: Ordinal) -> Option<&NodeName> {
        let nodes = self.places(key).get(&ordinal).filter(|nodes| nodes.len() == 1)?;
        let node = nodes.first()?;
        let recorded = self
            .record_service(key)
            .and_then(|service| service.record.as_ref()?.get(ordinal));
        let other_machine = recorded.is_some_and(|place| {
            let found = self.nodes.get(node).and_then(|node| node.machine_id.as_ref());
            place.node == *node && matches!((&place.machine, found), (Some(then), Some(now)) if then != now)
        });
        (!other_machine).then_some(node)
    }

    /// The Service of Flock's on which a flock's record of places stands.
    pub fn record_service(&self, key: &FlockKey) -> Option<&ServiceFacts> {
        self.services_of(key).find(|service| service.places.is_some())
    }

    /// The node that an ordinal's label was taken off last, while no node has it and that node is still the same
    /// object: not lost with it, but removed by somebody.
    pub fn taken_off(&self, key: &FlockKey, ordinal: Ordinal) -> Option<&NodeName> {
        self.taken_off.get(key)?.get(&ordinal)
    }

    /// The nodes with labels in Flock's domain that mean nothing.
    pub fn nodes_with_garbage(&self) -> impl Iterator<Item = &NodeFacts> {
        self.garbage.iter().filter_map(|name| self.nodes.get(name))
    }

    /// How many ordinals have a node.
    pub fn place_count(&self) -> usize {
        self.places.values().map(BTreeMap::len).sum()
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.get(name)
    }

    /// A Service.
    pub fn service(&self, namespace: &str, name: &str) -> Option<&ServiceFacts> {
        self.services.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The Services of a namespace that Flock made for `key`.
    pub fn services_of(&self, key: &FlockKey) -> impl Iterator<Item = &ServiceFacts> {
        let names = self.made.get(key).into_iter().flatten();
        let namespace = key.namespace.clone();
        names.filter_map(move |name| self.service(namespace.as_str(), name))
    }

    /// Takes in a pod; returns the flocks that it concerns.
    pub fn apply_pod(&mut self, key: FlockKey, pod: PodFacts) -> Vec<FlockKey> {
        let changed = self.flocks.entry(key.clone()).or_default().apply_pod(pod);
        if changed { vec![key] } else { Vec::new() }
    }

    /// Forgets a pod.
    pub fn delete_pod(&mut self, key: &FlockKey, name: &str, uid: &str) -> Vec<FlockKey> {
        self.drop_pod(key, name, uid, true)
    }

    fn drop_pod(&mut self, key: &FlockKey, name: &str, uid: &str, seen: bool) -> Vec<FlockKey> {
        let gone = self
            .flocks
            .get_mut(key)
            .is_some_and(|flock| flock.delete_pod(name, uid, seen));
        self.drop_if_empty(key);
        if gone { vec![key.clone()] } else { Vec::new() }
    }

    /// Takes in a ReplicaSet or ReplicationController.
    pub fn apply_workload(&mut self, key: FlockKey, workload: WorkloadFacts) -> Vec<FlockKey> {
        let changed = self
            .flocks
            .entry(key.clone())
            .or_default()
            .apply_workload(workload);
        if changed { vec![key] } else { Vec::new() }
    }

    /// Forgets a workload.
    pub fn delete_workload(&mut self, key: &FlockKey, uid: &str) -> Vec<FlockKey> {
        let gone = self
            .flocks
            .get_mut(key)
            .is_some_and(|flock| flock.delete_workload(uid));
        self.drop_if_empty(key);
        if gone { vec![key.clone()] } else { Vec::new() }
    }

    /// Forgets the workloads that no watch brings.
    pub fn forget_unlabelled(&mut self) -> Vec<FlockKey> {
        let unlabelled: Vec<_> = self
            .flocks
            .iter()
            .flat_map(|(key, flock)| flock.workloads().values().map(move |workload| (key, workload)))
            .filter(|(_, workload)| !workload.labelled)
            .map(|(key, workload)| (key.clone(), workload.uid.clone()))
            .collect();
        unlabelled
            .into_iter()
            .flat_map(|(key, uid)| self.delete_workload(&key, &uid))
            .collect()
    }

    /// Takes in a node. A change of what matters for placing concerns every flock that has a place on it, and
    /// those with a member that waits for one.
    pub fn apply_node(&mut self, node: NodeFacts) -> Vec<FlockKey> {
        let old = self.nodes.get(&node.name);
        if old.is_some_and(|old| old.uid == node.uid && newer(&old.resource_version, &node.resource_version))
        {
            return Vec::new();
        }
        let same = old.is_some_and(|old| same_but_for_version(old, &node));
        let mut concerned = BTreeSet::new();
        if !same {
            concerned.extend(old.into_iter().flat_map(|old| old.members.keys().cloned()));
            concerned.extend(node.members.keys().cloned());
            concerned.extend(self.waiting_flocks());
            let old_uid = old.map(|old| old.uid.clone());
            let had = self.unindex_node(&node.name);
            if old_uid.as_ref() == Some(&node.uid) {
                self.note_taken_off(had, &node);
            } else {
                self.forget_taken_off(&node.name);
            }
            self.index_node(&node);
        }
        self.nodes.insert(node.name.clone(), node);
        concerned.into_iter().collect()
    }

    /// Forgets a node.
    pub fn delete_node(&mut self, name: &str) -> Vec<FlockKey> {
        let Some(node) = self.nodes.get(name) else {
            return Vec::new();
        };
        let mut concerned: BTreeSet<_> = node.members.keys().cloned().collect();
        self.unindex_node(name);
        self.nodes.remove(name);
        concerned.extend(self.forget_taken_off(name));
        concerned.into_iter().collect()
    }

    /// Takes in a namespace.
    pub fn apply_namespace(&mut self, namespace: NamespaceFacts) -> Vec<FlockKey> {
        let changed = self.namespaces.get(&namespace.name) != Some(&namespace);
        let name = namespace.name.clone();
        self.namespaces.insert(name.clone(), namespace);
        if changed {
            self.flocks_in(&name)
        } else {
            Vec::new()
        }
    }

    /// Forgets a namespace.
    pub fn delete_namespace(&mut self, name: &str) -> Vec<FlockKey> {
        self.namespaces.remove(name);
        self.flocks_in(name)
    }

    /// Takes in a Service; only one that governs a flock, or that Flock made, concerns anyone.
    pub fn apply_service(&mut self, service: ServiceFacts) -> Vec<FlockKey> {
        let id = (service.namespace.clone(), service.name.clone());
        let name = service.name.clone();
        if let Some(old) = self.services.get(&id)
            && old.uid == service.uid
            && newer(&old.resource_version, &service.resource_version)
        {
            return Vec::new();
        }
        let concerned = self.flocks_governed_by(&service);
        let made_for = service.made_for.clone();
        let old = self.services.insert(id, service);
        if let Some(old) = old.filter(|old| old.made_for != made_for) {
            self.unindex_service(&old);
        }
        if let Some(key) = made_for {
            self.made.entry(key).or_default().insert(name);
        }
        concerned
    }

    /// Forgets a Service.
    pub fn delete_service(&mut self, namespace: &str, name: &str, uid: &str) -> Vec<FlockKey> {
        let id = (namespace.to_owned(), name.to_owned());
        match self.services.get(&id) {
            Some(service) if service.uid == uid => {
                let concerned = self.flocks_governed_by(service);
                if let Some(service) = self.services.remove(&id) {
                    self.unindex_service(&service);
                }
                concerned
            }
            _ => Vec::new(),
        }
    }

    fn flocks_governed_by(&self, service: &ServiceFacts) -> Vec<FlockKey> {
        let mut concerned: BTreeSet<FlockKey> = service.made_for.iter().cloned().collect();
        concerned.extend(
            self.flocks
                .iter()
                .filter(|(key, flock)| {
                    key.namespace.as_str() == service.namespace
                        && flock.service_names(key).contains(&service.name)
                })
                .map(|(key, _)| key.clone()),
        );
        concerned.into_iter().collect()
    }

    fn flocks_in(&self, namespace: &str) -> Vec<FlockKey> {
        self.flock_keys()
            .into_iter()
            .filter(|key| key.namespace.as_str() == namespace)
            .collect()
    }

    fn waiting_flocks(&self) -> impl Iterator<Item = FlockKey> + '_ {
        self.flocks
            .iter()
            .filter(|(_, flock)| flock.waits_for_a_place())
            .map(|(key, _)| key.clone())
    }

    fn unindex_service(&mut self, service: &ServiceFacts) {
        let Some(key) = &service.made_for else { return };
        if let Some(names) = self.made.get_mut(key) {
            names.remove(&service.name);
            if names.is_empty() {
                self.made.remove(key);
            }
        }
    }

    fn index_node(&mut self, node: &NodeFacts) {
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

    /// Takes a node out of the index; returns what it carried.
    fn unindex_node(&mut self, name: &str) -> BTreeMap<FlockKey, BTreeSet<Ordinal>> {
        let Some(node) = self.nodes.get(name) else {
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

    fn drop_if_empty(&mut self, key: &FlockKey) {
        if self.flocks.get(key).is_some_and(Flock::is_empty) {
            self.flocks.remove(key);
        }
    }

    /// Names of the pods, uids of the workloads and so on that a source holds, for a relist to compare with.
    pub(crate) fn forget_unseen(&mut self, source: Source, seen: &BTreeSet<String>) -> Vec<FlockKey> {
        let mut concerned = Vec::new();
        match source {
            Source::Pods => {
                let gone: Vec<_> = self
                    .flocks
                    .iter()
                    .flat_map(|(key, flock)| flock.pods().values().map(move |pod| (key.clone(), pod)))
                    .filter(|(_, pod)| !seen.contains(&pod.uid))
                    .map(|(key, pod)| (key, pod.name.clone(), pod.uid.clone()))
                    .collect();
                for (key, name, uid) in gone {
                    concerned.extend(self.drop_pod(&key, &name, &uid, false));
                }
            }
            Source::ReplicaSets | Source::ReplicationControllers => {
                let kind = if source == Source::ReplicaSets {
                    WorkloadKind::ReplicaSet
                } else {
                    WorkloadKind::ReplicationController
                };
                let gone: Vec<_> = self
                    .flocks
                    .iter()
                    .flat_map(|(key, flock)| flock.workloads().values().map(move |w| (key.clone(), w)))
                    .filter(|(_, w)| w.kind == kind && w.labelled && !seen.contains(&w.uid))
                    .map(|(key, w)| (key, w.uid.clone()))
                    .collect();
                for (key, uid) in gone {
                    concerned.extend(self.delete_workload(&key, &uid));
                }
            }
            Source::Nodes => {
                let gone: Vec<_> = self
                    .nodes
                    .values()
                    .filter(|node| !seen.contains(&node.uid))
                    .map(|node| node.name.clone())
                    .collect();
                for name in gone {
                    concerned.extend(self.delete_node(&name));
                }
            }
            Source::Namespaces => {
                let gone: Vec<_> = self
                    .namespaces
                    .values()
                    .filter(|ns| !seen.contains(&ns.uid))
                    .map(|ns| ns.name.clone())
                    .collect();
                for name in gone {
                    concerned.extend(self.delete_namespace(&name));
                }
            }
            Source::Helpers | Source::Claims | Source::Volumes => {
                concerned.extend(self.storage.forget_unseen(source, seen));
            }
            Source::Services => {
                let gone: Vec<_> = self
                    .services
                    .values()
                    .filter(|service| !seen.contains(&service.uid))
                    .map(|service| {
                        (
                            service.namespace.clone(),
                            service.name.clone(),
                            service.uid.clone(),
                        )
                    })
                    .collect();
                for (namespace, name, uid) in gone {
                    concerned.extend(self.delete_service(&namespace, &name, &uid));
                }
            }
        }
        concerned
    }

    /// Marks a pod whose deletion was just accepted, ahead of the watch, so that it is not chosen again.
    pub fn mark_terminating(&mut self, key: &FlockKey, name: &str, uid: &str) {
        if let Some(flock) = self.flocks.get_mut(key) {
            flock.mark_terminating(name, uid);
        }
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

/// Whether a held version is newer than (or the same as) one that came later to us: a watch may be behind the
/// answer to our own write. Versions of etcd-backed API servers compare as numbers (KEP-5504).
fn newer(held: &str, came: &str) -> bool {
    match (held.parse::<u64>(), came.parse::<u64>()) {
        (Ok(held), Ok(came)) => held > came,
        _ => false,
    }
}
