//! What Flock's account may do to workloads, pods, Services, volumes and in its own namespace.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, Secret, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use rstest::rstest;
use serde_json::{Value, json};

use crate::cluster::{As, client, create_pod, dry_run, expect, from, merge, pod, refused, run};

/// Makes an object that several cases share.
async fn present<T>(api: &Api<T>, object: &T)
where
    T: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => panic!("{error}"),
    }
}

#[rstest]
#[case::woken(json!({"metadata": {"annotations": {"flock.dev/woken-at": "2026-01-01T00:00:00Z"}}}), true)]
#[case::another_annotation(json!({"metadata": {"annotations": {"a": "b"}}}), false)]
#[case::annotation_removed(json!({"metadata": {"annotations": {"kept": null}}}), false)]
#[case::label(json!({"metadata": {"labels": {"a": "b"}}}), false)]
#[case::scaled(json!({"spec": {"replicas": 5}}), false)]
fn flock_wakes_replica_sets_and_does_nothing_else_to_them(#[case] patch: Value, #[case] accepted: bool) {
    run(async {
        let set: ReplicaSet = from(json!({
            "metadata": {"name": "asleep", "annotations": {"kept": "yes"}},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "asleep"}}, "template": {
                "metadata": {"labels": {"app": "asleep"}},
                "spec": {"containers": [{"name": "main", "image": "pause"}]}}},
        }));
        present(&Api::default_namespaced(client(As::Admin).await), &set).await;
        let sets: Api<ReplicaSet> = Api::default_namespaced(client(As::Flock).await);
        merge(
            &sets,
            "asleep",
            &patch,
            (!accepted).then_some("only the annotation flock.dev/woken-at"),
        )
        .await;
    });
}

#[test]
fn flock_opens_a_gate_but_changes_no_image() {
    run(async {
        let gated = pod(
            "gated",
            &json!({}),
            &json!({}),
            json!({"schedulingGates": [{"name": "flock.dev/placement"}]}),
        );
        present(&Api::default_namespaced(client(As::Admin).await), &gated).await;
        let pods: Api<Pod> = Api::default_namespaced(client(As::Flock).await);
        merge(&pods, "gated", &json!({"spec": {"schedulingGates": []}}), None).await;
        let image = json!({"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}});
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let message =
            refused(|| async { pods.patch("gated", &params, &Patch::Strategic(&image)).await }).await;
        assert!(message.contains("may not change containers"), "{message}");
    });
}

#[rstest]
#[case::headless(json!({"clusterIP": "None", "selector": {"app": "a"}}), None)]
#[case::with_an_address(json!({"ports": [{"port": 80}]}), Some("headless Services only"))]
#[case::outside(json!({"type": "LoadBalancer", "ports": [{"port": 80}]}), Some("headless Services only"))]
#[case::by_name(json!({"type": "ExternalName", "externalName": "example.com"}), Some("headless Services only"))]
#[case::with_external_addresses(json!({"clusterIP": "None", "externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}), Some("external addresses"))]
fn flock_makes_headless_services_only(#[case] spec: Value, #[case] expected: Option<&str>) {
    run(async {
        let services: Api<Service> = Api::default_namespaced(client(As::Flock).await);
        let service: Service = from(json!({"metadata": {"name": "made"}, "spec": spec}));
        expect(expected, || async { services.create(&dry_run(), &service).await }).await;
    });
}

#[test]
fn flock_deletes_the_services_that_it_made_and_no_others() {
    run(async {
        let admin: Api<Service> = Api::default_namespaced(client(As::Admin).await);
        let flock: Api<Service> = Api::default_namespaced(client(As::Flock).await);
        let users = json!({"metadata": {"name": "users"}, "spec": {"clusterIP": "None"}});
        present(&admin, &from(users)).await;
        let own = json!({"metadata": {"name": "own", "labels": {"app.kubernetes.io/managed-by": "flock"}}, "spec": {"clusterIP": "None"}});
        flock.create(&PostParams::default(), &from(own)).await.unwrap();
        let message =
            refused(|| async { flock.delete("users", &DeleteParams::default().dry_run()).await }).await;
        assert!(message.contains("which it made itself"), "{message}");
        flock.delete("own", &DeleteParams::default()).await.unwrap();
    });
}

#[rstest]
#[case::member(json!({"local": {"path": "/var/lib/flock/default_1/etcd/0/data"}}), None)]
#[case::etc(json!({"local": {"path": "/etc"}}), Some("beneath /var/lib/flock/ only"))]
#[case::host(json!({"hostPath": {"path": "/"}}), Some("beneath /var/lib/flock/ only"))]
#[case::near(json!({"local": {"path": "/var/lib/flock2"}}), Some("beneath /var/lib/flock/ only"))]
fn flock_makes_volumes_beneath_the_root_only(#[case] source: Value, #[case] expected: Option<&str>) {
    run(async {
        let mut spec = json!({
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}},
        });
        spec.as_object_mut()
            .unwrap()
            .extend(source.as_object().unwrap().clone());
        let volume: PersistentVolume = from(json!({"metadata": {"name": "made"}, "spec": spec}));
        let volumes: Api<PersistentVolume> = Api::all(client(As::Flock).await);
        expect(expected, || async { volumes.create(&dry_run(), &volume).await }).await;
    });
}

#[test]
fn flock_takes_no_volume_from_its_claim() {
    run(async {
        let bound: PersistentVolume = from(json!({
            "metadata": {"name": "bound"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/srv"},
                "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "none",
                "claimRef": {"namespace": "default", "name": "users"},
            },
        }));
        present(&Api::all(client(As::Admin).await), &bound).await;
        let volumes: Api<PersistentVolume> = Api::all(client(As::Flock).await);
        let patch = json!({"spec": {"claimRef": {"name": "another"}}});
        merge(
            &volumes,
            "bound",
            &patch,
            Some("may not take a volume from the claim"),
        )
        .await;
    });
}

/// The helper's shape, with the value of one field, named by its parent's JSON pointer and its key, changed.
fn helper(parent: &str, key: &str, value: Value) -> Pod {
    let mut spec = json!({
        "nodeName": "node-0",
        "automountServiceAccountToken": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "prepare", "image": "flock:dev", "args": ["prepare", "--root=/root-of-flock"],
            "securityContext": {
                "runAsUser": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]},
            },
        }],
        "volumes": [{"name": "root", "hostPath": {"path": "/var/lib/flock", "type": "DirectoryOrCreate"}}],
    });
    spec.pointer_mut(parent).unwrap()[key] = value;
    let labels = json!({"app.kubernetes.io/component": "prepare"});
    pod("prepare-1", &labels, &json!({}), spec)
}

const CONTAINER: &str = "/containers/0/securityContext";

#[rstest]
#[case::as_it_is("", "restartPolicy", json!("Never"), None)]
#[case::host("/volumes/0/hostPath", "path", json!("/"), Some("hostPath"))]
#[case::parent("/volumes/0/hostPath", "path", json!("/var/lib"), Some("hostPath"))]
#[case::host_network("", "hostNetwork", json!(true), Some("hostNetwork"))]
#[case::escalation(CONTAINER, "allowPrivilegeEscalation", json!(true), Some("allowPrivilegeEscalation"))]
#[case::more_capabilities("/containers/0/securityContext/capabilities", "add", json!(["SYS_ADMIN"]), Some("capabilities"))]
#[case::unconfined("", "securityContext", json!({}), Some("seccompProfile"))]
#[case::another_program("/containers/0", "command", json!(["/bin/sh"]), Some("only its helper"))]
#[case::another_task("/containers/0", "args", json!(["serve"]), Some("only its helper"))]
#[case::a_secret("/containers/0", "envFrom", json!([{"secretRef": {"name": "flock-ca"}}]), Some("only its helper"))]
#[case::a_mounted_secret("", "volumes", json!([{"name": "ca", "secret": {"secretName": "flock-ca"}}]), Some("only its helper"))]
#[case::its_own_account("", "serviceAccountName", json!("flock"), Some("only its helper"))]
#[case::any_node("", "nodeName", json!(""), Some("only its helper"))]
#[case::with_a_token("", "automountServiceAccountToken", json!(true), Some("automountServiceAccountToken"))]
fn flocks_helper_is_what_it_says_and_nothing_more(
    #[case] parent: &str,
    #[case] key: &str,
    #[case] value: Value,
    #[case] expected: Option<&str>,
) {
    create_pod(As::Flock, "flock-system", &helper(parent, key, value), expected);
}

fn unchanged_helper() -> Pod {
    helper("", "restartPolicy", "Never".into())
}

#[test]
fn nobody_else_makes_a_pod_like_the_helper() {
    create_pod(
        As::Admin,
        "flock-system",
        &unchanged_helper(),
        Some("Only helper pods made by Flock itself"),
    );
}

#[test]
fn flock_makes_no_pod_elsewhere_and_reads_no_other_secret() {
    create_pod(
        As::Flock,
        "default",
        &unchanged_helper(),
        Some("cannot create resource \"pods\""),
    );
    run(async {
        let admin: Api<Secret> = Api::namespaced(client(As::Admin).await, "flock-system");
        for name in ["flock-ca", "another"] {
            present(&admin, &from(json!({"metadata": {"name": name}}))).await;
        }
        let secrets: Api<Secret> = Api::namespaced(client(As::Flock).await, "flock-system");
        assert!(secrets.get("flock-ca").await.is_ok());
        let by_name = ListParams::default().fields("metadata.name=flock-ca");
        assert_eq!(secrets.list(&by_name).await.unwrap().items.len(), 1);
        assert!(secrets.get("another").await.is_err());
        assert!(secrets.list(&ListParams::default()).await.is_err());
        let elsewhere: Api<Secret> = Api::default_namespaced(client(As::Flock).await);
        assert!(elsewhere.list(&by_name).await.is_err());
    });
}
