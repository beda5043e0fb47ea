//! Hand over and compact: which member must leave so that the right one can come.

use std::cmp::Reverse;

use crate::identity::{Ordinal, OrdinalSet};
use crate::view::{Flock, PodFacts, WorkloadFacts};

use super::{Action, Observed, Plan, Subject, Why};

pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) {
    let mut unavailable = unavailable(observed, plan);
    let mut workloads: Vec<_> = observed
        .flock()
        .workloads()
        .values()
        .filter(|w| !w.terminating)
        .collect();
    // A fixed order: of several Deployments that change together, the same one goes first on every look.
    workloads.sort_by_key(|workload| (&workload.name, &workload.uid));
    for workload in workloads {
        if observed.flock().newest(workload).uid == workload.uid {
            hand_over(observed, workload, &mut unavailable, plan);
            compact(observed, workload, plan);
        }
    }
}

/// How many of the ordinals that should run have no available member now.
fn unavailable(observed: &Observed<'_>, plan: &mut Plan) -> usize {
    // The members are counted and not the ordinals: a set may have ten million.
    let wanted = observed.flock().wanted();
    let mut available = 0;
    for (ordinal, pod) in observed.flock().members() {
        if !wanted.contains(ordinal) {
            continue;
        }
        if observed.is_available(pod) {
            available += 1;
            continue;
        }
        let owner = observed.owner(pod);
        let soon = pod
            .is_live()
            .then(|| pod.available_at(owner.map_or(0, |owner| owner.min_ready_seconds)));
        if let Some(at) = soon.flatten() {
            plan.look_again(at);
        }
    }
    wanted.len() - available
}

/// The newest ReplicaSet wants pods and no ordinal is free: members of older revisions leave. Unready ones
/// first, and whatever the budget: they serve nobody, and an undo of a broken rollout waits for just them. Then
/// the highest ordinals, while few enough members of the whole flock are unavailable.
fn hand_over(observed: &Observed<'_>, newest: &WorkloadFacts, unavailable: &mut usize, plan: &mut Plan) {
    let flock = observed.flock();
    let allowed = Flock::allowed(newest);
    let staying = flock.count_within(&allowed, PodFacts::is_live);
    let coming = allowed.len() - staying;
    let mut need = (flock.missing(newest) as usize).saturating_sub(coming);
    if need == 0 {
        return;
    }
    let mut old = old_members(observed, newest, &allowed);
    // Highest first among each.
    old.sort_by_key(|(ordinal, pod)| (pod.ready_since.is_some(), Reverse(*ordinal)));
    let budget = observed.budgets_of(newest).max(1);
    for (ordinal, pod) in old {
        if need == 0 {
            break;
        }
        if pod.ready_since.is_none() {
            plan.act(
                Action::Delete {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    version: pod.resource_version.clone(),
                    why: Why::HandOver,
                },
                Subject::workload(newest),
                "HandOver",
                format!("Deleted {} of an older revision, which was not Ready, so that ordinal {ordinal} can run this one", pod.name),
            );
            need -= 1;
            continue;
        }
        let counted_already = !observed.is_available(pod);
        let after = *unavailable + usize::from(!counted_already);
        if after > budget {
            continue;
        }
        plan.act(
            Action::Evict {
                pod: pod.name.clone(),
                uid: pod.uid.clone(),
                why: Why::HandOver,
            },
            Subject::workload(newest),
            "HandOver",
            format!(
                "Evicted {} of an older revision, so that ordinal {ordinal} can run this one",
                pod.name
            ),
        );
        *unavailable = after;
        need -= 1;
    }
}

fn old_members<'a>(
    observed: &Observed<'a>,
    newest: &WorkloadFacts,
    allowed: &OrdinalSet,
) -> Vec<(Ordinal, &'a PodFacts)> {
    let flock = observed.flock();
    flock
        .members()
        .into_iter()
        .filter(|(ordinal, pod)| {
            let of_older = observed
                .owner(pod)
                .is_some_and(|owner| owner.uid != newest.uid && flock.newest(owner).uid == newest.uid);
            of_older && pod.is_live() && allowed.contains(*ordinal)
        })
        .collect()
}

/// Members outside the set that their workload may hold, while one inside is vacant: the highest leaves, and
/// its workload's next pod takes the vacancy. One at a time, and never while the workload is being scaled down:
/// then the ReplicaSet controller is about to choose itself.
fn compact(observed: &Observed<'_>, workload: &WorkloadFacts, plan: &mut Plan) {
    let flock = observed.flock();
    let allowed = Flock::allowed(workload);
    let live: Vec<_> = flock.live_pods_of(&workload.uid).collect();
    if live.len() > workload.replicas as usize {
        return;
    }
    let outside = |pod: &&&PodFacts| pod.ordinal.is_some_and(|ordinal| !allowed.contains(ordinal));
    let one_is_leaving = flock
        .pods()
        .values()
        .filter(|pod| pod.is_owned_by(&workload.uid) && !pod.is_live())
        .any(|pod| outside(&&pod));
    let Some(highest) = live.iter().filter(outside).max_by_key(|pod| pod.ordinal) else {
        return;
    };
    let vacant = allowed.len() - flock.count_within(&allowed, |_| true);
    if one_is_leaving || vacant <= flock.missing(workload) as usize {
        return;
    }
    plan.act(
        Action::Evict {
            pod: highest.name.clone(),
            uid: highest.uid.clone(),
            why: Why::Compact,
        },
        Subject::workload(workload),
        "Compact",
        format!(
            "Evicted {}, which was outside the ordinals {allowed}, one of which is vacant",
            highest.name
        ),
    );
}

impl Observed<'_> {
    fn budgets_of(&self, workload: &WorkloadFacts) -> usize {
        let deployment = workload.deployment.as_ref();
        deployment
            .and_then(|d| self.budgets.get(&d.uid))
            .map_or(0, |budget| *budget as usize)
    }
}
