//! A member's data, on the disks of real nodes and in containers that run.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::command;
use crate::harness::Test;
use crate::objects::{annotated, with};
use crate::provisioner::Provisioner;
use crate::scene::Scene;
use crate::world::{World, workload};

pub const TESTS: &[Test] = &[
    ("a_restarted_member_finds_its_file", a_restarted_member),
    ("a_user_with_a_group_writes_into_a_directory", |world| {
        writes_and_finds(&world.namespace("user-dir"), &json!({}));
    }),
    ("a_user_with_a_group_writes_into_a_local_volume", |world| {
        writes_and_finds(
            &world.namespace("user-local"),
            &json!({ "flock.dev/storage": "localVolume" }),
        );
    }),
    (
        "a_user_with_a_group_writes_into_a_local_volume_in_a_restricted_namespace",
        |world| {
            let scene = world.namespace("restricted");
            scene.run(&[
                "label",
                "namespace",
                &scene.namespace,
                "pod-security.kubernetes.io/enforce=restricted",
            ]);
            writes_and_finds(&scene, &json!({ "flock.dev/storage": "localVolume" }));
        },
    ),
    (
        "a_user_with_a_group_writes_into_a_claim_of_a_provisioned_volume",
        a_claim,
    ),
    (
        "a_user_with_a_group_writes_into_a_claim_of_a_dynamic_provisioner",
        a_dynamic_provisioner,
    ),
    ("a_user_without_a_group_writes_into_sub_paths_too", sub_paths),
    (
        "a_namespace_made_later_under_the_same_name_does_not_see_the_data",
        same_name_later,
    ),
    (
        "a_wiped_directory_holds_its_member_until_the_data_is_back_or_given_up",
        a_wiped_directory,
    ),
    ("a_planted_link_does_not_let_the_helper_out", a_planted_link),
    (
        "an_init_container_writes_before_the_main_one_reads",
        an_init_container,
    ),
];

const SCRIPT: &str = "echo $(hostname) >> /data/log && touch /tmp/up; trap 'exit 0' TERM; \
                      while :; do sleep 86400 & wait $!; done";

/// A ReplicaSet whose members write their name into `/data/log` at every start, and are Ready once they have.
pub fn writers(name: &str, replicas: u32) -> Value {
    let set = annotated(
        workload("ReplicaSet", name, replicas),
        &json!({ "flock.dev/volumes": "data" }),
    );
    let spec = json!({
        "terminationGracePeriodSeconds": 1,
        "volumes": [{ "name": "data", "emptyDir": {} }],
        "containers": [{
            "name": "c", "image": "lab.flock.dev/busybox:1", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", SCRIPT],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "readinessProbe": { "exec": { "command": ["test", "-e", "/tmp/up"] }, "periodSeconds": 1 },
        }],
    });
    with(set, &json!({ "spec": { "template": { "spec": spec } } }))
}

/// As an image that is made for Pod Security `restricted` runs.
fn restricted(set: Value, group: Option<u32>) -> Value {
    let mut set = set;
    let spec = &mut set["spec"]["template"]["spec"];
    spec["securityContext"] = json!({
        "runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": true, "fsGroup": group,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    spec["containers"][0]["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    set
}

fn log(scene: &Scene<'_>, pod: &str) -> Vec<String> {
    scene
        .run(&["exec", pod, "--", "cat", "/data/log"])
        .lines()
        .map(str::to_owned)
        .collect()
}

/// A member's directory on the disk of its node.
fn directory(scene: &Scene<'_>, pod: &str) -> PathBuf {
    let uid = scene.run(&[
        "get",
        "namespace",
        &scene.namespace,
        "-o=jsonpath={.metadata.uid}",
    ]);
    let disk = scene
        .world
        .lab
        .node_disk(&scene.node_of(pod))
        .expect("the node's disk");
    disk.join(format!("{}_{uid}", scene.namespace))
        .join("db")
        .join(pod.trim_start_matches("db-"))
}

fn a_restarted_member(world: &World) {
    let scene = world.namespace("file");
    scene.apply(&writers("rs", 2));
    scene.eventually_ready(&["db-0", "db-1"]);
    scene.delete_pods(&["db-1"]);
    scene.eventually_ready(&["db-0", "db-1"]);
    assert_eq!(log(&scene, "db-1"), ["db-1", "db-1"]);
}

/// Uid 1000 with fsGroup 2000 writes, restarts and finds what it wrote.
fn writes_and_finds(scene: &Scene<'_>, annotations: &Value) {
    scene.apply(&annotated(restricted(writers("rs", 2), Some(2000)), annotations));
    scene.eventually_ready(&["db-0", "db-1"]);
    scene.delete_pods(&["db-1"]);
    scene.eventually_ready(&["db-0", "db-1"]);
    assert_eq!(log(scene, "db-1"), ["db-1", "db-1"]);
    assert_eq!(log(scene, "db-0"), ["db-0"]);
    let owner = scene.run(&["exec", "db-1", "--", "stat", "-c", "%u:%g", "/data/log"]);
    assert_eq!(owner.trim(), "1000:2000", "the group of the volume is fsGroup");
    let context = &scene.get("pod/db-1")["spec"]["securityContext"];
    assert_eq!(context["fsGroup"], 2000, "the user's security context stays");
    no_helpers_are_left(scene);
}

/// Helpers go once they are done.
fn no_helpers_are_left(scene: &Scene<'_>) {
    scene.eventually("an end of the helpers", || {
        let pods = scene
            .world
            .lab
            .kubectl(&["get", "pods", "-n", "flock-system", "-o", "json"])
            .ok()?;
        let mark = format!("\"flock.dev/prepares\": \"{}/", scene.namespace);
        (!pods.contains(&mark)).then_some(())
    });
}

/// Volumes as a static provisioner makes them, one directory of each node's disk.
fn a_claim(world: &World) {
    let scene = world.namespace("claim");
    let class = format!("local-{}", scene.namespace);
    scene.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": class },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    for node in world.lab.node_names().expect("the nodes") {
        let name = format!("{class}-{node}");
        fs::create_dir(world.lab.node_disk(&node).expect("a disk").join(&name)).expect("a directory");
        scene.apply(&json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
            "spec": {
                "storageClassName": class, "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "local": { "path": format!("/var/lib/flock/{name}") },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] }] } },
            },
        }));
    }
    writes_and_finds(
        &scene,
        &json!({ "flock.dev/storage": "claim", "flock.dev/storage-class": class }),
    );
    let claim = scene.get("pvc/data-db-1");
    assert_eq!(claim["status"]["phase"], "Bound");
    scene.run(&["delete", "rs", "rs"]);
    scene.eventually("an end of the members", || scene.pods().is_empty().then_some(()));
    assert_eq!(
        scene.get("pvc/data-db-1")["metadata"]["uid"],
        claim["metadata"]["uid"],
        "data outlives members"
    );
}

fn a_dynamic_provisioner(world: &World) {
    let scene = world.namespace("dynamic");
    let class = format!("dynamic-{}", scene.namespace);
    let _provisioner = Provisioner::start(&scene, &class);
    writes_and_finds(
        &scene,
        &json!({ "flock.dev/storage": "claim", "flock.dev/storage-class": class }),
    );
    assert_eq!(scene.get("pvc/data-db-1")["status"]["phase"], "Bound");
}

/// The kubelet makes subPath directories for root, with the mode of the volume.
fn sub_paths(world: &World) {
    let scene = world.namespace("sub-path");
    let mut set = restricted(writers("rs", 1), None);
    set["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] = json!([
        { "name": "data", "mountPath": "/data", "subPath": "logs" },
        { "name": "data", "mountPath": "/own", "subPathExpr": "of-$(FLOCK_ORDINAL)" },
    ]);
    scene.apply(&set);
    scene.eventually_ready(&["db-0"]);
    scene.run(&["exec", "db-0", "--", "touch", "/own/file"]);
    let directory = directory(&scene, "db-0");
    assert!(directory.join("data/logs/log").is_file() && directory.join("data/of-0/file").is_file());
}

fn same_name_later(world: &World) {
    for storage in ["hostPath", "localVolume"] {
        let mut first = world.namespace("same");
        // Another namespace's members may be elsewhere.
        first.may_move = true;
        let name = first.namespace.clone();
        let set = annotated(
            restricted(writers("rs", 1), Some(2000)),
            &json!({ "flock.dev/storage": storage }),
        );
        first.apply(&set);
        first.eventually_ready(&["db-0"]);
        let old = directory(&first, "db-0");
        first.run(&["delete", "namespace", &name, "--timeout=180s"]);
        assert!(
            old.join("data/log").is_file(),
            "data stays when its namespace goes"
        );
        first.run(&["create", "namespace", &name]);
        first.apply(&set);
        first.eventually_ready(&["db-0"]);
        assert_eq!(
            log(&first, "db-0"),
            ["db-0"],
            "{storage}: a later namespace sees the data of an earlier one"
        );
    }
}

fn a_wiped_directory(world: &World) {
    let scene = world.namespace("wiped");
    scene.apply(&annotated(
        writers("rs", 1),
        &json!({ "flock.dev/data-guard": "true" }),
    ));
    scene.eventually_ready(&["db-0"]);
    let directory = directory(&scene, "db-0");
    let away = directory.with_extension("away");
    fs::rename(&directory, &away).expect("the data is moved away");
    scene.delete_pods(&["db-0"]);
    scene.eventually_event(
        "db-0",
        "the member has run before, but its directory for volume data is missing",
    );
    scene.eventually_event("rs", "DataMissing");
    assert!(!directory.exists(), "nothing may be made in its place");

    fs::rename(&away, &directory).expect("the data is back");
    scene.eventually_ready(&["db-0"]);
    assert_eq!(log(&scene, "db-0"), ["db-0", "db-0"]);

    fs::remove_file(directory.join("data/log")).expect("the data is wiped");
    scene.delete_pods(&["db-0"]);
    scene.eventually_event("db-0", "its directory for volume data is empty now");
    let lost = [
        "release",
        "db",
        "0",
        "--data-lost",
        "--yes",
        "--namespace",
        &scene.namespace,
    ];
    let (good, text) = command::flock(world, &lost);
    assert!(
        good && text.contains("its directory for volume data is empty now"),
        "{text}"
    );
    scene.eventually_ready(&["db-0"]);
    assert_eq!(log(&scene, "db-0"), ["db-0"]);
}

fn a_planted_link(world: &World) {
    let scene = world.namespace("link");
    let uid = scene.run(&[
        "get",
        "namespace",
        &scene.namespace,
        "-o=jsonpath={.metadata.uid}",
    ]);
    let target = tempfile::tempdir().expect("a directory");
    for node in world.lab.node_names().expect("the nodes") {
        let parent = world
            .lab
            .node_disk(&node)
            .expect("a disk")
            .join(format!("{}_{uid}", scene.namespace));
        fs::create_dir(&parent).expect("a directory");
        std::os::unix::fs::symlink(target.path(), parent.join("db")).expect("a link");
    }
    scene.apply(&restricted(writers("rs", 1), Some(2000)));
    scene.eventually_event("db-0", "is a symbolic link or no directory");
    assert_eq!(fs::read_dir(target.path()).expect("the target").count(), 0);
}

fn an_init_container(world: &World) {
    let scene = world.namespace("init");
    let mut set = restricted(writers("rs", 1), None);
    let spec = &mut set["spec"]["template"]["spec"];
    let mount = json!([{ "name": "data", "mountPath": "/data" }]);
    let image = json!({
        "image": "lab.flock.dev/busybox:1", "imagePullPolicy": "IfNotPresent", "volumeMounts": mount,
    });
    let id =
        json!({ "name": "id", "command": ["sh", "-c", "[ -e /data/id ] || echo $FLOCK_ORDINAL > /data/id"] });
    let sidecar = json!({
        "name": "beside", "restartPolicy": "Always",
        "command": ["sh", "-c", "touch /data/beside; trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done"],
    });
    spec["initContainers"] = json!([with(id, &image), with(sidecar, &image)]);
    spec["containers"][0]["command"] = json!(["sh", "-c", format!("test -e /data/id && {SCRIPT}")]);
    scene.apply(&set);
    scene.eventually_ready(&["db-0"]);
    let data = directory(&scene, "db-0").join("data");
    assert_eq!(fs::read_to_string(data.join("id")).expect("the id"), "0\n");
    assert!(data.join("beside").exists());
}
