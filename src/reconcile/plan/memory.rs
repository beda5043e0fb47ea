//! What the leader remembers between two looks at a flock.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use crate::identity::Ordinal;
use crate::place::{NodeName, Record};

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
