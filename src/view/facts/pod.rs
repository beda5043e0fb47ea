//! Of a member.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Controller, Template, controller, flock_of};
use crate::identity::{FlockKey, Ordinal, keys};

/// What a pod's phase means to Flock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Pending, Running or Unknown: it may use its data, now or later.
    Alive,
    /// Failed or Succeeded: no container of it will ever run again, but its name stays taken.
    Over,
}

/// A pod with the flock's label.
#[derive(Clone, Debug)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// The ordinal whose name it has; `None` for a pod that is no member (a name of its own, a mirror pod).
    pub ordinal: Option<Ordinal>,
    /// Its controller.
    pub owner: Option<Controller>,
    /// Whether it may still run.
    pub phase: Phase,
    /// `status.reason`, such as `Evicted`, and `status.message`: kept for the event when it is buried.
    pub reason: Option<String>,
    /// Since when it is Ready.
    pub ready_since: Option<Timestamp>,
    /// Whether its deletion has begun.
    pub terminating: bool,
    /// Whether it has Flock's scheduling gate.
    pub gated: bool,
    /// Where it was bound.
    pub node: Option<String>,
    /// The scheduler's message, while it says Unschedulable.
    pub unschedulable: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Its `spec.subdomain`.
    pub subdomain: Option<String>,
    /// Whether its user said that its data is not coming back.
    pub data_lost: bool,
    /// What it has from its template.
    pub template: Arc<Template>,
}

impl PodFacts {
    /// The flock and the facts of a pod; `None` for a pod without a valid flock label.
    pub fn read(pod: &Pod) -> Option<(FlockKey, Self)> {
        let meta = &pod.metadata;
        let key = flock_of(meta, meta.labels.as_ref())?;
        let name = meta.name.clone()?;
        let annotations = meta.annotations.as_ref();
        let mirror = annotations.is_some_and(|a| a.contains_key(keys::MIRROR));
        let status = pod.status.as_ref();
        let spec = pod.spec.as_ref();
        let condition = |kind: &str| {
            status
                .and_then(|s| s.conditions.as_ref())
                .and_then(|conditions| conditions.iter().find(|condition| condition.type_ == kind))
        };
        let phase = match status.and_then(|s| s.phase.as_deref()) {
            Some("Failed" | "Succeeded") => Phase::Over,
            _ => Phase::Alive,
        };
        let facts = Self {
            ordinal: if mirror { None } else { key.ordinal_of(&name) },
            name,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            owner: controller(meta),
            phase,
            reason: status.and_then(|s| {
                let parts: Vec<_> = s.reason.iter().chain(&s.message).map(String::as_str).collect();
                (!parts.is_empty()).then(|| parts.join(": "))
            }),
            ready_since: condition("Ready")
                .filter(|ready| ready.status == "True" && phase == Phase::Alive)
                .map(|ready| {
                    ready
                        .last_transition_time
                        .as_ref()
                        .map_or(Timestamp::UNIX_EPOCH, |Time(t)| *t)
                }),
            terminating: meta.deletion_timestamp.is_some(),
            gated: spec
                .and_then(|s| s.scheduling_gates.as_ref())
                .is_some_and(|gates| gates.iter().any(|gate| gate.name == keys::GATE)),
            node: spec.and_then(|s| s.node_name.clone()),
            unschedulable: condition("PodScheduled")
                .filter(|c| c.status == "False" && c.reason.as_deref() == Some("Unschedulable"))
                .map(|c| c.message.clone().unwrap_or_default()),
            created: meta.creation_timestamp.as_ref().map(|Time(t)| *t),
            subdomain: spec.and_then(|s| s.subdomain.clone()),
            // Its own uid, so that no template can say it of all pods to come.
            data_lost: annotations.and_then(|a| a.get(keys::DATA_LOST)) == meta.uid.as_ref()
                && meta.uid.is_some(),
            template: Arc::new(Template::new(annotations, spec)),
        };
        Some((key, facts))
    }

    /// Whether it holds its ordinal and is meant to go on doing so.
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Alive && !self.terminating
    }

    /// Whether it has been Ready for `min_ready_seconds`.
    pub fn is_available(&self, min_ready_seconds: i64, now: Timestamp) -> bool {
        self.is_live() && self.available_at(min_ready_seconds).is_some_and(|at| at <= now)
    }

    /// When it will have been Ready for long enough, if it stays so.
    pub fn available_at(&self, min_ready_seconds: i64) -> Option<Timestamp> {
        let since = self.ready_since?;
        since
            .checked_add(jiff::SignedDuration::from_secs(min_ready_seconds))
            .ok()
    }

    /// Whether `uid` is its controller.
    pub fn is_owned_by(&self, uid: &str) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.uid == uid)
    }
}
