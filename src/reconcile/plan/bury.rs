//! Bury: a pod that is over holds its name for ever, and its ReplicaSet only makes another one
//! (`FilterActivePods` in `k8s.io/kubernetes/pkg/controller/controller_utils.go`).

use jiff::SignedDuration;

use crate::identity::Ordinal;
use crate::view::Phase;

use super::{Action, Buried, Observed, Plan, Subject, Why};

/// The pause before the second burial of an ordinal in short order; it doubles. A node that refuses a pod
/// (`OutOfcpu`, a port that is taken) ends it at once, and its ReplicaSet makes the next one as soon.
const PAUSE: SignedDuration = SignedDuration::from_secs(1);
/// The longest pause.
const LONGEST: SignedDuration = SignedDuration::from_secs(60);
/// After this long without a burial, the next one is a first one again.
const FORGOTTEN: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) {
    plan.memory
        .buried
        .retain(|_, buried| observed.now.duration_since(buried.last) < FORGOTTEN);
    for pod in observed.flock().pods().values() {
        let Some(ordinal) = pod
            .ordinal
            .filter(|_| pod.phase == Phase::Over && !pod.terminating)
        else {
            continue;
        };
        let buried = pod
            .owner
            .as_ref()
            .is_some_and(|owner| matches!(owner.kind.as_str(), "ReplicaSet" | "ReplicationController"));
        let reason = pod.reason.as_deref().unwrap_or("no reason was given");
        if buried {
            if !is_due(observed, ordinal, plan) {
                continue;
            }
            plan.act(
                Action::Delete {
                    pod: pod.name.clone(),
                    uid: pod.uid.clone(),
                    version: pod.resource_version.clone(),
                    why: Why::Bury,
                },
                Subject::owner_or_pod(observed, pod),
                "Buried",
                format!(
                    "Deleted pod {}, which had ended ({reason}), so that its ordinal can run again",
                    pod.name
                ),
            );
        } else if pod.owner.is_none() {
            plan.stuck(
                [ordinal],
                Subject::pod(pod),
                "OrdinalHeld",
                format!(
                    "Pod {0} has ended ({reason}) and goes on holding its ordinal, since nobody but its user may \
                     remove a bare pod: kubectl delete pod {0}",
                    pod.name
                ),
            );
        }
    }
}

/// Whether the pod of this ordinal may be buried now; notes that it is.
fn is_due(observed: &Observed<'_>, ordinal: Ordinal, plan: &mut Plan) -> bool {
    let before = plan.memory.buried.get(&ordinal);
    let times = before.map_or(0, |buried| buried.times);
    if let Some(buried) = before {
        let due = buried.last + LONGEST.min(PAUSE * 2_i32.pow((times - 1).min(6)));
        if observed.now < due {
            plan.look_again(due);
            return false;
        }
    }
    plan.memory.buried.insert(
        ordinal,
        Buried {
            times: times + 1,
            last: observed.now,
        },
    );
    true
}
