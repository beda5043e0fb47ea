//! What the lab's tests share.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test uses a part of it, and nothing else does"
)]

use std::time::{Duration, Instant};

use flock_lab::{Lab, Options};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};

/// A lab with three fake nodes that are found unreachable after five seconds.
pub(crate) fn start() -> Lab {
    Lab::start(Options {
        node_monitor_grace: Some(Duration::from_secs(5)),
        ..Options::fake(3)
    })
    .unwrap()
}

/// Waits for `value` to be had.
pub(crate) fn eventually<T>(what: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what} took too long");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The pods of the namespace `default` that have the label `app`.
pub(crate) fn pods(lab: &Lab, app: &str) -> Vec<Pod> {
    lab.block_on(async {
        let pods: Api<Pod> = Api::default_namespaced(lab.client().await.unwrap());
        pods.list(&ListParams::default().labels(&format!("app={app}")))
            .await
            .unwrap()
            .items
    })
}

/// A pod that runs and is ready.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) name: String,
    pub(crate) ip: std::net::IpAddr,
    pub(crate) node: String,
}

/// Those pods of `app` that run and are ready.
pub(crate) fn ready_pods(lab: &Lab, app: &str) -> Vec<Ready> {
    let ready = |pod: Pod| {
        let status = pod.status?;
        let ready = status
            .conditions?
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True");
        (status.phase? == "Running" && ready).then_some(Ready {
            name: pod.metadata.name?,
            ip: status.pod_ip?.parse().ok()?,
            node: pod.spec?.node_name?,
        })
    };
    pods(lab, app).into_iter().filter_map(ready).collect()
}

/// A headless Service and a ReplicaSet, both named `app`, with `replicas` pods of which the template's `spec`
/// says more.
pub(crate) fn replica_set(
    app: &str,
    replicas: u32,
    annotations: &serde_json::Value,
    spec: &serde_json::Value,
) -> String {
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": [
        {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": app},
            "spec": {"clusterIP": "None", "selector": {"app": app}, "ports": [{"port": 80}]},
        },
        {
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": app},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": app}},
                "template": {"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": spec},
            },
        },
    ]});
    list.to_string()
}
