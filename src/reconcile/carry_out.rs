//! Carries a plan's actions out, one after another; those of neighbours that do not rest on each other, such as the
//! gates of many members, side by side.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::identity::FlockKey;
use crate::leader::Lead;
use crate::metrics::ReconcileMetrics;

use super::apply::{Apply, ApplyError};
use super::plan::Action;

/// How long the API server gets for one answer. Flocks are looked at one after another: one request that is never
/// answered must not hold up all of them.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
/// How many requests are under way at once, at most.
const AT_ONCE: usize = 8;

/// What came of a plan's actions.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Those that were carried out, by their index.
    pub(super) done: BTreeSet<usize>,
    /// Pods that a PodDisruptionBudget keeps, with the API server's words.
    pub(super) blocked: Vec<(String, String)>,
    /// Whether one failed; those after it were not tried.
    pub(super) failed: bool,
}

/// Carries out `actions` while it is certain that this replica leads. `None`: it is not any more.
pub(super) async fn carry_out(
    apply: &Apply,
    metrics: &ReconcileMetrics,
    key: &FlockKey,
    actions: &[Action],
    lead: &Lead,
) -> Option<Outcome> {
    let mut outcome = Outcome::default();
    let mut index = 0;
    while index < actions.len() && !outcome.failed {
        // A leader that was paused may have lost its lease: this is looked at before each write.
        if !lead.is_certain() {
            return None;
        }
        let batch = &actions[index..index + batch(&actions[index..])];
        let mut answers = Vec::with_capacity(batch.len());
        for action in batch {
            answers.push(timeout(ANSWER, apply.run(key, action)).boxed());
        }
        let answers = join_all(answers).await;
        for (action, answer) in batch.iter().zip(answers) {
            match answer {
                Ok(Ok(())) => {
                    outcome.done.insert(index);
                    metrics.acted(action.name());
                    info!(flock = %key, ?action, "done");
                }
                Ok(Err(ApplyError::Blocked { pod, message })) => outcome.blocked.push((pod, message)),
                Ok(Err(ApplyError::Outdated(what))) => {
                    debug!(flock = %key, what, ?action, "outdated, planning anew");
                    outcome.failed = true;
                }
                Ok(Err(error)) => {
                    warn!(flock = %key, %error, "action failed");
                    metrics.failed();
                    outcome.failed = true;
                }
                Err(_) => {
                    warn!(flock = %key, ?action, "action was not answered");
                    metrics.failed();
                    outcome.failed = true;
                }
            }
            index += 1;
        }
    }
    Some(outcome)
}

/// How many actions from the first on do not rest on each other, as far as they may be under way at once.
fn batch(actions: &[Action]) -> usize {
    let alike = |action: &&Action| {
        matches!(
            (actions.first(), action),
            (Some(Action::Label { .. }), Action::Label { .. })
                | (Some(Action::OpenGate { .. }), Action::OpenGate { .. })
                | (Some(Action::Wake { .. }), Action::Wake { .. })
        )
    };
    actions.iter().take(AT_ONCE).take_while(alike).count().max(1)
}
