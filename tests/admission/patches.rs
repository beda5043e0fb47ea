//! Whatever a pod looks like, the patch adds Flock's own and leaves everything else as it was.

use flock::admission::{Context, End, Op, Policy, RawPod, Reservations, Verdict, decide};
use flock::identity::FlockKey;
use flock::view::{NamespaceFacts, View};
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const VARIABLES: [&str; 4] = ["FLOCK_NAME", "FLOCK_ORDINAL", "FLOCK_SERVICE", "FLOCK_SEED"];

fn view() -> View {
    let mut view = View::default();
    view.apply_namespace(NamespaceFacts {
        name: "team-a".into(),
        uid: "uid".into(),
        enforce: None,
        terminating: false,
    });
    view
}

fn decided(pod: &Value) -> Verdict {
    let (view, reservations) = (view(), Reservations::default());
    let text = pod.to_string();
    let raw: RawPod<'_> = serde_json::from_str(&text).unwrap();
    let key = FlockKey::parse("team-a", "db").unwrap();
    let policy = Policy {
        host_path_root: "/var/lib/flock".into(),
    };
    let context = Context {
        view: &view,
        flock: view.flock(&key),
        reservations: &reservations,
        policy: &policy,
        end: End::Low,
        now: Timestamp::UNIX_EPOCH,
    };
    decide("team-a", &raw, &context)
}

fn ops_of(pod: &Value) -> Vec<Op> {
    match decided(pod) {
        Verdict::Member { ops, .. } => ops,
        other => panic!("not a member: {other:?}\n{pod:#}"),
    }
}

fn applied(pod: &Value, ops: &[Op]) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(ops).unwrap()).unwrap();
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch).unwrap();
    patched
}

/// Any JSON, with the values that are easily lost: nulls, integers beyond a double's 53 bits, empty containers.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(9_007_199_254_740_993_u64)),
        "[a-z~/\"\\\\ä\u{1F427}\n]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key(), inner, 0..4)
                .prop_map(|map| Value::from(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Keys that a JSON pointer must escape.
fn key() -> impl Strategy<Value = String> {
    "[a-c]{0,2}[~/.]{0,2}[a-c01]{1,2}"
}

/// Fields that no version of Flock knows.
fn unknown() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("x[a-c~/]{0,3}", anything(), 0..3).prop_map(|map| map.into_iter().collect())
}

/// Absent, null, or there.
fn perhaps(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 3 => value.prop_map(Some)]
}

fn strings() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(key(), "[a-z~/\"]{0,4}", 0..3).prop_map(|map| json!(map))
}

fn variable() -> impl Strategy<Value = Value> {
    prop_oneof![
        ("[A-Z]{1,3}", "[$()A-Z_]{0,6}").prop_map(|(name, value)| json!({ "name": name, "value": value })),
        "[A-Z]{1,3}".prop_map(|name| json!({ "name": name, "valueFrom": { "fileKeyRef": { "key": "k" } } })),
        prop::sample::select(&VARIABLES[..]).prop_map(|name| json!({ "name": name, "value": "mine" })),
    ]
}

fn container() -> impl Strategy<Value = Value> {
    let env = perhaps(prop::collection::vec(variable(), 0..4).prop_map(Value::from));
    (unknown(), env).prop_map(|(mut fields, env)| {
        fields.insert("name".into(), json!("c"));
        fields.extend(env.map(|env| ("env".to_owned(), env)));
        Value::from(fields)
    })
}

fn volume() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({ "name": "tmp" })),
        Just(json!({ "name": "tmp", "emptyDir": { "mode": 488 } })),
        anything().prop_map(|source| json!({ "name": "new", "brandNewSource": source })),
    ]
}

/// A pod that may be a member, in any shape that the API server could send.
fn pod() -> impl Strategy<Value = Value> {
    let metadata = (unknown(), strings(), perhaps(strings()), any::<bool>());
    let lists = (
        perhaps(prop::collection::vec(container(), 0..3).prop_map(Value::from)),
        perhaps(prop::collection::vec(container(), 0..3).prop_map(Value::from)),
        perhaps(prop::collection::vec(volume(), 0..3).prop_map(Value::from)),
        perhaps(Just(json!([{ "name": "example.com/wait" }]))),
    );
    let spec = (unknown(), perhaps(strings()), lists);
    let durable = prop::option::of(prop_oneof![
        Just(json!({ "name": "data" })),
        Just(json!({ "name": "data", "emptyDir": {} })),
        Just(json!({ "name": "data", "emptyDir": { "sizeLimit": "1Gi" } })),
    ]);
    (metadata, unknown(), spec, durable, prop::bool::weighted(0.9)).prop_map(
        |(metadata, top, spec, durable, has_spec)| {
            let (mut meta, labels, annotations, named) = metadata;
            meta.insert("generateName".into(), json!("db-"));
            if named {
                meta.insert("name".into(), json!("db-4"));
            }
            meta.insert("labels".into(), labels);
            meta["labels"]["flock.dev/name"] = json!("db");
            meta.extend(annotations.map(|annotations| ("annotations".to_owned(), annotations)));
            let (mut fields, selector, (init, containers, volumes, gates)) = spec;
            let parts = [
                ("nodeSelector", selector),
                ("initContainers", init),
                ("containers", containers),
                ("volumes", volumes),
                ("schedulingGates", gates),
            ];
            fields.extend(
                parts
                    .into_iter()
                    .filter_map(|(name, part)| Some((name.to_owned(), part?))),
            );
            if let (Some(durable), true) = (durable, has_spec) {
                let volumes = fields.entry("volumes").or_insert(Value::Null);
                if volumes.is_null() {
                    *volumes = json!([]);
                }
                volumes.as_array_mut().unwrap().push(durable);
                let annotations = meta.entry("annotations").or_insert(Value::Null);
                if annotations.is_null() {
                    *annotations = json!({});
                }
                annotations["flock.dev/volumes"] = json!("data");
            }
            let mut pod = top;
            pod.insert("metadata".into(), Value::from(meta));
            pod.insert(
                "spec".into(),
                if has_spec {
                    Value::from(fields)
                } else {
                    Value::Null
                },
            );
            Value::from(pod)
        },
    )
}

/// Fails where something of `before` is missing in `after` or changed, or where something came that is not Flock's.
fn compare(path: &str, before: &Value, after: &Value) -> Result<(), TestCaseError> {
    let parts: Vec<_> = path.split('/').collect();
    let ours = match parts.as_slice() {
        ["", "metadata", "annotations"] | ["", "spec", "nodeSelector" | "schedulingGates"] => {
            before.is_null()
        }
        ["", "spec", "containers" | "initContainers", _, "env"] => before.is_null(),
        _ => false,
    };
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (key, value) in before {
                let there = after.get(key);
                prop_assert!(there.is_some(), "{path} lost {key}");
                let key = key.replace('~', "~0").replace('/', "~1");
                compare(&format!("{path}/{key}"), value, there.unwrap())?;
            }
            for key in after.keys().filter(|key| !before.contains_key(*key)) {
                let new = format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                prop_assert!(is_ours(&new), "{new} came");
            }
        }
        (Value::Array(before), Value::Array(after)) if parts.last() == Some(&"env") => {
            let added = after.len() - before.len();
            prop_assert_eq!(&after[added..], &before[..]);
            for variable in &after[..added] {
                prop_assert!(VARIABLES.contains(&variable["name"].as_str().unwrap()));
            }
        }
        (Value::Array(before), Value::Array(after)) if path == "/spec/schedulingGates" => {
            prop_assert_eq!(&after[..before.len()], &before[..]);
        }
        (Value::Array(before), Value::Array(after)) => {
            prop_assert_eq!(before.len(), after.len());
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                let durable = parts == ["", "spec", "volumes"] && before["name"] == "data";
                if !durable {
                    compare(&format!("{path}/{index}"), before, after)?;
                }
            }
        }
        _ if ours => {}
        _ => prop_assert_eq!(before, after, "{} changed", path),
    }
    Ok(())
}

fn is_ours(path: &str) -> bool {
    const PATHS: [&str; 9] = [
        "/metadata/name",
        "/metadata/labels/flock.dev~1ordinal",
        "/metadata/labels/apps.kubernetes.io~1pod-index",
        "/metadata/annotations",
        "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost",
        "/spec/hostname",
        "/spec/subdomain",
        "/spec/nodeSelector",
        "/spec/schedulingGates",
    ];
    let parts: Vec<_> = path.split('/').collect();
    PATHS.contains(&path)
        || path.starts_with("/spec/nodeSelector/db.team-a.flock.node-restriction.kubernetes.io~1")
        || matches!(
            parts.as_slice(),
            ["", "spec", "containers" | "initContainers", _, "env"]
        )
}

/// Where an operation may act.
fn is_allowed(op: &Value) -> bool {
    let path = op["path"].as_str().unwrap();
    let parts: Vec<_> = path.split('/').collect();
    match (op["op"].as_str().unwrap(), parts.as_slice()) {
        ("add", ["", "spec", "containers" | "initContainers", _, "env", position]) => {
            position.parse::<u8>().is_ok()
        }
        ("add", ["", "spec", "schedulingGates", "-"]) => true,
        ("add", _) => is_ours(path),
        ("replace", ["", "spec", "volumes", index]) => index.parse::<u8>().is_ok(),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn everything_that_was_there_is_still_there(pod in pod()) {
        let ops = ops_of(&pod);
        let after = applied(&pod, &ops);
        compare("", &pod, &after)?;
        for op in serde_json::to_value(&ops).unwrap().as_array().unwrap() {
            prop_assert!(is_allowed(op), "{op}");
        }
    }

    #[test]
    fn patching_twice_is_patching_once(pod in pod()) {
        let once = applied(&pod, &ops_of(&pod));
        prop_assert_eq!(ops_of(&once), []);
    }

    #[test]
    fn what_another_webhook_adds_in_between_gets_its_environment_and_nothing_is_doubled(
        pod in pod(),
        sidecar in container(),
    ) {
        prop_assume!(pod["spec"].is_object());
        let mut between = applied(&pod, &ops_of(&pod));
        let containers = &mut between["spec"]["containers"];
        if containers.is_null() {
            *containers = json!([]);
        }
        containers.as_array_mut().unwrap().insert(0, sidecar);
        let after = applied(&between, &ops_of(&between));
        compare("", &between, &after)?;
        prop_assert_eq!(ops_of(&after), []);
        for container in after["spec"]["containers"].as_array().unwrap() {
            for name in VARIABLES {
                let users = between["spec"]["containers"].as_array().unwrap().len();
                prop_assert!(users > 0);
                let count = container["env"].as_array().unwrap().iter().filter(|v| v["name"] == name).count();
                prop_assert!(count >= 1, "{name} in {container}");
            }
        }
    }
}

#[test]
fn a_bare_minimum_gets_all_parents_that_it_lacks() {
    let pod = json!({
        "metadata": { "generateName": "db-", "labels": { "flock.dev/name": "db" } },
        "spec": { "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i" }] },
    });
    let stored = applied(&pod, &ops_of(&pod));
    assert_eq!(stored["metadata"]["name"], "db-0");
    assert!(stored["metadata"]["annotations"].is_object() && stored["spec"]["nodeSelector"].is_object());
    assert_eq!(
        stored["spec"]["containers"][0]["env"].as_array().unwrap().len(),
        4
    );
}

#[test]
fn the_ordinal_of_the_first_pass_is_kept_whatever_a_fresh_choice_would_be() {
    let pod = json!({
        "metadata": { "generateName": "db-", "name": "db-4", "labels": { "flock.dev/name": "db" } },
        "spec": { "hostname": "db-4", "subdomain": "db", "containers": [{ "name": "c", "image": "i" }] },
    });
    let ops = ops_of(&pod);
    let stored = applied(&pod, &ops);
    assert_eq!(stored["metadata"]["name"], "db-4");
    assert_eq!(stored["metadata"]["labels"]["flock.dev/ordinal"], "4");
    assert!(
        ops.iter()
            .all(|op| !matches!(op.path(), "/metadata/name" | "/spec/hostname" | "/spec/subdomain"))
    );
}
