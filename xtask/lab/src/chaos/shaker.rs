//! Carries operations out, and waits for what must come of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use serde_json::{Value, json};

use crate::audit::Mark;
use crate::recording::{Recording, is_ready, name};
use crate::{Flock, Lab, Signal};

use super::model::Workload;
use super::operation::Operation;

const NAMESPACE: &str = "chaos";
/// How long a cluster that is left alone may take to what is wanted. A leader that died without a word is missed
/// after 15 s, a ReplicaSet that was refused pauses for up to 40 s, and a machine that builds at the same time is slow.
const PATIENCE: Duration = Duration::from_secs(180);

pub(super) struct Shaker {
    lab: Arc<Lab>,
    flock: Flock,
    client: Client,
    audit: Mark,
    pub(super) recording: Recording,
    pub(super) workloads: Vec<Workload>,
    possible: BTreeSet<String>,
    nodes: usize,
    failed: BTreeSet<usize>,
    paused: BTreeMap<usize, Instant>,
    _runtime: tokio::runtime::Runtime,
}

impl Shaker {
    pub(super) fn new(lab: &Arc<Lab>, flock: Flock, nodes: usize) -> Result<Self> {
        let client = lab.block_on(lab.client())?;
        let runtime = lab.runtime()?;
        let metadata = ObjectMeta {
            name: Some(NAMESPACE.into()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        let namespaces = Api::all(client.clone());
        lab.block_on(async { namespaces.create(&PostParams::default(), &namespace).await })?;
        let recording = Recording::start(runtime.handle(), client.clone(), NAMESPACE);
        let workloads = Workload::all();
        let shaker = Self {
            audit: Mark::now(&lab.audit_log()?)?,
            lab: Arc::clone(lab),
            flock,
            client,
            recording,
            possible: workloads
                .iter()
                .flat_map(|workload| workload.possible().collect::<Vec<_>>())
                .collect(),
            workloads,
            nodes,
            failed: BTreeSet::new(),
            paused: BTreeMap::new(),
            _runtime: runtime,
        };
        for workload in &shaker.workloads {
            shaker.request("POST", &workload.path(NAMESPACE), Some(&workload.object()))?;
        }
        Ok(shaker)
    }

    pub(super) fn pods(&self) -> usize {
        self.recording.count_created()
    }

    pub(super) fn clashes(&self) -> Result<usize> {
        let taken = |request: &crate::audit::Request| {
            request.verb == "create" && request.resource == "pods" && request.reason == "AlreadyExists"
        };
        Ok(self.audit.since("AlreadyExists", taken)?.len())
    }

    pub(super) fn violations(&self) -> Vec<String> {
        let mut violations = self.recording.violations(false);
        let names = self.recording.names();
        violations.extend(
            names
                .difference(&self.possible)
                .map(|name| format!("no workload may have {name}")),
        );
        violations
    }

    /// Carries an operation out. What it is done to may not be there; that is no failure.
    pub(super) fn carry_out(&mut self, operation: &Operation) -> Result<()> {
        self.resume(Instant::now())?;
        match operation {
            Operation::Scale(workload, replicas) => {
                self.workloads[*workload].replicas = *replicas;
                self.patch_workload(*workload, &json!({ "spec": { "replicas": replicas } }))?;
            }
            Operation::Roll(workload, tag) => self.roll(*workload, tag)?,
            Operation::Undo(workload) => self.roll(*workload, self.workloads[*workload].before)?,
            Operation::Annotate(workload, value) => {
                self.workloads[*workload].annotate("changed", &value.to_string());
                self.patch_template(*workload)?;
            }
            Operation::Order(workload, ordered) => {
                let start = if *ordered { "Ordered" } else { "Parallel" };
                self.workloads[*workload].annotate("flock.dev/start", start);
                self.patch_template(*workload)?;
            }
            Operation::Recreate(workload, orphan) => self.recreate(*workload, *orphan)?,
            Operation::DeleteService(service) => {
                self.attempt(
                    "DELETE",
                    &format!("/api/v1/namespaces/{NAMESPACE}/services/{service}"),
                    None,
                );
            }
            Operation::Rest(millis) => std::thread::sleep(Duration::from_millis(*millis)),
            Operation::Cordon(_)
            | Operation::Drain(_)
            | Operation::Uncordon(_)
            | Operation::FailNode(_)
            | Operation::RecoverNode(_) => self.on_node(operation)?,
            Operation::StopFlock(_)
            | Operation::KillFlock(_)
            | Operation::PauseFlock(..)
            | Operation::KillComponent(_) => self.on_process(operation)?,
            _ => self.on_pod(operation),
        }
        Ok(())
    }

    fn on_pod(&self, operation: &Operation) {
        let path = |pod: &str| format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}");
        match operation {
            Operation::Delete(pod) => self.attempt("DELETE", &path(pod), None),
            Operation::ForceDelete(pod) => {
                self.attempt("DELETE", &format!("{}?gracePeriodSeconds=0", path(pod)), None);
            }
            Operation::Evict(pod) => {
                let eviction = json!({
                    "apiVersion": "policy/v1", "kind": "Eviction",
                    "metadata": { "name": pod, "namespace": NAMESPACE },
                });
                self.attempt("POST", &format!("{}/eviction", path(pod)), Some(&eviction));
            }
            Operation::End(pod, failed) => {
                let (phase, reason) = if *failed {
                    ("Failed", "Evicted")
                } else {
                    ("Succeeded", "Completed")
                };
                let status = json!({ "status": { "phase": phase, "reason": reason, "conditions": [] } });
                self.attempt("PATCH", &format!("{}/status", path(pod)), Some(&status));
            }
            Operation::Unready(pod) => {
                let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
                self.attempt("PATCH", &format!("{}/status", path(pod)), Some(&status));
            }
            Operation::Orphan(pod) => {
                let label = json!({ "metadata": { "labels": { "app": "nobody" } } });
                self.attempt("PATCH", &path(pod), Some(&label));
            }
            Operation::Tamper(pod) => {
                let label = json!({ "metadata": { "labels": { "flock.dev/ordinal": "77" } } });
                self.attempt("PATCH", &path(pod), Some(&label));
            }
            _ => {}
        }
    }

    fn on_node(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Cordon(node) => self.cordon(*node, true),
            Operation::Uncordon(node) => self.cordon(*node, false),
            Operation::Drain(node) => {
                self.cordon(*node, true);
                for pod in self.list_pods()? {
                    let here = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
                    if here == Some(format!("node-{node}").as_str()) {
                        self.on_pod(&Operation::Evict(name(&pod)));
                    }
                }
            }
            Operation::FailNode(node) => {
                self.lab.fail_fake_node(&format!("node-{node}"))?;
                self.failed.insert(*node);
            }
            Operation::RecoverNode(node) if self.failed.remove(node) => {
                self.lab.recover_fake_node(&format!("node-{node}"))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn on_process(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::StopFlock(replica) => {
                self.resume_all()?;
                self.flock.stop(*replica)?;
                self.flock.start(*replica)?;
            }
            Operation::KillFlock(replica) => {
                self.paused.remove(replica);
                self.flock.kill(*replica)?;
                self.flock.start(*replica)?;
            }
            Operation::PauseFlock(replica, millis) => {
                self.flock.signal(*replica, Signal::SIGSTOP)?;
                self.paused
                    .insert(*replica, Instant::now() + Duration::from_millis(*millis));
            }
            Operation::KillComponent(component) => {
                self.lab.kill(component)?;
                self.lab.start_component(component)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn roll(&mut self, workload: usize, tag: &'static str) -> Result<()> {
        let workload_mut = &mut self.workloads[workload];
        workload_mut.before = std::mem::replace(&mut workload_mut.tag, tag);
        self.patch_template(workload)
    }

    fn recreate(&self, workload: usize, orphan: bool) -> Result<()> {
        let workload = &self.workloads[workload];
        let policy = if orphan { "Orphan" } else { "Background" };
        let path = workload.path(NAMESPACE);
        self.attempt(
            "DELETE",
            &format!("{path}/{}?propagationPolicy={policy}", workload.name),
            None,
        );
        let deadline = Instant::now() + PATIENCE;
        // With `Orphan` it stays until its pods are let go.
        while let Err(error) = self.request("POST", &path, Some(&workload.object())) {
            if Instant::now() > deadline {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn cordon(&self, node: usize, unschedulable: bool) {
        let spec = json!({ "spec": { "unschedulable": unschedulable } });
        self.attempt("PATCH", &format!("/api/v1/nodes/node-{node}"), Some(&spec));
    }

    fn resume(&mut self, now: Instant) -> Result<()> {
        let due: Vec<_> = self
            .paused
            .iter()
            .filter(|(_, at)| **at <= now)
            .map(|(replica, _)| *replica)
            .collect();
        for replica in due {
            self.paused.remove(&replica);
            self.flock.signal(replica, Signal::SIGCONT)?;
        }
        Ok(())
    }

    fn resume_all(&mut self) -> Result<()> {
        for replica in std::mem::take(&mut self.paused).into_keys() {
            self.flock.signal(replica, Signal::SIGCONT)?;
        }
        Ok(())
    }

    /// Takes back what only its author can: broken images, nodes that fail, pods that nobody owns.
    pub(super) fn calm(&mut self) -> Result<()> {
        self.resume_all()?;
        for node in 0..self.nodes {
            self.cordon(node, false);
            if self.failed.remove(&node) {
                self.lab.recover_fake_node(&format!("node-{node}"))?;
            }
        }
        for workload in 0..self.workloads.len() {
            if self.workloads[workload].tag == "broken" {
                self.roll(workload, "3.9")?;
            }
        }
        for replica in 0..self.flock.len() {
            self.flock.wait_ready(replica)?;
        }
        Ok(())
    }

    /// Waits until just the wanted pods are there, and tells how long it took.
    pub(super) fn converge(&self) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            self.lab.revive()?;
            let pods = self.list_pods()?;
            let Some(difference) = self.difference(&pods) else {
                return Ok(begin.elapsed());
            };
            if begin.elapsed() > PATIENCE {
                bail!("it did not come to what is wanted in {PATIENCE:?}: {difference}");
            }
            // One that its owner has let go, and one that is unready for ever, are their users' to remove.
            for pod in pods.iter().filter(|pod| pod.metadata.owner_references.is_none()) {
                self.on_pod(&Operation::Delete(name(pod)));
            }
            if begin.elapsed() > Duration::from_secs(3) {
                for pod in pods.iter().filter(|pod| is_stuck_unready(pod)) {
                    self.on_pod(&Operation::Delete(name(pod)));
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn difference(&self, pods: &[Pod]) -> Option<String> {
        let fixed: BTreeMap<String, Option<&str>> = self
            .workloads
            .iter()
            .flat_map(|w| w.wanted().map(|(pod, tag)| (pod, w.rolls().then_some(tag))))
            .collect();
        let mut wrong: Vec<String> = Vec::new();
        for pod in pods {
            let name = name(pod);
            let image = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.containers.first()?.image.clone())
                .unwrap_or_default();
            match fixed.get(&name) {
                None => wrong.push(format!("{name} is not wanted")),
                Some(Some(tag)) if !image.ends_with(&format!(":{tag}")) => {
                    wrong.push(format!("{name} runs {image}, not {tag}"));
                }
                Some(_) if !is_ready(pod) => wrong.push(format!("{name} is not ready")),
                Some(_) => {}
            }
        }
        let present: BTreeSet<_> = pods.iter().map(name).collect();
        wrong.extend(
            fixed
                .keys()
                .filter(|pod| !present.contains(*pod))
                .map(|pod| format!("{pod} is missing")),
        );
        (!wrong.is_empty()).then(|| wrong.join(", "))
    }

    fn list_pods(&self) -> Result<Vec<Pod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let list = self
            .lab
            .block_on(async { pods.list(&ListParams::default()).await });
        Ok(list.context("pods can't be listed")?.items)
    }

    fn patch_workload(&self, workload: usize, change: &Value) -> Result<()> {
        let workload = &self.workloads[workload];
        let path = format!("{}/{}", workload.path(NAMESPACE), workload.name);
        self.request("PATCH", &path, Some(change)).map(drop)
    }

    fn patch_template(&self, workload: usize) -> Result<()> {
        self.patch_workload(
            workload,
            &json!({ "spec": { "template": self.workloads[workload].template() } }),
        )
    }

    /// A request that may well be refused.
    fn attempt(&self, method: &str, path: &str, body: Option<&Value>) {
        let _ = self.request(method, path, body);
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let kind = if method == "PATCH" {
            "application/merge-patch+json"
        } else {
            "application/json"
        };
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", kind)
            .body(bytes)?;
        let client = self.client.clone();
        let answer = self
            .lab
            .block_on(async move { client.request::<Value>(request).await });
        answer.with_context(|| format!("{method} {path}"))
    }
}

/// Whether its readiness was taken from it by an operation; nothing gives that back on a fake node.
fn is_stuck_unready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let unready = conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "False"));
    let running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
    running && unready && pod.metadata.deletion_timestamp.is_none()
}
