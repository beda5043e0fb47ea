use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::cli::doctor::finding::Verdict;
use crate::cli::doctor::manifests::Manifests;

fn wanted() -> Value {
    let manifests = Manifests::read("flock-system", false).unwrap();
    let object: MutatingWebhookConfiguration = manifests.one("MutatingWebhookConfiguration").unwrap();
    serde_json::to_value(object).unwrap()
}

/// The configuration as applied, with one field of its webhook set.
fn with(field: &str, value: Value) -> Value {
    let mut object = wanted();
    object["webhooks"][0][field] = value;
    object
}

fn judged(object: &Value) -> Vec<Finding> {
    judge(
        Kind::Mutating,
        &Seen::Found(object.clone()),
        &wanted(),
        &Setup::of("flock-system", None),
    )
}

#[rstest]
#[case::as_applied("name", json!("members.flock.dev"), Verdict::Ok, "at Service flock in namespace flock-system")]
#[case::an_url("clientConfig", json!({"url": "https://10.0.0.1:8443/mutate"}), Verdict::Ok, "https://10.0.0.1:8443")]
#[case::anothers_url("clientConfig", json!({"url": "https://10.0.0.1:8443/x"}), Verdict::Broken, "points elsewhere")]
#[case::another_service(
    "clientConfig", json!({"service": {"name": "x", "namespace": "flock-system", "path": "/mutate"}}),
    Verdict::Broken, "points elsewhere"
)]
#[case::ignored("failurePolicy", json!("Ignore"), Verdict::Broken, "failurePolicy Ignore")]
#[case::renamed("name", json!("x.flock.dev"), Verdict::Broken, "no webhook members.flock.dev")]
#[case::slower("timeoutSeconds", json!(30), Verdict::Warning, "in timeoutSeconds")]
#[case::fewer_pods("objectSelector", json!({"matchLabels": {"a": "b"}}), Verdict::Warning, "in objectSelector")]
#[case::a_clouds_selector("namespaceSelector", json!({"matchLabels": {"a": "b"}}), Verdict::Ok, "calls Flock")]
fn a_webhook_is_compared_with_its_manifest(
    #[case] field: &str,
    #[case] value: Value,
    #[case] verdict: Verdict,
    #[case] says: &str,
) {
    let findings = judged(&with(field, value));
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].verdict, verdict, "{findings:?}");
    assert!(findings[0].message.contains(says), "{findings:?}");
}

#[test]
fn without_the_courtesy_flock_serves() {
    let verdict = |kind| {
        let setup = Setup::of("flock-system", None);
        judge(kind, &Seen::Absent, &wanted(), &setup)[0].verdict
    };
    assert_eq!(verdict(Kind::Mutating), Verdict::Broken);
    assert_eq!(verdict(Kind::Validating), Verdict::Warning);
}

#[test]
fn a_namespace_with_flocks_that_is_left_out_is_told() {
    let named = |name: &str| {
        let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        (name.to_owned(), labels)
    };
    let flocks = BTreeMap::from([named("default"), named("kube-system")]);
    let findings = hidden(&wanted(), &flocks);
    assert_eq!(findings.len(), 1);
    assert!(
        findings[0].message.contains("leaves out kube-system,"),
        "{findings:?}"
    );
    assert!(hidden(&wanted(), &BTreeMap::from([named("default")])).is_empty());
}
