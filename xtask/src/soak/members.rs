//! Members that run: two with data on the disks of their nodes, deleted in turn, each as soon as all are Ready again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flock_lab::Lab;
use flock_lab::image::BUSYBOX_IMAGE;
use flock_lab::recording::is_ready;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DeleteParams};
use serde_json::json;

use super::report::Report;

/// The namespace of the members.
pub(crate) const NAMESPACE: &str = "soak-members";
/// As many as the lab has nodes: each has one for itself.
pub(crate) const COUNT: usize = 2;
const FLOCK: &str = "db";
/// A member that is not back by then is lost.
const PATIENCE: Duration = Duration::from_secs(180);
/// Each start adds its name to the log in the member's volume.
const SCRIPT: &str = "echo $(hostname) >> /data/log && touch /tmp/up; trap 'exit 0' TERM; \
                      while :; do sleep 86400 & wait $!; done";

/// Makes them, and waits until they are Ready.
pub(crate) fn create(lab: &Lab) -> Result<()> {
    let manifest = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "name": FLOCK, "namespace": NAMESPACE },
        "spec": {
            "replicas": COUNT,
            "selector": { "matchLabels": { "app": FLOCK } },
            "template": {
                "metadata": {
                    "labels": { "app": FLOCK, "flock.dev/name": FLOCK },
                    "annotations": { "flock.dev/volumes": "data" },
                },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "volumes": [{ "name": "data", "emptyDir": {} }],
                    "containers": [{
                        "name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
                        "command": ["sh", "-c", SCRIPT],
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                        "readinessProbe": { "exec": { "command": ["test", "-e", "/tmp/up"] }, "periodSeconds": 1 },
                    }],
                },
            },
        },
    });
    lab.apply(&manifest.to_string())?;
    lab.kubectl(&[
        "-n",
        NAMESPACE,
        "wait",
        "--for=jsonpath={.status.readyReplicas}=2",
        "replicaset/db",
        "--timeout=180s",
    ])
    .map(drop)
}

/// Deletes one after the other until `over`; returns how long each was away.
pub(crate) async fn delete(client: Client, report: Arc<Report>, over: Arc<AtomicBool>) -> Vec<Duration> {
    let api = Api::<Pod>::namespaced(client, NAMESPACE);
    let mut away = Vec::new();
    for ordinal in (0..COUNT).cycle() {
        if over.load(Relaxed) {
            break;
        }
        let name = format!("{FLOCK}-{ordinal}");
        let begin = Instant::now();
        let mut old = None;
        // The API server may be away for a moment, and a call may be lost that was carried out.
        let back = loop {
            let pod = api.get_opt(&name).await;
            let uid = |pod: &Pod| pod.metadata.uid.clone();
            match (pod, &old) {
                (Ok(Some(pod)), None) => {
                    old = uid(&pod);
                    let _ = api.delete(&name, &DeleteParams::default()).await;
                }
                (Ok(Some(pod)), Some(_)) if uid(&pod) == old && pod.metadata.deletion_timestamp.is_none() => {
                    let _ = api.delete(&name, &DeleteParams::default()).await;
                }
                (Ok(Some(pod)), Some(_)) if uid(&pod) != old && is_ready(&pod) => break true,
                _ => {}
            }
            if begin.elapsed() > PATIENCE {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        if !back {
            report.violation(format!(
                "{name} was deleted and not back after {} s",
                PATIENCE.as_secs()
            ));
            break;
        }
        away.push(begin.elapsed());
    }
    away
}

/// What is wrong with the members' data: on its disk every start of a member, and of nobody else, has left a line.
/// There is at least one for every life; a container that was started twice in one life left two.
pub(crate) fn check_data(lab: &Lab, starts: usize) -> Result<Vec<String>> {
    let get = |what: &str, path: &str| lab.kubectl(&["-n", NAMESPACE, "get", what, path]);
    let uid = lab.kubectl(&["get", "namespace", NAMESPACE, "-o=jsonpath={.metadata.uid}"])?;
    let mut wrong = Vec::new();
    let mut lines = 0;
    for ordinal in 0..COUNT {
        let name = format!("{FLOCK}-{ordinal}");
        let node = get(&format!("pod/{name}"), "-o=jsonpath={.spec.nodeName}")?;
        let path = lab
            .node_disk(&node)?
            .join(format!("{NAMESPACE}_{uid}/{FLOCK}/{ordinal}/data/log"));
        let log = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
        lines += log.lines().count();
        wrong.extend(
            log.lines()
                .filter(|line| *line != name)
                .map(|line| format!("{line} wrote into the data of {name}")),
        );
    }
    if lines < starts {
        wrong.push(format!(
            "{starts} members started and left {lines} lines: data was lost"
        ));
    }
    Ok(wrong)
}
