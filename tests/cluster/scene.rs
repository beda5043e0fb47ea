//! A test's namespace: what tests do in it, and what they wait for.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flock_lab::audit::{Mark, Request};
use flock_lab::recording::{Recording, is_ready, name};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Api;
use serde_json::{Value, json};

use crate::world::{PATIENCE, World};

/// A test's namespace.
pub struct Scene<'w> {
    pub world: &'w World,
    pub namespace: String,
    pub recording: Recording,
    pub audit: Mark,
    /// Whether this test moves members by a documented act.
    pub may_move: bool,
    /// Whether this test takes Flock away, so that pods start that are no members in spite of their label.
    pub without_flock: bool,
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

    /// Deletes pods and waits until they are gone.
    ///
    /// kubectl's own wait will not do: before 1.36 it looks for the name alone (`pkg/cmd/wait/delete.go`), and where
    /// the successor has it already it waits for ever.
    pub fn delete_pods(&self, names: &[impl AsRef<str>]) {
        let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
        let mut before = self.pods();
        before.retain(|pod| names.contains(&name(pod).as_str()));
        self.run(&[&["delete", "pod", "--wait=false"], &names[..]].concat());
        self.eventually(&format!("an end of {names:?}"), || {
            let now = self.pods();
            let is_there = |pod: &Pod| now.iter().any(|other| other.metadata.uid == pod.metadata.uid);
            (!before.iter().any(is_there)).then_some(())
        });
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

    /// Applies an object that may be refused.
    pub fn kubectl_apply(&self, object: &Value) -> anyhow::Result<()> {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        self.world.lab.apply(&object.to_string())
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
    pub fn eventually_ready(&self, names: &[impl AsRef<str>]) -> Duration {
        let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
        let begin = Instant::now();
        self.eventually(&format!("Ready pods {names:?}"), || {
            let pods = self.pods();
            let mut ready: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).map(name).collect();
            ready.sort_by_key(|name| names.iter().position(|wanted| wanted == name));
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

    /// Creates an object without a name of its own.
    pub fn create(&self, object: &Value) {
        self.kubectl_create(object, &[]);
    }

    /// The name that a pod would get.
    pub fn dry_run(&self, object: &Value) -> String {
        self.kubectl_create(object, &["--dry-run=server"])
    }

    fn kubectl_create(&self, object: &Value, args: &[&str]) -> String {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        std::io::Write::write_all(&mut file, object.to_string().as_bytes()).expect("a file");
        let path = file.path().display().to_string();
        let mut all = vec!["create", "-f", &path, "-o=jsonpath={.metadata.name}"];
        all.extend(args);
        self.run(&all)
    }

    /// Ends a pod as a kubelet does: `Failed` or `Succeeded`, with a reason.
    pub fn end_pod(&self, pod: &str, phase: &str, reason: &str) {
        let status = json!({ "status": { "phase": phase, "reason": reason, "conditions": [] } });
        self.run(&[
            "patch",
            "pod",
            pod,
            "--subresource=status",
            "--type=merge",
            "-p",
            &status.to_string(),
        ]);
    }

    /// Lets a pod be not Ready from now on.
    pub fn unready(&self, pod: &str) {
        let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": null }] } });
        self.run(&[
            "patch",
            "pod",
            pod,
            "--subresource=status",
            "-p",
            &status.to_string(),
        ]);
    }

    /// Merges a change into an object.
    pub fn patch(&self, object: &str, change: &Value) {
        self.run(&["patch", object, "--type=merge", "-p", &change.to_string()]);
    }

    /// Sets the number of replicas.
    pub fn scale(&self, object: &str, replicas: u32) {
        self.patch(object, &json!({ "spec": { "replicas": replicas } }));
    }

    /// Rolls a Deployment out with another tag of its image.
    pub fn roll(&self, deployment: &str, tag: &str) {
        self.run(&[
            "set",
            "image",
            &format!("deployment/{deployment}"),
            &format!("c=registry.k8s.io/pause:{tag}"),
        ]);
    }

    /// Waits until a Deployment says that it is rolled out.
    pub fn rolled(&self, deployment: &str) {
        self.eventually(&format!("the end of {deployment}'s rollout"), || {
            let object = self.get(&format!("deployment/{deployment}"));
            let (spec, status) = (&object["spec"]["replicas"], &object["status"]);
            let observed = status["observedGeneration"] == object["metadata"]["generation"];
            let done = ["updatedReplicas", "replicas", "availableReplicas"]
                .iter()
                .all(|field| status[field] == *spec);
            (observed && done).then_some(())
        });
    }

    /// An object as the API server has it.
    pub fn get(&self, object: &str) -> Value {
        serde_json::from_str(&self.run(&["get", object, "-o", "json"])).expect("JSON")
    }

    /// The ReplicaSet whose template has this tag.
    pub fn replica_set_of(&self, tag: &str) -> Option<String> {
        let image = format!("registry.k8s.io/pause:{tag}");
        let sets = self.get("rs");
        let found = sets["items"]
            .as_array()?
            .iter()
            .find(|set| set["spec"]["template"]["spec"]["containers"][0]["image"] == image)?;
        found["metadata"]["name"].as_str().map(str::to_owned)
    }

    /// The tags of the images that members run, by name.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let tag = |pod: &Pod| {
            let image = pod.spec.as_ref()?.containers.first()?.image.clone()?;
            Some((name(pod), image.rsplit(':').next()?.to_owned()))
        };
        self.pods().iter().filter_map(tag).collect()
    }

    /// Waits until just these pods are there, with this tag, all Ready.
    pub fn eventually_run(&self, tag: &str, names: &[impl AsRef<str>]) -> Duration {
        let begin = Instant::now();
        self.eventually(&format!("members of {tag}"), || {
            let tags = self.tags();
            let same = names
                .iter()
                .all(|name| tags.get(name.as_ref()).is_some_and(|is| is == tag));
            (same && tags.len() == names.len()).then_some(())
        });
        self.eventually_ready(names);
        begin.elapsed()
    }

    /// What Flock wrote in this namespace so far.
    pub fn writes(&self) -> Vec<Request> {
        let ours = |request: &Request| {
            request.user == FLOCK && request.namespace == self.namespace && request.is_write()
        };
        self.audit.since(&self.namespace, ours).expect("the audit log")
    }

    /// How often the API server refused a pod because another had its name.
    pub fn clashes(&self) -> usize {
        let clash = |request: &Request| {
            request.verb == "create"
                && request.resource == "pods"
                && request.reason == "AlreadyExists"
                && request.namespace == self.namespace
        };
        self.audit
            .since(&self.namespace, clash)
            .expect("the audit log")
            .len()
    }

    /// Asserts that nothing is left to be done: after a moment Flock writes nothing any more.
    pub fn quiet(&self) {
        let settled = self.eventually("an end of Flock's writes", || {
            let before = self.writes().len();
            std::thread::sleep(Duration::from_secs(1));
            (self.writes().len() == before).then_some(before)
        });
        std::thread::sleep(Duration::from_millis(2500));
        let writes = self.writes();
        assert_eq!(
            writes.len(),
            settled,
            "writes though nothing was left to do: {:#?}",
            &writes[settled..]
        );
    }
}

/// Flock's user.
const FLOCK: &str = "system:serviceaccount:flock-system:flock";

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
        let mut violations = self.recording.violations(self.may_move);
        violations.retain(|violation| !(self.without_flock && violation.ends_with("has no ordinal")));
        assert!(
            violations.is_empty(),
            "{violations:#?}\n{}",
            self.recording.story()
        );
        let _ = self
            .world
            .lab
            .kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}
