//! What cannot work: each would be a refusal of the workload's pods.

use thiserror::Error;

use crate::admission::checks::{self, Source};
use crate::admission::decide::flock_key;
use crate::admission::pod::{RawPod, RawSpec};
use crate::admission::refusal::Refusal;
use crate::identity::{DnsLabel, FlockKey, Member, OrdinalSet, Settings, Storage, keys};

use super::{Known, RawWorkload, Subject};

/// A reason to deny a workload.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Fault {
    /// What each of its pods would be refused for.
    #[error(transparent)]
    Pod(#[from] Refusal),
    /// More replicas than ordinals.
    #[error(
        "{replicas} replicas are wanted, but annotation {} ({set}) has {} ordinals; widen it, or scale down",
        keys::ORDINALS, set.len()
    )]
    TooManyReplicas {
        /// How many are wanted.
        replicas: u32,
        /// The set.
        set: OrdinalSet,
    },
    /// The namespace's Pod Security level forbids host directories.
    #[error(
        "namespace {namespace} enforces the Pod Security level {level}, which forbids the host directories of \
         annotation {} ({volumes}); set {}: localVolume, which needs none in the pod",
        keys::VOLUMES,
        keys::STORAGE
    )]
    HostPathForbidden {
        /// The namespace.
        namespace: String,
        /// `baseline` or `restricted`.
        level: String,
        /// The volumes that would become directories.
        volumes: String,
    },
}

impl Fault {
    /// Status code and reason for the client of the API server.
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Self::Pod(refusal) => refusal.status(),
            Self::TooManyReplicas { .. } => (422, "Invalid"),
            Self::HostPathForbidden { .. } => (403, "Forbidden"),
        }
    }

    /// Whether it is the same mistake, though numbers that follow from the replicas may differ.
    pub(super) fn is_the_same_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::TooManyReplicas { set: a, .. }, Self::TooManyReplicas { set: b, .. }) => a == b,
            (Self::HostPathForbidden { .. }, Self::HostPathForbidden { .. }) => true,
            (Self::Pod(a), Self::Pod(b)) => match (a, b) {
                (Refusal::NameTooLong(a, _), Refusal::NameTooLong(b, _)) => a == b,
                (
                    Refusal::Host { field, value, .. },
                    Refusal::Host {
                        field: field_b,
                        value: value_b,
                        ..
                    },
                ) => (field, value) == (field_b, value_b),
                (
                    Refusal::ForeignLabel { key, value, .. },
                    Refusal::ForeignLabel {
                        key: key_b,
                        value: value_b,
                        ..
                    },
                ) => (key, value) == (key_b, value_b),
                _ => a == b,
            },
            _ => false,
        }
    }
}

/// Everything that is wrong with a workload.
pub(super) fn of(subject: Subject<'_>, known: Known<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let Some(template) = subject.workload.template() else {
        return faults;
    };
    let key = match flock_key(subject.namespace, template) {
        Ok(Some(key)) => key,
        Ok(None) => return faults,
        Err(refusal) => return vec![refusal.into()],
    };
    if let Err(refusal) = checks::kind(subject.kind, &subject.workload.metadata.name, &key) {
        // Whatever else is wrong, this workload cannot be helped.
        return vec![refusal.into()];
    }
    let empty = RawSpec::default();
    let spec = template.spec.as_ref().unwrap_or(&empty);
    let of_spec = [checks::node_name(spec), checks::host_network(spec)];
    faults.extend(of_spec.into_iter().filter_map(Result::err).map(Fault::from));
    match Settings::parse(|name| template.annotation(name)) {
        Err(error) => faults.push(Refusal::from(error).into()),
        Ok(settings) => Judged {
            subject,
            template,
            spec,
            key: &key,
            settings: &settings,
            known,
        }
        .faults(&mut faults),
    }
    faults
}

/// A workload whose annotations can be read.
struct Judged<'a> {
    subject: Subject<'a>,
    template: &'a RawPod<'a>,
    spec: &'a RawSpec<'a>,
    key: &'a FlockKey,
    settings: &'a Settings,
    known: Known<'a>,
}

impl Judged<'_> {
    fn faults(&self, faults: &mut Vec<Fault>) {
        let Subject { kind, workload, .. } = self.subject;
        let allowed = workload.ordinals(kind, &self.settings.ordinals);
        if kind != "StatefulSet" && allowed.len() < workload.replicas() as usize {
            let set = self.settings.ordinals.clone();
            faults.push(Fault::TooManyReplicas {
                replicas: workload.replicas(),
                set,
            });
        }
        self.host(&allowed, faults);
        let root = &self.known.policy.host_path_root;
        let windows = checks::windows(self.spec, self.settings, root);
        faults.extend(windows.err().map(Fault::from));
        self.volumes(&allowed, faults);
        faults.extend(self.pod_security());
    }

    /// What its first and its last member would be called. With no replicas, what the first would be.
    fn host(&self, allowed: &OrdinalSet, faults: &mut Vec<Fault>) {
        let Subject { kind, workload, .. } = self.subject;
        let stateful_set = kind == "StatefulSet";
        let own = own_service(workload).filter(|_| stateful_set);
        let service = match own.map_or_else(
            || checks::service(self.settings, self.key).map(DnsLabel::as_str),
            Ok,
        ) {
            Ok(service) => service,
            Err(refusal) => {
                faults.push(refusal.into());
                return;
            }
        };
        let mut add = |fault: Refusal| {
            // The StatefulSet controller sets the hostname, whatever the template says.
            let overwritten = stateful_set
                && matches!(
                    fault,
                    Refusal::Host {
                        field: "hostname",
                        ..
                    }
                );
            let fault = Fault::from(fault);
            if !overwritten && !faults.iter().any(|earlier| earlier.is_the_same_as(&fault)) {
                faults.push(fault);
            }
        };
        let first = allowed.lowest().or(self.settings.ordinals.lowest());
        for ordinal in first.into_iter().chain(allowed.iter().next_back()) {
            match self.key.member(ordinal) {
                Some(member) => {
                    checks::host(self.spec, &member.pod_name(), service, stateful_set).for_each(&mut add);
                    checks::ordinal_labels(self.template, ordinal).for_each(&mut add);
                }
                None => add(Refusal::NameTooLong(self.key.flock.clone(), ordinal)),
            }
        }
    }

    fn volumes(&self, allowed: &OrdinalSet, faults: &mut Vec<Fault>) {
        let first = allowed.lowest().or(self.settings.ordinals.lowest());
        let Some(member) = first.and_then(|ordinal| self.key.member(ordinal)) else {
            return;
        };
        for volume in &self.settings.volumes {
            faults.extend(self.volume(member, volume).err().map(Fault::from));
        }
    }

    fn volume(&self, member: Member<'_>, volume: &DnsLabel) -> Result<(), Refusal> {
        let Known { view, policy } = self.known;
        let storage = self.settings.storage;
        if claim_template(self.subject.workload, volume) {
            // The StatefulSet's claim of this member is named as Flock would name it.
            if storage != Storage::HostPath {
                return Ok(());
            }
            let is = "a claim by volumeClaimTemplates".into();
            return Err(Refusal::OtherVolume {
                volume: volume.clone(),
                is,
            });
        }
        let uid = view
            .namespace(self.subject.namespace)
            .map_or("", |namespace| &namespace.uid);
        Source::of(member, volume, storage, &policy.host_path_root, uid)
            .change(self.spec, volume)
            .map(drop)
    }

    fn pod_security(&self) -> Option<Fault> {
        if self.settings.storage != Storage::HostPath || self.settings.volumes.is_empty() {
            return None;
        }
        let enforced = self
            .known
            .view
            .namespace(self.subject.namespace)?
            .enforce
            .as_deref()?;
        let volumes: Vec<_> = self.settings.volumes.iter().map(DnsLabel::as_str).collect();
        matches!(enforced, "baseline" | "restricted").then(|| Fault::HostPathForbidden {
            namespace: self.subject.namespace.to_owned(),
            level: enforced.to_owned(),
            volumes: volumes.join(", "),
        })
    }
}

/// The Service that a StatefulSet names itself.
pub(super) fn own_service<'a>(workload: &'a RawWorkload<'_>) -> Option<&'a str> {
    let name = &*workload.spec.as_ref()?.service_name;
    (!name.is_empty()).then_some(name)
}

fn claim_template(workload: &RawWorkload<'_>, volume: &DnsLabel) -> bool {
    let claims = workload
        .spec
        .iter()
        .flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    claims
        .into_iter()
        .any(|claim| *claim.metadata.name == *volume.as_str())
}
