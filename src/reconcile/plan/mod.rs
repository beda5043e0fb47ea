//! What is to be done about one flock: a pure function from what is observed to a list of actions (DESIGN 5).
//!
//! A consistent flock yields no action. Actions are in the order in which they must be carried out; an action
//! that fails ends the list, and the flock is looked at again.

mod action;
mod bury;
mod gates;
mod memory;
mod places;
mod rollout;
mod service;
mod strangers;
#[cfg(test)]
mod tests;
mod volumes;
mod wake;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::identity::{FlockKey, Ordinal};
use crate::storage::HelperConfig;
use crate::view::{Flock, PodFacts, View, WorkloadFacts};

pub use action::{ACTIONS, Action, Gone, Note, Subject, Why};
pub use memory::{Buried, Memory, Starved, Tried};
pub use volumes::StorageAction;

/// What an administrator configured for the reconciler.
#[derive(Clone, Debug)]
pub struct PlanConfig {
    /// How long a node must be proven gone before `Reassign` acts.
    pub node_loss_grace: SignedDuration,
    /// The helper pods that prepare directories.
    pub helper: HelperConfig,
}

impl Default for PlanConfig {
    /// A grace of five minutes: as long as Kubernetes tolerates an unreachable node by default
    /// (DefaultTolerationSeconds).
    fn default() -> Self {
        let helper = HelperConfig {
            namespace: "flock-system".into(),
            root: "/var/lib/flock".into(),
        };
        Self {
            node_loss_grace: SignedDuration::from_mins(5),
            helper,
        }
    }
}

/// What is observed of a flock.
pub struct Observed<'a> {
    /// Which flock.
    pub key: &'a FlockKey,
    /// The cluster.
    pub view: &'a View,
    /// `maxUnavailable` in pods of each Deployment, by uid, as far as it was looked up.
    pub budgets: &'a HashMap<String, u32>,
    /// What the reconciler remembers of this flock.
    pub memory: &'a Memory,
    /// The configuration.
    pub config: &'a PlanConfig,
    /// The time.
    pub now: Timestamp,
}

impl<'a> Observed<'a> {
    /// The flock's pods and workloads.
    pub fn flock(&self) -> &'a Flock {
        self.view.flock(self.key)
    }

    /// Whether nothing is left of the flock.
    fn is_over(&self) -> bool {
        let traces =
            self.view.places(self.key).is_empty() && self.view.services_of(self.key).next().is_none();
        traces && self.flock().is_empty()
    }

    /// The workload that owns a pod.
    fn owner(&self, pod: &PodFacts) -> Option<&'a WorkloadFacts> {
        self.flock().workloads().get(&pod.owner.as_ref()?.uid)
    }

    /// Whether the pod's workload has been replaced by a newer revision.
    fn is_old(&self, pod: &PodFacts) -> bool {
        self.owner(pod)
            .is_some_and(|owner| self.flock().newest(owner).uid != owner.uid)
    }

    fn is_available(&self, pod: &PodFacts) -> bool {
        pod.is_available(
            self.owner(pod).map_or(0, |owner| owner.min_ready_seconds),
            self.now,
        )
    }
}

/// The members that cannot start, or be succeeded, until something changes: by the reason that is told of them.
pub type Waiting = BTreeMap<&'static str, BTreeSet<Ordinal>>;

/// The plan.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// What to say.
    pub notes: Vec<Note>,
    /// Who waits.
    pub waiting: Waiting,
    /// When to look again, if nothing happens before.
    pub again: Option<Timestamp>,
    /// What to remember.
    pub memory: Memory,
}

impl Plan {
    fn note(&mut self, subject: Subject, reason: &'static str, message: impl Into<String>) {
        self.notes.push(Note {
            subject,
            reason,
            warning: false,
            message: message.into(),
            rests_on: None,
        });
    }

    fn warn(&mut self, subject: Subject, reason: &'static str, message: impl Into<String>) {
        self.notes.push(Note {
            subject,
            reason,
            warning: true,
            message: message.into(),
            rests_on: None,
        });
    }

    /// These members wait, for what is told by this reason.
    fn wait(&mut self, members: impl IntoIterator<Item = Ordinal>, reason: &'static str) {
        let mut members = members.into_iter().peekable();
        if members.peek().is_some() {
            self.waiting.entry(reason).or_default().extend(members);
        }
    }

    /// Warns of what members wait for.
    fn stuck(
        &mut self,
        members: impl IntoIterator<Item = Ordinal>,
        subject: Subject,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        self.wait(members, reason);
        self.warn(subject, reason, message);
    }

    /// Plans an action, and what is told of it once it is done.
    fn act(&mut self, action: Action, subject: Subject, reason: &'static str, message: impl Into<String>) {
        let rests_on = Some(self.actions.len());
        self.actions.push(action);
        self.notes.push(Note {
            subject,
            reason,
            warning: false,
            message: message.into(),
            rests_on,
        });
    }

    fn look_again(&mut self, at: Timestamp) {
        self.again = Some(self.again.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Plans for one flock.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let namespace = observed.view.namespace(observed.key.namespace.as_str());
    // A namespace of the same name made later is another one, of which nothing is known yet.
    let uid = namespace.map(|namespace| namespace.uid.clone());
    let memory = if observed.memory.namespace == uid {
        observed.memory.clone()
    } else {
        Memory {
            namespace: uid,
            ..Memory::default()
        }
    };
    let observed = &Observed {
        memory: &memory,
        ..*observed
    };
    let mut plan = Plan {
        memory: memory.clone(),
        ..Plan::default()
    };
    let terminating = namespace.is_some_and(|namespace| namespace.terminating);
    if !terminating {
        bury::plan(observed, &mut plan);
        service::plan(observed, &mut plan);
    }
    let placed = places::plan(observed, &mut plan);
    volumes::dismiss(observed, &mut plan);
    if terminating {
        // Nobody can be told any more: no event can be made there.
        plan.notes.clear();
        plan.waiting.clear();
    } else {
        let ready = volumes::plan(observed, &placed, &mut plan);
        gates::plan(observed, &ready, &mut plan);
        rollout::plan(observed, &mut plan);
        wake::plan(observed, &mut plan);
        strangers::plan(observed, &mut plan);
    }
    if plan.actions.is_empty() && observed.is_over() {
        plan.memory = Memory::default();
    }
    plan
}
