//! A member's data.

use serde_json::{Value, json};

use crate::harness::Test;
use crate::world::{World, workload};

pub const TESTS: &[Test] = &[("a_restarted_member_finds_its_file", a_restarted_member)];

/// A ReplicaSet whose members write their uid into `/data/log` at every start, and are Ready once they have.
pub fn writers(name: &str, replicas: u32) -> Value {
    let mut set = workload("ReplicaSet", name, replicas);
    set["spec"]["template"]["metadata"]["annotations"] = json!({ "flock.dev/volumes": "data" });
    set["spec"]["template"]["spec"] = json!({
        "terminationGracePeriodSeconds": 1,
        "volumes": [{ "name": "data", "emptyDir": {} }],
        "containers": [{
            "name": "c", "image": "lab.flock.dev/busybox:1", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "echo $(hostname) >> /data/log; touch /tmp/up; trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done"],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "readinessProbe": { "exec": { "command": ["test", "-e", "/tmp/up"] }, "periodSeconds": 1 },
        }],
    });
    set
}

fn a_restarted_member(world: &World) {
    let scene = world.namespace("file");
    scene.apply(&writers("rs", 2));
    scene.eventually_ready(&["db-0", "db-1"]);
    scene.run(&["delete", "pod", "db-1"]);
    scene.eventually_ready(&["db-0", "db-1"]);
    let log = scene.run(&["exec", "db-1", "--", "cat", "/data/log"]);
    assert_eq!(log.lines().collect::<Vec<_>>(), ["db-1", "db-1"], "{log}");
}
