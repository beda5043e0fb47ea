//! What is stored of pods that are members, next to the same pods without Flock. The inputs follow the shapes of real
//! manifests (see `tests/fixtures/`).

use serde_json::{Value, json};

use crate::admission::VARIABLES;
use crate::harness::Test;
use crate::objects::with;
use crate::scene::Scene;
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "a_pod_is_stored_as_it_is_without_flock_but_for_its_membership",
        stored_as_written,
    ),
    (
        "required_anti_affinity_and_the_pin_go_together_in_a_rollout_too",
        anti_affinity,
    ),
    ("fields_that_the_types_do_not_know_are_stored", newer_fields),
];

/// Creates a pod for real, or only in a dry run, and returns it as the API server answers.
fn created(scene: &Scene<'_>, pod: &Value, dry_run: bool) -> Value {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, pod.to_string().as_bytes()).unwrap();
    let path = file.path().display().to_string();
    let mut args = vec!["create", "--validate=false", "-o=json", "-f", &path];
    if dry_run {
        args.push("--dry-run=server");
    }
    serde_json::from_str(&scene.run(&args)).unwrap()
}

/// What the user's manifest made of a stored pod: without what the API server gives each object, and without what
/// makes it a member.
fn written(pod: &Value) -> Value {
    // The token's volume has a random name.
    let mut text = pod.to_string();
    while let Some(at) = text.find("kube-api-access-") {
        text.replace_range(at..at + "kube-api-access-".len() + 5, "token");
    }
    let pod: Value = serde_json::from_str(&text).unwrap();
    let mut spec = pod["spec"].clone();
    let fields = spec.as_object_mut().unwrap();
    for field in ["hostname", "subdomain"] {
        fields.remove(field);
    }
    if let Some(gates) = fields.get_mut("schedulingGates").and_then(Value::as_array_mut) {
        gates.retain(|gate| gate["name"] != "flock.dev/placement");
    }
    if let Some(selector) = fields.get_mut("nodeSelector").and_then(Value::as_object_mut) {
        selector.retain(|key, _| !key.contains(".flock.node-restriction.kubernetes.io/"));
    }
    for list in ["initContainers", "containers"] {
        for container in fields
            .get_mut(list)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(env) = container.get_mut("env").and_then(Value::as_array_mut) {
                env.retain(|variable| !VARIABLES.contains(&variable["name"].as_str().unwrap()));
            }
        }
    }
    let mut metadata =
        json!({ "labels": pod["metadata"]["labels"], "annotations": pod["metadata"]["annotations"] });
    for (map, keys) in [
        (
            "labels",
            &[
                "flock.dev/name",
                "flock.dev/ordinal",
                "apps.kubernetes.io/pod-index",
            ][..],
        ),
        ("annotations", &["controller.kubernetes.io/pod-deletion-cost"][..]),
    ] {
        if let Some(map) = metadata[map].as_object_mut() {
            map.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    without_empty(json!({ "metadata": metadata, "spec": spec }))
}

fn without_empty(value: Value) -> Value {
    let kept = |value: &Value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, without_empty(value)))
            .filter(|(_, value)| kept(value))
            .collect(),
        Value::Array(list) => list.into_iter().map(without_empty).collect(),
        other => other,
    }
}

fn fixture(name: &str) -> Value {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text =
        std::fs::read_to_string(root.join("tests/fixtures").join(name).with_extension("yaml")).unwrap();
    let pod: Value = serde_saphyr::from_str(&text).unwrap();
    with(pod, &json!({ "apiVersion": "v1", "kind": "Pod" }))
}

/// The pod that would be stored without the label.
fn plain(pod: &Value) -> Value {
    with(
        pod.clone(),
        &json!({ "metadata": { "labels": { "flock.dev/name": null } } }),
    )
}

fn stored_as_written(world: &World) {
    let scene = world.namespace("written");
    // The user's own claim of one of them.
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "mini-claim" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    }));
    let claim = scene.get("pvc/mini-claim");
    for name in [
        "ring",
        "elasticsearch-data",
        "consul",
        "nats",
        "minio",
        "glusterd2",
    ] {
        let pod = fixture(name);
        let flock = pod["metadata"]["labels"]["flock.dev/name"]
            .as_str()
            .unwrap()
            .to_owned();
        let without = created(&scene, &plain(&pod), true);
        let with_flock = created(&scene, &pod, false);
        let (mut before, mut after) = (written(&without), written(&with_flock));
        if let Some(durable) = pod["metadata"]["annotations"]["flock.dev/volumes"].as_str() {
            let path = replace_volume(
                &mut after,
                durable,
                &replace_volume(&mut before, durable, &json!("same")),
            );
            let path = path["hostPath"]["path"].as_str().unwrap_or_default().to_owned();
            assert!(path.ends_with(&format!("/{flock}/0/{durable}")), "{name}: {path}");
        }
        assert_eq!(before, after, "{name}");
        assert_eq!(with_flock["metadata"]["name"], format!("{flock}-0"));
        assert_eq!(
            with_flock["metadata"]["generateName"],
            pod["metadata"]["generateName"]
        );
    }
    assert_eq!(scene.get("pvc/mini-claim")["spec"], claim["spec"]);
}

/// Puts something else in a volume's place, and returns what was there.
fn replace_volume(pod: &mut Value, name: &str, other: &Value) -> Value {
    let volumes = pod["spec"]["volumes"].as_array_mut().unwrap();
    let volume = volumes.iter_mut().find(|volume| volume["name"] == name).unwrap();
    let marker = if other.is_string() {
        other.clone()
    } else {
        json!("same")
    };
    std::mem::replace(volume, json!({ "name": name, "was": marker }))
}

fn anti_affinity(world: &World) {
    let scene = world.namespace("apart");
    let template = fixture("consul");
    let template = with(
        json!({ "metadata": template["metadata"], "spec": template["spec"] }),
        &json!({
            "metadata": { "generateName": null },
        }),
    );
    scene.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "consul" },
        "spec": {
            "replicas": 3, "strategy": { "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } },
            "selector": { "matchLabels": { "app": "consul" } }, "template": template,
        },
    }));
    let members = ["consul-0", "consul-1", "consul-2"];
    scene.eventually_ready(&members);
    let nodes = members.map(|member| scene.node_of(member));
    scene.roll("consul", "3.9");
    scene.rolled("consul");
    scene.eventually_run("3.9", &members);
    assert_eq!(members.map(|member| scene.node_of(member)), nodes);
    // One number on two protocols is two ports of the Service, under their own names.
    let service = scene.get("service/consul");
    let mut ports: Vec<_> = service["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| {
            format!(
                "{} {} {}",
                port["name"].as_str().unwrap(),
                port["port"],
                port["protocol"].as_str().unwrap()
            )
        })
        .collect();
    ports.sort();
    assert_eq!(ports, ["http 8500 TCP", "serf-tcp 8301 TCP", "serf-udp 8301 UDP"]);
}

fn newer_fields(world: &World) {
    let scene = world.namespace("newer");
    let pod = fixture("future-fields");
    let pod = with(
        pod,
        &json!({ "spec": { "schedulingGroup": null, "volumes": [{ "name": "e", "emptyDir": {} }] } }),
    );
    let without = created(&scene, &plain(&pod), true);
    let with_flock = created(&scene, &pod, false);
    assert_eq!(written(&without), written(&with_flock));
    // The proof that there is such a field: the types of this program lose it.
    let spec = &with_flock["spec"];
    let typed: k8s_openapi::api::core::v1::PodSpec = serde_json::from_value(spec.clone()).unwrap();
    assert_ne!(
        without_empty(serde_json::to_value(typed).unwrap()),
        without_empty(spec.clone())
    );
    assert!(spec["containers"][0]["restartPolicyRules"].is_array(), "{spec}");
}
