//! Pods of a workload that carry the flock's label and no ordinal: the API server made them while nobody called Flock.
//! They run beside the flock, on volumes of their own, which hold data by now; so they are not ended, but told of.

use super::{Observed, Plan, Subject};

pub(super) fn plan(observed: &Observed<'_>, plan: &mut Plan) {
    for pod in observed.flock().pods().values() {
        let Some(owner) = observed
            .owner(pod)
            .filter(|owner| pod.ordinal.is_none() && pod.is_live() && !owner.terminating)
        else {
            continue;
        };
        plan.warn(
            Subject::workload(owner),
            "NotAMember",
            format!(
                "Pod {0} carries the label flock.dev/name and no ordinal, since Flock was not asked when it was created: \
                 it is no member and does not see a member's data. A member takes its place once it is deleted: kubectl \
                 delete pod {0}",
                pod.name
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rstest::rstest;

    use crate::reconcile::plan::{Action, Memory, PlanConfig, plan};
    use crate::view::PodFacts;
    use crate::view::fixtures::{key, now, pod, set, view};

    use super::Observed;

    fn stranger() -> PodFacts {
        let mut pod = pod(1, "rs");
        pod.name = "rs-x7k2p".into();
        pod.ordinal = None;
        pod
    }

    #[rstest]
    #[case::a_stranger(vec![pod(0, "rs"), stranger()], 1)]
    #[case::one_that_goes(vec![pod(0, "rs"), stranger().going()], 0)]
    #[case::one_that_is_over(vec![pod(0, "rs"), stranger().over("Evicted")], 0)]
    #[case::one_of_nobody_s(vec![pod(0, "rs"), stranger().bare()], 0)]
    #[case::members_only(vec![pod(0, "rs"), pod(1, "rs")], 0)]
    fn a_workload_s_pod_without_an_ordinal_is_told_of_and_stays(
        #[case] pods: Vec<PodFacts>,
        #[case] told: usize,
    ) {
        let plan = plan(&Observed {
            key: &key(),
            view: &view(vec![set("rs", 2)], pods),
            budgets: &HashMap::new(),
            memory: &Memory::default(),
            config: &PlanConfig::default(),
            now: now(),
        });
        let notes = plan.notes.iter().filter(|note| note.reason == "NotAMember");
        let text: Vec<_> = notes.map(|note| note.message.as_str()).collect();
        assert_eq!(text.len(), told, "{text:?}");
        assert!(
            text.iter()
                .all(|text| text.ends_with("kubectl delete pod rs-x7k2p"))
        );
        let ends = |action: &Action| matches!(action, Action::Evict { .. } | Action::Delete { .. });
        assert!(!plan.actions.iter().any(ends), "{:?}", plan.actions);
    }
}
