//! What a comparison can find.

use std::sync::Arc;

use crate::identity::{FlockKey, Ordinal};
use crate::place::node::NodeName;

/// What a label is given back on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The record, and the machine's id.
    Record,
    /// The member's pod, bound to the node, while no record contradicts it.
    Pod,
}

/// One thing that is not as it should be. [`Finding::is_report`] tells what is to be mended from what is only said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Mend: set the ordinal's label on the node.
    Relabel {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node.
        node: NodeName,
        /// What for.
        evidence: Evidence,
    },
    /// Mend: take the ordinal's label off the node.
    Unlabel {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node that loses.
        node: NodeName,
        /// The node that the ordinal lives on.
        keep: NodeName,
    },
    /// Mend: write the label's place into the record.
    Record {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node.
        node: NodeName,
        /// Its machine, if it is known.
        machine: Option<Arc<str>>,
    },
    /// Mend: the label stands on another node than the record says; write it into the record, and say so.
    Moved {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node in the record.
        from: NodeName,
        /// The node with the label.
        to: NodeName,
        /// The machine of `to`, if it is known.
        machine: Option<Arc<str>>,
    },
    /// Mend: the ordinal was released, and its label and pod are gone; forget it.
    Forget {
        /// The ordinal.
        ordinal: Ordinal,
    },
    /// Report: the label stands on one node while the pod is bound to another.
    MovedWhileRunning {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node that the pod is bound to.
        from: NodeName,
        /// The node with the label.
        to: NodeName,
    },
    /// Report: the node is not known to be the machine that the ordinal's data is on.
    OtherMachine {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node.
        node: NodeName,
        /// The machine in the record.
        recorded: Option<Arc<str>>,
        /// The machine that the node says it is.
        found: Option<Arc<str>>,
        /// Whether the node carries the label, so that the member would start there.
        labelled: bool,
    },
    /// Report: the Node object of the ordinal's place is gone. [`crate::place::lost`] says what that proves.
    NodeGone {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node.
        node: NodeName,
    },
    /// Report: several nodes carry the label, and no evidence, or contradicting evidence, says which is right.
    Conflict {
        /// The ordinal.
        ordinal: Ordinal,
        /// All nodes with the label, by name.
        nodes: Vec<NodeName>,
        /// The node that the pod is bound to.
        running: Option<NodeName>,
    },
    /// Report: no node carries the label, and record and pod name different nodes.
    Contradiction {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node in the record.
        recorded: NodeName,
        /// The node that the pod is bound to.
        running: NodeName,
    },
    /// Report: only a pod, bound to a node that does not exist, still tells of the ordinal.
    Lost {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node that the pod is bound to.
        node: NodeName,
    },
    /// Report: the ordinal is marked as released, and its label or its pod is still there.
    ReleasePending {
        /// The ordinal.
        ordinal: Ordinal,
        /// The node in the record.
        node: NodeName,
    },
}

impl Finding {
    /// The ordinal that was looked at.
    pub fn ordinal(&self) -> Ordinal {
        match self {
            Self::Relabel { ordinal, .. }
            | Self::Unlabel { ordinal, .. }
            | Self::Record { ordinal, .. }
            | Self::Moved { ordinal, .. }
            | Self::Forget { ordinal }
            | Self::MovedWhileRunning { ordinal, .. }
            | Self::OtherMachine { ordinal, .. }
            | Self::NodeGone { ordinal, .. }
            | Self::Conflict { ordinal, .. }
            | Self::Contradiction { ordinal, .. }
            | Self::Lost { ordinal, .. }
            | Self::ReleasePending { ordinal, .. } => *ordinal,
        }
    }

    /// Whether this is only said, because an administrator must decide.
    pub fn is_report(&self) -> bool {
        match self {
            Self::Relabel { .. }
            | Self::Unlabel { .. }
            | Self::Record { .. }
            | Self::Moved { .. }
            | Self::Forget { .. } => false,
            Self::MovedWhileRunning { .. }
            | Self::OtherMachine { .. }
            | Self::NodeGone { .. }
            | Self::Conflict { .. }
            | Self::Contradiction { .. }
            | Self::Lost { .. }
            | Self::ReleasePending { .. } => true,
        }
    }

    /// Whether no new pod of the ordinal may start before this is settled: its gate stays closed, and it gets no
    /// first placement.
    pub fn holds(&self) -> bool {
        self.is_report() || matches!(self, Self::Relabel { .. } | Self::Unlabel { .. })
    }

    /// A sentence for an event: what was found, and the way out.
    pub fn sentence(&self, key: &FlockKey) -> String {
        let ordinal = self.ordinal();
        let pod = format!("{}-{ordinal}", key.flock);
        let label = key.node_label(ordinal);
        match self {
            Self::Relabel { node, evidence, .. } => {
                let why = match evidence {
                    Evidence::Record => "the record names it, and it is the same machine",
                    Evidence::Pod => "the pod runs there",
                };
                format!("node {node} gets the label of {pod} back: {why}")
            }
            Self::Unlabel { node, keep, .. } => {
                format!("node {node} loses the label of {pod}, which lives on {keep}")
            }
            Self::Record { node, .. } => {
                format!("{pod} lives on node {node}; the record is brought up to date")
            }
            Self::Moved { from, to, .. } => {
                format!(
                    "{pod} was moved from node {from} to {to} by its label; its data is not moved with it"
                )
            }
            Self::Forget { .. } => format!("{pod} was released and may be placed anew"),
            Self::MovedWhileRunning { from, to, .. } => format!(
                "{pod} is bound to node {from} while its label stands on {to}: once its pod is gone, it starts on {to} \
                 without the data of {from}; to keep it, label {from} and take {label} off {to}"
            ),
            Self::OtherMachine {
                node,
                recorded,
                found,
                labelled,
                ..
            } => {
                let id = |id: &Option<Arc<str>>| id.as_deref().unwrap_or("unknown").to_owned();
                let (recorded, found) = (id(recorded), id(found));
                let way_out = if *labelled {
                    "if its disk was kept or the loss is accepted, remove the ordinal from the Service's annotation \
                     flock.dev/places"
                        .to_owned()
                } else {
                    format!(
                        "if its disk was kept, run: kubectl label node {node} {label}= and then remove the ordinal \
                         from the Service's annotation flock.dev/places"
                    )
                };
                format!(
                    "{pod} lives on node {node}, machine {recorded}, but the node of this name is machine {found} now: \
                     {way_out}; to start without the data, run: {}",
                    release(key, ordinal)
                )
            }
            Self::NodeGone { node, .. } => format!(
                "{pod} lives on node {node}, which is gone: it waits until the same machine registers again; to give \
                 up its data and place it anew, run: {}",
                release(key, ordinal)
            ),
            Self::Conflict { nodes, running, .. } => {
                let running = running
                    .as_ref()
                    .map(|node| format!(" (its pod is bound to {node})"))
                    .unwrap_or_default();
                format!(
                    "nodes {} all carry the label of {pod}{running}, and nothing proves which has its data: take \
                     {label} off all but one",
                    nodes.join(", ")
                )
            }
            Self::Contradiction {
                recorded, running, ..
            } => format!(
                "{pod} is bound to node {running}, the record says {recorded}, and no node carries its label: label \
                 the one that has its data: kubectl label node NODE {label}="
            ),
            Self::Lost { node, .. } => format!(
                "{pod} is bound to node {node}, which is gone, and neither a label nor the record tells of it: once \
                 its pod is gone, it is placed anew"
            ),
            Self::ReleasePending { node, .. } => format!(
                "{pod} is released from node {node}: it waits for its pod to go and its label to be taken off: kubectl \
                 label node {node} {label}-"
            ),
        }
    }
}

fn release(key: &FlockKey, ordinal: Ordinal) -> String {
    format!(
        "flock release {} {ordinal} --namespace {}",
        key.flock, key.namespace
    )
}
