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
mod hearing;
mod nodes;
mod relist;
mod services;
mod shared;
mod storage;
#[cfg(test)]
mod tests;
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
use nodes::Nodes;
use services::Services;

/// The cluster as far as Flock cares.
#[derive(Debug, Default)]
pub struct View {
    /// In their order, so that those of a namespace are neighbours.
    flocks: BTreeMap<FlockKey, Flock>,
    nodes: Nodes,
    namespaces: HashMap<String, NamespaceFacts>,
    services: Services,
    storage: StorageView,
    name_clashes: u64,
}

static NO_FLOCK: std::sync::LazyLock<Flock> = std::sync::LazyLock::new(Flock::default);

impl View {
    /// The flock, empty if nothing of it is known.
    pub fn flock(&self, key: &FlockKey) -> &Flock {
        self.flocks.get(key).unwrap_or(&NO_FLOCK)
    }

    /// All flocks that have a pod, a workload, a place, a helper or a Service of Flock's, which may hold a record of
    /// places.
    pub fn flock_keys(&self) -> BTreeSet<FlockKey> {
        let places = self.nodes.placed().chain(self.services.flocks());
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
            .range(FlockKey::first_of(namespace)..)
            .take_while(move |(key, _)| key.namespace == *namespace)
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
        self.nodes.all()
    }

    /// The nodes that carry the labels of a flock's ordinals.
    pub fn places(&self, key: &FlockKey) -> &BTreeMap<Ordinal, BTreeSet<NodeName>> {
        self.nodes.places(key)
    }

    /// The node that an ordinal's label was taken off last, while no node has it and that node is still the same
    /// object: not lost with it, but removed by somebody.
    pub fn taken_off(&self, key: &FlockKey, ordinal: Ordinal) -> Option<&NodeName> {
        self.nodes.taken_off(key, ordinal)
    }

    /// The nodes with labels in Flock's domain that mean nothing.
    pub fn nodes_with_garbage(&self) -> impl Iterator<Item = &NodeFacts> {
        self.nodes.with_garbage()
    }

    /// How many ordinals have a node.
    pub fn place_count(&self) -> usize {
        self.nodes.place_count()
    }

    /// A Service.
    pub fn service(&self, namespace: &str, name: &str) -> Option<&ServiceFacts> {
        self.services.get(namespace, name)
    }

    /// The Services of a namespace that Flock made for `key`.
    pub fn services_of(&self, key: &FlockKey) -> impl Iterator<Item = &ServiceFacts> {
        self.services.made_for(key)
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
            let found = self.nodes().get(node).and_then(|node| node.machine_id.as_ref());
            place.node == *node && matches!((&place.machine, found), (Some(then), Some(now)) if then != now)
        });
        (!other_machine).then_some(node)
    }

    /// The Service of Flock's on which a flock's record of places stands.
    pub fn record_service(&self, key: &FlockKey) -> Option<&ServiceFacts> {
        self.services_of(key).find(|service| service.places.is_some())
    }

    /// A namespace.
    pub fn namespace(&self, name: &str) -> Option<&NamespaceFacts> {
        self.namespaces.get(name)
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

    /// How often a known workload came to tell that the name of its next pod was taken. What it told already when it
    /// was first seen is old.
    pub fn name_clashes(&self) -> u64 {
        self.name_clashes
    }

    /// Takes in a ReplicaSet or ReplicationController.
    pub fn apply_workload(&mut self, key: FlockKey, workload: WorkloadFacts) -> Vec<FlockKey> {
        let flock = self.flocks.entry(key.clone()).or_default();
        let before = flock.workloads().get(&workload.uid).map(|known| known.failing);
        let clash = matches!(workload.failing, Some(Failure::NameTaken { .. }));
        let new = clash && before.is_some_and(|before| before != workload.failing);
        let changed = flock.apply_workload(workload);
        // An outdated one, which is not taken in, tells nothing new.
        self.name_clashes += u64::from(new && changed);
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

    /// Takes in a pod as its watch shows it. `read` is what [`PodFacts::read`] makes of it: whatever flock the pod was
    /// known in before, it is in this one now, or in none.
    pub fn pod_seen(
        &mut self,
        namespace: &str,
        name: &str,
        uid: &str,
        read: Option<(FlockKey, PodFacts)>,
    ) -> Vec<FlockKey> {
        let flock = read.as_ref().map(|(key, _)| key.clone());
        let left = self.flocks_that(namespace, |key, known| {
            Some(key) != flock.as_ref() && known.pods().get(name).is_some_and(|pod| pod.uid == uid)
        });
        let mut concerned = Vec::new();
        for key in left {
            // It goes on elsewhere, so nothing is known of what its end would tell.
            concerned.extend(self.drop_pod(&key, name, uid, false));
        }
        concerned.extend(
            read.into_iter()
                .flat_map(|(key, facts)| self.apply_pod(key, facts)),
        );
        concerned
    }

    /// Forgets a pod, whatever it says at its end.
    pub fn pod_gone(&mut self, namespace: &str, name: &str, uid: &str) -> Vec<FlockKey> {
        let of = self.flocks_that(namespace, |_, flock| flock.pods().contains_key(name));
        of.iter()
            .flat_map(|key| self.delete_pod(key, name, uid))
            .collect()
    }

    /// Takes in a workload as its watch shows it. `read` is what [`WorkloadFacts`] makes of it: whatever flock its
    /// template was of before, it is of this one now, or of none.
    pub fn workload_seen(
        &mut self,
        namespace: &str,
        uid: &str,
        read: Option<(FlockKey, WorkloadFacts)>,
    ) -> Vec<FlockKey> {
        let flock = read.as_ref().map(|(key, _)| key.clone());
        let left = self.flocks_that(namespace, |key, known| {
            Some(key) != flock.as_ref() && known.workloads().contains_key(uid)
        });
        let mut concerned: Vec<_> = left
            .iter()
            .flat_map(|key| self.delete_workload(key, uid))
            .collect();
        concerned.extend(
            read.into_iter()
                .flat_map(|(key, facts)| self.apply_workload(key, facts)),
        );
        concerned
    }

    /// Forgets a workload, whatever its template says at its end.
    pub fn workload_gone(&mut self, namespace: &str, uid: &str) -> Vec<FlockKey> {
        let of = self.flocks_that(namespace, |_, flock| flock.workloads().contains_key(uid));
        of.iter().flat_map(|key| self.delete_workload(key, uid)).collect()
    }

    /// The flocks of a namespace for which this holds.
    fn flocks_that(&self, namespace: &str, holds: impl Fn(&FlockKey, &Flock) -> bool) -> Vec<FlockKey> {
        let Ok(namespace) = DnsLabel::parse(namespace) else {
            return Vec::new();
        };
        self.neighbours(&namespace)
            .filter(|(key, flock)| holds(key, flock))
            .map(|(key, _)| key.clone())
            .collect()
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
        let Some(mut concerned) = self.nodes.apply(node) else {
            return Vec::new();
        };
        concerned.extend(self.waiting_flocks());
        concerned.into_iter().collect()
    }

    /// Forgets a node.
    pub fn delete_node(&mut self, name: &str) -> Vec<FlockKey> {
        self.nodes.delete(name).into_iter().collect()
    }

    /// Takes in a Service; only one that governs a flock, or that Flock made, concerns anyone.
    pub fn apply_service(&mut self, service: ServiceFacts) -> Vec<FlockKey> {
        let concerned = self.flocks_governed_by(&service);
        if self.services.apply(service) {
            concerned
        } else {
            Vec::new()
        }
    }

    /// Forgets a Service.
    pub fn delete_service(&mut self, namespace: &str, name: &str, uid: &str) -> Vec<FlockKey> {
        let service = self.services.get(namespace, name);
        let Some(service) = service.filter(|service| service.uid == uid) else {
            return Vec::new();
        };
        let concerned = self.flocks_governed_by(service);
        self.services.remove(namespace, name);
        concerned
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

    fn drop_if_empty(&mut self, key: &FlockKey) {
        if self.flocks.get(key).is_some_and(Flock::is_empty) {
            self.flocks.remove(key);
        }
    }

    /// Marks a pod whose deletion was just accepted, ahead of the watch, so that it is not chosen again.
    pub fn mark_terminating(&mut self, key: &FlockKey, name: &str, uid: &str) {
        if let Some(flock) = self.flocks.get_mut(key) {
            flock.mark_terminating(name, uid);
        }
    }
}

/// Whether a held version is newer than (or the same as) one that came later to us: a watch may be behind the
/// answer to our own write. Versions of etcd-backed API servers compare as numbers (KEP-5504).
fn newer(held: &str, came: &str) -> bool {
    match (held.parse::<u64>(), came.parse::<u64>()) {
        (Ok(held), Ok(came)) => held > came,
        _ => false,
    }
}
