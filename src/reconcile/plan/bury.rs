//! Bury: a pod that is over holds its name for ever, and its ReplicaSet only makes another one
//! (`FilterActivePods` in `k8s.io/kubernetes/pkg/controller/controller_utils.go`).

use crate::view::Phase;

use super::{Action, Observed, Plan, Subject, Why};

pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) {
    for pod in observed.flock().pods().values() {
        if pod.phase != Phase::Over || pod.terminating || pod.ordinal.is_none() {
            continue;
        }
        let buried = pod.owner.as_ref().is_some_and(|owner| {
            matches!(owner.kind.as_str(), "ReplicaSet" | "ReplicationController")
        });
        let reason = pod.reason.as_deref().unwrap_or("no reason was given");
        if buried {
            plan.note(
                Subject::owner_or_pod(observed, pod),
                "Buried",
                format!("Deleted pod {}, which had ended ({reason}), so that its ordinal can run again", pod.name),
            );
            plan.actions.push(Action::Delete {
                pod: pod.name.clone(),
                uid: pod.uid.clone(),
                version: pod.resource_version.clone(),
                why: Why::Bury,
            });
        } else if pod.owner.is_none() {
            plan.warn(
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
