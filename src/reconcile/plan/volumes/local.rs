//! Storage `localVolume`: a PersistentVolume of the member's directory, and the claim that it is bound to.

use crate::storage::{ClaimSpec, VolumeSpec};
use crate::view::VolumeFacts;

use super::{Found, StorageAction, Wait, Work};

impl<'a> Work<'a, '_> {
    /// The claims and PersistentVolumes of storage `localVolume`.
    pub(super) fn local_volumes(&mut self) -> bool {
        let (Some(node), Some(uid)) = (self.node(), self.namespace_uid()) else {
            return false;
        };
        let mut todo = Vec::new();
        let mut bound_all = true;
        // One that is bound waits for nothing but a directory where it is.
        let mut unprepared = self.settings.data_guard && self.pod.node.is_none();
        for volume in &self.settings.volumes {
            let Some(member) = self.observed.key.member(self.ordinal) else {
                return false;
            };
            let claim = member.claim_name(volume);
            let path = member
                .host_path(&self.observed.config.helper.root, uid, volume)
                .display()
                .to_string();
            let found = match self.claim(&claim, volume) {
                Found::Unusable => return false,
                Found::None => None,
                Found::Some(found) => Some(found),
            };
            bound_all &= found.is_some_and(|claim| claim.bound);
            let bound = found.and_then(|claim| claim.volume.clone());
            let base = member.volume_name(volume);
            let made = match bound {
                // One that somebody else provided is used as it is.
                Some(name) => match self.observed.view.storage().volume(&name) {
                    Some(Some(made)) if made.made_by_flock => Some(made),
                    _ => continue,
                },
                None => match self.own_volume(&base, uid, &path, &claim) {
                    Ok(made) => made,
                    Err(Wait) => return false,
                },
            };
            let Some(name) = made.map_or_else(|| self.free_name(&base, uid), |made| Some(made.name.clone()))
            else {
                return false;
            };
            match made {
                None => {
                    unprepared = true;
                    todo.push(StorageAction::CreateVolume(Box::new(VolumeSpec {
                        name: name.clone(),
                        ordinal: self.ordinal,
                        volume: volume.clone(),
                        claim: claim.clone(),
                        path,
                        node: node.clone(),
                        size: self.size(volume),
                    })));
                }
                Some(made) => {
                    if made.prepared_on.as_ref() != Some(&node) {
                        unprepared = true;
                        todo.push(StorageAction::MarkVolume {
                            name: made.name.clone(),
                            version: made.resource_version.clone(),
                            node: node.clone(),
                        });
                    }
                    let of = made.claim.as_ref().and_then(|(_, _, uid)| uid.as_ref());
                    if of.is_some_and(|of| found.is_none_or(|found| found.uid != *of)) {
                        todo.push(StorageAction::RebindVolume {
                            name: made.name.clone(),
                            version: made.resource_version.clone(),
                        });
                    }
                }
            }
            if found.is_none() {
                todo.push(StorageAction::CreateClaim(Box::new(ClaimSpec {
                    name: claim,
                    ordinal: self.ordinal,
                    volume: volume.clone(),
                    class: Some(String::new()),
                    volume_name: Some(name),
                    size: self.size(volume),
                    access_mode: "ReadWriteOnce".into(),
                })));
            }
        }
        if unprepared && !self.prepared(&self.settings.volumes) {
            return false;
        }
        // Two patches of one version would contradict each other: the second comes with the next look.
        let marks = todo
            .iter()
            .any(|action| matches!(action, StorageAction::MarkVolume { .. }));
        for action in todo {
            if !(marks && matches!(action, StorageAction::RebindVolume { .. })) {
                self.act(action);
            }
        }
        // The scheduler takes a claim that is not bound yet for a reason to look elsewhere.
        bound_all
    }

    /// The names that a PersistentVolume may have: the second where the first is still that of a namespace of the
    /// same name that is gone, whose data nobody may see.
    fn names(base: &str, uid: &str) -> [String; 2] {
        [base.to_owned(), format!("{base}.{uid}")]
    }

    fn own_volume(
        &mut self,
        base: &str,
        uid: &str,
        path: &str,
        claim: &str,
    ) -> Result<Option<&'a VolumeFacts>, Wait> {
        for name in Self::names(base, uid) {
            match self.observed.view.storage().volume(&name) {
                None => return Err(Wait),
                Some(Some(found)) if self.is_own(found, path, claim) => {
                    return if found.terminating {
                        Err(Wait)
                    } else {
                        Ok(Some(found))
                    };
                }
                Some(_) => {}
            }
        }
        Ok(None)
    }

    fn is_own(&self, volume: &VolumeFacts, path: &str, claim: &str) -> bool {
        let is_for = |(namespace, name, _): &(String, String, Option<String>)| {
            namespace == self.namespace() && name == claim
        };
        volume.made_by_flock
            && volume.path.as_deref() == Some(path)
            && volume.claim.as_ref().is_some_and(is_for)
    }

    fn free_name(&mut self, base: &str, uid: &str) -> Option<String> {
        let names = Self::names(base, uid);
        let free = names
            .iter()
            .find(|name| self.observed.view.storage().volume(name) == Some(None));
        if free.is_none() {
            let message = format!(
                "{} has no storage: PersistentVolumes {} exist and are not this member's; rename them",
                self.pod.name,
                names.join(" and ")
            );
            self.tell("VolumeConflict", &message);
        }
        free.cloned()
    }
}
