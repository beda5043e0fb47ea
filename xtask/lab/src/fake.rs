//! Fake nodes: Node objects that the lab makes, and kwok, which plays their kubelets.

use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::components::Components;
use crate::options::Options;
use crate::pki::{Pki, write_private};
use crate::service::Service;
use crate::{digest, net};

const STAGES: &str = include_str!("stages.yaml");
/// Who holds the lease of a node that has failed. kwok leaves a node alone whose lease is somebody else's.
const FAILED: &str = "flock-lab-failed";
const LEASES: &str = "kube-node-lease";

/// A fake node to register.
#[derive(Debug, Clone)]
pub struct FakeNode {
    /// Its name, which is also its hostname.
    pub name: String,
    /// The value of its label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Its machine id and system UUID; None: made from the name, so that the same name is the same machine.
    pub machine_id: Option<String>,
    /// More labels.
    pub labels: Vec<(String, String)>,
    /// Taints that it registers with, as key, value and effect.
    pub taints: Vec<(String, String, String)>,
    /// The processors that it has for pods.
    pub cpu: String,
    /// `linux` or `windows`.
    pub os: String,
}

impl FakeNode {
    /// A node in `zone`.
    pub fn new(name: impl Into<String>, zone: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            zone: zone.into(),
            machine_id: None,
            labels: Vec::new(),
            taints: Vec::new(),
            cpu: "64".to_owned(),
            os: "linux".to_owned(),
        }
    }
}

pub(crate) fn kwok(components: &Components, pki: &Pki, run: &Path, options: &Options) -> Result<Service> {
    let config = run.join("kwok.yaml");
    write_private(&config, STAGES)?;
    let kubeconfig = pki.kubeconfig("flock-lab-kwok", &["system:masters"])?;
    let mut args = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--config={}", config.display()),
        "--manage-all-nodes".to_owned(),
        format!("--node-lease-duration-seconds={}", options.node_lease_seconds()),
        "--server-address=127.0.0.1:10247".to_owned(),
    ];
    args.extend(options.args_of("kwok"));
    Ok(Service::new("kwok", components.program("kwok"), args))
}

/// The Node object as a kubelet would register it. `index` sets its addresses.
fn manifest(node: &FakeNode, index: usize, kubernetes: &str) -> Value {
    let machine_id = node
        .machine_id
        .clone()
        .unwrap_or_else(|| digest::hex(node.name.as_bytes())[..32].to_owned());
    let mut labels = serde_json::Map::new();
    for (key, value) in [
        ("kubernetes.io/hostname", node.name.as_str()),
        ("kubernetes.io/os", &node.os),
        ("kubernetes.io/arch", "amd64"),
        ("topology.kubernetes.io/zone", &node.zone),
        ("lab.flock.dev/node", "fake"),
    ] {
        labels.insert(key.to_owned(), value.into());
    }
    labels.extend(
        node.labels
            .iter()
            .map(|(key, value)| (key.clone(), Value::from(value.as_str()))),
    );
    let taints: Vec<_> = node
        .taints
        .iter()
        .map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}))
        .collect();
    let resources = json!({"cpu": node.cpu, "memory": "256Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"taints": taints, "podCIDR": net::fake_pod_cidr(index), "podCIDRs": [net::fake_pod_cidr(index)]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": net::fake_node_ip(index)},
                {"type": "Hostname", "address": node.name},
            ],
            "capacity": resources,
            "allocatable": resources,
            "nodeInfo": {
                "machineID": machine_id,
                "systemUUID": machine_id,
                "bootID": machine_id,
                "architecture": "amd64",
                "operatingSystem": node.os,
                "osImage": "fake",
                "kernelVersion": "fake",
                "containerRuntimeVersion": "kwok://0.7.0",
                "kubeletVersion": format!("v{kubernetes}"),
                "kubeProxyVersion": "",
            },
        },
    })
}

/// Registers a node.
pub(crate) async fn register(client: &Client, node: &FakeNode, index: usize, kubernetes: &str) -> Result<()> {
    let object: Node = serde_json::from_value(manifest(node, index, kubernetes))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| format!("fake node {} could not be registered", node.name))?;
    Ok(())
}

/// Deletes a node and its lease, as the machine's removal would.
pub(crate) async fn delete(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .delete(name, &DeleteParams::default())
        .await
        .with_context(|| format!("fake node {name} could not be deleted"))?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    // The garbage collector removes it too; but a node that registers again at once needs it gone.
    let _ = leases.delete(name, &DeleteParams::default()).await;
    Ok(())
}

/// Stops the heartbeats of a node, and whatever kwok would do with its pods.
pub(crate) async fn fail(client: &Client, name: &str) -> Result<()> {
    // A lease that is good for ten years is one that kwok never takes over, and without a new renewal the
    // node's controller sees the heartbeats end. kwok may renew it in the same moment, so it is looked at again.
    let spec = json!({"spec": {"holderIdentity": FAILED, "leaseDurationSeconds": 315_360_000}});
    patch_lease(client, name, &spec)
        .await
        .with_context(|| format!("fake node {name} could not be failed"))
}

/// Lets kwok take a failed node over again.
pub(crate) async fn recover(client: &Client, name: &str, lease_seconds: u64) -> Result<()> {
    let spec = json!({"spec": {"holderIdentity": null, "leaseDurationSeconds": lease_seconds}});
    patch_lease(client, name, &spec)
        .await
        .with_context(|| format!("fake node {name} could not be recovered"))
}

async fn patch_lease(client: &Client, name: &str, patch: &Value) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    leases
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// Ends a pod's containers in one way or another by writing what a kubelet would report: tests use it to
/// crash one.
pub(crate) async fn patch_pod_status(
    client: &Client,
    namespace: &str,
    name: &str,
    status: &Value,
) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    pods.patch_status(
        name,
        &PatchParams::default(),
        &Patch::Strategic(json!({"status": status})),
    )
    .await
    .with_context(|| format!("the status of pod {namespace}/{name} could not be written"))?;
    Ok(())
}
