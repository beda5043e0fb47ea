//! The facts of claims, PersistentVolumes, StorageClasses and helpers.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::identity::{DnsLabel, FlockKey, Ordinal, keys};
use crate::storage::{ClaimUse, claim_use, member_of_helper};

/// How far a helper is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelperState {
    /// It has not ended; the text says what its container waits for.
    Busy(Option<String>),
    /// The directories are ready.
    Done,
    /// They are not.
    Failed {
        /// The exit code, where the program ended by itself.
        code: Option<i32>,
        /// Its last words.
        message: String,
        /// When.
        at: Option<Timestamp>,
    },
}

/// A helper pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelperFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// The member's flock.
    pub key: FlockKey,
    /// The member's ordinal.
    pub ordinal: Ordinal,
    /// The uid of the member's pod.
    pub member_uid: String,
    /// Where it runs.
    pub node: String,
    /// How far it is.
    pub state: HelperState,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// Whether it may let the member start without data.
    pub data_lost: bool,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl HelperFacts {
    /// The facts of a pod that is a helper.
    pub fn read(pod: &Pod) -> Option<Self> {
        let (key, ordinal, member_uid) = member_of_helper(pod)?;
        let spec = pod.spec.as_ref()?;
        let args = spec
            .containers
            .first()
            .and_then(|container| container.args.as_ref());
        Some(Self {
            name: pod.metadata.name.clone()?,
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
            key,
            ordinal,
            member_uid,
            node: spec.node_name.clone().unwrap_or_default(),
            state: state(pod),
            created: pod.metadata.creation_timestamp.as_ref().map(|Time(at)| *at),
            data_lost: args.is_some_and(|args| args.iter().any(|arg| arg == "--data-lost")),
            terminating: pod.metadata.deletion_timestamp.is_some(),
        })
    }
}

fn state(pod: &Pod) -> HelperState {
    let Some(status) = &pod.status else {
        return HelperState::Busy(None);
    };
    let container = status.container_statuses.iter().flatten().next();
    match status.phase.as_deref() {
        Some("Succeeded") => HelperState::Done,
        Some("Failed") => failed(container, status.reason.iter().chain(&status.message)),
        _ => HelperState::Busy(container.and_then(waits)),
    }
}

fn failed<'a>(container: Option<&ContainerStatus>, status: impl Iterator<Item = &'a String>) -> HelperState {
    let ended = container.and_then(|container| container.state.as_ref()?.terminated.as_ref());
    let words = ended
        .and_then(|ended| ended.message.as_deref())
        .map(str::trim)
        .unwrap_or_default();
    // The last line of the log is the error's; what comes before it is no news to anyone.
    let last = words
        .lines()
        .last()
        .unwrap_or_default()
        .trim_start_matches("flock: ");
    let message = if last.is_empty() {
        status.map(String::as_str).collect::<Vec<_>>().join(": ")
    } else {
        last.to_owned()
    };
    HelperState::Failed {
        code: ended.map(|ended| ended.exit_code),
        message,
        at: ended
            .and_then(|ended| ended.finished_at.as_ref())
            .map(|Time(at)| *at),
    }
}

fn waits(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let parts: Vec<_> = waiting
        .reason
        .iter()
        .chain(&waiting.message)
        .map(String::as_str)
        .collect();
    Some(parts.join(": "))
}

/// A claim in a member's namespace.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// The labels that say whose it is: flock, ordinal, volume.
    pub labels: [Option<String>; 3],
    /// Whether Flock made it.
    pub made_by_flock: bool,
    /// The size that it asks for.
    pub request: Option<String>,
    /// Its StorageClass.
    pub class: Option<String>,
    /// The PersistentVolume that it has, or is bound to beforehand.
    pub volume: Option<String>,
    /// Whether it has its PersistentVolume.
    pub bound: bool,
    /// Whether its PersistentVolume is gone.
    pub lost: bool,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl ClaimFacts {
    /// The facts of a claim.
    pub fn read(claim: &PersistentVolumeClaim) -> Option<Self> {
        let meta = &claim.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let spec = claim.spec.as_ref()?;
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: [label(keys::NAME), label(keys::ORDINAL), label(keys::VOLUME)],
            made_by_flock: label(keys::MANAGED_BY).is_some_and(|by| by == keys::MANAGER),
            request: spec
                .resources
                .as_ref()
                .and_then(|resources| resources.requests.as_ref()?.get("storage"))
                .map(|quantity| quantity.0.clone()),
            class: spec.storage_class_name.clone(),
            volume: spec.volume_name.clone().filter(|name| !name.is_empty()),
            bound: phase == Some("Bound"),
            lost: phase == Some("Lost"),
            terminating: meta.deletion_timestamp.is_some(),
        })
    }

    /// Whose it is, for a volume of a member.
    pub fn used_as(&self, flock: &DnsLabel, ordinal: Ordinal, volume: &DnsLabel) -> ClaimUse {
        let [name, number, of] = &self.labels;
        let label = |key: &str| match key {
            keys::NAME => name.as_deref(),
            keys::ORDINAL => number.as_deref(),
            keys::VOLUME => of.as_deref(),
            _ => None,
        };
        claim_use(label, flock, ordinal, volume)
    }

    /// The flock that the label names.
    pub fn flock(&self) -> Option<FlockKey> {
        FlockKey::parse(&self.namespace, self.labels[0].as_deref()?).ok()
    }
}

/// A PersistentVolume that Flock made, or that is labelled for a flock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// The labels that say whose it is: flock, ordinal, volume, namespace.
    pub labels: [Option<String>; 4],
    /// Whether Flock made it.
    pub made_by_flock: bool,
    /// The directory that it is, if it is one.
    pub path: Option<String>,
    /// The node that Flock prepared its directory on.
    pub prepared_on: Option<String>,
    /// The claim that it is for: namespace, name, and the uid once it is bound.
    pub claim: Option<(String, String, Option<String>)>,
    /// Whether its claim is gone, so that it is no use to another one.
    pub released: bool,
    /// Its StorageClass.
    pub class: String,
    /// Its size.
    pub capacity: Option<String>,
    /// How it can be used.
    pub access_modes: Vec<String>,
    /// Whether its deletion has begun.
    pub terminating: bool,
}

impl VolumeFacts {
    /// The facts of a PersistentVolume.
    pub fn read(volume: &PersistentVolume) -> Option<Self> {
        let meta = &volume.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key)).cloned();
        let spec = volume.spec.as_ref()?;
        Some(Self {
            name: meta.name.clone()?,
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: [
                label(keys::NAME),
                label(keys::ORDINAL),
                label(keys::VOLUME),
                label(keys::NAMESPACE),
            ],
            made_by_flock: label(keys::MANAGED_BY).is_some_and(|by| by == keys::MANAGER),
            path: spec.local.as_ref().map(|local| local.path.clone()),
            prepared_on: meta
                .annotations
                .as_ref()
                .and_then(|a| a.get(keys::PREPARED_ON))
                .cloned(),
            claim: spec.claim_ref.as_ref().and_then(|claim| {
                Some((
                    claim.namespace.clone()?,
                    claim.name.clone()?,
                    claim.uid.clone().filter(|uid| !uid.is_empty()),
                ))
            }),
            released: volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Released"),
            class: spec.storage_class_name.clone().unwrap_or_default(),
            capacity: spec
                .capacity
                .as_ref()
                .and_then(|c| c.get("storage"))
                .map(|quantity| quantity.0.clone()),
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            terminating: meta.deletion_timestamp.is_some(),
        })
    }
}

/// A StorageClass.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassFacts {
    /// Its name.
    pub name: String,
    /// Whether its volumes can grow.
    pub expandable: bool,
    /// Whether its driver knows ReadWriteOncePod: CSI drivers do, what is built into Kubernetes does not.
    pub single_pod: bool,
    /// Whether its claims are bound only once a pod that uses them was given a node (`WaitForFirstConsumer`).
    pub binds_late: bool,
    /// Whether claims without a class get it.
    pub default: bool,
}

impl ClassFacts {
    /// The facts of a class; `is_csi` tells whether there is a CSI driver of that name.
    pub fn read(class: &StorageClass, is_csi: impl Fn(&str) -> bool) -> Option<Self> {
        let annotations = class.metadata.annotations.as_ref();
        Some(Self {
            name: class.metadata.name.clone()?,
            expandable: class.allow_volume_expansion == Some(true),
            single_pod: is_csi(&class.provisioner),
            binds_late: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            default: annotations
                .and_then(|a| a.get("storageclass.kubernetes.io/is-default-class"))
                .is_some_and(|value| value == "true"),
        })
    }
}
