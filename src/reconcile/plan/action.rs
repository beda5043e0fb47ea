//! What a plan is made of: things to do, and things to say.

use super::{Observed, StorageAction};
use crate::identity::Ordinal;
use crate::view::{PodFacts, PortFacts, WorkloadFacts, WorkloadKind};

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

/// Every word that [`Action::name`] has.
pub const ACTIONS: [&str; 18] = [
    "create_service",
    "mend_service",
    "delete_service",
    "write_record",
    "label_node",
    "unlabel_node",
    "confirm_gone",
    "create_helper",
    "delete_helper",
    "create_volume",
    "mark_volume",
    "rebind_volume",
    "create_claim",
    "grow_claim",
    "open_gate",
    "wake",
    "evict",
    "delete_pod",
];

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
    pub(super) fn pod(pod: &PodFacts) -> Self {
        Self::Pod(pod.name.clone(), pod.uid.clone())
    }

    pub(super) fn workload(workload: &WorkloadFacts) -> Self {
        Self::Workload(workload.kind, workload.name.clone(), workload.uid.clone())
    }

    /// The owner where it is known, since it outlives the pod; else the pod.
    pub(super) fn owner_or_pod(observed: &Observed<'_>, pod: &PodFacts) -> Self {
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

#[cfg(test)]
mod tests {
    use super::ACTIONS;

    #[test]
    fn every_word_for_an_action_is_in_the_list() {
        let sources = include_str!("action.rs").to_owned() + include_str!("volumes.rs");
        let words: Vec<_> = sources
            .lines()
            .filter_map(|line| line.split_once("=> \"")?.1.strip_suffix("\","))
            .collect();
        assert_eq!(words.len(), ACTIONS.len(), "{words:?}");
        assert!(words.iter().all(|word| ACTIONS.contains(word)), "{words:?}");
    }
}
