use k8s_openapi::api::core::v1::PodSpec;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::place::fixtures::{key, node};

fn constraints(mut spec: Value) -> Constraints {
    spec["containers"] = json!([]);
    Constraints::from(&serde_json::from_value::<PodSpec>(spec).unwrap())
}

fn affinity(terms: &Value) -> Constraints {
    constraints(json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}}))
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint {
        key: key.into(),
        value: value.into(),
        effect: effect.into(),
    }
}

#[rstest]
#[case::equal(json!({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}), true)]
#[case::no_operator_is_equal(json!({"key": "k", "value": "v", "effect": "NoSchedule"}), true)]
#[case::equal_another_value(json!({"key": "k", "operator": "Equal", "value": "w"}), false)]
#[case::equal_no_value(json!({"key": "k", "operator": "Equal"}), false)]
#[case::exists(json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true)]
#[case::exists_ignores_its_value(json!({"key": "k", "operator": "Exists", "value": "w"}), true)]
#[case::no_effect_is_every_effect(json!({"key": "k", "operator": "Exists"}), true)]
#[case::another_effect(json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}), false)]
#[case::another_key(json!({"key": "l", "operator": "Exists"}), false)]
#[case::no_key_is_every_key(json!({"operator": "Exists"}), true)]
#[case::no_key_but_equal(json!({"operator": "Equal", "value": "v"}), true)]
#[case::unknown_operator(json!({"key": "k", "operator": "Like", "value": "v"}), false)]
#[case::operators_are_case_sensitive(json!({"key": "k", "operator": "exists"}), false)]
fn a_toleration_matches_as_the_scheduler_says(#[case] toleration: Value, #[case] tolerated: bool) {
    let constraints = constraints(json!({"tolerations": [{"key": "other"}, toleration]}));
    assert_eq!(constraints.tolerate(&taint("k", "v", "NoSchedule")), tolerated);
}

#[rstest]
#[case("Gt", "5", "6", true)]
#[case("Gt", "5", "5", false)]
#[case("Gt", "-5", "-4", true)]
#[case("Lt", "5", "4", true)]
#[case("Lt", "5", "5", false)]
#[case("Lt", "5", "", false)]
#[case("Lt", "5", "03", false)]
#[case("Lt", "+5", "4", false)]
#[case("Lt", "5", "99999999999999999999", false)]
fn numeric_tolerations_compare_the_taint_with_their_value(
    #[case] operator: &str,
    #[case] value: &str,
    #[case] of_taint: &str,
    #[case] tolerated: bool,
) {
    let constraints =
        constraints(json!({"tolerations": [{"key": "k", "operator": operator, "value": value}]}));
    assert_eq!(
        constraints.tolerate(&taint("k", of_taint, "NoExecute")),
        tolerated
    );
}

#[test]
fn toleration_seconds_do_not_matter_for_coming() {
    let toleration = |seconds: Option<i64>| {
        constraints(json!({"tolerations": [
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds},
        ]}))
    };
    assert!(toleration(Some(0)).tolerate(&taint("k", "", "NoExecute")));
    assert_eq!(toleration(Some(300)), toleration(None));
}

#[rstest]
#[case::same(json!({"disk": "ssd"}), true)]
#[case::several(json!({"disk": "ssd", "rack": "7"}), true)]
#[case::another_value(json!({"disk": "hdd"}), false)]
#[case::absent(json!({"gpu": ""}), false)]
#[case::one_of_two(json!({"disk": "ssd", "gpu": "x"}), false)]
#[case::empty(json!({}), true)]
fn a_node_selector_asks_for_all_of_its_labels(#[case] selector: Value, #[case] fits: bool) {
    let node = node("n1").with_label("disk", "ssd").with_label("rack", "7");
    assert_eq!(constraints(json!({"nodeSelector": selector})).select(&node), fits);
}

#[test]
fn the_selector_of_a_members_own_node_label_is_left_out() {
    let patched = constraints(json!({"nodeSelector": {
        "db.default.flock.node-restriction.kubernetes.io/3": "", "disk": "ssd",
    }}));
    assert_eq!(patched, constraints(json!({"nodeSelector": {"disk": "ssd"}})));
}

#[rstest]
#[case::contained(json!({"key": "zone", "operator": "In", "values": ["a", "b"]}), true)]
#[case::not_contained(json!({"key": "zone", "operator": "In", "values": ["a"]}), false)]
#[case::in_of_an_absent_label(json!({"key": "gpu", "operator": "In", "values": [""]}), false)]
#[case::in_of_nothing(json!({"key": "zone", "operator": "In", "values": []}), false)]
#[case::not_in(json!({"key": "zone", "operator": "NotIn", "values": ["a"]}), true)]
#[case::not_in_but_is(json!({"key": "zone", "operator": "NotIn", "values": ["b"]}), false)]
#[case::not_in_of_an_absent_label(json!({"key": "gpu", "operator": "NotIn", "values": ["x"]}), true)]
#[case::not_in_of_nothing(json!({"key": "zone", "operator": "NotIn"}), false)]
#[case::exists(json!({"key": "zone", "operator": "Exists"}), true)]
#[case::exists_but_absent(json!({"key": "gpu", "operator": "Exists"}), false)]
#[case::exists_with_values(json!({"key": "zone", "operator": "Exists", "values": ["b"]}), false)]
#[case::does_not_exist(json!({"key": "gpu", "operator": "DoesNotExist"}), true)]
#[case::does_not_exist_but_does(json!({"key": "zone", "operator": "DoesNotExist"}), false)]
#[case::greater(json!({"key": "cores", "operator": "Gt", "values": ["7"]}), true)]
#[case::not_greater(json!({"key": "cores", "operator": "Gt", "values": ["8"]}), false)]
#[case::less(json!({"key": "cores", "operator": "Lt", "values": ["9"]}), true)]
#[case::not_less(json!({"key": "cores", "operator": "Lt", "values": ["8"]}), false)]
#[case::greater_than_text(json!({"key": "cores", "operator": "Gt", "values": ["x"]}), false)]
#[case::text_is_not_greater(json!({"key": "zone", "operator": "Gt", "values": ["1"]}), false)]
#[case::greater_than_two(json!({"key": "cores", "operator": "Gt", "values": ["1", "2"]}), false)]
#[case::absent_is_not_less(json!({"key": "gpu", "operator": "Lt", "values": ["9"]}), false)]
#[case::unknown_operator(json!({"key": "zone", "operator": "Equals", "values": ["b"]}), false)]
#[case::another_flocks_member(
    json!({"key": "web.default.flock.node-restriction.kubernetes.io/0", "operator": "Exists"}), true
)]
fn a_match_expression_matches_as_the_scheduler_says(#[case] requirement: Value, #[case] matches: bool) {
    let node = node("n1")
        .with_label("zone", "b")
        .with_label("cores", "8")
        .carrying(&key("web"), 0);
    let constraints = affinity(&json!([{"matchExpressions": [requirement]}]));
    assert_eq!(constraints.attract(&node), matches);
}

#[rstest]
#[case::named(json!({"key": "metadata.name", "operator": "In", "values": ["n1"]}), true)]
#[case::another(json!({"key": "metadata.name", "operator": "In", "values": ["n2"]}), false)]
#[case::not_named(json!({"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}), false)]
#[case::not_another(json!({"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}), true)]
#[case::two_values(json!({"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}), false)]
#[case::unknown_operator(json!({"key": "metadata.name", "operator": "Exists"}), false)]
#[case::unknown_field(json!({"key": "spec.podCIDR", "operator": "NotIn", "values": ["x"]}), false)]
fn a_match_field_matches_the_name_alone(#[case] requirement: Value, #[case] matches: bool) {
    let constraints = affinity(&json!([{"matchFields": [requirement]}]));
    assert_eq!(constraints.attract(&node("n1")), matches);
}

#[test]
fn requirements_of_a_term_must_all_hold_and_one_term_is_enough() {
    let zone = |zone| json!({"key": "zone", "operator": "In", "values": [zone]});
    let named = |name| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let node = node("n1").with_label("zone", "b");
    let both = |zone_of, name| {
        affinity(&json!([{"matchExpressions": [zone(zone_of)], "matchFields": [named(name)]}]))
    };
    assert!(both("b", "n1").attract(&node));
    assert!(!both("a", "n1").attract(&node) && !both("b", "n2").attract(&node));
    let either = affinity(&json!([{"matchExpressions": [zone("a")]}, {"matchExpressions": [zone("b")]}]));
    assert!(either.attract(&node));
}

#[rstest]
#[case::no_terms(json!([]))]
#[case::an_empty_term(json!([{}]))]
#[case::empty_lists(json!([{"matchExpressions": [], "matchFields": []}]))]
fn an_affinity_without_a_requirement_allows_no_node(#[case] terms: Value) {
    assert!(!affinity(&terms).attract(&node("n1")));
}

#[test]
fn a_term_that_cannot_be_read_does_not_spoil_the_others() {
    let terms = json!([
        {"matchExpressions": [{"key": "zone", "operator": "Nonsense"}]},
        {"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]},
    ]);
    assert!(affinity(&terms).attract(&node("n1")));
}

#[test]
fn preferred_affinity_and_spread_do_not_decide() {
    let free = constraints(json!({
        "affinity": {
            "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}},
            ]},
            "podAntiAffinity": {},
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"},
        ],
    }));
    assert_eq!(free, constraints(json!({})));
    assert!(free.attract(&node("n1")) && free.select(&node("n1")));
}

#[rstest]
#[case::said(json!({"os": {"name": "windows"}}), "windows")]
#[case::selected(json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "windows")]
#[case::said_wins(json!({"os": {"name": "linux"}, "nodeSelector": {"kubernetes.io/os": "windows"}}), "linux")]
#[case::neither(json!({}), "linux")]
fn the_operating_system_is_linux_unless_the_pod_says_otherwise(#[case] spec: Value, #[case] os: &str) {
    assert_eq!(constraints(spec).os(), os);
}

#[test]
fn the_order_of_tolerations_makes_no_difference() {
    let a = json!({"key": "a", "operator": "Exists"});
    let b = json!({"key": "b", "operator": "Exists"});
    assert_eq!(
        constraints(json!({"tolerations": [a, b]})),
        constraints(json!({"tolerations": [b, a, b]}))
    );
}
