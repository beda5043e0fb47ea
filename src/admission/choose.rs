//! The choice of an ordinal for a pod that has no name yet.
//!
//! Never a particular one: a ReplicaSet's slow start ends its whole batch at the first refusal
//! (`k8s.io/kubernetes/pkg/controller/replicaset/replica_set.go`, `slowStartBatch`), so a held ordinal must not
//! stand in the way of a free one.

use crate::identity::{FlockKey, Ordinal, OrdinalSet};
use crate::view::{Flock, WorkloadFacts};

use super::decide::{Context, Look, Stop};
use super::pod::RawOwner;
use super::refusal::{Holder, Refusal, held};
use super::reservations::Hold;

/// From which end a replica takes ordinals. The leader takes the lowest, another the highest, so that two meet
/// only at the last one: each meeting is a 409 that the ReplicaSet controller backs off from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Lowest first.
    Low,
    /// Highest first.
    High,
}

/// An ordinal for a pod of a ReplicaSet or ReplicationController.
pub(super) fn for_workload(
    owner: &RawOwner<'_>,
    key: &FlockKey,
    context: &Context<'_>,
) -> Result<Ordinal, Stop> {
    let Some(workload) = context.flock.workloads().get(&*owner.uid) else {
        return Err(Stop::Look(Look::Owner {
            kind: owner.kind.to_string(),
            name: owner.name.to_string(),
            uid: owner.uid.to_string(),
        }));
    };
    let settings = workload
        .template
        .settings
        .as_ref()
        .map_err(|error| Refusal::from(error.clone()))?;
    let newest = context.flock.newest(workload);
    if newest.uid != workload.uid && context.flock.missing(newest) > 0 {
        return Err(Refusal::OldRevision {
            flock: key.flock.clone(),
            newest: newest.name.clone(),
        }
        .into());
    }
    let allowed = Flock::allowed(workload);
    if allowed.is_empty() {
        return Err(no_replicas(key, workload).into());
    }
    free(key, &allowed, context, Prefer::end(context.end))?.ok_or_else(|| {
        let too_few = allowed.len() < workload.desired as usize
            && context.flock.live_pods_of(&workload.uid).count() >= allowed.len();
        if too_few {
            let set = settings.ordinals.clone();
            return Refusal::TooManyReplicas {
                flock: key.flock.clone(),
                replicas: workload.desired,
                set,
            }
            .into();
        }
        all_held(key, &allowed, context).into()
    })
}

/// The lowest free ordinal for a pod without a controller that Flock knows.
pub(super) fn for_bare_pod(key: &FlockKey, set: &OrdinalSet, context: &Context<'_>) -> Result<Ordinal, Stop> {
    free(key, set, context, Prefer::Lowest)?.ok_or_else(|| all_held(key, set, context).into())
}

/// Which of the free ordinals.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Prefer {
    /// Just the lowest, for a set without an end: one that was offered in vain must not leave a gap for ever.
    Lowest,
    /// Any that needs no look, from the lowest up: the set is as large as the workload, so all get their turn.
    Low,
    /// From the highest down.
    High,
}

impl Prefer {
    fn end(end: End) -> Self {
        match end {
            End::Low => Self::Low,
            End::High => Self::High,
        }
    }
}

fn free(
    key: &FlockKey,
    set: &OrdinalSet,
    context: &Context<'_>,
    prefer: Prefer,
) -> Result<Option<Ordinal>, Stop> {
    let mut suspect = None;
    let mut doubtful = None;
    let mut consider = |ordinal: Ordinal| {
        if context.flock.is_held(ordinal) {
            return false;
        }
        match context.reservations.hold(key, ordinal, context.now) {
            Hold::None => true,
            Hold::Reserved | Hold::Stranger => false,
            Hold::Suspect => {
                suspect.get_or_insert(ordinal);
                false
            }
            Hold::Doubtful => {
                doubtful.get_or_insert(ordinal);
                false
            }
        }
    };
    let found = match prefer {
        Prefer::Low | Prefer::Lowest => set.iter().find(|ordinal| consider(*ordinal)),
        Prefer::High => set.iter().rev().find(|ordinal| consider(*ordinal)),
    };
    match (found, suspect) {
        (_, Some(ordinal)) if prefer == Prefer::Lowest => Err(Stop::Look(Look::Name(ordinal))),
        (Some(ordinal), _) => Ok(Some(ordinal)),
        (None, Some(ordinal)) => Err(Stop::Look(Look::Name(ordinal))),
        (None, None) => Ok(doubtful),
    }
}

fn all_held(key: &FlockKey, set: &OrdinalSet, context: &Context<'_>) -> Refusal {
    held(key, set, |ordinal| {
        let stranger = || match context.reservations.hold(key, ordinal, context.now) {
            Hold::Stranger => Some(Holder::stranger()),
            Hold::Reserved => Some(Holder::reserved()),
            Hold::None | Hold::Suspect | Hold::Doubtful => None,
        };
        context.flock.holder(ordinal).map(Holder::pod).or_else(stranger)
    })
}

fn no_replicas(key: &FlockKey, workload: &WorkloadFacts) -> Refusal {
    Refusal::NoReplicas {
        flock: key.flock.clone(),
        workload: format!("{} {}", workload.kind.name(), workload.name),
    }
}
