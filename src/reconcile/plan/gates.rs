//! Gates: a member is seen by the scheduler once its place, its volumes and its Service are there, and, in an
//! ordered flock, once it is its turn.

use std::collections::BTreeSet;

use crate::identity::{Ordinal, Start};
use crate::view::PodFacts;

use super::{Action, Observed, Plan, Subject};

/// Opens the gates of the members in `placed`, the ordinals whose place is ready.
pub(super) fn plan(observed: &Observed<'_>, placed: &BTreeSet<Ordinal>, plan: &mut Plan) {
    for (ordinal, pod) in observed.flock().members() {
        if !pod.gated || !pod.is_live() || !placed.contains(&ordinal) {
            continue;
        }
        if waits_for(observed, ordinal, pod).is_some() {
            plan.wait([ordinal], "WaitingForTurn");
            // Without the one that it waits for just now: a flock of N would tell N × N / 2 events.
            plan.note(
                Subject::pod(pod),
                "WaitingForTurn",
                format!(
                    "Waits until all members below {} are Ready, since the flock starts in order \
                     (flock.dev/start: Ordered)",
                    pod.name
                ),
            );
            continue;
        }
        // The scheduler's time for a verdict begins now.
        if let Some(tried) = plan.memory.tried.get_mut(&ordinal) {
            tried.moved = Some(observed.now);
        }
        plan.actions.push(Action::OpenGate {
            pod: pod.name.clone(),
            uid: pod.uid.clone(),
        });
    }
}

/// The lowest ordinal that an ordered start waits for. It never waits for a member of an old revision: that one
/// may be broken, and this pod its cure.
fn waits_for(observed: &Observed<'_>, ordinal: Ordinal, pod: &PodFacts) -> Option<Ordinal> {
    // What the owner says now counts, so that the order can be switched while pods wait.
    let template = observed.owner(pod).map_or(&pod.template, |owner| &owner.template);
    if template.settings().start == Start::Parallel {
        return None;
    }
    let flock = observed.flock();
    let wanted = flock.wanted();
    let mut lower = wanted.iter().take_while(|lower| *lower < ordinal);
    lower.find(|lower| match flock.holder(*lower) {
        None => true,
        Some(holder) if observed.is_old(holder) => false,
        Some(holder) => !(holder.is_live() && holder.ready_since.is_some()),
    })
}
