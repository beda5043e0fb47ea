//! Volumes: directories prepared by a helper on the member's node, PersistentVolumes, claims. A member is ready
//! for the scheduler once its storage is its own (DESIGN 7).
//!
//! What is under way is all in the API: the helper is named after the member's pod, a PersistentVolume exists only
//! once its directory was prepared, a claim only after its volume. So a new leader goes on where the old one ended.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use crate::identity::{DnsLabel, Ordinal, Settings, Storage};
use crate::storage::{ClaimSpec, ClaimUse, Exit, Helper, VolumeSpec, bytes, prepares_each_start};
use crate::view::{ClaimFacts, ClassFacts, HelperFacts, HelperState, PodFacts, VolumeFacts};

use super::{Action, Observed, Plan, Subject};

/// How soon a preparation that failed is tried again.
const RETRY: SignedDuration = SignedDuration::from_secs(20);
/// How long a preparation may take until its user hears of it.
const SLOW: SignedDuration = SignedDuration::from_secs(30);
/// How soon a claim that is being bound is looked at again.
const BINDING: SignedDuration = SignedDuration::from_secs(5);
/// The size of a claim whose emptyDir has no `sizeLimit`.
const DEFAULT_SIZE: &str = "1Gi";

/// Something to do for storage.
#[derive(Clone, Debug, PartialEq)]
pub enum StorageAction {
    /// Start the helper of a member's pod.
    CreateHelper(Box<Helper>),
    /// Remove a helper.
    DeleteHelper {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Make a PersistentVolume.
    CreateVolume(Box<VolumeSpec>),
    /// Note on which node the directory of a PersistentVolume was prepared, after its member has moved.
    MarkVolume {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
        /// The node.
        node: String,
    },
    /// Give a PersistentVolume that Flock made to the claim that took the place of a deleted one.
    RebindVolume {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
    },
    /// Make a claim.
    CreateClaim(Box<ClaimSpec>),
    /// Ask for more room.
    GrowClaim {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
        /// The size.
        size: String,
    },
}

impl StorageAction {
    /// A closed word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateHelper(_) => "create_helper",
            Self::DeleteHelper { .. } => "delete_helper",
            Self::CreateVolume(_) => "create_volume",
            Self::MarkVolume { .. } => "mark_volume",
            Self::RebindVolume { .. } => "rebind_volume",
            Self::CreateClaim(_) => "create_claim",
            Self::GrowClaim { .. } => "grow_claim",
        }
    }
}

/// Removes helpers that nobody waits for.
pub(super) fn dismiss(observed: &Observed<'_>, plan: &mut Plan) {
    for helper in observed
        .view
        .storage()
        .helpers_of(observed.key)
        .filter(|helper| !helper.terminating)
    {
        let member = observed
            .flock()
            .holder(helper.ordinal)
            .filter(|pod| pod.uid == helper.member_uid);
        // One that is bound where it was prepared for has all that it needs.
        let waits = |pod: &PodFacts| {
            pod.is_live() && (pod.node.as_ref() != Some(&helper.node) || helper.state != HelperState::Done)
        };
        if !member.is_some_and(waits) {
            delete(helper, plan);
        }
    }
}

/// Plans the storage of the members in `placed`; returns those of them whose storage is ready.
pub(super) fn plan(
    observed: &Observed<'_>,
    placed: &BTreeSet<Ordinal>,
    plan: &mut Plan,
) -> BTreeSet<Ordinal> {
    let mut ready = BTreeSet::new();
    let mut adopted = BTreeSet::new();
    for ordinal in placed {
        let Some(pod) = observed.flock().holder(*ordinal).filter(|pod| pod.is_live()) else {
            continue;
        };
        let Ok(settings) = &pod.template.settings else {
            ready.insert(*ordinal);
            continue;
        };
        let helper = observed.view.storage().helper(&pod.uid);
        let settled = match (&pod.node, helper) {
            (None, _) => false,
            // It waits for its mount where it was bound before its storage had followed it.
            (Some(_), _) if pod.ready_since.is_none() && settings.storage == Storage::LocalVolume => false,
            (Some(node), Some(helper)) => helper.node == *node,
            (Some(_), None) => true,
        };
        if settled || settings.volumes.is_empty() {
            ready.insert(*ordinal);
            continue;
        }
        let mut work = Work {
            observed,
            ordinal: *ordinal,
            pod,
            settings,
            plan,
            adopted: &mut adopted,
        };
        let done = match settings.storage {
            Storage::HostPath => {
                !prepares_each_start(settings, &pod.template.needs) || work.prepared(&settings.volumes)
            }
            Storage::LocalVolume => work.local_volumes(),
            Storage::Claim => work.claims(),
        };
        if done {
            ready.insert(*ordinal);
        }
    }
    grow(observed, plan);
    ready
}

struct Work<'a, 'p> {
    observed: &'a Observed<'a>,
    ordinal: Ordinal,
    pod: &'a PodFacts,
    settings: &'a Settings,
    plan: &'p mut Plan,
    adopted: &'p mut BTreeSet<String>,
}

impl<'a> Work<'a, '_> {
    fn act(&mut self, action: StorageAction) {
        self.plan.actions.push(Action::Storage(action));
    }

    /// Tells it where the user looks: on the pod, and on its owner, which outlives it.
    fn tell(&mut self, reason: &'static str, message: &str) {
        self.plan.warn(Subject::pod(self.pod), reason, message);
        if let Some(owner) = self.observed.owner(self.pod) {
            self.plan.warn(Subject::workload(owner), reason, message);
        }
    }

    fn namespace(&self) -> &'a str {
        self.observed.key.namespace.as_str()
    }

    fn namespace_uid(&self) -> Option<&'a str> {
        Some(&self.observed.view.namespace(self.namespace())?.uid)
    }

    /// The member's node.
    fn node(&self) -> Option<String> {
        if let Some(node) = &self.pod.node {
            return Some(node.clone());
        }
        let recorded = self
            .plan
            .memory
            .record
            .as_ref()
            .and_then(|record| record.get(self.ordinal));
        let labelled = self.observed.view.places(self.observed.key).get(&self.ordinal);
        let label = labelled.and_then(|nodes| nodes.first()).map(ToString::to_string);
        recorded.map(|place| place.node.to_string()).or(label)
    }

    /// Whether the member is known to have run where its place is now, so that there must be data: the place was
    /// chosen for another pod, and that one was not lost before it had a node. A place that stands on its label
    /// alone tells nothing: an administrator's, or that of a namespace of the same name that is gone.
    fn ran(&self) -> bool {
        let recorded = self
            .plan
            .memory
            .record
            .as_ref()
            .and_then(|record| record.get(self.ordinal));
        let chosen_for = recorded.and_then(|place| place.chosen_for.as_ref());
        chosen_for
            .is_some_and(|uid| *uid != self.pod.uid && !self.observed.flock().went_unbound(self.ordinal, uid))
    }

    /// Whether the member's directories are prepared on its node; sees to it that they will be.
    fn prepared(&mut self, volumes: &[DnsLabel]) -> bool {
        let (Some(node), Some(namespace_uid)) = (self.node(), self.namespace_uid()) else {
            return false;
        };
        let now = self.observed.now;
        let Some(helper) = self.observed.view.storage().helper(&self.pod.uid) else {
            let helper = Helper {
                member_uid: self.pod.uid.clone(),
                namespace_uid: namespace_uid.to_owned(),
                ordinal: self.ordinal,
                node,
                volumes: volumes.to_vec(),
                owner: self.pod.template.needs.owner(self.settings),
                ran: self.ran(),
                data_lost: self.pod.data_lost,
            };
            self.act(StorageAction::CreateHelper(Box::new(helper)));
            return false;
        };
        if helper.terminating {
            return false;
        }
        // Prepared for where it was before, or without knowing that the data is lost.
        let outdated =
            matches!(helper.state, HelperState::Failed { .. }) && self.pod.data_lost && !helper.data_lost;
        if helper.node != node || outdated {
            delete(helper, self.plan);
            return false;
        }
        match &helper.state {
            HelperState::Done => true,
            HelperState::Busy(waits) => {
                let slow = helper.created.map_or(now, |created| created + SLOW);
                if now < slow {
                    self.plan.look_again(slow);
                    return false;
                }
                let why = waits
                    .as_ref()
                    .map(|waits| format!(" ({waits})"))
                    .unwrap_or_default();
                let message = format!(
                    "The directories of {} are not prepared yet: helper pod {} on node {node} has not ended{why}; \
                     see it in Flock's namespace",
                    self.pod.name, helper.name
                );
                self.tell("PreparationSlow", &message);
                false
            }
            HelperState::Failed { code, message, at } => {
                let due = at.or(helper.created).map_or(now, |at| at + RETRY);
                if now >= due {
                    delete(helper, self.plan);
                } else {
                    self.plan.look_again(due);
                }
                self.failed(&node, code.and_then(Exit::from_code), message);
                false
            }
        }
    }

    fn failed(&mut self, node: &str, exit: Option<Exit>, message: &str) {
        let (pod, namespace) = (&self.pod.name, self.namespace());
        let (reason, way_out) = match exit {
            Some(Exit::Blank) => (
                "DataMissing",
                format!(
                    ". To give that data up and start without it: kubectl annotate pod {pod} -n {namespace} {}={}",
                    crate::identity::keys::DATA_LOST,
                    self.pod.uid
                ),
            ),
            Some(Exit::Foreign) => ("ForeignData", String::new()),
            Some(Exit::Unsafe) => ("UnsafePath", String::new()),
            Some(Exit::Failed) | None => ("PreparationFailed", "; it is tried again".to_owned()),
        };
        let told = format!("{pod} is held on node {node}: {message}{way_out}");
        self.tell(reason, &told);
    }

    /// The claims and PersistentVolumes of storage `localVolume`.
    fn local_volumes(&mut self) -> bool {
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

    /// The claims of storage `claim`.
    fn claims(&mut self) -> bool {
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
    fn claim(&mut self, name: &str, volume: &DnsLabel) -> Found<'a> {
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

    fn size(&self, volume: &DnsLabel) -> String {
        size(self.observed, self.pod, volume).unwrap_or_else(|| DEFAULT_SIZE.into())
    }
}

struct Wait;

enum Found<'a> {
    /// Not known yet, or another's.
    Unusable,
    None,
    Some(&'a ClaimFacts),
}

fn delete(helper: &HelperFacts, plan: &mut Plan) {
    let action = StorageAction::DeleteHelper {
        name: helper.name.clone(),
        uid: helper.uid.clone(),
    };
    plan.actions.push(Action::Storage(action));
}

/// The size that the emptyDir's `sizeLimit` says: of the newest revision too, so that it grows ahead of a rollout.
fn size(observed: &Observed<'_>, pod: &PodFacts, volume: &DnsLabel) -> Option<String> {
    let owner = observed.owner(pod);
    let newest = owner.map(|owner| observed.flock().newest(owner));
    let templates = owner
        .into_iter()
        .chain(newest)
        .map(|workload| &workload.template)
        .chain([&pod.template]);
    templates
        .filter_map(|template| template.needs.sizes.get(volume.as_str()))
        .max_by_key(|size| bytes(size))
        .cloned()
}

/// Claims grow with `sizeLimit` and never shrink.
fn grow(observed: &Observed<'_>, plan: &mut Plan) {
    for (ordinal, pod) in observed.flock().members() {
        let Ok(settings) = &pod.template.settings else {
            continue;
        };
        if settings.storage != Storage::Claim {
            continue;
        }
        for volume in &settings.volumes {
            let Some(claim) = claim_to_grow(observed, ordinal, volume) else {
                continue;
            };
            let Some(wanted) = size(observed, pod, volume) else {
                continue;
            };
            let now = claim.request.as_deref().and_then(bytes);
            if now.is_none_or(|now| bytes(&wanted).is_none_or(|wanted| wanted <= now)) {
                continue;
            }
            let Some(classes) = observed.view.storage().classes() else {
                continue;
            };
            let class = claim
                .class
                .as_ref()
                .and_then(|class| classes.iter().find(|known| known.name == *class));
            if class.is_some_and(|class| class.expandable) {
                plan.actions.push(Action::Storage(StorageAction::GrowClaim {
                    name: claim.name.clone(),
                    version: claim.resource_version.clone(),
                    size: wanted,
                }));
            } else {
                let message = format!(
                    "Claim {} stays at {}: its StorageClass {} does not let volumes grow (allowVolumeExpansion), so \
                     {wanted} cannot be had",
                    claim.name,
                    claim.request.as_deref().unwrap_or("its size"),
                    claim.class.as_deref().unwrap_or("(none)"),
                );
                plan.warn(Subject::owner_or_pod(observed, pod), "CannotGrow", message);
            }
        }
    }
}

/// A claim that Flock made for this volume. One that was taken over is its user's to change.
fn claim_to_grow<'a>(observed: &Observed<'a>, ordinal: Ordinal, volume: &DnsLabel) -> Option<&'a ClaimFacts> {
    let key = observed.key;
    let name = key.member(ordinal)?.claim_name(volume);
    let claim = observed.view.storage().claim(key.namespace.as_str(), &name)??;
    let own = claim.used_as(&key.flock, ordinal, volume) == ClaimUse::Own;
    (own && claim.made_by_flock && !claim.terminating).then_some(claim)
}

#[cfg(test)]
mod tests;
