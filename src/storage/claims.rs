//! Claims and PersistentVolumes: as Flock makes them, and whether one that exists may be used.

use std::path::Path;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::identity::{DnsLabel, FlockKey, Ordinal, keys};

/// Whose a claim is, as its labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimUse {
    /// It was made for this volume of this member.
    Own,
    /// It has none of Flock's labels: a StatefulSet's, or made by hand. It is taken over as it is.
    TakenOver,
    /// It was made for another one; the text says for which.
    Foreign(String),
}

/// Compares the labels of a claim with a member's volume. The name alone does not tell: volume `a-b` of flock `c`
/// and volume `a` of flock `b-c` would share it.
pub fn claim_use<'a>(
    label: impl Fn(&str) -> Option<&'a str>,
    flock: &DnsLabel,
    ordinal: Ordinal,
    volume: &DnsLabel,
) -> ClaimUse {
    let labels = [label(keys::NAME), label(keys::ORDINAL), label(keys::VOLUME)];
    let number = ordinal.to_string();
    let wanted = [flock.as_str(), &number, volume.as_str()];
    if labels.iter().all(Option::is_none) {
        return ClaimUse::TakenOver;
    }
    if labels
        .iter()
        .zip(wanted)
        .all(|(label, wanted)| *label == Some(wanted))
    {
        return ClaimUse::Own;
    }
    let [flock, ordinal, volume] = labels.map(|label| label.unwrap_or("(none)"));
    ClaimUse::Foreign(format!("volume {volume} of member {ordinal} of flock {flock}"))
}

/// A claim to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSpec {
    /// Its name.
    pub name: String,
    /// The member.
    pub ordinal: Ordinal,
    /// The member's volume.
    pub volume: DnsLabel,
    /// Its StorageClass: `None` is the cluster's default, an empty one is none at all.
    pub class: Option<String>,
    /// The PersistentVolume that it is bound to beforehand.
    pub volume_name: Option<String>,
    /// Its size.
    pub size: String,
    /// `ReadWriteOnce` or `ReadWriteOncePod`.
    pub access_mode: String,
}

/// The claim of a member.
pub fn claim(key: &FlockKey, spec: &ClaimSpec) -> Result<PersistentVolumeClaim, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": { "name": spec.name, "labels": labels(key, spec.ordinal, &spec.volume) },
        "spec": {
            "accessModes": [spec.access_mode],
            "storageClassName": spec.class,
            "volumeName": spec.volume_name,
            "resources": { "requests": { "storage": spec.size } },
        },
    }))
}

/// A PersistentVolume of a directory on the member's node, to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its name.
    pub name: String,
    /// The member.
    pub ordinal: Ordinal,
    /// The member's volume.
    pub volume: DnsLabel,
    /// The claim that it is for.
    pub claim: String,
    /// The directory.
    pub path: String,
    /// The node that the directory was prepared on.
    pub node: String,
    /// Its size, which nothing enforces.
    pub size: String,
}

/// The PersistentVolume. It is wherever the member's node label is, so that it follows the member when an
/// administrator gives it another node; of the node's own labels none would.
pub fn local_volume(key: &FlockKey, spec: &VolumeSpec) -> Result<PersistentVolume, serde_json::Error> {
    let mut labels = labels(key, spec.ordinal, &spec.volume);
    labels[keys::NAMESPACE] = key.namespace.as_str().into();
    serde_json::from_value(json!({
        "metadata": {
            "name": spec.name,
            "labels": labels,
            "annotations": { keys::PREPARED_ON: spec.node },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": spec.size },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": key.namespace.as_str(), "name": spec.claim,
            },
            "local": { "path": Path::new(&spec.path) },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{
                "matchExpressions": [{ "key": key.node_label(spec.ordinal), "operator": "Exists" }],
            }] } },
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "volumeMode": "Filesystem",
        },
    }))
}

fn labels(key: &FlockKey, ordinal: Ordinal, volume: &DnsLabel) -> Value {
    json!({
        keys::NAME: key.flock.as_str(),
        keys::ORDINAL: ordinal.to_string(),
        keys::VOLUME: volume.as_str(),
        keys::MANAGED_BY: keys::MANAGER,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::own(&[(keys::NAME, "b-c"), (keys::ORDINAL, "0"), (keys::VOLUME, "a")], Some(ClaimUse::Own))]
    #[case::of_a_stateful_set(&[("app", "b-c")], Some(ClaimUse::TakenOver))]
    #[case::same_name_of_another(&[(keys::NAME, "c"), (keys::ORDINAL, "0"), (keys::VOLUME, "a-b")], None)]
    #[case::another_ordinal(&[(keys::NAME, "b-c"), (keys::ORDINAL, "1"), (keys::VOLUME, "a")], None)]
    #[case::half(&[(keys::NAME, "b-c")], None)]
    fn a_claim_is_used_if_its_labels_say_the_same_or_nothing(
        #[case] labels: &[(&str, &str)],
        #[case] expected: Option<ClaimUse>,
    ) {
        let (flock, volume) = (DnsLabel::parse("b-c").unwrap(), DnsLabel::parse("a").unwrap());
        let label = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        let found = claim_use(label, &flock, Ordinal::ZERO, &volume);
        match expected {
            Some(expected) => assert_eq!(found, expected),
            None => assert!(matches!(found, ClaimUse::Foreign(_)), "{found:?}"),
        }
    }

    #[test]
    fn volume_and_claim_name_each_other() {
        let key = FlockKey::parse("default", "db").unwrap();
        let (ordinal, volume) = (Ordinal::new(2).unwrap(), DnsLabel::parse("data").unwrap());
        let spec = VolumeSpec {
            name: "default.db.2.data".into(),
            ordinal,
            volume: volume.clone(),
            claim: "data-db-2".into(),
            path: "/var/lib/flock/default_u/db/2/data".into(),
            node: "node-1".into(),
            size: "1Gi".into(),
        };
        let made = local_volume(&key, &spec).unwrap().spec.unwrap();
        let bound = made.claim_ref.unwrap();
        assert_eq!(
            (bound.namespace.as_deref(), bound.name.as_deref()),
            (Some("default"), Some("data-db-2"))
        );
        assert_eq!(made.persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
        let claim_spec = ClaimSpec {
            name: spec.claim,
            ordinal,
            volume,
            class: Some(String::new()),
            volume_name: Some(spec.name),
            size: "1Gi".into(),
            access_mode: "ReadWriteOnce".into(),
        };
        let made = claim(&key, &claim_spec).unwrap().spec.unwrap();
        assert_eq!(made.volume_name.as_deref(), Some("default.db.2.data"));
        assert_eq!(made.storage_class_name.as_deref(), Some(""));
    }
}
