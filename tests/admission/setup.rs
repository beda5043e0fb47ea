//! The webhooks with caches filled by hand, and an API server that only counts who asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use base64::Engine;
use flock::admission::{Admission, Lookup, Policy, Reservations, routes};
use flock::metrics::AdmissionMetrics;
use flock::view::{NamespaceFacts, ServiceFacts, SharedView, Source, WorkloadFacts};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::Client;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

/// An API server that has one answer, by default that it knows nothing.
#[derive(Clone)]
pub struct Api {
    asked: Arc<AtomicU64>,
    answer: Option<(StatusCode, String)>,
}

impl Api {
    pub fn answers(status: StatusCode, body: &str) -> Self {
        Self {
            asked: Arc::default(),
            answer: Some((status, body.to_owned())),
        }
    }

    /// Takes requests and answers none.
    pub fn silent() -> Self {
        Self {
            asked: Arc::default(),
            answer: None,
        }
    }

    fn knows_nothing() -> Self {
        let gone = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404,
        });
        Self::answers(StatusCode::NOT_FOUND, &gone.to_string())
    }
}

impl Service<Request<kube::client::Body>> for Api {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<kube::client::Body>) -> Self::Future {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let Some((status, body)) = self.answer.clone() else {
            return Box::pin(std::future::pending());
        };
        let response = Response::builder().status(status).body(Body::from(body));
        Box::pin(std::future::ready(Ok(response.unwrap())))
    }
}

/// Both webhooks.
pub struct Webhooks {
    pub view: SharedView,
    router: Router,
    api: Api,
    registry: Registry,
    _leader: watch::Sender<bool>,
}

/// What was answered.
pub struct Answer {
    pub status: StatusCode,
    pub body: Value,
}

impl Answer {
    pub fn allowed(&self) -> bool {
        self.response()["allowed"] == true
    }

    pub fn response(&self) -> &Value {
        &self.body["response"]
    }

    pub fn message(&self) -> &str {
        self.response()["status"]["message"].as_str().unwrap_or_default()
    }

    pub fn warnings(&self) -> Vec<&str> {
        self.response()["warnings"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    pub fn patch(&self) -> Option<json_patch::Patch> {
        let text = self.response()["patch"].as_str()?;
        assert_eq!(self.response()["patchType"], "JSONPatch");
        let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        Some(serde_json::from_slice(&bytes).unwrap())
    }

    /// The object as the API server would go on with it.
    pub fn applied(&self, object: &Value) -> Value {
        assert!(self.allowed(), "{}", self.message());
        let mut patched = object.clone();
        if let Some(patch) = self.patch() {
            json_patch::patch(&mut patched, &patch).unwrap();
        }
        patched
    }
}

impl Webhooks {
    /// The namespaces `team-a` and `default` are known, and nothing else.
    pub fn new() -> Self {
        Self::with_api(Api::knows_nothing())
    }

    /// Before anything was listed.
    pub fn unsynced() -> Self {
        Self::build(Api::knows_nothing(), &[])
    }

    /// The same with an API server of this kind behind it.
    pub fn with_api(api: Api) -> Self {
        Self::build(api, &Source::ALL)
    }

    fn build(api: Api, synced: &[Source]) -> Self {
        let mut registry = Registry::with_prefix("flock");
        let metrics = AdmissionMetrics::register(&mut registry);
        let view = SharedView::default();
        for source in synced {
            view.set_synced(*source);
        }
        let (leader, leads) = watch::channel(true);
        let admission = Admission::new(
            view.clone(),
            Arc::new(Mutex::new(Reservations::default())),
            Lookup::new(Client::new(api.clone(), "default"), Counter::default()),
            Policy {
                host_path_root: "/var/lib/flock".into(),
            },
            leads,
            metrics,
        );
        let webhooks = Self {
            view,
            // As the server does, which has its own limit.
            router: routes(Arc::new(admission)).layer(axum::extract::DefaultBodyLimit::disable()),
            api,
            registry,
            _leader: leader,
        };
        webhooks.namespace("team-a", None);
        webhooks.namespace("default", None);
        webhooks
    }

    pub fn namespace(&self, name: &str, enforce: Option<&str>) {
        self.view.update(|view| {
            view.apply_namespace(NamespaceFacts {
                name: name.into(),
                uid: format!("uid-of-{name}"),
                enforce: enforce.map(Into::into),
                terminating: false,
            })
        });
    }

    pub fn replica_set(&self, object: Value) {
        let set: ReplicaSet = serde_json::from_value(object).unwrap();
        let (key, facts) = WorkloadFacts::read_replica_set(&set).expect("it is labelled");
        self.view.update(|view| view.apply_workload(key, facts));
    }

    pub fn service(&self, object: Value) {
        let service = serde_json::from_value(object).unwrap();
        let facts = ServiceFacts::read(&service).unwrap();
        self.view.update(|view| view.apply_service(facts));
    }

    /// How often the API server was asked.
    pub fn asked(&self) -> u64 {
        self.api.asked.load(Ordering::Relaxed)
    }

    pub fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        text
    }

    pub async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        let request = Request::post(path)
            .header("content-type", "application/json")
            .body(body.into())
            .unwrap();
        let response = self.router.clone().call(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Answer {
            status,
            body: serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        }
    }

    /// A pod's creation in `team-a`.
    pub async fn create(&self, pod: &Value) -> Answer {
        self.post("/mutate", review("CREATE", pod).to_string()).await
    }

    /// A workload's creation in `team-a`.
    pub async fn apply(&self, workload: &Value) -> Answer {
        self.post(
            "/validate",
            workload_review("CREATE", workload, &Value::Null).to_string(),
        )
        .await
    }
}

/// A review of a pod.
pub fn review(operation: &str, pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "7f0b2891-916f-4ed6-b7cd-27bff1815a8c",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "operation": operation, "namespace": "team-a", "name": "", "dryRun": false,
            "userInfo": { "username": "system:serviceaccount:kube-system:replicaset-controller" },
            "object": pod, "oldObject": null,
        },
    })
}

/// A review of a workload.
pub fn workload_review(operation: &str, workload: &Value, old: &Value) -> Value {
    let mut review = review(operation, workload);
    review["request"]["kind"] = json!({ "group": "apps", "version": "v1", "kind": workload["kind"] });
    review["request"]["resource"] = json!({ "group": "apps", "version": "v1", "resource": "any" });
    review["request"]["oldObject"] = old.clone();
    review
}

/// A pod of the flock `db` without anything else.
pub fn bare_pod() -> Value {
    json!({
        "metadata": { "generateName": "db-", "labels": { "flock.dev/name": "db" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}
