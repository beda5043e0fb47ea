//! One flock: its pods and the workloads that make them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::identity::{FlockKey, Ordinal, OrdinalSet, Pin};

use super::facts::{PodFacts, WorkloadFacts};
use super::newer;

/// The pods and workloads of a flock.
#[derive(Clone, Debug, Default)]
pub struct Flock {
    pods: BTreeMap<String, PodFacts>,
    /// The names of the pods that hold ordinals.
    holders: BTreeMap<Ordinal, String>,
    workloads: BTreeMap<String, WorkloadFacts>,
    /// The last pod of an ordinal that went without ever having had a node: its place is still unused.
    never_bound: BTreeMap<Ordinal, String>,
}

impl Flock {
    /// The pods by name.
    pub fn pods(&self) -> &BTreeMap<String, PodFacts> {
        &self.pods
    }

    /// The workloads by uid.
    pub fn workloads(&self) -> &BTreeMap<String, WorkloadFacts> {
        &self.workloads
    }

    /// Whether neither a pod nor a workload is left.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.workloads.is_empty()
    }

    /// The pods that hold an ordinal, in its order.
    pub fn members(&self) -> BTreeMap<Ordinal, &PodFacts> {
        self.holders
            .iter()
            .filter_map(|(ordinal, name)| Some((*ordinal, self.pods.get(name)?)))
            .collect()
    }

    /// How many of these ordinals are held by such a pod. It takes as long as there are members, however many ordinals
    /// the set has.
    pub fn count_within(&self, set: &OrdinalSet, such: impl Fn(&PodFacts) -> bool) -> usize {
        let members = self.members().into_iter();
        members
            .filter(|(ordinal, pod)| set.contains(*ordinal) && such(pod))
            .count()
    }

    /// Whether a pod holds an ordinal.
    pub fn is_held(&self, ordinal: Ordinal) -> bool {
        self.holders.contains_key(&ordinal)
    }

    /// The pod that holds an ordinal.
    pub fn holder(&self, ordinal: Ordinal) -> Option<&PodFacts> {
        self.pods.get(self.holders.get(&ordinal)?)
    }

    /// The live pods of a workload.
    pub fn live_pods_of<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a PodFacts> {
        self.pods
            .values()
            .filter(move |pod| pod.is_live() && pod.is_owned_by(uid))
    }

    /// The ordinals that a workload may hold now: the first of its set.
    pub fn allowed(workload: &WorkloadFacts) -> OrdinalSet {
        match &workload.template.settings {
            Ok(settings) => settings.ordinals.first(workload.desired),
            Err(_) => OrdinalSet::empty(),
        }
    }

    /// The ReplicaSet of the same Deployment with the highest revision; a workload without one is its own newest.
    pub fn newest<'a>(&'a self, workload: &'a WorkloadFacts) -> &'a WorkloadFacts {
        let Some(deployment) = &workload.deployment else {
            return workload;
        };
        self.workloads
            .values()
            .filter(|other| other.deployment.as_ref().is_some_and(|d| d.uid == deployment.uid))
            .max_by_key(|other| (other.revision, other.created))
            .filter(|newest| newest.revision > workload.revision)
            .unwrap_or(workload)
    }

    /// How many more pods a workload wants.
    pub fn missing(&self, workload: &WorkloadFacts) -> u32 {
        let live = u32::try_from(self.live_pods_of(&workload.uid).count()).unwrap_or(u32::MAX);
        if workload.terminating {
            0
        } else {
            workload.replicas.saturating_sub(live)
        }
    }

    /// The ordinals that should run: the union of what the newest workloads may hold.
    pub fn wanted(&self) -> OrdinalSet {
        self.workloads
            .values()
            .filter(|workload| !workload.terminating && self.newest(workload).uid == workload.uid)
            .fold(OrdinalSet::empty(), |set, workload| {
                set.union(&Self::allowed(workload))
            })
    }

    /// The names of the governing Services that workloads and pods of the flock use.
    pub fn service_names(&self, key: &FlockKey) -> BTreeSet<String> {
        let of_workloads = self.workloads.values().filter_map(|workload| {
            let settings = workload.template.settings.as_ref().ok()?;
            Some(settings.service_of(&key.flock).to_string())
        });
        let of_pods = self
            .pods
            .values()
            .filter(|pod| pod.ordinal.is_some())
            .filter_map(|pod| pod.subdomain.clone());
        of_workloads.chain(of_pods).collect()
    }

    /// Whether a member waits behind Flock's gate, or for a node that the scheduler refuses.
    pub fn waits_for_a_place(&self) -> bool {
        self.pods
            .values()
            .any(|pod| pod.is_live() && (pod.gated || pod.unschedulable.is_some()))
    }

    /// Whether the last pod of this ordinal is known to have gone without ever running, and was `uid`.
    pub fn went_unbound(&self, ordinal: Ordinal, uid: &str) -> bool {
        self.never_bound.get(&ordinal).is_some_and(|last| last == uid)
    }

    /// Whether any workload or pod pins its members to nodes.
    pub fn is_pinned(&self) -> bool {
        let pin = |template: &super::Template| template.settings.as_ref().map_or(Pin::Exclusive, |s| s.pin);
        self.workloads
            .values()
            .map(|w| pin(&w.template))
            .chain(self.pods.values().map(|p| pin(&p.template)))
            .any(|p| p != Pin::None)
    }

    /// Takes in objects that were looked up live.
    pub fn extend(
        &mut self,
        pods: impl IntoIterator<Item = PodFacts>,
        workloads: impl IntoIterator<Item = WorkloadFacts>,
    ) {
        for pod in pods {
            self.apply_pod(pod);
        }
        for workload in workloads {
            self.apply_workload(workload);
        }
    }

    pub(super) fn apply_pod(&mut self, mut pod: PodFacts) -> bool {
        if let Some(old) = self.pods.get(&pod.name) {
            if old.uid == pod.uid && newer(&old.resource_version, &pod.resource_version) {
                return false;
            }
            // Ours is ahead of the watch where we asked for the deletion ourselves.
            pod.terminating |= old.uid == pod.uid && old.terminating;
        }
        if let (Some(ordinal), Some(_)) = (pod.ordinal, &pod.node) {
            self.never_bound.remove(&ordinal);
        }
        // Pods of one template are neighbours more often than not: they share its facts.
        let below = self.pods.range(..pod.name.clone()).next_back();
        let above = self.pods.range(pod.name.clone()..).next();
        let twin = [below, above]
            .into_iter()
            .flatten()
            .find(|(_, other)| other.template == pod.template);
        if let Some((_, twin)) = twin {
            pod.template = Arc::clone(&twin.template);
        }
        if let Some(ordinal) = pod.ordinal {
            self.holders.insert(ordinal, pod.name.clone());
        }
        self.pods.insert(pod.name.clone(), pod);
        true
    }

    /// Forgets a pod. Only where its whole life was `seen` is it known whether it ever had a node: one that is missing
    /// from a new list may have run while the watch was interrupted.
    pub(super) fn delete_pod(&mut self, name: &str, uid: &str, seen: bool) -> bool {
        let Some(pod) = self.pods.get(name).filter(|pod| pod.uid == uid) else {
            return false;
        };
        if let Some(ordinal) = pod.ordinal {
            if seen && pod.node.is_none() {
                self.never_bound.insert(ordinal, pod.uid.clone());
            } else {
                self.never_bound.remove(&ordinal);
            }
            self.holders.remove(&ordinal);
        }
        self.pods.remove(name);
        true
    }

    pub(super) fn mark_terminating(&mut self, name: &str, uid: &str) {
        if let Some(pod) = self.pods.get_mut(name).filter(|pod| pod.uid == uid) {
            pod.terminating = true;
        }
    }

    pub(super) fn apply_workload(&mut self, workload: WorkloadFacts) -> bool {
        if let Some(old) = self.workloads.get(&workload.uid)
            && (newer(&old.resource_version, &workload.resource_version) || *old == workload)
        {
            return false;
        }
        self.workloads.insert(workload.uid.clone(), workload);
        true
    }

    pub(super) fn delete_workload(&mut self, uid: &str) -> bool {
        self.workloads.remove(uid).is_some()
    }
}
