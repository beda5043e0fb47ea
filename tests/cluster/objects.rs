//! The objects that tests apply.

use serde_json::{Value, json};

/// A workload with members of the flock `db`.
pub fn workload(kind: &str, name: &str, replicas: u32) -> Value {
    member_of("db", kind, name, replicas)
}

/// A workload with members of a flock.
pub fn member_of(flock: &str, kind: &str, name: &str, replicas: u32) -> Value {
    let api = if kind == "ReplicationController" {
        "v1"
    } else {
        "apps/v1"
    };
    let selector = json!({ "app": name });
    let selector = if kind == "ReplicationController" {
        selector
    } else {
        json!({ "matchLabels": selector })
    };
    json!({
        "apiVersion": api, "kind": kind,
        "metadata": { "name": name, "labels": { "flock.dev/name": flock } },
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": {
                "metadata": { "labels": { "app": name, "flock.dev/name": flock } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }],
                },
            },
        },
    })
}

/// A ReplicaSet without anything of Flock.
pub fn plain(replicas: u32) -> Value {
    let mut plain = workload("ReplicaSet", "plain", replicas);
    plain["metadata"]["labels"] = json!({});
    plain["spec"]["template"]["metadata"]["labels"] = json!({ "app": "plain" });
    plain
}

/// A bare pod of a flock, with what a test adds to its metadata.
pub fn bare(flock: &str, metadata: &Value) -> Value {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "labels": { "flock.dev/name": flock } },
        "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
    });
    with(pod, &json!({ "metadata": metadata }))
}

/// `object` with `change` merged into it.
pub fn with(mut object: Value, change: &Value) -> Value {
    json_patch::merge(&mut object, change);
    object
}

/// A workload with annotations on its template.
pub fn annotated(workload: Value, annotations: &Value) -> Value {
    with(
        workload,
        &json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } }),
    )
}

/// A workload several members of which may share a node.
pub fn shared(workload: Value) -> Value {
    annotated(workload, &json!({ "flock.dev/pin": "Shared" }))
}

/// A Deployment with a strategy.
pub fn deployment(replicas: u32, strategy: &Value) -> Value {
    with(
        workload("Deployment", "db", replicas),
        &json!({ "spec": { "strategy": strategy } }),
    )
}

/// The names of members of the flock `db`.
pub fn members(ordinals: impl IntoIterator<Item = u32>) -> Vec<String> {
    ordinals
        .into_iter()
        .map(|ordinal| format!("db-{ordinal}"))
        .collect()
}
