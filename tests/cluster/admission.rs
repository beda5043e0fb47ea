//! What is stored of pods, next to other webhooks and to the same pods without Flock; and what those hear who apply
//! workloads.

use serde_json::{Value, json};

use crate::harness::Test;
use crate::injector::Injector;
use crate::objects::{annotated, bare, with, workload};
use crate::scene::Scene;
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "a_webhook_before_flock_and_one_after_it_find_everything_once",
        other_webhooks,
    ),
    (
        "a_pod_is_stored_as_it_is_without_flock_but_for_its_membership",
        stored_as_written,
    ),
    (
        "required_anti_affinity_and_the_pin_go_together_in_a_rollout_too",
        anti_affinity,
    ),
    ("fields_that_the_types_do_not_know_are_stored", newer_fields),
    (
        "a_running_pod_neither_joins_nor_is_in_the_way_of_its_updates",
        running_pods,
    ),
    (
        "workloads_that_cannot_have_members_are_denied_when_applied",
        denied_workloads,
    ),
    ("what_misleads_is_a_warning_when_applied", warned_workloads),
    (
        "host_directories_are_denied_where_pod_security_forbids_them",
        pod_security,
    ),
];

const VARIABLES: [&str; 4] = ["FLOCK_NAME", "FLOCK_ORDINAL", "FLOCK_SERVICE", "FLOCK_SEED"];

fn names(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry["name"].as_str())
        .collect()
}

/// Another injector adds a container in front, a volume and a variable for every container, whether its name sorts
/// before Flock's or after, and whether it is called again or not.
fn other_webhooks(world: &World) {
    for (prefix, again) in [("a", false), ("a", true), ("z", false), ("z", true)] {
        let scene = world.namespace("injected");
        let _injector = Injector::install(
            world,
            &format!("{prefix}-{}", scene.namespace),
            &scene.namespace,
            again,
        );
        let template = json!({ "spec": { "template": { "spec": {
            "initContainers": [{ "name": "init", "image": "registry.k8s.io/pause:3.9" }],
            "volumes": [{ "name": "data", "emptyDir": {} }],
        } } } });
        let durable = annotated(
            with(workload("ReplicaSet", "rs", 2), &template),
            &json!({ "flock.dev/volumes": "data" }),
        );
        scene.apply(&durable);
        scene.eventually_ready(&["db-0", "db-1"]);
        scene.run(&["delete", "pod", "db-1"]);
        scene.eventually_ready(&["db-0", "db-1"]);
        for member in ["db-0", "db-1"] {
            let pod = scene.get(&format!("pod/{member}"));
            let spec = &pod["spec"];
            assert_eq!(names(&spec["containers"]), ["mesh", "c"], "{prefix}");
            assert_eq!(names(&spec["initContainers"]), ["init"]);
            assert_eq!(spec["hostname"], member);
            let volumes = names(&spec["volumes"]);
            assert_eq!(
                volumes.iter().filter(|name| **name == "mesh-state").count(),
                1,
                "{volumes:?}"
            );
            let data = spec["volumes"]
                .as_array()
                .unwrap()
                .iter()
                .find(|volume| volume["name"] == "data")
                .unwrap();
            assert!(
                data["hostPath"]["path"]
                    .as_str()
                    .unwrap()
                    .ends_with(&format!("/db/{}/data", &member[3..]))
            );
            for container in spec["containers"]
                .as_array()
                .unwrap()
                .iter()
                .chain(spec["initContainers"].as_array().unwrap())
            {
                let env = names(&container["env"]);
                for name in VARIABLES {
                    let count = env.iter().filter(|found| **found == name).count();
                    assert_eq!(count, 1, "{prefix} {again}: {name} in {container}");
                }
                assert_eq!(
                    env[..4],
                    VARIABLES,
                    "{prefix} {again}: not in front in {container}"
                );
            }
            let annotations = &pod["metadata"]["annotations"];
            assert_eq!(annotations["mesh.example.com/injected"], "true");
            // Called again, it saw the name that Flock gave.
            let seen = if again { json!(member) } else { Value::Null };
            assert_eq!(annotations["mesh.example.com/name"], seen, "{prefix}");
        }
    }
}

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

fn running_pods(world: &World) {
    let scene = world.namespace("running");
    let stranger = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "plain" },
        "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
    });
    scene.apply(&stranger);
    scene.create(&bare("db", &json!({ "generateName": "db-" })));
    scene.eventually("a running member", || {
        scene.get("pod/db-0")["spec"]["nodeName"]
            .as_str()
            .map(str::to_owned)
    });
    let error = scene
        .kubectl(&["label", "pod", "plain", "flock.dev/name=db"])
        .unwrap_err();
    assert!(
        format!("{error:#}").contains("cannot be added, changed or removed while it exists"),
        "{error:#}"
    );
    let finalizers =
        |change: Value| scene.patch("pod/db-0", &json!({ "metadata": { "finalizers": change } }));
    finalizers(json!(["example.com/x"]));
    assert_eq!(
        scene.get("pod/db-0")["metadata"]["finalizers"],
        json!(["example.com/x"])
    );
    finalizers(Value::Null);
    scene.run(&["annotate", "pod", "db-0", "example.com/note=x"]);
    let name = scene.get("pod/plain")["metadata"]["name"].clone();
    assert_eq!(name, "plain");
    assert_eq!(scene.get("pod/db-0")["metadata"]["finalizers"], Value::Null);
}

fn denied_workloads(world: &World) {
    let scene = world.namespace("denied");
    let template = workload("ReplicaSet", "x", 1)["spec"]["template"].clone();
    let selector = json!({ "matchLabels": { "app": "x" } });
    let of_kind = |api: &str, kind: &str, spec: Value| json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "x" }, "spec": spec });
    let never = with(
        template.clone(),
        &json!({ "spec": { "restartPolicy": "Never" }, "metadata": { "labels": { "app": null } } }),
    );
    let daemons = of_kind(
        "apps/v1",
        "DaemonSet",
        json!({ "selector": selector, "template": template }),
    );
    let job = of_kind("batch/v1", "Job", json!({ "template": never }));
    let cron = of_kind(
        "batch/v1",
        "CronJob",
        json!({
            "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": never } },
        }),
    );
    let set = of_kind(
        "apps/v1",
        "StatefulSet",
        json!({
            "selector": selector, "template": template, "serviceName": "db",
        }),
    );
    let network = with(
        workload("Deployment", "x", 1),
        &json!({
            "spec": { "template": { "spec": { "hostNetwork": true, "hostname": "one-for-all" } } },
        }),
    );
    let typo = annotated(
        workload("ReplicationController", "x", 1),
        &json!({ "flock.dev/pin": "exclusive" }),
    );
    for (object, said) in [
        (&daemons, "pods of a DaemonSet cannot be members of flock db"),
        (&job, "pods of a Job cannot be members of flock db"),
        (&cron, "pods of a CronJob cannot be members of flock db"),
        (&set, "set the label flock.dev/name of its template to x"),
        (
            &network,
            "(2) spec.hostname is set to \"one-for-all\", but a member's is db-0",
        ),
        (
            &typo,
            "annotation flock.dev/pin: \"exclusive\" is none of Exclusive, Shared, None",
        ),
    ] {
        let message = scene.refused(object);
        assert!(
            message.contains("workloads.flock.dev") && message.contains(said),
            "{message}"
        );
    }
}

/// Applies with warnings as errors, and returns the message.
fn warnings(scene: &Scene<'_>, object: &Value) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, object.to_string().as_bytes()).unwrap();
    let path = file.path().display().to_string();
    scene
        .kubectl(&["apply", "--warnings-as-errors", "-f", &path])
        .err()
        .map_or_else(String::new, |error| format!("{error:#}"))
}

fn warned_workloads(world: &World) {
    let scene = world.namespace("warned");
    scene.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "db" },
        "spec": { "ports": [{ "port": 80 }], "selector": { "flock.dev/name": "db" } },
    }));
    let first = annotated(
        workload("ReplicaSet", "first", 2),
        &json!({ "flock.dev/ordinal": "0" }),
    );
    scene.eventually("a warning about the Service", || {
        let said = warnings(
            &scene,
            &with(first.clone(), &json!({ "metadata": { "name": "again" } })),
        );
        scene.run(&["delete", "rs", "again", "--ignore-not-found"]);
        said.contains("Service db is not headless").then_some(())
    });
    let said = warnings(&scene, &first);
    assert!(
        said.contains("Flock knows no annotation flock.dev/ordinal; is it flock.dev/ordinals?"),
        "{said}"
    );
    let second = workload("Deployment", "second", 3);
    scene.eventually("a warning about the overlap", || {
        let said = warnings(&scene, &second);
        said.contains("ordinals 0-2 overlap with 0-1 of ReplicaSet first")
            .then_some(())
            .or_else(|| {
                scene.run(&["delete", "deployment", "second", "--ignore-not-found"]);
                None
            })
    });
}

fn pod_security(world: &World) {
    let scene = world.namespace("secured");
    let durable = |name: &str, storage: &str| {
        let volumes = json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "data", "emptyDir": {} }] } } } });
        let annotations = json!({ "flock.dev/volumes": "data", "flock.dev/storage": storage });
        annotated(with(workload("Deployment", name, 0), &volumes), &annotations)
    };
    let before = durable("before", "hostPath");
    scene.apply(&before);
    let level = "pod-security.kubernetes.io/enforce=baseline";
    scene.run(&["label", "namespace", &scene.namespace, level]);
    let message = scene.eventually("a denial", || {
        let mut object = durable("after", "hostPath");
        object["metadata"]["namespace"] = json!(scene.namespace);
        let error = world.lab.apply(&object.to_string()).err();
        if error.is_none() {
            scene.run(&["delete", "deployment", "after"]);
        }
        error.map(|error| format!("{error:#}"))
    });
    assert!(
        message.contains("enforces the Pod Security level baseline"),
        "{message}"
    );
    assert!(
        message.contains("set flock.dev/storage: localVolume"),
        "{message}"
    );
    scene.apply(&durable("after", "localVolume"));
    // What was there before is changed and scaled as ever.
    scene.apply(&with(
        before,
        &json!({ "metadata": { "finalizers": ["example.com/x"] }, "spec": { "minReadySeconds": 1 } }),
    ));
    scene.patch(
        "deployment/before",
        &json!({ "metadata": { "finalizers": null } }),
    );
    scene.scale("deployment/before", 0);
}
