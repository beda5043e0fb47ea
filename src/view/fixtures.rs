//! Views built by hand, for the tests of the decisions.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::{Request, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodSpec;
use kube::Client;
use kube::client::Body;
use tower_service::Service;

use crate::identity::{FlockKey, Settings, keys};
use crate::place::Constraints;
use crate::storage::Needs;

use super::{
    Controller, Failure, NamespaceFacts, Phase, PodFacts, ServiceFacts, Template, View, WorkloadFacts,
    WorkloadKind,
};

pub(crate) const NAMESPACE: &str = "default";

pub(crate) fn key() -> FlockKey {
    FlockKey::parse(NAMESPACE, "db").unwrap()
}

pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

pub(crate) fn template(annotations: &[(&str, &str)]) -> Arc<Template> {
    let get = |key: &str| annotations.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    Arc::new(Template {
        settings: Settings::parse(get),
        constraints: Constraints::from(&PodSpec::default()),
        ports: Vec::new(),
        needs: Needs::default(),
    })
}

/// A ReplicaSet that wants `replicas` pods.
pub(crate) fn set(name: &str, replicas: u32) -> WorkloadFacts {
    WorkloadFacts {
        kind: WorkloadKind::ReplicaSet,
        name: name.into(),
        uid: format!("uid-of-{name}"),
        resource_version: "1".into(),
        labelled: true,
        deployment: None,
        revision: 0,
        replicas,
        desired: replicas,
        min_ready_seconds: 0,
        failing: None,
        terminating: false,
        created: Some(now()),
        template: template(&[]),
    }
}

/// A ReplicaSet of the Deployment `deploy` at a revision.
pub(crate) fn revision(name: &str, revision: u64, replicas: u32, desired: u32) -> WorkloadFacts {
    WorkloadFacts {
        deployment: Some(Controller {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "deploy".into(),
            uid: "uid-of-deploy".into(),
        }),
        revision,
        desired,
        ..set(name, replicas)
    }
}

impl WorkloadFacts {
    pub(crate) fn failing(mut self) -> Self {
        self.failing = Some(Failure::Flock);
        self
    }

    pub(crate) fn annotated(mut self, annotations: &[(&str, &str)]) -> Self {
        self.template = template(annotations);
        self
    }
}

/// A Ready pod that holds an ordinal, of a ReplicaSet.
pub(crate) fn pod(ordinal: u32, owner: &str) -> PodFacts {
    PodFacts {
        name: format!("db-{ordinal}"),
        uid: format!("uid-of-db-{ordinal}-{owner}"),
        resource_version: "1".into(),
        ordinal: crate::identity::Ordinal::new(ordinal),
        owner: Some(Controller {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: owner.into(),
            uid: format!("uid-of-{owner}"),
        }),
        phase: Phase::Alive,
        reason: None,
        ready_since: Some(now()),
        terminating: false,
        gated: false,
        node: Some(format!("node-{ordinal}")),
        unschedulable: None,
        created: Some(now()),
        subdomain: Some("db".into()),
        data_lost: false,
        template: template(&[]),
    }
}

impl PodFacts {
    pub(crate) fn unready(mut self) -> Self {
        self.ready_since = None;
        self
    }

    pub(crate) fn going(mut self) -> Self {
        self.terminating = true;
        self
    }

    pub(crate) fn over(mut self, reason: &str) -> Self {
        self.phase = Phase::Over;
        self.ready_since = None;
        self.reason = Some(reason.into());
        self
    }

    pub(crate) fn bare(mut self) -> Self {
        self.owner = None;
        self
    }

    pub(crate) fn waiting(mut self) -> Self {
        self.gated = true;
        self.node = None;
        self.ready_since = None;
        self
    }

    pub(crate) fn annotated(mut self, annotations: &[(&str, &str)]) -> Self {
        self.template = template(annotations);
        self
    }
}

/// A view of one flock, `db`, in its namespace.
pub(crate) fn view(workloads: Vec<WorkloadFacts>, pods: Vec<PodFacts>) -> View {
    let mut view = View::default();
    view.apply_namespace(NamespaceFacts {
        name: NAMESPACE.into(),
        uid: "ns-uid".into(),
        enforce: None,
        terminating: false,
    });
    for workload in workloads {
        view.apply_workload(key(), workload);
    }
    for pod in pods {
        view.apply_pod(key(), pod);
    }
    view
}

/// The governing Service as Flock makes it, with a record of places.
pub(crate) fn service(places: &str) -> ServiceFacts {
    ServiceFacts {
        namespace: NAMESPACE.into(),
        name: "db".into(),
        uid: "uid-of-service".into(),
        resource_version: "1".into(),
        headless: true,
        made_for: Some(key()),
        publishes_not_ready: true,
        selects: Some("db".into()),
        ports: Vec::new(),
        places: Some(places.into()),
        record: crate::place::Record::parse(places).ok().map(Arc::new),
        terminating: false,
    }
}

/// A node that carries the labels of these ordinals of the flock `db`.
pub(crate) fn node(name: &str, ordinals: &[u32]) -> crate::place::NodeFacts {
    let labels = ordinals
        .iter()
        .map(|ordinal| {
            (
                key().node_label(crate::identity::Ordinal::new(*ordinal).unwrap()),
                String::new(),
            )
        })
        .chain([("kubernetes.io/hostname".to_owned(), name.to_owned())])
        .collect();
    let object = k8s_openapi::api::core::v1::Node {
        metadata: kube::api::ObjectMeta {
            name: Some(name.into()),
            uid: Some(format!("uid-of-{name}")),
            resource_version: Some("1".into()),
            labels: Some(labels),
            ..Default::default()
        },
        spec: None,
        status: serde_json::from_value(serde_json::json!({
            "conditions": [{ "type": "Ready", "status": "True" }],
            "nodeInfo": {
                "machineID": format!("machine-of-{name}"), "systemUUID": "", "bootID": "", "kernelVersion": "",
                "osImage": "", "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64",
            },
        }))
        .unwrap(),
    };
    crate::place::NodeFacts::from(&object)
}

/// What Flock reads: a key that no test may misspell.
pub(crate) const ORDINALS: &str = keys::ORDINALS;

/// A client of an API server that has this one answer.
pub(crate) fn api_server(status: StatusCode, body: &str) -> Client {
    Client::new(Answers(status, body.to_owned()), NAMESPACE)
}

struct Answers(StatusCode, String);

impl Service<Request<Body>> for Answers {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        let answer = Response::builder().status(self.0);
        ready(Ok(answer.body(self.1.clone().into_bytes().into()).unwrap()))
    }
}
