//! The decision about one pod: a pure function of the request, the caches, the configuration and the clock
//! (DESIGN 4). `choose` has the choice of the ordinal.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::Value;

use crate::identity::{DnsLabel, FlockKey, LabelError, Member, Ordinal, Pin, Settings, Start, Storage, keys};
use crate::storage::{ClaimUse, prepares_each_start};
use crate::view::{Flock, View};

use super::checks::{self, Source};
use super::choose::{self, End};
use super::patch::{Membership, Op, patch};
use super::pod::{RawOwner, RawPod, RawSpec, VARIABLES};
use super::refusal::Refusal;
use super::reservations::Reservations;

/// What the administrator configured.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The directory on every node that members' directories are beneath.
    pub host_path_root: PathBuf,
}

/// Everything a decision rests on, besides the request.
pub struct Context<'a> {
    /// The caches.
    pub view: &'a View,
    /// The pod's flock: from the caches, or looked up live to confirm a refusal.
    pub flock: &'a Flock,
    /// What this replica gave away.
    pub reservations: &'a Reservations,
    /// The configuration.
    pub policy: &'a Policy,
    /// From which end this replica takes ordinals.
    pub end: End,
    /// The time.
    pub now: Timestamp,
}

/// What to answer.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// It is no member and starts as it is.
    Untouched,
    /// It is a member.
    Member {
        /// Its ordinal.
        ordinal: Ordinal,
        /// What changes.
        ops: Vec<Op>,
        /// Whether the ordinal was chosen just now, so that it must be reserved.
        chosen: bool,
    },
    /// It may not start.
    Refused(Refusal),
    /// The caches do not know enough.
    Look(Look),
}

/// What must be looked up before a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The workload that owns the pod.
    Owner {
        /// `ReplicaSet` or `ReplicationController`.
        kind: String,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Whether anyone has the name of this ordinal.
    Name(Ordinal),
    /// The pod's namespace.
    Namespace,
}

/// Decides about the creation of a pod with the flock's label in `namespace`.
pub fn decide(namespace: &str, pod: &RawPod<'_>, context: &Context<'_>) -> Verdict {
    match try_decide(namespace, pod, context) {
        Ok(verdict) => verdict,
        Err(Stop::Refusal(refusal)) => Verdict::Refused(refusal),
        Err(Stop::Look(look)) => Verdict::Look(look),
    }
}

/// The flock that a pod's label names.
pub fn flock_key(namespace: &str, pod: &RawPod<'_>) -> Result<Option<FlockKey>, Refusal> {
    let Some(name) = pod.label(keys::NAME) else {
        return Ok(None);
    };
    FlockKey::parse(namespace, name)
        .map(Some)
        .map_err(|LabelError(value)| Refusal::BadName { value })
}

pub(super) enum Stop {
    Refusal(Refusal),
    Look(Look),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

fn try_decide(namespace: &str, pod: &RawPod<'_>, context: &Context<'_>) -> Result<Verdict, Stop> {
    // The kubelet runs a static pod whatever the API server says; its mirror can't be renamed or moved.
    if pod.annotation(keys::MIRROR).is_some() {
        return Ok(Verdict::Untouched);
    }
    let Some(key) = flock_key(namespace, pod)? else {
        return Ok(Verdict::Untouched);
    };
    let kind = Kind::of(pod.controller(), &key)?;
    let settings = Settings::parse(|name| pod.annotation(name)).map_err(Refusal::from)?;
    let empty = RawSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    checks::node_name(spec)?;
    checks::host_network(spec)?;
    let (ordinal, chosen) = ordinal(pod, &kind, &key, &settings, context)?;
    let member = key
        .member(ordinal)
        .ok_or_else(|| Refusal::NameTooLong(key.flock.clone(), ordinal))?;
    let membership = membership(pod, spec, &kind, member, &key, &settings, context)?;
    Ok(Verdict::Member {
        ordinal,
        ops: patch(pod, &membership),
        chosen,
    })
}

/// Who made the pod, as far as it matters.
enum Kind<'a> {
    Workload(&'a RawOwner<'a>),
    StatefulSet,
    Other,
}

impl<'a> Kind<'a> {
    fn of(owner: Option<&'a RawOwner<'a>>, key: &FlockKey) -> Result<Self, Refusal> {
        let Some(owner) = owner else {
            return Ok(Self::Other);
        };
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        if matches!(group, "apps" | "batch") {
            checks::kind(&owner.kind, &owner.name, key)?;
        }
        Ok(match (group, &*owner.kind) {
            ("apps", "ReplicaSet") | ("", "ReplicationController") => Self::Workload(owner),
            ("apps", "StatefulSet") => Self::StatefulSet,
            // Controllers that we do not know name their pods, or leave it to us, as users do.
            _ => Self::Other,
        })
    }
}

fn ordinal(
    pod: &RawPod<'_>,
    kind: &Kind<'_>,
    key: &FlockKey,
    settings: &Settings,
    context: &Context<'_>,
) -> Result<(Ordinal, bool), Stop> {
    let name = &*pod.metadata.name;
    if !name.is_empty() {
        // Named by its user, by a StatefulSet, or by us in the pass before: a name that is set stays.
        let other = || Refusal::OtherName {
            name: name.to_owned(),
            flock: key.flock.clone(),
        };
        let ordinal = key.ordinal_of(name).ok_or_else(other)?;
        if matches!(kind, Kind::Other) && !settings.ordinals.contains(ordinal) {
            let set = settings.ordinals.clone();
            return Err(Refusal::OutsideItsSet {
                name: name.to_owned(),
                ordinal,
                set,
            }
            .into());
        }
        return Ok((ordinal, false));
    }
    let ordinal = match kind {
        Kind::Workload(owner) => choose::for_workload(owner, key, context)?,
        Kind::StatefulSet | Kind::Other => choose::for_bare_pod(key, &settings.ordinals, context)?,
    };
    Ok((ordinal, true))
}

fn membership(
    pod: &RawPod<'_>,
    spec: &RawSpec<'_>,
    kind: &Kind<'_>,
    member: Member<'_>,
    key: &FlockKey,
    settings: &Settings,
    context: &Context<'_>,
) -> Result<Membership, Stop> {
    let name = member.pod_name();
    let stateful_set = matches!(kind, Kind::StatefulSet);
    let service = if stateful_set && !spec.subdomain.is_empty() {
        spec.subdomain.to_string()
    } else {
        checks::service(settings, key)?.to_string()
    };
    let ordinal = member.ordinal();
    let mut faults =
        checks::host(spec, &name, &service, stateful_set).chain(checks::ordinal_labels(pod, ordinal));
    if let Some(fault) = faults.next() {
        return Err(fault.into());
    }
    drop(faults);
    let volumes = volumes(spec, member, settings, key, context)?;
    Ok(Membership {
        ordinal,
        service: service.clone(),
        sets_host: !stateful_set,
        node_label: (settings.pin != Pin::None).then(|| member.node_label()),
        gated: must_wait(member, spec, key, settings, context),
        volumes,
        env: VARIABLES
            .into_iter()
            .zip([
                key.flock.to_string(),
                ordinal.to_string(),
                service.clone(),
                format!(
                    "{}-{}.{service}",
                    key.flock,
                    lowest(settings, context).min(ordinal)
                ),
            ])
            .collect(),
        name,
    })
}

/// The lowest ordinal of the flock, which new members join by.
fn lowest(settings: &Settings, context: &Context<'_>) -> Ordinal {
    let of_workloads = context
        .flock
        .workloads()
        .values()
        .filter_map(|workload| workload.template.settings.as_ref().ok()?.ordinals.lowest());
    // A set that was parsed has at least one ordinal.
    of_workloads
        .chain(settings.ordinals.lowest())
        .min()
        .unwrap_or(Ordinal::ZERO)
}

/// Whether the reconciler has something to do before this member may be scheduled. Where it has not, a restart
/// needs no reconciler.
fn must_wait(
    member: Member<'_>,
    spec: &RawSpec<'_>,
    key: &FlockKey,
    settings: &Settings,
    context: &Context<'_>,
) -> bool {
    let ordinal = member.ordinal();
    let place_known = context.view.place_of(key, ordinal).is_some() || settings.pin == Pin::None;
    !place_known
        || prepares_each_start(settings, &spec.needs())
        || !claims_made(member, key, settings, context)
        || !is_its_turn(ordinal, settings, context)
}

/// Whether the member's claims are known to be its own, and bound. A claim without labels is looked at by the reconciler
/// each time, since its name alone does not say whose it is.
fn claims_made(member: Member<'_>, key: &FlockKey, settings: &Settings, context: &Context<'_>) -> bool {
    let is_own = |volume: &DnsLabel| {
        let claim = context
            .view
            .storage()
            .claim(key.namespace.as_str(), &member.claim_name(volume));
        claim.flatten().is_some_and(|claim| {
            claim.bound
                && !claim.terminating
                && claim.used_as(&key.flock, member.ordinal(), volume) == ClaimUse::Own
        })
    };
    settings.storage == Storage::HostPath || settings.volumes.iter().all(is_own)
}

fn is_its_turn(ordinal: Ordinal, settings: &Settings, context: &Context<'_>) -> bool {
    settings.start == Start::Parallel
        || context
            .flock
            .wanted()
            .iter()
            .take_while(|lower| *lower < ordinal)
            .all(|lower| {
                context
                    .flock
                    .holder(lower)
                    .is_some_and(|pod| pod.is_live() && pod.ready_since.is_some())
            })
}

/// The new entries of the volumes that become durable. One that already is what it should be stays untouched.
fn volumes(
    spec: &RawSpec<'_>,
    member: Member<'_>,
    settings: &Settings,
    key: &FlockKey,
    context: &Context<'_>,
) -> Result<Vec<(usize, Value)>, Stop> {
    let mut changes = Vec::new();
    let root = &context.policy.host_path_root;
    checks::windows(spec, settings, root)?;
    let prepared = !settings.volumes.is_empty() && prepares_each_start(settings, &spec.needs());
    for volume in &settings.volumes {
        let uid = match (settings.storage, context.view.namespace(key.namespace.as_str())) {
            (_, Some(namespace)) => namespace.uid.as_str(),
            (Storage::HostPath, None) => return Err(Stop::Look(Look::Namespace)),
            (Storage::LocalVolume | Storage::Claim, None) => "",
        };
        let source = Source::of(member, volume, settings.storage, root, uid);
        let source = if prepared { source.prepared() } else { source };
        changes.extend(source.change(spec, volume)?);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
