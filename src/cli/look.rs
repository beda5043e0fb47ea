//! One look at a cluster, for the commands that show or change a flock: the same facts as the server's caches.

use clap::Args;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ReplicationController, Service};
use kube::api::{Api, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::identity::keys;
use crate::place::NodeFacts;
use crate::view::{NamespaceFacts, PodFacts, ServiceFacts, View, WorkloadFacts};

/// Which cluster.
#[derive(Clone, Debug, Args)]
pub struct Cluster {
    /// Use this kubeconfig; without it the one of kubectl.
    #[arg(long)]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
}

/// Which namespace of which cluster.
#[derive(Clone, Debug, Args)]
pub struct Where {
    /// Which cluster.
    #[command(flatten)]
    pub cluster: Cluster,
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

impl LookError {
    /// Whether the API server says that whoever asks may not see it.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::List { source: kube::Error::Api(status), .. } if status.code == 403)
    }
}

impl Cluster {
    /// How to reach it.
    pub async fn config(&self) -> Result<Config, LookError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..Default::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(LookError::NoCluster)?;
                Config::from_custom_kubeconfig(file, &options).await
            }
            None => Config::from_kubeconfig(&options).await,
        };
        config.map_err(LookError::NoCluster)
    }
}

impl Where {
    /// The client and the namespace.
    pub async fn connect(&self) -> Result<(Client, String), LookError> {
        let config = self.cluster.config().await?;
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
    look_at(client, Some(namespace)).await
}

/// Looks at all flocks of a namespace, or of the whole cluster.
pub async fn look_at(client: &Client, namespace: Option<&str>) -> Result<View, LookError> {
    let mut view = View::default();
    for node in list::<Node>("nodes", Api::all(client.clone()), false).await? {
        view.apply_node(NodeFacts::from(&node));
    }
    for found in namespaces(client, namespace).await? {
        view.apply_namespace(NamespaceFacts::from(&found));
    }
    for service in list::<Service>("services", within(client, namespace), false).await? {
        ServiceFacts::read(&service).map(|facts| view.apply_service(facts));
    }
    for set in list::<ReplicaSet>("replicasets", within(client, namespace), false).await? {
        WorkloadFacts::read_replica_set(&set).map(|(key, facts)| view.apply_workload(key, facts));
    }
    let controllers = within::<ReplicationController>(client, namespace);
    for controller in list("replicationcontrollers", controllers, false).await? {
        WorkloadFacts::read_replication_controller(&controller)
            .map(|(key, facts)| view.apply_workload(key, facts));
    }
    for pod in list::<Pod>("pods", within(client, namespace), true).await? {
        PodFacts::read(&pod).map(|(key, facts)| view.apply_pod(key, facts));
    }
    Ok(view)
}

async fn namespaces(client: &Client, name: Option<&str>) -> Result<Vec<Namespace>, LookError> {
    let what = "namespaces";
    let api = Api::<Namespace>::all(client.clone());
    let Some(name) = name else {
        return list(what, api, false).await;
    };
    let found = api.get_opt(name).await;
    Ok(found
        .map_err(|source| LookError::List { what, source })?
        .into_iter()
        .collect())
}

/// The objects of a namespace, or of all.
fn within<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
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
