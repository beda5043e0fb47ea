//! Members that have their place and cannot start there, and pods that cannot go: told with what unblocks them.

use crate::identity::Pin;
use crate::place::check;

use super::super::{Plan, Subject};
use super::{Work, pin};

impl Work<'_> {
    pub(super) fn waits(&self, plan: &mut Plan) {
        let nodes = self.observed.view.nodes();
        for (ordinal, pod) in self.observed.flock().members() {
            if pin(pod) == Pin::None {
                continue;
            }
            if let Some(node) = pod.node.as_deref().and_then(|node| nodes.get(node)) {
                if pod.terminating && !node.ready {
                    plan.stuck(
                        [ordinal],
                        Subject::owner_or_pod(self.observed, pod),
                        "NodeUnreachable",
                        format!(
                            "{0} is to end, but its node {1} is not Ready and does not say that it has: no other pod \
                             takes its place before. If the machine is off for certain, delete the Node, or run: \
                             kubectl taint node {1} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute",
                            pod.name, node.name
                        ),
                    );
                }
                continue;
            }
            let refused = pod.is_live() && !pod.gated && pod.node.is_none() && pod.unschedulable.is_some();
            let node = self
                .labelled(ordinal)
                .filter(|_| refused)
                .and_then(|node| nodes.get(node));
            // Where the member may still move, it does.
            let settled = !self
                .record
                .get(ordinal)
                .is_some_and(|place| self.is_virgin(ordinal, pod, place, plan));
            let Some(node) = node.filter(|_| settled) else {
                continue;
            };
            if let Err(unfit) = check(node, &pod.template.constraints) {
                plan.wait([ordinal], "WaitingForNode");
                plan.note(
                    Subject::owner_or_pod(self.observed, pod),
                    "WaitingForNode",
                    format!(
                        "{} waits for its node {}, where its data is: {unfit}; to let it start, {}",
                        pod.name,
                        node.name,
                        unfit.remedy()
                    ),
                );
            }
        }
    }
}
