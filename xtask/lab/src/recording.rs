//! Every event of every pod of a namespace, and the invariants that must hold all the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// What happened to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It came.
    Added,
    /// It changed.
    Modified,
    /// It is gone from the API server.
    Deleted,
}

/// One event.
#[derive(Clone, Debug)]
pub struct Change {
    /// When it was seen.
    pub at: Instant,
    /// What happened.
    pub what: What,
    /// The pod afterwards.
    pub pod: Pod,
}

/// The recording of one namespace. It goes on until it is dropped.
#[derive(Debug)]
pub struct Recording {
    begin: Instant,
    log: Arc<Mutex<Log>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Log {
    changes: Vec<Change>,
    check: Check,
    created: usize,
}

impl Recording {
    /// Records the pods of `namespace` from now on, with tasks of `runtime`.
    pub fn start(runtime: &Handle, client: Client, namespace: &str) -> Self {
        let api = Api::<Pod>::namespaced(client, namespace);
        let log = Arc::new(Mutex::new(Log::default()));
        let task = runtime.spawn(record(api, Arc::clone(&log)));
        Self {
            begin: Instant::now(),
            log,
            task,
        }
    }

    /// Everything so far.
    pub fn changes(&self) -> Vec<Change> {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .changes
            .clone()
    }

    /// Forgets what was, so that a long recording costs no more than a short one; what it has seen of members'
    /// nodes, of breaches and of how many pods there were stays.
    pub fn forget(&self) {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .changes
            .clear();
    }

    /// How many pods were created so far.
    pub fn count_created(&self) -> usize {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).created
    }

    /// How many pods have been Ready. Beside those that were created there may be ones that never were: kwok deletes
    /// by name, and where its answer was lost, its second try meets the successor.
    pub fn count_ran(&self) -> usize {
        let changes = self.changes();
        let ran = changes.iter().filter(|change| is_ready(&change.pod));
        ran.filter_map(|change| change.pod.metadata.uid.as_ref())
            .collect::<std::collections::BTreeSet<_>>()
            .len()
    }

    /// The names of the pods in the order in which they were created.
    pub fn created(&self) -> Vec<String> {
        self.changes()
            .iter()
            .filter(|change| change.what == What::Added)
            .map(|change| name(&change.pod))
            .collect()
    }

    /// The names of the pods in the order in which they became Ready for the first time.
    pub fn readied(&self) -> Vec<String> {
        let mut names = Vec::new();
        for change in self.changes().iter().filter(|change| is_ready(&change.pod)) {
            let name = name(&change.pod);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Every name that a pod ever had.
    pub fn names(&self) -> BTreeSet<String> {
        self.created().into_iter().collect()
    }

    /// The most members of `wanted` that were not available at one time, from the moment when all were: without
    /// a Ready pod that has been so for `min_ready`, or about to go.
    pub fn most_unavailable(&self, wanted: &[String], min_ready: Duration) -> usize {
        let changes = self.changes();
        let mut since: BTreeMap<String, Instant> = BTreeMap::new();
        let (mut complete, mut most) = (false, 0);
        for change in &changes {
            let pod = name(&change.pod);
            if change.what != What::Deleted && is_ready(&change.pod) {
                since.entry(pod).or_insert(change.at);
            } else {
                since.remove(&pod);
            }
            // The watch brings the readiness somewhat later than it was.
            let available = |name: &&String| {
                since
                    .get(*name)
                    .is_some_and(|at| at.elapsed_until(change.at) + SLACK >= min_ready)
            };
            let down = wanted.len() - wanted.iter().filter(available).count();
            complete |=
                down == 0 || (min_ready > Duration::ZERO && wanted.iter().all(|n| since.contains_key(n)));
            if complete {
                most = most.max(down);
            }
        }
        most
    }

    /// For each pod that went: how long its name was free until the next one had it.
    pub fn gaps(&self) -> Vec<(String, Duration)> {
        let (mut free, mut gaps) = (BTreeMap::new(), Vec::new());
        for change in self.changes() {
            let name = name(&change.pod);
            match change.what {
                What::Deleted => {
                    free.insert(name, change.at);
                }
                What::Added => {
                    let since = free.remove(&name);
                    gaps.extend(since.map(|since: Instant| (name, change.at.duration_since(since))));
                }
                What::Modified => {}
            }
        }
        gaps
    }

    /// The longest time that no pod at all had this name, or that it was not Ready, after it first was.
    pub fn longest_outage(&self, wanted: &str) -> Duration {
        let (mut down, mut longest) = (None, Duration::ZERO);
        for change in self.changes().iter().filter(|change| name(&change.pod) == wanted) {
            let up = change.what != What::Deleted && is_ready(&change.pod);
            if let (true, Some(since)) = (up, down) {
                longest = longest.max(change.at.duration_since(since));
            }
            down = if up { None } else { down.or(Some(change.at)) };
        }
        longest
    }

    /// What happened, for a person.
    pub fn story(&self) -> String {
        self.changes()
            .iter()
            .map(|change| line(self.begin, change))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Every breach of what must hold of every event: one pod object for an ordinal, all names of a member alike,
    /// one node for ever unless members `may_move`.
    pub fn violations(&self, may_move: bool) -> Vec<String> {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let moves = log.check.moves.iter().filter(|_| !may_move);
        log.check.found.iter().chain(moves).cloned().collect()
    }
}

const SLACK: Duration = Duration::from_millis(300);

trait ElapsedUntil {
    fn elapsed_until(&self, later: Instant) -> Duration;
}

impl ElapsedUntil for Instant {
    fn elapsed_until(&self, later: Instant) -> Duration {
        later.saturating_duration_since(*self)
    }
}

#[derive(Debug, Default)]
struct Check {
    /// By flock and ordinal: name and uid.
    alive: BTreeMap<(String, String), (String, String)>,
    nodes: BTreeMap<(String, String), String>,
    found: Vec<String>,
    moves: Vec<String>,
}

impl Check {
    fn look(&mut self, Change { what, pod, .. }: &Change) {
        let name = name(pod);
        let labels = pod.metadata.labels.clone().unwrap_or_default();
        let Some(flock) = labels.get("flock.dev/name").cloned() else {
            return;
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some(ordinal) = labels.get("flock.dev/ordinal").cloned() else {
            self.found.push(format!("{name} has no ordinal"));
            return;
        };
        let id = (flock.clone(), ordinal.clone());
        if *what == What::Deleted {
            self.alive.remove(&id);
            return;
        }
        if let Some(other) = self.alive.insert(id.clone(), (name.clone(), uid.clone()))
            && other.1 != uid
        {
            self.found.push(format!(
                "ordinal {ordinal} of {flock} was two pod objects: {other:?} and {name}, {uid}"
            ));
        }
        self.names(pod, &flock, &ordinal);
        self.node(pod, id);
    }

    fn names(&mut self, pod: &Pod, flock: &str, ordinal: &str) {
        let name = name(pod);
        let spec = pod.spec.clone().unwrap_or_default();
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        if name != format!("{flock}-{ordinal}") {
            self.found
                .push(format!("{name} carries ordinal {ordinal} of {flock}"));
        }
        if spec.hostname.as_deref() != Some(name.as_str()) {
            self.found
                .push(format!("{name} has the hostname {:?}", spec.hostname));
        }
        let label = format!("{flock}.{namespace}.flock.node-restriction.kubernetes.io/{ordinal}");
        for key in spec.node_selector.unwrap_or_default().keys() {
            if key.contains(".flock.node-restriction.") && *key != label {
                self.found.push(format!("{name} is pinned by {key}"));
            }
        }
    }

    fn node(&mut self, pod: &Pod, id: (String, String)) {
        let spec = pod.spec.clone().unwrap_or_default();
        let pinned = spec
            .node_selector
            .iter()
            .flatten()
            .any(|(key, _)| key.contains(".flock.node-restriction."));
        let (Some(node), true) = (spec.node_name, pinned) else {
            return;
        };
        let annotations = pod.metadata.annotations.clone().unwrap_or_default();
        let exclusive = annotations
            .get("flock.dev/pin")
            .is_none_or(|pin| pin == "Exclusive");
        let name = name(pod);
        let shared = exclusive
            && self.alive.keys().any(|other| {
                other.0 == id.0 && *other != id && self.nodes.get(other).is_some_and(|other| *other == node)
            });
        if shared {
            self.moves
                .push(format!("{name} shares node {node} with another member"));
        }
        let before = self.nodes.insert(id, node.clone());
        if let Some(before) = before.filter(|before| *before != node) {
            self.moves
                .push(format!("{name} ran on {before} and then on {node}"));
        }
    }
}

fn line(begin: Instant, change: &Change) -> String {
    let pod = &change.pod;
    let spec = pod.spec.as_ref();
    format!(
        "{:8.3} {:8} {:8} {} node={} gates={} ready={} going={}",
        change.at.duration_since(begin).as_secs_f64(),
        format!("{:?}", change.what),
        name(pod),
        pod.metadata
            .owner_references
            .iter()
            .flatten()
            .map(|o| o.name.as_str())
            .collect::<String>(),
        spec.and_then(|spec| spec.node_name.as_deref()).unwrap_or("-"),
        spec.and_then(|spec| spec.scheduling_gates.as_ref())
            .map_or(0, Vec::len),
        is_ready(pod),
        pod.metadata.deletion_timestamp.is_some(),
    )
}

async fn record(api: Api<Pod>, log: Arc<Mutex<Log>>) {
    let mut known: BTreeMap<String, Pod> = BTreeMap::new();
    let push = |known: &mut BTreeMap<String, Pod>, what, pod: Pod| {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if what == What::Deleted {
            known.remove(&uid);
        } else {
            known.insert(uid, pod.clone());
        }
        let change = Change {
            at: Instant::now(),
            what,
            pod,
        };
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.created += usize::from(what == What::Added);
        log.check.look(&change);
        log.changes.push(change);
    };
    let mut version = String::new();
    loop {
        if version.is_empty() {
            // At the start, and where the API server has forgotten what came since the last event.
            let Ok(list) = api.list(&ListParams::default()).await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let present: BTreeSet<_> = list
                .items
                .iter()
                .filter_map(|pod| pod.metadata.uid.clone())
                .collect();
            let gone: Vec<_> = known
                .iter()
                .filter(|(uid, _)| !present.contains(*uid))
                .map(|(_, p)| p.clone())
                .collect();
            for pod in gone {
                push(&mut known, What::Deleted, pod);
            }
            for pod in list.items {
                let seen = known.contains_key(pod.metadata.uid.as_deref().unwrap_or_default());
                push(&mut known, if seen { What::Modified } else { What::Added }, pod);
            }
            version = list.metadata.resource_version.unwrap_or_default();
        }
        let Ok(stream) = api.watch(&WatchParams::default(), &version).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mut stream = std::pin::pin!(stream);
        while let Some(Ok(event)) = stream.next().await {
            let (what, pod) = match event {
                WatchEvent::Added(pod) => (What::Added, pod),
                WatchEvent::Modified(pod) => (What::Modified, pod),
                WatchEvent::Deleted(pod) => (What::Deleted, pod),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => {
                    version.clear();
                    break;
                }
            };
            if let Some(now) = &pod.metadata.resource_version {
                version.clone_from(now);
            }
            push(&mut known, what, pod);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A pod's name.
pub fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

/// Whether it is Ready and meant to stay.
pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    ready && pod.metadata.deletion_timestamp.is_none()
}
