//! `flock-host-paths`: who may mount what beneath the storage root.

use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{As, create_pod, member, pod, run, uid_of_namespace};

/// A pod that mounts `path` as its volume `data`; `NS` in it stands for the directory of the namespace.
fn mounting(name: &str, labels: &Value, path: &str) -> k8s_openapi::api::core::v1::Pod {
    let own = run(async { format!("default_{}", uid_of_namespace("default").await) });
    let volumes = json!([{"name": "data", "hostPath": {"path": path.replace("NS", &own)}}]);
    let mut spec = json!({"volumes": volumes});
    if !labels.as_object().unwrap().is_empty() {
        spec["hostname"] = name.into();
    }
    pod(name, labels, &json!({}), spec)
}

const NOT_OWN: Option<&str> = Some("a pod may mount only its own member directory");
const PARENT: Option<&str> = Some("which holds the data of all members");

#[rstest]
#[case::own("/var/lib/flock/NS/etcd/0/data", None)]
#[case::own_in_another_spelling("//var/lib/./flock//NS/etcd/0/data/", None)]
#[case::elsewhere("/var/log", None)]
#[case::longer_name_than_the_root("/var/lib/flock2/NS/etcd/1/data", None)]
#[case::shorter_name_than_the_root("/var/lib/flo", None)]
#[case::another_ordinal("/var/lib/flock/NS/etcd/1/data", NOT_OWN)]
#[case::another_flock("/var/lib/flock/NS/web/0/data", NOT_OWN)]
#[case::another_volume("/var/lib/flock/NS/etcd/0/logs", NOT_OWN)]
#[case::another_namespace("/var/lib/flock/kube-system_1/etcd/0/data", NOT_OWN)]
#[case::a_former_namespace("/var/lib/flock/default_0/etcd/0/data", NOT_OWN)]
#[case::deeper("/var/lib/flock/NS/etcd/0/data/sub", NOT_OWN)]
#[case::all_of_its_volumes("/var/lib/flock/NS/etcd/0", NOT_OWN)]
#[case::all_of_its_namespace("/var/lib/flock/NS", NOT_OWN)]
#[case::root("/var/lib/flock", NOT_OWN)]
#[case::root_in_another_spelling("/var//lib/flock/", NOT_OWN)]
#[case::parent("/var/lib", PARENT)]
#[case::parent_in_another_spelling("/./var//lib/", PARENT)]
#[case::host("/", PARENT)]
fn a_member_mounts_its_own_directory_only(#[case] path: &str, #[case] expected: Option<&str>) {
    create_pod(
        As::Admin,
        "default",
        &mounting("etcd-0", &member("etcd", "0"), path),
        expected,
    );
}

#[rstest]
#[case::own_of_a_member("/var/lib/flock/NS/etcd/0/data", Some("this pod is no member"))]
#[case::root("/var/lib/flock", Some("this pod is no member"))]
#[case::empty_parts("/var/lib/flock/NS//0/data", Some("this pod is no member"))]
#[case::node_agent("/", None)]
#[case::elsewhere("/var/lib", None)]
fn a_pod_that_is_no_member_mounts_nothing_beneath_the_root(
    #[case] path: &str,
    #[case] expected: Option<&str>,
) {
    create_pod(
        As::Admin,
        "default",
        &mounting("agent", &json!({}), path),
        expected,
    );
}

#[test]
fn the_annotation_of_mirror_pods_opens_nothing() {
    let mut agent = mounting("agent", &json!({}), "/var/lib/flock");
    agent.metadata.annotations = Some([("kubernetes.io/config.mirror".to_owned(), "abc".to_owned())].into());
    agent.spec.as_mut().unwrap().node_name = Some("node-0".into());
    create_pod(As::Admin, "default", &agent, NOT_OWN);
}

#[test]
fn an_agent_of_the_administrators_may_read_everything() {
    create_pod(
        As::Admin,
        "kube-system",
        &mounting("agent", &json!({}), "/var/lib/flock"),
        None,
    );
}

#[test]
fn the_member_of_the_same_name_in_another_namespace_has_another_directory() {
    let foreign = mounting("etcd-0", &member("etcd", "0"), "/var/lib/flock/NS/etcd/0/data");
    create_pod(As::Admin, "kube-public", &foreign, NOT_OWN);
}
