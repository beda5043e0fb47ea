//! When a node is proven lost.
//!
//! A node that does not answer proves nothing: its pods may go on writing behind a broken network (Kubernetes'
//! own reasoning: KEP-2268, non-graceful node shutdown). Two things prove it: the Node object is gone, which an
//! administrator or the cloud's node lifecycle controller did, or an administrator's taint says that the machine is
//! off, and the node does not report Ready: a taint left behind after the repair proves nothing, and the pod garbage
//! collector asks for both too (`k8s.io/kubernetes/pkg/controller/podgc/gc_controller.go`). What follows from it (the
//! grace period, `flock.dev/on-node-loss`) is the caller's decision.

use super::node::NodeFacts;

/// The taint by which an administrator says that a machine is off (KEP-2268).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What proves that a node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The Node object is gone. A cache may lag: confirm it by a live GET before acting.
    Gone,
    /// The Node has the taint `node.kubernetes.io/out-of-service` and is not Ready.
    OutOfService,
}

/// Whether the node is proven lost; `None` stands for a Node object that does not exist.
pub fn lost(node: Option<&NodeFacts>) -> Option<Proof> {
    let Some(node) = node else {
        return Some(Proof::Gone);
    };
    // Any effect and any value, as the pod garbage collector reads it.
    let tainted = node.taints.iter().any(|taint| taint.key == OUT_OF_SERVICE);
    (tainted && !node.ready).then_some(Proof::OutOfService)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::fixtures::node;

    #[test]
    fn only_a_missing_node_or_the_out_of_service_taint_is_proof() {
        assert_eq!(lost(None), Some(Proof::Gone));
        assert_eq!(lost(Some(&node("n1"))), None);
        assert_eq!(lost(Some(&node("n1").not_ready().cordoned())), None);
        assert_eq!(
            lost(Some(&node("n1").taint(
                "node.kubernetes.io/unreachable",
                "",
                "NoExecute"
            ))),
            None
        );
        for effect in ["NoExecute", "NoSchedule"] {
            let tainted = node("n1").taint(OUT_OF_SERVICE, "nodeshutdown", effect);
            assert_eq!(
                lost(Some(&tainted.clone().not_ready())),
                Some(Proof::OutOfService)
            );
            assert_eq!(lost(Some(&tainted)), None, "repaired, the taint was forgotten");
        }
    }

    #[test]
    fn a_node_that_is_being_deleted_is_not_lost_yet() {
        let mut leaving = node("n1");
        leaving.terminating = true;
        assert_eq!(lost(Some(&leaving)), None);
    }
}
