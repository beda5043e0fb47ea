//! The validating webhook.

use rstest::rstest;
use serde_json::{Value, json};

use crate::setup::{Webhooks, workload_review};

fn workload(kind: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": "db", "labels": { "flock.dev/name": "db" } },
        "spec": {
            "replicas": 3,
            "template": {
                "metadata": { "labels": { "flock.dev/name": "db" }, "annotations": {} },
                "spec": { "containers": [{ "name": "c", "image": "i" }] },
            },
        },
    })
}

#[tokio::test]
async fn a_workload_without_faults_is_allowed_in_silence() {
    let webhooks = Webhooks::new();
    let answer = webhooks.apply(&workload("Deployment")).await;
    assert!(answer.allowed() && answer.warnings().is_empty() && answer.patch().is_none());
    assert!(
        webhooks
            .metrics()
            .contains("flock_workload_reviews_total{verdict=\"fits\"} 1"),
        "{}",
        webhooks.metrics()
    );
    assert_eq!(webhooks.asked(), 0);
}

#[tokio::test]
async fn all_faults_come_in_one_sentence_each() {
    let webhooks = Webhooks::new();
    let mut object = workload("Deployment");
    object["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    object["spec"]["template"]["spec"]["nodeName"] = json!("n1");
    let answer = webhooks.apply(&object).await;
    assert!(!answer.allowed());
    assert!(
        answer.message().starts_with("(1) spec.nodeName is set to n1"),
        "{}",
        answer.message()
    );
    assert!(
        answer.message().contains("; (2) spec.hostNetwork is true"),
        "{}",
        answer.message()
    );
    assert!(
        webhooks
            .metrics()
            .contains("flock_workload_reviews_total{verdict=\"denied\"} 1")
    );
}

#[rstest]
#[case::create("CREATE", false)]
#[case::update("UPDATE", true)]
#[tokio::test]
async fn an_update_that_leaves_a_fault_is_allowed_with_a_warning(
    #[case] operation: &str,
    #[case] allowed: bool,
) {
    let mut old = workload("Deployment");
    old["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    let body = workload_review(operation, &new, &old);
    let answer = Webhooks::new().post("/validate", body.to_string()).await;
    assert_eq!(answer.allowed(), allowed);
    assert_eq!(answer.warnings().len(), usize::from(allowed));
}

#[tokio::test]
async fn a_namespace_that_forbids_host_directories_is_known() {
    let webhooks = Webhooks::new();
    webhooks.namespace("team-a", Some("restricted"));
    let mut object = workload("StatefulSet");
    object["spec"]["template"]["metadata"]["annotations"]["flock.dev/volumes"] = json!("data");
    object["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    let answer = webhooks.apply(&object).await;
    assert!(
        answer.message().contains("set flock.dev/storage: localVolume"),
        "{}",
        answer.message()
    );
    object["spec"]["template"]["metadata"]["annotations"]["flock.dev/storage"] = json!("localVolume");
    assert!(webhooks.apply(&object).await.allowed());
}

#[tokio::test]
async fn other_workloads_and_services_are_known() {
    let webhooks = Webhooks::new();
    let mut other = workload("ReplicaSet");
    other["metadata"] =
        json!({ "name": "old", "uid": "u", "namespace": "team-a", "labels": { "flock.dev/name": "db" } });
    other["spec"]["selector"] = json!({});
    webhooks.replica_set(other);
    webhooks.service(json!({
        "metadata": { "name": "db", "namespace": "team-a" }, "spec": { "clusterIP": "10.0.0.1" },
    }));
    let answer = webhooks.apply(&workload("Deployment")).await;
    assert!(answer.allowed());
    let warnings = answer.warnings();
    assert!(
        warnings[0].contains("overlap with 0-2 of ReplicaSet old"),
        "{warnings:?}"
    );
    assert!(warnings[1].contains("Service db is not headless"), "{warnings:?}");
}

#[rstest]
#[case::not_a_workload("Service")]
#[case::not_labelled("Deployment")]
#[tokio::test]
async fn what_is_none_of_flocks_business_is_allowed(#[case] kind: &str) {
    let mut object = workload(kind);
    object["spec"]["template"]["metadata"]["labels"] = json!({});
    object["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    assert!(Webhooks::new().apply(&object).await.allowed());
}

#[tokio::test]
async fn long_warnings_are_cut_where_the_api_server_would_cut_them() {
    let mut object = workload("Deployment");
    object["spec"]["template"]["metadata"]["annotations"][format!("flock.dev/{}", "ä".repeat(300))] =
        json!("x\ny");
    let answer = Webhooks::new().apply(&object).await;
    let lengths: Vec<_> = answer
        .warnings()
        .iter()
        .map(|warning| warning.chars().count())
        .collect();
    assert_eq!(lengths, [256]);
}
