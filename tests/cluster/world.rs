//! The cluster of all tests, and a namespace for each.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flock_lab::{Flock, Lab, Options};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::record::Recording;

/// How long anything may take: generous, since the machine may be busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster, with Flock in it.
pub struct World {
    pub flock: Flock,
    pub lab: Arc<Lab>,
    pub client: Client,
    /// Its threads are in the lab's network.
    pub runtime: Runtime,
    namespaces: AtomicU32,
}

impl World {
    /// A cluster whose nodes kwok plays.
    pub fn fake() -> Self {
        Self::start(Options {
            raised_limits: true,
            ..Options::fake(8)
        })
    }

    /// A cluster of this kind, with Flock's replicas as processes beside it.
    pub fn start(options: Options) -> Self {
        let options = Flock::options(options);
        let lab = Arc::new(Lab::start(options).expect("the lab starts"));
        lab.enter().expect("this thread joins the lab's network");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
        let args = ["--node-loss-grace=2", "--log-filter=info,flock=debug"];
        let flock = Flock::install(&lab, root, binary, 2, &args).expect("Flock installs");
        let client = lab.block_on(lab.client()).expect("a client");
        let runtime = lab.runtime().expect("a runtime");
        Self {
            flock,
            lab,
            client,
            runtime,
            namespaces: AtomicU32::new(0),
        }
    }

    /// Keeps the logs of a run that failed.
    pub fn keep(&self) {
        self.lab.keep_state();
        let logs = self
            .lab
            .logs()
            .map_or_else(|error| error.to_string(), |path| path.display().to_string());
        eprintln!("the lab's logs are kept: {logs}");
    }

    /// A namespace of its own for a test, recorded from its first pod on.
    pub fn namespace(&self, prefix: &str) -> Scene<'_> {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        self.lab.enter().expect("this thread joins the lab's network");
        let api = Api::<Namespace>::all(self.client.clone());
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        self.lab
            .block_on(async { api.create(&PostParams::default(), &object).await })
            .expect("a namespace");
        let recording = Recording::start(self, &name);
        Scene {
            world: self,
            namespace: name,
            recording,
        }
    }
}

/// A test's namespace.
pub struct Scene<'w> {
    pub world: &'w World,
    pub namespace: String,
    pub recording: Recording,
}

impl Scene<'_> {
    pub fn kubectl(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut all = vec!["-n", &self.namespace];
        all.extend(args);
        self.world.lab.kubectl(&all)
    }

    /// Runs kubectl, which must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        self.kubectl(args)
            .unwrap_or_else(|error| panic!("kubectl {args:?}: {error:#}"))
    }

    /// Applies an object into the namespace.
    pub fn apply(&self, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        self.world
            .lab
            .apply(&object.to_string())
            .unwrap_or_else(|error| panic!("{error:#}"));
    }

    /// Applies an object that must be refused; returns the message.
    pub fn refused(&self, object: &Value) -> String {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        match self.world.lab.apply(&object.to_string()) {
            Ok(()) => panic!("not refused: {object}"),
            Err(error) => format!("{error:#}"),
        }
    }

    pub fn pods(&self) -> Vec<Pod> {
        let api = Api::<Pod>::namespaced(self.world.client.clone(), &self.namespace);
        let pods = self
            .world
            .lab
            .block_on(async { api.list(&kube::api::ListParams::default()).await });
        pods.expect("pods can be listed").items
    }

    /// Waits until `value` is there, and says what it waited for if it does not come.
    pub fn eventually<T>(&self, what: &str, value: impl Fn() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(value) = value() {
                return value;
            }
            if Instant::now() > deadline {
                let pods = self.kubectl(&["get", "pods", "-o", "wide"]).unwrap_or_default();
                let owners = self
                    .kubectl(&["get", "rs,rc,deploy", "-o", "wide"])
                    .unwrap_or_default();
                let events = self
                    .kubectl(&["get", "events", "--sort-by=.lastTimestamp"])
                    .unwrap_or_default();
                panic!(
                    "{what} did not come about in {}\n{pods}\n{owners}\n{events}",
                    self.namespace
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until just these pods are there, all Ready and none terminating; returns how long it took.
    pub fn eventually_ready(&self, names: &[&str]) -> Duration {
        let begin = Instant::now();
        self.eventually(&format!("Ready pods {names:?}"), || {
            let pods = self.pods();
            let mut ready: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).map(name).collect();
            ready.sort_by_key(|name| (name.len(), name.clone()));
            (pods.len() == names.len() && ready == names).then_some(())
        });
        begin.elapsed()
    }

    pub fn pod(&self, wanted: &str) -> Option<Pod> {
        self.pods().into_iter().find(|pod| name(pod) == wanted)
    }

    /// The node of a member.
    pub fn node_of(&self, pod: &str) -> String {
        self.pod(pod)
            .and_then(|pod| pod.spec?.node_name)
            .unwrap_or_else(|| panic!("{pod} has no node"))
    }

    /// The messages of all events about objects of this name.
    pub fn events(&self, object: &str) -> Vec<String> {
        let selector = format!("--field-selector=involvedObject.name={object}");
        let template = "-o=jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}";
        let text = self.run(&["get", "events", &selector, template]);
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for an event about an object that contains `text`.
    pub fn eventually_event(&self, object: &str, text: &str) {
        self.eventually(&format!("an event of {object} that says {text:?}"), || {
            self.events(object).into_iter().find(|event| event.contains(text))
        });
    }
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "--- events of pods in {} ---\n{}",
                self.namespace,
                self.recording.story()
            );
            return;
        }
        self.recording.check();
        let _ = self
            .world
            .lab
            .kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

pub fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap_or_default()
}

pub fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    ready && pod.metadata.deletion_timestamp.is_none()
}

/// A workload with members of the flock `db`.
pub fn workload(kind: &str, name: &str, replicas: u32) -> Value {
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
        "metadata": { "name": name, "labels": { "flock.dev/name": "db" } },
        "spec": {
            "replicas": replicas,
            "selector": selector,
            "template": {
                "metadata": { "labels": { "app": name, "flock.dev/name": "db" } },
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }],
                },
            },
        },
    })
}
