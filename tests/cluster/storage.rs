//! Claims and PersistentVolumes, as the real controllers bind them. That the data is there is for real nodes.

use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{annotated, with, workload};
use crate::scene::Scene;
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "a_local_volume_and_its_claim_are_made_for_each_other",
        a_local_volume,
    ),
    (
        "a_restart_with_a_local_volume_waits_for_nothing",
        a_restart_waits_for_nothing,
    ),
    (
        "a_claim_that_was_deleted_comes_back_to_its_volume",
        a_deleted_claim,
    ),
    (
        "claims_are_bound_to_volumes_of_a_static_provisioner",
        a_static_provisioner,
    ),
    (
        "a_volume_that_is_labelled_for_a_member_becomes_its_own",
        a_labelled_volume,
    ),
    (
        "the_claims_of_a_stateful_set_are_taken_over",
        claims_of_a_stateful_set,
    ),
    ("a_claim_of_another_member_is_not_used", anothers_claim),
    (
        "a_claim_grows_with_its_size_limit_and_never_shrinks",
        a_claim_grows,
    ),
    ("a_claim_of_the_users_own_stays_as_it_is", the_users_own_claim),
    ("baseline_forbids_directories_and_takes_local_volumes", baseline),
    (
        "a_member_that_is_not_root_waits_for_its_directory",
        a_prepared_member,
    ),
];

fn durable(replicas: u32, annotations: &Value) -> Value {
    let volume =
        json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "data", "emptyDir": {} }] } } } });
    let set = annotated(with(workload("ReplicaSet", "rs", replicas), &volume), annotations);
    annotated(set, &json!({ "flock.dev/volumes": "data" }))
}

fn local(replicas: u32) -> Value {
    durable(replicas, &json!({ "flock.dev/storage": "localVolume" }))
}

fn claimed(class: &str) -> Value {
    json!({ "flock.dev/storage": "claim", "flock.dev/storage-class": class })
}

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

fn a_local_volume(world: &World) {
    let scene = world.namespace("local");
    scene.apply(&local(3));
    scene.eventually_ready(&["db-0", "db-1", "db-2"]);
    for ordinal in 0..3 {
        let claim = scene.get(&format!("pvc/data-db-{ordinal}"));
        let name = format!("{}.db.{ordinal}.data", scene.namespace);
        assert_eq!(
            (&claim["status"]["phase"], &claim["spec"]["volumeName"]),
            (&json!("Bound"), &json!(name))
        );
        let volume = scene.get(&format!("pv/{name}"));
        assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
        assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
        let uid = &scene.get(&format!("ns/{}", scene.namespace))["metadata"]["uid"];
        let path = format!(
            "/var/lib/flock/{}_{}/db/{ordinal}/data",
            scene.namespace,
            uid.as_str().unwrap()
        );
        assert_eq!(volume["spec"]["local"]["path"], path);
    }
    no_helpers_are_left(&scene);
    scene.quiet();
}

fn a_restart_waits_for_nothing(world: &World) {
    let scene = world.namespace("again");
    scene.apply(&local(1));
    scene.eventually_ready(&["db-0"]);
    let node = scene.node_of("db-0");
    scene.delete_pods(&["db-0"]);
    scene.eventually_ready(&["db-0"]);
    assert_eq!(scene.node_of("db-0"), node);
    let gated: Vec<_> = scene
        .recording
        .changes()
        .iter()
        .filter(|change| {
            change
                .pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.scheduling_gates.is_some())
        })
        .filter_map(|change| change.pod.metadata.uid.clone())
        .collect();
    let now = scene.pod("db-0").and_then(|pod| pod.metadata.uid).unwrap();
    assert!(
        !gated.is_empty() && !gated.contains(&now),
        "the second pod had to wait for the reconciler"
    );
}

fn a_deleted_claim(world: &World) {
    let scene = world.namespace("anew");
    scene.apply(&local(1));
    scene.eventually_ready(&["db-0"]);
    let before = scene.get("pvc/data-db-0");
    scene.run(&["delete", "pvc", "data-db-0", "--wait=false"]);
    scene.delete_pods(&["db-0"]);
    scene.eventually("another claim that is bound to the same volume", || {
        let text = scene.kubectl(&["get", "pvc", "data-db-0", "-o", "json"]).ok()?;
        let now: Value = serde_json::from_str(&text).ok()?;
        let another =
            now["metadata"]["uid"] != before["metadata"]["uid"] && now["status"]["phase"] == "Bound";
        (another && now["spec"]["volumeName"] == before["spec"]["volumeName"]).then_some(())
    });
    scene.eventually_ready(&["db-0"]);
}

fn class(scene: &Scene<'_>, name: &str, grows: bool) {
    scene.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": grows,
    }));
}

/// A PersistentVolume of a node's disk, as a static provisioner makes it.
fn disk(name: &str, class: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
        "spec": {
            "storageClassName": class, "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "local": { "path": format!("/mnt/{name}") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] }] } },
        },
    })
}

fn disks(scene: &Scene<'_>, class: &str) {
    for node in scene.world.lab.node_names().expect("the nodes") {
        scene.apply(&disk(&format!("{class}-{node}"), class, &node));
    }
}

fn a_static_provisioner(world: &World) {
    let scene = world.namespace("static");
    let name = format!("static-{}", scene.namespace);
    class(&scene, &name, false);
    disks(&scene, &name);
    scene.apply(&durable(2, &claimed(&name)));
    scene.eventually_ready(&["db-0", "db-1"]);
    let (node, claim) = (scene.node_of("db-1"), scene.get("pvc/data-db-1"));
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "1Gi");
    scene.delete_pods(&["db-1"]);
    scene.eventually_ready(&["db-0", "db-1"]);
    assert_eq!(scene.node_of("db-1"), node, "the member is where its volume is");
    assert_eq!(
        scene.get("pvc/data-db-1")["metadata"]["uid"],
        claim["metadata"]["uid"]
    );
    scene.quiet();
}

fn a_labelled_volume(world: &World) {
    let scene = world.namespace("labelled");
    let name = format!("disk-of-{}", scene.namespace);
    let labels = json!({
        "flock.dev/name": "db", "flock.dev/ordinal": "0", "flock.dev/namespace": scene.namespace,
    });
    let volume = with(
        disk(&name, "manual", "node-3"),
        &json!({ "metadata": { "labels": labels } }),
    );
    scene.apply(&volume);
    scene.apply(&durable(1, &json!({ "flock.dev/storage": "claim" })));
    scene.eventually_ready(&["db-0"]);
    let claim = scene.get("pvc/data-db-0");
    assert_eq!(claim["spec"]["volumeName"], name);
    assert_eq!(
        claim["spec"]["resources"]["requests"]["storage"], "5Gi",
        "all of it"
    );
    assert_eq!(scene.node_of("db-0"), "node-3");
}

fn claims_of_a_stateful_set(world: &World) {
    let scene = world.namespace("taken");
    let name = format!("taken-{}", scene.namespace);
    class(&scene, &name, false);
    disks(&scene, &name);
    scene.apply(&json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db" },
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "old" } },
            "template": { "metadata": { "labels": { "app": "old" } }, "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": name,
                "resources": { "requests": { "storage": "1Gi" } } } }],
        },
    }));
    scene.eventually_ready(&["db-0"]);
    let before = scene.get("pvc/data-db-0");
    scene.run(&["delete", "statefulset", "db"]);
    scene.eventually("an end of the set's pods", || {
        scene.pods().is_empty().then_some(())
    });
    scene.apply(&durable(1, &claimed(&name)));
    scene.eventually_ready(&["db-0"]);
    let after = scene.get("pvc/data-db-0");
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(
        after["metadata"]["labels"], before["metadata"]["labels"],
        "what was taken over stays its user's"
    );
    assert_eq!(
        scene.pod("db-0").unwrap().spec.unwrap().volumes.unwrap()[0].name,
        "data"
    );
}

fn anothers_claim(world: &World) {
    let scene = world.namespace("another");
    let labels = json!({ "flock.dev/name": "c", "flock.dev/ordinal": "0", "flock.dev/volume": "a-b" });
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-db-0", "labels": labels },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": { "requests": { "storage": "1Gi" } } },
    }));
    scene.apply(&durable(1, &json!({ "flock.dev/storage": "claim" })));
    scene.eventually_event(
        "db-0",
        "claim data-db-0 is that of volume a-b of member 0 of flock c",
    );
    scene.eventually_event("rs", "ClaimConflict");
    scene.run(&["delete", "rs", "rs"]);
}

fn a_claim_grows(world: &World) {
    let scene = world.namespace("grows");
    let name = format!("grows-{}", scene.namespace);
    class(&scene, &name, true);
    disks(&scene, &name);
    let sized = |size: &str| {
        let volumes = json!([{ "name": "data", "emptyDir": { "sizeLimit": size } }]);
        with(
            durable(1, &claimed(&name)),
            &json!({ "spec": { "template": { "spec": { "volumes": volumes } } } }),
        )
    };
    scene.apply(&sized("1Gi"));
    scene.eventually_ready(&["db-0"]);
    let request = || scene.get("pvc/data-db-0")["spec"]["resources"]["requests"]["storage"].clone();
    assert_eq!(request(), "1Gi");
    scene.apply(&sized("2Gi"));
    scene.eventually("a larger claim", || (request() == "2Gi").then_some(()));
    scene.apply(&sized("1Gi"));
    scene.quiet();
    assert_eq!(request(), "2Gi");
}

fn the_users_own_claim(world: &World) {
    let scene = world.namespace("own");
    let name = format!("own-{}", scene.namespace);
    class(&scene, &name, false);
    scene.apply(&disk(&name, &name, "node-1"));
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "mini-claim" },
        "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": name,
            "resources": { "requests": { "storage": "1Gi" } } },
    }));
    let volumes = json!([{ "name": "storage", "persistentVolumeClaim": { "claimName": "mini-claim" } }]);
    let set = with(
        annotated(
            workload("ReplicaSet", "rs", 1),
            &json!({ "flock.dev/pin": "None" }),
        ),
        &json!({ "spec": { "template": { "spec": { "volumes": volumes } } } }),
    );
    scene.apply(&set);
    scene.eventually_ready(&["db-0"]);
    let claim = || scene.get("pvc/mini-claim")["metadata"]["managedFields"].to_string();
    assert!(
        !claim().contains("\"flock\""),
        "Flock wrote to a claim that is not its own"
    );
    scene.run(&["delete", "rs", "rs"]);
    scene.eventually("an end of the members", || scene.pods().is_empty().then_some(()));
    assert!(!claim().contains("\"flock\""));
}

fn baseline(world: &World) {
    let scene = world.namespace("baseline");
    scene.run(&[
        "label",
        "namespace",
        &scene.namespace,
        "pod-security.kubernetes.io/enforce=baseline",
    ]);
    scene.apply(&local(1));
    scene.eventually_ready(&["db-0"]);
    scene.run(&["delete", "rs", "rs"]);
    scene.eventually("an end of the members", || scene.pods().is_empty().then_some(()));
    let mut set = durable(1, &json!({}));
    set["metadata"]["name"] = json!("dir");
    match scene.kubectl_apply(&set) {
        // Told at once by the webhook for workloads, or by the ReplicaSet's events.
        Err(error) => assert!(format!("{error:#}").contains("localVolume"), "{error:#}"),
        Ok(()) => scene.eventually_event("dir", "hostPath volumes (volume \"data\")"),
    }
}

fn a_prepared_member(world: &World) {
    let scene = world.namespace("prepared");
    let security = json!({ "securityContext": { "runAsUser": 1000, "fsGroup": 2000 } });
    let set = with(
        durable(2, &json!({})),
        &json!({ "spec": { "template": { "spec": security } } }),
    );
    scene.apply(&set);
    scene.eventually_ready(&["db-0", "db-1"]);
    let pod = scene.pod("db-0").unwrap();
    let volume = &pod.spec.unwrap().volumes.unwrap()[0];
    assert_eq!(
        volume.host_path.as_ref().unwrap().type_.as_deref(),
        Some("Directory"),
        "the kubelet makes none"
    );
    no_helpers_are_left(&scene);
    scene.delete_pods(&["db-0"]);
    scene.eventually_ready(&["db-0", "db-1"]);
    no_helpers_are_left(&scene);
    scene.quiet();
}
