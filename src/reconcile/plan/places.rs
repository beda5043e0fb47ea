//! Places: the labels on nodes and the record of them, brought into agreement; ordinals that never ran get a
//! node; and what happens when a node is lost (DESIGN 6). The table of findings is in `place::reconcile`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use crate::identity::{OnNodeLoss, Ordinal, Pin};
use crate::place::{Finding, NoPlace, NodeName, Place, Placer, Proof, Record, compare, lost, updated};
use crate::view::{PodFacts, ServiceFacts};

use super::service::record_holder;
use super::{Action, Gone, Observed, Plan, Subject};

/// How long the scheduler gets for a verdict about a node before its refusal counts.
const VERDICT: SignedDuration = SignedDuration::from_secs(5);
/// How long after all nodes were tried it begins again.
const NEXT_ROUND: SignedDuration = SignedDuration::from_secs(60);

/// Where members run.
pub(super) fn running(observed: &Observed<'_>) -> BTreeMap<Ordinal, NodeName> {
    let members = observed.flock().members();
    members.into_iter().filter_map(|(ordinal, pod)| Some((ordinal, pod.node.as_deref()?.into()))).collect()
}

/// Plans the places; returns the ordinals whose place is ready.
pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) -> BTreeSet<Ordinal> {
    let members = observed.flock().members();
    let mut ready: BTreeSet<_> =
        members.iter().filter(|(_, pod)| pin(pod) == Pin::None).map(|(ordinal, _)| *ordinal).collect();
    if observed.view.namespace(observed.key.namespace.as_str()).is_none() {
        forget_namespace(observed, plan);
        return ready;
    }
    if !observed.flock().is_pinned() && observed.view.places(observed.key).is_empty() {
        return ready;
    }
    report_garbage(observed, plan);
    for (ordinal, nodes) in observed.view.places(observed.key) {
        if nodes.len() == 1 {
            ready.insert(*ordinal);
        }
    }
    let namespace = observed.key.namespace.as_str();
    let holder = record_holder(observed).and_then(|name| observed.view.service(namespace, &name));
    // Without the Service there is no record to write to: it is made first, and this is looked at again.
    let Some(service) = holder else { return ready };
    let read = Record::parse(service.places.as_deref().unwrap_or("{}"));
    let (record, trusted) = match read {
        Ok(record) => (record, true),
        Err(error) => {
            let way_out = "is ignored and no ordinal without a node label is placed; remove the annotation to have \
                           it made anew from the labels";
            let message = format!("Annotation flock.dev/places cannot be read ({error}): it {way_out}");
            plan.warn(Subject::Service(service.name.clone(), service.uid.clone()), "BadRecord", message);
            (observed.memory.record.clone().unwrap_or_default(), false)
        }
    };
    let mut work = Work { observed, service, record: record.clone(), labels: Vec::new(), ready, trusted };
    work.findings(plan);
    work.virgin(plan);
    work.finish(&record, plan)
}

struct Work<'a> {
    observed: &'a Observed<'a>,
    service: &'a ServiceFacts,
    record: Record,
    labels: Vec<Action>,
    ready: BTreeSet<Ordinal>,
    trusted: bool,
}

impl<'a> Work<'a> {
    fn findings(&mut self, plan: &mut Plan) {
        let findings =
            compare(self.observed.key, self.observed.view.nodes(), &self.record, &running(self.observed));
        self.record = updated(&self.record, &findings);
        let mut lost_now = BTreeSet::new();
        for finding in &findings {
            if finding.holds() {
                self.ready.remove(&finding.ordinal());
            }
            match finding {
                Finding::Relabel { ordinal, node, .. } => self.label(*ordinal, node),
                Finding::Unlabel { ordinal, node, .. } => self.unlabel(*ordinal, node),
                Finding::NodeGone { ordinal, .. } => {
                    lost_now.insert(*ordinal);
                    self.node_lost(*ordinal, finding, plan);
                }
                _ => {}
            }
            if finding.is_report() && !matches!(finding, Finding::NodeGone { .. }) {
                self.report(finding, plan);
            }
        }
        for (ordinal, nodes) in self.observed.view.places(self.observed.key) {
            let facts = nodes.first().and_then(|node| self.observed.view.nodes().get(node));
            if nodes.len() == 1 && lost(facts) == Some(Proof::OutOfService) {
                lost_now.insert(*ordinal);
                self.out_of_service(*ordinal, plan);
            }
        }
        plan.memory.lost_since.retain(|ordinal, _| lost_now.contains(ordinal));
    }

    fn report(&self, finding: &Finding, plan: &mut Plan) {
        let message = finding.sentence(self.observed.key);
        plan.warn(self.subject(finding.ordinal()), "Place", message);
    }

    /// The member's owner or pod; the Service where there is neither.
    fn subject(&self, ordinal: Ordinal) -> Subject {
        self.observed.flock().holder(ordinal).map_or_else(
            || Subject::Service(self.service.name.clone(), self.service.uid.clone()),
            |pod| Subject::owner_or_pod(self.observed, pod),
        )
    }

    /// The member that waits for a lost node's return, if its old pod object is gone.
    fn waiting(&self, ordinal: Ordinal) -> Option<&'a PodFacts> {
        self.observed.flock().holder(ordinal).filter(|pod| pod.is_live() && pod.node.is_none())
    }

    fn node_lost(&mut self, ordinal: Ordinal, finding: &Finding, plan: &mut Plan) {
        let Some(pod) = self.waiting(ordinal) else { return };
        let Some(node) = self.record.get(ordinal).map(|place| place.node.clone()) else { return };
        if !self.may_reassign(ordinal, pod, plan) {
            let message = finding.sentence(self.observed.key);
            plan.warn(Subject::owner_or_pod(self.observed, pod), "NodeLost", message);
            return;
        }
        self.labels.push(Action::ConfirmGone { what: Gone::Node(node.to_string()) });
        self.reassign(ordinal, pod, &node, plan);
    }

    fn out_of_service(&mut self, ordinal: Ordinal, plan: &mut Plan) {
        let Some(pod) = self.waiting(ordinal) else { return };
        let nodes = self.observed.view.places(self.observed.key).get(&ordinal);
        let Some(node) = nodes.and_then(|nodes| nodes.first()).cloned() else { return };
        if !self.may_reassign(ordinal, pod, plan) {
            plan.warn(
                Subject::owner_or_pod(self.observed, pod),
                "NodeLost",
                format!(
                    "Node {node} of {} is out of service; the member waits for it. To give it another node, \
                     without its data: flock release {} {ordinal} -n {}",
                    pod.name, self.observed.key.flock, self.observed.key.namespace
                ),
            );
            return;
        }
        if self.reassign(ordinal, pod, &node, plan) {
            self.unlabel(ordinal, &node);
        }
    }

    /// Whether the flock's policy gives the ordinal another node now. Notes since when the node is gone.
    fn may_reassign(&self, ordinal: Ordinal, pod: &PodFacts, plan: &mut Plan) -> bool {
        let template = self.observed.owner(pod).map_or(&pod.template, |owner| &owner.template);
        if template.settings().on_node_loss == OnNodeLoss::Wait || !self.trusted {
            return false;
        }
        let since = *plan.memory.lost_since.entry(ordinal).or_insert(self.observed.now);
        let due = since + self.observed.config.node_loss_grace;
        if self.observed.now < due {
            plan.look_again(due);
            return false;
        }
        true
    }

    fn reassign(&mut self, ordinal: Ordinal, pod: &PodFacts, from: &NodeName, plan: &mut Plan) -> bool {
        let tried = BTreeSet::from([from.clone()]);
        match self.placer().place(ordinal, &pod.template.constraints, pin(pod), by_hand(pod, ordinal), &tried) {
            Ok(node) => {
                let mut place = Place::new(node.name.clone(), node.machine_id.clone());
                place.chosen_for = Some(pod.uid.clone());
                self.record.insert(ordinal, place);
                plan.warn(
                    Subject::owner_or_pod(self.observed, pod),
                    "Reassigned",
                    format!(
                        "Node {from} of {} is lost; the member starts on node {} (flock.dev/on-node-loss: \
                         Reassign). Its data stayed behind on {from}",
                        pod.name, node.name
                    ),
                );
                let name = node.name.clone();
                self.label(ordinal, &name);
                self.ready.insert(ordinal);
                true
            }
            Err(problem) => {
                plan.warn(Subject::owner_or_pod(self.observed, pod), "NoPlace", problem.to_string());
                false
            }
        }
    }

    fn placer(&self) -> Placer<'a> {
        let mut placer = Placer::new(self.observed.view.nodes().values(), self.observed.key);
        for (ordinal, place) in self.record.iter() {
            if !self.observed.view.places(self.observed.key).contains_key(&ordinal) && !place.released {
                placer.reserve(ordinal, &place.node);
            }
        }
        placer
    }

    /// First places, and the next ones of ordinals that never ran and that the scheduler refuses where they are.
    fn virgin(&mut self, plan: &mut Plan) {
        let members = self.observed.flock().members();
        plan.memory.tried.retain(|ordinal, _| members.get(ordinal).is_some_and(|pod| pod.node.is_none()));
        if !self.trusted {
            return;
        }
        let mut placer = None;
        for (ordinal, pod) in members {
            if !pod.is_live() || pod.node.is_some() || pin(pod) == Pin::None {
                continue;
            }
            let labelled = self.observed.view.places(self.observed.key).get(&ordinal);
            let place = self.record.get(ordinal);
            match (labelled, place) {
                (None, None) if pod.gated => {}
                (Some(nodes), Some(place)) if nodes.len() == 1 && self.is_virgin(ordinal, pod, place) => {
                    if !self.is_refused(ordinal, pod, plan) {
                        continue;
                    }
                }
                _ => continue,
            }
            let placer = placer.get_or_insert_with(|| self.placer());
            let tried = plan.memory.tried.entry(ordinal).or_default();
            let found =
                placer.place(ordinal, &pod.template.constraints, pin(pod), by_hand(pod, ordinal), &tried.nodes);
            match found {
                Ok(node) => {
                    let name = node.name.clone();
                    let before = labelled.and_then(|nodes| nodes.first()).filter(|before| **before != name);
                    if labelled.is_some() && before.is_none() {
                        continue;
                    }
                    let mut place = Place::new(name.clone(), node.machine_id.clone());
                    place.chosen_for = Some(pod.uid.clone());
                    self.record.insert(ordinal, place);
                    tried.moved = Some(self.observed.now);
                    self.label(ordinal, &name);
                    if let Some(before) = before.cloned() {
                        self.unlabel(ordinal, &before);
                    }
                    self.ready.insert(ordinal);
                }
                Err(problem) => {
                    if matches!(problem, NoPlace::AllTried { .. }) {
                        // Slowly from the start: one of the nodes may have room by then.
                        let next = *tried.exhausted.get_or_insert(self.observed.now) + NEXT_ROUND;
                        if next <= self.observed.now {
                            *tried = super::Tried::default();
                        }
                        plan.look_again(next.max(self.observed.now));
                    }
                    plan.warn(Subject::owner_or_pod(self.observed, pod), "NoPlace", problem.to_string());
                }
            }
        }
    }

    /// Whether the ordinal's place was chosen for this very pod, or for pods that all went without having had a
    /// node: then nothing of it can be there.
    fn is_virgin(&self, ordinal: Ordinal, pod: &PodFacts, place: &Place) -> bool {
        place.chosen_for.as_ref().is_some_and(|uid| {
            *uid == pod.uid || self.observed.flock().went_unbound(ordinal, uid)
        })
    }

    /// Whether the scheduler has refused the pod where its place is now, and had time to look at it.
    fn is_refused(&self, ordinal: Ordinal, pod: &PodFacts, plan: &mut Plan) -> bool {
        if pod.unschedulable.is_none() || pod.gated {
            return false;
        }
        let tried = plan.memory.tried.entry(ordinal).or_default();
        let due = *tried.moved.get_or_insert(self.observed.now) + VERDICT;
        if self.observed.now < due {
            plan.look_again(due);
            return false;
        }
        let here = self.observed.view.places(self.observed.key).get(&ordinal);
        tried.nodes.extend(here.and_then(|nodes| nodes.first()).cloned());
        true
    }

    fn label(&mut self, ordinal: Ordinal, node: &NodeName) {
        if let Some(facts) = self.observed.view.nodes().get(node) {
            self.labels.push(Action::Label { node: node.to_string(), uid: facts.uid.clone(), ordinal });
        }
    }

    fn unlabel(&mut self, ordinal: Ordinal, node: &NodeName) {
        if let Some(facts) = self.observed.view.nodes().get(node) {
            self.labels.push(Action::Unlabel { node: node.to_string(), uid: facts.uid.clone(), ordinal });
        }
    }

    /// Record first, labels after it: a second leader with an old view fails at the record.
    fn finish(self, before: &Record, plan: &mut Plan) -> BTreeSet<Ordinal> {
        plan.memory.record = Some(self.record.clone());
        let missing = self.service.places.is_none();
        if self.trusted && (missing || self.record != *before) {
            match self.record.render() {
                Ok(record) => plan.actions.push(Action::WriteRecord {
                    service: self.service.name.clone(),
                    version: self.service.resource_version.clone(),
                    record,
                }),
                Err(error) => {
                    let subject = Subject::Service(self.service.name.clone(), self.service.uid.clone());
                    plan.warn(subject, "BadRecord", format!("The record of places cannot be written: {error}"));
                    return self.ready;
                }
            }
        }
        plan.actions.extend(self.labels);
        self.ready
    }
}

fn pin(pod: &PodFacts) -> Pin {
    pod.template.settings.as_ref().map_or(Pin::Exclusive, |settings| settings.pin)
}

fn by_hand(pod: &PodFacts, ordinal: Ordinal) -> Option<&str> {
    let settings = pod.template.settings.as_ref().ok()?;
    settings.nodes.get(ordinal.get() as usize).map(String::as_str)
}

/// The namespace is gone: nothing of this flock can come back, since a namespace of the same name has another uid
/// and so other directories.
fn forget_namespace(observed: &Observed<'_>, plan: &mut Plan) {
    let places = observed.view.places(observed.key);
    if !places.is_empty() {
        let what = Gone::Namespace(observed.key.namespace.to_string());
        plan.actions.push(Action::ConfirmGone { what });
    }
    for (ordinal, nodes) in places {
        for node in nodes {
            if let Some(facts) = observed.view.nodes().get(node) {
                plan.actions.push(Action::Unlabel {
                    node: node.to_string(),
                    uid: facts.uid.clone(),
                    ordinal: *ordinal,
                });
            }
        }
    }
}

fn report_garbage(observed: &Observed<'_>, plan: &mut Plan) {
    let prefix = format!("{}/", observed.key.node_label_prefix());
    for node in observed.view.nodes().values() {
        for label in node.garbage_labels.iter().filter(|label| label.starts_with(&prefix)) {
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
