//! `flock prepare`: what the helper pod does on a member's node. It makes the member's directories beneath the
//! root, gives them their owner, and checks by the passport that they are the member's own.
//!
//! It is safe to run it again at any time, and two at once.

mod tree;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use thiserror::Error;

use crate::identity::{DnsLabel, Ordinal};
use crate::storage::{Act, DirectoryOwner, Exit, Held, Identity, Passport, Seen, judge};

use tree::Directory;
pub use tree::TreeError;

/// The passport's file in the member's directory, beside its volumes: no volume's name begins with a dot.
pub const PASSPORT: &str = ".flock.json";

/// Directories above a member's volumes are nobody's business on the host.
const PARENT_MODE: u32 = 0o700;
/// As an emptyDir has it, so that whoever could write there can write here, subPath directories that the kubelet
/// makes included. Above it, only root passes.
const VOLUME_MODE: u32 = 0o777;
/// With fsGroup: the group owns what is made in it.
const SHARED_MODE: u32 = 0o2770;

/// `flock prepare`.
#[derive(Debug, Args)]
pub struct PrepareArgs {
    /// The directory that members' directories are beneath.
    #[arg(long)]
    pub root: PathBuf,
    /// The member's namespace.
    #[arg(long, value_parser = DnsLabel::parse)]
    pub namespace: DnsLabel,
    /// The uid of that namespace.
    #[arg(long, value_parser = DnsLabel::parse)]
    pub namespace_uid: DnsLabel,
    /// The member's flock.
    #[arg(long, value_parser = DnsLabel::parse)]
    pub flock: DnsLabel,
    /// The member's ordinal.
    #[arg(long)]
    pub ordinal: Ordinal,
    /// A volume of the member; may be repeated.
    #[arg(long = "volume", required = true, value_parser = DnsLabel::parse)]
    pub volumes: Vec<DnsLabel>,
    /// The user that owns fresh directories.
    #[arg(long)]
    pub uid: Option<u32>,
    /// The group that owns fresh directories.
    #[arg(long)]
    pub gid: Option<u32>,
    /// The group that shares the directories (fsGroup).
    #[arg(long)]
    pub fs_group: Option<u32>,
    /// The member has run here before, so that there must be data.
    #[arg(long)]
    pub ran: bool,
    /// Its user said that the data is not coming back: it may start without.
    #[arg(long)]
    pub data_lost: bool,
}

/// Why a member's directories are not ready.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// The member must not start on what is there.
    #[error("{path}: {held}")]
    Held {
        /// The member's directory.
        path: String,
        /// Why.
        held: Held,
    },
    /// The passport cannot be read.
    #[error(
        "{path}/{PASSPORT} is no passport ({problem}); restore it, or remove it if the data beside it is this member's"
    )]
    Passport {
        /// The member's directory.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// The file system is not as it must be.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl PrepareError {
    /// The exit code that tells the reconciler.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Held {
                held: Held::Blank { .. },
                ..
            } => Exit::Blank,
            Self::Held {
                held: Held::Foreign(_),
                ..
            }
            | Self::Passport { .. } => Exit::Foreign,
            Self::Tree(TreeError::Unsafe(_)) => Exit::Unsafe,
            Self::Tree(_) => Exit::Failed,
        }
    }
}

/// Prepares the directories; returns what was done with each.
pub fn prepare(args: &PrepareArgs, now: Timestamp) -> Result<BTreeMap<String, Act>, PrepareError> {
    let owner = Identity::new(
        &args.namespace,
        args.namespace_uid.as_str(),
        &args.flock,
        args.ordinal,
    );
    let root = Directory::root(&args.root)?;
    // Before anything is made: a directory that is missing must be seen as missing.
    let namespace = format!("{}_{}", args.namespace, args.namespace_uid);
    let ordinal = args.ordinal.to_string();
    let steps = [namespace.as_str(), args.flock.as_str(), &ordinal];
    let found = steps.iter().try_fold(Some(root), |found, step| match found {
        Some(directory) => directory.open(step),
        None => Ok(None),
    })?;
    let passport = found.as_ref().map(read_passport).transpose()?.flatten();
    let seen = look(found.as_ref(), &args.volumes)?;
    let shown = format!("{}/{}", args.root.display(), steps.join("/"));
    let acts = judge(&owner, passport.as_ref(), &seen, args.ran, args.data_lost)
        .map_err(|held| PrepareError::Held { path: shown, held })?;

    let mut member = Directory::root(&args.root)?;
    for step in steps {
        member = member.ensure(step, PARENT_MODE)?;
    }
    let directory_owner = DirectoryOwner {
        uid: args.uid,
        gid: args.gid,
        fs_group: args.fs_group,
    };
    for (volume, act) in &acts {
        prepare_volume(&member, volume, *act, directory_owner)?;
    }
    let after = look(Some(&member), &args.volumes)?;
    let renewed = Passport::renewed(owner, passport.as_ref(), &after, now);
    if passport.as_ref() != Some(&renewed) {
        let text = serde_json::to_vec(&renewed).map_err(|error| PrepareError::Passport {
            path: member.path().to_owned(),
            problem: error.to_string(),
        })?;
        member.write(PASSPORT, &text)?;
    }
    Ok(acts)
}

fn prepare_volume(
    member: &Directory,
    volume: &str,
    act: Act,
    owner: DirectoryOwner,
) -> Result<(), TreeError> {
    let directory = member.ensure(volume, PARENT_MODE)?;
    match (act, owner.fs_group) {
        (Act::Create | Act::Own, Some(group)) => directory.own(owner.uid, Some(group), SHARED_MODE),
        (Act::Create | Act::Own, None) => directory.own(owner.uid, owner.gid, VOLUME_MODE),
        (Act::Keep, Some(group)) => directory.share(group),
        // Data keeps the owner that the program or its user gave it.
        (Act::Keep, None) => Ok(()),
    }
}

fn read_passport(member: &Directory) -> Result<Option<Passport>, PrepareError> {
    let Some(content) = member.read(PASSPORT)? else {
        return Ok(None);
    };
    serde_json::from_slice(&content)
        .map(Some)
        .map_err(|error| PrepareError::Passport {
            path: member.path().to_owned(),
            problem: error.to_string(),
        })
}

fn look(member: Option<&Directory>, volumes: &[DnsLabel]) -> Result<BTreeMap<String, Seen>, TreeError> {
    volumes
        .iter()
        .map(|volume| {
            let directory = match member {
                Some(member) => member.open(volume.as_str())?,
                None => None,
            };
            let seen = match directory {
                None => Seen::Missing,
                Some(directory) => directory.empty_since()?.map_or(Seen::Data, Seen::Empty),
            };
            Ok((volume.to_string(), seen))
        })
        .collect()
}

#[cfg(test)]
mod tests;
