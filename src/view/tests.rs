use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::json;

use super::fixtures::{NAMESPACE, key, pod, set, view};
use super::{SharedView, Source, View, WorkloadFacts};
use crate::identity::FlockKey;

fn other() -> FlockKey {
    FlockKey::parse(NAMESPACE, "other").unwrap()
}

#[test]
fn a_workload_is_only_in_the_flock_of_its_template() {
    let mut view = view(vec![set("rs", 2)], vec![]);
    let mut changed = set("rs", 2);
    changed.resource_version = "2".into();
    let concerned = view.workload_seen(NAMESPACE, "uid-of-rs", Some((other(), changed.clone())));
    assert_eq!(concerned, [key(), other()]);
    assert!(view.flock(&key()).is_empty());
    assert!(view.flock(&other()).workloads().contains_key("uid-of-rs"));

    assert_eq!(view.workload_seen(NAMESPACE, "uid-of-rs", None), [other()]);
    assert!(view.flock_keys().is_empty());
    assert_eq!(view.workload_gone(NAMESPACE, "uid-of-rs"), []);
}

#[test]
fn a_workload_that_ends_is_forgotten_whatever_its_template_says() {
    let mut view = view(vec![set("rs", 2), set("stays", 1)], vec![]);
    assert_eq!(view.workload_gone("elsewhere", "uid-of-rs"), []);
    assert_eq!(view.workload_gone(NAMESPACE, "uid-of-rs"), [key()]);
    let left: Vec<_> = view.flock(&key()).workloads().keys().collect();
    assert_eq!(left, ["uid-of-stays"]);
}

#[test]
fn a_pod_is_only_in_the_flock_of_its_label() {
    let member = pod(0, "rs");
    let (name, uid) = (member.name.clone(), member.uid.clone());
    let mut view = view(vec![set("rs", 1)], vec![member]);
    assert_eq!(view.pod_seen(NAMESPACE, &name, "another uid", None), []);
    assert_eq!(view.pod_seen(NAMESPACE, &name, &uid, None), [key()]);
    assert!(view.flock(&key()).pods().is_empty());
    assert!(!view.flock(&key()).is_held(crate::identity::Ordinal::ZERO));
    assert_eq!(view.pod_gone(NAMESPACE, &name, &uid), []);
}

#[test]
fn flocks_of_a_namespace_are_found_among_all_others() {
    let mut view = view(vec![set("rs", 1)], vec![]);
    for (namespace, flock) in [
        ("a", "z"),
        (NAMESPACE, "0"),
        (NAMESPACE, "zz"),
        ("defaults", "0"),
        ("z", "a"),
    ] {
        view.apply_workload(FlockKey::parse(namespace, flock).unwrap(), set("rs", 1));
    }
    let found: Vec<_> = view
        .neighbours(&key().namespace)
        .map(|(key, _)| key.flock.to_string())
        .collect();
    assert_eq!(found, ["0", "db", "zz"]);
}

/// The ReplicaSet at a version, with the message of its ReplicaFailure and since when it has it.
fn told(view: &mut View, version: u32, failure: Option<(&str, u32)>) {
    let conditions = failure.map(|(message, minute)| {
        json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
            "lastTransitionTime": format!("2026-01-01T00:{minute:02}:00Z"),
        }])
    });
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "name": "rs", "uid": "rs", "resourceVersion": version.to_string(),
            "labels": { "flock.dev/name": "db" },
        },
        "spec": { "selector": {}, "template": { "metadata": { "labels": { "flock.dev/name": "db" } } } },
        "status": { "replicas": 0, "conditions": conditions },
    }))
    .unwrap();
    let (key, facts) = WorkloadFacts::read_replica_set(&set).unwrap();
    view.apply_workload(key, facts);
}

#[test]
fn each_new_clash_of_names_is_counted_once() {
    const TAKEN: &str = "pods \"db-0\" already exists";
    let mut view = View::default();
    let mut counts = Vec::new();
    for (version, failure) in [
        // Told before it was first seen.
        (1, Some((TAKEN, 0))),
        (2, None),
        (3, Some((TAKEN, 1))),
        // Something else of it has changed.
        (4, Some((TAKEN, 1))),
        // It had a success that was not seen.
        (5, Some((TAKEN, 2))),
        // The watch is behind.
        (4, Some((TAKEN, 1))),
        (6, Some(("exceeded quota", 3))),
        (
            7,
            Some((
                "admission webhook \"members.flock.dev\" denied the request: already exists",
                4,
            )),
        ),
        (8, Some((TAKEN, 5))),
    ] {
        told(&mut view, version, failure);
        counts.push(view.name_clashes());
    }
    assert_eq!(counts, [0, 0, 1, 1, 2, 2, 2, 2, 3]);
}

#[test]
fn a_source_whose_list_begins_again_and_again_brings_nothing_new() {
    let view = SharedView::default();
    view.begins_list(Source::Pods);
    let pause = std::time::Duration::from_millis(20);
    std::thread::sleep(pause);
    view.begins_list(Source::Pods);
    view.heard(Source::Pods);
    assert!(view.silence(Source::Pods) >= pause);
    let begin = std::time::Instant::now();
    view.set_synced(Source::Pods);
    view.heard(Source::Pods);
    assert!(view.silence(Source::Pods) <= begin.elapsed());
}
