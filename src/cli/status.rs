//! `flock status`: every ordinal of a flock, where it lives, how it is, and what it waits for.

mod table;

use std::collections::HashMap;
use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use thiserror::Error;

use crate::identity::{FlockKey, LabelError, Ordinal, OrdinalSet, Storage};
use crate::reconcile::PlanConfig;
use crate::reconcile::plan::{Memory, Observed, plan};
use crate::view::{Phase, PodFacts, View};

use super::look::{LookError, Where, look};

/// `flock status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The flock; without it, every flock of the namespace.
    pub flock: Option<String>,
    /// Which namespace of which cluster.
    #[command(flatten)]
    pub place: Where,
}

/// Why nothing can be shown.
#[derive(Debug, Error)]
pub enum StatusError {
    /// The flock's name is none.
    #[error("flock {0}")]
    Name(#[from] LabelError),
    /// The cluster cannot be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// There is no such flock.
    #[error(
        "there is no flock {0}: no pod, workload, place or Service of it; flock status without a name shows those there \
         are"
    )]
    Unknown(FlockKey),
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Output(#[from] std::io::Error),
}

/// Shows what the command line asks for.
pub async fn run(args: &StatusArgs, out: &mut impl Write) -> Result<(), StatusError> {
    let (client, namespace) = args.place.connect().await?;
    let wanted = args
        .flock
        .as_deref()
        .map(|flock| FlockKey::parse(&namespace, flock))
        .transpose()?;
    let view = look(&client, &namespace).await?;
    // Nodes carry the labels of other namespaces' flocks as well.
    let all = view
        .flock_keys()
        .into_iter()
        .filter(|key| key.namespace.as_str() == namespace);
    let shown: Vec<_> = all
        .filter(|key| wanted.as_ref().is_none_or(|wanted| wanted == key))
        .collect();
    match wanted {
        Some(wanted) if shown.is_empty() => return Err(StatusError::Unknown(wanted)),
        None if shown.is_empty() => writeln!(out, "no flock in namespace {namespace}")?,
        _ => {}
    }
    for (index, key) in shown.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        out.write_all(status(&view, key, Timestamp::now()).to_string().as_bytes())?;
    }
    Ok(())
}

/// What is to be shown of one flock.
#[derive(Debug, PartialEq, Eq)]
pub struct Status {
    /// Which.
    pub key: FlockKey,
    /// Its ordinals.
    pub rows: Vec<Row>,
    /// What somebody should know, with the way out: the events' sentences.
    pub notes: Vec<String>,
}

impl Status {
    /// How many members are Ready.
    pub fn ready(&self) -> usize {
        self.rows.iter().filter(|row| row.state == "Ready").count()
    }

    /// How many there should be, or are.
    pub fn wanted(&self) -> usize {
        self.rows
            .iter()
            .filter(|row| !matches!(row.state, "Unused" | "Released"))
            .count()
    }
}

/// One ordinal.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// The ordinal.
    pub ordinal: Ordinal,
    /// Its pod.
    pub pod: Option<String>,
    /// How it is.
    pub state: &'static str,
    /// Its workload, and whether that is the newest revision.
    pub revision: Option<String>,
    /// Its node, by the pod, its label or the record.
    pub node: Option<String>,
    /// Its storage.
    pub storage: Option<String>,
}

/// What there is to be shown of a flock: a pure function of the cluster.
pub fn status(view: &View, key: &FlockKey, now: Timestamp) -> Status {
    let flock = view.flock(key);
    let record = view
        .record_service(key)
        .and_then(|service| service.record.as_deref());
    let recorded = record
        .into_iter()
        .flat_map(|record| record.iter().map(|(ordinal, _)| ordinal));
    let wanted = flock.wanted();
    let ordinals = recorded
        .chain(view.places(key).keys().copied())
        .chain(flock.members().into_keys());
    let all = ordinals.fold(wanted.clone(), |set, ordinal| {
        set.union(&OrdinalSet::one(ordinal))
    });
    let row = |ordinal| {
        let pod = flock.holder(ordinal);
        let place = record.and_then(|record| record.get(ordinal));
        Row {
            ordinal,
            pod: pod.map(|pod| pod.name.clone()),
            state: match (pod, place) {
                (Some(pod), _) => state(pod),
                (None, Some(place)) if place.released => "Released",
                (None, _) if wanted.contains(ordinal) => "Missing",
                (None, _) => "Unused",
            },
            revision: pod.and_then(|pod| revision(view, key, pod)),
            node: node(view, key, ordinal),
            storage: pod.and_then(storage),
        }
    };
    let plan = plan(&Observed {
        key,
        view,
        budgets: &HashMap::new(),
        memory: &Memory::default(),
        config: &PlanConfig::default(),
        now,
    });
    let mut notes: Vec<_> = plan
        .notes
        .into_iter()
        .map(|note| format!("{}: {}", note.reason, note.message))
        .collect();
    notes.sort();
    notes.dedup();
    Status {
        key: key.clone(),
        rows: all.iter().map(row).collect(),
        notes,
    }
}

fn state(pod: &PodFacts) -> &'static str {
    match pod {
        pod if pod.phase == Phase::Over => "Ended",
        pod if pod.terminating => "Terminating",
        pod if pod.ready_since.is_some() => "Ready",
        pod if pod.gated => "Gated",
        pod if pod.node.is_none() => "Pending",
        _ => "Starting",
    }
}

fn revision(view: &View, key: &FlockKey, pod: &PodFacts) -> Option<String> {
    let owner = pod.owner.as_ref()?;
    let flock = view.flock(key);
    let Some(workload) = flock.workloads().get(&owner.uid) else {
        return Some(owner.name.clone());
    };
    let newest = flock.newest(workload);
    let old = newest.uid != workload.uid;
    Some(if old {
        format!("{} (old, newest is {})", owner.name, newest.name)
    } else {
        owner.name.clone()
    })
}

fn node(view: &View, key: &FlockKey, ordinal: Ordinal) -> Option<String> {
    let bound = view.flock(key).holder(ordinal).and_then(|pod| pod.node.clone());
    let labelled = || {
        let nodes = view.places(key).get(&ordinal)?;
        Some(
            nodes
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(","),
        )
    };
    let recorded = || {
        let place = view.record_service(key)?.record.as_ref()?.get(ordinal)?;
        let known = view.nodes().contains_key(&place.node);
        Some(if known {
            format!("{} (no label)", place.node)
        } else {
            format!("{} (gone)", place.node)
        })
    };
    bound.or_else(labelled).or_else(recorded)
}

fn storage(pod: &PodFacts) -> Option<String> {
    let settings = pod.template.settings();
    let kind = match settings.storage {
        Storage::HostPath => "hostPath",
        Storage::LocalVolume => "localVolume",
        Storage::Claim => "claim",
    };
    let volumes: Vec<_> = settings.volumes.iter().map(ToString::to_string).collect();
    (!volumes.is_empty()).then(|| format!("{kind}:{}", volumes.join(",")))
}

#[cfg(test)]
mod tests;
