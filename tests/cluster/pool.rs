//! Nodes that are one test's own: tainted, so that no other test's members come to live on them.

use std::time::Duration;

use flock_lab::FakeNode;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::Api;
use serde_json::{Value, json};

use crate::objects::with;
use crate::scene::Scene;
use crate::world::World;

/// The label, and the taint's key, of a pool's nodes.
const POOL: &str = "test.flock.dev/pool";

/// A namespace with nodes of its own.
pub struct Pool<'w> {
    pub scene: Scene<'w>,
}

impl<'w> Pool<'w> {
    /// A pool with nodes of these short names, each in a zone of its own.
    pub fn new(world: &'w World, prefix: &str, nodes: &[&str]) -> Self {
        let pool = Self {
            scene: world.namespace(prefix),
        };
        for node in nodes {
            pool.add(node, |_| {});
        }
        pool
    }

    /// The full name of a node.
    pub fn node(&self, short: &str) -> String {
        format!("{}.{short}", self.scene.namespace)
    }

    /// Registers a node, also one that was deleted before; waits until it is Ready.
    pub fn add(&self, short: &str, change: impl FnOnce(&mut FakeNode)) {
        self.register(&self.node(short), short, change);
    }

    pub fn register(&self, name: &str, zone: &str, change: impl FnOnce(&mut FakeNode)) {
        let mut node = FakeNode::new(name, zone);
        let pool = self.scene.namespace.clone();
        node.labels.push((POOL.into(), pool.clone()));
        node.taints.push((POOL.into(), pool, "NoSchedule".into()));
        change(&mut node);
        self.scene.world.lab.add_fake_node(&node).expect("a fake node");
        self.scene.eventually(&format!("a Ready node {name}"), || {
            self.is_ready(name).then_some(())
        });
    }

    pub fn delete(&self, short: &str) {
        self.scene
            .world
            .lab
            .delete_fake_node(&self.node(short))
            .expect("a fake node");
    }

    /// The node's heartbeats end, and its controller has noticed.
    pub fn fail(&self, short: &str) {
        let node = self.node(short);
        self.scene.world.lab.fail_fake_node(&node).expect("a fake node");
        self.report(&node, "Unknown", "NodeStatusUnknown");
        // kwok sees only at its next renewal that the node is not its own any more.
        self.stop_after(&node, "24h");
    }

    /// How long containers on a node take to stop from now on.
    fn stop_after(&self, node: &str, time: &str) {
        let on_node = |pod: &Pod| {
            pod.spec
                .as_ref()
                .is_some_and(|spec| spec.node_name.as_deref() == Some(node))
        };
        let key = "lab.flock.dev/stop-after";
        let annotation = format!("{key}={time}");
        self.scene.eventually("annotated pods", || {
            let pods = self.scene.pods();
            let has = |pod: &&Pod| pod.annotations().get(key).is_some_and(|value| value == time);
            let mut left = pods.iter().filter(|pod| on_node(pod) && !has(pod)).peekable();
            if left.peek().is_none() {
                return Some(());
            }
            for pod in left {
                // One of them may be gone since.
                let _ = self
                    .scene
                    .kubectl(&["annotate", "--overwrite", "pod", &pod.name_any(), &annotation]);
            }
            None
        });
    }

    fn report(&self, node: &str, ready: &str, reason: &str) {
        let status =
            json!({ "status": { "conditions": [{ "type": "Ready", "status": ready, "reason": reason }] } });
        self.scene.run(&[
            "patch",
            "node",
            node,
            "--subresource=status",
            "-p",
            &status.to_string(),
        ]);
    }

    /// The node comes back: its controller is told before its pods go on. As long as that takes the node for
    /// unreachable, it marks whatever pod comes there as not Ready, which only a real kubelet puts right
    /// (`processPod` in `k8s.io/kubernetes/pkg/controller/nodelifecycle/node_lifecycle_controller.go`).
    pub fn recover(&self, short: &str) {
        let node = self.node(short);
        self.report(&node, "True", "KubeletReady");
        self.scene
            .eventually(&format!("a controller that reaches {node}"), || {
                let taints = self.get(&node)?.spec?.taints.unwrap_or_default();
                let mut gone = taints.iter().filter(|taint| {
                    taint.effect == "NoExecute" && taint.key == "node.kubernetes.io/unreachable"
                });
                gone.next().is_none().then_some(())
            });
        self.scene
            .world
            .lab
            .recover_fake_node(&node)
            .expect("a fake node");
        self.scene.eventually(&format!("a Ready node {node}"), || {
            self.is_ready(&node).then_some(())
        });
        self.stop_after(&node, "0s");
    }

    fn is_ready(&self, name: &str) -> bool {
        let ready = self.get(name).and_then(|node| {
            node.status?
                .conditions?
                .into_iter()
                .find(|condition| condition.type_ == "Ready")
        });
        ready.is_some_and(|ready| ready.status == "True")
    }

    pub fn get(&self, name: &str) -> Option<Node> {
        let nodes = Api::<Node>::all(self.scene.world.client.clone());
        self.scene
            .world
            .lab
            .block_on(async { nodes.get_opt(name).await })
            .expect("a node can be read")
    }

    /// A workload that only runs in this pool.
    pub fn workload(&self, workload: Value) -> Value {
        let pool = &self.scene.namespace;
        let spec = json!({
            "nodeSelector": { POOL: pool },
            "tolerations": [
                { "key": POOL, "operator": "Equal", "value": pool, "effect": "NoSchedule" },
            ],
        });
        with(workload, &json!({ "spec": { "template": { "spec": spec } } }))
    }

    /// The label of an ordinal of the flock `db`.
    pub fn label(&self, ordinal: u32) -> String {
        format!(
            "db.{}.flock.node-restriction.kubernetes.io/{ordinal}",
            self.scene.namespace
        )
    }

    /// The short names of the nodes that carry an ordinal.
    pub fn carriers(&self, ordinal: u32) -> Vec<String> {
        let names = self.scene.run(&[
            "get",
            "nodes",
            "-l",
            &self.label(ordinal),
            "-o=jsonpath={.items[*].metadata.name}",
        ]);
        let prefix = format!("{}.", self.scene.namespace);
        let mut names: Vec<_> = names
            .split_whitespace()
            .map(|name| name.strip_prefix(&prefix).unwrap_or(name).to_owned())
            .collect();
        names.sort();
        names
    }

    /// The short name of the node that a member runs on.
    pub fn home(&self, pod: &str) -> String {
        let node = self.scene.node_of(pod);
        node.strip_prefix(&format!("{}.", self.scene.namespace))
            .unwrap_or(&node)
            .to_owned()
    }

    pub fn set_label(&self, short: &str, ordinal: u32) {
        self.scene.run(&[
            "label",
            "node",
            &self.node(short),
            &format!("{}=", self.label(ordinal)),
        ]);
    }

    pub fn take_label(&self, short: &str, ordinal: u32) {
        self.scene.run(&[
            "label",
            "node",
            &self.node(short),
            &format!("{}-", self.label(ordinal)),
        ]);
    }

    /// The record of places.
    pub fn record(&self) -> Value {
        let service = self.scene.get("service/db");
        let text = service["metadata"]["annotations"]["flock.dev/places"]
            .as_str()
            .unwrap_or("null")
            .to_owned();
        serde_json::from_str(&text).expect("JSON")
    }

    /// Replaces the record, as somebody would who may edit Services.
    pub fn edit_record(&self, text: Option<&str>) {
        self.scene.patch(
            "service/db",
            &json!({ "metadata": { "annotations": { "flock.dev/places": text } } }),
        );
    }

    /// Removes a pod object at once, as the pod garbage collector does where a node is gone.
    pub fn collect(&self, pod: &str) {
        self.scene.run(&[
            "delete",
            "pod",
            pod,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ]);
    }

    /// How often Flock has written to nodes of this pool.
    pub fn node_writes(&self) -> usize {
        let ours = |request: &flock_lab::audit::Request| {
            request.resource == "nodes"
                && request.is_write()
                && request.user == "system:serviceaccount:flock-system:flock"
                && request.name.starts_with(&self.scene.namespace)
        };
        self.scene
            .audit
            .since(&self.scene.namespace, ours)
            .expect("the audit log")
            .len()
    }

    /// Asserts that Flock changes nothing any more. Events are no change: they tell how many nodes there are, and other
    /// tests' come and go.
    pub fn quiet(&self) {
        let count = || {
            let writes = self.scene.writes();
            writes.iter().filter(|write| write.resource != "events").count() + self.node_writes()
        };
        let settled = self.scene.eventually("an end of Flock's writes", || {
            let before = count();
            std::thread::sleep(Duration::from_secs(1));
            (count() == before).then_some(before)
        });
        std::thread::sleep(Duration::from_millis(2500));
        assert_eq!(count(), settled, "writes though nothing was left to do");
    }

    /// How often Flock has patched Services of this namespace.
    pub fn service_writes(&self) -> usize {
        self.scene
            .writes()
            .iter()
            .filter(|request| request.resource == "services")
            .count()
    }
}

impl Drop for Pool<'_> {
    fn drop(&mut self) {
        let prefix = format!("{}.", self.scene.namespace);
        for node in self.scene.world.lab.node_names().unwrap_or_default() {
            if node.starts_with(&prefix) {
                let _ = self.scene.world.lab.delete_fake_node(&node);
            }
        }
    }
}
