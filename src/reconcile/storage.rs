//! Storage: what the plan must look up live, and the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::api::{Api, ListParams, Patch};
use kube::{Client, Error};
use serde_json::json;
use tokio::time::Instant;

use crate::identity::{FlockKey, Storage, keys};
use crate::storage::{HelperConfig, claim, local_volume};
use crate::view::{ClaimFacts, ClassFacts, Flock, HelperFacts, SharedView, StorageView, VolumeFacts};

use super::apply::{manager, patch_manager, uid_precondition};
use super::own_image::OwnImage;
use super::plan::StorageAction;

/// How long a look at a claim's or PersistentVolume's name is good.
const LOOKED_UP: Duration = Duration::from_secs(5);
/// So many looks are under way at once.
const AT_ONCE: usize = 16;
/// How long the list of StorageClasses is good.
const CLASSES: Duration = Duration::from_secs(30);

/// Looks up what no watch brings: claims and PersistentVolumes without the flock's label, by name; and classes.
pub(super) struct StorageLookup {
    client: Client,
    claims: BTreeMap<(String, String), Instant>,
    volumes: BTreeMap<String, Instant>,
    classes: Option<Instant>,
}

impl StorageLookup {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            claims: BTreeMap::new(),
            volumes: BTreeMap::new(),
            classes: None,
        }
    }

    /// Looks up what the plan for `key` will ask for.
    pub(super) async fn run(&mut self, view: &SharedView, key: &FlockKey) -> Result<(), Error> {
        let wanted = {
            let view = view.read();
            let uid = view
                .namespace(key.namespace.as_str())
                .map(|namespace| namespace.uid.clone());
            wanted(key, uid.as_deref(), view.flock(key), view.storage())
        };
        let fresh = |at: &Instant| at.elapsed() < LOOKED_UP;
        self.claims.retain(|_, at| fresh(at));
        self.volumes.retain(|_, at| fresh(at));
        let namespace = key.namespace.to_string();
        let id = |name: &String| (namespace.clone(), name.clone());
        let claims: Vec<_> = wanted
            .claims
            .into_iter()
            .filter(|name| !self.claims.contains_key(&id(name)))
            .collect();
        let volumes: Vec<_> = wanted
            .volumes
            .into_iter()
            .filter(|name| !self.volumes.contains_key(name))
            .collect();
        let claim_api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &namespace);
        let mut looks = stream::iter(claims)
            .map(|name| async { (claim_api.get_opt(&name).await, name) })
            .buffer_unordered(AT_ONCE);
        while let Some((found, name)) = looks.next().await {
            let found = found?.as_ref().and_then(ClaimFacts::read);
            view.update(|view| {
                view.storage_mut().looked_up_claim(&namespace, &name, found);
                Vec::new()
            });
            self.claims.insert((namespace.clone(), name), Instant::now());
        }
        let volume_api = Api::<PersistentVolume>::all(self.client.clone());
        let mut looks = stream::iter(volumes)
            .map(|name| async { (volume_api.get_opt(&name).await, name) })
            .buffer_unordered(AT_ONCE);
        while let Some((found, name)) = looks.next().await {
            let found = found?.as_ref().and_then(VolumeFacts::read);
            view.update(|view| {
                view.storage_mut().looked_up_volume(&name, found);
                Vec::new()
            });
            self.volumes.insert(name, Instant::now());
        }
        if wanted.classes && self.classes.is_none_or(|at| at.elapsed() >= CLASSES) {
            self.list_classes(view).await?;
        }
        Ok(())
    }

    async fn list_classes(&mut self, view: &SharedView) -> Result<(), Error> {
        let (classes, drivers) = (
            Api::<StorageClass>::all(self.client.clone())
                .list(&ListParams::default())
                .await?,
            Api::<CSIDriver>::all(self.client.clone())
                .list_metadata(&ListParams::default())
                .await?,
        );
        let drivers: BTreeSet<_> = drivers
            .items
            .into_iter()
            .filter_map(|driver| driver.metadata.name)
            .collect();
        let facts = classes
            .iter()
            .filter_map(|class| ClassFacts::read(class, |driver| drivers.contains(driver)))
            .collect();
        view.update(|view| {
            view.storage_mut().set_classes(facts);
            Vec::new()
        });
        self.classes = Some(Instant::now());
        Ok(())
    }
}

#[derive(Default)]
struct Wanted {
    claims: BTreeSet<String>,
    volumes: BTreeSet<String>,
    classes: bool,
}

/// What members that wait will be asked about, as far as no watch has it.
fn wanted(key: &FlockKey, uid: Option<&str>, flock: &Flock, known: &StorageView) -> Wanted {
    let mut wanted = Wanted::default();
    for (ordinal, pod) in flock.members() {
        let Ok(settings) = &pod.template.settings else {
            continue;
        };
        let Some(member) = key.member(ordinal) else {
            continue;
        };
        if settings.storage == Storage::HostPath {
            continue;
        }
        wanted.classes |= settings.storage == Storage::Claim && !settings.volumes.is_empty();
        if !pod.is_live() || pod.node.is_some() {
            continue;
        }
        for volume in &settings.volumes {
            let claim = member.claim_name(volume);
            let watched = known.claim(key.namespace.as_str(), &claim).flatten();
            if watched.is_none_or(|claim| claim.labels[0].is_none()) {
                wanted.claims.insert(claim);
            } else if watched.is_some_and(|claim| claim.volume.is_some()) {
                continue;
            }
            let base = member.volume_name(volume);
            let local = settings.storage == Storage::LocalVolume;
            let with_uid = uid.filter(|_| local).map(|uid| format!("{base}.{uid}"));
            for name in [Some(base), with_uid].into_iter().flatten() {
                if known
                    .volume(&name)
                    .flatten()
                    .is_none_or(|volume| volume.labels[0].is_none())
                {
                    wanted.volumes.insert(name);
                }
            }
        }
    }
    wanted
}

/// Carries out one action for storage, and tells the view at once what came of it.
pub(super) async fn apply(
    client: &Client,
    view: &SharedView,
    (config, image): (&HelperConfig, &OwnImage),
    key: &FlockKey,
    action: &StorageAction,
) -> Result<(), Error> {
    let client = client.clone();
    match action {
        StorageAction::CreateHelper(helper) => {
            let image = image.get().await?;
            let pod = helper.pod(key, config, &image).map_err(Error::SerdeError)?;
            let created = Api::<Pod>::namespaced(client, &config.namespace)
                .create(&manager(), &pod)
                .await?;
            if let Some(facts) = HelperFacts::read(&created) {
                view.update(|view| view.storage_mut().apply_helper(facts));
            }
        }
        StorageAction::DeleteHelper { name, uid } => {
            Api::<Pod>::namespaced(client, &config.namespace)
                .delete(name, &uid_precondition(uid))
                .await?;
        }
        StorageAction::CreateVolume(spec) => {
            let volume = local_volume(key, spec).map_err(Error::SerdeError)?;
            let created = Api::<PersistentVolume>::all(client)
                .create(&manager(), &volume)
                .await?;
            saw_volume(view, &created);
        }
        StorageAction::MarkVolume { name, version, node } => {
            let patch = json!({
                "metadata": { "resourceVersion": version, "annotations": { keys::PREPARED_ON: node } },
            });
            let volumes = Api::<PersistentVolume>::all(client);
            saw_volume(
                view,
                &volumes
                    .patch(name, &patch_manager(), &Patch::Merge(&patch))
                    .await?,
            );
        }
        StorageAction::RebindVolume { name, version } => {
            let patch = json!({
                "metadata": { "resourceVersion": version },
                "spec": { "claimRef": { "uid": null, "resourceVersion": null } },
            });
            let volumes = Api::<PersistentVolume>::all(client);
            saw_volume(
                view,
                &volumes
                    .patch(name, &patch_manager(), &Patch::Merge(&patch))
                    .await?,
            );
        }
        StorageAction::CreateClaim(spec) => {
            let object = claim(key, spec).map_err(Error::SerdeError)?;
            let claims = Api::<PersistentVolumeClaim>::namespaced(client, key.namespace.as_str());
            saw_claim(view, &claims.create(&manager(), &object).await?);
        }
        StorageAction::GrowClaim { name, version, size } => {
            let patch = json!({
                "metadata": { "resourceVersion": version },
                "spec": { "resources": { "requests": { "storage": size } } },
            });
            let claims = Api::<PersistentVolumeClaim>::namespaced(client, key.namespace.as_str());
            saw_claim(
                view,
                &claims
                    .patch(name, &patch_manager(), &Patch::Merge(&patch))
                    .await?,
            );
        }
    }
    Ok(())
}

fn saw_volume(view: &SharedView, volume: &PersistentVolume) {
    if let Some(facts) = VolumeFacts::read(volume) {
        view.update(|view| view.storage_mut().apply_volume(facts));
    }
}

fn saw_claim(view: &SharedView, claim: &PersistentVolumeClaim) {
    if let Some(facts) = ClaimFacts::read(claim) {
        view.update(|view| view.storage_mut().apply_claim(facts));
    }
}
