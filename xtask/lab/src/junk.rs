//! Admission reviews that are made to cost memory: each fills the largest body that the webhook takes.

/// The largest body that the webhook takes.
pub const LARGEST: usize = 7 * 1024 * 1024;
/// What a review has around its payload, at most.
const FRAME: usize = 2048;

/// The reviews, and what each has too much of.
pub fn reviews() -> Vec<(&'static str, Vec<u8>)> {
    let objects = [",", &repeat(|_| "{}".into())].concat();
    let names = |list: &str| format!(r#","{list}":[{}]"#, repeat(|_| r#"{"name":"FLOCK_"}"#.into()));
    let depth = (LARGEST - FRAME) / 6;
    let nested = ["{\"a\":".repeat(depth), "0".into(), "}".repeat(depth)].concat();
    let map = repeat(|number| format!(r#""{number}":"""#));
    let containers = repeat(|_| r#"{"env":[{},{},{},{},{},{},{},{}]}"#.into());
    vec![
        ("arguments", review("", &argument(&repeat(|_| "0".into())))),
        ("depth", review("", &argument(&nested))),
        (
            "labels",
            review(&format!(r#","labels":{{"flock.dev/name":"junk",{map}}}"#), ""),
        ),
        ("annotations", review(&format!(r#","annotations":{{{map}}}"#), "")),
        (
            "owners",
            review(&format!(r#","ownerReferences":[{}]"#, &objects[1..]), ""),
        ),
        (
            "node selectors",
            review("", &format!(r#","nodeSelector":{{{map}}}"#)),
        ),
        (
            "containers",
            review("", &format!(r#","containers":[{}]"#, &objects[1..])),
        ),
        (
            "variables",
            review("", &format!(r#","containers":[{{"name":"c"{}}}]"#, names("env"))),
        ),
        (
            "variables of containers",
            review("", &format!(r#","containers":[{containers}]"#)),
        ),
        (
            "volumes",
            review("", &format!(r#","volumes":[{}]"#, &objects[1..])),
        ),
        (
            "fields of a volume",
            review("", &format!(r#","volumes":[{{{map}}}]"#)),
        ),
        ("gates", review("", &names("schedulingGates"))),
    ]
    .into_iter()
    .chain(long_values())
    .collect()
}

/// One value is as long as the body allows. An error that quotes it with escapes is six times as long.
fn long_values() -> Vec<(&'static str, Vec<u8>)> {
    let long = "\u{7f}".repeat(LARGEST - FRAME);
    let annotation = |key: &str, value: &str| {
        let annotations = format!(r#","annotations":{{"flock.dev/{key}":"{value}"}}"#);
        review(&annotations, r#","containers":[{"name":"c"}]"#)
    };
    let owner = format!(
        r#","ownerReferences":[{{"kind":"ReplicaSet","name":"{long}","uid":"u","controller":true}}]"#
    );
    vec![
        (
            "value of the label",
            review(&format!(r#","labels":{{"flock.dev/name":"{long}"}}"#), ""),
        ),
        ("value of an annotation", annotation("storage", &long)),
        ("commas in nodes", annotation("nodes", &",".repeat(long.len()))),
        (
            "ordinals",
            annotation("ordinals", &repeat(|number| number.to_string())),
        ),
        (
            "durable volumes",
            annotation("volumes", &repeat(|number| format!("v{number}"))),
        ),
        ("hostname", review("", &format!(r#","hostname":"{long}""#))),
        ("node name", review("", &format!(r#","nodeName":"{long}""#))),
        ("owner's name", review(&owner, "")),
        (
            "text for a boolean",
            review(
                "",
                &format!(r#","hostPID":false,"shareProcessNamespace":"{long}""#),
            ),
        ),
        (
            "text for an object",
            review("", &format!(r#","securityContext":"{long}""#)),
        ),
        (
            "kind of review",
            format!(r#"{{"apiVersion":"v1","kind":"{long}"}}"#).into_bytes(),
        ),
    ]
}

fn argument(arguments: &str) -> String {
    format!(r#","containers":[{{"name":"c","args":[{arguments}]}}]"#)
}

/// A review of a member with these further fields of its metadata and spec.
fn review(metadata: &str, spec: &str) -> Vec<u8> {
    let label = r#","labels":{"flock.dev/name":"junk"}"#;
    let label = if metadata.contains(r#""labels""#) {
        ""
    } else {
        label
    };
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"junk","namespace":"default",
        "operation":"CREATE","kind":{{"version":"v1","kind":"Pod"}},"resource":{{"version":"v1","resource":"pods"}},
        "object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"generateName":"junk-"{label}{metadata}}},"spec":{{"hostNetwork":false{spec}}}}}}}}}"#
    )
    .into_bytes()
}

/// As many of these, with commas between them, as nearly fill the largest body.
fn repeat(value: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(LARGEST);
    for number in 0.. {
        let value = value(number);
        if text.len() + value.len() + FRAME > LARGEST {
            break;
        }
        if number > 0 {
            text.push(',');
        }
        text.push_str(&value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_json_that_fills_the_largest_body() {
        for (what, body) in reviews() {
            assert!(
                body.len() <= LARGEST && body.len() > LARGEST - 2 * FRAME,
                "{what}: {}",
                body.len()
            );
            // Its own way through the deepest: the reader has a limit of 128.
            if what != "depth" {
                let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let is_review = read["request"]["object"]["kind"] == "Pod";
                assert!(is_review || what == "kind of review", "{what}");
            }
        }
    }
}
