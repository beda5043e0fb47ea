//! Many members at once, and what a broken rollout costs: the numbers are printed, so these run alone.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{members, shared, with, workload};
use crate::world::{Scene, World};

pub const ALONE: &[Test] = &[
    (
        "two_hundred_replicas_at_once_get_two_hundred_ordinals_from_the_caches_alone",
        burst,
    ),
    (
        "an_undo_heals_a_broken_rollout_where_a_stateful_set_stays_wedged",
        broken,
    ),
];

fn burst(world: &World) {
    let scene = world.namespace("burst");
    let lookups = || -> f64 {
        (0..2)
            .map(|replica| world.metric(replica, "flock_admission_lookups_total"))
            .sum()
    };
    let before = lookups();
    let begin = Instant::now();
    scene.apply(&shared(workload("ReplicaSet", "rs", 200)));
    scene.eventually("two hundred members", || {
        (scene.recording.count_created() >= 200).then_some(())
    });
    let stored = begin.elapsed();
    scene.eventually_ready(&members(0..200));
    let (ready, clashes) = (begin.elapsed(), scene.clashes());
    let names: BTreeSet<_> = scene.recording.names();
    println!(
        "200 replicas, 2 webhook replicas: last name stored after {stored:.2?}, all Ready after {ready:.2?}, \
         {} distinct ordinals, {clashes} clashes, {} calls of the webhook",
        names.len(),
        lookups() - before,
    );
    assert_eq!(names, members(0..200).into_iter().collect());
    assert!(clashes <= 1, "{clashes} clashes");
    // A replica whose watch is late asks once for an owner that it does not know; from its caches it answers for the others.
    assert!(lookups() - before < 10.0, "the webhook called the API server");
    scene.quiet();
}

fn broken(world: &World) {
    let scene = world.namespace("broken");
    scene.apply(&workload("Deployment", "db", 3));
    let set = plain_stateful_set();
    scene.apply(&set);
    let all: Vec<_> = members(0..3)
        .into_iter()
        .chain((0..3).map(|index| format!("plain-{index}")))
        .collect();
    scene.eventually_ready(&all);
    scene.roll("db", "broken");
    scene.run(&[
        "set",
        "image",
        "statefulset/plain",
        "c=registry.k8s.io/pause:broken",
    ]);
    let is_broken = |scene: &Scene<'_>, pod: &str| scene.tags().get(pod).is_some_and(|tag| tag == "broken");
    scene.eventually("both broken", || {
        (is_broken(&scene, "db-2") && is_broken(&scene, "plain-2")).then_some(())
    });
    let begin = Instant::now();
    scene.run(&["rollout", "undo", "deployment/db"]);
    scene.run(&["rollout", "undo", "statefulset/plain"]);
    let healed = scene.eventually("a healed flock", || {
        let tags = scene.tags();
        let ready = scene
            .pods()
            .iter()
            .filter(|pod| flock_lab::recording::is_ready(pod))
            .count();
        (members(0..3)
            .iter()
            .all(|name| tags.get(name).is_some_and(|tag| tag == "3.9"))
            && ready >= 5)
            .then(|| begin.elapsed())
    });
    scene.rolled("db");
    while begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(200));
    }
    let wedged = is_broken(&scene, "plain-2");
    println!(
        "undo of a broken rollout: flock healed after {healed:.2?}; StatefulSet {} after {:.0?}",
        if wedged { "still wedged" } else { "healed" },
        begin.elapsed(),
    );
    assert!(healed < Duration::from_secs(10), "{healed:?}");
    assert_eq!(
        scene.recording.most_unavailable(&members(0..3), Duration::ZERO),
        1
    );
    scene.quiet();
}

fn plain_stateful_set() -> Value {
    let mut set = with(
        workload("StatefulSet", "plain", 3),
        &json!({ "spec": { "serviceName": "plain" } }),
    );
    set["metadata"]["labels"] = json!({});
    set["spec"]["template"]["metadata"]["labels"] = json!({ "app": "plain" });
    set
}
