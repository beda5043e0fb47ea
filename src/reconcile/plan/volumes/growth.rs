//! Sizes: claims grow with `sizeLimit`.

use crate::identity::{DnsLabel, Ordinal, Storage};
use crate::storage::{ClaimUse, bytes};
use crate::view::{ClaimFacts, PodFacts};

use super::super::{Action, Observed, Plan, Subject};
use super::StorageAction;

/// The size that the emptyDir's `sizeLimit` says: of the newest revision too, so that it grows ahead of a rollout.
pub(super) fn size(observed: &Observed<'_>, pod: &PodFacts, volume: &DnsLabel) -> Option<String> {
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
pub(super) fn grow(observed: &Observed<'_>, plan: &mut Plan) {
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
