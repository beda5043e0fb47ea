//! One test for each sentence that a user may read when applying a workload.

use serde_json::{Value, json};

use crate::view::fixtures::view;

use super::*;

mod faults;
mod hints;

fn workload(kind: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": { "name": "db", "labels": { "flock.dev/name": "db" } },
        "spec": {
            "replicas": 3,
            "template": {
                "metadata": { "labels": { "flock.dev/name": "db" }, "annotations": {} },
                "spec": { "containers": [{ "name": "c", "image": "i" }], "volumes": [] },
            },
        },
    })
}

fn durable(kind: &str, volume: &Value, annotations: &[(&str, &str)]) -> Value {
    let mut object = workload(kind);
    object["spec"]["template"]["spec"]["volumes"] = json!([volume]);
    object["spec"]["template"]["metadata"]["annotations"]["flock.dev/volumes"] = json!("data");
    for (name, value) in annotations {
        object["spec"]["template"]["metadata"]["annotations"][name] = json!(value);
    }
    object
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[last.replace("~1", "/")] = value;
    object
}

fn judged_in(view: &View, new: &Value, old: Option<&Value>) -> Option<Judgement> {
    let (new, old) = (new.to_string(), old.map(Value::to_string));
    let policy = Policy {
        host_path_root: "/var/lib/flock".into(),
    };
    let workload: RawWorkload<'_> = serde_json::from_str(&new).unwrap();
    let old: Option<RawWorkload<'_>> = old.as_deref().map(|text| serde_json::from_str(text).unwrap());
    let subject = Subject {
        kind: &workload.kind,
        namespace: "default",
        workload: &workload,
    };
    judge(
        subject,
        old.as_ref(),
        Known {
            view,
            policy: &policy,
        },
    )
}

fn judged(new: &Value) -> Judgement {
    judged_in(&view(vec![], vec![]), new, None).expect("it is Flock's business")
}

fn denied(new: &Value) -> String {
    let denials = judged(new).denials;
    assert!(!denials.is_empty(), "not denied: {new}");
    denials
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn warned(view: &View, new: &Value) -> String {
    let judgement = judged_in(view, new, None).unwrap();
    assert_eq!(judgement.denials, []);
    assert!(
        judgement
            .warnings
            .iter()
            .all(|warning| warning.chars().count() <= 256),
        "{:?}",
        judgement.warnings
    );
    judgement.warnings.join("\n")
}
