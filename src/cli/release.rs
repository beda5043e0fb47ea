//! `flock release`: gives an ordinal's place free, so that it may be placed anew, without its data.
//!
//! The record is marked first, then the labels are taken off: in this order neither copy of the place brings the other
//! one back, and the leader forgets the entry once both are gone.
//!
//! With `--data-lost` the place stays, and the member is told that the data there is lost.

mod lost;
mod plan;
mod tell;

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error};
use serde_json::json;
use thiserror::Error;

use crate::identity::{FlockKey, LabelError, Ordinal, OrdinalError, keys};
use crate::outdated::is_outdated;
use crate::place::RecordError;
use crate::storage::storage_root;

use super::look::{LookError, Where, look};
pub use lost::NotLost;
pub use plan::{Refused, Release, releases};

/// How often the record is read and written anew where somebody else was faster.
const ATTEMPTS: u32 = 5;

/// `flock release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The flock.
    pub flock: String,
    /// The ordinal; without it, every ordinal of the flock whose pod is on no node.
    pub ordinal: Option<String>,
    /// Keep the place, and say that the data there is lost: the member's pod, which waits for its data, starts without
    /// it, this once.
    #[arg(long, requires = "ordinal")]
    pub data_lost: bool,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// The directory of every node that members' directories are beneath, to tell what stays behind.
    #[arg(long, env = "FLOCK_HOST_PATH_ROOT", default_value = "/var/lib/flock", value_parser = storage_root)]
    pub host_path_root: std::path::PathBuf,
    /// Which namespace of which cluster.
    #[command(flatten)]
    pub place: Where,
}

/// Why nothing, or not all, was released.
#[derive(Debug, Error)]
pub enum ReleaseError {
    /// The flock's name is none.
    #[error("flock {0}")]
    Name(#[from] LabelError),
    /// The ordinal is none.
    #[error("ordinal {0}")]
    Ordinal(#[from] OrdinalError),
    /// The cluster cannot be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The ordinal may not be released.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The member may not be told that its data is lost.
    #[error(transparent)]
    NotLost(#[from] NotLost),
    /// The member's pod cannot be looked at.
    #[error("pod {pod} {what} cannot be read, so nothing was said")]
    Pod {
        /// The pod.
        pod: String,
        /// The pod itself, or its events.
        what: &'static str,
        /// Why.
        source: Error,
    },
    /// The member was not told.
    #[error(
        "pod {pod} cannot be told: it was replaced or changed meanwhile, or changing it is not allowed to you"
    )]
    Tell {
        /// The pod.
        pod: String,
        /// Why.
        source: Error,
    },
    /// Nobody is there to ask.
    #[error("there is no terminal to ask on, and this gives up data: add --yes if that is meant")]
    NotAsked,
    /// They said no.
    #[error("nothing was released")]
    Declined,
    /// The terminal is gone.
    #[error("the answer cannot be read, or the question not be asked")]
    Terminal(#[from] std::io::Error),
    /// The record cannot be read or written.
    #[error("Service {service}: {source}")]
    Record {
        /// The Service that it stands on.
        service: String,
        /// Why.
        source: RecordError,
    },
    /// Others write the record all the time.
    #[error("Service {0} changes all the time; try again")]
    Busy(String),
    /// The record was not written.
    #[error("the record of places on Service {service} cannot be written, so nothing was released")]
    Write {
        /// The Service that it stands on.
        service: String,
        /// Why.
        source: Error,
    },
    /// The label was not taken off.
    #[error(
        "the record is marked, but the label cannot be taken off node {node}; somebody who may change nodes must run: \
         kubectl label node {node} {label}-"
    )]
    Label {
        /// The node.
        node: String,
        /// The label.
        label: String,
        /// Why.
        source: Error,
    },
}

/// Releases what the command line says, and tells on `out`.
pub async fn run(args: &ReleaseArgs, out: &mut impl Write) -> Result<(), ReleaseError> {
    let (client, namespace) = args.place.connect().await?;
    let key = FlockKey::parse(&namespace, &args.flock)?;
    let ordinal = args.ordinal.as_deref().map(str::parse).transpose()?;
    if let (true, Some(ordinal)) = (args.data_lost, ordinal) {
        return tell::give_data_up(&client, &key, ordinal, args, out).await;
    }
    let view = look(&client, &namespace).await?;
    let releases = releases(&view, &key, ordinal, &args.host_path_root)?;
    for release in &releases {
        writeln!(out, "{}", release.describe(&key))?;
    }
    if !args.yes {
        let members: Vec<_> = releases
            .iter()
            .map(|release| format!("{}-{}", key.flock, release.ordinal))
            .collect();
        ask(
            &format!("Place {} anew, without the data?", members.join(", ")),
            out,
        )?;
    }
    mark(&client, &key, &releases, ordinal, args).await?;
    for release in &releases {
        for (node, uid) in &release.labelled {
            take_label(&client, &key, release.ordinal, node, uid).await?;
        }
        writeln!(out, "{}-{} released", key.flock, release.ordinal)?;
    }
    Ok(())
}

fn ask(question: &str, out: &mut impl Write) -> Result<(), ReleaseError> {
    if !std::io::stdin().is_terminal() {
        return Err(ReleaseError::NotAsked);
    }
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(ReleaseError::Declined)
    }
}

/// Marks the record; where somebody wrote it in between, what it says now is looked at again.
async fn mark(
    client: &Client,
    key: &FlockKey,
    releases: &[Release],
    ordinal: Option<Ordinal>,
    args: &ReleaseArgs,
) -> Result<(), ReleaseError> {
    let namespace = key.namespace.as_str();
    let services = Api::<Service>::namespaced(client.clone(), namespace);
    let mut current = String::new();
    for _ in 0..ATTEMPTS {
        let view = look(client, namespace).await?;
        // A member that started in the meantime refuses here.
        let now = self::releases(&view, key, ordinal, &args.host_path_root)?;
        let asked: Vec<_> = now
            .into_iter()
            .filter(|now| releases.iter().any(|r| r.ordinal == now.ordinal))
            .collect();
        let Some(service) = view.record_service(key) else {
            return Ok(());
        };
        current.clone_from(&service.name);
        let failure = |source| ReleaseError::Record {
            service: service.name.clone(),
            source,
        };
        let record = plan::marked(service, &asked)
            .map_err(failure)?
            .render()
            .map_err(failure)?;
        let patch = json!({ "metadata": {
            "resourceVersion": service.resource_version, "annotations": { keys::PLACES: record },
        } });
        match services
            .patch(&service.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
        {
            Ok(_) => return Ok(()),
            Err(Error::Api(status)) if status.code == 409 => {}
            Err(source) => {
                return Err(ReleaseError::Write {
                    service: service.name.clone(),
                    source,
                });
            }
        }
    }
    Err(ReleaseError::Busy(current))
}

async fn take_label(
    client: &Client,
    key: &FlockKey,
    ordinal: Ordinal,
    node: &str,
    uid: &str,
) -> Result<(), ReleaseError> {
    let label = key.node_label(ordinal);
    let patch = json!({ "metadata": { "uid": uid, "labels": { label.as_str(): null } } });
    let nodes = Api::<Node>::all(client.clone());
    match nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(()),
        // A node that is gone or another one took the label with it.
        Err(Error::Api(status)) if is_outdated(&status) => Ok(()),
        Err(source) => Err(ReleaseError::Label {
            node: node.into(),
            label,
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
