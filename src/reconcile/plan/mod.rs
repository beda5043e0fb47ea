//! What is to be done about one flock: a pure function from what is observed to a list of actions (DESIGN 5).
//!
//! A consistent flock yields no action. Actions are in the order in which they must be carried out; an action
//! that fails ends the list, and the flock is looked at again.

mod bury;
mod gates;
mod places;
mod rollout;
mod service;
mod strangers;
#[cfg(test)]
mod tests;
mod volumes;
mod wake;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::identity::{FlockKey, Ordinal};
use crate::place::{NodeName, Record};
use crate::storage::HelperConfig;
use crate::view::{Flock, PodFacts, PortFacts, View, WorkloadFacts, WorkloadKind};

pub use volumes::StorageAction;

/// What an administrator configured for the reconciler.
#[derive(Clone, Debug)]
pub struct PlanConfig {
    /// How long a node must be proven gone before `Reassign` acts.
    pub node_loss_grace: SignedDuration,
    /// The helper pods that prepare directories.
    pub helper: HelperConfig,
}

impl Default for PlanConfig {
    /// A grace of five minutes: as long as Kubernetes tolerates an unreachable node by default
    /// (DefaultTolerationSeconds).
    fn default() -> Self {
        let helper = HelperConfig {
            namespace: "flock-system".into(),
            image: "flock:dev".into(),
            pull_secrets: Vec::new(),
            root: "/var/lib/flock".into(),
        };
        Self {
            node_loss_grace: SignedDuration::from_mins(5),
            helper,
        }
    }
}

/// What is observed of a flock.
pub struct Observed<'a> {
    /// Which flock.
    pub key: &'a FlockKey,
    /// The cluster.
    pub view: &'a View,
    /// `maxUnavailable` in pods of each Deployment, by uid, as far as it was looked up.
    pub budgets: &'a HashMap<String, u32>,
    /// What the reconciler remembers of this flock.
    pub memory: &'a Memory,
    /// The configuration.
    pub config: &'a PlanConfig,
    /// The time.
    pub now: Timestamp,
}

impl<'a> Observed<'a> {
    /// The flock's pods and workloads.
    pub fn flock(&self) -> &'a Flock {
        self.view.flock(self.key)
    }

    /// Whether nothing is left of the flock.
    fn is_over(&self) -> bool {
        let traces =
            self.view.places(self.key).is_empty() && self.view.services_of(self.key).next().is_none();
        traces && self.flock().is_empty()
    }

    /// The workload that owns a pod.
    fn owner(&self, pod: &PodFacts) -> Option<&'a WorkloadFacts> {
        self.flock().workloads().get(&pod.owner.as_ref()?.uid)
    }

    /// Whether the pod's workload has been replaced by a newer revision.
    fn is_old(&self, pod: &PodFacts) -> bool {
        self.owner(pod)
            .is_some_and(|owner| self.flock().newest(owner).uid != owner.uid)
    }

    fn is_available(&self, pod: &PodFacts) -> bool {
        pod.is_available(
            self.owner(pod).map_or(0, |owner| owner.min_ready_seconds),
            self.now,
        )
    }
}

/// What the leader remembers of a flock between two looks. Losing it costs a repeated wait, never a wrong act.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// The uid of the namespace that all of this is about.
    pub namespace: Option<String>,
    /// For each workload that lacks pods though ordinals are free: since when, and how often it was woken.
    pub starved: HashMap<String, Starved>,
    /// The ordinals whose pods were buried of late.
    pub buried: BTreeMap<Ordinal, Buried>,
    /// Since when the node of an ordinal is proven gone.
    pub lost_since: BTreeMap<Ordinal, Timestamp>,
    /// The nodes that the scheduler refused for an ordinal that never ran.
    pub tried: BTreeMap<Ordinal, Tried>,
    /// The record of places as it was last, so that a deleted Service gets it back and an edit of it is seen.
    pub record: Option<Record>,
    /// Since when a label is missing, or there twice, that may be the first half of a move by hand.
    pub by_hand: BTreeMap<Ordinal, Timestamp>,
    /// Ordinals that were released and wait for a new node.
    pub freed: BTreeSet<Ordinal>,
    /// Ordinals that were given another node after a loss, and the pods that wait to start there.
    pub reassigned: BTreeMap<Ordinal, String>,
    /// The uid of the namespace that the record is of.
    pub namespace_uid: Option<String>,
}

impl Memory {
    /// What of it is true in the namespace with this uid: nothing, if it is of one that had the same name.
    #[must_use]
    pub fn within(self, namespace_uid: Option<&str>) -> Self {
        match (&self.namespace_uid, namespace_uid) {
            (Some(of), Some(now)) if of != now => Self::default(),
            _ => self,
        }
    }
}

/// A workload that lacks pods though ordinals are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Starved {
    /// Since when.
    pub since: Timestamp,
    /// How often it was woken.
    pub wakes: u32,
    /// When last.
    pub woken: Option<Timestamp>,
}

/// How often pods of an ordinal were buried in short order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buried {
    /// How often.
    pub times: u32,
    /// When last.
    pub last: Timestamp,
}

/// What came of placing an ordinal that never ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// The nodes that the scheduler refused.
    pub nodes: BTreeSet<NodeName>,
    /// When its node was chosen last: a verdict of the scheduler needs some time.
    pub moved: Option<Timestamp>,
    /// When all had been tried, after which it is tried again slowly.
    pub exhausted: Option<Timestamp>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make a headless Service.
    CreateService {
        /// Its name.
        name: String,
        /// Its ports.
        ports: Vec<PortFacts>,
        /// Whether it selects the flock's pods; one that only carries the record does not.
        selects: bool,
        /// The record of places on it.
        record: Option<String>,
    },
    /// Mend a Service that Flock made.
    MendService {
        /// Its name.
        name: String,
        /// The version that was looked at.
        version: String,
        /// Its ports.
        ports: Vec<PortFacts>,
    },
    /// Remove a Service that Flock made, for a flock of which nothing is left.
    DeleteService {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Write the record of places: the one point where two leaders would meet.
    WriteRecord {
        /// The Service's name.
        service: String,
        /// The version that was looked at; a write of anyone in between refuses this one.
        version: String,
        /// The record.
        record: String,
    },
    /// Give an ordinal its node.
    Label {
        /// The node.
        node: String,
        /// Its uid.
        uid: String,
        /// The ordinal.
        ordinal: Ordinal,
    },
    /// Take an ordinal from a node.
    Unlabel {
        /// The node.
        node: String,
        /// Its uid.
        uid: String,
        /// The ordinal.
        ordinal: Ordinal,
    },
    /// Make sure by a live look that something does not exist; what follows rests on it.
    ConfirmGone {
        /// What must be gone.
        what: Gone,
    },
    /// Do something for storage.
    Storage(StorageAction),
    /// Let the scheduler see a pod.
    OpenGate {
        /// Its name.
        pod: String,
        /// Its uid.
        uid: String,
    },
    /// End a workload's back-off.
    Wake {
        /// Its kind.
        kind: WorkloadKind,
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
    /// Ask a pod to leave, as far as PodDisruptionBudgets allow.
    Evict {
        /// Its name.
        pod: String,
        /// Its uid.
        uid: String,
        /// Why.
        why: Why,
    },
    /// Delete a pod that serves nobody: one that is over, or not ready.
    Delete {
        /// Its name.
        pod: String,
        /// Its uid.
        uid: String,
        /// The version that was looked at: if it has become Ready since, it stays.
        version: String,
        /// Why.
        why: Why,
    },
}

impl Action {
    /// A closed word for metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateService { .. } => "create_service",
            Self::MendService { .. } => "mend_service",
            Self::DeleteService { .. } => "delete_service",
            Self::WriteRecord { .. } => "write_record",
            Self::Label { .. } => "label_node",
            Self::Unlabel { .. } => "unlabel_node",
            Self::ConfirmGone { .. } => "confirm_gone",
            Self::Storage(action) => action.name(),
            Self::OpenGate { .. } => "open_gate",
            Self::Wake { .. } => "wake",
            Self::Evict { .. } => "evict",
            Self::Delete { .. } => "delete_pod",
        }
    }
}

/// What must be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A node, by name.
    Node(String),
    /// A node's machine: its out-of-service taint must stand, and it must not be Ready.
    Machine(String),
    /// A namespace, by name.
    Namespace(String),
}

/// Why a pod must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A newer revision waits for its ordinal.
    HandOver,
    /// It is outside the set that its workload may hold, and one inside is vacant.
    Compact,
    /// It is over and only holds its name.
    Bury,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A pod, by name and uid.
    Pod(String, String),
    /// A workload, by kind, name and uid.
    Workload(WorkloadKind, String, String),
    /// A Service, by name and uid.
    Service(String, String),
    /// A node, by name and uid.
    Node(String, String),
}

impl Subject {
    fn pod(pod: &PodFacts) -> Self {
        Self::Pod(pod.name.clone(), pod.uid.clone())
    }

    fn workload(workload: &WorkloadFacts) -> Self {
        Self::Workload(workload.kind, workload.name.clone(), workload.uid.clone())
    }

    /// The owner where it is known, since it outlives the pod; else the pod.
    fn owner_or_pod(observed: &Observed<'_>, pod: &PodFacts) -> Self {
        observed.owner(pod).map_or_else(|| Self::pod(pod), Self::workload)
    }
}

/// Something that a user must know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Note {
    /// What it is about.
    pub subject: Subject,
    /// A closed word, as events have.
    pub reason: &'static str,
    /// Whether someone must act.
    pub warning: bool,
    /// The sentence.
    pub message: String,
    /// The action, by its index in the plan, without which this is not true.
    pub rests_on: Option<usize>,
}

/// The plan.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// What to say.
    pub notes: Vec<Note>,
    /// When to look again, if nothing happens before.
    pub again: Option<Timestamp>,
    /// What to remember.
    pub memory: Memory,
}

impl Plan {
    fn note(&mut self, subject: Subject, reason: &'static str, message: impl Into<String>) {
        self.notes.push(Note {
            subject,
            reason,
            warning: false,
            message: message.into(),
            rests_on: None,
        });
    }

    fn warn(&mut self, subject: Subject, reason: &'static str, message: impl Into<String>) {
        self.notes.push(Note {
            subject,
            reason,
            warning: true,
            message: message.into(),
            rests_on: None,
        });
    }

    /// Plans an action, and what is told of it once it is done.
    fn act(&mut self, action: Action, subject: Subject, reason: &'static str, message: impl Into<String>) {
        let rests_on = Some(self.actions.len());
        self.actions.push(action);
        self.notes.push(Note {
            subject,
            reason,
            warning: false,
            message: message.into(),
            rests_on,
        });
    }

    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Plans for one flock.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let namespace = observed.view.namespace(observed.key.namespace.as_str());
    // A namespace of the same name made later is another one, of which nothing is known yet.
    let uid = namespace.map(|namespace| namespace.uid.clone());
    let memory = if observed.memory.namespace == uid {
        observed.memory.clone()
    } else {
        Memory {
            namespace: uid,
            ..Memory::default()
        }
    };
    let observed = &Observed {
        memory: &memory,
        ..*observed
    };
    let mut plan = Plan {
        memory: memory.clone(),
        ..Plan::default()
    };
    let terminating = namespace.is_some_and(|namespace| namespace.terminating);
    if !terminating {
        bury::plan(observed, &mut plan);
        service::plan(observed, &mut plan);
    }
    let placed = places::plan(observed, &mut plan);
    volumes::dismiss(observed, &mut plan);
    if terminating {
        // Nobody can be told any more: no event can be made there.
        plan.notes.clear();
    } else {
        let ready = volumes::plan(observed, &placed, &mut plan);
        gates::plan(observed, &ready, &mut plan);
        rollout::plan(observed, &mut plan);
        wake::plan(observed, &mut plan);
        strangers::plan(observed, &mut plan);
    }
    if plan.actions.is_empty() && observed.is_over() {
        plan.memory = Memory::default();
    }
    let namespace = observed.view.namespace(observed.key.namespace.as_str());
    plan.memory.namespace_uid = match (&plan.memory.record, namespace) {
        (Some(_), Some(namespace)) => Some(namespace.uid.clone()),
        _ => plan.memory.namespace_uid.take(),
    };
    plan
}
