//! How the parts of the process share one view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::sync::{mpsc, watch};

use crate::identity::FlockKey;

use super::View;

/// One watch that feeds the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Pods with the flock's label.
    Pods,
    /// ReplicaSets with the flock's label.
    ReplicaSets,
    /// ReplicationControllers with the flock's label.
    ReplicationControllers,
    /// All nodes.
    Nodes,
    /// All namespaces.
    Namespaces,
    /// All Services.
    Services,
    /// The helper pods in Flock's namespace.
    Helpers,
    /// Claims with the flock's label.
    Claims,
    /// PersistentVolumes with the flock's label.
    Volumes,
}

impl Source {
    /// Every source; the view is complete once each was listed.
    pub const ALL: [Self; 9] = [
        Self::Pods,
        Self::ReplicaSets,
        Self::ReplicationControllers,
        Self::Nodes,
        Self::Namespaces,
        Self::Services,
        Self::Helpers,
        Self::Claims,
        Self::Volumes,
    ];

    /// A name for logs and readiness.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::ReplicaSets => "replicasets",
            Self::ReplicationControllers => "replicationcontrollers",
            Self::Nodes => "nodes",
            Self::Namespaces => "namespaces",
            Self::Services => "services",
            Self::Helpers => "helpers",
            Self::Claims => "persistentvolumeclaims",
            Self::Volumes => "persistentvolumes",
        }
    }
}

struct Inner {
    view: RwLock<View>,
    synced: watch::Sender<BTreeSet<Source>>,
    generation: watch::Sender<u64>,
    /// Who wants to hear of concerned flocks: the reconciler.
    listener: Mutex<Option<mpsc::UnboundedSender<FlockKey>>>,
    begun: Instant,
    /// When each source was heard last.
    heard: Mutex<BTreeMap<Source, Instant>>,
    /// Since when each source is being listed, as often as that begins anew.
    listing: Mutex<BTreeMap<Source, Instant>>,
}

/// A handle on the one view of the process.
#[derive(Clone)]
pub struct SharedView(Arc<Inner>);

impl Default for SharedView {
    fn default() -> Self {
        Self(Arc::new(Inner {
            view: RwLock::default(),
            synced: watch::Sender::new(BTreeSet::new()),
            generation: watch::Sender::new(0),
            listener: Mutex::default(),
            begun: Instant::now(),
            heard: Mutex::default(),
            listing: Mutex::default(),
        }))
    }
}

impl SharedView {
    /// A look at the view. Keep it short: watches wait for it.
    pub fn read(&self) -> RwLockReadGuard<'_, View> {
        self.0.view.read()
    }

    /// Changes the view and tells the listener which flocks that concerned.
    pub fn update(&self, change: impl FnOnce(&mut View) -> Vec<FlockKey>) {
        let concerned = change(&mut self.0.view.write());
        self.0.generation.send_modify(|generation| *generation += 1);
        if concerned.is_empty() {
            return;
        }
        if let Some(listener) = self.0.listener.lock().as_ref() {
            for key in concerned {
                // A listener that is gone has ended with the process.
                let _ = listener.send(key);
            }
        }
    }

    /// Sends every flock that an update concerns to `listener` from now on, beginning with all there are.
    pub fn listen(&self, listener: mpsc::UnboundedSender<FlockKey>) {
        let mut slot = self.0.listener.lock();
        for key in self.read().flock_keys() {
            let _ = listener.send(key);
        }
        *slot = Some(listener);
    }

    /// Notes that a source has sent something.
    pub fn heard(&self, source: Source) {
        self.0.heard.lock().insert(source, Instant::now());
    }

    /// Notes that a list of a source begins. One that never ends, as something in it cannot be read, brings nothing new
    /// however much is sent.
    pub fn begins_list(&self, source: Source) {
        self.0.listing.lock().entry(source).or_insert_with(Instant::now);
    }

    /// How long a source has brought nothing: since the beginning, where it never has.
    pub fn silence(&self, source: Source) -> Duration {
        let last = self.0.heard.lock().get(&source).copied();
        let listing = self.0.listing.lock().get(&source).copied();
        let silent = last.unwrap_or(self.0.begun).elapsed();
        silent.max(listing.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// Notes that a source was listed whole.
    pub fn set_synced(&self, source: Source) {
        self.0.listing.lock().remove(&source);
        self.0.synced.send_if_modified(|synced| synced.insert(source));
    }

    /// The sources that were not listed yet.
    pub fn unsynced(&self) -> Vec<Source> {
        let synced = self.0.synced.borrow();
        Source::ALL
            .into_iter()
            .filter(|source| !synced.contains(source))
            .collect()
    }

    /// Waits until every source was listed.
    pub async fn wait_until_synced(&self) {
        let mut synced = self.0.synced.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let _ = synced.wait_for(|synced| synced.len() == Source::ALL.len()).await;
    }

    /// Waits until `condition` holds of the view, for at most `limit`; tells whether it does.
    pub async fn wait_for(&self, limit: Duration, condition: impl Fn(&View) -> bool) -> bool {
        let mut generation = self.0.generation.subscribe();
        let wait = async {
            while !condition(&self.read()) {
                if generation.changed().await.is_err() {
                    break;
                }
            }
        };
        tokio::time::timeout(limit, wait).await.is_ok()
    }
}
