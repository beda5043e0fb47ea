//! The passport: a small file beside a member's volumes, by which the member knows its own data again.
//!
//! A database that starts on an empty directory looks healthy and is not, so where a directory should hold data
//! and does not, the member is held and its user asked.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::identity::{DnsLabel, Ordinal};

/// Whose directory it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The namespace's name: for who reads the file; the uid decides.
    pub namespace: String,
    /// The namespace's uid.
    pub namespace_uid: String,
    /// The flock.
    pub flock: String,
    /// The ordinal.
    pub ordinal: u32,
}

impl Identity {
    /// The identity of a member.
    pub fn new(namespace: &DnsLabel, namespace_uid: &str, flock: &DnsLabel, ordinal: Ordinal) -> Self {
        Self {
            namespace: namespace.to_string(),
            namespace_uid: namespace_uid.to_owned(),
            flock: flock.to_string(),
            ordinal: ordinal.get(),
        }
    }
}

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Passport {
    /// Whose directory it is.
    #[serde(flatten)]
    pub identity: Identity,
    /// The volumes.
    pub volumes: BTreeMap<String, Entry>,
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When it was prepared first.
    pub first_use: Timestamp,
    /// The directory's time of change while it was empty: as long as it stays the same, nothing was ever in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unused_since: Option<String>,
}

/// A volume's directory as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// There is none.
    Missing,
    /// It is empty, and was changed last at this time.
    Empty(String),
    /// Something is in it.
    Data,
}

/// What to do with a volume's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Make it.
    Create,
    /// It is there and empty: give it its owner.
    Own,
    /// It holds data, which stays as it is.
    Keep,
}

/// Why a member may not start.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Held {
    /// The directory is another member's.
    #[error(
        "it belongs to member {}-{} of namespace {} (uid {}), as its passport says; another's data is never used: move \
         it away on the node", .0.flock, .0.ordinal, .0.namespace, .0.namespace_uid
    )]
    Foreign(Box<Identity>),
    /// It should hold data, and does not.
    #[error(
        "the member has run before, but its directory for volume {volume} {found}: a disk that is not mounted, or a node \
         that was set up anew. Bring the data back and it starts by itself"
    )]
    Blank {
        /// The volume.
        volume: String,
        /// What was found instead.
        found: &'static str,
    },
}

/// Judges what was found. `ran` is whether the member is known to have run at this place before; `data_lost` is
/// its user's word that its data is not coming back.
pub fn judge(
    owner: &Identity,
    passport: Option<&Passport>,
    seen: &BTreeMap<String, Seen>,
    ran: bool,
    data_lost: bool,
) -> Result<BTreeMap<String, Act>, Held> {
    if let Some(passport) = passport.filter(|passport| !same(&passport.identity, owner)) {
        return Err(Held::Foreign(Box::new(passport.identity.clone())));
    }
    // Without a passport nothing here was prepared before: one directory with data shows that the disk is there,
    // and then the others are new.
    let any_data = seen.values().any(|seen| *seen == Seen::Data);
    let disk_is_there = passport.is_some() || !ran || any_data;
    let mut acts = BTreeMap::new();
    for (volume, seen) in seen {
        let entry = passport.and_then(|passport| passport.volumes.get(volume));
        let found = match (seen, entry) {
            (Seen::Missing, entry) if entry.is_some() || !disk_is_there => Some("is missing"),
            (Seen::Empty(_), None) if !disk_is_there => Some("is empty"),
            (Seen::Empty(changed), Some(entry)) if entry.unused_since.as_ref() != Some(changed) => {
                Some("is empty now")
            }
            _ => None,
        };
        if let Some(found) = found.filter(|_| !data_lost) {
            return Err(Held::Blank {
                volume: volume.clone(),
                found,
            });
        }
        let act = match seen {
            Seen::Missing => Act::Create,
            Seen::Empty(_) => Act::Own,
            Seen::Data => Act::Keep,
        };
        acts.insert(volume.clone(), act);
    }
    Ok(acts)
}

/// A namespace's uid says all; its name is only for people.
fn same(one: &Identity, other: &Identity) -> bool {
    one.namespace_uid == other.namespace_uid && one.flock == other.flock && one.ordinal == other.ordinal
}

impl Passport {
    /// The passport after a preparation that left the directories as `seen`.
    #[must_use]
    pub fn renewed(
        owner: Identity,
        before: Option<&Self>,
        seen: &BTreeMap<String, Seen>,
        now: Timestamp,
    ) -> Self {
        let mut volumes = before.map(|before| before.volumes.clone()).unwrap_or_default();
        for (volume, seen) in seen {
            let entry = volumes.entry(volume.clone()).or_insert_with(|| Entry {
                first_use: now,
                unused_since: None,
            });
            entry.unused_since = match seen {
                Seen::Empty(changed) => Some(changed.clone()),
                Seen::Missing | Seen::Data => None,
            };
        }
        Self {
            identity: owner,
            volumes,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn owner(ordinal: u32) -> Identity {
        Identity {
            namespace: "default".into(),
            namespace_uid: "u".into(),
            flock: "db".into(),
            ordinal,
        }
    }

    fn seen(volumes: &[(&str, Seen)]) -> BTreeMap<String, Seen> {
        volumes
            .iter()
            .map(|(name, seen)| ((*name).to_owned(), seen.clone()))
            .collect()
    }

    fn empty() -> Seen {
        Seen::Empty("1.0".into())
    }

    fn passport(volumes: &[(&str, Seen)]) -> Passport {
        Passport::renewed(owner(0), None, &seen(volumes), Timestamp::UNIX_EPOCH)
    }

    #[rstest]
    #[case::first_start(None, &[("data", Seen::Missing)], false, Ok(Act::Create))]
    #[case::put_there_by_hand(None, &[("data", Seen::Data)], false, Ok(Act::Keep))]
    #[case::made_by_hand(None, &[("data", empty())], false, Ok(Act::Own))]
    #[case::guard_comes_later(None, &[("data", Seen::Data)], true, Ok(Act::Keep))]
    #[case::disk_not_mounted(None, &[("data", Seen::Missing)], true, Err("is missing"))]
    #[case::node_anew_and_directory_made(None, &[("data", empty())], true, Err("is empty"))]
    #[case::new_volume_of_one_that_ran(None, &[("data", Seen::Missing), ("wal", Seen::Data)], true, Ok(Act::Create))]
    #[case::restart(Some(&[("data", empty())][..]), &[("data", Seen::Data)], true, Ok(Act::Keep))]
    #[case::never_written(Some(&[("data", empty())][..]), &[("data", empty())], true, Ok(Act::Own))]
    #[case::wiped_before_its_second_start(
        Some(&[("data", empty())][..]), &[("data", Seen::Empty("2.0".into()))], true, Err("is empty now"))]
    #[case::wiped_later(Some(&[("data", Seen::Data)][..]), &[("data", empty())], true, Err("is empty now"))]
    #[case::moved_away(Some(&[("data", Seen::Data)][..]), &[("data", Seen::Missing)], true, Err("is missing"))]
    #[case::new_volume(Some(&[("wal", Seen::Data)][..]), &[("data", Seen::Missing)], true, Ok(Act::Create))]
    fn a_member_starts_on_its_own_data_or_where_there_was_none(
        #[case] before: Option<&[(&str, Seen)]>,
        #[case] found: &[(&str, Seen)],
        #[case] ran: bool,
        #[case] expected: Result<Act, &str>,
    ) {
        let before = before.map(passport);
        let judged = judge(&owner(0), before.as_ref(), &seen(found), ran, false);
        match expected {
            Ok(act) => assert_eq!(judged.unwrap()["data"], act),
            Err(why) => assert!(matches!(judged, Err(Held::Blank { found, .. }) if found == why)),
        }
        let lost = judge(&owner(0), before.as_ref(), &seen(found), ran, true);
        assert!(lost.is_ok(), "its user's word counts");
    }

    #[test]
    fn anothers_directory_is_never_used_whatever_the_user_says() {
        let theirs = passport(&[("data", Seen::Data)]);
        for data_lost in [false, true] {
            let judged = judge(
                &owner(1),
                Some(&theirs),
                &seen(&[("data", Seen::Data)]),
                true,
                data_lost,
            );
            assert!(matches!(judged, Err(Held::Foreign(_))));
        }
    }

    #[test]
    fn first_use_stays() {
        let first = passport(&[("data", empty())]);
        let later = Timestamp::from_second(99).unwrap();
        let second = Passport::renewed(owner(0), Some(&first), &seen(&[("data", Seen::Data)]), later);
        assert_eq!(second.volumes["data"].first_use, Timestamp::UNIX_EPOCH);
        assert_eq!(second.volumes["data"].unused_since, None);
        let text = serde_json::to_string(&second).unwrap();
        assert_eq!(serde_json::from_str::<Passport>(&text).unwrap(), second);
    }
}
