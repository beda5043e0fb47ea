//! Every reason to refuse a pod, with the sentence that its user reads: what is wrong, who holds what, what to do.

use crate::identity::{DnsLabel, FlockKey, Ordinal, OrdinalSet, Quoted, SettingsError, keys};
use crate::view::{Phase, PodFacts};

use thiserror::Error;

/// A refusal.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The label's value or the namespace is no DNS label.
    #[error(
        "label {} has the value {value}, which cannot be a host's name; use at most 63 of a-z, 0-9 and -, \
         neither first nor last a dash",
        keys::NAME
    )]
    BadName {
        /// The value.
        value: Quoted,
    },
    /// An annotation cannot be read.
    #[error(transparent)]
    BadSetting(#[from] SettingsError),
    /// The flock's name can't be a Service's.
    #[error(
        "flock {0} has no governing Service: a Service's name must start with a letter; name one by the \
         annotation {annotation}", annotation = keys::SERVICE
    )]
    NoServiceName(DnsLabel),
    /// `<flock>-<ordinal>` is longer than a hostname may be.
    #[error(
        "the name {0}-{1} has more than 63 characters, so it cannot be a hostname; shorten the flock's name"
    )]
    NameTooLong(DnsLabel, Ordinal),
    /// A controller that can't have members.
    #[error(
        "pods of a {kind} cannot be members of flock {flock}: {why}; take the label {} off its template",
        keys::NAME
    )]
    WrongKind {
        /// The owner's kind.
        kind: String,
        /// The flock.
        flock: DnsLabel,
        /// Why not.
        why: &'static str,
    },
    /// A StatefulSet with another name.
    #[error(
        "pods of StatefulSet {set} are named after it, so they cannot be members of flock {flock}; set the label \
         {} of its template to {set}",
        keys::NAME
    )]
    OtherStatefulSet {
        /// The set's name.
        set: String,
        /// The flock.
        flock: DnsLabel,
    },
    /// A named pod whose name is no member's.
    #[error(
        "pod {name} cannot be a member of flock {flock}: members are named {flock}-<ordinal>, such as {flock}-0; \
         rename it, give it a generateName, or take the label {} off",
        keys::NAME
    )]
    OtherName {
        /// The pod's name.
        name: String,
        /// The flock.
        flock: DnsLabel,
    },
    /// A named pod whose ordinal its own annotation excludes.
    #[error(
        "pod {name} has ordinal {ordinal}, which its annotation {} ({set}) excludes",
        keys::ORDINALS
    )]
    OutsideItsSet {
        /// The pod's name.
        name: String,
        /// Its ordinal.
        ordinal: Ordinal,
        /// What the annotation allows.
        set: OrdinalSet,
    },
    /// A label that Flock writes was set otherwise.
    #[error("label {key} is {value}, but the member's ordinal is {ordinal}; leave it to Flock")]
    ForeignLabel {
        /// The label.
        key: &'static str,
        /// Its value.
        value: Quoted,
        /// The ordinal.
        ordinal: Ordinal,
    },
    /// `spec.nodeName` is set.
    #[error(
        "spec.nodeName is set to {0}, which goes past the scheduler and the member's own node; remove it, or give \
         the node of each ordinal by the annotation {annotation}", annotation = keys::NODES
    )]
    NodeName(String),
    /// `spec.hostNetwork` is set.
    #[error(
        "spec.hostNetwork is true: the member's hostname would be the node's, and its ports everybody's; remove it"
    )]
    HostNetwork,
    /// `hostname`, `subdomain` or `hostnameOverride` is set.
    #[error("spec.{field} is set to {value}, but a member's is {wanted}; remove it from the template")]
    Host {
        /// The field.
        field: &'static str,
        /// Its value.
        value: Quoted,
        /// The member's.
        wanted: String,
    },
    /// A volume that `flock.dev/volumes` names does not exist.
    #[error(
        "annotation {annotation} names the volume {0}, which the pod does not have; add it as an emptyDir",
        annotation = keys::VOLUMES
    )]
    NoVolume(DnsLabel),
    /// A volume that `flock.dev/volumes` names is not an emptyDir.
    #[error(
        "annotation {} names the volume {volume}, which is {is}; only an emptyDir on disk can become a member's \
         storage",
        keys::VOLUMES
    )]
    OtherVolume {
        /// The volume.
        volume: DnsLabel,
        /// What it is.
        is: String,
    },
    /// A Windows pod with directories of a Linux host.
    #[error(
        "a Windows pod cannot have directories beneath {0}; set {annotation}: claim",
        annotation = keys::STORAGE
    )]
    Windows(String),
    /// An older revision while the newest waits.
    #[error(
        "flock {flock}: {newest} is the newer revision and waits for an ordinal; the free ones are kept for it"
    )]
    OldRevision {
        /// The flock.
        flock: DnsLabel,
        /// The newest ReplicaSet.
        newest: String,
    },
    /// More replicas than the set has ordinals.
    #[error(
        "flock {flock}: {replicas} replicas are wanted, but {} ({set}) has {} ordinals and all are held; widen it \
         or scale down", keys::ORDINALS, set.len()
    )]
    TooManyReplicas {
        /// The flock.
        flock: DnsLabel,
        /// How many are wanted.
        replicas: u32,
        /// The set.
        set: OrdinalSet,
    },
    /// Every ordinal that it may hold is held.
    #[error("flock {flock}: every ordinal of {set} is held: {holders}; {way_out}")]
    AllHeld {
        /// The flock.
        flock: DnsLabel,
        /// What it may hold.
        set: OrdinalSet,
        /// By whom.
        holders: String,
        /// What to do, or what happens by itself.
        way_out: &'static str,
    },
    /// No replicas are wanted.
    #[error("flock {flock}: {workload} wants no replicas, so its pods have no ordinal")]
    NoReplicas {
        /// The flock.
        flock: DnsLabel,
        /// The workload.
        workload: String,
    },
    /// The owner does not exist (any more).
    #[error(
        "{kind} {name} with uid {uid} does not exist in namespace {namespace}, so its pod has no ordinal"
    )]
    NoOwner {
        /// The owner's kind.
        kind: String,
        /// The owner's name.
        name: String,
        /// The owner's uid.
        uid: String,
        /// The namespace.
        namespace: DnsLabel,
    },
}

impl Refusal {
    /// The HTTP status code and the status reason that the client of the API server sees. Never 504: some
    /// controllers took that for a success under way and did not try again (kubernetes#67662).
    pub fn status(&self) -> (u16, &'static str) {
        match self {
            Self::OldRevision { .. }
            | Self::TooManyReplicas { .. }
            | Self::AllHeld { .. }
            | Self::NoReplicas { .. }
            | Self::NoOwner { .. } => (409, "Conflict"),
            Self::WrongKind { .. }
            | Self::OtherStatefulSet { .. }
            | Self::HostNetwork
            | Self::NodeName(_) => (403, "Forbidden"),
            _ => (422, "Invalid"),
        }
    }

    /// Whether it rests on the watch caches, so that a live look must confirm it.
    pub fn rests_on_caches(&self) -> bool {
        self.status().0 == 409
    }

    /// A short, closed word for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadName { .. } | Self::NoServiceName(_) | Self::NameTooLong(..) => "name",
            Self::BadSetting(_) => "annotation",
            Self::WrongKind { .. } | Self::OtherStatefulSet { .. } => "owner",
            Self::OtherName { .. } | Self::OutsideItsSet { .. } | Self::ForeignLabel { .. } => "identity",
            Self::NodeName(_) | Self::HostNetwork | Self::Host { .. } => "spec",
            Self::NoVolume(_) | Self::OtherVolume { .. } | Self::Windows(_) => "volume",
            Self::OldRevision { .. } => "revision",
            Self::TooManyReplicas { .. } => "replicas",
            Self::AllHeld { .. } => "held",
            Self::NoReplicas { .. } | Self::NoOwner { .. } => "gone",
        }
    }
}

/// Who holds the ordinals of `set`, the first few by name: for [`Refusal::AllHeld`].
pub(super) fn held(
    key: &FlockKey,
    set: &OrdinalSet,
    describe: impl Fn(Ordinal) -> Option<Holder>,
) -> Refusal {
    const SHOWN: usize = 4;
    let holders: Vec<_> = set
        .iter()
        .take(1000)
        .filter_map(|o| describe(o).map(|holder| (o, holder)))
        .collect();
    let mut text: Vec<_> = holders
        .iter()
        .take(SHOWN)
        .map(|(ordinal, holder)| format!("{}-{ordinal} ({})", key.flock, holder.state))
        .collect();
    if holders.len() > SHOWN {
        text.push(format!("and {} more", holders.len() - SHOWN));
    }
    let way_out = if holders.iter().any(|(_, holder)| holder.needs_user) {
        "delete the pods that are not wanted, or rename what holds their names"
    } else {
        "it is tried again as soon as one of them is gone"
    };
    Refusal::AllHeld {
        flock: key.flock.clone(),
        set: set.clone(),
        holders: text.join(", "),
        way_out,
    }
}

/// A holder in words.
pub(super) struct Holder {
    state: String,
    needs_user: bool,
}

impl Holder {
    /// A pod that has the flock's label.
    pub(super) fn pod(pod: &PodFacts) -> Self {
        let owner = pod
            .owner
            .as_ref()
            .map_or_else(|| "a bare pod".into(), |o| format!("of {} {}", o.kind, o.name));
        let over = pod.phase == Phase::Over;
        let state = match (pod.terminating, over, pod.ready_since.is_some()) {
            (true, _, _) => "terminating",
            (_, true, _) => "over",
            (_, _, true) => "ready",
            _ => "not ready",
        };
        Self {
            state: format!("{state}, {owner}"),
            needs_user: over && pod.owner.is_none(),
        }
    }

    /// A pod without it.
    pub(super) fn stranger() -> Self {
        Self {
            state: "a pod that is no member".into(),
            needs_user: true,
        }
    }

    /// One that is being created.
    pub(super) fn reserved() -> Self {
        Self {
            state: "being created".into(),
            needs_user: false,
        }
    }
}
