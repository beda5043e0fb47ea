//! Pods as people write them, and as they are stored: what Flock adds is spelt out, and everything else is the same.
//! The inputs follow the shapes of real manifests (see `tests/fixtures/`).

use std::path::Path;

use rstest::rstest;
use serde_json::{Value, json};

use crate::setup::Webhooks;

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
        .with_extension("yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// `pod` with what a first member of `flock` gets.
fn member(mut pod: Value, flock: &str) -> Value {
    let name = format!("{flock}-0");
    let meta = &mut pod["metadata"];
    meta["name"] = json!(name);
    meta["labels"]["flock.dev/ordinal"] = json!("0");
    meta["labels"]["apps.kubernetes.io/pod-index"] = json!("0");
    meta["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!("0");
    let spec = &mut pod["spec"];
    spec["hostname"] = json!(name);
    spec["subdomain"] = json!(flock);
    spec["nodeSelector"][format!("{flock}.team-a.flock.node-restriction.kubernetes.io/0")] = json!("");
    spec["schedulingGates"] = json!([{ "name": "flock.dev/placement" }]);
    for list in ["initContainers", "containers"] {
        for container in spec
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let mut env = vec![
                json!({ "name": "FLOCK_NAME", "value": flock }),
                json!({ "name": "FLOCK_ORDINAL", "value": "0" }),
                json!({ "name": "FLOCK_SERVICE", "value": flock }),
                json!({ "name": "FLOCK_SEED", "value": format!("{flock}-0.{flock}") }),
            ];
            env.extend(container["env"].as_array().cloned().unwrap_or_default());
            container["env"] = Value::from(env);
        }
    }
    pod
}

fn durable(mut pod: Value, index: usize, flock: &str) -> Value {
    let volume = &mut pod["spec"]["volumes"][index];
    let name = volume["name"].as_str().unwrap().to_owned();
    let path = format!("/var/lib/flock/team-a_uid-of-team-a/{flock}/0/{name}");
    *volume = json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } });
    pod
}

#[rstest]
#[case::fields_of_a_later_version("future-fields", "db")]
#[case::keys_that_need_escaping("escaped-keys", "db")]
#[case::anti_affinity_and_ports("consul", "consul")]
#[case::variables_on_variables("nats", "nats")]
#[case::host_port_and_shared_claim("minio", "mini")]
#[case::own_host_path("glusterd2", "gd2")]
#[case::devices_and_odd_volumes("dynamic-resources", "gpu")]
#[tokio::test]
async fn a_pod_is_stored_as_written_with_its_membership(#[case] name: &str, #[case] flock: &str) {
    let pod = fixture(name);
    let answer = Webhooks::new().create(&pod).await;
    assert_eq!(answer.applied(&pod), member(pod, flock));
    assert_eq!(answer.warnings(), [""; 0]);
}

#[rstest]
#[case::sub_path("ring", "ring")]
#[case::charts_empty_dir("elasticsearch-data", "es-data")]
#[tokio::test]
async fn a_named_empty_dir_is_the_only_thing_of_the_users_that_changes(
    #[case] name: &str,
    #[case] flock: &str,
) {
    let pod = fixture(name);
    let stored = Webhooks::new().create(&pod).await.applied(&pod);
    assert_eq!(stored, durable(member(pod, flock), 0, flock));
}

#[rstest]
#[case("future-fields")]
#[case("escaped-keys")]
#[case("consul")]
#[case("nats")]
#[case("minio")]
#[case("glusterd2")]
#[case("dynamic-resources")]
#[case("ring")]
#[case("elasticsearch-data")]
#[tokio::test]
async fn a_second_pass_changes_nothing(#[case] name: &str) {
    let (webhooks, pod) = (Webhooks::new(), fixture(name));
    let stored = webhooks.create(&pod).await.applied(&pod);
    let again = webhooks.create(&stored).await;
    assert!(again.allowed() && again.patch().is_none(), "{}", again.body);
}

/// A hostname for all replicas is refused rather than replaced in silence, when the workload is applied and when a
/// pod comes.
#[tokio::test]
async fn one_hostname_for_all_members_is_refused() {
    let webhooks = Webhooks::new();
    let mut pod = fixture("ring");
    pod["spec"]["hostname"] = json!("ring-1");
    pod["spec"]["subdomain"] = json!("default-subdomain");
    let said = "spec.hostname is set to \"ring-1\", but a member's is ring-0; remove it from the template";
    assert_eq!(webhooks.create(&pod).await.message(), said);
    let deployment = json!({
        "kind": "Deployment", "metadata": { "name": "ring" }, "spec": { "replicas": 2, "template": pod },
    });
    let message = webhooks.apply(&deployment).await.message().to_owned();
    assert!(
        message.contains(said) && message.contains("spec.subdomain is set to \"default-subdomain\""),
        "{message}"
    );
}

#[rstest]
#[case::daemon_set("DaemonSet", "pods of a DaemonSet cannot be members of flock gl")]
#[case::replica_set("ReplicaSet", "spec.hostNetwork is true")]
#[tokio::test]
async fn a_daemon_set_and_the_hosts_network_are_refused_not_half_changed(
    #[case] kind: &str,
    #[case] said: &str,
) {
    let webhooks = Webhooks::new();
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": kind, "name": "gl", "uid": "u", "controller": true }]);
    let mut pod = json!({
        "metadata": { "generateName": "gl-", "labels": { "flock.dev/name": "gl" }, "ownerReferences": owner },
        "spec": {
            "hostNetwork": true,
            "containers": [{ "name": "g", "image": "i", "volumeMounts": [{ "name": "run", "mountPath": "/run" }] }],
            "volumes": [{ "name": "run" }],
        },
    });
    let answer = webhooks.create(&pod).await;
    assert!(
        !answer.allowed() && answer.patch().is_none() && answer.message().contains(said),
        "{}",
        answer.message()
    );
    pod["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    let workload = json!({ "kind": kind, "metadata": { "name": "gl" }, "spec": { "template": pod } });
    assert!(webhooks.apply(&workload).await.message().contains(said));
}

/// A volume without a source is an emptyDir, by the API server's default.
#[tokio::test]
async fn a_volume_given_by_name_only_may_become_durable() {
    let mut pod = fixture("nats");
    pod["metadata"]["annotations"]["flock.dev/volumes"] = json!("pid");
    pod["spec"]["volumes"] = json!([{ "name": "pid" }]);
    let stored = Webhooks::new().create(&pod).await.applied(&pod);
    assert_eq!(stored, durable(member(pod, "nats"), 0, "nats"));
}

#[tokio::test]
async fn one_claim_for_three_members_is_said_and_left_alone() {
    let pod = fixture("minio");
    let deployment = json!({
        "kind": "Deployment", "metadata": { "name": "mini" }, "spec": { "replicas": 3, "template": pod },
    });
    let answer = Webhooks::new().apply(&deployment).await;
    assert!(answer.allowed());
    assert!(
        answer.warnings()[0].starts_with("all 3 members share the claim mini-claim"),
        "{:?}",
        answer.warnings()
    );
}
