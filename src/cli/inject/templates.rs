//! From a workload to the pods that its controller would create.

use serde_json::{Value, json};

use crate::identity::keys;

/// The ReplicaSet that would make a workload's pods.
pub(super) fn as_replica_set(object: &Value) -> Value {
    let mut set = json!({
        "metadata": {
            "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
            "uid": format!("{} {}", object["kind"], object["metadata"]["name"]),
            "labels": object["spec"]["template"]["metadata"]["labels"],
        },
        "spec": { "replicas": object["spec"]["replicas"], "selector": {}, "template": object["spec"]["template"] },
    });
    if object["kind"] == "Deployment" {
        put(
            &mut set,
            &["metadata", "ownerReferences"],
            json!([{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": object["metadata"]["name"], "uid": "",
                "controller": true,
            }]),
        );
    }
    set
}

/// The pod that a workload's controller would create, already named: all its ordinals are shown.
pub(super) fn from_template(object: &Value, namespace: &str, name: &str) -> Value {
    let mut pod = object["spec"]["template"].clone();
    put(&mut pod, &["apiVersion"], json!("v1"));
    put(&mut pod, &["kind"], json!("Pod"));
    put(&mut pod, &["metadata", "namespace"], json!(namespace));
    put(&mut pod, &["metadata", "name"], json!(name));
    if object["kind"] == "StatefulSet" {
        stateful(&mut pod, object, name);
    } else {
        put(
            &mut pod,
            &["metadata", "generateName"],
            json!(format!(
                "{}-",
                object["metadata"]["name"].as_str().unwrap_or_default()
            )),
        );
    }
    pod
}

/// What the StatefulSet controller sets by itself (`k8s.io/kubernetes/pkg/controller/statefulset`).
fn stateful(pod: &mut Value, set: &Value, name: &str) {
    put(
        pod,
        &["metadata", "ownerReferences"],
        json!([{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set["metadata"]["name"], "uid": "", "controller": true,
        }]),
    );
    put(
        pod,
        &["metadata", "labels", "statefulset.kubernetes.io/pod-name"],
        json!(name),
    );
    if let Some((_, ordinal)) = name.rsplit_once('-') {
        put(pod, &["metadata", "labels", keys::POD_INDEX], json!(ordinal));
    }
    put(pod, &["spec", "hostname"], json!(name));
    if let Some(service) = set["spec"]["serviceName"].as_str() {
        put(pod, &["spec", "subdomain"], json!(service));
    }
    let claims: Vec<_> = set["spec"]["volumeClaimTemplates"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|claim| claim["metadata"]["name"].as_str())
        .collect();
    if claims.is_empty() {
        return;
    }
    let own = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    let own = own
        .into_iter()
        .filter(|volume| volume["name"].as_str().is_none_or(|name| !claims.contains(&name)));
    let of_claims = claims.iter().map(
        |claim| json!({ "name": claim, "persistentVolumeClaim": { "claimName": format!("{claim}-{name}") } }),
    );
    put(pod, &["spec", "volumes"], own.chain(of_claims).collect());
}

/// Sets a field, and makes the objects that it is in where there are none.
pub(super) fn put(object: &mut Value, path: &[&str], value: Value) {
    let mut at = object;
    for key in path {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[*key];
    }
    *at = value;
}
