//! The Helm chart renders the very objects of `deploy`, `webhook-config` and `certs`.
//!
//! FLOCK_HELM names the program; else `helm` on PATH is used, and where there is none it is built like the lab's
//! programs.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "shared with manifests.rs, which uses the rest")]
#[path = "manifests/files.rs"]
mod files;

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;
use std::process::Command;

use flock_lab::{Components, DEFAULT_KUBERNETES, find_program};
use rstest::rstest;
use serde_json::{Value, json};

use files::root;

type Objects = BTreeMap<(String, String), Value>;

fn output(mut command: Command) -> String {
    let output = command
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn helm() -> Command {
    Command::new(env::var_os("FLOCK_HELM").map_or_else(|| program("helm"), PathBuf::from))
}

/// A program of the machine, or, where it has none, the one that is built like the lab's.
fn program(name: &'static str) -> PathBuf {
    let pinned = || Components::new(DEFAULT_KUBERNETES)?.ensure_program(name);
    find_program(name)
        .unwrap_or_else(|| pinned().unwrap_or_else(|error| panic!("{name} cannot be built: {error:#}")))
}

/// Objects by kind and name.
fn objects(yaml: &str) -> Objects {
    let all: Vec<Value> = serde_saphyr::from_multiple(yaml).unwrap();
    let mut objects = Objects::new();
    for mut object in all {
        if object.is_null() {
            continue;
        }
        // What Helm's custom adds to every object.
        if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
            labels
                .retain(|key, _| !["app.kubernetes.io/managed-by", "helm.sh/chart"].contains(&key.as_str()));
        }
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
        assert!(
            objects.insert(key.clone(), object).is_none(),
            "{key:?} stands twice"
        );
    }
    objects
}

fn rendered(values: &[&str]) -> Objects {
    let mut command = helm();
    // A helm that was built without its usual flags takes the cluster for one of version 1.20.
    command.args([
        "template",
        "flock",
        "deploy/helm/flock",
        "--namespace=flock-system",
        "--kube-version=1.33.4",
    ]);
    for value in values {
        command.args(["--set", value]);
    }
    objects(&output(command))
}

fn kustomized(directories: &[&str]) -> Objects {
    let mut all = Objects::new();
    for directory in directories {
        let mut command = Command::new(program("kubectl"));
        command.args(["kustomize", directory]);
        all.extend(objects(&output(command)));
    }
    // Helm makes the namespace by a flag; the chart's notes tell its labels.
    all.remove(&("Namespace".to_owned(), "flock-system".to_owned()));
    all
}

fn assert_same(left: &Objects, right: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    for (key, object) in left {
        assert_eq!(object, &right[key], "{key:?}");
    }
}

#[rstest]
#[case::own_certificates(&[], &["deploy", "webhook-config"])]
#[case::cert_manager(&["certManager.enabled=true"], &["certs", "certs/webhook-config"])]
#[case::client_ca(
    &["clientCA.configMapName=flock-client-ca", "clientCA.names={kube-apiserver-flock-client}"],
    &["examples/client-ca", "webhook-config"],
)]
#[case::monitoring(&["monitoring.enabled=true"], &["deploy", "webhook-config", "deploy/monitoring"])]
fn the_chart_is_the_same_as_the_manifests(#[case] values: &[&str], #[case] directories: &[&str]) {
    assert_same(&rendered(values), &kustomized(directories));
}

#[test]
fn the_chart_is_in_order() {
    let mut command = helm();
    command.args(["lint", "--strict", "deploy/helm/flock"]);
    output(command);
}

#[test]
fn values_reach_the_deployment() {
    let all = rendered(&[
        "replicas=3",
        "image.repository=registry.example.com/flock",
        "image.tag=1.2.3",
        "resources.limits.memory=1Gi",
        "nodeSelector.role=control",
        "extraArgs={--log-format=json}",
        "priorityClassName=",
        "networkPolicy.enabled=false",
    ]);
    let deployment = &all[&("Deployment".to_owned(), "flock".to_owned())]["spec"];
    assert_eq!(deployment["replicas"], 3);
    let pod = &deployment["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example.com/flock:1.2.3");
    assert_eq!(container["args"], json!(["serve", "--log-format=json"]));
    assert_eq!(container["resources"], json!({"limits": {"memory": "1Gi"}}));
    assert_eq!(pod["nodeSelector"], json!({"role": "control"}));
    assert_eq!(pod["priorityClassName"], Value::Null);
    assert!(
        all.keys()
            .all(|(kind, _)| !["PriorityClass", "NetworkPolicy"].contains(&kind.as_str()))
    );
}

#[test]
fn the_client_ca_goes_with_certificates_of_cert_manager_and_may_be_in_a_secret() {
    let all = rendered(&["certManager.enabled=true", "clientCA.secretName=callers"]);
    let pod = &all[&("Deployment".to_owned(), "flock".to_owned())]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(
        container["env"][0],
        json!({"name": "FLOCK_CLIENT_CA", "value": "/client-ca/ca.crt"})
    );
    assert_eq!(container["env"][1]["name"], "POD_NAMESPACE", "no names");
    let mounts = container["volumeMounts"].as_array().unwrap();
    let volumes = pod["volumes"].as_array().unwrap();
    assert_eq!((mounts.len(), volumes.len()), (2, 2));
    assert_eq!(mounts[1]["name"], volumes[1]["name"]);
    // Beside the CA such a Secret may hold a key, which is none of Flock's business.
    let items = json!([{"key": "ca.crt", "path": "ca.crt"}]);
    assert_eq!(
        volumes[1]["secret"],
        json!({"secretName": "callers", "items": items})
    );
}

#[test]
fn another_storage_root_reaches_the_server_and_every_policy() {
    let all = rendered(&["hostPathRoot=/data/flock"]);
    let deployment = &all[&("Deployment".to_owned(), "flock".to_owned())];
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    assert_eq!(args, &json!(["serve", "--host-path-root=/data/flock"]));
    let text: Vec<_> = all.values().map(ToString::to_string).collect();
    assert!(text.iter().all(|object| !object.contains("/var/lib/flock")));
    assert_eq!(
        text.iter()
            .filter(|object| object.contains("'/data/flock/'"))
            .count(),
        3
    );
}

#[test]
fn the_image_s_repository_is_the_only_one_of_helpers() {
    let of_policy = |values: &[&str]| {
        let kind = "ValidatingAdmissionPolicy".to_owned();
        let policy = &rendered(values)[&(kind, "flock-own-namespace".to_owned())];
        let variables = policy["spec"]["variables"].as_array().unwrap();
        let repository = variables.iter().find(|v| v["name"] == "repository").unwrap();
        repository["expression"].clone()
    };
    assert_eq!(of_policy(&[]), "'any'");
    let there = "registry.example.com:5000/team/flock";
    assert_eq!(
        of_policy(&[&format!("image.repository={there}")]),
        format!("'{there}'")
    );
}

#[test]
fn another_namespace_reaches_every_object() {
    let mut command = helm();
    command.args([
        "template",
        "flock",
        "deploy/helm/flock",
        "--namespace=elsewhere",
        "--kube-version=1.33.4",
    ]);
    command.args([
        "--set",
        "certManager.enabled=true",
        "--set",
        "excludedNamespaces={kube-system,storage}",
    ]);
    let text = output(command);
    // Messages of policies and names of alerts are for people; everything else is compared by machines.
    assert!(
        !text.contains("flock-system"),
        "{}",
        text.lines().find(|line| line.contains("flock-system")).unwrap()
    );
    let all = objects(&text);
    let webhooks = &all[&("MutatingWebhookConfiguration".to_owned(), "flock".to_owned())]["webhooks"];
    let selector = &webhooks[0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(selector, &json!(["kube-system", "storage", "elsewhere"]));
    assert_eq!(webhooks[0]["clientConfig"]["service"]["namespace"], "elsewhere");
}

#[rstest]
#[case::both(&["clientCA.configMapName=a", "clientCA.secretName=b"], "not both")]
#[case::names_alone(&["clientCA.names={a}"], "anybody may call")]
fn client_cas_that_would_not_be_what_was_meant_are_refused(#[case] values: &[&str], #[case] says: &str) {
    let mut command = helm();
    command.args(["template", "flock", "deploy/helm/flock", "--kube-version=1.33.4"]);
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.current_dir(root()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(says), "{error}");
}

#[rstest]
#[case::misspelt("replica=3")]
#[case::two_names_in_one("clientCA.names={a\\,b}")]
#[case::relative_root("hostPathRoot=data")]
#[case::root_of_the_host("hostPathRoot=/")]
#[case::parent("hostPathRoot=/data/../etc")]
fn values_that_cannot_be_right_are_refused(#[case] value: &str) {
    let mut command = helm();
    command.args([
        "template",
        "flock",
        "deploy/helm/flock",
        "--kube-version=1.33.4",
        "--set",
        value,
    ]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("values don't meet the specifications"));
}
