//! Ordinals that never ran: their first node, and the next one where the scheduler refuses it.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use crate::identity::{Ordinal, Pin};
use crate::place::{NoPlace, Place, Placer};
use crate::view::PodFacts;

use super::super::{Plan, Subject, Tried};
use super::{Work, by_hand, pin};

/// The scheduler looks at a pod again after a back-off of 1, 2, 4, 8 and then always 10 seconds
/// (`podInitialBackoffSeconds`, `podMaxBackoffSeconds`): so long, its last verdict is about the node before.
const LONGEST_BACK_OFF: i64 = 10;
/// How long all nodes that were tried are left alone before they are tried again.
const NEXT_ROUND: SignedDuration = SignedDuration::from_secs(60);
/// So many members are named in an event; of the others their number is told.
const NAMED: usize = 10;

/// Members that wait for the same reason: told once for each owner, not once for each member.
type Problems = BTreeMap<(Subject, String), (NoPlace, Vec<(Ordinal, String)>)>;

impl<'a> Work<'a> {
    pub(super) fn placer(&mut self) -> &mut Placer<'a> {
        let (view, key, record) = (self.observed.view, self.observed.key, &self.record);
        self.placer.get_or_insert_with(|| {
            let mut placer = Placer::new(view.nodes().values(), key);
            for (ordinal, place) in record.iter().filter(|(_, place)| !place.released) {
                if !view
                    .places(key)
                    .get(&ordinal)
                    .is_some_and(|nodes| nodes.contains(&place.node))
                {
                    placer.reserve(ordinal, &place.node);
                }
            }
            placer
        })
    }

    /// First places, and the next ones of ordinals that never ran and that the scheduler refuses where they are.
    pub(super) fn virgin(&mut self, plan: &mut Plan) {
        let members = self.observed.flock().members();
        let waits = |ordinal: &Ordinal| members.get(ordinal).is_some_and(|pod| pod.node.is_none());
        plan.memory.tried.retain(|ordinal, _| waits(ordinal));
        plan.memory.freed.retain(|ordinal| waits(ordinal));
        plan.memory.reassigned.retain(|ordinal, _| waits(ordinal));
        if !self.trusted {
            return;
        }
        let mut problems = Problems::new();
        for (ordinal, pod) in members {
            if !pod.is_live() || pod.node.is_some() || pin(pod) == Pin::None {
                continue;
            }
            let several = self
                .observed
                .view
                .places(self.observed.key)
                .contains_key(&ordinal);
            match (self.labelled(ordinal), self.record.get(ordinal)) {
                (None, None) if several => {}
                (None, None) if pod.gated || plan.memory.freed.contains(&ordinal) => {
                    self.place(ordinal, pod, plan, &mut problems);
                }
                (None, Some(place))
                    if !several && self.is_lost(place) && self.waits_unused(ordinal, plan) =>
                {
                    self.place(ordinal, pod, plan, &mut problems);
                }
                (None, None) => self.report_unknown(ordinal, pod, plan),
                (Some(_), Some(place)) if !place.released && self.is_virgin(ordinal, pod, place, plan) => {
                    self.remember_pod(ordinal, pod);
                    if self.is_refused(ordinal, pod, plan) {
                        self.place(ordinal, pod, plan, &mut problems);
                    }
                }
                _ => {}
            }
        }
        for ((subject, _), (problem, members)) in problems {
            let (ordinals, pods): (Vec<_>, Vec<_>) = members.into_iter().unzip();
            plan.stuck(
                ordinals,
                subject,
                "NoPlace",
                problem.about(list(&pods)).to_string(),
            );
        }
    }

    fn place(&mut self, ordinal: Ordinal, pod: &PodFacts, plan: &mut Plan, problems: &mut Problems) {
        let now = self.observed.now;
        let before = self.labelled(ordinal);
        // Reassigned ones carry no mark, for the reason told where they are.
        let marked = before.is_none()
            || self
                .record
                .get(ordinal)
                .is_some_and(|place| place.chosen_for.is_some());
        let tried = plan.memory.tried.entry(ordinal).or_default();
        let (constraints, pin, by_hand) = (&pod.template.constraints, pin(pod), by_hand(pod, ordinal));
        match self
            .placer()
            .place(ordinal, constraints, pin, by_hand, &tried.nodes)
        {
            Ok(node) if before == Some(&node.name) => {}
            Ok(node) => {
                let mut place = Place::new(node.name.clone(), node.machine_id.clone());
                place.chosen_for = marked.then(|| pod.uid.clone());
                self.record.insert(ordinal, place);
                tried.moved = Some(now);
                self.label(ordinal, &node.name);
                if let Some(before) = before {
                    self.unlabel(ordinal, before);
                }
                plan.memory.freed.remove(&ordinal);
                self.ready.insert(ordinal);
            }
            Err(problem) => {
                if matches!(problem, NoPlace::AllTried { .. }) {
                    // Slowly from here on: one of the nodes may have room by then.
                    let next = *tried.exhausted.get_or_insert(now) + NEXT_ROUND;
                    if next <= now {
                        *tried = Tried {
                            moved: Some(now),
                            ..Tried::default()
                        };
                    }
                    plan.look_again(next.max(now));
                }
                let subject = Subject::owner_or_pod(self.observed, pod);
                let same = problem.about(String::new()).to_string();
                let (_, members) = problems
                    .entry((subject, same))
                    .or_insert_with(|| (problem, Vec::new()));
                members.push((ordinal, pod.name.clone()));
            }
        }
    }

    /// Neither a label nor the record tells where the member lived, and it was pinned when it was created: so it had a
    /// place, and perhaps data.
    fn report_unknown(&self, ordinal: Ordinal, pod: &PodFacts, plan: &mut Plan) {
        let label = self.observed.key.node_label(ordinal);
        plan.stuck(
            [ordinal],
            Subject::owner_or_pod(self.observed, pod),
            "PlaceUnknown",
            format!(
                "no node carries the label of {0} any more, and the record does not tell where it was: label the node \
                 that has its data: kubectl label node NODE {label}=, or have a node chosen for it, without its data: \
                 kubectl delete pod {0} --namespace {1}",
                pod.name, self.observed.key.namespace
            ),
        );
    }

    /// Whether the ordinal's place was chosen for this very pod, or for one that went without having had a node: then
    /// nothing of it can be there.
    pub(super) fn is_virgin(&self, ordinal: Ordinal, pod: &PodFacts, place: &Place, plan: &Plan) -> bool {
        let reassigned = plan.memory.reassigned.get(&ordinal) == Some(&pod.uid);
        reassigned
            || place
                .chosen_for
                .as_ref()
                .is_some_and(|uid| *uid == pod.uid || self.observed.flock().went_unbound(ordinal, uid))
    }

    /// Whether the node of a place is gone, or another machine.
    fn is_lost(&self, place: &Place) -> bool {
        let node = self.observed.view.nodes().get(&place.node);
        node.is_none_or(|node| place.machine.is_some() && !node.is_machine(place.machine.as_deref()))
    }

    /// The next leader has not seen the pod before go: let the record tell that this one waits in its stead.
    fn remember_pod(&mut self, ordinal: Ordinal, pod: &PodFacts) {
        let Some(place) = self.record.get(ordinal) else {
            return;
        };
        if place.chosen_for.as_ref().is_some_and(|uid| *uid != pod.uid) {
            let place = Place {
                chosen_for: Some(pod.uid.clone()),
                ..place.clone()
            };
            self.record.insert(ordinal, place);
        }
    }

    /// Whether the scheduler has refused the pod where its place is now, and had time to look at it.
    fn is_refused(&self, ordinal: Ordinal, pod: &PodFacts, plan: &mut Plan) -> bool {
        if pod.unschedulable.is_none() || pod.gated {
            return false;
        }
        let tried = plan.memory.tried.entry(ordinal).or_default();
        let attempts = u32::try_from(tried.nodes.len()).unwrap_or(u32::MAX);
        // Behind the gate there was no verdict, so the first one is about the first node, but for caches that lag.
        let back_off = 2_i64.saturating_pow(attempts).min(LONGEST_BACK_OFF);
        let wait = if attempts == 0 { 1 } else { back_off + 2 };
        let due = *tried.moved.get_or_insert(self.observed.now) + SignedDuration::from_secs(wait);
        if self.observed.now < due {
            plan.look_again(due);
            return false;
        }
        tried.nodes.extend(self.labelled(ordinal).cloned());
        true
    }
}

/// `db-0, db-1 and 7 more`.
fn list(pods: &[String]) -> String {
    let named = pods.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match pods.len().saturating_sub(NAMED) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
