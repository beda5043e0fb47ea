//! What is denied.

use rstest::rstest;
use serde_json::{Value, json};

use crate::admission::workload::{Fault, Judgement};
use crate::view::fixtures::view;
use crate::view::{NamespaceFacts, View};

use super::{denied, durable, judged, judged_in, with, workload};

#[rstest]
#[case("Deployment")]
#[case("ReplicaSet")]
#[case("ReplicationController")]
#[case("StatefulSet")]
fn a_workload_without_faults_hears_nothing(#[case] kind: &str) {
    assert_eq!(judged(&workload(kind)), Judgement::default());
}

#[test]
fn a_workload_whose_template_has_no_label_is_not_judged() {
    let plain = with(
        workload("Deployment"),
        "/spec/template/metadata/labels",
        json!({ "app": "db" }),
    );
    assert_eq!(judged_in(&View::default(), &plain, None), None);
    let empty = with(workload("ReplicationController"), "/spec/template", Value::Null);
    assert_eq!(judged_in(&View::default(), &empty, None), None);
}

#[rstest]
#[case::of_a_deployment("ReplicaSet", "Deployment")]
#[case::of_a_cron_job("Job", "CronJob")]
fn what_a_workload_made_was_judged_with_it(#[case] kind: &str, #[case] owner: &str) {
    let owned = json!([{ "apiVersion": "v1", "kind": owner, "name": "o", "uid": "u", "controller": true }]);
    let made = with(workload(kind), "/metadata/ownerReferences", owned);
    let wrong = with(made, "/spec/template/spec/hostNetwork", json!(true));
    assert_eq!(judged_in(&View::default(), &wrong, None), None);
}

#[test]
fn a_workload_that_is_going_is_not_held() {
    let going = with(
        workload("DaemonSet"),
        "/metadata/deletionTimestamp",
        json!("2026-01-01T00:00:00Z"),
    );
    assert_eq!(judged_in(&View::default(), &going, None), None);
}

#[rstest]
#[case::daemon_set("DaemonSet", "pods of a DaemonSet cannot be members of flock db")]
#[case::job("Job", "pods of a Job cannot be members of flock db")]
fn kinds_that_cannot_have_members_are_denied(#[case] kind: &str, #[case] said: &str) {
    let message = denied(&workload(kind));
    assert!(
        message.contains(said) && message.contains("take the label flock.dev/name off"),
        "{message}"
    );
}

#[test]
fn a_cron_job_is_denied_for_its_jobs_template() {
    let mut object = workload("CronJob");
    let template = object["spec"]["template"].take();
    object["spec"] = json!({ "jobTemplate": { "spec": { "template": template } } });
    assert!(denied(&object).contains("pods of a CronJob cannot be members"));
}

#[rstest]
#[case::dots("/spec/template/metadata/labels/flock.dev~1name", json!("app-0.1.0"), "label flock.dev/name has the value \"app-0.1.0\"")]
#[case::upper("/spec/template/metadata/labels/flock.dev~1name", json!("My_DB"), "at most 63 of a-z, 0-9 and -")]
#[case::empty("/spec/template/metadata/labels/flock.dev~1name", json!(""), "has the value \"\"")]
#[case::digit("/spec/template/metadata/labels/flock.dev~1name", json!("3scale"), "a Service's name must start with a letter")]
#[case::too_long("/spec/template/metadata/labels/flock.dev~1name", json!("a".repeat(62)), "-0 has more than 63 characters")]
#[case::pin("/spec/template/metadata/annotations/flock.dev~1pin", json!("exclusive"), "annotation flock.dev/pin: \"exclusive\" is none of")]
#[case::ordinals("/spec/template/metadata/annotations/flock.dev~1ordinals", json!("2-0"), "annotation flock.dev/ordinals: the range \"2-0\"")]
#[case::too_many("/spec/template/metadata/annotations/flock.dev~1ordinals", json!("0,4"), "3 replicas are wanted, but annotation flock.dev/ordinals (0,4) has 2 ordinals")]
#[case::host_network("/spec/template/spec/hostNetwork", json!(true), "spec.hostNetwork is true")]
#[case::node_name("/spec/template/spec/nodeName", json!("n1"), "spec.nodeName is set to n1")]
#[case::hostname("/spec/template/spec/hostname", json!("ring-1"), "spec.hostname is set to \"ring-1\"")]
#[case::first_hostname("/spec/template/spec/hostname", json!("db-0"), "spec.hostname is set to \"db-0\", but a member's is db-2")]
#[case::subdomain("/spec/template/spec/subdomain", json!("default-subdomain"), "spec.subdomain is set to \"default-subdomain\", but a member's is db")]
#[case::overridden("/spec/template/spec/hostnameOverride", json!("x"), "spec.hostnameOverride is set to \"x\"")]
#[case::ordinal_label("/spec/template/metadata/labels/flock.dev~1ordinal", json!("0"), "label flock.dev/ordinal is \"0\"")]
#[case::no_volume("/spec/template/metadata/annotations/flock.dev~1volumes", json!("data"), "names the volume data, which the pod does not have")]
fn what_no_pod_could_be_is_denied_at_once(#[case] pointer: &str, #[case] value: Value, #[case] said: &str) {
    let message = denied(&with(workload("Deployment"), pointer, value));
    assert!(message.contains(said), "{message}");
}

#[test]
fn all_faults_are_told_at_once() {
    let mut object = workload("Deployment");
    object["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    object["spec"]["template"]["spec"]["hostname"] = json!("x");
    object["spec"]["template"]["metadata"]["annotations"]["flock.dev/volumes"] = json!("a,b");
    assert_eq!(judged(&object).denials.len(), 4);
}

#[test]
fn a_hostname_that_is_the_only_members_own_is_right() {
    let one = with(workload("ReplicaSet"), "/spec/replicas", json!(1));
    let named = with(one, "/spec/template/spec/hostname", json!("db-0"));
    assert_eq!(judged(&named), Judgement::default());
}

#[test]
fn without_replicas_the_first_name_is_judged() {
    let none = with(workload("ReplicaSet"), "/spec/replicas", json!(0));
    let named = with(
        none,
        "/spec/template/metadata/labels/flock.dev~1name",
        json!("a".repeat(62)),
    );
    assert!(denied(&named).contains("has more than 63 characters"));
}

#[rstest]
#[case::memory(json!({ "name": "data", "emptyDir": { "medium": "Memory" } }), "an emptyDir of medium Memory")]
#[case::config(json!({ "name": "data", "configMap": { "name": "c" } }), "of kind configMap")]
fn a_named_volume_that_cannot_become_durable_is_denied(#[case] volume: Value, #[case] said: &str) {
    let message = denied(&durable("Deployment", &volume, &[]));
    assert!(message.contains(said), "{message}");
}

fn enforcing(level: &str) -> View {
    let mut view = view(vec![], vec![]);
    view.apply_namespace(NamespaceFacts {
        name: "default".into(),
        uid: "ns-uid".into(),
        enforce: Some(level.into()),
        terminating: false,
    });
    view
}

#[rstest]
#[case::baseline("baseline", "hostPath", true)]
#[case::restricted("restricted", "hostPath", true)]
#[case::privileged("privileged", "hostPath", false)]
#[case::local_volume("restricted", "localVolume", false)]
#[case::claim("restricted", "claim", false)]
fn host_directories_are_denied_where_pod_security_forbids_them(
    #[case] level: &str,
    #[case] storage: &str,
    #[case] forbidden: bool,
) {
    let volume = json!({ "name": "data", "emptyDir": {} });
    let object = durable("Deployment", &volume, &[("flock.dev/storage", storage)]);
    let denials = judged_in(&enforcing(level), &object, None).unwrap().denials;
    assert_eq!(!denials.is_empty(), forbidden);
    if let Some(fault) = denials.first() {
        let message = fault.to_string();
        assert!(
            message.contains(&format!("enforces the Pod Security level {level}")),
            "{message}"
        );
        assert!(
            message.contains("set flock.dev/storage: localVolume"),
            "{message}"
        );
    }
}

#[test]
fn a_stateful_set_must_be_named_as_its_flock() {
    let other = with(workload("StatefulSet"), "/metadata/name", json!("web"));
    assert!(denied(&other).contains("set the label flock.dev/name of its template to web"));
}

#[test]
fn a_stateful_sets_own_hostname_and_subdomain_are_its_own() {
    let mut object = with(workload("StatefulSet"), "/spec/serviceName", json!("governing"));
    object["spec"]["template"]["spec"]["subdomain"] = json!("anything");
    object["spec"]["template"]["spec"]["hostname"] = json!("anything");
    assert_eq!(judged(&object), Judgement::default());
}

#[test]
fn a_stateful_set_counts_from_its_own_start() {
    let long = with(
        workload("StatefulSet"),
        "/spec/template/metadata/labels/flock.dev~1name",
        json!("a".repeat(61)),
    );
    let named = with(long, "/metadata/name", json!("a".repeat(61)));
    assert_eq!(judged(&named).denials, []);
    let late = with(named, "/spec/ordinals", json!({ "start": 9 }));
    assert!(denied(&late).contains("-11 has more than 63 characters"));
}

#[test]
fn a_stateful_sets_claim_may_be_durable_only_as_a_claim() {
    let mut object = durable("StatefulSet", &json!({ "name": "tmp" }), &[]);
    object["spec"]["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" } }]);
    assert!(denied(&object).contains("which is a claim by volumeClaimTemplates"));
    let claim = with(
        object,
        "/spec/template/metadata/annotations/flock.dev~1storage",
        json!("claim"),
    );
    assert_eq!(judged(&claim).denials, []);
}

#[rstest]
#[case::image("/spec/template/spec/containers/0/image", json!("j"))]
#[case::scale_up("/spec/replicas", json!(9))]
#[case::scale_down("/spec/replicas", json!(2))]
#[case::finalizer("/metadata/finalizers", json!([]))]
fn an_update_is_not_held_by_what_was_wrong_before(#[case] pointer: &str, #[case] value: Value) {
    let mut old = workload("Deployment");
    old["spec"]["template"]["spec"]["hostname"] = json!("x");
    old["spec"]["template"]["metadata"]["annotations"]["flock.dev/ordinals"] = json!("0");
    let judgement = judged_in(
        &view(vec![], vec![]),
        &with(old.clone(), pointer, value),
        Some(&old),
    )
    .unwrap();
    assert_eq!(judgement.denials, []);
    assert!(
        judgement
            .warnings
            .iter()
            .any(|w| w.starts_with("as before, its pods will be refused: spec.hostname"))
    );
}

#[test]
fn a_new_fault_of_an_update_is_denied() {
    let mut old = workload("Deployment");
    old["spec"]["template"]["spec"]["hostname"] = json!("x");
    let new = with(old.clone(), "/spec/template/spec/hostNetwork", json!(true));
    let judgement = judged_in(&view(vec![], vec![]), &new, Some(&old)).unwrap();
    assert_eq!(
        judgement.denials,
        [Fault::Pod(crate::admission::Refusal::HostNetwork)]
    );
    let worse = with(old.clone(), "/spec/template/spec/hostname", json!("y"));
    assert_eq!(
        judged_in(&view(vec![], vec![]), &worse, Some(&old))
            .unwrap()
            .denials
            .len(),
        1
    );
}

#[test]
fn a_template_that_joins_by_an_update_is_judged_as_new() {
    let mut new = workload("Deployment");
    new["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    let old = with(new.clone(), "/spec/template/metadata/labels", json!({}));
    assert_eq!(
        judged_in(&view(vec![], vec![]), &new, Some(&old))
            .unwrap()
            .denials
            .len(),
        1
    );
}
