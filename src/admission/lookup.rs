//! Live looks at the API server, for the cases that the caches cannot decide. None is on the normal path.

use std::fmt::Debug;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::{Api, ListParams};
use kube::{Client, Error};
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::identity::{FlockKey, Ordinal, keys};
use crate::view::{Flock, PodFacts, WorkloadFacts, fetch_workload};

/// How many looks for one object are under way at one time. Whoever reaches the port can cause them, and they are made
/// with Flock's rights and priority; the others wait as long as their callers do.
const AT_ONCE: usize = 4;
/// How many looks for a whole flock. They take longer, so they have turns of their own.
const LISTS_AT_ONCE: usize = 2;
/// How many objects come in one answer: a pod may have a hundred KiB, and a flock thousands of pods.
const PAGE: u32 = 200;

/// Looks up, and counts its requests: a test proves that the normal path makes none.
pub struct Lookup {
    client: Client,
    requests: Counter,
    turns: Semaphore,
    lists: Semaphore,
}

impl Lookup {
    /// Looks through `client`, and counts in `requests`.
    pub fn new(client: Client, requests: Counter) -> Self {
        Self {
            client,
            requests,
            turns: Semaphore::new(AT_ONCE),
            lists: Semaphore::new(LISTS_AT_ONCE),
        }
    }

    /// A flock as the API server has it now.
    pub async fn flock(&self, key: &FlockKey) -> Result<Flock, Error> {
        let namespace = key.namespace.as_str();
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let sets = Api::<ReplicaSet>::namespaced(self.client.clone(), namespace);
        let controllers = Api::<ReplicationController>::namespaced(self.client.clone(), namespace);
        let _turn = self.lists.acquire().await;
        let (pods, sets, controllers) = tokio::try_join!(
            self.facts(&pods, key, PodFacts::read),
            self.facts(&sets, key, WorkloadFacts::read_replica_set),
            self.facts(&controllers, key, WorkloadFacts::read_replication_controller)
        )?;
        let mut flock = Flock::default();
        flock.extend(pods, sets.into_iter().chain(controllers));
        Ok(flock)
    }

    /// What is known of the flock's objects of one kind, page by page: only the facts of earlier pages are kept.
    async fn facts<K, F>(
        &self,
        api: &Api<K>,
        key: &FlockKey,
        read: impl Fn(&K) -> Option<(FlockKey, F)>,
    ) -> Result<Vec<F>, Error>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        let mut params = ListParams::default()
            .labels(&format!("{}={}", keys::NAME, key.flock))
            .limit(PAGE);
        let mut facts = Vec::new();
        loop {
            self.requests.inc();
            let page = api.list(&params).await?;
            let of_flock = page.iter().filter_map(&read).filter(|(of, _)| of == key);
            facts.extend(of_flock.map(|(_, fact)| fact));
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params.continue_token = Some(token),
                _ => return Ok(facts),
            }
        }
    }

    /// A workload by kind, name and uid; `None` if there is none with that uid, or its template is not of `key`.
    pub async fn owner(
        &self,
        key: &FlockKey,
        kind: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<WorkloadFacts>, Error> {
        let _turn = self.turns.acquire().await;
        self.requests.inc();
        fetch_workload(self.client.clone(), key, kind, name, uid).await
    }

    /// Whether a pod of any kind has the name of this ordinal.
    pub async fn is_taken(&self, key: &FlockKey, ordinal: Ordinal) -> Result<bool, Error> {
        let api = Api::<Pod>::namespaced(self.client.clone(), key.namespace.as_str());
        let _turn = self.turns.acquire().await;
        self.requests.inc();
        Ok(api
            .get_metadata_opt(&format!("{}-{ordinal}", key.flock))
            .await?
            .is_some())
    }
}
