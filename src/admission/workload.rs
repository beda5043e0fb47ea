//! The judgement of a workload whose template carries the flock's label: what its pods would be told later, told
//! to the one who applies it. Pure: a function of the object, its predecessor, and what the caches hold.
//!
//! Only what cannot work is a denial, and only when it is new: an update that leaves a fault as it was (a
//! finalizer goes, an image changes) is not held by it.

mod changes;
mod faults;
mod hints;
mod keys;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Deserialize;

use crate::identity::{OrdinalSet, keys as vocabulary};
use crate::view::View;

use super::decide::Policy;
use super::json::{List, Text, or_default};
use super::pod::{RawMeta, RawPod};

pub use faults::Fault;

/// A workload as it came in a review.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawWorkload<'a> {
    /// Its kind.
    #[serde(borrow, default)]
    pub kind: Text<'a>,
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub metadata: RawMeta<'a>,
    /// Its spec.
    #[serde(borrow, default)]
    pub spec: Option<RawWorkloadSpec<'a>>,
}

/// The spec, for all kinds at once.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawWorkloadSpec<'a> {
    /// How many pods.
    #[serde(default)]
    pub replicas: Option<u32>,
    /// The pods' template.
    #[serde(borrow, default)]
    pub template: Option<RawPod<'a>>,
    /// A CronJob's Job.
    #[serde(borrow, default)]
    pub job_template: Option<RawJobTemplate<'a>>,
    /// A Deployment's strategy.
    #[serde(default)]
    pub strategy: Option<RawStrategy>,
    /// A StatefulSet's Service.
    #[serde(borrow, default)]
    pub service_name: Text<'a>,
    /// A StatefulSet's first ordinal.
    #[serde(default)]
    pub ordinals: Option<RawOrdinals>,
    /// A StatefulSet's claims.
    #[serde(borrow, default)]
    pub volume_claim_templates: Option<List<RawClaimTemplate<'a>>>,
}

/// `spec.jobTemplate`.
#[derive(Debug, Default, Deserialize)]
pub struct RawJobTemplate<'a> {
    /// The Job's spec.
    #[serde(borrow, default)]
    pub spec: Option<RawJobSpec<'a>>,
}

/// `spec.jobTemplate.spec`.
#[derive(Debug, Default, Deserialize)]
pub struct RawJobSpec<'a> {
    /// The pods' template.
    #[serde(borrow, default)]
    pub template: Option<RawPod<'a>>,
}

/// `spec.strategy`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawStrategy {
    /// The numbers of a RollingUpdate.
    #[serde(default)]
    pub rolling_update: Option<RawRollingUpdate>,
}

/// `spec.strategy.rollingUpdate`: each a number or a percentage.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawRollingUpdate {
    /// How many more than wanted.
    #[serde(default)]
    pub max_surge: Option<IntOrString>,
    /// How many fewer.
    #[serde(default)]
    pub max_unavailable: Option<IntOrString>,
}

/// `spec.ordinals` of a StatefulSet.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct RawOrdinals {
    /// The first.
    #[serde(default)]
    pub start: u32,
}

/// An entry of `spec.volumeClaimTemplates`.
#[derive(Debug, Default, Deserialize)]
pub struct RawClaimTemplate<'a> {
    /// Its metadata, with the volume's name.
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub metadata: RawMeta<'a>,
}

impl RawWorkload<'_> {
    /// The template of the pods, wherever the kind has it.
    pub fn template(&self) -> Option<&RawPod<'_>> {
        let spec = self.spec.as_ref()?;
        let of_job = || spec.job_template.as_ref()?.spec.as_ref()?.template.as_ref();
        spec.template.as_ref().or_else(of_job)
    }

    /// Whether another workload made it, whose template was judged already and whose controller reads no answers.
    fn is_made_by_a_workload(&self) -> bool {
        self.metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| matches!(&*owner.kind, "Deployment" | "CronJob"))
    }

    fn replicas(&self) -> u32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    /// The ordinals that its pods may hold with the replicas that it has: a StatefulSet counts by itself.
    pub fn ordinals(&self, kind: &str, set: &OrdinalSet) -> OrdinalSet {
        if kind != "StatefulSet" {
            return set.first(self.replicas());
        }
        let start = self
            .spec
            .as_ref()
            .and_then(|spec| spec.ordinals)
            .map_or(0, |ordinals| ordinals.start);
        let all = format!("{start}-")
            .parse()
            .unwrap_or_else(|_| OrdinalSet::empty());
        OrdinalSet::first(&all, self.replicas())
    }
}

/// A workload under judgement.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// `Deployment` and the like, as the API server says.
    pub kind: &'a str,
    /// The namespace, as the API server says.
    pub namespace: &'a str,
    /// The workload.
    pub workload: &'a RawWorkload<'a>,
}

/// What a judgement rests on, besides the workload.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The caches, complete or not: nothing is denied because they lack something.
    pub view: &'a View,
    /// The configuration.
    pub policy: &'a Policy,
}

/// What there is to say about a workload.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Why it is denied; it is allowed if there is nothing here.
    pub denials: Vec<Fault>,
    /// What its user should know.
    pub warnings: Vec<String>,
}

/// Judges a workload that is created, or that replaces `old`. `None`: it is none of Flock's business.
pub fn judge(subject: Subject<'_>, old: Option<&RawWorkload<'_>>, known: Known<'_>) -> Option<Judgement> {
    let template = subject.workload.template()?;
    template.label(vocabulary::NAME)?;
    let going = !subject.workload.metadata.deletion_timestamp.is_empty();
    if going || subject.workload.is_made_by_a_workload() {
        return None;
    }
    let before = old.map_or_else(Vec::new, |workload| {
        faults::of(Subject { workload, ..subject }, known)
    });
    let (kept, denials): (Vec<_>, Vec<_>) = faults::of(subject, known)
        .into_iter()
        .partition(|fault| before.iter().any(|earlier| earlier.is_the_same_as(fault)));
    let mut warnings: Vec<_> = kept
        .iter()
        .map(|fault| format!("as before, its pods will be refused: {fault}"))
        .collect();
    // Who is denied has enough to read.
    if denials.is_empty() {
        if let Some(old) = old {
            changes::of(subject, old, &mut warnings);
        }
        hints::of(subject, known, &mut warnings);
    }
    Some(Judgement { denials, warnings })
}

#[cfg(test)]
mod tests;
