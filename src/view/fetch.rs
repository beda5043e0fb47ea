//! One workload as the API server has it now, for those that no watch by label brings.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::ReplicationController;
use kube::api::Api;
use kube::{Client, Error};

use super::WorkloadFacts;
use crate::identity::{FlockKey, is_object_name};

/// The workload of this kind (`ReplicaSet`, or else `ReplicationController`) and name in the flock's namespace; `None`
/// if there is none with that uid, or its template is not of the flock.
pub async fn fetch_workload(
    client: Client,
    key: &FlockKey,
    kind: &str,
    name: &str,
    uid: &str,
) -> Result<Option<WorkloadFacts>, Error> {
    // A pod may say anything of its owner, and this becomes a part of a path: `..`, `?watch=true`.
    if !is_object_name(name) {
        return Ok(None);
    }
    let namespace = key.namespace.as_str();
    let read = if kind == "ReplicaSet" {
        let set = Api::<ReplicaSet>::namespaced(client, namespace)
            .get_opt(name)
            .await?;
        set.as_ref().and_then(WorkloadFacts::read_replica_set)
    } else {
        let controller = Api::<ReplicationController>::namespaced(client, namespace)
            .get_opt(name)
            .await?;
        controller
            .as_ref()
            .and_then(WorkloadFacts::read_replication_controller)
    };
    Ok(read
        .filter(|(of, workload)| of == key && workload.uid == uid)
        .map(|(_, workload)| workload))
}
