//! Rollouts of Deployments, with every strategy.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{deployment, members, shared, with, workload};
use crate::world::World;

pub const TESTS: &[Test] = &[
    (
        "a_default_rollout_goes_from_the_highest_ordinal_down_one_at_a_time",
        a_default_rollout,
    ),
    ("a_default_rollout_of_twenty_keeps_to_its_budget", twenty),
    ("a_rollout_without_surge_keeps_to_its_budget", without_surge),
    ("a_rollout_with_full_surge_goes_one_at_a_time", full_surge),
    ("a_recreation_gives_the_same_names_again", recreate),
    ("a_paused_rollout_stays_where_it_is_and_goes_on", paused),
    ("an_undo_of_a_whole_rollout_rolls_back", undo),
    ("two_rollouts_on_top_of_each_other_end_with_the_newest", on_top),
    (
        "scaling_during_a_rollout_ends_with_the_wanted_set",
        scaled_meanwhile,
    ),
    ("a_jittering_autoscaler_leaves_the_wanted_set", jitter),
    (
        "a_disruption_budget_stops_a_rollout_with_an_event_until_it_allows_one",
        disruption_budget,
    ),
    ("a_rollout_waits_until_members_are_available", min_ready),
    (
        "a_rollout_with_long_termination_goes_on_within_a_second_of_each_end",
        long_termination,
    ),
    (
        "deployments_of_one_replica_changed_together_roll_one_after_another",
        together,
    ),
];

fn rolls(world: &World, prefix: &str, object: &Value, replicas: u32, budget: usize) {
    let scene = world.namespace(prefix);
    scene.apply(object);
    let names = members(0..replicas);
    scene.eventually_ready(&names);
    scene.roll("db", "3.10");
    scene.eventually_run("3.10", &names);
    scene.rolled("db");
    let most = scene.recording.most_unavailable(&names, Duration::ZERO);
    assert!(
        most <= budget,
        "{most} were unavailable at a time, {budget} may be\n{}",
        scene.recording.story()
    );
    assert_eq!(
        scene.recording.names().len(),
        names.len(),
        "{:?}",
        scene.recording.names()
    );
    assert_eq!(
        scene.recording.count_ran(),
        2 * names.len(),
        "{}",
        scene.recording.story()
    );
    scene.quiet();
}

fn a_default_rollout(world: &World) {
    let scene = world.namespace("rollout");
    scene.apply(&workload("Deployment", "db", 3));
    scene.eventually_ready(&members(0..3));
    scene.roll("db", "3.10");
    scene.rolled("db");
    scene.eventually_ready(&members(0..3));
    // kwok deletes a pod twice, by its name, and may hit the successor: one that comes at once under the same name.
    let mut order = scene.recording.created()[3..].to_vec();
    order.dedup();
    assert_eq!(order, ["db-2", "db-1", "db-0"], "{}", scene.recording.story());
    assert_eq!(
        scene.recording.most_unavailable(&members(0..3), Duration::ZERO),
        1
    );
    scene.quiet();
}

fn twenty(world: &World) {
    rolls(world, "twenty", &shared(workload("Deployment", "db", 20)), 20, 5);
}

fn without_surge(world: &World) {
    let strategy = json!({ "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 2 } });
    rolls(world, "no-surge", &deployment(6, &strategy), 6, 2);
}

fn full_surge(world: &World) {
    let strategy = json!({ "rollingUpdate": { "maxSurge": "100%", "maxUnavailable": 0 } });
    rolls(world, "surge", &deployment(4, &strategy), 4, 1);
}

fn recreate(world: &World) {
    rolls(
        world,
        "recreate",
        &deployment(3, &json!({ "type": "Recreate" })),
        3,
        3,
    );
}

fn paused(world: &World) {
    let scene = world.namespace("paused");
    scene.apply(&annotated_ready_after(workload("Deployment", "db", 4), "2s"));
    scene.eventually_ready(&members(0..4));
    scene.roll("db", "3.10");
    scene.eventually("the first member of the new revision", || {
        scene.tags().values().any(|tag| tag == "3.10").then_some(())
    });
    scene.run(&["rollout", "pause", "deployment/db"]);
    scene.eventually_ready(&members(0..4));
    scene.quiet();
    let tags = scene.tags();
    assert!(
        tags.values().any(|tag| tag == "3.9"),
        "it was not paused: {tags:?}"
    );
    // A member of either revision that is deleted comes back while it is paused.
    scene.delete_pods(&["db-0", "db-3"]);
    scene.eventually_ready(&members(0..4));
    scene.run(&["rollout", "resume", "deployment/db"]);
    scene.eventually_run("3.10", &members(0..4));
    scene.rolled("db");
    assert!(scene.recording.most_unavailable(&members(0..4), Duration::ZERO) <= 2);
}

fn undo(world: &World) {
    let scene = world.namespace("undo");
    scene.apply(&workload("Deployment", "db", 3));
    scene.eventually_ready(&members(0..3));
    scene.roll("db", "3.10");
    scene.rolled("db");
    scene.run(&["rollout", "undo", "deployment/db"]);
    scene.eventually_run("3.9", &members(0..3));
    scene.rolled("db");
    assert_eq!(
        scene.recording.most_unavailable(&members(0..3), Duration::ZERO),
        1
    );
    scene.quiet();
}

fn on_top(world: &World) {
    let scene = world.namespace("on-top");
    scene.apply(&annotated_ready_after(workload("Deployment", "db", 4), "300ms"));
    scene.eventually_ready(&members(0..4));
    scene.roll("db", "3.10");
    scene.eventually("a first new member", || {
        scene.tags().values().any(|tag| tag == "3.10").then_some(())
    });
    scene.roll("db", "3.8");
    scene.eventually("a first newer member", || {
        scene.tags().values().any(|tag| tag == "3.8").then_some(())
    });
    scene.roll("db", "3.7");
    scene.eventually_run("3.7", &members(0..4));
    scene.rolled("db");
    assert_eq!(scene.recording.names().len(), 4);
    scene.quiet();
}

fn scaled_meanwhile(world: &World) {
    let scene = world.namespace("scaled");
    scene.apply(&shared(annotated_ready_after(
        workload("Deployment", "db", 4),
        "300ms",
    )));
    scene.eventually_ready(&members(0..4));
    scene.roll("db", "3.10");
    scene.eventually("a first new member", || {
        scene.tags().values().any(|tag| tag == "3.10").then_some(())
    });
    scene.scale("deployment/db", 7);
    scene.eventually("the seventh member", || scene.pod("db-6").map(drop));
    scene.scale("deployment/db", 3);
    scene.eventually_run("3.10", &members(0..3));
    scene.rolled("db");
    scene.quiet();
}

fn jitter(world: &World) {
    let scene = world.namespace("jitter");
    scene.apply(&shared(workload("Deployment", "db", 4)));
    scene.eventually_ready(&members(0..4));
    scene.roll("db", "3.10");
    for replicas in [6, 5, 7, 3, 6, 4, 8, 5] {
        scene.scale("deployment/db", replicas);
    }
    scene.eventually_run("3.10", &members(0..5));
    scene.rolled("db");
    scene.quiet();
}

fn disruption_budget(world: &World) {
    let scene = world.namespace("pdb");
    scene.apply(&workload("Deployment", "db", 3));
    scene.eventually_ready(&members(0..3));
    scene.apply(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "db" },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "flock.dev/name": "db" } } },
    }));
    scene.eventually("the budget's status", || {
        (scene.get("pdb/db")["status"]["expectedPods"] == 3).then_some(())
    });
    scene.roll("db", "3.10");
    let newest = scene.eventually("the newest ReplicaSet", || scene.replica_set_of("3.10"));
    scene.eventually_event(&newest, "a PodDisruptionBudget keeps from being evicted");
    std::thread::sleep(Duration::from_secs(6));
    let told: Vec<_> = scene
        .events(&newest)
        .into_iter()
        .filter(|event| event.starts_with("EvictionBlocked"))
        .collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!(scene.recording.count_created(), 3, "{}", scene.recording.story());
    scene.patch("pdb/db", &json!({ "spec": { "maxUnavailable": 1 } }));
    scene.eventually_run("3.10", &members(0..3));
    scene.rolled("db");
    assert_eq!(
        scene.recording.most_unavailable(&members(0..3), Duration::ZERO),
        1
    );
}

fn min_ready(world: &World) {
    let scene = world.namespace("min-ready");
    scene.apply(&with(
        workload("Deployment", "db", 3),
        &json!({ "spec": { "minReadySeconds": 2 } }),
    ));
    scene.eventually_ready(&members(0..3));
    scene.rolled("db");
    scene.roll("db", "3.10");
    scene.eventually_run("3.10", &members(0..3));
    scene.rolled("db");
    let most = scene
        .recording
        .most_unavailable(&members(0..3), Duration::from_secs(2));
    assert!(most <= 1 || scene.recording.most_unavailable(&members(0..3), Duration::ZERO) <= 1);
    scene.quiet();
}

fn long_termination(world: &World) {
    let scene = world.namespace("long");
    let mut object = workload("Deployment", "db", 2);
    object["spec"]["template"]["metadata"]["annotations"] = json!({ "lab.flock.dev/stop-after": "15s" });
    object["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(60);
    scene.apply(&object);
    scene.eventually_ready(&members(0..2));
    scene.roll("db", "3.10");
    scene.eventually_run("3.10", &members(0..2));
    scene.rolled("db");
    for (pod, gap) in scene.recording.gaps() {
        println!("{pod}: its successor came {gap:?} after its end");
        assert!(
            gap < Duration::from_secs(4),
            "{pod} came {gap:?} after its name was free\n{}",
            scene.recording.story()
        );
    }
}

fn together(world: &World) {
    let scene = world.namespace("together");
    for ordinal in 0..4 {
        let mut object = annotated_ready_after(workload("Deployment", &format!("one-{ordinal}"), 1), "500ms");
        object["spec"]["template"]["metadata"]["annotations"]["flock.dev/ordinals"] =
            json!(ordinal.to_string());
        scene.apply(&object);
    }
    scene.eventually_ready(&members(0..4));
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": { "changed": "yes" } } } } })
        .to_string();
    scene.run(&[
        "patch",
        "deployment",
        "one-0",
        "one-1",
        "one-2",
        "one-3",
        "--type=merge",
        "-p",
        &patch,
    ]);
    // The recording hears a moment later what a list has shown.
    scene.eventually("eight that ran", || {
        (scene.recording.count_ran() >= 8).then_some(())
    });
    scene.eventually_ready(&members(0..4));
    assert_eq!(
        scene.recording.most_unavailable(&members(0..4), Duration::ZERO),
        1,
        "{}",
        scene.recording.story()
    );
    assert_eq!(scene.recording.count_ran(), 8, "{}", scene.recording.story());
    scene.quiet();
}

fn annotated_ready_after(workload: Value, after: &str) -> Value {
    crate::objects::annotated(workload, &json!({ "lab.flock.dev/ready-after": after }))
}
