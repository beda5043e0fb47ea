//! The examples, read by the code that will read them in a cluster.

use flock::identity::{DnsLabel, Settings, Storage, keys};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rstest::rstest;

use crate::files::{Document, documents, text};

fn parts(document: &Document) -> (LabelSelector, PodTemplateSpec) {
    let spec = &document.value["spec"];
    (
        serde_json::from_value(spec["selector"].clone()).unwrap(),
        serde_json::from_value(spec["template"].clone()).unwrap(),
    )
}

#[rstest]
#[case("examples/etcd/replicaset.yaml")]
#[case("examples/etcd/deployment.yaml")]
#[case("examples/redis/deployment.yaml")]
#[case("examples/one-deployment-per-member/gluster.yaml")]
fn an_example_is_one_that_flock_accepts(#[case] file: &str) {
    for document in documents(file) {
        let (selector, template) = parts(&document);
        let metadata = template.metadata.unwrap();
        let labels = metadata.labels.unwrap();
        for (key, value) in selector.match_labels.unwrap() {
            assert_eq!(labels.get(&key), Some(&value));
            // Joining a flock must not need another selector, which cannot be changed.
            assert!(!key.starts_with("flock.dev/"));
        }
        DnsLabel::parse(&labels[keys::NAME]).unwrap();
        let annotations = metadata.annotations.unwrap();
        let settings = Settings::parse(|key| annotations.get(key).map(String::as_str)).unwrap();
        assert_eq!(settings.storage, Storage::HostPath);
        let pod = template.spec.unwrap();
        let volumes = pod.volumes.unwrap();
        assert!(!settings.volumes.is_empty());
        for name in &settings.volumes {
            let volume = volumes
                .iter()
                .find(|volume| volume.name == name.as_str())
                .unwrap();
            assert!(volume.empty_dir.is_some(), "the manifest runs without Flock too");
        }
        for container in &pod.containers {
            for mount in container.volume_mounts.iter().flatten() {
                assert!(volumes.iter().any(|volume| volume.name == mount.name));
            }
        }
    }
}

#[test]
fn the_deployment_of_etcd_differs_from_its_replica_set_in_nothing_but_the_kind() {
    let mut replica_set = documents("examples/etcd/replicaset.yaml").remove(0).value;
    let deployment = documents("examples/etcd/deployment.yaml").remove(0).value;
    replica_set["kind"] = "Deployment".into();
    // A Deployment's ReplicaSets get their labels from the template.
    replica_set["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(replica_set, deployment);
}

#[test]
fn etcd_is_told_of_every_member_by_name() {
    let document = documents("examples/etcd/replicaset.yaml").remove(0);
    let replicas = document.value["spec"]["replicas"].as_u64().unwrap();
    let command = text("examples/etcd/replicaset.yaml");
    for ordinal in 0..replicas {
        assert!(command.contains(&format!("etcd-{ordinal}=http://etcd-{ordinal}.etcd:2380")));
    }
    assert!(!command.contains(&format!("etcd-{replicas}=")));
}

#[test]
fn the_members_of_one_flock_hold_ordinals_of_their_own() {
    let mut seen = Vec::new();
    for document in documents("examples/one-deployment-per-member/gluster.yaml") {
        let annotations = parts(&document).1.metadata.unwrap().annotations.unwrap();
        seen.push(annotations[keys::ORDINALS].clone());
    }
    assert_eq!(seen, ["0", "1"]);
}
