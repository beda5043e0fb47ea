//! Volumes: directories prepared by a helper on the member's node, PersistentVolumes, claims. A member is ready
//! for the scheduler once its storage is its own (DESIGN 7).
//!
//! What is under way is all in the API: the helper is named after the member's pod, a PersistentVolume exists only
//! once its directory was prepared, a claim only after its volume. So a new leader goes on where the old one ended.

mod claims;
mod growth;
mod local;
mod prepared;

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::identity::{DnsLabel, Ordinal, Settings, Storage};
use crate::storage::{ClaimSpec, Helper, VolumeSpec, prepares_each_start};
use crate::view::{ClaimFacts, HelperFacts, HelperState, PodFacts};

use super::{Action, Observed, Plan, Subject};

/// How soon a preparation that failed is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(20);
/// The size of a claim whose emptyDir has no `sizeLimit`.
const DEFAULT_SIZE: &str = "1Gi";

/// Something to do for storage.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageAction {
    /// Start the helper of a member's pod.
    CreateHelper(Box<Helper>),
    /// Remove a helper.
    DeleteHelper {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Make a PersistentVolume.
    CreateVolume(Box<VolumeSpec>),
    /// Note on which node the directory of a PersistentVolume was prepared, after its member has moved.
    MarkVolume {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
        /// The node.
        node: String,
    },
    /// Give a PersistentVolume that Flock made to the claim that took the place of a deleted one.
    RebindVolume {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
    },
    /// Make a claim.
    CreateClaim(Box<ClaimSpec>),
    /// Ask for more room.
    GrowClaim {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
        /// The size.
        size: String,
    },
}

impl StorageAction {
    /// A closed word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateHelper(_) => "create_helper",
            Self::DeleteHelper { .. } => "delete_helper",
            Self::CreateVolume(_) => "create_volume",
            Self::MarkVolume { .. } => "mark_volume",
            Self::RebindVolume { .. } => "rebind_volume",
            Self::CreateClaim(_) => "create_claim",
            Self::GrowClaim { .. } => "grow_claim",
        }
    }
}

/// Removes helpers that nobody waits for.
pub(super) fn dismiss(observed: &Observed<'_>, plan: &mut Plan) {
    for helper in observed
        .view
        .storage()
        .helpers_of(observed.key)
        .filter(|helper| !helper.terminating)
    {
        let member = observed
            .flock()
            .holder(helper.ordinal)
            .filter(|pod| pod.uid == helper.member_uid);
        // One that is bound where it was prepared for has all that it needs.
        let waits = |pod: &PodFacts| {
            pod.is_live() && (pod.node.as_ref() != Some(&helper.node) || helper.state != HelperState::Done)
        };
        if !member.is_some_and(waits) {
            delete(helper, plan);
        }
    }
}

/// Plans the storage of the members in `placed`; returns those of them whose storage is ready.
pub(super) fn plan(
    observed: &Observed<'_>,
    placed: &BTreeSet<Ordinal>,
    plan: &mut Plan,
) -> BTreeSet<Ordinal> {
    let mut ready = BTreeSet::new();
    let mut adopted = BTreeSet::new();
    for ordinal in placed {
        let Some(pod) = observed.flock().holder(*ordinal).filter(|pod| pod.is_live()) else {
            continue;
        };
        let Ok(settings) = &pod.template.settings else {
            ready.insert(*ordinal);
            continue;
        };
        let helper = observed.view.storage().helper(&pod.uid);
        let settled = match (&pod.node, helper) {
            (None, _) => false,
            // It waits for its mount where it was bound before its storage had followed it.
            (Some(_), _) if pod.ready_since.is_none() && settings.storage == Storage::LocalVolume => false,
            (Some(node), Some(helper)) => helper.node == *node,
            (Some(_), None) => true,
        };
        if settled || settings.volumes.is_empty() {
            ready.insert(*ordinal);
            continue;
        }
        let mut work = Work {
            observed,
            ordinal: *ordinal,
            pod,
            settings,
            plan,
            adopted: &mut adopted,
        };
        let done = match settings.storage {
            Storage::HostPath => {
                !prepares_each_start(settings, &pod.template.needs) || work.prepared(&settings.volumes)
            }
            Storage::LocalVolume => work.local_volumes(),
            Storage::Claim => work.claims(),
        };
        if done {
            ready.insert(*ordinal);
        }
    }
    growth::grow(observed, plan);
    ready
}

struct Work<'a, 'p> {
    observed: &'a Observed<'a>,
    ordinal: Ordinal,
    pod: &'a PodFacts,
    settings: &'a Settings,
    plan: &'p mut Plan,
    adopted: &'p mut BTreeSet<String>,
}

impl<'a> Work<'a, '_> {
    fn act(&mut self, action: StorageAction) {
        self.plan.actions.push(Action::Storage(action));
    }

    /// Tells it where the user looks: on the pod, and on its owner, which outlives it.
    fn tell(&mut self, reason: &'static str, message: &str) {
        self.plan
            .stuck([self.ordinal], Subject::pod(self.pod), reason, message);
        if let Some(owner) = self.observed.owner(self.pod) {
            self.plan.warn(Subject::workload(owner), reason, message);
        }
    }

    fn namespace(&self) -> &'a str {
        self.observed.key.namespace.as_str()
    }

    fn namespace_uid(&self) -> Option<&'a str> {
        Some(&self.observed.view.namespace(self.namespace())?.uid)
    }

    /// The member's node.
    fn node(&self) -> Option<String> {
        if let Some(node) = &self.pod.node {
            return Some(node.clone());
        }
        let recorded = self
            .plan
            .memory
            .record
            .as_ref()
            .and_then(|record| record.get(self.ordinal));
        let labelled = self.observed.view.places(self.observed.key).get(&self.ordinal);
        let label = labelled.and_then(|nodes| nodes.first()).map(ToString::to_string);
        recorded.map(|place| place.node.to_string()).or(label)
    }

    /// Whether the member is known to have run where its place is now, so that there must be data: the place was
    /// chosen for another pod, and that one was not lost before it had a node. A place that stands on its label
    /// alone tells nothing: an administrator's, or that of a namespace of the same name that is gone.
    fn ran(&self) -> bool {
        let recorded = self
            .plan
            .memory
            .record
            .as_ref()
            .and_then(|record| record.get(self.ordinal));
        let chosen_for = recorded.and_then(|place| place.chosen_for.as_ref());
        chosen_for
            .is_some_and(|uid| *uid != self.pod.uid && !self.observed.flock().went_unbound(self.ordinal, uid))
    }

    fn size(&self, volume: &DnsLabel) -> String {
        growth::size(self.observed, self.pod, volume).unwrap_or_else(|| DEFAULT_SIZE.into())
    }
}

struct Wait;

enum Found<'a> {
    /// Not known yet, or another's.
    Unusable,
    None,
    Some(&'a ClaimFacts),
}

fn delete(helper: &HelperFacts, plan: &mut Plan) {
    let action = StorageAction::DeleteHelper {
        name: helper.name.clone(),
        uid: helper.uid.clone(),
    };
    plan.actions.push(Action::Storage(action));
}

#[cfg(test)]
mod tests;
