//! What a release does, and when it is refused: pure.

use std::collections::BTreeSet;
use std::path::Path;

use thiserror::Error;

use crate::identity::{FlockKey, Ordinal, Storage};
use crate::place::{Place, Record, RecordError};
use crate::view::{ServiceFacts, Template, View};

/// Why an ordinal may not be released.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// Its pod may write its data.
    #[error(
        "{pod} is bound to node {node}, so it may use its data there: scale its workload down or delete the pod first, \
         and wait until the pod object is gone"
    )]
    Runs {
        /// The pod.
        pod: String,
        /// Its node.
        node: String,
    },
    /// It has no place.
    #[error("{0} has no place: neither a node's label nor the record of places names it")]
    NoPlace(String),
    /// No ordinal has one that could be released.
    #[error("no ordinal of flock {0} can be released: {1}")]
    Nothing(FlockKey, &'static str),
}

/// One ordinal that is released.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    /// The ordinal.
    pub ordinal: Ordinal,
    /// The nodes that carry its label, and their uids.
    pub labelled: Vec<(String, String)>,
    /// Where the record says that it lives.
    pub recorded: Option<String>,
    /// What stays behind, in words.
    pub stays: String,
}

impl Release {
    /// A sentence for whoever decides.
    pub fn describe(&self, key: &FlockKey) -> String {
        let labelled = self.labelled.iter().map(|(node, _)| node.clone());
        let nodes: BTreeSet<_> = labelled.chain(self.recorded.clone()).collect();
        let nodes = nodes.into_iter().collect::<Vec<_>>().join(", ");
        format!(
            "{}-{} leaves node {nodes}; {}",
            key.flock, self.ordinal, self.stays
        )
    }
}

/// What is released of the flock: the ordinal, or all whose pod is on no node.
pub fn releases(
    view: &View,
    key: &FlockKey,
    ordinal: Option<Ordinal>,
    host_path_root: &Path,
) -> Result<Vec<Release>, Refused> {
    let record = view
        .record_service(key)
        .and_then(|service| service.record.as_deref());
    let recorded = record
        .into_iter()
        .flat_map(|record| record.iter().map(|(ordinal, _)| ordinal));
    let known: BTreeSet<_> = view.places(key).keys().copied().chain(recorded).collect();
    let release = |ordinal| -> Result<Release, Refused> {
        let pod = format!("{}-{ordinal}", key.flock);
        if !known.contains(&ordinal) {
            return Err(Refused::NoPlace(pod));
        }
        // Over or not, terminating or not: while the object is there, its kubelet may not have ended it.
        if let Some(node) = view.flock(key).holder(ordinal).and_then(|pod| pod.node.clone()) {
            return Err(Refused::Runs { pod, node });
        }
        let nodes = view.places(key).get(&ordinal).into_iter().flatten();
        let nodes = nodes.filter_map(|name| view.nodes().get(name));
        Ok(Release {
            ordinal,
            labelled: nodes
                .map(|node| (node.name.to_string(), node.uid.clone()))
                .collect(),
            recorded: record
                .and_then(|record| record.get(ordinal))
                .map(|place| place.node.to_string()),
            stays: stays(view, key, ordinal, host_path_root),
        })
    };
    if let Some(ordinal) = ordinal {
        return Ok(vec![release(ordinal)?]);
    }
    if known.is_empty() {
        return Err(Refused::Nothing(key.clone(), "none has a place"));
    }
    let all: Vec<_> = known
        .iter()
        .filter_map(|ordinal| release(*ordinal).ok())
        .collect();
    if all.is_empty() {
        return Err(Refused::Nothing(
            key.clone(),
            "the pods of all are bound to nodes",
        ));
    }
    Ok(all)
}

/// The record with the ordinals marked as released.
pub(super) fn marked(service: &ServiceFacts, releases: &[Release]) -> Result<Record, RecordError> {
    let mut record = match (&service.record, &service.places) {
        (Some(record), _) => (**record).clone(),
        (None, text) => Record::parse(text.as_deref().unwrap_or("{}"))?,
    };
    for release in releases {
        if record.get(release.ordinal).is_none()
            && let Some((node, _)) = release.labelled.first()
        {
            record.insert(release.ordinal, Place::new(node.as_str().into(), None));
        }
        record.release(release.ordinal);
    }
    Ok(record)
}

/// What becomes of the data.
fn stays(view: &View, key: &FlockKey, ordinal: Ordinal, host_path_root: &Path) -> String {
    let flock = view.flock(key);
    let of_pod = flock.holder(ordinal).map(|pod| &*pod.template);
    let of_workload = || {
        flock
            .workloads()
            .values()
            .next()
            .map(|workload| &*workload.template)
    };
    let settings = of_pod.or_else(of_workload).map(Template::settings);
    let Some(settings) = settings else {
        return "whatever data it has stays where it is".into();
    };
    if settings.volumes.is_empty() {
        return "it has no volumes".into();
    }
    let volumes: Vec<_> = settings.volumes.iter().map(ToString::to_string).collect();
    match settings.storage {
        Storage::HostPath => {
            let member = key.member(ordinal);
            let uid = view
                .namespace(key.namespace.as_str())
                .map(|namespace| namespace.uid.clone());
            let uid = uid.unwrap_or_default();
            let paths: Vec<_> = settings
                .volumes
                .iter()
                .filter_map(|volume| Some(member.as_ref()?.host_path(host_path_root, &uid, volume)))
                .map(|path| path.display().to_string())
                .collect();
            format!("its data stays behind there, in {}", paths.join(", "))
        }
        Storage::LocalVolume | Storage::Claim => {
            format!("its claims and volumes ({}) stay as they are", volumes.join(", "))
        }
    }
}
