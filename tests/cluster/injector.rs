//! Another mutating webhook beside Flock's, as service meshes have: a container, a volume and variables.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flock::serve::{ServeMetrics, ServeOptions, Trigger, bind, serve, shutdown};
use flock::tls::issue::{Ca, ServerName};
use flock::tls::lifetime::Lifetimes;
use flock::tls::{ClientAuth, LeafResolver, server_config};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::world::World;

/// The webhook, registered until it is dropped.
pub struct Injector<'w> {
    world: &'w World,
    name: String,
    _trigger: Trigger,
    task: tokio::task::JoinHandle<usize>,
}

impl<'w> Injector<'w> {
    /// Serves and registers it under `name` for the pods of one namespace; `again`: it wants to be called again when
    /// another has changed the pod after it.
    pub fn install(world: &'w World, name: &str, namespace: &str, again: bool) -> Self {
        let ca = Ca::generate(&Lifetimes::default(), Timestamp::now()).unwrap();
        let ip = world.lab.host_ip();
        let names = [ServerName::parse(&ip.to_string())];
        let leaf = ca
            .sign_leaf(&names, &Lifetimes::default(), Timestamp::now())
            .unwrap();
        let resolver = Arc::new(LeafResolver::default());
        resolver.set(leaf.certified);
        let config = Arc::new(server_config(resolver, ClientAuth::None).unwrap());
        let address = SocketAddr::new(ip, 0);
        let listener = world.lab.block_on(async move { bind(address).await }).unwrap();
        let port = listener.local_addr().unwrap().port();
        let metrics = ServeMetrics::register(&mut Registry::default());
        let (trigger, end) = shutdown::channel();
        let router = Router::new().route("/", post(inject)).with_state(again);
        let serving = serve(
            listener,
            Some(config),
            router,
            ServeOptions::default(),
            metrics,
            end,
        );
        let task = world.runtime.spawn(serving);
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": name },
            "webhooks": [{
                "name": "mesh.example.com",
                "clientConfig": {
                    "url": format!("https://{}/", SocketAddr::new(ip, port)),
                    "caBundle": STANDARD.encode(ca.certificate_pem()),
                },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] }],
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                "reinvocationPolicy": if again { "IfNeeded" } else { "Never" },
                "failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            }],
        });
        world.lab.apply(&configuration.to_string()).unwrap();
        let injector = Self {
            world,
            name: name.to_owned(),
            _trigger: trigger,
            task,
        };
        injector.wait(namespace);
        injector
    }

    /// The API server reads configurations by a watch: waits until it calls this one.
    fn wait(&self, namespace: &str) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "probe", "namespace": namespace },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        });
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, pod.to_string().as_bytes()).unwrap();
        let path = file.path().display().to_string();
        let deadline = std::time::Instant::now() + crate::world::PATIENCE;
        loop {
            let args = [
                "create",
                "-f",
                &path,
                "--dry-run=server",
                "-o=jsonpath={.spec.containers[*].name}",
            ];
            let containers = self.world.lab.kubectl(&args).unwrap();
            if containers.contains("mesh") {
                return;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "the API server does not call {}",
                self.name
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

impl Drop for Injector<'_> {
    fn drop(&mut self) {
        let _ = self
            .world
            .lab
            .kubectl(&["delete", "mutatingwebhookconfiguration", &self.name]);
        self.task.abort();
    }
}

/// What is not there yet, in places that move others: its container goes first.
async fn inject(
    State(again): State<bool>,
    body: axum::body::Bytes,
) -> ([(&'static str, &'static str); 1], String) {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let pod = &review["request"]["object"];
    let injected = pod["metadata"]["annotations"]["mesh.example.com/injected"] == "true";
    let mut ops = Vec::new();
    if !injected {
        ops.extend(first(pod));
    } else if again {
        // The second time it learns the name that Flock gave, and changes the pod once more.
        let named = pod["metadata"]["annotations"]["mesh.example.com/name"].is_string();
        if !named {
            ops.push(json!({
                "op": "add", "path": "/metadata/annotations/mesh.example.com~1name", "value": pod["metadata"]["name"],
            }));
            ops.push(json!({
                "op": "add", "path": "/spec/containers/0/env/-",
                "value": { "name": "MESH_NAME", "value": pod["metadata"]["name"] },
            }));
        }
    }
    let patch = STANDARD.encode(Value::from(ops).to_string());
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": { "uid": review["request"]["uid"], "allowed": true, "patch": patch, "patchType": "JSONPatch" },
    });
    ([("content-type", "application/json")], answer.to_string())
}

fn first(pod: &Value) -> Vec<Value> {
    let add = |path: String, value: Value| json!({ "op": "add", "path": path, "value": value });
    let variable = json!({ "name": "MESH", "value": "on" });
    let mut ops = Vec::new();
    let annotations = &pod["metadata"]["annotations"];
    if annotations.is_object() {
        ops.push(add(
            "/metadata/annotations/mesh.example.com~1injected".into(),
            json!("true"),
        ));
    } else {
        ops.push(add(
            "/metadata/annotations".into(),
            json!({ "mesh.example.com/injected": "true" }),
        ));
    }
    for (index, container) in pod["spec"]["containers"].as_array().unwrap().iter().enumerate() {
        let path = format!("/spec/containers/{index}/env");
        if container["env"].is_array() {
            ops.push(add(format!("{path}/-"), variable.clone()));
        } else {
            ops.push(add(path, json!([variable])));
        }
    }
    let state = json!({ "name": "mesh-state", "emptyDir": {} });
    if pod["spec"]["volumes"].is_array() {
        ops.push(add("/spec/volumes/0".into(), state));
    } else {
        ops.push(add("/spec/volumes".into(), json!([state])));
    }
    ops.push(add(
        "/spec/containers/0".into(),
        json!({
            "name": "mesh", "image": "registry.k8s.io/pause:3.9", "env": [variable],
            "volumeMounts": [{ "name": "mesh-state", "mountPath": "/state" }],
        }),
    ));
    ops
}
