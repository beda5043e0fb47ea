//! `flock inject`: what it prints is what the webhook would have stored.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use flock::admission::Policy;
use flock::cli::inject::{InjectError, Injected, Options, documents, pods, yaml};
use rstest::rstest;
use serde_json::{Value, json};

use crate::setup::Webhooks;

fn options() -> Options {
    Options {
        ordinal: None,
        namespace: "team-a".into(),
        namespace_uid: "uid-of-team-a".into(),
        policy: Policy {
            host_path_root: "/var/lib/flock".into(),
        },
    }
}

fn injected(manifest: &str) -> Injected {
    pods(&documents(manifest).unwrap(), &options()).unwrap()
}

fn refused(manifest: &str) -> String {
    pods(&documents(manifest).unwrap(), &options())
        .unwrap_err()
        .to_string()
}

fn deployment(replicas: u32, annotations: &str, spec: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: Deployment
metadata: {{ name: db }}
spec:
  replicas: {replicas}
  template:
    metadata: {{ labels: {{ flock.dev/name: db }}, annotations: {{ {annotations} }} }}
    spec: {{ containers: [{{ name: c, image: i, env: [{{ name: SWITCH, value: \"on\" }}] }}], {spec} }}
"
    )
}

#[tokio::test]
async fn a_pod_is_shown_as_the_webhook_would_have_it() {
    let manifest = include_str!("../fixtures/elasticsearch-data.yaml");
    let pod: Value = serde_saphyr::from_str(manifest).unwrap();
    let mut stored = Webhooks::new().create(&pod).await.applied(&pod);
    stored["kind"] = json!("Pod");
    stored["metadata"]["namespace"] = json!("team-a");
    assert_eq!(injected(&format!("kind: Pod\n{manifest}")).pods, [stored]);
}

#[test]
fn a_workload_is_shown_as_the_pods_of_its_ordinals() {
    let shown = injected(&deployment(
        2,
        "flock.dev/ordinals: '0,2-', flock.dev/volumes: data",
        "volumes: [{ name: data }]",
    ));
    let names: Vec<_> = shown
        .pods
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["db-0", "db-2"]);
    let second = &shown.pods[1];
    assert_eq!(second["spec"]["hostname"], "db-2");
    assert_eq!(
        second["spec"]["volumes"][0]["hostPath"]["path"],
        "/var/lib/flock/team-a_uid-of-team-a/db/2/data"
    );
    assert_eq!(
        second["spec"]["containers"][0]["env"][3],
        json!({ "name": "FLOCK_SEED", "value": "db-0.db" })
    );
    assert_eq!(
        second["spec"]["schedulingGates"],
        json!([{ "name": "flock.dev/placement" }])
    );
}

#[test]
fn one_ordinal_may_be_chosen() {
    let one = |ordinal| {
        pods(
            &documents(&deployment(3, "", "")).unwrap(),
            &Options {
                ordinal: Some(ordinal),
                ..options()
            },
        )
    };
    let shown = one(1).unwrap().pods;
    assert_eq!((shown.len(), &shown[0]["metadata"]["name"]), (1, &json!("db-1")));
    let message = one(3).unwrap_err().to_string();
    assert_eq!(
        message,
        "Deployment db has no ordinal 3: it has 0-2; give one of them by --ordinal"
    );
}

#[test]
fn the_workloads_of_one_file_know_each_other() {
    let first = deployment(1, "", "");
    let second =
        deployment(1, "flock.dev/ordinals: '1'", "").replace("name: db }\nspec", "name: second }\nspec");
    let shown = injected(&format!("{first}---{second}"));
    assert_eq!(shown.warnings, [""; 0]);
    assert_eq!(
        shown.pods[1]["spec"]["containers"][0]["env"][3]["value"],
        "db-0.db"
    );
    let twice = injected(&format!(
        "{first}---{}",
        first.replace("name: db }\nspec", "name: second }\nspec")
    ));
    assert!(
        twice.warnings[0].contains("overlap with 0 of Deployment second"),
        "{:?}",
        twice.warnings
    );
}

#[test]
fn bare_pods_of_one_file_get_an_ordinal_each() {
    let pod = "kind: Pod\nmetadata: { generateName: db-, labels: { flock.dev/name: db } }\nspec: { containers: [{ name: c }] }\n";
    let shown = injected(&format!("{pod}---\n{pod}"));
    let names: Vec<_> = shown
        .pods
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["db-0", "db-1"]);
}

#[test]
fn a_stateful_sets_pods_keep_what_its_controller_sets() {
    let shown = injected(
        "
apiVersion: apps/v1
kind: StatefulSet
metadata: { name: db }
spec:
  replicas: 2
  serviceName: governing
  ordinals: { start: 4 }
  template:
    metadata: { labels: { flock.dev/name: db }, annotations: { flock.dev/storage: claim, flock.dev/volumes: data } }
    spec: { containers: [{ name: c, image: i }] }
  volumeClaimTemplates: [{ metadata: { name: data } }]
",
    );
    let pod = &shown.pods[1];
    assert_eq!(
        (&pod["metadata"]["name"], &pod["spec"]["subdomain"]),
        (&json!("db-5"), &json!("governing"))
    );
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            { "name": "data", "persistentVolumeClaim": { "claimName": "data-db-5" } },
        ])
    );
}

#[test]
fn namespaces_and_services_of_the_file_count() {
    let namespace = "
apiVersion: v1
kind: Namespace
metadata: { name: team-a, labels: { pod-security.kubernetes.io/enforce: baseline } }
---";
    let durable = deployment(1, "flock.dev/volumes: data", "volumes: [{ name: data }]");
    let message = refused(&format!("{namespace}{durable}"));
    assert!(
        message.starts_with("Deployment db would be denied: namespace team-a enforces"),
        "{message}"
    );
    let service =
        "\napiVersion: v1\nkind: Service\nmetadata: { name: db }\nspec: { clusterIP: 10.0.0.1 }\n---";
    assert!(injected(&format!("{service}{durable}")).warnings[0].contains("Service db is not headless"));
}

#[rstest]
#[case::host_network(&deployment(1, "", "hostNetwork: true"), "Deployment db would be denied: spec.hostNetwork is true")]
#[case::nothing(
    "kind: ConfigMap\nmetadata: { name: c }\n",
    "no pod and no workload in it has the label flock.dev/name"
)]
#[case::empty("", "no pod and no workload in it has the label")]
#[case::not_objects("- 1\n- x\n---\nhello\n", "no pod and no workload in it has the label")]
#[case::shape(
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: { name: db }\nspec: { replicas: many }",
    "Deployment db cannot be read: invalid type: string \"many\""
)]
#[case::name(
    "kind: Pod\nmetadata: { name: web, labels: { flock.dev/name: db } }",
    "Pod web would be refused: pod web cannot be a member of flock db"
)]
#[case::odd_metadata("kind: Pod\nmetadata: [x]", "no pod and no workload")]
fn what_cannot_be_shown_is_said(#[case] manifest: &str, #[case] said: &str) {
    let message = refused(manifest);
    assert!(message.contains(said), "{message}");
}

/// The examples are what people copy: nothing in them may be denied, or need a warning.
#[test]
fn the_examples_have_no_fault() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir());
    let files = files.flat_map(|path| {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    });
    let mut shown = 0;
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let objects = documents(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let injected = match pods(&objects, &options()) {
            // What goes with an example, such as a kustomization.
            Err(InjectError::NoMember) => continue,
            result => result.unwrap_or_else(|error| panic!("{}: {error}", file.display())),
        };
        assert_eq!(injected.warnings, [""; 0], "{}", file.display());
        shown += injected.pods.len();
    }
    assert!(shown > 0, "there are no examples");
}

#[test]
fn lists_and_json_are_read() {
    let object: Value = serde_saphyr::from_str(&deployment(1, "", "")).unwrap();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": [object, { "kind": "Secret" }] });
    assert_eq!(injected(&list.to_string()).pods.len(), 1);
}

#[test]
fn yaml_is_read_and_written_as_kubectl_reads_it() {
    let object = json!({
        "strings": ["yes", "on", "no", "null", "~", "1", "0x1", "1e3", "", "a: b", "# c", "- d", " e ", "two\nlines\n", "2026-01-01", "0o7", "1_000", "="],
        "numbers": [1, -1, 9_007_199_254_740_993_u64, 0.5], "others": [null, true, {}, []], "db.n.flock/0": "",
    });
    let text = yaml(&object);
    assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), object, "{text}");
    for word in ["yes", "on", "no"] {
        assert!(
            text.contains(&format!("\"{word}\"")) || text.contains(&format!("'{word}'")),
            "{text}"
        );
    }
    assert_eq!(documents("mode: 0750").unwrap(), [json!({ "mode": 488 })]);
}

fn flock(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flock"));
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

#[test]
fn the_command_prints_documents_and_ends_with_a_sentence_where_it_cannot() {
    let good = flock(&["inject", "-f", "-"], &deployment(2, "flock.dev/pni: x", ""));
    assert!(good.status.success());
    let printed = documents(&String::from_utf8(good.stdout).unwrap()).unwrap();
    assert_eq!(printed.len(), 2);
    assert_eq!(
        printed[0]["spec"]["containers"][0]["env"][4],
        json!({ "name": "SWITCH", "value": "on" })
    );
    let warnings = String::from_utf8(good.stderr).unwrap();
    assert_eq!(
        warnings,
        "Warning: Deployment db: Flock knows no annotation flock.dev/pni; is it flock.dev/pin?\n"
    );

    let json = flock(
        &["inject", "-f", "-", "-o", "json", "--ordinal", "1"],
        &deployment(2, "", ""),
    );
    let line: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(line["metadata"]["name"], "db-1");

    let bad = flock(&["inject", "-f", "-"], "a: [");
    assert!(!bad.status.success());
    let message = String::from_utf8(bad.stderr).unwrap();
    assert!(
        message.starts_with("flock: the standard input is neither YAML nor JSON: "),
        "{message}"
    );
    let absent = flock(&["inject", "-f", "/nowhere.yaml"], "");
    let message = String::from_utf8(absent.stderr).unwrap();
    assert!(
        message.starts_with("flock: /nowhere.yaml cannot be read: "),
        "{message}"
    );
}

#[test]
fn errors_name_the_object() {
    let error = InjectError::NoOrdinal {
        what: "Deployment db".into(),
        ordinal: 7,
        has: "0-2".into(),
    };
    assert!(error.to_string().starts_with("Deployment db has no ordinal 7"));
}
