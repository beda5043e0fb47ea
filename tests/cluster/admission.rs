//! Other webhooks beside Flock's, updates of running pods, and what those hear who apply workloads.

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

/// What every container gets, in this order.
pub const VARIABLES: [&str; 4] = ["FLOCK_NAME", "FLOCK_ORDINAL", "FLOCK_SERVICE", "FLOCK_SEED"];

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
        scene.delete_pods(&["db-1"]);
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
    let label = ["label", "pod", "plain", "flock.dev/name=db"];
    // API servers take policies in once a second.
    scene.eventually("a policy that is known", || {
        let dry = [&label[..], &["--dry-run=server"]].concat();
        scene.kubectl(&dry).err()
    });
    let error = scene.kubectl(&label).unwrap_err();
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
