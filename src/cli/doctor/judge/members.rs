//! Pods with the label: that each has an identity, and none another's. Flock and its policies see to that, where they are
//! there.

use std::collections::BTreeMap;

use kube::api::ObjectMeta;

use super::super::finding::Finding;
use super::super::seen::Seen;
use crate::identity::{FlockKey, keys};

const CHECK: &str = "members";

/// Judges the metadata of all pods that have the label.
pub fn judge(seen: &Seen<Vec<ObjectMeta>>) -> Vec<Finding> {
    let none = || Finding::ok(CHECK, "there is no member");
    let pods = match seen.or_finding(CHECK, "the pods with the label flock.dev/name", none) {
        Ok(pods) => pods,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    let mut claims = BTreeMap::<(FlockKey, &str), Vec<&str>>::new();
    for pod in pods
        .iter()
        .filter(|pod| !is_mirror(pod) && pod.deletion_timestamp.is_none())
    {
        let label = |key| pod.labels.as_ref()?.get(key).map(String::as_str);
        let (Some(namespace), Some(name), Some(flock)) = (&pod.namespace, &pod.name, label(keys::NAME))
        else {
            continue;
        };
        let key = FlockKey::parse(namespace, flock).ok();
        let named = key.as_ref().and_then(|key| key.ordinal_of(name));
        let ordinal = label(keys::ORDINAL);
        if named.is_none_or(|named| ordinal != Some(&*named.to_string())) {
            let message = format!(
                "pod {name} in namespace {namespace} has the label flock.dev/name={flock} and is no member: it was created \
                 past Flock, with data of its own; save that, delete the pod, and its owner makes a member"
            );
            findings.push(Finding::warning(CHECK, message));
        }
        if let (Some(key), Some(ordinal)) = (key, ordinal) {
            claims.entry((key, ordinal)).or_default().push(name);
        }
    }
    let twice = claims.into_iter().filter(|(_, pods)| pods.len() > 1);
    findings.extend(twice.map(|((key, ordinal), pods)| {
        let message = format!(
            "ordinal {ordinal} of flock {} in namespace {} is claimed by {}: delete those that are not named {}-{ordinal}",
            key.flock,
            key.namespace,
            pods.join(" and "),
            key.flock
        );
        Finding::broken(CHECK, message)
    }));
    if pods.is_empty() {
        findings.push(none());
    } else if findings.is_empty() {
        let message = format!(
            "each of {} pods with the label has an identity of its own",
            pods.len()
        );
        findings.push(Finding::ok(CHECK, message));
    }
    findings
}

/// The picture of a static pod, whose name is a kubelet's business.
fn is_mirror(pod: &ObjectMeta) -> bool {
    let annotations = pod.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(keys::MIRROR))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn pod(name: &str, ordinal: Option<&str>) -> ObjectMeta {
        let mut pod = json!({ "namespace": "default", "name": name, "labels": { "flock.dev/name": "db" } });
        if let Some(ordinal) = ordinal {
            pod["labels"]["flock.dev/ordinal"] = ordinal.into();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn judged(pods: Vec<ObjectMeta>) -> Vec<Finding> {
        judge(&Seen::Found(pods))
    }

    #[test]
    fn members_have_one_ordinal_each() {
        let findings = judged(vec![pod("db-0", Some("0")), pod("db-1", Some("1"))]);
        assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::Ok));
    }

    #[test]
    fn a_pod_without_identity_and_an_ordinal_held_twice_are_told() {
        let findings = judged(vec![
            pod("db-0", Some("0")),
            pod("db-x7k2p", None),
            pod("copy", Some("0")),
        ]);
        let broken: Vec<_> = findings
            .iter()
            .map(|finding| finding.message.split(['(', ':']).next().unwrap())
            .collect();
        assert_eq!(findings.len(), 3, "{broken:?}");
        assert!(broken[2].contains("ordinal 0 of flock db in namespace default is claimed by db-0 and copy"));
        let verdicts: Vec<_> = findings.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Warning, Verdict::Warning, Verdict::Broken]);
    }

    #[test]
    fn the_picture_of_a_static_pod_is_no_member() {
        let mut mirror = pod("db-node-1", None);
        mirror.annotations = Some([(keys::MIRROR.to_owned(), "x".to_owned())].into());
        assert_eq!(judged(vec![mirror])[0].verdict, Verdict::Ok);
    }
}
