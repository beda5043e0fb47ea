//! `flock-members` and `flock-member-labels`.

use axum::http::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, ResourceExt};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{As, client, create_pod, expect, from, member, merge, node, pod, refused, run};

#[rstest]
#[case::member(As::Admin, "etcd-0", member("etcd", "0"), json!({"hostname": "etcd-0"}), None)]
#[case::long_ordinal(As::Admin, "etcd-9999999", member("etcd", "9999999"), json!({"hostname": "etcd-9999999"}), None)]
#[case::no_member(As::Admin, "web-x7k2p", json!({"app": "web"}), json!({"hostNetwork": true}), None)]
#[case::anonymous(As::Admin, "etcd-x7k2p", json!({"flock.dev/name": "etcd"}), json!({}), Some("must be named etcd-<ordinal>"))]
#[case::other_ordinal(As::Admin, "etcd-0", member("etcd", "1"), json!({"hostname": "etcd-0"}), Some("must be named etcd-<ordinal>"))]
#[case::other_flock(As::Admin, "etcd-0", member("web", "0"), json!({"hostname": "etcd-0"}), Some("must be named web-<ordinal>"))]
#[case::second_spelling(As::Admin, "etcd-00", member("etcd", "00"), json!({"hostname": "etcd-00"}), Some("must be named"))]
#[case::no_hostname(As::Admin, "etcd-0", member("etcd", "0"), json!({}), Some("hostname must be its name"))]
#[case::other_hostname(As::Admin, "etcd-0", member("etcd", "0"), json!({"hostname": "etcd-1"}), Some("not \"etcd-1\""))]
#[case::host_network(As::Admin, "etcd-0", member("etcd", "0"), json!({"hostname": "etcd-0", "hostNetwork": true}), Some("remove hostNetwork"))]
#[case::node_by_hand(As::Admin, "etcd-0", member("etcd", "0"), json!({"hostname": "etcd-0", "nodeName": "node-0"}), Some("flock.dev/nodes"))]
fn a_labelled_pod_is_a_whole_member_or_none(
    #[case] who: As,
    #[case] name: &str,
    #[case] labels: Value,
    #[case] spec: Value,
    #[case] expected: Option<&str>,
) {
    create_pod(who, "default", &pod(name, &labels, &json!({}), spec), expected);
}

#[test]
fn a_generated_name_is_judged_like_any_other() {
    let mut generated = pod("", &json!({"flock.dev/name": "etcd"}), &json!({}), json!({}));
    generated.metadata.name = None;
    generated.metadata.generate_name = Some("etcd-".into());
    create_pod(
        As::Admin,
        "default",
        &generated,
        Some("must be named etcd-<ordinal>"),
    );
}

#[test]
fn the_cluster_itself_is_left_alone() {
    let labelled = pod(
        "etcd-x",
        &json!({"flock.dev/name": "etcd"}),
        &json!({}),
        json!({}),
    );
    create_pod(As::Admin, "kube-system", &labelled, None);
}

/// A pod as a kubelet shows a static one.
fn mirror(name: &str, node_uid: &str) -> Pod {
    let mut mirror = pod(
        name,
        &json!({"flock.dev/name": "etcd"}),
        &json!({"kubernetes.io/config.mirror": "abc"}),
        json!({"nodeName": "node-0", "volumes": [{"name": "data", "hostPath": {"path": "/var/lib/flock"}}]}),
    );
    mirror.metadata.owner_references = Some(vec![from(json!({
        "apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": node_uid, "controller": true,
    }))]);
    mirror
}

#[test]
fn a_mirror_pod_is_a_kubelets_and_nobody_elses() {
    let uid = run(async { node().await.uid().unwrap() });
    create_pod(As::Kubelet, "default", &mirror("etcd-node-0", &uid), None);
    create_pod(
        As::Admin,
        "default",
        &mirror("etcd-node-0", &uid),
        Some("denied request"),
    );
}

#[rstest]
#[case::removed(json!({"flock.dev/name": null}), true)]
#[case::changed(json!({"flock.dev/name": "web"}), true)]
#[case::another_ordinal(json!({"flock.dev/ordinal": "1"}), true)]
#[case::ordinal_removed(json!({"flock.dev/ordinal": null}), true)]
#[case::another_label(json!({"app": "etcd"}), false)]
fn membership_does_not_change_on_a_pod_that_exists(#[case] labels: Value, #[case] refused: bool) {
    run(async {
        let pods: Api<Pod> = Api::default_namespaced(client(As::Admin).await);
        let name = "immutable-3";
        let created = pod(
            name,
            &member("immutable", "3"),
            &json!({}),
            json!({"hostname": name}),
        );
        match pods.create(&PostParams::default(), &created).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
        let expected = refused.then_some("cannot be added, changed or removed");
        merge(&pods, name, &json!({"metadata": {"labels": labels}}), expected).await;
    });
}

#[test]
fn a_running_pod_cannot_join_not_even_through_its_status() {
    run(async {
        let pods: Api<Pod> = Api::default_namespaced(client(As::Admin).await);
        let plain = pod("plain", &json!({}), &json!({}), json!({}));
        pods.create(&PostParams::default(), &plain).await.unwrap();
        let join = json!({"metadata": {"labels": {"flock.dev/name": "etcd"}}});
        merge(&pods, "plain", &join, Some("cannot be added, changed or removed")).await;
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let message =
            refused(|| async { pods.patch_status("plain", &params, &Patch::Merge(&join)).await }).await;
        assert!(
            message.contains("cannot be added, changed or removed"),
            "{message}"
        );
    });
}

#[test]
fn status_and_deletion_of_a_member_are_free() {
    run(async {
        let pods: Api<Pod> = Api::default_namespaced(client(As::Admin).await);
        let name = "free-0";
        let created = pod(name, &member("free", "0"), &json!({}), json!({"hostname": name}));
        pods.create(&PostParams::default(), &created).await.unwrap();
        let status = json!({"status": {"message": "checked"}});
        pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .unwrap();
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    });
}

/// A Binding of a pod with these labels, through `path`, as a dry run.
async fn bind(path: &str, pod: &str, labels: &Value) -> kube::Result<Value> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "labels": labels},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-0"},
    });
    let request = Request::post(format!("/api/v1/namespaces/default/{path}?dryRun=All"))
        .header("Content-Type", "application/json")
        .body(binding.to_string().into_bytes())
        .unwrap();
    client(As::Admin).await.request(request).await
}

#[rstest]
#[case::as_schedulers_send_it(json!({}), None)]
#[case::of_the_nodes_topology(json!({"topology.kubernetes.io/zone": "a"}), None)]
#[case::joins(json!({"flock.dev/name": "etcd"}), Some("may not set the labels flock.dev/name"))]
#[case::another_ordinal(json!({"flock.dev/ordinal": "7"}), Some("may not set the labels flock.dev/name"))]
fn membership_does_not_change_by_a_binding_either(
    #[case] labels: Value,
    #[case] expected: Option<&str>,
    #[values("pods/unbound/binding", "bindings")] path: &str,
) {
    run(async {
        let pods: Api<Pod> = Api::default_namespaced(client(As::Admin).await);
        // For a scheduler that does not exist.
        let unbound = pod(
            "unbound",
            &json!({}),
            &json!({}),
            json!({"schedulerName": "none"}),
        );
        match pods.create(&PostParams::default(), &unbound).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
        expect(expected, || bind(path, "unbound", &labels)).await;
    });
}
