//! Flock as an administrator installs it: with all of its manifests, the rights of its ServiceAccount and nothing else,
//! running the examples. What the policies or RBAC would keep from it shows in its log.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with manifests.rs, which uses the rest")]
#[path = "manifests/files.rs"]
mod files;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flock_lab::{Flock, Lab, Options};

const NAMES_OF_READY_PODS: &str =
    "-o=jsonpath={range .items[?(@.status.phase=='Running')]}{.metadata.name} {end}";

fn wait_for_pods(lab: &Lab, flock: &Flock, expected: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let names = lab.kubectl(&["get", "pods", NAMES_OF_READY_PODS]).unwrap();
        if names.trim() == expected {
            return;
        }
        if Instant::now() > deadline {
            let events = lab.kubectl(&["get", "events", "-A"]).unwrap();
            panic!(
                "{names:?} run instead of {expected:?}\n{events}\n{}",
                flock.log(0)
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_examples_run_and_nothing_that_flock_wants_is_forbidden() {
    let lab = Arc::new(Lab::start(Flock::options(Options::fake(4))).unwrap());
    for document in files::resources("deploy")
        .iter()
        .filter(|d| !["Deployment", "Service"].contains(&d.kind()))
    {
        lab.apply(&document.value.to_string()).unwrap();
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
    let flock = Flock::install(&lab, files::root(), binary, 1, &["--log-filter=info,flock=debug"]).unwrap();

    let apply = |verb: &str, example: &str| {
        lab.kubectl(&[
            verb,
            "-f",
            files::root().join("examples").join(example).to_str().unwrap(),
        ])
        .unwrap()
    };
    apply("apply", "etcd/replicaset.yaml");
    apply("apply", "one-deployment-per-member/gluster.yaml");
    wait_for_pods(&lab, &flock, "etcd-0 etcd-1 etcd-2 gluster-0 gluster-1");
    apply("delete", "one-deployment-per-member/gluster.yaml");

    // From a ReplicaSet to a Deployment, and a rollout of that: wake, hand over and bury are all in it.
    apply("delete", "etcd/replicaset.yaml");
    apply("apply", "etcd/deployment.yaml");
    lab.kubectl(&["set", "env", "deployment/etcd", "ETCD_LOG_LEVEL=warn"])
        .unwrap();
    lab.kubectl(&["rollout", "status", "deployment/etcd", "--timeout=120s"])
        .unwrap();
    wait_for_pods(&lab, &flock, "etcd-0 etcd-1 etcd-2");

    let places = lab
        .kubectl(&[
            "get",
            "service",
            "etcd",
            "-o=jsonpath={.metadata.annotations.flock\\.dev/places}",
        ])
        .unwrap();
    assert!(places.contains("node-"), "{places:?}");
    let log = flock.log(0);
    for word in ["orbidden", "denied request"] {
        let line = log.lines().find(|line| line.contains(word));
        assert_eq!(line, None);
    }
    assert!(log.lines().count() > 5, "{log}");
}

/// One more, of nobody.
const MEMBER: &str = "{apiVersion: v1, kind: Pod, metadata: {generateName: m-, labels: {flock.dev/name: etcd}}, \
                      spec: {containers: [{name: c, image: 'etcd:demo'}]}}";

#[test]
fn whoever_applies_the_manifests_again_changes_nothing_and_finds_nothing_to_change() {
    let lab = Arc::new(Lab::start(Flock::options(Options::fake(4))).unwrap());
    let binary = Path::new(env!("CARGO_BIN_EXE_flock"));
    let flock = Flock::install(&lab, files::root(), binary, 2, &[]).unwrap();
    let example = files::root().join("examples/etcd/replicaset.yaml");
    let example = ["-f", example.to_str().unwrap()];
    let configurations = files::root().join("webhook-config");
    let configurations = ["-k", configurations.to_str().unwrap()];
    let kubectl = |args: &[&str], manifests: [&str; 2]| lab.kubectl(&[args, &manifests].concat()).unwrap();
    let bundles = || {
        let kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
        let bundles = "-o=jsonpath={range .items[*]}{.webhooks[*].clientConfig.caBundle}{'\\n'}{end}";
        lab.kubectl(&["get", kinds, bundles]).unwrap()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, MEMBER).unwrap();
    let member = ["-f", file.path().to_str().unwrap()];
    kubectl(&["apply"], example);
    wait_for_pods(&lab, &flock, "etcd-0 etcd-1 etcd-2");
    let before = bundles();
    assert_eq!(before.split_whitespace().count(), 2, "{before:?}");

    // As people do, and as tools do that keep a cluster as a repository says.
    let argo = ["--server-side", "--force-conflicts", "--field-manager=argo"];
    for by in [&argo[..0], &argo[..0], &argo[..], &argo[..]] {
        let apply = [&["apply"], by].concat();
        kubectl(&apply, configurations);
        assert_eq!(bundles(), before, "{by:?}");
        let dry = ["create", "--dry-run=server", "-o=name"];
        assert_eq!(kubectl(&dry, member), "pod/etcd-3\n", "{by:?}");
        kubectl(&apply, example);
        // Fails where there is a difference.
        let diff = [&["diff"], by].concat();
        kubectl(&diff, configurations);
        kubectl(&diff, example);
    }
    wait_for_pods(&lab, &flock, "etcd-0 etcd-1 etcd-2");
}
