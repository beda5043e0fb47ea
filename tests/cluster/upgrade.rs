//! New processes in the place of old ones, one at a time, while members come and go.

use std::thread;

use flock_lab::audit::Request;

use crate::harness::Test;
use crate::objects::{members, shared, workload};
use crate::world::World;

pub const ALONE: &[Test] = &[(
    "an_upgrade_under_a_stream_of_creations_fails_none_and_moves_nobody",
    replaced,
)];

fn replaced(world: &World) {
    let scene = world.namespace("upgrade");
    scene.apply(&shared(workload("ReplicaSet", "rs", 4)));
    scene.eventually_ready(&members(0..4));
    let mut replicas = 4;
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| {
            for replica in [0, 1, 0, 1] {
                world.flock.replace(replica).expect("a new process");
            }
        });
        while !upgrade.is_finished() {
            // One comes for the first time, and one comes back.
            replicas += 1;
            scene.scale("rs/rs", replicas);
            scene.run(&[
                "delete",
                "pod",
                &format!("db-{}", replicas / 2),
                "--ignore-not-found",
                "--wait=false",
            ]);
        }
        upgrade.join().expect("the upgrade");
    });
    scene.eventually_ready(&members(0..replicas));
    let creations = |request: &Request| request.verb == "create" && request.resource == "pods";
    let creations = scene
        .audit
        .since(&scene.namespace, creations)
        .expect("the audit log");
    println!(
        "{} creations of pods while four processes were replaced",
        creations.len()
    );
    let failed: Vec<_> = creations.iter().filter(|request| request.code >= 500).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(scene.clashes() <= 2, "{} clashes", scene.clashes());
    scene.quiet();
}
