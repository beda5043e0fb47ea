//! Every event of every pod of a namespace, and the invariants that must hold all the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, WatchEvent, WatchParams};

use crate::world::{World, is_ready, name};

/// What happened to a pod.
#[derive(Clone)]
pub struct Change {
    pub at: Instant,
    pub what: &'static str,
    pub pod: Pod,
}

/// The recording of one namespace. It goes on until the test's end.
pub struct Recording {
    begin: Instant,
    changes: Arc<Mutex<Vec<Change>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Recording {
    pub fn start(world: &World, namespace: &str) -> Self {
        let api = Api::<Pod>::namespaced(world.client.clone(), namespace);
        let changes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&changes);
        let task = world.runtime.spawn(async move {
            let mut version = "0".to_owned();
            loop {
                let Ok(stream) = api.watch(&WatchParams::default(), &version).await else {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                };
                let mut stream = std::pin::pin!(stream);
                while let Some(Ok(event)) = stream.next().await {
                    let (what, pod) = match event {
                        WatchEvent::Added(pod) => ("added", pod),
                        WatchEvent::Modified(pod) => ("modified", pod),
                        WatchEvent::Deleted(pod) => ("deleted", pod),
                        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
                    };
                    if let Some(now) = &pod.metadata.resource_version {
                        version.clone_from(now);
                    }
                    seen.lock().unwrap().push(Change {
                        at: Instant::now(),
                        what,
                        pod,
                    });
                }
            }
        });
        Self {
            begin: Instant::now(),
            changes,
            task,
        }
    }

    pub fn changes(&self) -> Vec<Change> {
        self.changes.lock().unwrap().clone()
    }

    /// The most members of `wanted` that were not Ready at one time, from the moment when all were.
    pub fn most_unavailable(&self, wanted: &[&str]) -> usize {
        let mut ready = BTreeMap::new();
        let mut complete = false;
        let mut most = 0;
        for change in self.changes() {
            let up = change.what != "deleted" && is_ready(&change.pod);
            ready.insert(name(&change.pod), up);
            let down = wanted
                .iter()
                .filter(|name| ready.get(**name) != Some(&true))
                .count();
            complete |= down == 0;
            if complete {
                most = most.max(down);
            }
        }
        most
    }

    /// The names of the pods in the order in which they were created.
    pub fn created(&self) -> Vec<String> {
        self.changes()
            .iter()
            .filter(|change| change.what == "added")
            .map(|change| name(&change.pod))
            .collect()
    }

    /// What happened, for a person.
    pub fn story(&self) -> String {
        let line = |change: &Change| {
            let pod = &change.pod;
            format!(
                "{:8.3} {:8} {:12} {} node={:?} gates={} ready={} going={}",
                change.at.duration_since(self.begin).as_secs_f64(),
                change.what,
                name(pod),
                pod.metadata
                    .owner_references
                    .iter()
                    .flatten()
                    .map(|o| o.name.as_str())
                    .collect::<String>(),
                pod.spec
                    .as_ref()
                    .and_then(|spec| spec.node_name.as_deref())
                    .unwrap_or("-"),
                pod.spec
                    .as_ref()
                    .and_then(|spec| spec.scheduling_gates.as_ref())
                    .map_or(0, Vec::len),
                is_ready(pod),
                pod.metadata.deletion_timestamp.is_some(),
            )
        };
        self.changes().iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The invariants that hold of every event (DESIGN 3).
    pub fn check(&self) {
        let mut alive: BTreeMap<String, String> = BTreeMap::new();
        let mut places: BTreeMap<String, String> = BTreeMap::new();
        for Change { what, pod, .. } in self.changes() {
            let name = name(&pod);
            let labels = pod.metadata.labels.clone().unwrap_or_default();
            let Some(flock) = labels.get("flock.dev/name") else {
                continue;
            };
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if what == "deleted" {
                alive.remove(&name);
                continue;
            }
            let other = alive.insert(name.clone(), uid.clone());
            assert!(
                other.as_ref().is_none_or(|other| *other == uid),
                "two pod objects were {name} at one time"
            );
            let ordinal = labels
                .get("flock.dev/ordinal")
                .unwrap_or_else(|| panic!("{name} has no ordinal"));
            assert_eq!(name, format!("{flock}-{ordinal}"), "name and label differ");
            let spec = pod.spec.clone().unwrap_or_default();
            assert_eq!(
                spec.hostname.as_deref(),
                Some(name.as_str()),
                "hostname and name differ"
            );
            let namespace = pod.metadata.namespace.clone().unwrap_or_default();
            let label = format!("{flock}.{namespace}.flock.node-restriction.kubernetes.io/{ordinal}");
            let pinned = spec.node_selector.clone().unwrap_or_default();
            let members: Vec<_> = pinned
                .keys()
                .filter(|key| key.contains(".flock.node-restriction."))
                .collect();
            assert!(
                members.iter().all(|key| **key == label),
                "{name} is pinned by {members:?}"
            );
            if let (Some(node), false) = (spec.node_name, members.is_empty()) {
                let before = places.insert(name.clone(), node.clone());
                assert!(
                    before.as_ref().is_none_or(|before| *before == node) || self.may_move(),
                    "{name} ran on {before:?} and then on {node}"
                );
            }
        }
    }

    fn may_move(&self) -> bool {
        self.changes.lock().unwrap().iter().any(|change| {
            let annotations = change.pod.metadata.annotations.as_ref();
            annotations.is_some_and(|a| a.contains_key("test.flock.dev/may-move"))
        })
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.task.abort();
    }
}
