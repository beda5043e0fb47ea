//! What is known of members' storage: claims, PersistentVolumes, StorageClasses, and the helpers that prepare
//! directories.

mod facts;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use facts::{ClaimFacts, ClassFacts, HelperFacts, HelperState, VolumeFacts};

use crate::identity::{FlockKey, Ordinal};

/// All of it, by name.
#[derive(Debug, Default)]
pub struct StorageView {
    helpers: BTreeMap<String, HelperFacts>,
    /// `None`: a live look found none of that name.
    claims: HashMap<(String, String), Option<ClaimFacts>>,
    volumes: BTreeMap<String, Option<VolumeFacts>>,
    classes: Option<Vec<ClassFacts>>,
}

impl StorageView {
    /// The helper of a member's pod.
    pub fn helper(&self, member_uid: &str) -> Option<&HelperFacts> {
        self.helpers.get(member_uid)
    }

    /// The helpers of a flock's members.
    pub fn helpers_of<'a>(&'a self, key: &'a FlockKey) -> impl Iterator<Item = &'a HelperFacts> {
        self.helpers.values().filter(move |helper| helper.key == *key)
    }

    /// All flocks that have a helper.
    pub fn helped(&self) -> impl Iterator<Item = &FlockKey> {
        self.helpers.values().map(|helper| &helper.key)
    }

    /// A claim: `None` if nothing is known, `Some(None)` if there is none.
    pub fn claim(&self, namespace: &str, name: &str) -> Option<Option<&ClaimFacts>> {
        self.claims
            .get(&(namespace.to_owned(), name.to_owned()))
            .map(Option::as_ref)
    }

    /// A PersistentVolume: `None` if nothing is known, `Some(None)` if there is none.
    pub fn volume(&self, name: &str) -> Option<Option<&VolumeFacts>> {
        self.volumes.get(name).map(Option::as_ref)
    }

    /// The PersistentVolumes that are labelled for an ordinal of a flock.
    pub fn volumes_for<'a>(
        &'a self,
        key: &'a FlockKey,
        ordinal: Ordinal,
    ) -> impl Iterator<Item = &'a VolumeFacts> {
        let number = ordinal.to_string();
        self.volumes.values().flatten().filter(move |volume| {
            let [flock, of, _, namespace] = &volume.labels;
            flock.as_deref() == Some(key.flock.as_str())
                && of.as_deref() == Some(number.as_str())
                && namespace
                    .as_deref()
                    .is_none_or(|namespace| namespace == key.namespace.as_str())
        })
    }

    /// The StorageClasses, once they were looked up.
    pub fn classes(&self) -> Option<&[ClassFacts]> {
        self.classes.as_deref()
    }

    /// Takes in the StorageClasses.
    pub fn set_classes(&mut self, classes: Vec<ClassFacts>) {
        self.classes = Some(classes);
    }

    /// Takes in a helper.
    pub fn apply_helper(&mut self, helper: HelperFacts) -> Vec<FlockKey> {
        let old = self.helpers.get(&helper.member_uid);
        if old.is_some_and(|old| {
            old.uid == helper.uid && super::newer(&old.resource_version, &helper.resource_version)
        }) {
            return Vec::new();
        }
        let key = helper.key.clone();
        self.helpers.insert(helper.member_uid.clone(), helper);
        vec![key]
    }

    /// Forgets a helper.
    pub fn delete_helper(&mut self, helper: &HelperFacts) -> Vec<FlockKey> {
        match self.helpers.get(&helper.member_uid) {
            Some(known) if known.uid == helper.uid => {
                self.helpers.remove(&helper.member_uid);
                vec![helper.key.clone()]
            }
            _ => Vec::new(),
        }
    }

    /// Takes in a claim.
    pub fn apply_claim(&mut self, claim: ClaimFacts) -> Vec<FlockKey> {
        let id = (claim.namespace.clone(), claim.name.clone());
        if let Some(Some(old)) = self.claims.get(&id)
            && old.uid == claim.uid
            && super::newer(&old.resource_version, &claim.resource_version)
        {
            return Vec::new();
        }
        let concerned = claim.flock().into_iter().collect();
        self.claims.insert(id, Some(claim));
        concerned
    }

    /// Forgets a claim.
    pub fn delete_claim(&mut self, claim: &ClaimFacts) -> Vec<FlockKey> {
        let id = (claim.namespace.clone(), claim.name.clone());
        match self.claims.get(&id) {
            Some(Some(known)) if known.uid == claim.uid => {
                self.claims.remove(&id);
                claim.flock().into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Notes what a live look at a claim's name found, unless a watch knows it better.
    pub fn looked_up_claim(&mut self, namespace: &str, name: &str, found: Option<ClaimFacts>) {
        let id = (namespace.to_owned(), name.to_owned());
        let labelled = |claim: &ClaimFacts| claim.labels[0].is_some();
        if !self
            .claims
            .get(&id)
            .is_some_and(|known| known.as_ref().is_some_and(labelled))
        {
            self.claims.insert(id, found);
        }
    }

    /// Takes in a PersistentVolume.
    pub fn apply_volume(&mut self, volume: VolumeFacts) -> Vec<FlockKey> {
        if let Some(Some(old)) = self.volumes.get(&volume.name)
            && old.uid == volume.uid
            && super::newer(&old.resource_version, &volume.resource_version)
        {
            return Vec::new();
        }
        let concerned = volume_concerns(&volume);
        self.volumes.insert(volume.name.clone(), Some(volume));
        concerned
    }

    /// Forgets a PersistentVolume.
    pub fn delete_volume(&mut self, volume: &VolumeFacts) -> Vec<FlockKey> {
        match self.volumes.get(&volume.name) {
            Some(Some(known)) if known.uid == volume.uid => {
                self.volumes.remove(&volume.name);
                volume_concerns(volume)
            }
            _ => Vec::new(),
        }
    }

    /// Notes what a live look at a PersistentVolume's name found, unless a watch knows it better.
    pub fn looked_up_volume(&mut self, name: &str, found: Option<VolumeFacts>) {
        let labelled = |volume: &VolumeFacts| volume.labels[0].is_some();
        if !self
            .volumes
            .get(name)
            .is_some_and(|known| known.as_ref().is_some_and(labelled))
        {
            self.volumes.insert(name.to_owned(), found);
        }
    }

    /// Forgets what live looks found: they were true when they were made.
    pub fn forget_looks(&mut self) {
        self.claims
            .retain(|_, claim| claim.as_ref().is_some_and(|claim| claim.labels[0].is_some()));
        self.volumes
            .retain(|_, volume| volume.as_ref().is_some_and(|volume| volume.labels[0].is_some()));
    }

    pub(super) fn forget_unseen(&mut self, source: super::Source, seen: &BTreeSet<String>) -> Vec<FlockKey> {
        let mut concerned = Vec::new();
        match source {
            super::Source::Helpers => self.helpers.retain(|_, helper| {
                let keep = seen.contains(&helper.uid);
                if !keep {
                    concerned.push(helper.key.clone());
                }
                keep
            }),
            super::Source::Claims => self.claims.retain(|_, claim| match claim {
                Some(claim) if claim.labels[0].is_some() && !seen.contains(&claim.uid) => {
                    concerned.extend(claim.flock());
                    false
                }
                _ => true,
            }),
            _ => self.volumes.retain(|_, volume| match volume {
                Some(volume) if volume.labels[0].is_some() && !seen.contains(&volume.uid) => {
                    concerned.extend(volume_concerns(volume));
                    false
                }
                _ => true,
            }),
        }
        concerned
    }
}

/// Only a volume that says its namespace concerns anyone at once; the others are found when they are wanted.
fn volume_concerns(volume: &VolumeFacts) -> Vec<FlockKey> {
    let [flock, _, _, namespace] = &volume.labels;
    match (namespace, flock) {
        (Some(namespace), Some(flock)) => FlockKey::parse(namespace, flock).into_iter().collect(),
        _ => Vec::new(),
    }
}
