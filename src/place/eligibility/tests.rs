use k8s_openapi::api::core::v1::PodSpec;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::place::fixtures::node;

fn constraints(mut spec: Value) -> Constraints {
    spec["containers"] = json!([]);
    Constraints::from(&serde_json::from_value::<PodSpec>(spec).unwrap())
}

fn tolerating(toleration: &Value) -> Constraints {
    constraints(json!({"tolerations": [toleration]}))
}

#[rstest]
#[case("NoSchedule", Err(Unfit::Taint("k=v:NoSchedule".into())))]
#[case("NoExecute", Err(Unfit::Taint("k=v:NoExecute".into())))]
#[case("PreferNoSchedule", Ok(()))]
#[case("Nonsense", Ok(()))]
fn a_taint_bars_by_its_effect(#[case] effect: &str, #[case] verdict: Result<(), Unfit>) {
    let tainted = node("n1").taint("k", "v", effect);
    assert_eq!(check(&tainted, &constraints(json!({}))), verdict);
    assert_eq!(
        check(&tainted, &tolerating(&json!({"key": "k", "operator": "Exists"}))),
        Ok(())
    );
}

#[test]
fn every_barring_taint_must_be_tolerated() {
    let tainted = node("n1")
        .taint("a", "", "NoSchedule")
        .taint("b", "", "NoSchedule");
    let verdict = check(&tainted, &tolerating(&json!({"key": "a", "operator": "Exists"})));
    assert_eq!(verdict, Err(Unfit::Taint("b:NoSchedule".into())));
}

#[test]
fn a_toleration_for_some_seconds_still_tolerates() {
    let tainted = node("n1").taint("k", "", "NoExecute");
    let brief = json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0});
    assert_eq!(check(&tainted, &tolerating(&brief)), Ok(()));
}

#[rstest]
#[case::none(json!({"key": "other", "operator": "Exists"}), Err(Unfit::Cordoned))]
#[case::by_key(json!({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}), Ok(()))]
#[case::equal_to_nothing(json!({"key": UNSCHEDULABLE}), Ok(()))]
#[case::of_everything(json!({"operator": "Exists"}), Ok(()))]
#[case::of_another_effect(json!({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoExecute"}), Err(Unfit::Cordoned))]
fn a_cordoned_node_is_left_out_unless_that_is_tolerated(
    #[case] toleration: Value,
    #[case] verdict: Result<(), Unfit>,
) {
    let bare = node("n1").cordoned();
    let tainted = bare.clone().taint(UNSCHEDULABLE, "", "NoSchedule");
    assert_eq!(check(&bare, &tolerating(&toleration)), verdict);
    assert_eq!(check(&tainted, &tolerating(&toleration)), verdict);
}

#[test]
fn a_first_placement_needs_a_ready_node_whatever_is_tolerated() {
    let everything = tolerating(&json!({"operator": "Exists"}));
    let silent = node("n1").not_ready().taint(UNREACHABLE, "", "NoSchedule");
    assert_eq!(check(&silent, &everything), Err(Unfit::NotReady));
    // Ready again, but the lifecycle controller has not yet taken its taint off.
    let late = node("n1").taint(NOT_READY, "", "NoSchedule");
    assert_eq!(check(&late, &constraints(json!({}))), Err(Unfit::NotReady));
}

#[test]
fn a_node_that_is_being_deleted_gets_no_ordinal() {
    let mut leaving = node("n1");
    leaving.terminating = true;
    assert_eq!(check(&leaving, &constraints(json!({}))), Err(Unfit::Terminating));
}

#[rstest]
#[case(Some("linux"), Ok(()))]
#[case(Some("windows"), Err(Unfit::OtherOs("windows".into())))]
#[case::not_told(None, Ok(()))]
fn only_nodes_of_the_pods_operating_system_fit(#[case] os: Option<&str>, #[case] verdict: Result<(), Unfit>) {
    let mut node = node("n1");
    node.os = os.map(Into::into);
    assert_eq!(check(&node, &constraints(json!({}))), verdict);
}

#[test]
fn selector_and_affinity_are_told_apart() {
    let selector = constraints(json!({"nodeSelector": {"disk": "ssd"}}));
    assert_eq!(check(&node("n1"), &selector), Err(Unfit::NodeSelector));
    assert_eq!(check(&node("n1").with_label("disk", "ssd"), &selector), Ok(()));
    let affinity = constraints(json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "Exists"}]},
        ]},
    }}}));
    assert_eq!(check(&node("n1"), &affinity), Err(Unfit::NodeAffinity));
    assert_eq!(check(&node("n1").with_label("disk", "ssd"), &affinity), Ok(()));
}

#[rstest]
#[case(Unfit::Terminating, "being deleted")]
#[case(Unfit::OtherOs("windows".into()), "running windows")]
#[case(Unfit::Cordoned, "cordoned")]
#[case(Unfit::NotReady, "not Ready")]
#[case(Unfit::Taint("k=v:NoSchedule".into()), "taint k=v:NoSchedule")]
#[case(Unfit::NodeSelector, "node selector")]
#[case(Unfit::NodeAffinity, "node affinity")]
#[case(Unfit::Carries("gluster-2".into()), "carries gluster-2")]
fn a_reason_is_a_short_phrase(#[case] reason: Unfit, #[case] phrase: &str) {
    assert_eq!(reason.to_string(), phrase);
}

fn tally(fit: usize, unfit: &[(Unfit, usize)]) -> String {
    let unfit = unfit.iter().cloned().collect();
    Tally { fit, unfit }.to_string()
}

#[test]
fn a_summary_counts_the_commonest_reason_first() {
    let unfit = [
        (Unfit::Cordoned, 1),
        (Unfit::NodeAffinity, 3),
        (Unfit::Carries("db-0".into()), 1),
    ];
    assert_eq!(
        tally(0, &unfit),
        "0/5 nodes fit: 3 node affinity, 1 carries db-0, 1 cordoned"
    );
    assert_eq!(tally(2, &[]), "2/2 nodes fit");
    assert_eq!(tally(0, &[]), "0/0 nodes fit");
}

#[test]
fn a_summary_stays_short_whatever_the_cluster() {
    let members: Vec<_> = (0..500).map(|n| (Unfit::Carries(format!("db-{n}")), 1)).collect();
    assert_eq!(tally(0, &members), "0/500 nodes fit: 500 carry other members");
    let taints: Vec<_> = (0..500)
        .map(|n| (Unfit::Taint(format!("k{n}:NoSchedule")), 1))
        .collect();
    let summary = tally(0, &taints);
    assert!(
        summary.ends_with(", 494 for other reasons") && summary.len() < 200,
        "{summary}"
    );
}
