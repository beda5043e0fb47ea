//! Names, and who gets them.

use crate::harness::Test;
use crate::world::{World, workload};

pub const TESTS: &[Test] = &[
    (
        "replicas_become_members_on_nodes_of_their_own",
        replicas_become_members,
    ),
    (
        "a_deleted_member_comes_back_with_its_name_and_node",
        a_deleted_member_comes_back,
    ),
    (
        "a_default_rollout_goes_from_the_highest_ordinal_down_one_at_a_time",
        a_default_rollout,
    ),
];

fn replicas_become_members(world: &World) {
    let scene = world.namespace("members");
    scene.apply(&workload("ReplicaSet", "rs", 3));
    scene.eventually_ready(&["db-0", "db-1", "db-2"]);
    let mut nodes: Vec<_> = ["db-0", "db-1", "db-2"]
        .iter()
        .map(|pod| scene.node_of(pod))
        .collect();
    nodes.sort();
    nodes.dedup();
    assert_eq!(nodes.len(), 3, "members share a node");
}

fn a_deleted_member_comes_back(world: &World) {
    let scene = world.namespace("back");
    scene.apply(&workload("ReplicaSet", "rs", 3));
    scene.eventually_ready(&["db-0", "db-1", "db-2"]);
    let node = scene.node_of("db-1");
    scene.run(&["delete", "pod", "db-1"]);
    scene.eventually_ready(&["db-0", "db-1", "db-2"]);
    assert_eq!(scene.node_of("db-1"), node);
}

fn a_default_rollout(world: &World) {
    let scene = world.namespace("rollout");
    scene.apply(&workload("Deployment", "db", 3));
    scene.eventually_ready(&["db-0", "db-1", "db-2"]);
    scene.run(&["set", "image", "deployment/db", "c=registry.k8s.io/pause:3.10"]);
    scene.run(&["rollout", "status", "deployment/db", "--timeout=60s"]);
    scene.eventually_ready(&["db-0", "db-1", "db-2"]);
    assert_eq!(
        scene.recording.created()[3..],
        ["db-2", "db-1", "db-0"],
        "{}",
        scene.recording.story()
    );
    assert_eq!(scene.recording.most_unavailable(&["db-0", "db-1", "db-2"]), 1);
}
