//! `flock-own-nodes`, and NodeRestriction beside it.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{As, client, merge, run};

const OWN_LABEL: &str = "etcd.default.flock.node-restriction.kubernetes.io/0";
const LABELS_ONLY: Option<&str> =
    Some("Flock may change only labels <flock>.<namespace>.flock.node-restriction");
const NOTHING_ELSE: Option<&str> = Some("not their spec, taints, annotations");

#[rstest]
#[case::own(json!({"metadata": {"labels": {OWN_LABEL: ""}}}), None)]
#[case::several(json!({"metadata": {"labels": {OWN_LABEL: "", "a-b.c-d.flock.node-restriction.kubernetes.io/12": ""}}}), None)]
#[case::role(json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}), LABELS_ONLY)]
#[case::zone_removed(json!({"metadata": {"labels": {"topology.kubernetes.io/zone": null}}}), LABELS_ONLY)]
#[case::hostname_changed(json!({"metadata": {"labels": {"kubernetes.io/hostname": "x"}}}), LABELS_ONLY)]
#[case::own_and_another(json!({"metadata": {"labels": {OWN_LABEL: "", "a": "b"}}}), LABELS_ONLY)]
#[case::another_restriction(json!({"metadata": {"labels": {"team.node-restriction.kubernetes.io/0": ""}}}), LABELS_ONLY)]
#[case::end_of_the_domain(json!({"metadata": {"labels": {"etcd.defaultflock.node-restriction.kubernetes.io/0": ""}}}), LABELS_ONLY)]
#[case::no_number(json!({"metadata": {"labels": {"etcd.default.flock.node-restriction.kubernetes.io/x": ""}}}), LABELS_ONLY)]
#[case::with_a_value(json!({"metadata": {"labels": {OWN_LABEL: "x"}}}), LABELS_ONLY)]
#[case::second_spelling(json!({"metadata": {"labels": {"etcd.default.flock.node-restriction.kubernetes.io/00": ""}}}), LABELS_ONLY)]
#[case::annotation(json!({"metadata": {"annotations": {"a": "b"}}}), NOTHING_ELSE)]
#[case::taint(json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}), NOTHING_ELSE)]
#[case::cordon(json!({"spec": {"unschedulable": true}}), NOTHING_ELSE)]
#[case::finalizer(json!({"metadata": {"finalizers": ["example.com/keep"]}}), NOTHING_ELSE)]
fn flock_changes_nothing_of_a_node_but_its_own_labels(#[case] patch: Value, #[case] expected: Option<&str>) {
    run(async {
        let nodes: Api<Node> = Api::all(client(As::Flock).await);
        merge(&nodes, "node-0", &patch, expected).await;
    });
}

#[test]
fn flock_takes_its_own_label_away_again_and_a_kubelet_neither_sets_nor_removes_it() {
    run(async {
        let patch = |value: Value| Patch::Merge(json!({"metadata": {"labels": {OWN_LABEL: value}}}));
        let flock: Api<Node> = Api::all(client(As::Flock).await);
        let kubelet: Api<Node> = Api::all(client(As::Kubelet).await);
        let set = patch("".into());
        let removed = patch(Value::Null);
        let params = PatchParams::default();
        let error = kubelet.patch("node-0", &params, &set).await.unwrap_err();
        assert!(
            error.to_string().contains("is not allowed to modify labels"),
            "{error}"
        );
        flock.patch("node-0", &params, &set).await.unwrap();
        let error = kubelet.patch("node-0", &params, &removed).await.unwrap_err();
        assert!(
            error.to_string().contains("is not allowed to modify labels"),
            "{error}"
        );
        flock.patch("node-0", &params, &removed).await.unwrap();
    });
}

#[test]
fn administrators_label_nodes_as_ever() {
    run(async {
        let nodes: Api<Node> = Api::all(client(As::Admin).await);
        merge(
            &nodes,
            "node-0",
            &json!({"metadata": {"labels": {"a": "b"}}}),
            None,
        )
        .await;
    });
}
