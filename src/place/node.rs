//! What Flock needs to know of a Node, and nothing else: caches hold these, not whole Nodes with their images.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1;

use crate::identity::{FlockKey, NODE_LABEL_DOMAIN, Ordinal, parse_node_label};

/// A Node's name, cheap to clone.
pub type NodeName = Arc<str>;

/// The label of a node's zone (`k8s.io/api/core/v1/well_known_labels.go`).
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of a node's operating system, set by its kubelet.
pub const OS: &str = "kubernetes.io/os";

/// A taint; an absent value is an empty one, as in `k8s.io/api/core/v1.Taint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value, often empty.
    pub value: String,
    /// `NoSchedule`, `NoExecute` or `PreferNoSchedule`.
    pub effect: String,
}

/// The facts of one Node that decide about places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The Node's name, which need not be its `kubernetes.io/hostname`.
    pub name: NodeName,
    /// The Node object's uid: another one after it was deleted and registered again.
    pub uid: String,
    /// The version that these facts were read from: the precondition of a write.
    pub resource_version: String,
    /// The labels outside Flock's domain.
    pub labels: BTreeMap<String, String>,
    /// The ordinals that the node carries, of every flock.
    pub members: BTreeMap<FlockKey, BTreeSet<Ordinal>>,
    /// Labels in Flock's domain that are no member's, as `key=value`: they place nothing and are reported. A value
    /// makes a label garbage too, because a member's nodeSelector asks for an empty one.
    pub garbage_labels: Vec<String>,
    /// The taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Whether its condition `Ready` is `True`.
    pub ready: bool,
    /// The machine behind the name: `status.nodeInfo.machineID`, else `systemUUID`; `None` until a kubelet said so.
    pub machine_id: Option<Arc<str>>,
    /// Whether the Node object is being deleted.
    pub terminating: bool,
    /// `linux` or `windows`; `None` until known.
    pub os: Option<String>,
}

impl NodeFacts {
    /// The zone, if the node is in one.
    pub fn zone(&self) -> Option<&str> {
        self.labels.get(ZONE).map(String::as_str)
    }

    /// The value of a label, Flock's own labels included.
    pub fn label(&self, key: &str) -> Option<&str> {
        if let Some(value) = self.labels.get(key) {
            return Some(value);
        }
        let (flock, ordinal) = parse_node_label(key)?;
        self.carries(&flock).contains(&ordinal).then_some("")
    }

    /// The ordinals of one flock that the node carries.
    pub fn carries(&self, key: &FlockKey) -> &BTreeSet<Ordinal> {
        static NONE: BTreeSet<Ordinal> = BTreeSet::new();
        self.members.get(key).unwrap_or(&NONE)
    }

    /// How many members of all flocks the node carries.
    pub fn member_count(&self) -> usize {
        self.members.values().map(BTreeSet::len).sum()
    }

    /// Whether the node is known to be the machine `id`. A node that does not tell is nobody.
    pub fn is_machine(&self, id: Option<&str>) -> bool {
        id.is_some() && self.machine_id.as_deref() == id
    }

    fn take_label(&mut self, key: &str, value: &str) {
        if !in_domain(key) {
            self.labels.insert(key.into(), value.into());
            return;
        }
        match parse_node_label(key) {
            Some((flock, ordinal)) if value.is_empty() => {
                self.members.entry(flock).or_default().insert(ordinal);
            }
            _ => self.garbage_labels.push(format!("{key}={value}")),
        }
    }
}

impl From<&v1::Node> for NodeFacts {
    fn from(node: &v1::Node) -> Self {
        let meta = &node.metadata;
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let info = status.and_then(|status| status.node_info.as_ref());
        let mut facts = Self {
            name: meta.name.as_deref().unwrap_or_default().into(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: BTreeMap::new(),
            members: BTreeMap::new(),
            garbage_labels: Vec::new(),
            taints: spec
                .and_then(|spec| spec.taints.as_ref())
                .map(|taints| taints.iter().map(Taint::from).collect())
                .unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or_default(),
            ready: status
                .and_then(|status| status.conditions.as_ref())
                .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True")),
            machine_id: info
                .map(|info| [&info.machine_id, &info.system_uuid])
                .and_then(|ids| ids.into_iter().find(|id| !id.is_empty()))
                .map(|id| id.as_str().into()),
            terminating: meta.deletion_timestamp.is_some(),
            os: info
                .map(|info| info.operating_system.clone())
                .filter(|os| !os.is_empty()),
        };
        for (key, value) in meta.labels.iter().flatten() {
            facts.take_label(key, value);
        }
        if facts.os.is_none() {
            facts.os = facts.labels.get(OS).cloned();
        }
        facts
    }
}

impl From<&v1::Taint> for Taint {
    fn from(taint: &v1::Taint) -> Self {
        Self {
            key: taint.key.clone(),
            value: taint.value.clone().unwrap_or_default(),
            effect: taint.effect.clone(),
        }
    }
}

/// Whether a label's key is in the domain that Flock's node labels are in.
pub(super) fn in_domain(key: &str) -> bool {
    let prefix = key.split_once('/').map_or(key, |(prefix, _)| prefix);
    prefix
        .strip_suffix(NODE_LABEL_DOMAIN)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::place::fixtures::{key, ordinal};

    fn read(node: serde_json::Value) -> NodeFacts {
        NodeFacts::from(&serde_json::from_value::<v1::Node>(node).unwrap())
    }

    fn labelled(label: &str, value: &str) -> NodeFacts {
        read(json!({"metadata": {"name": "n1", "labels": {label: value}}}))
    }

    #[test]
    fn the_facts_of_a_node_are_read() {
        let node = read(json!({
            "metadata": {
                "name": "n1", "uid": "u", "resourceVersion": "7",
                "labels": {
                    "topology.kubernetes.io/zone": "a",
                    "db.default.flock.node-restriction.kubernetes.io/0": "",
                    "db.default.flock.node-restriction.kubernetes.io/12": "",
                    "web.shop.flock.node-restriction.kubernetes.io/3": "",
                },
            },
            "spec": {"unschedulable": true, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            "status": {
                "conditions": [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
                "nodeInfo": {
                    "machineID": "m1", "systemUUID": "s1", "operatingSystem": "linux", "architecture": "",
                    "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
                    "kubeletVersion": "", "osImage": "",
                },
            },
        }));
        assert_eq!(
            (&*node.name, &*node.uid, &*node.resource_version),
            ("n1", "u", "7")
        );
        assert_eq!(node.zone(), Some("a"));
        assert_eq!(node.labels.len(), 1);
        assert_eq!(*node.carries(&key("db")), [ordinal(0), ordinal(12)].into());
        assert_eq!(node.member_count(), 3);
        assert!(node.carries(&key("web")).is_empty(), "another namespace's flock");
        assert!(node.ready && node.unschedulable && !node.terminating && node.garbage_labels.is_empty());
        assert_eq!(node.taints[0].value, "v");
        assert_eq!(
            (node.machine_id.as_deref(), node.os.as_deref()),
            (Some("m1"), Some("linux"))
        );
    }

    #[test]
    fn a_node_that_only_just_registered_is_read() {
        let node = read(json!({"metadata": {"name": "n1", "labels": {"kubernetes.io/os": "windows"}}}));
        assert!(!node.ready && node.machine_id.is_none() && node.taints.is_empty());
        assert_eq!(node.os.as_deref(), Some("windows"));
    }

    #[rstest]
    #[case::machine_id("m", "s", Some("m"))]
    #[case::system_uuid("", "s", Some("s"))]
    #[case::unknown("", "", None)]
    fn the_machine_is_told_by_its_id(#[case] machine: &str, #[case] system: &str, #[case] id: Option<&str>) {
        let node = read(json!({"metadata": {}, "status": {"nodeInfo": {
            "machineID": machine, "systemUUID": system, "operatingSystem": "", "architecture": "", "bootID": "",
            "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "",
            "osImage": "",
        }}}));
        assert_eq!(node.machine_id.as_deref(), id);
        assert_eq!(node.is_machine(id), id.is_some(), "no id is no proof");
        assert!(!node.is_machine(Some("other")));
    }

    #[rstest]
    #[case("db.default.flock.node-restriction.kubernetes.io/01", "")]
    #[case("db.default.flock.node-restriction.kubernetes.io/x", "")]
    #[case("db.default.flock.node-restriction.kubernetes.io", "")]
    #[case("a.db.default.flock.node-restriction.kubernetes.io/0", "")]
    #[case("flock.node-restriction.kubernetes.io/0", "")]
    #[case("db.default.flock.node-restriction.kubernetes.io/0", "yes")]
    fn garbage_labels_in_flocks_domain_place_nothing_and_are_reported(
        #[case] label: &str,
        #[case] value: &str,
    ) {
        let node = labelled(label, value);
        assert_eq!(node.garbage_labels, [format!("{label}={value}")]);
        assert!(node.members.is_empty() && node.labels.is_empty());
    }

    #[rstest]
    #[case("defaultflock.node-restriction.kubernetes.io/0")]
    #[case("other.node-restriction.kubernetes.io/0")]
    #[case("kubernetes.io/flock.node-restriction.kubernetes.io")]
    fn labels_of_other_domains_are_ordinary(#[case] label: &str) {
        let node = labelled(label, "");
        assert_eq!(node.label(label), Some(""));
        assert!(node.garbage_labels.is_empty() && node.labels.len() == 1);
    }

    #[test]
    fn a_members_label_can_be_looked_up_as_any_other() {
        let node = labelled("db.default.flock.node-restriction.kubernetes.io/0", "");
        assert_eq!(
            node.label("db.default.flock.node-restriction.kubernetes.io/0"),
            Some("")
        );
        assert_eq!(
            node.label("db.default.flock.node-restriction.kubernetes.io/1"),
            None
        );
    }
}
