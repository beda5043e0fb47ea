//! What holds for every document: it is an object of the API, it is listed, and it says nothing twice.

use std::collections::BTreeSet;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Namespace, Service, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use rstest::rstest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::files::{Document, documents, listed, resources, root, yaml_files};

/// Reads a document as its type and writes it again: a field that the type does not know is lost on the way.
fn known<T: DeserializeOwned + Serialize>(document: &Document) -> Value {
    serde_json::to_value(document.typed::<T>()).unwrap()
}

fn read_and_written(document: &Document) -> Option<Value> {
    Some(match (document.api_version(), document.kind()) {
        ("v1", "Namespace") => known::<Namespace>(document),
        ("v1", "Service") => known::<Service>(document),
        ("v1", "ServiceAccount") => known::<ServiceAccount>(document),
        ("apps/v1", "Deployment") => known::<Deployment>(document),
        ("apps/v1", "ReplicaSet") => known::<ReplicaSet>(document),
        ("policy/v1", "PodDisruptionBudget") => known::<PodDisruptionBudget>(document),
        ("networking.k8s.io/v1", "NetworkPolicy") => known::<NetworkPolicy>(document),
        ("scheduling.k8s.io/v1", "PriorityClass") => known::<PriorityClass>(document),
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema") => known::<FlowSchema>(document),
        ("rbac.authorization.k8s.io/v1", "ClusterRole") => known::<ClusterRole>(document),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => known::<ClusterRoleBinding>(document),
        ("rbac.authorization.k8s.io/v1", "Role") => known::<Role>(document),
        ("rbac.authorization.k8s.io/v1", "RoleBinding") => known::<RoleBinding>(document),
        ("admissionregistration.k8s.io/v1", kind) => match kind {
            "MutatingWebhookConfiguration" => known::<MutatingWebhookConfiguration>(document),
            "ValidatingWebhookConfiguration" => known::<ValidatingWebhookConfiguration>(document),
            "ValidatingAdmissionPolicy" => known::<ValidatingAdmissionPolicy>(document),
            "ValidatingAdmissionPolicyBinding" => known::<ValidatingAdmissionPolicyBinding>(document),
            _ => return None,
        },
        _ => return None,
    })
}

#[rstest]
#[case::server("deploy")]
#[case::webhooks("webhook-config")]
#[case::etcd("examples/etcd")]
#[case::redis("examples/redis")]
#[case::gluster("examples/one-deployment-per-member")]
fn every_object_has_only_fields_that_its_kind_knows(#[case] directory: &str) {
    let files = yaml_files(directory);
    let all = files
        .iter()
        .filter(|file| !file.ends_with("kustomization.yaml"))
        .flat_map(documents);
    let mut count = 0;
    for document in all {
        let again = read_and_written(&document)
            .unwrap_or_else(|| panic!("{}: {} is not checked", document.file.display(), document.kind()));
        assert_eq!(again, document.value, "{}", document.file.display());
        count += 1;
    }
    assert!(count > 0);
}

#[rstest]
#[case("deploy")]
#[case("deploy/monitoring")]
#[case("webhook-config")]
#[case("certs")]
#[case("certs/webhook-config")]
fn every_file_of_a_kustomization_is_listed_and_exists(#[case] directory: &str) {
    let named: BTreeSet<_> = ["resources", "patches"]
        .into_iter()
        .flat_map(|key| listed(directory, key))
        .collect();
    for name in &named {
        assert!(
            root().join(directory).join(name).exists(),
            "{directory} lists {name}, which does not exist"
        );
    }
    for file in yaml_files(directory) {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "kustomization.yaml" || named.contains(name),
            "{} is not listed",
            file.display()
        );
    }
}

#[rstest]
#[case("deploy")]
#[case("webhook-config")]
fn no_object_stands_twice_and_every_one_carries_the_label_of_the_app(#[case] directory: &str) {
    let mut seen = BTreeSet::new();
    for document in resources(directory) {
        assert!(
            seen.insert((document.kind().to_owned(), document.name().to_owned())),
            "{document:?} stands twice"
        );
        let label = &document.value["metadata"]["labels"]["app.kubernetes.io/name"];
        assert_eq!(label, "flock", "{} {}", document.kind(), document.name());
    }
}

#[test]
fn namespaced_objects_of_the_server_name_their_namespace() {
    // Otherwise `kubectl apply -f` would put them into whatever namespace is current.
    let namespaced = [
        "Deployment",
        "Service",
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "PodDisruptionBudget",
        "NetworkPolicy",
    ];
    for document in resources("deploy")
        .iter()
        .filter(|document| namespaced.contains(&document.kind()))
    {
        assert_eq!(
            document.value["metadata"]["namespace"],
            "flock-system",
            "{} {}",
            document.kind(),
            document.name()
        );
    }
}
