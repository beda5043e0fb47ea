//! What DNS says of members: forward, backward, and before any of them is Ready.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::harness::Test;
use crate::objects::{members, with};
use crate::scene::Scene;
use crate::world::{World, workload};

pub const TESTS: &[Test] = &[
    (
        "members_that_wait_for_the_names_of_all_before_they_are_ready_become_ready",
        a_bootstrap_by_dns,
    ),
    (
        "a_members_address_leads_back_to_its_name_also_beside_services_of_the_user",
        forward_and_backward,
    ),
];

/// Members of one container without ports, with this script and this command as readiness probe.
fn running(script: &str, ready: &Value) -> Value {
    let spec = json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "c", "image": "lab.flock.dev/busybox:1", "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", format!("{script}; trap 'exit 0' TERM; while :; do sleep 86400 & wait $!; done")],
            "readinessProbe": { "exec": { "command": ready }, "periodSeconds": 1 },
        }],
    });
    with(
        workload("ReplicaSet", "rs", 3),
        &json!({ "spec": { "template": { "spec": spec } } }),
    )
}

fn full(scene: &Scene<'_>, member: &str) -> String {
    format!("{member}.db.{}.svc.cluster.local", scene.namespace)
}

/// Once all three have an address.
fn addresses(scene: &Scene<'_>) -> Vec<(String, IpAddr)> {
    scene.eventually("three addresses", || {
        let pods = scene.pods().into_iter().map(|pod| {
            let address = pod.status?.pod_ip?.parse().ok()?;
            Some((pod.metadata.name?, address))
        });
        let pods: Vec<_> = pods.collect::<Option<_>>()?;
        (pods.len() == 3).then_some(pods)
    })
}

/// None where DNS does not answer.
fn names(scene: &Scene<'_>, address: IpAddr) -> Option<BTreeSet<String>> {
    let names = scene.world.lab.dns_lookup_ptr(address).ok()?;
    Some(names.into_iter().collect())
}

/// As quorum systems do that find their peers by name at their first start.
fn a_bootstrap_by_dns(world: &World) {
    let scene = world.namespace("bootstrap");
    let known = members(0..3)
        .iter()
        .map(|member| format!("nslookup {}", full(&scene, member)))
        .collect::<Vec<_>>()
        .join(" && ");
    let script = format!("until {known}; do sleep 1; done; touch /tmp/met");
    scene.apply(&running(&script, &json!(["test", "-e", "/tmp/met"])));
    scene.eventually_ready(&members(0..3));
    // Made by Flock, as nobody else did, under the name that the pods have as their subdomain.
    let service = scene.get("service/db");
    assert_eq!(service["spec"]["clusterIP"], "None", "{service}");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true, "{service}");
    assert_eq!(service["spec"]["ports"], Value::Null, "{service}");
}

fn forward_and_backward(world: &World) {
    let scene = world.namespace("backward");
    // Never Ready.
    scene.apply(&running("true", &json!(["false"])));
    let pods = addresses(&scene);
    for (member, address) in &pods {
        let name = full(&scene, member);
        scene.eventually(&format!("an address of {name}"), || {
            let found = world.lab.dns_lookup_a(&name).ok()?;
            (found == [*address]).then_some(())
        });
        scene.eventually(&format!("the name of {address}"), || {
            (names(&scene, *address)? == BTreeSet::from([name.clone()])).then_some(())
        });
    }
    let services = scene.run(&["get", "services", "-o=name"]);
    assert_eq!(services, "service/db\n", "one for the flock, none for a pod");

    // CoreDNS answers with a name for each headless Service that an address is an endpoint of, in any order; one with
    // an address of its own names nobody.
    scene.run(&["expose", "rs", "rs", "--name=db-client", "--port=5432"]);
    scene.run(&[
        "expose",
        "rs",
        "rs",
        "--name=db-peers",
        "--port=5432",
        "--cluster-ip=None",
    ]);
    scene.run(&[
        "patch",
        "service",
        "db-peers",
        "-p",
        r#"{"spec":{"publishNotReadyAddresses":true}}"#,
    ]);
    for (member, address) in &pods {
        let ours = full(&scene, member);
        scene.eventually(&format!("the user's name of {address} beside {ours}"), || {
            let names = names(&scene, *address)?;
            assert!(names.contains(&ours), "{ours} is not among {names:?}");
            assert!(!names.iter().any(|name| name.contains("db-client")), "{names:?}");
            names.iter().any(|name| name.contains(".db-peers.")).then_some(())
        });
    }
}
