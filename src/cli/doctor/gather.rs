//! Asks the cluster. Nothing here judges, and nothing writes: what is tried is tried with `dry run`.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::judge::policies::Guard;
use super::judge::replicas::Replicas;
use super::judge::rights::question;
use super::judge::setup::Setup;
use super::manifests::Manifests;
use super::seen::Seen;
use crate::identity::keys;
use crate::storage::COMPONENT;
use crate::view::{HelperFacts, View};

/// So many questions about rights are asked side by side.
const SIDE_BY_SIDE: usize = 8;

/// Looks at an object.
pub async fn get<K>(api: &Api<K>, name: &str) -> Seen<K>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    Seen::from_answer(api.get_opt(name).await)
}

/// Lists what a selector of labels selects.
async fn list<K>(api: &Api<K>, labels: &str) -> Seen<Vec<K>>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let answer = api.list(&ListParams::default().labels(labels)).await;
    Seen::from_answer(answer.map(|list| Some(list.items)))
}

/// Looks at Flock's own pods, and who calls and leads them.
pub async fn replicas(client: &Client, deployment: Seen<Deployment>, setup: &Setup) -> Replicas {
    let namespace = &setup.namespace;
    let labels = deployment.found().and_then(|deployment| {
        let labels = deployment.spec.as_ref()?.selector.match_labels.clone()?;
        let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
        Some(pairs.collect::<Vec<_>>().join(","))
    });
    let labels =
        labels.unwrap_or_else(|| "app.kubernetes.io/name=flock,app.kubernetes.io/component=webhook".into());
    let slices = format!("kubernetes.io/service-name={}", setup.service);
    Replicas {
        pods: list(&Api::<Pod>::namespaced(client.clone(), namespace), &labels).await,
        slices: list(
            &Api::<EndpointSlice>::namespaced(client.clone(), namespace),
            &slices,
        )
        .await,
        lease: get(&Api::<Lease>::namespaced(client.clone(), namespace), "flock").await,
        deployment,
    }
}

/// The mutating webhook configuration and the validating one.
pub async fn webhooks(client: &Client) -> (Seen<Value>, Seen<Value>) {
    let mutating = get(&Api::<MutatingWebhookConfiguration>::all(client.clone()), "flock").await;
    let validating = get(
        &Api::<ValidatingWebhookConfiguration>::all(client.clone()),
        "flock",
    )
    .await;
    // What came as JSON can be told as JSON.
    (
        mutating.map(|object| serde_json::to_value(object).unwrap_or_default()),
        validating.map(|object| serde_json::to_value(object).unwrap_or_default()),
    )
}

/// The Secret whose CA signs what is served.
pub async fn secret(client: &Client, setup: &Setup) -> Seen<Secret> {
    let secrets = Api::<Secret>::namespaced(client.clone(), &setup.namespace);
    get(&secrets, super::judge::bundle::secret_name(setup)).await
}

/// The policies of the manifests, as they are in the cluster.
pub async fn guards(client: &Client, manifests: &Manifests) -> Vec<Guard> {
    let policies = Api::<ValidatingAdmissionPolicy>::all(client.clone());
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client.clone());
    let mut guards = Vec::new();
    for wanted in manifests.all::<ValidatingAdmissionPolicy>("ValidatingAdmissionPolicy") {
        let name = wanted.name_any();
        guards.push(Guard {
            policy: get(&policies, &name).await,
            binding: get(&bindings, &name).await,
            name,
        });
    }
    guards
}

/// Asks for each right whether Flock's account has it.
pub async fn rights(
    client: &Client,
    wanted: Vec<ResourceAttributes>,
    setup: &Setup,
) -> Vec<(ResourceAttributes, Seen<bool>)> {
    let api = Api::<SubjectAccessReview>::all(client.clone());
    let answers = stream::iter(wanted).map(|right| {
        let api = api.clone();
        async move {
            let answer = api.create(&PostParams::default(), &question(&right, setup)).await;
            let allowed = answer.map(|review| review.status.map(|status| status.allowed));
            (right, Seen::from_answer(allowed))
        }
    });
    answers.buffered(SIDE_BY_SIDE).collect().await
}

/// All namespaces with their labels.
pub async fn namespaces(client: &Client) -> Seen<BTreeMap<String, BTreeMap<String, String>>> {
    let api = Api::<Namespace>::all(client.clone());
    let answer = api.list_metadata(&ListParams::default()).await;
    let all = Seen::from_answer(answer.map(|list| Some(list.items)));
    all.map(|items| {
        let named = items
            .into_iter()
            .map(|item| (item.name_any(), item.metadata.labels.unwrap_or_default()));
        named.collect()
    })
}

/// The metadata of all pods that have the label, in a namespace or everywhere.
pub async fn members(client: &Client, namespace: Option<&str>) -> Seen<Vec<ObjectMeta>> {
    let api = match namespace {
        Some(namespace) => Api::<Pod>::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let answer = api.list_metadata(&ListParams::default().labels(keys::NAME)).await;
    Seen::from_answer(answer.map(|list| Some(list.items.into_iter().map(|item| item.metadata).collect())))
}

/// Adds the helpers in Flock's namespace to what is known, as far as they may be seen: they know what data is missing.
pub async fn add_helpers(client: &Client, namespace: &str, view: &mut View) {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let selector = format!("app.kubernetes.io/component={COMPONENT}");
    let Seen::Found(helpers) = list(&pods, &selector).await else {
        return;
    };
    for facts in helpers.iter().filter_map(HelperFacts::read) {
        view.storage_mut().apply_helper(facts);
    }
}
