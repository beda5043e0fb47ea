//! Whether a node may get an ordinal that has never run.
//!
//! The rules are the scheduler's filters NodeUnschedulable, TaintToleration and NodeAffinity
//! (`k8s.io/kubernetes/pkg/scheduler/framework/plugins`), and three of Flock's own: the node is Ready, it is not
//! being deleted, and it has the pod's operating system. A place is for ever, so it is not given on a node that is
//! out of order now, even to a pod that would tolerate it. A member that has its place is never checked again.

use std::collections::BTreeMap;
use std::fmt;

use super::constraints::Constraints;
use super::node::{NodeFacts, Taint};

/// Set by the node lifecycle controller on cordoned nodes (`k8s.io/api/core/v1/well_known_taints.go`).
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Set by the node lifecycle controller when the kubelet says it is not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Set by the node lifecycle controller when the kubelet says nothing.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// How many different reasons a summary spells out.
const REASONS_SPELLED: usize = 6;

/// Why a node cannot get an ordinal. Shown as a short phrase that fits behind a number of nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unfit {
    /// The Node object is being deleted.
    Terminating,
    /// It runs another operating system than the pod.
    OtherOs(String),
    /// It is cordoned, and the pod does not tolerate that.
    Cordoned,
    /// Its kubelet is not ready or not heard of.
    NotReady,
    /// A taint that the pod does not tolerate, as `key=value:effect`.
    Taint(String),
    /// The pod's nodeSelector asks for other labels.
    NodeSelector,
    /// The pod's required node affinity asks for another node.
    NodeAffinity,
    /// It qualifies, but another member of the flock has it under `flock.dev/pin: Exclusive`: the member's pod name.
    Carries(String),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminating => f.write_str("being deleted"),
            Self::OtherOs(os) => write!(f, "running {os}"),
            Self::Cordoned => f.write_str("cordoned"),
            Self::NotReady => f.write_str("not Ready"),
            Self::Taint(taint) => write!(f, "taint {taint}"),
            Self::NodeSelector => f.write_str("node selector"),
            Self::NodeAffinity => f.write_str("node affinity"),
            Self::Carries(pod) => write!(f, "carries {pod}"),
        }
    }
}

impl Unfit {
    /// What makes a node fit that did not.
    pub fn remedy(&self) -> String {
        match self {
            Self::Terminating => "wait until it has registered again".into(),
            Self::OtherOs(os) => {
                format!("set spec.os and the nodeSelector kubernetes.io/os: {os} in the template")
            }
            Self::Cordoned => "uncordon it (kubectl uncordon)".into(),
            Self::NotReady => "wait until its kubelet is Ready".into(),
            Self::Taint(_) => "add a toleration to the template".into(),
            Self::NodeSelector => "change the template's nodeSelector".into(),
            Self::NodeAffinity => "change the template's required node affinity".into(),
            Self::Carries(_) => "set flock.dev/pin: Shared".into(),
        }
    }
}

/// Whether a pod with these constraints may get its first place on the node; else the first reason against it.
pub fn check(node: &NodeFacts, constraints: &Constraints) -> Result<(), Unfit> {
    if node.terminating {
        return Err(Unfit::Terminating);
    }
    if let Some(os) = node.os.as_deref().filter(|os| *os != constraints.os()) {
        return Err(Unfit::OtherOs(os.into()));
    }
    if node.unschedulable && !tolerates_cordon(constraints) {
        return Err(Unfit::Cordoned);
    }
    if !node.ready {
        return Err(Unfit::NotReady);
    }
    let repels = |taint: &&Taint| bars(taint) && !constraints.tolerate(taint);
    if let Some(taint) = node.taints.iter().find(repels) {
        return Err(unfit_by(taint));
    }
    if !constraints.select(node) {
        return Err(Unfit::NodeSelector);
    }
    if !constraints.attract(node) {
        return Err(Unfit::NodeAffinity);
    }
    Ok(())
}

/// Whether the taint keeps pods from coming; PreferNoSchedule only makes the scheduler look elsewhere first
/// (`DoNotScheduleTaintsFilterFunc` in `k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper`).
fn bars(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

/// `Filter` in the NodeUnschedulable plugin: the toleration of the taint stands for that of the field.
fn tolerates_cordon(constraints: &Constraints) -> bool {
    constraints.tolerate(&Taint {
        key: UNSCHEDULABLE.into(),
        value: String::new(),
        effect: "NoSchedule".into(),
    })
}

fn unfit_by(taint: &Taint) -> Unfit {
    let Taint { key, value, effect } = taint;
    match key.as_str() {
        UNSCHEDULABLE => Unfit::Cordoned,
        NOT_READY | UNREACHABLE => Unfit::NotReady,
        _ if value.is_empty() => Unfit::Taint(format!("{key}:{effect}")),
        _ => Unfit::Taint(format!("{key}={value}:{effect}")),
    }
}

/// How many nodes qualify, and how many do not for which reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nodes that qualify and are free.
    pub fit: usize,
    /// Nodes that do not, by reason.
    pub unfit: BTreeMap<Unfit, usize>,
}

impl Tally {
    /// Counts one node.
    pub fn add(&mut self, verdict: Result<(), Unfit>) {
        match verdict {
            Ok(()) => self.fit += 1,
            Err(reason) => *self.unfit.entry(reason).or_default() += 1,
        }
    }

    /// How many nodes were counted.
    pub fn total(&self) -> usize {
        self.fit + self.unfit.values().sum::<usize>()
    }

    /// How many nodes qualify, but are taken by other members of the flock.
    pub fn taken(&self) -> usize {
        let taken = self
            .unfit
            .iter()
            .filter(|(reason, _)| matches!(reason, Unfit::Carries(_)));
        taken.map(|(_, count)| count).sum()
    }
}

/// A summary in the scheduler's style, of bounded length: `0/5 nodes fit: 2 node affinity, 1 cordoned, …`. Nodes
/// taken by different members are one reason.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.taken();
        let mut reasons: Vec<(usize, String)> = self
            .unfit
            .iter()
            .filter(|(reason, _)| taken == 1 || !matches!(reason, Unfit::Carries(_)))
            .map(|(reason, count)| (*count, reason.to_string()))
            .collect();
        if taken > 1 {
            reasons.push((taken, "carry other members".into()));
        }
        reasons.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        write!(f, "{}/{} nodes fit", self.fit, self.total())?;
        for (index, (count, reason)) in reasons.iter().take(REASONS_SPELLED).enumerate() {
            write!(f, "{} {count} {reason}", if index == 0 { ":" } else { "," })?;
        }
        let rest: usize = reasons.iter().skip(REASONS_SPELLED).map(|(count, _)| count).sum();
        if rest > 0 {
            write!(f, ", {rest} for other reasons")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
