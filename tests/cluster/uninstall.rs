//! Flock leaves a cluster as `docs/operations.md` says, and comes back to it. These run alone, since they take Flock
//! from all others.

use std::collections::BTreeMap;
use std::path::Path;

use flock_lab::recording::{What, is_ready, name};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{annotated, member_of, members, with, workload};
use crate::scene::Scene;
use crate::world::World;

pub const ALONE: &[Test] = &[
    (
        "members_outlive_flock_and_where_its_policies_stay_none_starts_without_it",
        policies_stay,
    ),
    (
        "without_flock_and_its_policies_plain_pods_follow_members_until_it_is_back",
        nothing_stays,
    ),
];

const WEB: [&str; 2] = ["web-0", "web-1"];

/// The ReplicaSet `rs` of the flock `db` with data, and the Deployment `web`.
fn running(scene: &Scene<'_>) -> Vec<String> {
    scene.apply(&with_data(workload("ReplicaSet", "rs", 3)));
    scene.apply(&with_data(member_of("web", "Deployment", "web", 2)));
    let all: Vec<_> = members(0..3).into_iter().chain(WEB.map(str::to_owned)).collect();
    scene.eventually_ready(&all);
    all
}

fn with_data(workload: Value) -> Value {
    let spec = json!({ "volumes": [{ "name": "data", "emptyDir": {} }] });
    with(
        annotated(workload, &json!({ "flock.dev/volumes": "data" })),
        &json!({ "spec": { "template": { "spec": spec } } }),
    )
}

/// What must not change about a member: its node and its directory on it.
fn homes(scene: &Scene<'_>, names: &[String]) -> BTreeMap<String, (String, String)> {
    let home = |pod: &String| {
        let spec = scene.get(&format!("pod/{pod}"))["spec"].clone();
        let path = volume(&spec)["hostPath"]["path"]
            .as_str()
            .expect("a directory")
            .to_owned();
        let node = spec["nodeName"].as_str().expect("a node").to_owned();
        (pod.clone(), (node, path))
    };
    names.iter().map(home).collect()
}

fn volume(spec: &Value) -> Value {
    let volumes = spec["volumes"].as_array().expect("volumes");
    let data = volumes.iter().find(|volume| volume["name"] == "data");
    data.expect("the volume").clone()
}

fn uids(scene: &Scene<'_>) -> BTreeMap<String, Option<String>> {
    let pods = scene.pods();
    assert!(pods.iter().all(is_ready));
    let ids = pods.iter().map(|pod| (name(pod), pod.metadata.uid.clone()));
    ids.collect()
}

/// Ends the server, after `args` of kubectl have ended the calls of it.
fn uninstall(world: &World, args: &[&str]) {
    world.lab.kubectl(args).expect("nobody calls Flock any more");
    for replica in 0..2 {
        world.flock.stop(replica).expect("Flock stops");
    }
    // The lab has no Deployment of it, since processes play its pods.
    let args = ["delete", "--ignore-not-found", "-k", &manifests("deploy")];
    world.lab.kubectl(&args).expect("Flock is gone");
}

fn manifests(directory: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join(directory).display().to_string()
}

fn policies_stay(world: &World) {
    let scene = world.namespace("uninstalled");
    let all = running(&scene);
    let (homes_before, before) = (homes(&scene, &all), uids(&scene));
    let configurations = "mutatingwebhookconfiguration,validatingwebhookconfiguration";
    uninstall(world, &["delete", configurations, "flock"]);
    assert_eq!(uids(&scene), before);

    for (pod, owner) in [("db-1", "rs".to_owned()), ("web-1", replica_set(&scene, "web"))] {
        scene.delete_pods(&[pod]);
        for text in [
            "flock-members",
            "see that webhook-config is applied and a replica of flock-system is Ready, or take the label flock.dev/name off the template",
        ] {
            scene.eventually_event(&owner, text);
        }
    }
    assert!(scene.recording.names().iter().all(|name| all.contains(name)));
    let ended = scene
        .recording
        .changes()
        .into_iter()
        .filter(|change| change.what == What::Deleted);
    assert_eq!(
        ended.map(|change| name(&change.pod)).collect::<Vec<_>>(),
        ["db-1", "web-1"]
    );

    world.flock.reinstall().expect("Flock is back");
    scene.eventually_ready(&all);
    assert_eq!(homes(&scene, &all), homes_before);
}

fn replica_set(scene: &Scene<'_>, deployment: &str) -> String {
    scene.run(&[
        "get",
        "rs",
        "-l",
        &format!("app={deployment}"),
        "-o=jsonpath={.items[0].metadata.name}",
    ])
}

fn nothing_stays(world: &World) {
    let mut scene = world.namespace("gone");
    scene.without_flock = true;
    let all = running(&scene);
    let (homes_before, before) = (homes(&scene, &all), uids(&scene));
    uninstall(world, &["delete", "-k", &manifests("webhook-config")]);
    assert_eq!(uids(&scene), before);

    // A plain pod, on an empty volume.
    scene.delete_pods(&["db-1", "web-1"]);
    let plain = || {
        let pods = scene.pods();
        let names = pods.iter().filter(|pod| is_ready(pod)).map(name);
        names.filter(|name| !all.contains(name)).collect::<Vec<_>>()
    };
    scene.eventually("two plain pods", || (plain().len() == 2).then_some(()));
    for pod in plain() {
        let spec = scene.get(&format!("pod/{pod}"))["spec"].clone();
        assert!(volume(&spec)["emptyDir"].is_object(), "{spec}");
    }

    // A template without the label: plain pods replace members as in any rollout.
    let label = |value: Value| json!({ "spec": { "template": { "metadata": { "labels": { "flock.dev/name": value } } } } });
    scene.patch("deployment/web", &label(Value::Null));
    scene.rolled("web");
    scene.eventually("an end of the flock web", || {
        let labelled = |pod: &Pod| {
            pod.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get("flock.dev/name").is_some_and(|name| name == "web"))
        };
        (!scene.pods().iter().any(labelled)).then_some(())
    });

    world.flock.reinstall().expect("Flock is back");
    let stranger = plain()
        .into_iter()
        .find(|name| name.starts_with("rs-"))
        .expect("it runs on");
    scene.eventually_event(
        "rs",
        &format!("A member takes its place once it is deleted: kubectl delete pod {stranger}"),
    );
    scene.quiet();
    scene.delete_pods(&[&stranger]);
    scene.patch("deployment/web", &label(json!("web")));
    scene.eventually_ready(&all);
    assert_eq!(homes(&scene, &all), homes_before);
    scene.quiet();
}
