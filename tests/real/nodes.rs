//! Nodes that fall silent, come back and go for good, with containers that run and files that stay.
//!
//! What is done to nodes here would disturb every other test, so these have a cluster of their own.

use std::fs;
use std::time::Duration;

use flock_lab::Options;
use serde_json::json;

use crate::harness::Test;
use crate::objects::annotated;
use crate::scene::Scene;
use crate::storage::writers;
use crate::world::World;

pub const TESTS: &[Test] = &[(
    "a_lost_nodes_member_waits_for_it_and_starts_elsewhere_only_when_asked_to",
    |_| lost(),
)];

/// The lines that the member has written, read from inside of it.
fn log(scene: &Scene<'_>, pod: &str) -> Vec<String> {
    let text = scene.run(&["exec", pod, "--", "cat", "/data/log"]);
    text.lines().map(str::to_owned).collect()
}

fn node_label(scene: &Scene<'_>, ordinal: u32) -> String {
    let label = format!(
        "db.{}.flock.node-restriction.kubernetes.io/{ordinal}",
        scene.namespace
    );
    scene.run(&[
        "get",
        "nodes",
        "-l",
        &label,
        "-o=jsonpath={.items[*].metadata.name}",
    ])
}

fn lost() {
    let mut options = Options::real(3);
    // Kubelets renew their lease every 10 s.
    options.node_monitor_grace = Some(Duration::from_secs(16));
    let world = World::start(options);
    let mut scene = world.namespace("lost");
    // The last act of this test moves a member.
    scene.may_move = true;
    scene.apply(&writers("db", 2));
    scene.eventually_ready(&["db-0", "db-1"]);
    let home = scene.node_of("db-1");

    // Its kubelet stops: the containers go on, and nobody knows.
    world.lab.stop_kubelet(&home).expect("the kubelet stops");
    scene.run(&["delete", "pod", "db-1", "--wait=false"]);
    scene.eventually_event("db", "db-1 is to end, but its node");
    let pod = scene.pod("db-1").expect("the old pod object");
    assert!(pod.metadata.deletion_timestamp.is_some());
    assert_eq!(
        scene
            .recording
            .created()
            .iter()
            .filter(|name| *name == "db-1")
            .count(),
        1,
        "no second one"
    );
    assert_eq!(node_label(&scene, 1), home);

    // It comes back: the member runs again there, with its data.
    world.lab.start_kubelet(&home).expect("the kubelet starts");
    scene.eventually_ready(&["db-0", "db-1"]);
    assert_eq!(scene.node_of("db-1"), home);
    assert_eq!(log(&scene, "db-1"), ["db-1", "db-1"]);

    // The machine goes for good, with its Node, and the flock asks for another place.
    scene.apply(&annotated(
        writers("db", 2),
        &json!({ "flock.dev/on-node-loss": "Reassign" }),
    ));
    world.lab.stop_kubelet(&home).expect("the kubelet stops");
    scene.run(&["delete", "node", &home]);
    scene.run(&[
        "delete",
        "pod",
        "db-1",
        "--grace-period=0",
        "--force",
        "--wait=false",
    ]);
    scene.eventually_event("db", &format!("its data stayed behind on {home}"));
    scene.eventually_ready(&["db-0", "db-1"]);
    assert_ne!(scene.node_of("db-1"), home);
    assert_eq!(log(&scene, "db-1"), ["db-1"], "it began anew");
    let disk = world.lab.node_disk(&home).expect("the old node's disk");
    let uid = scene.get(&format!("namespace/{}", scene.namespace))["metadata"]["uid"]
        .as_str()
        .map(str::to_owned);
    let old = disk.join(format!("{}_{}/db/1/data/log", scene.namespace, uid.unwrap()));
    assert_eq!(fs::read_to_string(old).expect("the old data"), "db-1\ndb-1\n");
}
