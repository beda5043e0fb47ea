//! The facts that are kept of each object.

mod cluster;
mod pod;
mod template;
mod workload;

pub use cluster::{NamespaceFacts, ServiceFacts};
pub use pod::{Phase, PodFacts};
pub use template::{PortFacts, Template};
pub use workload::{Failure, WorkloadFacts, WorkloadKind};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::identity::{FlockKey, keys};

/// The controller in an object's ownerReferences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controller {
    /// `apps/v1` and the like.
    pub api_version: String,
    /// `ReplicaSet` and the like.
    pub kind: String,
    /// Its name, in the object's namespace.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

fn flock_of(
    meta: &ObjectMeta,
    labels: Option<&std::collections::BTreeMap<String, String>>,
) -> Option<FlockKey> {
    FlockKey::parse(meta.namespace.as_deref()?, labels?.get(keys::NAME)?).ok()
}

fn controller(meta: &ObjectMeta) -> Option<Controller> {
    let owner = meta
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))?;
    Some(Controller {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    })
}
