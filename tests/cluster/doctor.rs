//! `flock doctor`, as administrators and others run it. Alone, as it judges the whole cluster, and some of it is broken
//! for it.

use std::path::Path;

use serde_json::json;

use crate::command::flock;
use crate::harness::Test;
use crate::objects::{members, workload};
use crate::scene::Scene;
use crate::world::World;

pub const ALONE: &[Test] = &[
    (
        "doctor::a_healthy_installation_has_nothing_that_is_broken",
        healthy,
    ),
    ("doctor::what_is_broken_is_told_with_the_way_out", broken),
    (
        "doctor::whoever_may_see_nothing_is_told_that_nothing_was_checked",
        nobody,
    ),
];

/// The Deployment of the manifests, with pods that kwok plays, beside the processes that are Flock here.
struct Deployed<'w>(&'w World);

impl<'w> Deployed<'w> {
    fn new(scene: &Scene<'w>) -> Self {
        let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
        for file in ["priority-class.yaml", "deployment.yaml"] {
            scene.run(&[
                "-n",
                "flock-system",
                "apply",
                "-f",
                &deploy.join(file).display().to_string(),
            ]);
        }
        let status = [
            "-n",
            "flock-system",
            "rollout",
            "status",
            "deployment/flock",
            "--timeout=60s",
        ];
        scene.run(&status);
        Self(scene.world)
    }
}

impl Drop for Deployed<'_> {
    fn drop(&mut self) {
        let delete = ["-n", "flock-system", "delete", "deployment", "flock"];
        let _ = self.0.lab.kubectl(&delete);
    }
}

fn lines<'t>(text: &'t str, verdict: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.starts_with(verdict)).collect()
}

fn healthy(world: &World) {
    let scene = world.namespace("healthy");
    let _deployed = Deployed::new(&scene);
    scene.apply(&workload("Deployment", "db", 2));
    scene.eventually_ready(&members(0..2));
    let (good, text) = flock(world, &["doctor", "--probe-namespace", &scene.namespace]);
    println!("{text}");
    assert!(good, "{text}");
    for verdict in ["broken", "not checked"] {
        assert_eq!(lines(&text, verdict), Vec::<&str>::new(), "{text}");
    }
    for says in [
        "is supported",
        "agree on the time",
        "kubelets cannot change the labels",
        "2 of 2 replicas are available",
        "Service flock has 2 ready endpoints",
        "renewed Lease flock",
        "MutatingWebhookConfiguration flock calls Flock at Service flock",
        "ValidatingWebhookConfiguration flock has the CA of secret/flock-ca",
        "would be named flock-doctor-0",
        "is told at once",
        "policies are there, bound, and compile",
        "ServiceAccount flock in namespace flock-system may do all",
        "has an identity of its own",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(scene.pods().len(), 2, "a probe was stored");
}

fn broken(world: &World) {
    let scene = world.namespace("sick");
    let _deployed = Deployed::new(&scene);
    let doctor = || flock(world, &["doctor", "--probe-namespace", &scene.namespace]);
    scene.run(&["delete", "validatingadmissionpolicy", "flock-members"]);
    let rights = json!({ "rules": [] });
    scene.patch("clusterrole/flock", &rights);
    // The authorizer hears of the ClusterRole by a watch.
    let text = scene.eventually("rights that are missed", || {
        let (good, text) = doctor();
        assert!(!good, "{text}");
        text.contains("flock in namespace flock-system may not get pods, list pods")
            .then_some(text)
    });
    assert!(
        text.contains("ValidatingAdmissionPolicy flock-members does not exist"),
        "{text}"
    );
    let nonsense = json!({ "spec": { "validations": [{ "expression": "object.spec.nonsense == 'x'" }] } });
    scene.patch("validatingadmissionpolicy/flock-own-volumes", &nonsense);
    for replica in 0..2 {
        world.flock.stop(replica).expect("Flock stops");
    }
    let bundle = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]).to_string();
    let patch = [
        "patch",
        "mutatingwebhookconfiguration",
        "flock",
        "--type=json",
        "-p",
    ];
    scene.run(&[&patch[..], &[&bundle]].concat());
    // The API server reads configurations by a watch.
    let text = scene.eventually("a doctor that sees it", || {
        let (good, text) = doctor();
        assert!(!good, "{text}");
        let compiled = "policy flock-own-volumes does not compile against this cluster at spec.validations[0].expression";
        (text.contains("the API server cannot call Flock") && text.contains(compiled)).then_some(text)
    });
    println!("{text}");
    let told = lines(&text, "broken");
    let about = |words: &str| told.iter().any(|line| line.contains(words));
    assert!(
        about("webhook members.flock.dev in MutatingWebhookConfiguration flock is empty"),
        "{text}"
    );
    assert!(!about("ValidatingWebhookConfiguration"), "{text}");

    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (rbac, config) = (root.join("deploy/rbac.yaml"), root.join("webhook-config"));
    for (how, manifest) in [("-f", rbac), ("-k", config)] {
        let manifest = manifest.display().to_string();
        scene.run(&[
            "-n",
            "flock-system",
            "apply",
            "--server-side",
            "--force-conflicts",
            how,
            &manifest,
        ]);
    }
    for replica in 0..2 {
        world.flock.start(replica).expect("Flock starts");
    }
    for replica in 0..2 {
        world.flock.wait_ready(replica).expect("Flock is ready");
    }
    scene.eventually("a content doctor", || doctor().0.then_some(()));
}

fn nobody(world: &World) {
    let scene = world.namespace("nobody");
    let kubeconfig = world
        .lab
        .kubeconfig_for("nobody", &["system:authenticated"])
        .expect("a kubeconfig");
    let kubeconfig = kubeconfig.display().to_string();
    let args = [
        "doctor",
        "--kubeconfig",
        &kubeconfig,
        "--probe-namespace",
        &scene.namespace,
    ];
    let (good, text) = flock(world, &args);
    println!("{text}");
    assert!(good, "{text}");
    assert_eq!(lines(&text, "broken"), Vec::<&str>::new(), "{text}");
    assert!(lines(&text, "not checked").len() == 13, "{text}");
}
