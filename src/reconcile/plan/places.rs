//! Places: the labels on nodes and the record of them, brought into agreement; ordinals that never ran get a
//! node; and what happens when a node is lost (DESIGN 6). The table of findings is in `place::reconcile`.
//!
//! Writes are in the order that a crash in between heals from: what must be proven by a live look first, then the
//! record, then labels, then what takes labels off.

mod edits;
mod loss;
mod virgin;
mod waits;

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::identity::{FlockKey, Ordinal, OrdinalSet, Pin};
use crate::place::{Evidence, Finding, NodeName, Place, Placer, Record, compare, updated};
use crate::view::{PodFacts, ServiceFacts};

use super::service::record_holder;
use super::{Action, Gone, Observed, Plan, Subject};

/// How long an administrator has for the other half of a move by hand: taking a label off one node and setting it on
/// another are two writes, in whichever order.
const BY_HAND: SignedDuration = SignedDuration::from_secs(15);

/// Where members run that are pinned to nodes.
pub(super) fn running(observed: &Observed<'_>) -> BTreeMap<Ordinal, NodeName> {
    let members = observed
        .flock()
        .members()
        .into_iter()
        .filter(|(_, pod)| pin(pod) != Pin::None);
    members
        .filter_map(|(ordinal, pod)| Some((ordinal, pod.node.as_deref()?.into())))
        .collect()
}

/// Plans the places; returns the ordinals whose place is ready.
pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) -> BTreeSet<Ordinal> {
    let members = observed.flock().members();
    let unpinned = members
        .iter()
        .filter(|(_, pod)| pin(pod) == Pin::None)
        .map(|(ordinal, _)| *ordinal);
    let mut ready: BTreeSet<_> = unpinned.collect();
    if observed.view.namespace(observed.key.namespace.as_str()).is_none() {
        forget_namespace(observed, plan);
        return ready;
    }
    report_garbage(observed, plan);
    let places = observed.view.places(observed.key);
    ready.extend(
        places
            .iter()
            .filter(|(_, nodes)| nodes.len() == 1)
            .map(|(ordinal, _)| *ordinal),
    );
    let holder = record_holder(observed)
        .and_then(|name| observed.view.service(observed.key.namespace.as_str(), &name));
    // Without the Service there is no record to write to: it is made first, and this is looked at again.
    let Some(service) = holder else { return ready };
    if service.places.is_none() && places.is_empty() && !observed.flock().is_pinned() {
        return ready;
    }
    let (record, trusted) = edits::read(observed, service, plan);
    let mut work = Work {
        observed,
        service,
        running: running(observed),
        record,
        proofs: Vec::new(),
        labels: Vec::new(),
        unlabels: Vec::new(),
        ready,
        trusted,
        placer: None,
    };
    work.findings(plan);
    work.virgin(plan);
    work.waits(plan);
    work.finish(plan)
}

struct Work<'a> {
    observed: &'a Observed<'a>,
    service: &'a ServiceFacts,
    running: BTreeMap<Ordinal, NodeName>,
    record: Record,
    proofs: Vec<Action>,
    labels: Vec<Action>,
    unlabels: Vec<Action>,
    ready: BTreeSet<Ordinal>,
    trusted: bool,
    /// Made when the first ordinal needs a node.
    placer: Option<Placer<'a>>,
}

impl<'a> Work<'a> {
    fn findings(&mut self, plan: &mut Plan) {
        let (view, key) = (self.observed.view, self.observed.key);
        let mut findings = compare(view.nodes(), view.places(key), &self.record, &self.running);
        // A member without a pin has nothing to do with labels that an earlier revision left.
        findings.retain(|finding| {
            self.observed
                .flock()
                .holder(finding.ordinal())
                .is_none_or(|pod| pin(pod) != Pin::None)
        });
        let before = self.record.clone();
        self.record = updated(&before, &findings);
        let wanted = self.observed.flock().wanted();
        let mut by_hand = BTreeSet::new();
        let mut lost = BTreeSet::new();
        for finding in &findings {
            let ordinal = finding.ordinal();
            if finding.holds() {
                self.ready.remove(&ordinal);
            }
            match finding {
                // A label that nobody needs is given when it is needed: who may edit the record may not thereby
                // label nodes.
                Finding::Relabel { .. } if !wanted.contains(ordinal) && !self.is_held(ordinal) => {}
                Finding::Relabel { node, evidence, .. } => {
                    let second = self.also_at(ordinal, node, &wanted);
                    if let (Evidence::Record, Some(other)) = (evidence, second) {
                        self.named_twice(ordinal, node, other, plan);
                    } else if self.may_be_half_a_move(finding, plan) {
                        by_hand.insert(ordinal);
                    } else {
                        self.label(ordinal, node);
                    }
                }
                Finding::Unlabel { node, .. } => {
                    if self.may_be_half_a_move(finding, plan) {
                        by_hand.insert(ordinal);
                    } else {
                        self.unlabel(ordinal, node);
                    }
                }
                Finding::NodeGone { .. } | Finding::OtherMachine { labelled: false, .. }
                    if self.waits_unused(ordinal, plan) => {}
                Finding::NodeGone { node, .. } => {
                    lost.insert(ordinal);
                    self.node_gone(ordinal, node, finding, plan);
                }
                Finding::MovedWhileRunning { from: at, .. }
                | Finding::Contradiction { running: at, .. }
                | Finding::Conflict {
                    running: Some(at), ..
                } if self.lost_the_race(ordinal, at) => {
                    self.follow_pod(ordinal, at);
                }
                Finding::Moved { .. } if !self.waits_unused(ordinal, plan) => {
                    plan.note(self.subject(ordinal), "Moved", finding.sentence(key));
                }
                Finding::Forget { .. } => {
                    plan.memory.freed.insert(ordinal);
                    plan.note(self.subject(ordinal), "Released", finding.sentence(key));
                }
                _ if finding.is_report() => {
                    plan.stuck(
                        self.unbound(ordinal),
                        self.subject(ordinal),
                        "Place",
                        finding.sentence(key),
                    );
                }
                _ => {}
            }
        }
        lost.extend(self.out_of_service(plan));
        plan.memory.lost_since.retain(|ordinal, _| lost.contains(ordinal));
        plan.memory.by_hand.retain(|ordinal, _| by_hand.contains(ordinal));
    }

    /// Whether a label that is too few or too many may be the first half of an administrator's move. Tells so.
    fn may_be_half_a_move(&self, finding: &Finding, plan: &mut Plan) -> bool {
        let (key, ordinal) = (self.observed.key, finding.ordinal());
        let pod = format!("{}-{ordinal}", key.flock);
        let message = match finding {
            Finding::Relabel { node, .. } => {
                // One that went with its Node object was taken off by nobody.
                if self.observed.view.taken_off(key, ordinal) != Some(node) {
                    return false;
                }
                format!(
                    "the label of {pod} was taken off node {node}: set on another node within {} s it moves the \
                     member there, without its data; else it comes back",
                    BY_HAND.as_secs()
                )
            }
            Finding::Unlabel { node, keep, .. } => format!(
                "nodes {node} and {keep} both carry the label of {pod}, which lives on {keep}; taken off {keep} within \
                 {} s it moves the member to {node}, without its data; else it is taken off {node}",
                BY_HAND.as_secs()
            ),
            _ => return false,
        };
        let since = *plan.memory.by_hand.entry(ordinal).or_insert(self.observed.now);
        let due = since + BY_HAND;
        if due <= self.observed.now {
            return false;
        }
        plan.look_again(due);
        plan.warn(self.subject(ordinal), "LabelChanged", message);
        true
    }

    /// Another member that is to live alone on the node, by its label or the record.
    fn also_at(&self, ordinal: Ordinal, node: &NodeName, wanted: &OrdinalSet) -> Option<Ordinal> {
        if !self.is_exclusive(ordinal, wanted) {
            return None;
        }
        let labelled = self.observed.view.nodes().get(node).into_iter();
        let labelled = labelled
            .flat_map(|facts| facts.carries(self.observed.key))
            .copied();
        let recorded = self
            .record
            .iter()
            .filter(|(_, place)| place.node == *node && !place.released);
        labelled
            .chain(recorded.map(|(other, _)| other))
            .find(|other| *other != ordinal)
    }

    fn is_exclusive(&self, ordinal: Ordinal, wanted: &OrdinalSet) -> bool {
        let flock = self.observed.flock();
        if let Some(pod) = flock.holder(ordinal) {
            return pin(pod) == Pin::Exclusive;
        }
        let templates = flock
            .workloads()
            .values()
            .filter(|_| wanted.contains(ordinal))
            .map(|w| &w.template);
        templates
            .map(|template| template.settings().pin)
            .any(|pin| pin == Pin::Exclusive)
    }

    fn named_twice(&self, ordinal: Ordinal, node: &NodeName, other: Ordinal, plan: &mut Plan) {
        let (key, label) = (self.observed.key, self.observed.key.node_label(ordinal));
        plan.stuck(
            self.unbound(ordinal),
            self.subject(ordinal),
            "BadRecord",
            format!(
                "the record of places puts {flock}-{ordinal} on node {node}, which is the place of {flock}-{other} as \
                 well, though members are to be alone on their nodes: nothing is moved. Label the node that has its \
                 data: kubectl label node NODE {label}=, or give its data up: flock release {flock} {ordinal} \
                 --namespace {namespace}",
                flock = key.flock,
                namespace = key.namespace,
            ),
        );
    }

    /// Whether the place was chosen for the pod that was bound elsewhere in the same moment: to where its label stood
    /// before, since the scheduler followed it.
    fn lost_the_race(&self, ordinal: Ordinal, bound_to: &NodeName) -> bool {
        let elsewhere = self.record.get(ordinal).filter(|place| place.node != *bound_to);
        let chosen_for = elsewhere.and_then(|place| place.chosen_for.as_ref());
        let holder = self.observed.flock().holder(ordinal);
        chosen_for.is_some_and(|uid| holder.is_some_and(|pod| pod.uid == *uid))
    }

    fn follow_pod(&mut self, ordinal: Ordinal, node: &NodeName) {
        let Some(facts) = self.observed.view.nodes().get(node) else {
            return;
        };
        self.record
            .insert(ordinal, Place::new(node.clone(), facts.machine_id.clone()));
        let labelled = self.observed.view.places(self.observed.key).get(&ordinal);
        for other in labelled.into_iter().flatten().filter(|other| *other != node) {
            self.unlabel(ordinal, other);
        }
        self.label(ordinal, node);
    }

    /// Whether the place was chosen for the very pod that waits for it: then it can be another one.
    fn waits_unused(&self, ordinal: Ordinal, plan: &Plan) -> bool {
        let waiting = self
            .observed
            .flock()
            .holder(ordinal)
            .filter(|pod| pod.is_live() && pod.node.is_none());
        let place = self.record.get(ordinal).filter(|place| !place.released);
        waiting
            .zip(place)
            .is_some_and(|(pod, place)| self.is_virgin(ordinal, pod, place, plan))
    }

    /// The ordinal, if its member has no node yet.
    fn unbound(&self, ordinal: Ordinal) -> Option<Ordinal> {
        let holder = self.observed.flock().holder(ordinal)?;
        (holder.is_live() && holder.node.is_none()).then_some(ordinal)
    }

    fn is_held(&self, ordinal: Ordinal) -> bool {
        self.observed.flock().is_held(ordinal)
    }

    /// The member's owner or pod; the Service where there is neither.
    fn subject(&self, ordinal: Ordinal) -> Subject {
        self.observed.flock().holder(ordinal).map_or_else(
            || Subject::Service(self.service.name.clone(), self.service.uid.clone()),
            |pod| Subject::owner_or_pod(self.observed, pod),
        )
    }

    /// The node that carries the ordinal's label, if it is just one.
    fn labelled(&self, ordinal: Ordinal) -> Option<&'a NodeName> {
        let nodes = self.observed.view.places(self.observed.key).get(&ordinal)?;
        nodes.first().filter(|_| nodes.len() == 1)
    }

    fn label(&mut self, ordinal: Ordinal, node: &NodeName) {
        if let Some(facts) = self.observed.view.nodes().get(node) {
            self.labels.push(Action::Label {
                node: node.to_string(),
                uid: facts.uid.clone(),
                ordinal,
            });
        }
    }

    fn unlabel(&mut self, ordinal: Ordinal, node: &NodeName) {
        if let Some(facts) = self.observed.view.nodes().get(node) {
            self.unlabels.push(Action::Unlabel {
                node: node.to_string(),
                uid: facts.uid.clone(),
                ordinal,
            });
        }
    }

    /// Record first, labels after it: a second leader with an old view fails at the record.
    fn finish(mut self, plan: &mut Plan) -> BTreeSet<Ordinal> {
        let changed = self.service.record.as_deref() != Some(&self.record);
        let mut written = Vec::new();
        if self.trusted && changed {
            match self.record.render() {
                Ok(record) => written.push(Action::WriteRecord {
                    service: self.service.name.clone(),
                    version: self.service.resource_version.clone(),
                    record,
                }),
                Err(error) => {
                    let subject = Subject::Service(self.service.name.clone(), self.service.uid.clone());
                    plan.stuck(
                        edits::unplaced(self.observed),
                        subject,
                        "BadRecord",
                        format!("The record of places cannot be written: {error}"),
                    );
                    // What was to be placed is not: only places that stand already are ready.
                    self.ready
                        .retain(|ordinal| self.observed.view.places(self.observed.key).contains_key(ordinal));
                    return self.ready;
                }
            }
        }
        plan.actions.extend(self.proofs);
        plan.actions.extend(written);
        plan.actions.extend(self.labels);
        plan.actions.extend(self.unlabels);
        self.ready
    }
}

fn pin(pod: &PodFacts) -> Pin {
    pod.template
        .settings
        .as_ref()
        .map_or(Pin::Exclusive, |settings| settings.pin)
}

fn by_hand(pod: &PodFacts, ordinal: Ordinal) -> Option<&str> {
    let settings = pod.template.settings.as_ref().ok()?;
    settings.nodes.get(ordinal.get() as usize).map(String::as_str)
}

/// Removes the labels of a flock whose namespace is gone: nothing of it can come back, since a namespace of the same
/// name has another uid and so other directories.
fn forget_namespace(observed: &Observed<'_>, plan: &mut Plan) {
    let places = observed.view.places(observed.key);
    if !places.is_empty() {
        let what = Gone::Namespace(observed.key.namespace.to_string());
        plan.actions.push(Action::ConfirmGone { what });
    }
    for (ordinal, nodes) in places {
        for node in nodes.iter().filter_map(|node| observed.view.nodes().get(node)) {
            plan.actions.push(Action::Unlabel {
                node: node.name.to_string(),
                uid: node.uid.clone(),
                ordinal: *ordinal,
            });
        }
    }
}

fn report_garbage(observed: &Observed<'_>, plan: &mut Plan) {
    let prefix = garbage_prefix(observed.key);
    for node in observed.view.nodes_with_garbage() {
        for label in node
            .garbage_labels
            .iter()
            .filter(|label| label.starts_with(&prefix))
        {
            plan.warn(
                Subject::Node(node.name.to_string(), node.uid.clone()),
                "BadLabel",
                format!(
                    "Label {label} names no ordinal of flock {} (a number such as 0, and an empty value); it is \
                     ignored: correct it or take it off",
                    observed.key
                ),
            );
        }
    }
}

fn garbage_prefix(key: &FlockKey) -> String {
    format!("{}/", key.node_label_prefix())
}

#[cfg(test)]
mod tests;
