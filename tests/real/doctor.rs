//! `flock doctor` on the Deployment of the manifests, in containers.

use std::path::Path;

use crate::command::flock;
use crate::harness::Test;
use crate::world::World;

pub const TESTS: &[Test] = &[(
    "a_deployment_in_containers_has_nothing_that_is_broken",
    deployment,
)];

fn deployment(world: &World) {
    let scene = world.namespace("doctor");
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .display()
        .to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "-k", &deploy];
    world.lab.kubectl(&apply).expect("deploy/ is applied");
    let namespace = ["-n", "flock-system"];
    let rollout = ["rollout", "status", "deployment/flock", "--timeout=120s"];
    let rolled = world.lab.kubectl(&[&namespace[..], &rollout].concat());
    let told = rolled.unwrap_or_else(|error| {
        let pods = world
            .lab
            .kubectl(&[&namespace[..], &["describe", "pods"]].concat());
        panic!("{error:#}\n{}", pods.unwrap_or_default());
    });
    assert!(told.contains("successfully rolled out"), "{told}");
    // The processes that are Flock for the other tests have endpoints as well.
    let says = [
        "2 of 2 replicas are available",
        "all replicas run flock:dev",
        "Service flock has 4 ready endpoints",
    ];
    scene.eventually("a doctor that is content", || {
        let (good, text) = flock(world, &["doctor", "--probe-namespace", &scene.namespace]);
        eprintln!("{text}");
        (good && says.iter().all(|says| text.contains(says))).then_some(())
    });
    let delete = ["delete", "deployment", "flock", "--wait"];
    world
        .lab
        .kubectl(&[&namespace[..], &delete].concat())
        .expect("it goes");
}
