//! Every name that is derived from (namespace, flock, ordinal), in one place.
//!
//! Each is injective. Names joined by dots are, because a DNS label holds no dot; paths are, because a label
//! holds no slash; `<flock>-<ordinal>` is within its namespace, because an ordinal holds no dash and so the last
//! dash is the joint. The claim's name, which follows StatefulSet's, is *not* (volume `a-b` of flock `c`, volume
//! `a` of flock `b-c`): a claim is used only after its labels were compared.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::ordinal::Ordinal;
use super::quote::Quoted;

/// The end of the node labels' domain. NodeRestriction keeps kubelets from setting any label in
/// `*.node-restriction.kubernetes.io` (`k8s.io/kubernetes/plugin/pkg/admission/noderestriction`).
pub const NODE_LABEL_DOMAIN: &str = "flock.node-restriction.kubernetes.io";

/// Longest DNS label (RFC 1123), and so the longest hostname of a pod.
const LABEL_MAX: usize = 63;

/// Why a text is no DNS label.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0} is not a DNS label (at most 63 of a-z, 0-9 and -, neither first nor last a dash)")]
pub struct LabelError(pub Quoted);

/// A DNS label as of RFC 1123, which a pod's hostname and subdomain must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsLabel(String);

impl DnsLabel {
    /// Reads a label.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let good = (1..=LABEL_MAX).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if good {
            Ok(Self(text.into()))
        } else {
            Err(LabelError(Quoted::new(text)))
        }
    }

    /// Whether a Service may have this name: it must start with a letter (RFC 1035,
    /// `k8s.io/apimachinery/pkg/util/validation.IsDNS1035Label`).
    pub fn is_service_name(&self) -> bool {
        self.0.starts_with(|c: char| c.is_ascii_lowercase())
    }

    /// The label's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DnsLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether this may be the name of an object: a DNS subdomain, which is labels joined by dots, 253 characters at most
/// (`k8s.io/apimachinery/pkg/util/validation.IsDNS1123Subdomain`). Names of others go into paths of requests, so what
/// is none is not asked for.
pub fn is_object_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|label| DnsLabel::parse(label).is_ok())
}

/// One flock: a name in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlockKey {
    /// The namespace, always the request's or the object's own.
    pub namespace: DnsLabel,
    /// The value of the label `flock.dev/name`.
    pub flock: DnsLabel,
}

impl FlockKey {
    /// Reads both names.
    pub fn parse(namespace: &str, flock: &str) -> Result<Self, LabelError> {
        Ok(Self {
            namespace: DnsLabel::parse(namespace)?,
            flock: DnsLabel::parse(flock)?,
        })
    }

    /// The first that a namespace's flocks may have, in their order: no DNS label comes before `0`.
    pub(crate) fn first_of(namespace: &DnsLabel) -> Self {
        Self {
            namespace: namespace.clone(),
            flock: DnsLabel("0".into()),
        }
    }

    /// The member with this ordinal, unless its hostname would be too long.
    pub fn member(&self, ordinal: Ordinal) -> Option<Member<'_>> {
        let member = Member { key: self, ordinal };
        (member.pod_name().len() <= LABEL_MAX).then_some(member)
    }

    /// The ordinal in the name of a pod of this flock.
    pub fn ordinal_of(&self, pod_name: &str) -> Option<Ordinal> {
        pod_name
            .strip_prefix(self.flock.as_str())?
            .strip_prefix('-')?
            .parse()
            .ok()
    }

    /// The prefix of this flock's node labels, without the slash.
    pub fn node_label_prefix(&self) -> String {
        format!("{}.{}.{NODE_LABEL_DOMAIN}", self.flock, self.namespace)
    }

    /// The node label of an ordinal.
    pub fn node_label(&self, ordinal: Ordinal) -> String {
        format!("{}/{ordinal}", self.node_label_prefix())
    }
}

impl fmt::Display for FlockKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.flock)
    }
}

/// Reads a node label's key back; `None` for a label that is not Flock's, or whose ordinal is garbage.
pub fn parse_node_label(key: &str) -> Option<(FlockKey, Ordinal)> {
    let (prefix, ordinal) = key.split_once('/')?;
    let (flock, namespace) = prefix
        .strip_suffix(NODE_LABEL_DOMAIN)?
        .strip_suffix('.')?
        .split_once('.')?;
    Some((FlockKey::parse(namespace, flock).ok()?, ordinal.parse().ok()?))
}

/// One member of a flock, whose names all fit.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    key: &'a FlockKey,
    ordinal: Ordinal,
}

impl Member<'_> {
    /// The member's ordinal.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// The pod's name, which is its hostname too.
    pub fn pod_name(&self) -> String {
        format!("{}-{}", self.key.flock, self.ordinal)
    }

    /// The key of the label on the member's node.
    pub fn node_label(&self) -> String {
        self.key.node_label(self.ordinal)
    }

    /// The member's directory for one volume on its node. The namespace's uid keeps a namespace of the same
    /// name, made later, away from the old one's data.
    pub fn host_path(&self, root: &Path, namespace_uid: &str, volume: &DnsLabel) -> PathBuf {
        root.join(format!("{}_{namespace_uid}", self.key.namespace))
            .join(self.key.flock.as_str())
            .join(self.ordinal.to_string())
            .join(volume.as_str())
    }

    /// The claim's name, as a StatefulSet would name it. Not injective: compare its labels.
    pub fn claim_name(&self, volume: &DnsLabel) -> String {
        format!("{volume}-{}-{}", self.key.flock, self.ordinal)
    }

    /// The PersistentVolume's name.
    pub fn volume_name(&self, volume: &DnsLabel) -> String {
        format!(
            "{}.{}.{}.{volume}",
            self.key.namespace, self.key.flock, self.ordinal
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("etcd", true)]
    #[case("3scale", true)]
    #[case("a-b", true)]
    #[case("", false)]
    #[case("app-0.1.0", false)]
    #[case("My_DB", false)]
    #[case("db-", false)]
    #[case("-db", false)]
    #[case("..", false)]
    #[case("a/../b", false)]
    #[case("%2e", false)]
    #[case("a\0b", false)]
    #[case("ä", false)]
    fn only_dns_labels_are_names(#[case] text: &str, #[case] good: bool) {
        assert_eq!(DnsLabel::parse(text).is_ok(), good);
    }

    #[test]
    fn a_label_has_at_most_63_characters() {
        assert!(DnsLabel::parse(&"a".repeat(63)).is_ok());
        assert!(DnsLabel::parse(&"a".repeat(64)).is_err());
    }

    #[test]
    fn a_member_whose_hostname_would_be_too_long_does_not_exist() {
        let key = FlockKey::parse("default", &"a".repeat(61)).unwrap();
        assert!(key.member(Ordinal::new(9).unwrap()).is_some());
        assert!(key.member(Ordinal::new(10).unwrap()).is_none());
    }

    #[rstest]
    #[case("gluster.default.flock.node-restriction.kubernetes.io/0", true)]
    #[case("gluster.default.flock.node-restriction.kubernetes.io/00", false)]
    #[case("gluster.default.flock.node-restriction.kubernetes.io/x", false)]
    #[case("gluster.default.flock.node-restriction.kubernetes.io", false)]
    #[case("a.gluster.default.flock.node-restriction.kubernetes.io/0", false)]
    #[case("defaultflock.node-restriction.kubernetes.io/0", false)]
    #[case("kubernetes.io/hostname", false)]
    fn node_labels_of_members_are_recognised(#[case] key: &str, #[case] ours: bool) {
        assert_eq!(parse_node_label(key).is_some(), ours);
    }

    fn label() -> impl Strategy<Value = DnsLabel> {
        // Few letters and many dashes, so that ambiguous joints would be found.
        "[ab]([-ab]{0,4}[ab])?".prop_map(|text| DnsLabel::parse(&text).unwrap())
    }

    proptest! {
        #[test]
        fn derived_names_are_injective(
            n in (label(), label()), f in (label(), label()), o in (0u32..12, 0u32..12), v in (label(), label()),
        ) {
            let keys = [
                FlockKey { namespace: n.0.clone(), flock: f.0.clone() },
                FlockKey { namespace: n.1.clone(), flock: f.1.clone() },
            ];
            let a = keys[0].member(Ordinal::new(o.0).unwrap()).unwrap();
            let b = keys[1].member(Ordinal::new(o.1).unwrap()).unwrap();
            let same = keys[0] == keys[1] && o.0 == o.1;
            let root = Path::new("/var/lib/flock");
            // Two living namespaces of one name do not exist, so the uid is a function of the name here.
            let uid = |name: &DnsLabel| format!("uid-of-{name}");
            prop_assert_eq!(a.node_label() == b.node_label(), same);
            prop_assert_eq!((&n.0, a.pod_name()) == (&n.1, b.pod_name()), same);
            prop_assert_eq!(a.volume_name(&v.0) == b.volume_name(&v.1), same && v.0 == v.1);
            prop_assert_eq!(
                a.host_path(root, &uid(&n.0), &v.0) == b.host_path(root, &uid(&n.1), &v.1),
                same && v.0 == v.1
            );
        }

        #[test]
        fn names_are_read_back(n in label(), f in label(), o in 0u32..=Ordinal::MAX) {
            let key = FlockKey { namespace: n, flock: f };
            let ordinal = Ordinal::new(o).unwrap();
            prop_assert_eq!(parse_node_label(&key.node_label(ordinal)), Some((key.clone(), ordinal)));
            prop_assert_eq!(key.ordinal_of(&key.member(ordinal).unwrap().pod_name()), Some(ordinal));
        }

        #[test]
        fn a_host_path_stays_beneath_its_root(n in label(), f in label(), o in 0u32..99, v in label()) {
            let key = FlockKey { namespace: n, flock: f };
            let path = key.member(Ordinal::new(o).unwrap()).unwrap().host_path(Path::new("/r"), "u", &v);
            prop_assert_eq!(path.components().count(), 6);
            prop_assert!(path.starts_with("/r") && !path.components().any(|c| c.as_os_str() == ".."));
        }
    }
}
