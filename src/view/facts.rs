//! The facts that are kept of each object.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Pod, PodSpec, PodTemplateSpec, ReplicationController, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::identity::{FlockKey, Ordinal, Settings, SettingsError, keys};
use crate::place::{Constraints, Record};
use crate::storage::Needs;

/// The controller in an object's ownerReferences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `apps/v1` and the like.
    pub api_version: String,
    /// `ReplicaSet` and the like.
    pub kind: String,
    /// Its name, in the object's namespace.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// What a pod's phase means to Flock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Pending, Running or Unknown: it may use its data, now or later.
    Alive,
    /// Failed or Succeeded: no container of it will ever run again, but its name stays taken.
    Over,
}

/// A container port of a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortFacts {
    /// The port's name, if it has one.
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The number.
    pub port: i32,
}

/// What a pod has from its template. Pods of one workload share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The annotations, read.
    pub settings: Result<Settings, SettingsError>,
    /// Where it can run.
    pub constraints: Constraints,
    /// The ports that its containers declare.
    pub ports: Vec<PortFacts>,
    /// What its volumes need.
    pub needs: Needs,
}

impl Template {
    /// The template's facts from annotations and spec.
    pub fn new(
        annotations: Option<&std::collections::BTreeMap<String, String>>,
        spec: Option<&PodSpec>,
    ) -> Self {
        let settings = Settings::parse(|key| annotations.and_then(|a| a.get(key)).map(String::as_str));
        let mut ports: Vec<_> = spec
            .into_iter()
            .flat_map(|spec| &spec.containers)
            .flat_map(|container| container.ports.iter().flatten())
            .map(|port| PortFacts {
                name: port.name.clone(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                port: port.container_port,
            })
            .collect();
        ports.sort();
        ports.dedup();
        Self {
            settings,
            constraints: Constraints::from(spec.unwrap_or(&PodSpec::default())),
            ports,
            needs: spec.map(Needs::from).unwrap_or_default(),
        }
    }

    /// The settings, or the defaults where the annotations can't be read.
    pub fn settings(&self) -> Settings {
        self.settings.clone().unwrap_or_else(|_| Settings::defaults())
    }
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
    /// Flock refused them or was away, or a name was taken: what may have changed since, unseen by the workload.
    Flock,
    /// Something else, such as a quota: it is woken too, but slowly.
    Other,
}

impl Failure {
    /// Reads the message of a ReplicaFailure condition.
    fn read(message: &str) -> Self {
        // The API server puts the webhook's name into both "denied the request" and "failed calling webhook".
        let ours = message.contains("members.flock.dev") || message.contains("already exists");
        if ours { Self::Flock } else { Self::Other }
    }
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
        let failing = set
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .find(|c| c.type_ == "ReplicaFailure" && c.status == "True")
            .map(|c| Failure::read(c.message.as_deref().unwrap_or_default()));
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
        let failing = controller
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .find(|c| c.type_ == "ReplicaFailure" && c.status == "True")
            .map(|c| Failure::read(c.message.as_deref().unwrap_or_default()));
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

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its name.
    pub name: String,
    /// Its uid, which is part of every member's directory.
    pub uid: String,
    /// The Pod Security level that it enforces, if it says so itself.
    pub enforce: Option<String>,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl From<&ObjectMeta> for NamespaceFacts {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            enforce: meta
                .labels
                .as_ref()
                .and_then(|l| l.get("pod-security.kubernetes.io/enforce"))
                .cloned(),
            terminating: meta.deletion_timestamp.is_some(),
        }
    }
}

impl From<&Namespace> for NamespaceFacts {
    fn from(namespace: &Namespace) -> Self {
        Self::from(&namespace.metadata)
    }
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it is headless.
    pub headless: bool,
    /// The flock that Flock made it for; `None` for a user's own.
    pub made_for: Option<FlockKey>,
    /// Whether not-ready pods are published.
    pub publishes_not_ready: bool,
    /// The flock that its selector selects, if it selects one and nothing else.
    pub selects: Option<String>,
    /// Its ports.
    pub ports: Vec<PortFacts>,
    /// The record of places, as it stands there.
    pub places: Option<Arc<str>>,
    /// The same, read; `None` where there is none or it cannot be read.
    pub record: Option<Arc<Record>>,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl ServiceFacts {
    /// The facts of a Service.
    pub fn read(service: &Service) -> Option<Self> {
        let meta = &service.metadata;
        let spec = service.spec.as_ref();
        let labels = meta.labels.as_ref();
        let ours = labels
            .and_then(|l| l.get(keys::MANAGED_BY))
            .is_some_and(|by| by == keys::MANAGER);
        let mut ports: Vec<_> = spec
            .and_then(|s| s.ports.as_ref())
            .into_iter()
            .flatten()
            .map(|port| PortFacts {
                name: port.name.clone(),
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".into()),
                port: port.port,
            })
            .collect();
        ports.sort();
        let places = meta.annotations.as_ref().and_then(|a| a.get(keys::PLACES));
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            headless: spec.and_then(|s| s.cluster_ip.as_deref()) == Some("None"),
            made_for: if ours { flock_of(meta, labels) } else { None },
            publishes_not_ready: spec.and_then(|s| s.publish_not_ready_addresses).unwrap_or(false),
            selects: spec.and_then(|s| s.selector.as_ref()).and_then(|selector| {
                (selector.len() == 1)
                    .then(|| selector.get(keys::NAME).cloned())
                    .flatten()
            }),
            ports,
            places: places.map(|text| text.as_str().into()),
            record: places.and_then(|text| Record::parse(text).ok()).map(Arc::new),
            terminating: meta.deletion_timestamp.is_some(),
        })
    }
}

fn flock_of(
    meta: &ObjectMeta,
    labels: Option<&std::collections::BTreeMap<String, String>>,
) -> Option<FlockKey> {
    FlockKey::parse(meta.namespace.as_deref()?, labels?.get(keys::NAME)?).ok()
}

fn controller(meta: &ObjectMeta) -> Option<Controller> {
    let owner = meta
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))?;
    Some(Controller {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    })
}
