//! One test for each sentence that a user may read when applying a workload.

use rstest::rstest;
use serde_json::{Value, json};

use crate::view::fixtures::{key, node, now, revision, service, set, view};
use crate::view::{NamespaceFacts, ServiceFacts};

use super::*;

fn workload(kind: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": { "name": "db", "labels": { "flock.dev/name": "db" } },
        "spec": {
            "replicas": 3,
            "template": {
                "metadata": { "labels": { "flock.dev/name": "db" }, "annotations": {} },
                "spec": { "containers": [{ "name": "c", "image": "i" }], "volumes": [] },
            },
        },
    })
}

fn durable(kind: &str, volume: &Value, annotations: &[(&str, &str)]) -> Value {
    let mut object = workload(kind);
    object["spec"]["template"]["spec"]["volumes"] = json!([volume]);
    object["spec"]["template"]["metadata"]["annotations"]["flock.dev/volumes"] = json!("data");
    for (name, value) in annotations {
        object["spec"]["template"]["metadata"]["annotations"][name] = json!(value);
    }
    object
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[last.replace("~1", "/")] = value;
    object
}

fn judged_in(view: &View, new: &Value, old: Option<&Value>) -> Option<Judgement> {
    let (new, old) = (new.to_string(), old.map(Value::to_string));
    let policy = Policy {
        host_path_root: "/var/lib/flock".into(),
    };
    let workload: RawWorkload<'_> = serde_json::from_str(&new).unwrap();
    let old: Option<RawWorkload<'_>> = old.as_deref().map(|text| serde_json::from_str(text).unwrap());
    let subject = Subject {
        kind: &workload.kind,
        namespace: "default",
        workload: &workload,
    };
    judge(
        subject,
        old.as_ref(),
        Known {
            view,
            policy: &policy,
        },
    )
}

fn judged(new: &Value) -> Judgement {
    judged_in(&view(vec![], vec![]), new, None).expect("it is Flock's business")
}

fn denied(new: &Value) -> String {
    let denials = judged(new).denials;
    assert!(!denials.is_empty(), "not denied: {new}");
    denials
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn warned(view: &View, new: &Value) -> String {
    let judgement = judged_in(view, new, None).unwrap();
    assert_eq!(judgement.denials, []);
    assert!(
        judgement
            .warnings
            .iter()
            .all(|warning| warning.chars().count() <= 256),
        "{:?}",
        judgement.warnings
    );
    judgement.warnings.join("\n")
}

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

#[test]
fn overlapping_ordinals_of_another_workload_are_a_warning() {
    let other = set("other", 2).annotated(&[("flock.dev/ordinals", "2-")]);
    let said = warned(&view(vec![other], vec![]), &workload("Deployment"));
    assert!(
        said.contains("ordinals 0-2 overlap with 2-3 of ReplicaSet other"),
        "{said}"
    );
    let apart = set("other", 2).annotated(&[("flock.dev/ordinals", "3-")]);
    assert_eq!(warned(&view(vec![apart], vec![]), &workload("Deployment")), "");
}

#[test]
fn a_workload_does_not_overlap_with_itself() {
    assert_eq!(
        warned(&view(vec![set("db", 3)], vec![]), &workload("ReplicaSet")),
        ""
    );
    let revisions = || vec![revision("r1", 1, 3, 3), revision("r2", 2, 3, 3)];
    let own = with(workload("Deployment"), "/metadata/name", json!("deploy"));
    assert_eq!(warned(&view(revisions(), vec![]), &own), "");
    let said = warned(&view(revisions(), vec![]), &workload("Deployment"));
    assert_eq!(said.lines().count(), 1);
    assert!(said.contains("of Deployment deploy"), "{said}");
}

#[test]
fn another_service_than_that_of_the_flocks_other_workload_is_a_warning() {
    let other = set("other", 1).annotated(&[("flock.dev/ordinals", "9"), ("flock.dev/service", "peers")]);
    let said = warned(&view(vec![other], vec![]), &workload("Deployment"));
    assert!(
        said.contains("Service db governs its members, and peers those of ReplicaSet other"),
        "{said}"
    );
}

#[test]
fn a_service_that_is_not_headless_is_a_warning() {
    let mut known = view(vec![], vec![]);
    known.apply_service(ServiceFacts {
        headless: false,
        made_for: None,
        ..service("")
    });
    let said = warned(&known, &workload("Deployment"));
    assert!(
        said.contains("Service db is not headless, so members have no DNS names"),
        "{said}"
    );
    let named = with(workload("StatefulSet"), "/spec/serviceName", json!("other"));
    assert_eq!(warned(&known, &named), "");
}

#[rstest]
#[case::typo(
    "flock.dev/volume",
    "Flock knows no annotation flock.dev/volume; is it flock.dev/volumes?"
)]
#[case::case("flock.dev/storageClass", "; is it flock.dev/storage-class?")]
#[case::strange(
    "flock.dev/replication-factor",
    "Flock knows no annotation flock.dev/replication-factor"
)]
#[case::label("flock.dev/name", "annotation flock.dev/name has no effect: it is a label")]
fn an_unknown_annotation_is_a_warning(#[case] key: &str, #[case] said: &str) {
    let mut object = workload("Deployment");
    object["spec"]["template"]["metadata"]["annotations"][key] = json!("x");
    let warnings = warned(&view(vec![], vec![]), &object);
    assert!(warnings.contains(said), "{warnings}");
}

#[test]
fn annotations_in_the_wrong_place_are_a_warning() {
    let mut object = workload("Deployment");
    object["metadata"]["annotations"] = json!({ "flock.dev/pin": "Shared", "flock.dev/woken-at": "x" });
    object["spec"]["template"]["metadata"]["labels"]["flock.dev/start"] = json!("Ordered");
    let said = warned(&view(vec![], vec![]), &object);
    assert!(
        said.contains("annotation flock.dev/pin has no effect on the Deployment itself; move it to"),
        "{said}"
    );
    assert!(
        said.contains("label flock.dev/start has no effect: it is an annotation"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 2);
}

#[rstest]
#[case::replica_set("ReplicaSet", true)]
#[case::deployment("Deployment", false)]
fn a_replica_set_that_flock_cannot_watch_is_a_warning(#[case] kind: &str, #[case] warns: bool) {
    let object = with(workload(kind), "/metadata/labels", Value::Null);
    let said = warned(&view(vec![], vec![]), &object);
    assert_eq!(
        said.contains("itself lacks the label flock.dev/name: db"),
        warns,
        "{said}"
    );
}

#[rstest]
#[case::default(json!({ "maxSurge": "25%", "maxUnavailable": "25%" }), "")]
#[case::plain(json!({ "maxSurge": 0, "maxUnavailable": 1 }), "")]
#[case::never_fewer(json!({ "maxSurge": 1, "maxUnavailable": 0 }), "maxUnavailable: 0 cannot hold")]
#[case::never_fewer_percent(json!({ "maxSurge": 1, "maxUnavailable": "0%" }), "maxUnavailable: 0 cannot hold")]
#[case::blue_green(json!({ "maxSurge": "100%", "maxUnavailable": 1 }), "maxSurge: 100% brings no second set")]
fn a_surge_that_cannot_be_honoured_is_a_warning_where_it_misleads(
    #[case] numbers: Value,
    #[case] said: &str,
) {
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": numbers });
    let object = with(workload("Deployment"), "/spec/strategy", strategy);
    let warnings = warned(&view(vec![], vec![]), &object);
    assert!(
        warnings.contains(said) && warnings.is_empty() == said.is_empty(),
        "{warnings}"
    );
}

#[rstest]
#[case::shared(3, json!({ "claimName": "mini" }), true)]
#[case::one(1, json!({ "claimName": "mini" }), false)]
#[case::read_only(3, json!({ "claimName": "mini", "readOnly": true }), false)]
fn one_claim_for_several_members_is_a_warning(
    #[case] replicas: u32,
    #[case] claim: Value,
    #[case] warns: bool,
) {
    let mut object = with(workload("Deployment"), "/spec/replicas", json!(replicas));
    object["spec"]["template"]["spec"]["volumes"] = json!([{ "name": "s", "persistentVolumeClaim": claim }]);
    let said = warned(&view(vec![], vec![]), &object);
    assert_eq!(
        said.contains("all 3 members share the claim mini"),
        warns,
        "{said}"
    );
}

#[test]
fn one_directory_for_several_members_of_a_node_is_a_warning() {
    let mut object = workload("Deployment");
    object["spec"]["template"]["spec"]["volumes"] =
        json!([{ "name": "s", "hostPath": { "path": "/var/lib/glusterd2" } }]);
    assert_eq!(warned(&view(vec![], vec![]), &object), "");
    let shared = with(
        object,
        "/spec/template/metadata/annotations/flock.dev~1pin",
        json!("Shared"),
    );
    assert!(warned(&view(vec![], vec![]), &shared).contains("share its directory /var/lib/glusterd2"));
}

#[test]
fn nodes_that_do_not_suffice_are_a_warning() {
    let mut known = view(vec![], vec![]);
    known.apply_node(node("n1", &[]));
    let said = warned(&known, &workload("Deployment"));
    assert!(
        said.contains("each of 3 members wants a node of its own, and the cluster has 1"),
        "{said}"
    );
    let mut object = with(workload("Deployment"), "/spec/replicas", json!(1));
    object["spec"]["template"]["metadata"]["annotations"]["flock.dev/nodes"] = json!("n1,,n9");
    assert!(warned(&known, &object).contains("names n9, but there is no such node"));
}

#[test]
fn warnings_are_short_whatever_the_names() {
    let long = "x".repeat(63);
    let other = set(&"o".repeat(63), 100).annotated(&[("flock.dev/service", &long)]);
    let mut known = View::default();
    let flock = crate::identity::FlockKey::parse("default", &"f".repeat(55)).unwrap();
    assert_ne!(flock, key());
    known.apply_workload(flock, other);
    let mut object = with(
        workload("Deployment"),
        "/spec/template/metadata/labels/flock.dev~1name",
        json!("f".repeat(55)),
    );
    object["spec"]["template"]["metadata"]["annotations"][format!("flock.dev/{long}")] =
        json!(now().to_string());
    assert!(warned(&known, &object).lines().count() >= 3);
}

#[rstest]
#[case::flock("/spec/template/metadata/labels/flock.dev~1name", json!("other"), "label flock.dev/name changes from db to other")]
#[case::storage("/spec/template/metadata/annotations/flock.dev~1storage", json!("claim"), "changes from hostPath to claim: members start on new, empty volumes")]
#[case::volume("/spec/template/metadata/annotations", json!({}), "annotation flock.dev/volumes no longer names data")]
#[case::nothing("/spec/template/metadata/annotations/flock.dev~1pin", json!("Shared"), "")]
fn an_update_that_leaves_data_behind_is_a_warning(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] said: &str,
) {
    let old = durable("Deployment", &json!({ "name": "data" }), &[]);
    let judgement = judged_in(
        &view(vec![], vec![]),
        &with(old.clone(), pointer, value),
        Some(&old),
    )
    .unwrap();
    assert_eq!(judgement.denials, []);
    let warnings = judgement.warnings.join("\n");
    assert!(
        warnings.contains(said) && warnings.is_empty() == said.is_empty(),
        "{warnings}"
    );
    assert!(
        judgement
            .warnings
            .iter()
            .all(|warning| warning.chars().count() <= 256)
    );
}
