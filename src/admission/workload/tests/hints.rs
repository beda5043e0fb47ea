//! What is a warning.

use rstest::rstest;
use serde_json::{Value, json};

use crate::view::fixtures::{key, node, now, revision, service, set, view};
use crate::view::{ServiceFacts, View};

use super::{durable, judged_in, warned, with, workload};

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
