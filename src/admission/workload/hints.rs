//! What works, but perhaps not as its user thinks.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::admission::decide::flock_key;
use crate::admission::pod::{RawClaim, RawHostPath, RawPod};
use crate::identity::{DnsLabel, FlockKey, OrdinalSet, Pin, Settings, keys};
use crate::view::{Flock, WorkloadFacts};

use super::{Known, Subject, faults};

/// Adds the hints for a workload that has no fault, or none that is new.
pub(super) fn of(subject: Subject<'_>, known: Known<'_>, warnings: &mut Vec<String>) {
    super::keys::of(subject, warnings);
    let Some(template) = subject.workload.template() else {
        return;
    };
    let Ok(Some(key)) = flock_key(subject.namespace, template) else {
        return;
    };
    let Ok(settings) = Settings::parse(|name| template.annotation(name)) else {
        return;
    };
    let allowed = subject.workload.ordinals(subject.kind, &settings.ordinals);
    let hints = Hints {
        subject,
        template,
        key: &key,
        settings: &settings,
        allowed: &allowed,
        known,
    };
    hints.others(warnings);
    warnings.extend(hints.service());
    warnings.extend(hints.own_label());
    warnings.extend(hints.nodes());
    warnings.extend(hints.too_few_nodes());
    warnings.extend(hints.surge());
    hints.shared_volumes(warnings);
    if subject.kind == "StatefulSet" && template.annotation(keys::ORDINALS).is_some() {
        let start = "its ordinals are its own; use spec.ordinals.start";
        warnings.push(format!(
            "annotation {} has no effect on a StatefulSet: {start}",
            keys::ORDINALS
        ));
    }
}

struct Hints<'a> {
    subject: Subject<'a>,
    template: &'a RawPod<'a>,
    key: &'a FlockKey,
    settings: &'a Settings,
    allowed: &'a OrdinalSet,
    known: Known<'a>,
}

impl Hints<'_> {
    fn service_name(&self) -> &str {
        let own = faults::own_service(self.subject.workload).filter(|_| self.subject.kind == "StatefulSet");
        own.unwrap_or_else(|| self.settings.service_of(&self.key.flock).as_str())
    }

    /// Other workloads of the flock that want the same ordinals, or another Service.
    fn others(&self, warnings: &mut Vec<String>) {
        let flock = self.known.view.flock(self.key);
        let mut others: Vec<_> = flock
            .workloads()
            .values()
            .filter(|other| {
                !other.terminating && !self.is_self(other) && flock.newest(other).uid == other.uid
            })
            .collect();
        others.sort_by_key(|other| (other.kind, &other.name));
        for other in others {
            let name = match &other.deployment {
                Some(deployment) => format!("Deployment {}", deployment.name),
                None => format!("{} {}", other.kind.name(), other.name),
            };
            let theirs = Flock::allowed(other);
            if theirs.overlaps(self.allowed) {
                warnings.push(format!(
                    "ordinals {} overlap with {theirs} of {name}: each goes to whoever comes first, and the rest \
                     wait; part them by {}",
                    self.allowed, keys::ORDINALS
                ));
            }
            let service = other
                .template
                .settings
                .as_ref()
                .ok()
                .map(|s| s.service_of(&self.key.flock).as_str());
            if let Some(service) = service.filter(|service| *service != self.service_name()) {
                warnings.push(format!(
                    "Service {} governs its members, and {service} those of {name}: names differ",
                    self.service_name()
                ));
            }
        }
    }

    fn is_self(&self, other: &WorkloadFacts) -> bool {
        let name = &*self.subject.workload.metadata.name;
        match &other.deployment {
            Some(deployment) => self.subject.kind == "Deployment" && deployment.name == name,
            None => self.subject.kind == other.kind.name() && other.name == name,
        }
    }

    fn service(&self) -> Option<String> {
        let name = self.service_name();
        let service = self.known.view.service(self.subject.namespace, name)?;
        (!service.headless && !service.terminating).then(|| {
            format!(
                "Service {name} is not headless, so members have no DNS names; give it clusterIP: None, or name \
                 another one by annotation {}",
                keys::SERVICE
            )
        })
    }

    fn own_label(&self) -> Option<String> {
        let watched = !matches!(self.subject.kind, "ReplicaSet" | "ReplicationController")
            || self
                .subject
                .workload
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(keys::NAME));
        let (kind, label) = (self.subject.kind, keys::NAME);
        let flock = &self.key.flock;
        (!watched).then(|| {
            format!(
                "the {kind} itself lacks the label {label}: {flock}, by which Flock watches it: it is looked up for \
                 each pod and not woken; add it to metadata.labels"
            )
        })
    }

    fn nodes(&self) -> Option<String> {
        let nodes = self.known.view.nodes();
        let missing = self
            .settings
            .nodes
            .iter()
            .filter(|name| !name.is_empty())
            .find(|name| !nodes.contains_key(name.as_str()))?;
        (!nodes.is_empty()).then(|| {
            format!(
                "annotation {} names {missing}, but there is no such node",
                keys::NODES
            )
        })
    }

    fn too_few_nodes(&self) -> Option<String> {
        let (members, nodes) = (self.allowed.len(), self.known.view.nodes().len());
        let short = self.settings.pin == Pin::Exclusive && nodes > 0 && members > nodes;
        short.then(|| {
            format!(
                "each of {members} members wants a node of its own, and the cluster has {nodes}: the rest will \
                 wait; set {}: Shared to let them share",
                keys::PIN
            )
        })
    }

    /// A surge needs ordinals that there are not: where the numbers promise otherwise, say so. The API server's
    /// defaults promise nothing.
    fn surge(&self) -> Option<String> {
        let strategy = self.subject.workload.spec.as_ref()?.strategy.as_ref()?;
        let numbers = strategy
            .rolling_update
            .as_ref()
            .filter(|_| self.subject.kind == "Deployment")?;
        if is(numbers.max_unavailable.as_ref(), 0) {
            return Some(
                "maxUnavailable: 0 cannot hold: an ordinal's new pod starts when its old one is gone, so a rollout \
                 makes one member at a time unavailable"
                    .into(),
            );
        }
        is(numbers.max_surge.as_ref(), 100).then(|| {
            "maxSurge: 100% brings no second set of members: the new pods wait, and take over ordinal by ordinal"
                .into()
        })
    }

    /// Volumes that all members have in common though they may not know.
    fn shared_volumes(&self, warnings: &mut Vec<String>) {
        if self.allowed.len() < 2 {
            return;
        }
        let count = self.allowed.len();
        for volume in self
            .template
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten())
        {
            let Some((field, value)) = &volume.source else {
                continue;
            };
            let durable =
                DnsLabel::parse(&volume.name).is_ok_and(|name| self.settings.volumes.contains(&name));
            if durable {
                continue;
            }
            if &**field == "persistentVolumeClaim" {
                let Ok(claim) = serde_json::from_str::<RawClaim<'_>>(value.get()) else {
                    continue;
                };
                if claim.read_only != Some(true) {
                    warnings.push(format!(
                        "all {count} members share the claim {}: unless it is ReadWriteMany, only those on its node \
                         run; for one each, use an emptyDir, {} and {}: claim",
                        &*claim.claim_name, keys::VOLUMES, keys::STORAGE
                    ));
                }
            } else if &**field == "hostPath" && self.settings.pin != Pin::Exclusive {
                let Ok(directory) = serde_json::from_str::<RawHostPath<'_>>(value.get()) else {
                    continue;
                };
                warnings.push(format!(
                    "members on one node share its directory {} (volume {}); for one each, use an emptyDir and {}",
                    &*directory.path, &*volume.name, keys::VOLUMES
                ));
            }
        }
    }
}

/// Whether a number or percentage is this many percent, or nothing at all.
fn is(value: Option<&IntOrString>, percent: u64) -> bool {
    match value {
        Some(IntOrString::String(text)) => {
            text.strip_suffix('%').and_then(|text| text.parse().ok()) == Some(percent)
        }
        Some(IntOrString::Int(number)) => percent == 0 && *number == 0,
        None => false,
    }
}
