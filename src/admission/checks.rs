//! What a pod must and must not have to be a member, one small check each. The decision about a pod stops at the
//! first that fails; the judgement of a workload, whose template is a pod to be, reports them all.

use std::path::Path;

use serde_json::{Value, json};

use crate::identity::{DnsLabel, FlockKey, Member, Ordinal, Quoted, Settings, Storage, keys};

use super::json::Map;
use super::pod::{RawClaim, RawEmptyDir, RawHostPath, RawPod, RawSpec, RawVolume};
use super::refusal::Refusal;

/// Some kinds cannot have members, and a StatefulSet only those that are named as it names its pods.
pub(super) fn kind(kind: &str, name: &str, key: &FlockKey) -> Result<(), Refusal> {
    let wrong = |why| {
        Err(Refusal::WrongKind {
            kind: kind.to_owned(),
            flock: key.flock.clone(),
            why,
        })
    };
    match kind {
        "DaemonSet" => wrong("it names a node for each pod by itself"),
        "Job" | "CronJob" => wrong("they end, and an ordinal is held by who goes on running"),
        "StatefulSet" if name != key.flock.as_str() => Err(Refusal::OtherStatefulSet {
            set: name.to_owned(),
            flock: key.flock.clone(),
        }),
        _ => Ok(()),
    }
}

/// The scheduler must be the one to choose the node.
pub(super) fn node_name(spec: &RawSpec<'_>) -> Result<(), Refusal> {
    match &*spec.node_name {
        "" => Ok(()),
        node => Err(Refusal::NodeName(node.to_owned())),
    }
}

/// The member must have a network of its own.
pub(super) fn host_network(spec: &RawSpec<'_>) -> Result<(), Refusal> {
    if spec.host_network == Some(true) {
        Err(Refusal::HostNetwork)
    } else {
        Ok(())
    }
}

/// The governing Service, whose name must be one.
pub(super) fn service<'a>(settings: &'a Settings, key: &'a FlockKey) -> Result<&'a DnsLabel, Refusal> {
    let service = settings.service_of(&key.flock);
    if service.is_service_name() {
        Ok(service)
    } else {
        Err(Refusal::NoServiceName(key.flock.clone()))
    }
}

/// The fields that make up the host's name may be set to what the member's are, and to nothing else. A
/// StatefulSet's subdomain is its own.
pub(super) fn host<'a>(
    spec: &'a RawSpec<'a>,
    name: &'a str,
    service: &'a str,
    stateful_set: bool,
) -> impl Iterator<Item = Refusal> + 'a {
    let fields = [
        ("hostname", &*spec.hostname, name),
        ("subdomain", &*spec.subdomain, service),
        ("hostnameOverride", &*spec.hostname_override, ""),
    ];
    fields.into_iter().filter_map(move |(field, value, wanted)| {
        let own = stateful_set && field == "subdomain";
        if value.is_empty() || value == wanted || own {
            return None;
        }
        let wanted = if wanted.is_empty() {
            format!("its hostname, {name}")
        } else {
            wanted.to_owned()
        };
        Some(Refusal::Host {
            field,
            value: Quoted::new(value),
            wanted,
        })
    })
}

/// The labels that carry the ordinal.
pub(super) fn ordinal_labels(pod: &RawPod<'_>, ordinal: Ordinal) -> impl Iterator<Item = Refusal> {
    [keys::ORDINAL, keys::POD_INDEX]
        .into_iter()
        .filter_map(move |key| {
            let value = pod.label(key).filter(|value| !is_number(value, ordinal))?;
            Some(Refusal::ForeignLabel {
                key,
                value: Quoted::new(value),
                ordinal,
            })
        })
}

fn is_number(text: &str, ordinal: Ordinal) -> bool {
    text.parse() == Ok(ordinal)
}

/// Directories of a Linux host are nothing for Windows.
pub(super) fn windows(spec: &RawSpec<'_>, settings: &Settings, root: &Path) -> Result<(), Refusal> {
    if settings.volumes.is_empty() || settings.storage == Storage::Claim {
        return Ok(());
    }
    let by_os = spec.os.as_ref().is_some_and(|os| &*os.name == "windows");
    let selected = |map: &Map<'_>| map.get("kubernetes.io/os").is_some_and(|os| &**os == "windows");
    if by_os || spec.node_selector.as_ref().is_some_and(selected) {
        return Err(Refusal::Windows(root.display().to_string()));
    }
    Ok(())
}

/// What a member's volume becomes.
pub(super) enum Source {
    /// A directory on its node, and its type.
    HostPath(String, &'static str),
    /// A claim.
    Claim(String),
}

impl Source {
    /// The directory or claim of one volume of a member.
    pub(super) fn of(
        member: Member<'_>,
        volume: &DnsLabel,
        storage: Storage,
        root: &Path,
        namespace_uid: &str,
    ) -> Self {
        match storage {
            Storage::HostPath => Self::HostPath(
                member
                    .host_path(root, namespace_uid, volume)
                    .display()
                    .to_string(),
                "DirectoryOrCreate",
            ),
            Storage::LocalVolume | Storage::Claim => Self::Claim(member.claim_name(volume)),
        }
    }

    /// For a directory that a helper makes: the kubelet must not, since it would make it for root.
    pub(super) fn prepared(self) -> Self {
        match self {
            Self::HostPath(path, _) => Self::HostPath(path, "Directory"),
            Self::Claim(_) => self,
        }
    }

    /// What must change in `spec.volumes` for `volume` to have this source: index and new entry, or nothing
    /// where it has it already.
    pub(super) fn change(
        &self,
        spec: &RawSpec<'_>,
        volume: &DnsLabel,
    ) -> Result<Option<(usize, Value)>, Refusal> {
        let found = spec
            .volumes
            .iter()
            .flatten()
            .enumerate()
            .find(|(_, raw)| *raw.name == *volume.as_str());
        let (index, raw) = found.ok_or_else(|| Refusal::NoVolume(volume.clone()))?;
        match self.compare(raw) {
            Comparison::Same => Ok(None),
            Comparison::Replaceable => Ok(Some((index, self.entry(volume)))),
            Comparison::Other(is) => Err(Refusal::OtherVolume {
                volume: volume.clone(),
                is,
            }),
        }
    }

    fn entry(&self, volume: &DnsLabel) -> Value {
        match self {
            Self::HostPath(path, kind) => {
                json!({ "name": volume.as_str(), "hostPath": { "path": path, "type": kind } })
            }
            Self::Claim(claim) => {
                json!({ "name": volume.as_str(), "persistentVolumeClaim": { "claimName": claim } })
            }
        }
    }

    fn compare(&self, raw: &RawVolume<'_>) -> Comparison {
        let Some((field, value)) = &raw.source else {
            return Comparison::Replaceable;
        };
        match (self, &**field) {
            (_, "emptyDir") => match serde_json::from_str::<RawEmptyDir<'_>>(value.get()) {
                Ok(dir) if dir.medium.is_empty() => Comparison::Replaceable,
                Ok(dir) => Comparison::Other(format!("an emptyDir of medium {}", &*dir.medium)),
                Err(_) => Comparison::Other("an emptyDir that cannot be read".into()),
            },
            (Self::HostPath(path, _), "hostPath")
                if serde_json::from_str::<RawHostPath<'_>>(value.get())
                    .is_ok_and(|raw| *raw.path == **path) =>
            {
                Comparison::Same
            }
            (Self::Claim(claim), "persistentVolumeClaim")
                if serde_json::from_str::<RawClaim<'_>>(value.get())
                    .is_ok_and(|raw| *raw.claim_name == **claim) =>
            {
                Comparison::Same
            }
            (_, other) => Comparison::Other(format!("of kind {other}")),
        }
    }
}

enum Comparison {
    Same,
    Replaceable,
    Other(String),
}
