//! Storage `claim`: claims of a StorageClass or of PersistentVolumes that an administrator provided.

use jiff::SignedDuration;

use crate::identity::{DnsLabel, Storage};
use crate::storage::{ClaimSpec, ClaimUse};
use crate::view::{ClassFacts, VolumeFacts};

use super::{Found, RETRY, StorageAction, Wait, Work};

/// How soon a claim that is being bound is looked at again.
const BINDING: SignedDuration = SignedDuration::from_secs(5);

impl<'a> Work<'a, '_> {
    /// The claims of storage `claim`.
    pub(super) fn claims(&mut self) -> bool {
        let mut todo = Vec::new();
        let mut schedulable = true;
        for volume in &self.settings.volumes {
            let Some(member) = self.observed.key.member(self.ordinal) else {
                return false;
            };
            let name = member.claim_name(volume);
            match self.claim(&name, volume) {
                Found::Unusable => return false,
                Found::Some(claim) => {
                    schedulable &=
                        claim.bound || claim.volume.is_none() && self.binds_late(claim.class.as_ref());
                }
                Found::None => {
                    let provided = match self.provided(&member.volume_name(volume), volume, &name) {
                        Ok(provided) => provided,
                        Err(Wait) => return false,
                    };
                    let spec = match provided {
                        Some(provided) => self.claim_of(name, volume, provided),
                        None => match self.claim_of_class(name, volume) {
                            Some(spec) => spec,
                            None => return false,
                        },
                    };
                    schedulable &= spec.volume_name.is_none() && self.binds_late(spec.class.as_ref());
                    todo.push(spec);
                }
            }
        }
        for spec in todo {
            self.act(StorageAction::CreateClaim(Box::new(spec)));
        }
        if !schedulable {
            // For claims that no watch brings.
            self.plan.look_again(self.observed.now + BINDING);
        }
        schedulable
    }

    /// Whether a claim of this class, or of the default one, waits for its pod to be given a node first.
    fn binds_late(&self, class: Option<&String>) -> bool {
        let classes = self.observed.view.storage().classes().unwrap_or_default();
        let of = |known: &&ClassFacts| class.map_or(known.default, |class| known.name == *class);
        classes.iter().find(of).is_some_and(|class| class.binds_late)
    }

    /// A PersistentVolume that an administrator provided for this volume, by its name or its labels.
    fn provided(
        &mut self,
        base: &str,
        volume: &DnsLabel,
        claim: &str,
    ) -> Result<Option<&'a VolumeFacts>, Wait> {
        let storage = self.observed.view.storage();
        let by_name = storage.volume(base).ok_or(Wait)?;
        let labelled = storage
            .volumes_for(self.observed.key, self.ordinal)
            .filter(|found| found.labels[2].as_deref().is_none_or(|of| of == volume.as_str()));
        let found = by_name.into_iter().chain(labelled).find(|found| {
            let free = match &found.claim {
                None => !found.released,
                Some((namespace, name, _)) => namespace == self.namespace() && name == claim,
            };
            free && !found.terminating && !found.made_by_flock && !self.adopted.contains(&found.name)
        });
        if let Some(found) = found {
            self.adopted.insert(found.name.clone());
        }
        Ok(found)
    }

    fn claim_of(&self, name: String, volume: &DnsLabel, provided: &VolumeFacts) -> ClaimSpec {
        let modes = &provided.access_modes;
        let preferred = ["ReadWriteOncePod", "ReadWriteOnce"];
        let mode = preferred
            .into_iter()
            .find(|mode| modes.iter().any(|has| has == mode));
        ClaimSpec {
            name,
            ordinal: self.ordinal,
            volume: volume.clone(),
            class: Some(provided.class.clone()),
            volume_name: Some(provided.name.clone()),
            // All of it: asking for more would bind nothing.
            size: provided.capacity.clone().unwrap_or_else(|| self.size(volume)),
            access_mode: mode
                .map(str::to_owned)
                .or_else(|| modes.first().cloned())
                .unwrap_or_default(),
        }
    }

    fn claim_of_class(&mut self, name: String, volume: &DnsLabel) -> Option<ClaimSpec> {
        let classes = self.observed.view.storage().classes()?;
        let wanted = self.settings.storage_class.as_ref();
        let class = match wanted {
            Some(wanted) => classes.iter().find(|class| class.name == *wanted),
            None => classes.iter().find(|class| class.default),
        };
        if class.is_none() {
            let message = match wanted {
                Some(wanted) => format!(
                    "{} has no storage: there is no StorageClass {wanted}; make it, or name another one by the \
                     annotation flock.dev/storage-class",
                    self.pod.name
                ),
                None => format!(
                    "{} has no storage: the cluster has no default StorageClass, and no PersistentVolume is labelled \
                     flock.dev/name={} and flock.dev/ordinal={}; name a class by the annotation flock.dev/storage-class",
                    self.pod.name, self.observed.key.flock, self.ordinal
                ),
            };
            self.tell("NoStorage", &message);
            // A class of that name may come, and nobody tells us.
            self.plan.look_again(self.observed.now + RETRY);
            return None;
        }
        let single = class.is_some_and(|class| class.single_pod);
        Some(ClaimSpec {
            name,
            ordinal: self.ordinal,
            volume: volume.clone(),
            class: wanted.cloned(),
            volume_name: None,
            size: self.size(volume),
            access_mode: if single {
                "ReadWriteOncePod"
            } else {
                "ReadWriteOnce"
            }
            .into(),
        })
    }

    /// A claim by the member's name for it, if it may be used.
    pub(super) fn claim(&mut self, name: &str, volume: &DnsLabel) -> Found<'a> {
        let claim = match self.observed.view.storage().claim(self.namespace(), name) {
            None => return Found::Unusable,
            Some(None) => return Found::None,
            Some(Some(claim)) => claim,
        };
        let pod = &self.pod.name;
        let problem = match claim.used_as(&self.observed.key.flock, self.ordinal, volume) {
            _ if claim.terminating => {
                Some(format!("claim {name} is being deleted; it is made anew once it is gone, and its data is not"))
            }
            _ if claim.lost => Some(format!(
                "claim {name} has lost its PersistentVolume; restore that, or delete the claim to start without its data"
            )),
            ClaimUse::Foreign(other) => Some(format!(
                "claim {name} is that of {other}, as its labels say, though its name would fit {pod} as well; rename \
                 the volume or the flock"
            )),
            ClaimUse::TakenOver => self.other_user(name, volume).map(|other| {
                format!(
                    "claim {name} has no labels that say whose it is, and {other} would use it too; label it with \
                     flock.dev/name, flock.dev/ordinal and flock.dev/volume for the one whose data it holds"
                )
            }),
            ClaimUse::Own => None,
        };
        let Some(problem) = problem else {
            return Found::Some(claim);
        };
        let message = format!("{pod} has no storage: {problem}");
        self.tell("ClaimConflict", &message);
        self.plan.look_again(self.observed.now + RETRY);
        Found::Unusable
    }

    /// Another member that would take over the same claim.
    fn other_user(&self, claim: &str, own: &DnsLabel) -> Option<String> {
        let namespace = &self.observed.key.namespace;
        self.observed.view.neighbours(namespace).find_map(|(key, flock)| {
            flock.members().into_iter().find_map(|(ordinal, pod)| {
                let settings = pod.template.settings.as_ref().ok()?;
                let member = key.member(ordinal)?;
                let other = |volume: &&DnsLabel| {
                    member.claim_name(volume) == claim && !(key == self.observed.key && *volume == own)
                };
                let volume = settings.volumes.iter().find(other)?;
                (settings.storage != Storage::HostPath).then(|| format!("volume {volume} of {}", pod.name))
            })
        })
    }
}
