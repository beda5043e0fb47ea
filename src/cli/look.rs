//! One look at a cluster, for the commands that show or change a flock: the same facts as the server's caches.

use clap::Args;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ReplicationController, Service};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::identity::keys;
use crate::place::NodeFacts;
use crate::view::{NamespaceFacts, PodFacts, ServiceFacts, View, WorkloadFacts};

/// Which namespace of which cluster.
#[derive(Clone, Debug, Args)]
pub struct Where {
    /// Use this kubeconfig; without it the one of kubectl.
    #[arg(long)]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
    /// The flock's namespace; without it the context's.
    #[arg(short, long)]
    pub namespace: Option<String>,
}

/// Why the cluster could not be looked at.
#[derive(Debug, Error)]
pub enum LookError {
    /// No cluster is configured.
    #[error("no cluster: give --kubeconfig, or set one up for kubectl")]
    NoCluster(#[source] kube::config::KubeconfigError),
    /// The kubeconfig's client cannot be made.
    #[error("the client for the cluster cannot be made")]
    Client(#[source] kube::Error),
    /// A list failed.
    #[error("the {what} cannot be listed")]
    List {
        /// Of what.
        what: &'static str,
        /// Why.
        source: kube::Error,
    },
}

impl Where {
    /// The client and the namespace.
    pub async fn connect(&self) -> Result<(Client, String), LookError> {
        let options = kube::config::KubeConfigOptions {
            context: self.context.clone(),
            ..Default::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = kube::config::Kubeconfig::read_from(path).map_err(LookError::NoCluster)?;
                kube::Config::from_custom_kubeconfig(file, &options).await
            }
            None => kube::Config::from_kubeconfig(&options).await,
        };
        let config = config.map_err(LookError::NoCluster)?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(LookError::Client)?;
        Ok((client, namespace))
    }
}

/// Looks at all flocks of a namespace.
pub async fn look(client: &Client, namespace: &str) -> Result<View, LookError> {
    let mut view = View::default();
    for node in list::<Node>("nodes", Api::all(client.clone()), false).await? {
        view.apply_node(NodeFacts::from(&node));
    }
    let namespaces = Api::<Namespace>::all(client.clone());
    let found = namespaces.get_opt(namespace).await;
    if let Some(found) = found.map_err(|source| LookError::List {
        what: "namespaces",
        source,
    })? {
        view.apply_namespace(NamespaceFacts::from(&found));
    }
    for service in list::<Service>("services", Api::namespaced(client.clone(), namespace), false).await? {
        ServiceFacts::read(&service).map(|facts| view.apply_service(facts));
    }
    for set in list::<ReplicaSet>("replicasets", Api::namespaced(client.clone(), namespace), false).await? {
        WorkloadFacts::read_replica_set(&set).map(|(key, facts)| view.apply_workload(key, facts));
    }
    let controllers = Api::namespaced(client.clone(), namespace);
    for controller in list::<ReplicationController>("replicationcontrollers", controllers, false).await? {
        WorkloadFacts::read_replication_controller(&controller)
            .map(|(key, facts)| view.apply_workload(key, facts));
    }
    for pod in list::<Pod>("pods", Api::namespaced(client.clone(), namespace), true).await? {
        PodFacts::read(&pod).map(|(key, facts)| view.apply_pod(key, facts));
    }
    Ok(view)
}

/// All of a kind, in pages; of `members` only what has the flock's label.
async fn list<K>(what: &'static str, api: Api<K>, members: bool) -> Result<Vec<K>, LookError>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + ResourceExt,
{
    let mut params = ListParams::default().limit(500);
    if members {
        params = params.labels(keys::NAME);
    }
    let mut all = Vec::new();
    loop {
        let page = api
            .list(&params)
            .await
            .map_err(|source| LookError::List { what, source })?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}
