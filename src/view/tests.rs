use super::fixtures::{NAMESPACE, key, pod, set, view};
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
