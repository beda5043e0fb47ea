//! Why an ordinal got no node, in sentences for its pod's and its owner's events.

use std::sync::Arc;

use thiserror::Error;

use crate::place::eligibility::{Tally, Unfit};
use crate::place::node::NodeName;

/// Why an ordinal got no node. The pod stays gated, and this says what would free it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NoPlace {
    /// No node qualifies and is free.
    #[error("no node for {pod}: {tally}; {}", way_out(tally))]
    NoneFits {
        /// The member's pod name.
        pod: String,
        /// All nodes.
        tally: Arc<Tally>,
    },
    /// The scheduler could not place the pod on any node that qualifies.
    #[error(
        "no node for {pod}: {tally}, but the scheduler could not place it on any of those that do; see the pod's \
         FailedScheduling events, free resources on a node or add one"
    )]
    AllTried {
        /// The member's pod name.
        pod: String,
        /// All nodes.
        tally: Arc<Tally>,
    },
    /// The node chosen by hand does not exist.
    #[error(
        "flock.dev/nodes puts {pod} on the node {node:?}, which does not exist; correct its name or add the node"
    )]
    UnknownNode {
        /// The member's pod name.
        pod: String,
        /// The name as written.
        node: String,
    },
    /// The node chosen by hand belongs to another member.
    #[error(
        "flock.dev/nodes puts {pod} on the node {node}, which carries {holder}; choose another node, or set \
         flock.dev/pin: Shared to let members share one"
    )]
    Taken {
        /// The member's pod name.
        pod: String,
        /// The node.
        node: NodeName,
        /// The pod name of the member that has it.
        holder: String,
    },
    /// The node chosen by hand does not qualify.
    #[error(
        "flock.dev/nodes puts {pod} on the node {node}, which does not fit: {reason}; choose another node, or {}",
        reason.remedy()
    )]
    Unfit {
        /// The member's pod name.
        pod: String,
        /// The node.
        node: NodeName,
        /// What stands against it.
        reason: Unfit,
    },
}

impl NoPlace {
    /// The same of other pods.
    #[must_use]
    pub fn about(&self, pods: String) -> Self {
        let mut same = self.clone();
        match &mut same {
            Self::NoneFits { pod, .. }
            | Self::AllTried { pod, .. }
            | Self::UnknownNode { pod, .. }
            | Self::Taken { pod, .. }
            | Self::Unfit { pod, .. } => *pod = pods,
        }
        same
    }
}

fn way_out(tally: &Tally) -> String {
    if tally.total() == 0 {
        return "add a node".into();
    }
    if tally.taken() > 0 {
        return "add a node that fits, or set flock.dev/pin: Shared to let members share one".into();
    }
    let most = tally.unfit.iter().max_by_key(|(_, count)| **count);
    most.map_or_else(
        || "add a node".into(),
        |(reason, _)| format!("add a node that fits, or {}", reason.remedy()),
    )
}
