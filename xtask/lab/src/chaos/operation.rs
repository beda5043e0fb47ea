//! What is done to the cluster. Which operations come, and in which order, follows from the seed alone.

use std::fmt;

use fastrand::Rng;

use super::model::Workload;

/// The tags of images that can be pulled.
const TAGS: [&str; 4] = ["3.7", "3.8", "3.9", "3.10"];

/// One operation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    Scale(usize, u32),
    Delete(String),
    ForceDelete(String),
    Evict(String),
    End(String, bool),
    Unready(String),
    Roll(usize, &'static str),
    Undo(usize),
    Annotate(usize, u32),
    Order(usize, bool),
    Recreate(usize, bool),
    Orphan(String),
    Tamper(String),
    Cordon(usize),
    Drain(usize),
    Uncordon(usize),
    FailNode(usize),
    RecoverNode(usize),
    DeleteService(&'static str),
    StopFlock(usize),
    KillFlock(usize),
    /// Halts a replica for so many milliseconds.
    PauseFlock(usize, u64),
    KillComponent(&'static str),
    /// Lets the cluster work for so many milliseconds.
    Rest(u64),
}

impl Operation {
    /// The next one. `workloads` is as the operations before have made it.
    pub(super) fn next(rng: &mut Rng, workloads: &[Workload], nodes: usize) -> Self {
        let index = rng.usize(..workloads.len());
        let workload = &workloads[index];
        let pod = |rng: &mut Rng| workload.member(rng.u32(..workload.max()));
        let rolling = rng.usize(..workloads.iter().filter(|workload| workload.rolls()).count());
        let rolling = workloads
            .iter()
            .enumerate()
            .filter(|(_, w)| w.rolls())
            .nth(rolling)
            .map_or(0, |(i, _)| i);
        match rng.u32(..100) {
            0..14 => Self::Scale(index, rng.u32(..=workload.max())),
            14..26 => Self::Delete(pod(rng)),
            26..28 => Self::ForceDelete(pod(rng)),
            28..34 => Self::Evict(pod(rng)),
            34..40 => Self::End(pod(rng), rng.bool()),
            40..43 => Self::Unready(pod(rng)),
            43..53 => Self::Roll(rolling, TAGS[rng.usize(..TAGS.len())]),
            53..57 => Self::Roll(rolling, "broken"),
            57..64 => Self::Undo(rolling),
            64..67 => Self::Annotate(rolling, rng.u32(..3)),
            67..69 => Self::Order(rolling, rng.bool()),
            69..71 => Self::Recreate(index, rng.bool()),
            71..72 => Self::Orphan(pod(rng)),
            72..74 => Self::Tamper(pod(rng)),
            74..76 => Self::Cordon(rng.usize(..nodes)),
            76..77 => Self::Drain(rng.usize(..nodes)),
            77..80 => Self::Uncordon(rng.usize(..nodes)),
            80..81 => Self::FailNode(rng.usize(..nodes)),
            81..83 => Self::RecoverNode(rng.usize(..nodes)),
            83..84 => Self::DeleteService(workload.flock()),
            84..86 => Self::StopFlock(rng.usize(..2)),
            86..88 => Self::KillFlock(rng.usize(..2)),
            88..90 => Self::PauseFlock(rng.usize(..2), rng.u64(200..4000)),
            90..91 => Self::KillComponent(
                ["kube-controller-manager", "kube-apiserver", "kube-scheduler"][rng.usize(..3)],
            ),
            _ => Self::Rest(rng.u64(100..1500)),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |index: usize| Workload::all().get(index).map_or("?", |workload| workload.name);
        match self {
            Self::Scale(workload, replicas) => write!(f, "scale {} to {replicas}", name(*workload)),
            Self::Delete(pod) => write!(f, "delete pod {pod}"),
            Self::ForceDelete(pod) => write!(f, "delete pod {pod} by force"),
            Self::Evict(pod) => write!(f, "evict pod {pod}"),
            Self::End(pod, failed) => write!(
                f,
                "end pod {pod} ({})",
                if *failed { "Failed" } else { "Succeeded" }
            ),
            Self::Unready(pod) => write!(f, "let pod {pod} be unready"),
            Self::Roll(workload, tag) => write!(f, "roll {} to {tag}", name(*workload)),
            Self::Undo(workload) => write!(f, "undo {}", name(*workload)),
            Self::Annotate(workload, value) => {
                write!(f, "annotate the template of {} with {value}", name(*workload))
            }
            Self::Order(workload, ordered) => {
                write!(
                    f,
                    "let {} start {}",
                    name(*workload),
                    if *ordered { "in order" } else { "in parallel" }
                )
            }
            Self::Recreate(workload, orphan) => {
                let how = if *orphan {
                    "leaving its pods"
                } else {
                    "with its pods"
                };
                write!(f, "delete {} {how} and create it again", name(*workload))
            }
            Self::Orphan(pod) => write!(f, "take pod {pod} from its owner by a label"),
            Self::Tamper(pod) => write!(f, "change the ordinal label of pod {pod}"),
            Self::Cordon(node) => write!(f, "cordon node-{node}"),
            Self::Drain(node) => write!(f, "drain node-{node}"),
            Self::Uncordon(node) => write!(f, "uncordon node-{node}"),
            Self::FailNode(node) => write!(f, "fail node-{node}"),
            Self::RecoverNode(node) => write!(f, "recover node-{node}"),
            Self::DeleteService(service) => write!(f, "delete Service {service}"),
            Self::StopFlock(replica) => write!(f, "restart flock-{replica} (SIGTERM)"),
            Self::KillFlock(replica) => write!(f, "restart flock-{replica} (SIGKILL)"),
            Self::PauseFlock(replica, millis) => write!(f, "halt flock-{replica} for {millis} ms"),
            Self::KillComponent(component) => write!(f, "restart {component} (SIGKILL)"),
            Self::Rest(millis) => write!(f, "rest {millis} ms"),
        }
    }
}
