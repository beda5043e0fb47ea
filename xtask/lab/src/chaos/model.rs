//! What is applied, and what must come of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A workload of the cluster that is shaken.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    flock: &'static str,
    /// Its `flock.dev/ordinals`, and the same as numbers.
    set: &'static str,
    ordinals: &'static [u32],
    strategy: Option<Value>,
    /// The other annotations of its template.
    annotations: BTreeMap<String, String>,
    pub(super) replicas: u32,
    pub(super) tag: &'static str,
    /// What an undo goes back to.
    pub(super) before: &'static str,
}

const NUMBERS: [u32; 6] = [0, 1, 2, 3, 4, 5];

impl Workload {
    fn new(kind: &'static str, name: &'static str, flock: &'static str, replicas: u32) -> Self {
        let annotations = [
            ("lab.flock.dev/ready-after", "200ms"),
            ("lab.flock.dev/stop-after", "300ms"),
        ];
        Self {
            kind,
            name,
            flock,
            set: "0-",
            ordinals: &NUMBERS,
            strategy: None,
            annotations: annotations
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            replicas,
            tag: "3.9",
            before: "3.9",
        }
    }

    fn with(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    fn strategy(mut self, strategy: Value) -> Self {
        self.strategy = Some(strategy);
        self
    }

    fn owning(mut self, set: &'static str, ordinals: &'static [u32]) -> Self {
        self.set = set;
        self.ordinals = ordinals;
        self
    }

    /// Every kind of workload, of strategy and of set; two flocks have more than one workload.
    pub(super) fn all() -> Vec<Self> {
        let rolling = |surge: Value, unavailable: Value| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
        vec![
            Self::new("Deployment", "default", "default", 3),
            Self::new("Deployment", "no-surge", "low", 4)
                .with("flock.dev/pin", "Shared")
                .strategy(rolling(0.into(), 2.into())),
            Self::new("Deployment", "surge", "high", 3)
                .with("flock.dev/start", "Ordered")
                .strategy(rolling("100%".into(), 0.into())),
            Self::new("Deployment", "recreate", "re", 2).strategy(json!({ "type": "Recreate" })),
            Self::new("ReplicaSet", "set", "set", 4).owning("1,3-", &[1, 3, 4, 5, 6, 7]),
            Self::new("ReplicationController", "rc", "rc", 2).with("flock.dev/pin", "Shared"),
            Self::new("Deployment", "one-0", "one", 1).owning("0", &[0]),
            Self::new("Deployment", "one-1", "one", 1).owning("1", &[1]),
            Self::new("ReplicaSet", "rest", "one", 2).owning("2-5", &[2, 3, 4, 5]),
        ]
    }

    pub(super) fn max(&self) -> u32 {
        u32::try_from(self.ordinals.len()).unwrap_or(0)
    }

    pub(super) fn rolls(&self) -> bool {
        self.kind == "Deployment"
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        self.annotations.insert(key.to_owned(), value.to_owned());
    }

    pub(super) fn flock(&self) -> &'static str {
        self.flock
    }

    /// The name of its member at an index of its ordinals.
    pub(super) fn member(&self, index: u32) -> String {
        let ordinal = self.ordinals.get(index as usize).copied().unwrap_or_default();
        format!("{}-{ordinal}", self.flock)
    }

    /// The pods that it must come to, with their images' tag.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (String, &'static str)> + '_ {
        (0..self.replicas.min(self.max())).map(|index| (self.member(index), self.tag))
    }

    /// Every name that a pod of it may ever have.
    pub(super) fn possible(&self) -> impl Iterator<Item = String> + '_ {
        (0..self.max()).map(|index| self.member(index))
    }

    /// The path of its kind in a namespace.
    pub(super) fn path(&self, namespace: &str) -> String {
        match self.kind {
            "ReplicationController" => format!("/api/v1/namespaces/{namespace}/replicationcontrollers"),
            "ReplicaSet" => format!("/apis/apps/v1/namespaces/{namespace}/replicasets"),
            _ => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        }
    }

    pub(super) fn template(&self) -> Value {
        let mut annotations = self.annotations.clone();
        annotations.insert("flock.dev/ordinals".to_owned(), self.set.to_owned());
        json!({
            "metadata": { "labels": { "app": self.name, "flock.dev/name": self.flock }, "annotations": annotations },
            "spec": {
                "terminationGracePeriodSeconds": 30,
                "containers": [{ "name": "c", "image": format!("registry.k8s.io/pause:{}", self.tag) }],
            },
        })
    }

    pub(super) fn object(&self) -> Value {
        let core = self.kind == "ReplicationController";
        let selector = json!({ "app": self.name });
        let mut object = json!({
            "apiVersion": if core { "v1" } else { "apps/v1" },
            "kind": self.kind,
            // The standalone ReplicaSet goes without the label on itself.
            "metadata": { "name": self.name },
            "spec": {
                "replicas": self.replicas,
                "selector": if core { selector } else { json!({ "matchLabels": selector }) },
                "template": self.template(),
            },
        });
        if let Some(strategy) = &self.strategy {
            object["spec"]["strategy"] = strategy.clone();
        }
        if self.name != "rest" {
            object["metadata"]["labels"] = json!({ "flock.dev/name": self.flock });
        }
        object
    }
}
