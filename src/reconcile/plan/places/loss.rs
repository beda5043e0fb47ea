//! Nodes that are lost: who waits for them, and who is given another one (`flock.dev/on-node-loss`).

use std::collections::BTreeSet;

use crate::identity::{OnNodeLoss, Ordinal};
use crate::place::{Finding, NodeName, Place, Proof, lost};
use crate::view::PodFacts;

use super::super::{Action, Gone, Plan, Subject};
use super::{Work, by_hand, pin};

impl Work<'_> {
    /// The Node object of an ordinal's place is gone.
    pub(super) fn node_gone(
        &mut self,
        ordinal: Ordinal,
        node: &NodeName,
        finding: &Finding,
        plan: &mut Plan,
    ) {
        let due = self.is_due(ordinal, plan);
        let Some(pod) = self.observed.flock().holder(ordinal) else {
            return;
        };
        if due && self.may_reassign(pod) {
            let proof = Action::ConfirmGone {
                what: Gone::Node(node.to_string()),
            };
            self.reassign(ordinal, pod, node, proof, plan);
            return;
        }
        let message = finding.sentence(self.observed.key);
        let subject = Subject::owner_or_pod(self.observed, pod);
        plan.stuck([ordinal], subject, "NodeLost", message);
    }

    /// Looks for labelled nodes that an administrator declared out of service; returns their ordinals.
    pub(super) fn out_of_service(&mut self, plan: &mut Plan) -> BTreeSet<Ordinal> {
        let mut ordinals = BTreeSet::new();
        for (ordinal, nodes) in self.observed.view.places(self.observed.key) {
            let (ordinal, Some(node)) = (*ordinal, nodes.first().filter(|_| nodes.len() == 1)) else {
                continue;
            };
            if lost(self.observed.view.nodes().get(node)) != Some(Proof::OutOfService) {
                continue;
            }
            ordinals.insert(ordinal);
            let due = self.is_due(ordinal, plan);
            let Some(pod) = self.observed.flock().holder(ordinal) else {
                continue;
            };
            if due && self.may_reassign(pod) {
                let proof = Action::ConfirmGone {
                    what: Gone::Machine(node.to_string()),
                };
                if self.reassign(ordinal, pod, node, proof, plan) {
                    self.unlabel(ordinal, node);
                }
                continue;
            }
            plan.stuck(
                [ordinal],
                Subject::owner_or_pod(self.observed, pod),
                "NodeLost",
                format!(
                    "{} lives on node {node}, which is out of service: it waits for it; to give up its data and place \
                     it anew, run: flock release {} {ordinal} --namespace {}",
                    pod.name, self.observed.key.flock, self.observed.key.namespace
                ),
            );
        }
        ordinals
    }

    /// Whether the node has been proven gone for as long as the grace. The time counts from the first proof.
    fn is_due(&self, ordinal: Ordinal, plan: &mut Plan) -> bool {
        let since = *plan.memory.lost_since.entry(ordinal).or_insert(self.observed.now);
        let due = since + self.observed.config.node_loss_grace;
        if self.observed.now < due {
            plan.look_again(due);
        }
        due <= self.observed.now
    }

    /// Whether this member wants another node, and no old pod object of it is left that could still run on the lost
    /// one: two pods cannot have one name.
    fn may_reassign(&self, pod: &PodFacts) -> bool {
        let template = self
            .observed
            .owner(pod)
            .map_or(&pod.template, |owner| &owner.template);
        let wants = template.settings().on_node_loss == OnNodeLoss::Reassign;
        wants && self.trusted && pod.is_live() && pod.node.is_none()
    }

    fn reassign(
        &mut self,
        ordinal: Ordinal,
        pod: &PodFacts,
        from: &NodeName,
        proof: Action,
        plan: &mut Plan,
    ) -> bool {
        let tried = BTreeSet::from([from.clone()]);
        let (constraints, pin, by_hand) = (&pod.template.constraints, pin(pod), by_hand(pod, ordinal));
        // The node chosen by hand is the lost one, so any other is as good.
        let by_hand = by_hand.filter(|name| *name != &**from);
        let found = self.placer().place(ordinal, constraints, pin, by_hand, &tried);
        match found {
            Ok(node) => {
                let name = node.name.clone();
                // Not marked as chosen for this pod: were the write of the label to fail, the label of the old node
                // would take the mark over, and with it the right to move data that is there.
                self.record
                    .insert(ordinal, Place::new(name.clone(), node.machine_id.clone()));
                plan.memory.reassigned.insert(ordinal, pod.uid.clone());
                plan.warn(
                    Subject::owner_or_pod(self.observed, pod),
                    "Reassigned",
                    format!(
                        "node {from} of {} is lost, and the member starts on node {name} instead \
                         (flock.dev/on-node-loss: Reassign): its data stayed behind on {from}",
                        pod.name
                    ),
                );
                self.proofs.push(proof);
                self.label(ordinal, &name);
                self.ready.insert(ordinal);
                true
            }
            Err(problem) => {
                plan.stuck(
                    [ordinal],
                    Subject::owner_or_pod(self.observed, pod),
                    "NoPlace",
                    problem.to_string(),
                );
                false
            }
        }
    }
}
