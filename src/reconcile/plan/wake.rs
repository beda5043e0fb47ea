//! Wake: a workload that was refused sleeps in its back-off (5 ms doubling to 1000 s), and only the end of its
//! *own* pod wakes it. Any change of it does too (`updateRS` in
//! `k8s.io/kubernetes/pkg/controller/replicaset/replica_set.go`), so an annotation is enough.

use jiff::SignedDuration;

use crate::view::{Failure, Flock, WorkloadFacts};

use super::{Action, Observed, Plan, Starved};

/// A workload that does not say that it was refused gets this long: it is probably just at work.
const PATIENCE: SignedDuration = SignedDuration::from_secs(3);
/// What was looked up of a workload without the label may be 5 s old: it must lack pods in two looks.
const STALE: SignedDuration = SignedDuration::from_secs(7);
/// The first pause between two wakes; it doubles.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// The longest pause.
const LONGEST: SignedDuration = SignedDuration::from_secs(60);
/// The first pause, and the longest, where something else than Flock refused first: such as a quota, which its own
/// back-off is right for. But the workload keeps the message of its *first* failure (`calculateStatus` in
/// `replica_set_utils.go`), so that by now it may be an ordinal that it waited for.
const SLOW_PAUSE: SignedDuration = SignedDuration::from_secs(30);
const SLOW_LONGEST: SignedDuration = SignedDuration::from_secs(300);

pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) {
    let flock = observed.flock();
    plan.memory
        .starved
        .retain(|uid, _| flock.workloads().contains_key(uid));
    for workload in flock.workloads().values() {
        if is_starved(observed, workload) {
            wake(observed, workload, plan);
        } else {
            plan.memory.starved.remove(&workload.uid);
        }
    }
}

/// Whether it lacks a pod though it may hold an ordinal that is free, and nothing else stands in its way.
fn is_starved(observed: &Observed<'_>, workload: &WorkloadFacts) -> bool {
    let flock = observed.flock();
    let newest = flock.newest(workload);
    let turn = newest.uid == workload.uid || flock.missing(newest) == 0;
    turn && flock.missing(workload) > 0
        && Flock::allowed(workload)
            .iter()
            .any(|ordinal| !flock.is_held(ordinal))
}

fn wake(observed: &Observed<'_>, workload: &WorkloadFacts, plan: &mut Plan) {
    let now = observed.now;
    let starved = plan
        .memory
        .starved
        .entry(workload.uid.clone())
        .or_insert(Starved {
            since: now,
            wakes: 0,
            woken: None,
        });
    let (first, pause, longest) = match workload.failing {
        Some(Failure::Flock | Failure::NameTaken { .. }) => (SignedDuration::ZERO, PAUSE, LONGEST),
        Some(Failure::Other) => (SLOW_PAUSE, SLOW_PAUSE, SLOW_LONGEST),
        None => (PATIENCE, PAUSE, LONGEST),
    };
    let first = if workload.labelled {
        first
    } else {
        first.max(STALE)
    };
    let after = |wakes: u32| longest.min(pause * 2_i32.pow(wakes.saturating_sub(1).min(6)));
    let due = match starved.woken {
        None => starved.since + first,
        Some(woken) => woken + after(starved.wakes),
    };
    if now < due {
        plan.look_again(due);
        return;
    }
    starved.wakes += 1;
    starved.woken = Some(now);
    let again = now + after(starved.wakes);
    plan.look_again(again);
    plan.actions.push(Action::Wake {
        kind: workload.kind,
        name: workload.name.clone(),
        uid: workload.uid.clone(),
    });
}
