//! One lab for all tests, and for each test a namespace and webhook configurations of its own.

use std::{
    net::SocketAddr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use flock_lab::{Lab, Options};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        core::v1::{Namespace, Secret},
    },
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// What is broken has to be whole again in this time: what no watch had shown would be seen after a minute.
pub const REPAIRED_WITHIN: Duration = Duration::from_secs(30);

/// Runs a test in the lab.
pub fn run<F>(test: F)
where
    F: Future<Output = ()> + Send,
{
    lab().block_on(test);
}

fn lab() -> &'static Lab {
    static LAB: OnceLock<Lab> = OnceLock::new();
    LAB.get_or_init(|| Lab::start(Options::fake(0)).expect("the lab starts"))
}

/// The objects of one test: a namespace, and what has its name.
#[derive(Clone)]
pub struct Scene {
    pub client: Client,
    pub name: String,
    /// The name of both configurations.
    pub configuration: String,
}

impl Scene {
    pub async fn new(name: &str) -> Self {
        let client = lab().client().await.unwrap();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .unwrap();
        Self {
            client,
            name: name.to_owned(),
            configuration: name.to_owned(),
        }
    }

    /// Creates both configurations: creations of ConfigMaps in the namespace ask both addresses.
    pub async fn configure(&self, mutating: SocketAddr, validating: SocketAddr) {
        let webhook = |address: SocketAddr| {
            json!({
                "name": "test.flock.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": { "url": format!("https://{address}/review") },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": self.name } },
                "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            })
        };
        let configuration =
            |webhook: Value| json!({ "metadata": { "name": self.configuration }, "webhooks": [webhook] });
        let object = serde_json::from_value(configuration(webhook(mutating))).unwrap();
        self.mutating()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let object = serde_json::from_value(configuration(webhook(validating))).unwrap();
        self.validating()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
    }

    pub fn mutating(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    pub fn validating(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client.clone())
    }

    pub fn secrets(&self) -> Api<Secret> {
        self.namespaced()
    }

    pub fn namespaced<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub async fn secret(&self) -> Option<Secret> {
        self.secrets().get_opt("flock-ca").await.unwrap()
    }

    /// An entry of the Secret, empty where there is none.
    pub async fn entry(&self, name: &str) -> Vec<u8> {
        let data = self
            .secret()
            .await
            .and_then(|secret| secret.data)
            .unwrap_or_default();
        data.get(name).map(|value| value.0.clone()).unwrap_or_default()
    }

    pub async fn patch_secret(&self, patch: Value) {
        let patch = Patch::Merge(patch);
        self.secrets()
            .patch("flock-ca", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// The caBundles of both configurations.
    pub async fn bundles(&self) -> [Vec<u8>; 2] {
        let mutating = self
            .mutating()
            .get(&self.configuration)
            .await
            .unwrap()
            .webhooks
            .unwrap();
        let validating = self
            .validating()
            .get(&self.configuration)
            .await
            .unwrap()
            .webhooks
            .unwrap();
        [&mutating[0].client_config, &validating[0].client_config].map(|client| {
            client
                .ca_bundle
                .as_ref()
                .map(|bundle| bundle.0.clone())
                .unwrap_or_default()
        })
    }

    /// The resourceVersions of Secret and configurations.
    pub async fn versions(&self) -> [Option<String>; 3] {
        [
            self.secret().await.unwrap().metadata.resource_version,
            self.mutating()
                .get(&self.configuration)
                .await
                .unwrap()
                .metadata
                .resource_version,
            self.validating()
                .get(&self.configuration)
                .await
                .unwrap()
                .metadata
                .resource_version,
        ]
    }
}

/// Waits until it holds; returns how long that took.
pub async fn eventually<F>(what: &str, mut holds: impl FnMut() -> F) -> Duration
where
    F: Future<Output = bool>,
{
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}
