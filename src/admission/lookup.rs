//! Live looks at the API server, for the cases that the caches cannot decide. None is on the normal path.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::api::{Api, ListParams};
use kube::{Client, Error};
use prometheus_client::metrics::counter::Counter;

use crate::identity::{FlockKey, Ordinal, keys};
use crate::view::{Flock, PodFacts, WorkloadFacts, fetch_workload};

/// Looks up, and counts its requests: a test proves that the normal path makes none.
pub struct Lookup {
    client: Client,
    requests: Counter,
}

impl Lookup {
    /// Looks through `client`, and counts in `requests`.
    pub fn new(client: Client, requests: Counter) -> Self {
        Self { client, requests }
    }

    /// A flock as the API server has it now.
    pub async fn flock(&self, key: &FlockKey) -> Result<Flock, Error> {
        let namespace = key.namespace.as_str();
        let members = ListParams::default().labels(&format!("{}={}", keys::NAME, key.flock));
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let sets = Api::<ReplicaSet>::namespaced(self.client.clone(), namespace);
        let controllers = Api::<ReplicationController>::namespaced(self.client.clone(), namespace);
        self.requests.inc_by(3);
        let (pods, sets, controllers) = tokio::try_join!(
            pods.list(&members),
            sets.list(&members),
            controllers.list(&members)
        )?;
        let mut flock = Flock::default();
        flock.extend(
            pods.iter()
                .filter_map(PodFacts::read)
                .filter(|(k, _)| k == key)
                .map(|(_, pod)| pod),
            sets.iter()
                .filter_map(WorkloadFacts::read_replica_set)
                .chain(
                    controllers
                        .iter()
                        .filter_map(WorkloadFacts::read_replication_controller),
                )
                .filter(|(k, _)| k == key)
                .map(|(_, workload)| workload),
        );
        Ok(flock)
    }

    /// A workload by kind, name and uid; `None` if there is none with that uid, or its template is not of `key`.
    pub async fn owner(
        &self,
        key: &FlockKey,
        kind: &str,
        name: &str,
        uid: &str,
    ) -> Result<Option<WorkloadFacts>, Error> {
        self.requests.inc();
        fetch_workload(self.client.clone(), key, kind, name, uid).await
    }

    /// Whether a pod of any kind has the name of this ordinal.
    pub async fn is_taken(&self, key: &FlockKey, ordinal: Ordinal) -> Result<bool, Error> {
        let api = Api::<Pod>::namespaced(self.client.clone(), key.namespace.as_str());
        self.requests.inc();
        Ok(api
            .get_metadata_opt(&format!("{}-{ordinal}", key.flock))
            .await?
            .is_some())
    }
}
