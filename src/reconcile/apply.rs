//! Carries out a plan: one API call for each action, each with a precondition, so that a plan made from an old
//! view (or by a leader that was paused) fails instead of doing harm.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ReplicationController, Service};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    DeleteOptions, ObjectMeta, Preconditions as OnlyIf, Status,
};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Error};
use serde_json::{Value, json};
use thiserror::Error;

use crate::identity::{FlockKey, keys};
use crate::outdated::is_outdated;
use crate::place::{NodeFacts, Proof, lost};
use crate::storage::HelperConfig;
use crate::view::{PortFacts, ServiceFacts, SharedView, WorkloadKind};

use super::own_image::OwnImage;
use super::plan::{Action, Gone};

/// Why an action failed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// What the plan rests on has changed: it is made anew.
    #[error("{0} has changed in the meantime")]
    Outdated(String),
    /// A PodDisruptionBudget forbids the eviction.
    #[error("pod {pod} may not be evicted now: {message}")]
    Blocked {
        /// The pod.
        pod: String,
        /// The API server's words, which name the budget.
        message: String,
    },
    /// The API server refused or could not be reached.
    #[error("failed to {action} for flock {key}: {source}")]
    Api {
        /// The action.
        action: &'static str,
        /// The flock.
        key: FlockKey,
        /// Why.
        source: Error,
    },
}

/// Carries out actions.
#[derive(Clone)]
pub struct Apply {
    client: Client,
    view: SharedView,
    helper: HelperConfig,
    image: OwnImage,
}

const MANAGER: &str = keys::MANAGER;

impl Apply {
    /// Writes through `client`, and tells `view` at once what came of it.
    pub fn new(client: Client, view: SharedView, helper: HelperConfig, image: OwnImage) -> Self {
        Self {
            client,
            view,
            helper,
            image,
        }
    }

    /// Carries out one action.
    pub async fn run(&self, key: &FlockKey, action: &Action) -> Result<(), ApplyError> {
        let result = match action {
            Action::CreateService {
                name,
                ports,
                selects,
                record,
            } => {
                self.create_service(key, name, ports, *selects, record.as_deref())
                    .await
            }
            Action::MendService { name, version, ports } => {
                let patch = json!({
                    "metadata": { "resourceVersion": version },
                    "spec": {
                        "ports": ports.iter().map(port).collect::<Vec<_>>(),
                        "publishNotReadyAddresses": true,
                        "selector": { keys::NAME: key.flock.as_str() },
                    },
                });
                self.patch_service(key, name, &patch).await
            }
            Action::DeleteService { name, uid } => {
                let services = Api::<Service>::namespaced(self.client.clone(), key.namespace.as_str());
                services.delete(name, &uid_precondition(uid)).await.map(|_| ())
            }
            Action::WriteRecord {
                service,
                version,
                record,
            } => {
                let patch = json!({
                    "metadata": { "resourceVersion": version, "annotations": { keys::PLACES: record } },
                });
                self.patch_service(key, service, &patch).await
            }
            Action::Label { node, uid, ordinal } => {
                let labels = json!({ key.node_label(*ordinal): "" });
                self.patch_node(node, uid, &labels).await
            }
            Action::Unlabel { node, uid, ordinal } => {
                let labels = json!({ key.node_label(*ordinal): null });
                self.patch_node(node, uid, &labels).await
            }
            Action::ConfirmGone { what } => return self.confirm_gone(key, what).await,
            Action::Storage(action) => {
                let helpers = (&self.helper, &self.image);
                super::storage::apply(&self.client, &self.view, helpers, key, action).await
            }
            Action::OpenGate { pod, uid } => self.open_gate(key, pod, uid).await,
            Action::Wake { kind, name, uid } => self.wake(key, *kind, name, uid).await,
            Action::Evict { pod, uid, .. } => match self.evict(key, pod, uid).await {
                Err(Error::Api(status)) if status.code == 429 => {
                    return Err(ApplyError::Blocked {
                        pod: pod.clone(),
                        message: status.message.clone(),
                    });
                }
                other => other,
            },
            Action::Delete {
                pod, uid, version, ..
            } => {
                let params = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid.clone()),
                        resource_version: Some(version.clone()),
                    }),
                    ..DeleteParams::default()
                };
                let pods = Api::<Pod>::namespaced(self.client.clone(), key.namespace.as_str());
                let deleted = pods.delete(pod, &params).await.map(|_| ());
                if deleted.is_ok() {
                    self.leaves(key, pod, uid);
                }
                deleted
            }
        };
        result.map_err(|source| match source {
            Error::Api(status) if is_outdated(&status) => ApplyError::Outdated(status.message.clone()),
            source => ApplyError::Api {
                action: action.name(),
                key: key.clone(),
                source,
            },
        })
    }

    async fn create_service(
        &self,
        key: &FlockKey,
        name: &str,
        ports: &[PortFacts],
        selects: bool,
        record: Option<&str>,
    ) -> Result<(), Error> {
        let mut object = json!({
            "metadata": {
                "name": name,
                "labels": { keys::NAME: key.flock.as_str(), keys::MANAGED_BY: MANAGER },
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "ipFamilyPolicy": "PreferDualStack",
                "ports": ports.iter().map(port).collect::<Vec<_>>(),
            },
        });
        if selects {
            object["spec"]["selector"] = json!({ keys::NAME: key.flock.as_str() });
        }
        if let Some(record) = record {
            object["metadata"]["annotations"] = json!({ keys::PLACES: record });
        }
        let service: Service = serde_json::from_value(object).map_err(Error::SerdeError)?;
        let services = Api::<Service>::namespaced(self.client.clone(), key.namespace.as_str());
        let created = services.create(&manager(), &service).await?;
        self.saw_service(&created);
        Ok(())
    }

    async fn patch_service(&self, key: &FlockKey, name: &str, patch: &Value) -> Result<(), Error> {
        let services = Api::<Service>::namespaced(self.client.clone(), key.namespace.as_str());
        let patched = services
            .patch(name, &patch_manager(), &Patch::Merge(patch))
            .await?;
        self.saw_service(&patched);
        Ok(())
    }

    /// The uid in the patch is a precondition: a node that was deleted and registered again is another one.
    async fn patch_node(&self, node: &str, uid: &str, labels: &Value) -> Result<(), Error> {
        let patch = json!({ "metadata": { "uid": uid, "labels": labels } });
        let nodes = Api::<Node>::all(self.client.clone());
        let patched = nodes.patch(node, &patch_manager(), &Patch::Merge(&patch)).await?;
        self.view
            .update(|view| view.apply_node(NodeFacts::from(&patched)));
        Ok(())
    }

    async fn confirm_gone(&self, key: &FlockKey, what: &Gone) -> Result<(), ApplyError> {
        let client = self.client.clone();
        let (found, name) = match what {
            Gone::Node(name) => (
                Api::<Node>::all(client)
                    .get_metadata_opt(name)
                    .await
                    .map(|o| o.is_some()),
                name,
            ),
            Gone::Machine(name) => {
                let node = Api::<Node>::all(client).get_opt(name).await;
                let facts = node.map(|node| node.as_ref().map(NodeFacts::from));
                // One that is gone altogether is another case, which the next look finds.
                (
                    facts.map(|facts| lost(facts.as_ref()) != Some(Proof::OutOfService)),
                    name,
                )
            }
            Gone::Namespace(name) => (
                Api::<Namespace>::all(client)
                    .get_metadata_opt(name)
                    .await
                    .map(|o| o.is_some()),
                name,
            ),
        };
        match found {
            Ok(false) => Ok(()),
            Ok(true) => Err(ApplyError::Outdated(format!(
                "{name}, which seemed to be gone, exists: it"
            ))),
            Err(source) => Err(ApplyError::Api {
                action: "confirm_gone",
                key: key.clone(),
                source,
            }),
        }
    }

    /// Removes just our gate, by its name: another controller's gates stay.
    async fn open_gate(&self, key: &FlockKey, pod: &str, uid: &str) -> Result<(), Error> {
        let patch = json!({
            "metadata": { "uid": uid },
            "spec": { "schedulingGates": [{ "$patch": "delete", "name": keys::GATE }] },
        });
        let pods = Api::<Pod>::namespaced(self.client.clone(), key.namespace.as_str());
        pods.patch(pod, &patch_manager(), &Patch::Strategic(&patch))
            .await
            .map(|_| ())
    }

    async fn wake(&self, key: &FlockKey, kind: WorkloadKind, name: &str, uid: &str) -> Result<(), Error> {
        let now = jiff::Timestamp::now().to_string();
        let patch = json!({ "metadata": { "uid": uid, "annotations": { keys::WOKEN_AT: now } } });
        let (client, namespace) = (self.client.clone(), key.namespace.as_str());
        let (params, patch) = (patch_manager(), Patch::Merge(&patch));
        match kind {
            WorkloadKind::ReplicaSet => {
                Api::<ReplicaSet>::namespaced(client, namespace)
                    .patch_metadata(name, &params, &patch)
                    .await?;
            }
            WorkloadKind::ReplicationController => {
                Api::<ReplicationController>::namespaced(client, namespace)
                    .patch_metadata(name, &params, &patch)
                    .await?;
            }
        }
        Ok(())
    }

    /// Evicts this pod, and never the one that has its name by now. Not by kube's own `evict`: what it calls
    /// `delete_options` is a field that the API server does not know, so the precondition would not hold.
    async fn evict(&self, key: &FlockKey, pod: &str, uid: &str) -> Result<(), Error> {
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(pod.to_owned()),
                namespace: Some(key.namespace.to_string()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                preconditions: Some(OnlyIf {
                    uid: Some(uid.to_owned()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            }),
        };
        let pods = Api::<Pod>::namespaced(self.client.clone(), key.namespace.as_str());
        let _: Status = pods
            .create_subresource("eviction", pod, &PostParams::default(), &eviction)
            .await?;
        self.leaves(key, pod, uid);
        Ok(())
    }

    /// The watch will say so too, but the next plan may be sooner.
    fn leaves(&self, key: &FlockKey, pod: &str, uid: &str) {
        self.view.update(|view| {
            view.mark_terminating(key, pod, uid);
            Vec::new()
        });
    }

    fn saw_service(&self, service: &Service) {
        if let Some(facts) = ServiceFacts::read(service) {
            self.view.update(|view| view.apply_service(facts));
        }
    }
}

fn port(port: &PortFacts) -> Value {
    json!({ "name": port.name, "protocol": port.protocol, "port": port.port, "targetPort": port.port })
}

pub(super) fn uid_precondition(uid: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    }
}

pub(super) fn manager() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    }
}

pub(super) fn patch_manager() -> PatchParams {
    PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    }
}
