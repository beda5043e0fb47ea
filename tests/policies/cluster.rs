//! One lab for all tests of this file, with the manifests applied.

use std::fmt::Debug;
use std::future::Future;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use flock_lab::{Lab, Options};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{Api, Patch, PatchParams, PostParams, ResourceExt};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::files::{Document, resources};

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum As {
    Admin,
    /// The real token of Flock's ServiceAccount.
    Flock,
    /// The client certificate of node-0's kubelet.
    Kubelet,
}

/// A lab with one node and every manifest but the calls to a Flock that is not there.
pub(crate) fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| {
        let lab = Lab::start(Options::fake(1)).unwrap();
        let is_webhook = |document: &Document| document.kind().ends_with("WebhookConfiguration");
        for document in resources("deploy")
            .iter()
            .chain(&resources("webhook-config"))
            .filter(|d| !is_webhook(d))
        {
            lab.apply(&document.value.to_string()).unwrap();
        }
        lab
    })
}

pub(crate) fn run<F>(future: F) -> F::Output
where
    F: Future + Send,
    F::Output: Send,
{
    lab().block_on(future)
}

pub(crate) async fn client(who: As) -> Client {
    let lab = lab();
    match who {
        As::Admin => lab.client().await.unwrap(),
        As::Kubelet => {
            let kubeconfig = lab
                .kubeconfig_for("system:node:node-0", &["system:nodes"])
                .unwrap();
            lab.client_of(&kubeconfig).await.unwrap()
        }
        As::Flock => {
            let accounts: Api<ServiceAccount> = Api::namespaced(lab.client().await.unwrap(), "flock-system");
            let ask = TokenRequest {
                spec: TokenRequestSpec::default(),
                ..TokenRequest::default()
            };
            let answer = accounts
                .create_token_request("flock", &PostParams::default(), &ask)
                .await
                .unwrap();
            let file = Kubeconfig::read_from(lab.kubeconfig()).unwrap();
            let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .unwrap();
            config.auth_info = AuthInfo {
                token: Some(answer.status.unwrap().token.into()),
                ..AuthInfo::default()
            };
            Client::try_from(config).unwrap()
        }
    }
}

/// Repeats an attempt that is refused only once the API server has compiled a policy.
pub(crate) async fn refused<T, F>(mut attempt: impl FnMut() -> F) -> String
where
    T: Debug,
    F: Future<Output = kube::Result<T>>,
{
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match attempt().await {
            Err(kube::Error::Api(status)) => return status.message,
            Err(error) => panic!("{error}"),
            Ok(object) => assert!(Instant::now() < deadline, "accepted: {object:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Asserts what a dry run of an attempt comes to: `None` is accepted, `Some` refused with words from its reason.
pub(crate) async fn expect<T, F>(expected: Option<&str>, mut attempt: impl FnMut() -> F)
where
    T: Debug,
    F: Future<Output = kube::Result<T>>,
{
    match expected {
        None => drop(attempt().await.unwrap()),
        Some(words) => {
            let message = refused(attempt).await;
            assert!(message.contains(words), "{message}");
        }
    }
}

pub(crate) fn dry_run() -> PostParams {
    PostParams {
        dry_run: true,
        ..PostParams::default()
    }
}

pub(crate) fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A pod of a name with these labels, annotations and fields of the spec.
pub(crate) fn pod(name: &str, labels: &Value, annotations: &Value, spec: Value) -> Pod {
    let mut whole = json!({
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "pause"}]},
    });
    if let Value::Object(fields) = spec {
        whole["spec"].as_object_mut().unwrap().extend(fields);
    }
    from(whole)
}

/// Labels of a member.
pub(crate) fn member(flock: &str, ordinal: &str) -> Value {
    json!({"flock.dev/name": flock, "flock.dev/ordinal": ordinal})
}

/// What creating a pod comes to.
pub(crate) fn create_pod(who: As, namespace: &str, pod: &Pod, expected: Option<&str>) {
    run(async {
        let pods: Api<Pod> = Api::namespaced(client(who).await, namespace);
        expect(expected, || pods.create_dry_run(pod)).await;
    });
}

trait CreateDryRun<T> {
    fn create_dry_run(&self, object: &T) -> impl Future<Output = kube::Result<T>> + Send;
}

impl<T> CreateDryRun<T> for Api<T>
where
    T: Clone + Debug + Serialize + DeserializeOwned + Send + Sync,
{
    async fn create_dry_run(&self, object: &T) -> kube::Result<T> {
        self.create(&dry_run(), object).await
    }
}

pub(crate) async fn uid_of_namespace(name: &str) -> String {
    let namespaces: Api<Namespace> = Api::all(client(As::Admin).await);
    namespaces.get(name).await.unwrap().uid().unwrap()
}

pub(crate) async fn node() -> Node {
    let nodes: Api<Node> = Api::all(client(As::Admin).await);
    nodes.get("node-0").await.unwrap()
}

/// What a merge patch of an object comes to.
pub(crate) async fn merge<T>(api: &Api<T>, name: &str, patch: &Value, expected: Option<&str>)
where
    T: Clone + Debug + DeserializeOwned,
{
    let params = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    expect(expected, || async {
        api.patch(name, &params, &Patch::Merge(patch)).await
    })
    .await;
}
