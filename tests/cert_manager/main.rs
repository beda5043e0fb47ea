//! The variant `certs/` with cert-manager itself, whose controllers and CA injector run beside the lab's control plane.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test says by panicking that something is not as it should be"
)]

#[expect(dead_code, reason = "the tests of Flock's own certificates use more of it")]
#[path = "../certificates/callers.rs"]
mod callers;
#[expect(dead_code, reason = "the tests of the server use more of it")]
#[path = "../serving/client.rs"]
mod client;
mod kubelet;
#[expect(dead_code, reason = "the tests of Flock's own certificates use more of it")]
#[path = "../certificates/processes.rs"]
mod processes;
#[expect(dead_code, reason = "the tests of Flock's own certificates use more of it")]
#[path = "../certificates/scene.rs"]
mod scene;
mod world;

use std::{collections::BTreeMap, path::Path, time::Duration};

use flock::tls::pem;
use serde_json::json;

use world::{CONFIGURATIONS, world};

#[test]
fn a_replica_is_ready_once_cert_manager_has_issued_its_certificate() {
    let world = world();
    let (code, told) = &world.readiness_without;
    assert_eq!(*code, 503, "{told}");
    assert!(told.contains("no certificate yet"), "{told}");
    let metric = "flock_certificate_failures_total";
    assert!(world.flock().metric(0, metric, "").unwrap() > 0.0);
}

#[test]
fn a_member_is_admitted_and_the_doctor_finds_the_ca_where_cert_manager_wrote_it() {
    let world = world();
    world.kubectl(&[
        "create",
        "-f",
        &world.file(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "generateName": "db-", "namespace": "default", "labels": { "flock.dev/name": "db" } },
            "spec": { "containers": [{ "name": "c", "image": "registry.k8s.io/pause:3.9" }] },
        })),
    ]);
    world.kubectl(&["get", "pod", "db-0"]);

    // The doctor reads the Deployment; nothing runs it here.
    world.flock().apply_kinds("certs", &["Deployment"]).unwrap();
    let doctor = world
        .lab()
        .spawn(
            "doctor",
            Path::new(env!("CARGO_BIN_EXE_flock")),
            &["doctor"],
            &BTreeMap::new(),
        )
        .unwrap();
    doctor.wait(Duration::from_secs(60)).unwrap();
    let told = doctor.log_text();
    world.kubectl(&["-n", "flock-system", "delete", "deployment", "flock"]);
    for kind in ["Mutating", "Validating"] {
        let says = format!("{kind}WebhookConfiguration flock has the CA of secret/flock-serving");
        assert!(told.contains(&says), "{says}: {told}");
    }
    for line in told.lines().filter(|line| line.starts_with("broken")) {
        // No pod of the Deployment runs.
        let processes = ["Deployment flock", "has no pod"]
            .iter()
            .any(|says| line.contains(says));
        assert!(processes, "{line}\n{told}");
    }
}

#[test]
fn a_renewed_leaf_is_served_without_a_restart_and_no_call_fails() {
    let world = world();
    let callers = world.installed.callers(|_| false);
    for _ in 0..2 {
        let before = world.leaf();
        world.renew("flock");
        world.serve_another(&before);
    }
    world.lab().block_on(callers.assert_none_failed_after(5));
}

#[test]
fn a_renewed_ca_fails_no_call() {
    let mut world = world();
    // Injectors from before cert-manager 1.19 let go of the old CA when they publish the new one.
    for gates in [&["CAInjectorMerging=false"][..], &[]] {
        world.inject(gates);
        let callers = world.installed.callers(|_| false);
        let ca = world.ca();
        world.renew("flock-ca");
        world.eventually("another CA", || world.issuer_ca() != ca);
        // cert-manager leaves the leaves of the old CA alone until their own renewal, and the injector follows the leaf.
        world.lab().block_on(callers.go_on());
        assert_eq!(world.ca(), ca);
        let leaf = world.leaf();
        world.renew("flock");
        world.serve_another(&leaf);
        let now = world.issuer_ca();
        world.eventually("the new CA in caBundle", || {
            world.bundles().iter().all(|bundle| bundle.contains(&now))
        });
        assert_eq!(world.bundles()[0].len() > 1, gates.is_empty());
        world.lab().block_on(callers.assert_none_failed_after(5));
    }
}

#[test]
fn a_leaked_key_is_trusted_no_more_after_what_the_documentation_says() {
    let world = world();
    let callers = world.installed.callers(|_| false);
    let (ca, leaf) = (world.ca(), world.leaf());
    for secret in ["flock-issuer-ca", "flock-serving"] {
        world.kubectl(&["-n", "flock-system", "delete", "secret", secret]);
        let wait = ["wait", "--for=create", "--timeout=120s"];
        world.kubectl(&[&["-n", "flock-system"], &wait[..], &[&format!("secret/{secret}")]].concat());
    }
    // In place of the Deployment's rollout.
    world.serve_another(&leaf);
    let now = world.ca();
    let key = |ca| pem::facts(ca).unwrap().public_key;
    assert_ne!(key(&now), key(&ca));
    assert!(world.bundles()[0].contains(&ca), "the injector takes out nothing");
    world.eventually("one CA", || {
        world.set_bundles(&pem::encode_certificates([&now]));
        world.bundles() == [[now.clone()], [now.clone()]]
    });
    world.lab().block_on(callers.assert_none_failed_after(5));
}

#[test]
fn a_bundle_that_was_overwritten_is_put_right_by_the_injector_and_never_by_flock() {
    let world = world();
    let ca = world.ca();
    let other = rcgen::generate_simple_self_signed(["other".to_owned()])
        .unwrap()
        .cert
        .pem();
    for bundle in ["", &other] {
        world.set_bundles(bundle);
        world.eventually("the CA", || {
            world.bundles().iter().all(|bundle| bundle.contains(&ca))
        });
        world.eventually("a call", || world.call().is_ok());
    }
    for configuration in CONFIGURATIONS {
        let managers = world.kubectl(&[
            "get",
            configuration,
            "--show-managed-fields",
            "-o=jsonpath={.metadata.managedFields[*].manager}",
        ]);
        let mut managers = managers.split(' ');
        assert!(managers.clone().any(|manager| manager.contains("cainjector")));
        assert!(managers.all(|manager| !manager.starts_with("flock")));
    }
    for replica in 0..world.flock().len() {
        let writes = world
            .flock()
            .metric(replica, "flock_certificate_writes_total", "");
        assert!(writes.unwrap() < 1.0);
        // Nor does it miss the right to.
        let log = world.flock().log(replica);
        assert_eq!(log.lines().find(|line| line.contains("forbidden")), None);
    }
    let account = "--as=system:serviceaccount:flock-system:flock";
    let may = |what: &str| {
        world
            .lab()
            .kubectl(&["auth", "can-i", "get", what, account])
            .is_ok()
    };
    assert_eq!(
        ["pods", CONFIGURATIONS[0], CONFIGURATIONS[1]].map(may),
        [true, false, false]
    );
}
