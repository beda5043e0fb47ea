//! Of a workload whose pods are members.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{PodTemplateSpec, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::{Controller, Template, controller, flock_of};
use crate::identity::{FlockKey, keys};

/// Kinds whose pods Flock names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// `apps/v1`.
    ReplicaSet,
    /// `v1`.
    ReplicationController,
}

impl WorkloadKind {
    /// The kind's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReplicaSet => "ReplicaSet",
            Self::ReplicationController => "ReplicationController",
        }
    }

    /// The kind's apiVersion.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::ReplicaSet => "apps/v1",
            Self::ReplicationController => "v1",
        }
    }
}

/// Why a workload's last creations failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Flock refused them or was away: what may have changed since, unseen by the workload.
    Flock,
    /// The name was taken: that of a member that had not gone yet, or that two replicas gave away at once.
    NameTaken {
        /// Since when it is told.
        since: Option<Timestamp>,
    },
    /// Something else, such as a quota: it is woken too, but slowly.
    Other,
}

impl Failure {
    /// Reads the ReplicaFailure among the conditions.
    fn find<'a>(mut conditions: impl Iterator<Item = Condition<'a>>) -> Option<Self> {
        let failure =
            conditions.find(|condition| condition.kind == "ReplicaFailure" && condition.status == "True")?;
        let message = failure.message.unwrap_or_default();
        // The API server puts the webhook's name into both "denied the request" and "failed calling webhook".
        Some(if message.contains("members.flock.dev") {
            Self::Flock
        } else if message.contains("already exists") {
            Self::NameTaken { since: failure.since }
        } else {
            Self::Other
        })
    }
}

/// What both kinds of workloads have in a condition.
struct Condition<'a> {
    kind: &'a str,
    status: &'a str,
    message: Option<&'a str>,
    since: Option<Timestamp>,
}

/// A ReplicaSet or ReplicationController whose template has the flock's label.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFacts {
    /// Which of the two.
    pub kind: WorkloadKind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it has the label itself, and so comes by our watch; else it was fetched.
    pub labelled: bool,
    /// Its Deployment.
    pub deployment: Option<Controller>,
    /// The Deployment's revision that it is.
    pub revision: u64,
    /// `spec.replicas`.
    pub replicas: u32,
    /// How many ordinals it owns: the Deployment's number during a rollout, else its own.
    pub desired: u32,
    /// How long a pod must be Ready to count as available.
    pub min_ready_seconds: i64,
    /// Why its last creations failed (condition ReplicaFailure), if they did: it may sleep in its back-off.
    pub failing: Option<Failure>,
    /// Whether its deletion has begun.
    pub terminating: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// What its pods will have.
    pub template: Arc<Template>,
}

impl WorkloadFacts {
    /// The flock and the facts of a ReplicaSet; `None` where its template has no valid flock label.
    pub fn read_replica_set(set: &ReplicaSet) -> Option<(FlockKey, Self)> {
        let spec = set.spec.as_ref()?;
        let conditions = set
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let failing = Failure::find(conditions.map(|c| Condition {
            kind: &c.type_,
            status: &c.status,
            message: c.message.as_deref(),
            since: c.last_transition_time.as_ref().map(|Time(t)| *t),
        }));
        Self::read(
            WorkloadKind::ReplicaSet,
            &set.metadata,
            spec.template.as_ref(),
            spec.replicas,
            spec.min_ready_seconds,
            failing,
        )
    }

    /// The flock and the facts of a ReplicationController.
    pub fn read_replication_controller(controller: &ReplicationController) -> Option<(FlockKey, Self)> {
        let spec = controller.spec.as_ref()?;
        let conditions = controller
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        let failing = Failure::find(conditions.map(|c| Condition {
            kind: &c.type_,
            status: &c.status,
            message: c.message.as_deref(),
            since: c.last_transition_time.as_ref().map(|Time(t)| *t),
        }));
        Self::read(
            WorkloadKind::ReplicationController,
            &controller.metadata,
            spec.template.as_ref(),
            spec.replicas,
            spec.min_ready_seconds,
            failing,
        )
    }

    fn read(
        kind: WorkloadKind,
        meta: &ObjectMeta,
        template: Option<&PodTemplateSpec>,
        replicas: Option<i32>,
        min_ready_seconds: Option<i32>,
        failing: Option<Failure>,
    ) -> Option<(FlockKey, Self)> {
        let template_meta = template.and_then(|t| t.metadata.as_ref());
        let key = flock_of(meta, template_meta.and_then(|m| m.labels.as_ref()))?;
        let annotation = |name: &str| {
            meta.annotations
                .as_ref()
                .and_then(|a| a.get(name))
                .map(String::as_str)
        };
        let replicas = u32::try_from(replicas.unwrap_or(1)).unwrap_or(0);
        let deployment = controller(meta).filter(|owner| owner.kind == "Deployment");
        // The annotation is trusted only where a Deployment stands behind it.
        let desired = deployment
            .as_ref()
            .and_then(|_| annotation(keys::DESIRED_REPLICAS)?.parse().ok());
        let facts = Self {
            kind,
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labelled: meta
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(keys::NAME)),
            deployment,
            revision: annotation(keys::REVISION)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            replicas,
            desired: desired.unwrap_or(replicas),
            min_ready_seconds: min_ready_seconds.unwrap_or(0).into(),
            failing,
            terminating: meta.deletion_timestamp.is_some(),
            created: meta.creation_timestamp.as_ref().map(|Time(t)| *t),
            template: Arc::new(Template::new(
                template_meta.and_then(|m| m.annotations.as_ref()),
                template.and_then(|t| t.spec.as_ref()),
            )),
        };
        Some((key, facts))
    }
}
