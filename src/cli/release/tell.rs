//! `flock release --data-lost`: the member keeps its place and starts there without its data.

use std::io::Write;

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::identity::{FlockKey, Ordinal, keys};
use crate::storage::DATA_MISSING;
use crate::view::PodFacts;

use super::{ReleaseArgs, ReleaseError, ask, lost};

/// Tells the member's pod that the data it waits for is lost. The word is the pod's own uid, so it holds for no other.
pub(super) async fn give_data_up(
    client: &Client,
    key: &FlockKey,
    ordinal: Ordinal,
    args: &ReleaseArgs,
    out: &mut impl Write,
) -> Result<(), ReleaseError> {
    let name = format!("{}-{ordinal}", key.flock);
    let unreadable = |what| {
        let pod = name.clone();
        move |source| ReleaseError::Pod { pod, what, source }
    };
    let pods = Api::<Pod>::namespaced(client.clone(), key.namespace.as_str());
    let found = pods.get_opt(&name).await.map_err(unreadable("itself"))?;
    let facts = found.as_ref().and_then(PodFacts::read);
    let facts = facts.filter(|(of, _)| of == key).map(|(_, facts)| facts);
    let mut messages = Vec::new();
    if let Some(facts) = &facts {
        let events = Api::<Event>::namespaced(client.clone(), key.namespace.as_str());
        let of_pod = format!("involvedObject.uid={},reason={}", facts.uid, DATA_MISSING);
        let listed = events.list(&ListParams::default().fields(&of_pod)).await;
        let mut listed = listed.map_err(unreadable("or its events"))?.items;
        listed.sort_by_key(|event| event.metadata.creation_timestamp.clone().map(|created| created.0));
        messages.extend(listed.into_iter().filter_map(|event| event.message));
    }
    let lost = lost::lost(key, ordinal, facts.as_ref(), &messages)?;
    writeln!(out, "{}", lost.why)?;
    if lost.told {
        writeln!(out, "{} was told already that its data is lost", lost.pod)?;
        return Ok(());
    }
    if !args.yes {
        ask(&format!("Start {} without that data?", lost.pod), out)?;
    }
    let patch = json!({ "metadata": { "uid": lost.uid, "annotations": { keys::DATA_LOST: lost.uid } } });
    pods.patch(&lost.pod, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map_err(|source| ReleaseError::Tell {
            pod: lost.pod.clone(),
            source,
        })?;
    writeln!(out, "{} starts without the data that it had", lost.pod)?;
    Ok(())
}
