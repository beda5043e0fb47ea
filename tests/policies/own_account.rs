//! What Flock's account may do to workloads, pods, Services, volumes and in its own namespace.

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec,
};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
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

const METADATA: Option<&str> = Some("may not change the metadata of pods");
const SPEC: Option<&str> = Some("may not change the spec of pods");

/// The patch that removes a gate, as the reconciler sends it.
fn without_gate(name: &str) -> Value {
    json!({"spec": {"schedulingGates": [{"$patch": "delete", "name": name}]}})
}

/// With those that the API server gives each pod, as none of a pod's may be taken away.
fn tolerates_more() -> Value {
    let given = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    json!({"spec": {"tolerations": [
        given("node.kubernetes.io/not-ready"), given("node.kubernetes.io/unreachable"),
        {"key": "a", "operator": "Exists"}]}})
}

#[rstest]
#[case::gate(without_gate("flock.dev/placement"), None)]
#[case::nothing(json!({}), None)]
#[case::gate_of_another(without_gate("example.com/quota"), Some("only its own scheduling gate"))]
#[case::image(json!({"spec": {"containers": [{"name": "main", "image": "example.com/other"}]}}), SPEC)]
#[case::deadline(json!({"spec": {"activeDeadlineSeconds": 1}}), SPEC)]
#[case::toleration(tolerates_more(), SPEC)]
#[case::node(json!({"spec": {"nodeSelector": {"kubernetes.io/hostname": "node-0"}}}), SPEC)]
#[case::label(json!({"metadata": {"labels": {"app": "another"}}}), METADATA)]
#[case::label_removed(json!({"metadata": {"labels": {"app": null}}}), METADATA)]
#[case::annotation(json!({"metadata": {"annotations": {"a": "b"}}}), METADATA)]
#[case::finalizer(json!({"metadata": {"finalizers": ["example.com/keep"]}}), METADATA)]
#[case::owner(json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node-0", "uid": "u"}]}}), METADATA)]
#[case::gate_and_label(json!({"metadata": {"labels": {"app": "another"}}, "spec": {"schedulingGates": [{"$patch": "delete", "name": "flock.dev/placement"}]}}), METADATA)]
fn flock_opens_its_gate_and_changes_nothing_else_of_a_pod(
    #[case] patch: Value,
    #[case] expected: Option<&str>,
) {
    run(async {
        let gated = pod(
            "gated",
            &json!({"app": "gated"}),
            &json!({}),
            json!({"schedulingGates": [{"name": "flock.dev/placement"}, {"name": "example.com/quota"}]}),
        );
        present(&Api::default_namespaced(client(As::Admin).await), &gated).await;
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let patch = Patch::Strategic(patch);
        let pods: Api<Pod> = Api::default_namespaced(client(As::Flock).await);
        expect(expected, || pods.patch("gated", &params, &patch)).await;
        // What is denied is denied to Flock.
        let pods: Api<Pod> = Api::default_namespaced(client(As::Admin).await);
        expect(None, || pods.patch("gated", &params, &patch)).await;
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

const SERVICE_METADATA: Option<&str> = Some("only the annotation flock.dev/places");
const SERVICE_SPEC: Option<&str> = Some("only ports, publishNotReadyAddresses and its own selector");

#[rstest]
#[case::record("flocks", json!({"metadata": {"annotations": {"flock.dev/places": "{}"}}}), None)]
#[case::mended("flocks", json!({"spec": {"ports": [{"name": "a", "port": 80}], "publishNotReadyAddresses": true, "selector": {"app": null, "flock.dev/name": "db"}}}), None)]
#[case::owner("flocks", json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}}), SERVICE_METADATA)]
#[case::another_selector("flocks", json!({"spec": {"selector": {"app": "another"}}}), SERVICE_SPEC)]
#[case::record_on_a_users("users-own", json!({"metadata": {"annotations": {"flock.dev/places": "{}"}}}), None)]
#[case::annotation_of_a_users("users-own", json!({"metadata": {"annotations": {"a": "b"}}}), SERVICE_METADATA)]
#[case::taken("users-own", json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "flock"}}}), SERVICE_METADATA)]
#[case::ports_of_a_users("users-own", json!({"spec": {"ports": [{"port": 80}]}}), SERVICE_SPEC)]
fn flock_mends_its_own_services_and_keeps_a_record_on_any(
    #[case] name: &str,
    #[case] patch: Value,
    #[case] expected: Option<&str>,
) {
    run(async {
        let services: Api<Service> = Api::default_namespaced(client(As::Admin).await);
        for (name, manager) in [("flocks", "flock"), ("users-own", "somebody")] {
            let labels = json!({"app.kubernetes.io/managed-by": manager, "flock.dev/name": "db"});
            let spec = json!({"clusterIP": "None", "selector": {"app": "db"}});
            let service = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
            present(&services, &from(service)).await;
        }
        let services: Api<Service> = Api::default_namespaced(client(As::Flock).await);
        merge(&services, name, &patch, expected).await;
    });
}

/// The PersistentVolume of a member as `src/storage/claims.rs` makes it, with one value at a JSON pointer changed.
fn volume(name: &str, pointer: &str, value: Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": {"name": name, "annotations": {"flock.dev/prepared-on": "node-0"}, "labels": {
            "flock.dev/namespace": "default", "flock.dev/name": "etcd", "flock.dev/ordinal": "0",
            "flock.dev/volume": "data", "app.kubernetes.io/managed-by": "flock"}},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "storageClassName": "",
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "data-etcd-0"},
            "local": {"path": "/var/lib/flock/default_1-2/etcd/0/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}]}},
        },
    });
    *volume.pointer_mut(pointer).unwrap() = value;
    from(volume)
}

fn unchanged_volume(name: &str) -> PersistentVolume {
    volume(name, "/metadata/name", name.into())
}

const PATH: &str = "/spec/local/path";
const BENEATH: Option<&str> = Some("beneath /var/lib/flock/ only");
const OF_THE_MEMBER: Option<&str> = Some("of the member that its labels name");

#[rstest]
#[case::member(PATH, json!("/var/lib/flock/default_1-2/etcd/0/data"), None)]
#[case::second_spelling(PATH, json!("/var/lib/flock//default_1-2/etcd/0/data/"), None)]
#[case::etc(PATH, json!("/etc"), BENEATH)]
#[case::near(PATH, json!("/var/lib/flock2/default_1-2/etcd/0/data"), BENEATH)]
#[case::root(PATH, json!("/var/lib/flock"), OF_THE_MEMBER)]
#[case::whole_member(PATH, json!("/var/lib/flock/default_1-2/etcd/0"), OF_THE_MEMBER)]
#[case::another_member(PATH, json!("/var/lib/flock/default_1-2/etcd/1/data"), OF_THE_MEMBER)]
#[case::another_namespace(PATH, json!("/var/lib/flock/bank_1-2/etcd/0/data"), OF_THE_MEMBER)]
#[case::deeper(PATH, json!("/var/lib/flock/default_1-2/x/etcd/0/data"), OF_THE_MEMBER)]
#[case::for_another_namespace("/spec/claimRef/namespace", json!("bank"), OF_THE_MEMBER)]
#[case::for_another_claim("/spec/claimRef/name", json!("data-etcd-1"), OF_THE_MEMBER)]
#[case::not_as_flocks("/metadata/labels", json!({}), OF_THE_MEMBER)]
#[case::deleted_with_the_claim("/spec/persistentVolumeReclaimPolicy", json!("Delete"), Some("Retain only"))]
fn flock_makes_volumes_of_members_directories_for_their_claims_only(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] expected: Option<&str>,
) {
    run(async {
        let volume = volume("made", pointer, value);
        let volumes: Api<PersistentVolume> = Api::all(client(As::Flock).await);
        expect(expected, || async { volumes.create(&dry_run(), &volume).await }).await;
    });
}

#[test]
fn flock_makes_no_volume_of_a_directory_that_pods_on_every_node_would_get() {
    run(async {
        let mut volume = serde_json::to_value(unchanged_volume("made")).unwrap();
        let path = volume["spec"]["local"].take();
        volume["spec"].as_object_mut().unwrap().remove("local");
        volume["spec"]["hostPath"] = path;
        let volumes: Api<PersistentVolume> = Api::all(client(As::Flock).await);
        let volume = from(volume);
        expect(OF_THE_MEMBER, || async {
            volumes.create(&dry_run(), &volume).await
        })
        .await;
    });
}

const OF_A_VOLUME: Option<&str> = Some("only the annotation flock.dev/prepared-on and the claim's uid");
const ITS_CLAIM: Option<&str> = Some("may not take a volume from the claim");
const NOT_MADE: Option<&str> = Some("which it made itself");

#[rstest]
#[case::marked("flocks", json!({"metadata": {"annotations": {"flock.dev/prepared-on": "node-1"}}}), None)]
#[case::unbound("flocks", json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}), None)]
#[case::reclaim_policy("flocks", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}), OF_A_VOLUME)]
#[case::annotation("flocks", json!({"metadata": {"annotations": {"a": "b"}}}), OF_A_VOLUME)]
#[case::label("flocks", json!({"metadata": {"labels": {"flock.dev/ordinal": "1"}}}), OF_A_VOLUME)]
#[case::finalizer("flocks", json!({"metadata": {"finalizers": []}}), OF_A_VOLUME)]
#[case::size("flocks", json!({"spec": {"capacity": {"storage": "2Gi"}}}), OF_A_VOLUME)]
#[case::another_claim("flocks", json!({"spec": {"claimRef": {"name": "another", "uid": null}}}), ITS_CLAIM)]
#[case::claim_of_a_uid("flocks", json!({"spec": {"claimRef": {"uid": "2"}}}), ITS_CLAIM)]
#[case::no_claim("flocks", json!({"spec": {"claimRef": null}}), ITS_CLAIM)]
#[case::data_of_somebody("somebodys", json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}), NOT_MADE)]
#[case::claim_of_somebody("somebodys", json!({"spec": {"claimRef": {"uid": null}}}), NOT_MADE)]
#[case::mark_on_somebodys("somebodys", json!({"metadata": {"annotations": {"flock.dev/prepared-on": "n"}}}), NOT_MADE)]
fn flock_marks_and_unbinds_its_own_volumes_and_changes_nothing_else(
    #[case] name: &str,
    #[case] patch: Value,
    #[case] expected: Option<&str>,
) {
    run(async {
        let volumes: Api<PersistentVolume> = Api::all(client(As::Admin).await);
        for (name, manager) in [("flocks", "flock"), ("somebodys", "somebody")] {
            let mut volume = unchanged_volume(name);
            let claim = volume.spec.as_mut().unwrap().claim_ref.as_mut().unwrap();
            (claim.name, claim.uid) = (Some(format!("data-{name}")), Some("1".into()));
            let labels = volume.metadata.labels.as_mut().unwrap();
            labels.insert("app.kubernetes.io/managed-by".into(), manager.into());
            present(&volumes, &volume).await;
        }
        let volumes: Api<PersistentVolume> = Api::all(client(As::Flock).await);
        merge(&volumes, name, &patch, expected).await;
    });
}

/// A member's claim as `src/storage/claims.rs` makes it, with one value at a JSON pointer changed.
fn claim(pointer: &str, value: Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "data-etcd-0", "labels": {
            "flock.dev/name": "etcd", "flock.dev/ordinal": "0", "flock.dev/volume": "data",
            "app.kubernetes.io/managed-by": "flock"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "dataSource": null,
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    *claim.pointer_mut(pointer).unwrap() = value;
    from(claim)
}

#[rstest]
#[case::member("/spec/storageClassName", json!("fast"), None)]
#[case::another_name("/metadata/name", json!("data-mysql-0"), Some("for the member that its labels name"))]
#[case::another_ordinal("/metadata/labels/flock.dev~1ordinal", json!("1"), Some("for the member that its labels name"))]
#[case::not_as_flocks("/metadata/labels", json!({}), Some("for the member that its labels name"))]
#[case::a_copy_of_others_data("/spec/dataSource", json!({"kind": "PersistentVolumeClaim", "name": "secret"}), Some("without dataSource"))]
fn flock_makes_claims_of_members_only(
    #[case] pointer: &str,
    #[case] value: Value,
    #[case] expected: Option<&str>,
) {
    run(async {
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client(As::Flock).await);
        let claim = claim(pointer, value);
        expect(expected, || async { claims.create(&dry_run(), &claim).await }).await;
    });
}

/// Two bound claims, Flock's and somebody else's, of 1Gi, which asked for 5Gi since.
async fn bound_claims() {
    let admin = client(As::Admin).await;
    let class: StorageClass = from(json!({
        "metadata": {"name": "elastic"}, "provisioner": "example.com/none", "allowVolumeExpansion": true}));
    present(&Api::all(admin.clone()), &class).await;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(admin.clone());
    for (flock, manager) in [("grows", "flock"), ("foreign", "somebody")] {
        let name = format!("data-{flock}-0");
        let mut volume = unchanged_volume(&name);
        let spec = volume.spec.as_mut().unwrap();
        spec.storage_class_name = Some("elastic".into());
        spec.claim_ref.as_mut().unwrap().name = Some(name.clone());
        present(&Api::all(admin.clone()), &volume).await;
        let mut claim = claim("/spec/storageClassName", "elastic".into());
        claim.metadata.name = Some(name.clone());
        let labels = claim.metadata.labels.as_mut().unwrap();
        labels.insert("app.kubernetes.io/managed-by".into(), manager.into());
        present(&claims, &claim).await;
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let found = claims.get(&name).await.unwrap();
            if found.status.and_then(|status| status.phase).as_deref() == Some("Bound") {
                break;
            }
            assert!(Instant::now() < deadline, "{name} is not bound");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let larger = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
        claims
            .patch(&name, &PatchParams::default(), &Patch::Merge(larger))
            .await
            .unwrap();
    }
}

fn sized(size: &str) -> Value {
    json!({"spec": {"resources": {"requests": {"storage": size}}}})
}

const ITS_SIZE: Option<&str> = Some("only the requested size");

#[test]
fn flock_lets_its_own_claims_grow_and_changes_nothing_else() {
    run(async {
        bound_claims().await;
        let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(client(As::Flock).await);
        let label = json!({"metadata": {"labels": {"flock.dev/ordinal": "1"}}});
        let owner = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]}});
        for (name, patch, expected) in [
            ("data-grows-0", sized("6Gi"), None),
            ("data-grows-0", sized("3Gi"), Some("grow only")),
            ("data-grows-0", label, ITS_SIZE),
            ("data-grows-0", owner, ITS_SIZE),
            ("data-grows-0", json!({"metadata": {"finalizers": []}}), ITS_SIZE),
            ("data-foreign-0", sized("6Gi"), NOT_MADE),
        ] {
            merge(&claims, name, &patch, expected).await;
        }
    });
}

/// The helper's shape, with the value of one field, named by its parent's JSON pointer and its key, changed.
fn helper(parent: &str, key: &str, value: Value) -> Pod {
    let mut spec = json!({
        "nodeName": "node-0",
        "automountServiceAccountToken": false,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "prepare", "image": "flock:dev",
            "args": ["prepare", "--root=/root-of-flock", "--namespace=default", "--namespace-uid=1-2", "--flock=etcd",
                "--ordinal=0", "--volume=data", "--uid=1000", "--ran"],
            "securityContext": {
                "runAsUser": 0, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]},
            },
            "volumeMounts": [{"name": "root", "mountPath": "/root-of-flock"}],
        }],
        "volumes": [{"name": "root", "hostPath": {"path": "/var/lib/flock", "type": "DirectoryOrCreate"}}],
    });
    spec.pointer_mut(parent).unwrap()[key] = value;
    let labels = json!({"app.kubernetes.io/component": "prepare"});
    pod("prepare-1", &labels, &json!({}), spec)
}

const IN_CONTAINER: &str = "/containers/0";
const CONTAINER: &str = "/containers/0/securityContext";
const HELPER: Option<&str> = Some("only its helper");
const ARGUMENTS: Option<&str> = Some("with the arguments of `flock prepare");

#[rstest]
#[case::as_it_is("", "restartPolicy", json!("Never"), None)]
#[case::host("/volumes/0/hostPath", "path", json!("/"), Some("hostPath"))]
#[case::parent("/volumes/0/hostPath", "path", json!("/var/lib"), Some("hostPath"))]
#[case::one_namespace("/volumes/0/hostPath", "path", json!("/var/lib/flock/default_1-2"), HELPER)]
#[case::host_network("", "hostNetwork", json!(true), Some("hostNetwork"))]
#[case::host_port(IN_CONTAINER, "ports", json!([{"containerPort": 80, "hostPort": 80}]), Some("hostPort"))]
#[case::port(IN_CONTAINER, "ports", json!([{"containerPort": 80}]), HELPER)]
#[case::escalation(CONTAINER, "allowPrivilegeEscalation", json!(true), Some("allowPrivilegeEscalation"))]
#[case::more_capabilities("/containers/0/securityContext/capabilities", "add", json!(["SYS_ADMIN"]), Some("capabilities"))]
#[case::unconfined("", "securityContext", json!({}), Some("seccompProfile"))]
#[case::se_linux(CONTAINER, "seLinuxOptions", json!({"type": "spc_t"}), Some("SELinux"))]
#[case::app_armor(CONTAINER, "appArmorProfile", json!({"type": "Unconfined"}), Some("AppArmor"))]
#[case::sysctl("/securityContext", "sysctls", json!([{"name": "kernel.msgmax", "value": "1"}]), Some("sysctls"))]
#[case::another_program(IN_CONTAINER, "command", json!(["/bin/sh"]), HELPER)]
#[case::a_hook(IN_CONTAINER, "lifecycle", json!({"postStart": {"exec": {"command": ["/flock"]}}}), HELPER)]
#[case::another_task(IN_CONTAINER, "args", json!(["serve"]), ARGUMENTS)]
#[case::another_task_that_names_this_one(IN_CONTAINER, "args", json!(["serve", "--root=/root-of-flock", "prepare"]), ARGUMENTS)]
#[case::another_root(IN_CONTAINER, "args", json!(["prepare", "--root=/root-of-flock", "--root=/"]), ARGUMENTS)]
#[case::a_path_for_a_name(IN_CONTAINER, "args", json!(["prepare", "--root=/root-of-flock", "--flock=../../x"]), ARGUMENTS)]
#[case::mounted_elsewhere("/containers/0/volumeMounts/0", "mountPath", json!("/etc"), ARGUMENTS)]
#[case::another_version(IN_CONTAINER, "image", json!("flock:0.9"), None)]
#[case::by_digest(IN_CONTAINER, "image", json!(format!("flock@sha256:{}", "0".repeat(64))), None)]
#[case::another_image(IN_CONTAINER, "image", json!("busybox"), None)]
#[case::a_secret(IN_CONTAINER, "envFrom", json!([{"secretRef": {"name": "flock-ca"}}]), HELPER)]
#[case::a_mounted_secret("", "volumes", json!([{"name": "root", "secret": {"secretName": "flock-ca"}}]), HELPER)]
#[case::a_share("", "volumes", json!([{"name": "root", "nfs": {"server": "192.0.2.1", "path": "/"}}]), Some("network's"))]
#[case::its_own_account("", "serviceAccountName", json!("flock"), HELPER)]
#[case::any_node("", "nodeName", json!(""), HELPER)]
#[case::with_a_token("", "automountServiceAccountToken", json!(true), Some("automountServiceAccountToken"))]
fn flocks_helper_is_what_it_says_and_nothing_more(
    #[case] parent: &str,
    #[case] key: &str,
    #[case] value: Value,
    #[case] expected: Option<&str>,
) {
    create_pod(As::Flock, "flock-system", &helper(parent, key, value), expected);
}

/// A port of a registry is no tag, and a name that begins alike is another.
#[test]
fn the_helper_has_an_image_of_the_repository_that_the_policy_names() {
    const REPOSITORY: &str = "registry.example.com:5000/team/flock";
    run(async {
        let admin = client(As::Admin).await;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(admin.clone());
        let policy = policies.get("flock-own-namespace").await.unwrap();
        let mut spec = policy.spec.unwrap();
        let variables = spec.variables.as_mut().unwrap();
        let repository = variables.iter_mut().find(|v| v.name == "repository").unwrap();
        assert_eq!(repository.expression, "'any'");
        repository.expression = format!("'{REPOSITORY}'");
        // The other tests have helpers too.
        spec.match_conditions = Some(vec![MatchCondition {
            name: "of-this-test".into(),
            expression: "object.metadata.name == 'prepare-repository'".into(),
        }]);
        let metadata = ObjectMeta {
            name: Some("told-of-a-repository".into()),
            ..ObjectMeta::default()
        };
        let told = ValidatingAdmissionPolicy {
            metadata: metadata.clone(),
            spec: Some(spec),
            ..ValidatingAdmissionPolicy::default()
        };
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: metadata.clone(),
            spec: Some(ValidatingAdmissionPolicyBindingSpec {
                policy_name: metadata.name,
                validation_actions: Some(vec!["Deny".into()]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            }),
        };
        present(&policies, &told).await;
        present(&Api::all(admin), &binding).await;
        let pods: Api<Pod> = Api::namespaced(client(As::Flock).await, "flock-system");
        let create = async |image: &str| {
            let mut helper = helper(IN_CONTAINER, "image", image.into());
            helper.metadata.name = Some("prepare-repository".into());
            pods.create(&dry_run(), &helper).await
        };
        // API servers see a policy by a watch.
        let deadline = Instant::now() + Duration::from_secs(60);
        while create("busybox").await.is_ok() {
            assert!(Instant::now() < deadline, "the policy is not seen");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        for image in ["", ":2", "@sha256:0"] {
            create(&format!("{REPOSITORY}{image}")).await.unwrap();
        }
        for image in ["2", "/other", ":5000/other", "-tools:1"] {
            let image = format!("{REPOSITORY}{image}");
            expect(Some("may start its helper only from"), || create(&image)).await;
        }
    });
}

/// A pod that Pod Security would let pass at the level `restricted`, with one field changed as above.
fn restricted(parent: &str, key: &str, value: Value) -> Pod {
    let mut spec = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{
            "name": "main", "image": "pause",
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        }],
        "volumes": [{"name": "a", "emptyDir": {}}],
    });
    spec.pointer_mut(parent).unwrap()[key] = value;
    pod("restricted", &json!({}), &json!({}), spec)
}

#[rstest]
#[case::as_it_is("", "restartPolicy", json!("Never"), None)]
#[case::harmless("/securityContext", "sysctls", json!([{"name": "net.ipv4.tcp_rmem", "value": "1 2 3"}]), None)]
#[case::root_user(CONTAINER, "runAsUser", json!(0), Some("runAsUser of 0"))]
#[case::host_port(IN_CONTAINER, "ports", json!([{"containerPort": 80, "hostPort": 80}]), Some("hostPort"))]
#[case::se_linux("/securityContext", "seLinuxOptions", json!({"user": "system_u"}), Some("SELinux"))]
#[case::sysctl("/securityContext", "sysctls", json!([{"name": "kernel.msgmax", "value": "1"}]), Some("sysctls"))]
#[case::probe(IN_CONTAINER, "livenessProbe", json!({"httpGet": {"host": "127.0.0.1", "port": 80}}), Some("not name a host"))]
#[case::hook(IN_CONTAINER, "lifecycle", json!({"preStop": {"httpGet": {"host": "127.0.0.1", "port": 80}}}), Some("not name a host"))]
#[case::share("/volumes/0", "nfs", json!({"server": "192.0.2.1", "path": "/"}), Some("network's"))]
fn other_pods_of_flocks_namespace_are_held_to_the_level_restricted(
    #[case] parent: &str,
    #[case] key: &str,
    #[case] value: Value,
    #[case] expected: Option<&str>,
) {
    let mut pod = restricted(parent, key, value);
    if key == "nfs" {
        pod.spec.as_mut().unwrap().volumes.as_mut().unwrap()[0].empty_dir = None;
    }
    create_pod(As::Admin, "flock-system", &pod, expected);
}

#[test]
fn nobody_gets_into_a_helper_by_a_debug_container() {
    run(async {
        let mut made = unchanged_helper();
        made.metadata.name = Some("prepare-debugged".into());
        let flock: Api<Pod> = Api::namespaced(client(As::Flock).await, "flock-system");
        flock.create(&PostParams::default(), &made).await.unwrap();
        let admin: Api<Pod> = Api::namespaced(client(As::Admin).await, "flock-system");
        let mut plain = restricted("", "restartPolicy", "Never".into());
        plain.metadata.name = Some("debugged".into());
        admin.create(&PostParams::default(), &plain).await.unwrap();
        let params = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let context = |escalates: bool| {
            json!({"runAsNonRoot": true, "allowPrivilegeEscalation": escalates, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"}})
        };
        for (name, escalates, expected) in [
            ("prepare-debugged", false, Some("must not have hostPath volumes")),
            ("debugged", true, Some("allowPrivilegeEscalation")),
            ("debugged", false, None),
        ] {
            let debug = json!({"spec": {"ephemeralContainers": [
                {"name": "debug", "image": "busybox", "securityContext": context(escalates)}]}});
            let patch = Patch::Strategic(debug);
            expect(expected, || {
                admin.patch_subresource("ephemeralcontainers", name, &params, &patch)
            })
            .await;
        }
    });
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
