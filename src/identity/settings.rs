//! What a user says in a template's annotations, read once and validated.

use std::collections::HashSet;
use std::str::FromStr;

use thiserror::Error;

use super::keys;
use super::names::{DnsLabel, LabelError, is_object_name};
use super::ordinal::{OrdinalError, OrdinalSet};
use super::quote::Quoted;

/// Where a member's durable volumes are (`flock.dev/storage`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Storage {
    /// A directory on the member's node.
    #[default]
    HostPath,
    /// A local PersistentVolume and its claim, both made by Flock.
    LocalVolume,
    /// A claim of a StorageClass or of a pre-provisioned volume.
    Claim,
}

/// How an ordinal keeps its node (`flock.dev/pin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pin {
    /// One member of the flock on a node.
    Exclusive,
    /// Several members of the flock may share a node.
    Shared,
    /// Members are not bound to nodes.
    None,
}

/// In which order members start (`flock.dev/start`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Start {
    /// All at once.
    #[default]
    Parallel,
    /// Each once all lower ones are Ready.
    Ordered,
}

/// What happens when a member's node is proven gone (`flock.dev/on-node-loss`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnNodeLoss {
    /// The member waits for an administrator.
    #[default]
    Wait,
    /// The member gets another node after a grace period.
    Reassign,
}

/// Who owns a member's directories (`flock.dev/volume-owner`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The annotations of a template, read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The ordinals that the workload may hold.
    pub ordinals: OrdinalSet,
    /// The `emptyDir` volumes that become durable, in the order they were named.
    pub volumes: Vec<DnsLabel>,
    /// Where they are.
    pub storage: Storage,
    /// The StorageClass for [`Storage::Claim`].
    pub storage_class: Option<String>,
    /// How ordinals keep their nodes.
    pub pin: Pin,
    /// The node of each ordinal by hand: entry i is ordinal i's; an empty entry leaves the choice to Flock.
    pub nodes: Vec<String>,
    /// The order of starts.
    pub start: Start,
    /// What happens on a node's loss.
    pub on_node_loss: OnNodeLoss,
    /// The governing Service, if it is not named as the flock.
    pub service: Option<DnsLabel>,
    /// Who owns the directories.
    pub volume_owner: Option<Owner>,
    /// Whether a member must find its own data.
    pub data_guard: bool,
}

/// Why an annotation could not be read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("annotation {key}: {problem}")]
pub struct SettingsError {
    /// The annotation.
    pub key: &'static str,
    /// What is wrong with its value, and what would be right.
    pub problem: String,
}

/// The longest value of an annotation, in bytes. The API server stores up to 256 KiB of them, and every labelled
/// workload's are kept in memory.
const LONGEST_VALUE: usize = 16 * 1024;
/// Entries of a list: volumes, nodes, ranges of ordinals.
const LONGEST_LIST: usize = 1_000;

impl Settings {
    /// Reads the annotations through `get`. Unknown `flock.dev/` keys are not looked at here.
    pub fn parse<'a>(get: impl Fn(&str) -> Option<&'a str>) -> Result<Self, SettingsError> {
        let storage = choice(
            &get,
            keys::STORAGE,
            &[
                ("hostPath", Storage::HostPath),
                ("localVolume", Storage::LocalVolume),
                ("claim", Storage::Claim),
            ],
        )?
        .unwrap_or_default();
        let pin = choice(
            &get,
            keys::PIN,
            &[
                ("Exclusive", Pin::Exclusive),
                ("Shared", Pin::Shared),
                ("None", Pin::None),
            ],
        )?;
        let default_pin = if storage == Storage::Claim {
            Pin::None
        } else {
            Pin::Exclusive
        };
        let settings = Self {
            ordinals: parsed(&get, keys::ORDINALS, |text| {
                OrdinalSet::from_str(text)
                    .map_err(|e: OrdinalError| format!("{e}; write a list such as 0,2-4,7-"))
            })?
            .unwrap_or_default(),
            volumes: parsed(&get, keys::VOLUMES, volume_names)?.unwrap_or_default(),
            storage,
            storage_class: parsed(&get, keys::STORAGE_CLASS, |text| {
                subdomain(text, "a StorageClass")
            })?,
            pin: pin.unwrap_or(default_pin),
            nodes: parsed(&get, keys::NODES, node_names)?.unwrap_or_default(),
            start: choice(
                &get,
                keys::START,
                &[("Parallel", Start::Parallel), ("Ordered", Start::Ordered)],
            )?
            .unwrap_or_default(),
            on_node_loss: choice(
                &get,
                keys::ON_NODE_LOSS,
                &[("Wait", OnNodeLoss::Wait), ("Reassign", OnNodeLoss::Reassign)],
            )?
            .unwrap_or_default(),
            service: parsed(&get, keys::SERVICE, service_name)?,
            volume_owner: parsed(&get, keys::VOLUME_OWNER, owner)?,
            data_guard: choice(&get, keys::DATA_GUARD, &[("true", true), ("false", false)])?.unwrap_or(false),
        };
        settings.check_combinations()?;
        Ok(settings)
    }

    /// What holds without any annotation.
    pub fn defaults() -> Self {
        Self {
            ordinals: OrdinalSet::default(),
            volumes: Vec::new(),
            storage: Storage::HostPath,
            storage_class: None,
            pin: Pin::Exclusive,
            nodes: Vec::new(),
            start: Start::Parallel,
            on_node_loss: OnNodeLoss::Wait,
            service: None,
            volume_owner: None,
            data_guard: false,
        }
    }

    /// The governing Service's name.
    pub fn service_of<'a>(&'a self, flock: &'a DnsLabel) -> &'a DnsLabel {
        self.service.as_ref().unwrap_or(flock)
    }

    fn check_combinations(&self) -> Result<(), SettingsError> {
        let wrong = |key, problem: &str| {
            Err(SettingsError {
                key,
                problem: problem.into(),
            })
        };
        if self.storage != Storage::Claim && self.storage_class.is_some() {
            return wrong(
                keys::STORAGE_CLASS,
                "has no effect; set flock.dev/storage: claim with it",
            );
        }
        let unknown_disk = "has no effect on claims, whose directories Flock does not make; remove it";
        if self.storage == Storage::Claim && self.volume_owner.is_some() {
            return wrong(keys::VOLUME_OWNER, unknown_disk);
        }
        if self.storage == Storage::Claim && self.data_guard {
            return wrong(keys::DATA_GUARD, unknown_disk);
        }
        if self.storage != Storage::Claim && self.pin == Pin::None && !self.volumes.is_empty() {
            return wrong(
                keys::PIN,
                "None would let a member leave the node that its data is on; use Exclusive or Shared, or \
                 flock.dev/storage: claim",
            );
        }
        if self.pin == Pin::None && !self.nodes.is_empty() {
            return wrong(
                keys::NODES,
                "contradicts flock.dev/pin: None; remove one of the two",
            );
        }
        let mut named: Vec<_> = self.nodes.iter().filter(|n| !n.is_empty()).collect();
        let count = named.len();
        named.sort_unstable();
        named.dedup();
        if self.pin == Pin::Exclusive && named.len() < count {
            return wrong(
                keys::NODES,
                "names a node twice; set flock.dev/pin: Shared to allow that",
            );
        }
        Ok(())
    }
}

fn parsed<'a, T>(
    get: &impl Fn(&str) -> Option<&'a str>,
    key: &'static str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, SettingsError> {
    let read = |text: &str| {
        if text.len() > LONGEST_VALUE {
            return Err(format!("is longer than {LONGEST_VALUE} bytes; shorten it"));
        }
        if text.split(',').nth(LONGEST_LIST).is_some() {
            return Err(format!("lists more than {LONGEST_LIST} entries; shorten it"));
        }
        read(text)
    };
    get(key)
        .map(|text| read(text).map_err(|problem| SettingsError { key, problem }))
        .transpose()
}

fn choice<'a, T: Copy>(
    get: &impl Fn(&str) -> Option<&'a str>,
    key: &'static str,
    values: &[(&str, T)],
) -> Result<Option<T>, SettingsError> {
    parsed(get, key, |text| {
        values
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, value)| *value)
            .ok_or_else(|| {
                let names: Vec<_> = values.iter().map(|(name, _)| *name).collect();
                format!("{} is none of {}", Quoted::new(text), names.join(", "))
            })
    })
}

fn volume_names(text: &str) -> Result<Vec<DnsLabel>, String> {
    let mut volumes = Vec::new();
    let mut named = HashSet::new();
    for name in text.split(',').map(str::trim) {
        let volume =
            DnsLabel::parse(name).map_err(|LabelError(name)| format!("{name} is no volume's name"))?;
        if !named.insert(volume.clone()) {
            return Err(format!("names the volume {volume} twice"));
        }
        volumes.push(volume);
    }
    Ok(volumes)
}

fn node_names(text: &str) -> Result<Vec<String>, String> {
    let read = |name: &str| {
        if name.is_empty() {
            Ok(String::new())
        } else {
            subdomain(name, "a node")
        }
    };
    text.split(',').map(str::trim).map(read).collect()
}

fn service_name(text: &str) -> Result<DnsLabel, String> {
    DnsLabel::parse(text)
        .ok()
        .filter(DnsLabel::is_service_name)
        .ok_or_else(|| {
            format!(
                "{} is no Service's name (a DNS label that starts with a letter)",
                Quoted::new(text)
            )
        })
}

fn owner(text: &str) -> Result<Owner, String> {
    let read = |part: &str| part.parse().ok();
    text.split_once(':')
        .and_then(|(uid, gid)| {
            Some(Owner {
                uid: read(uid)?,
                gid: read(gid)?,
            })
        })
        .ok_or_else(|| format!("{} is not of the form 1000:1000", Quoted::new(text)))
}

fn subdomain(text: &str, what: &str) -> Result<String, String> {
    if is_object_name(text) {
        Ok(text.into())
    } else {
        Err(format!("{} is no name of {what}", Quoted::new(text)))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn settings(pairs: &[(&str, &'static str)]) -> Result<Settings, SettingsError> {
        Settings::parse(|key| pairs.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn without_annotations_the_defaults_hold() {
        let read = settings(&[]).unwrap();
        assert_eq!(read, Settings::defaults());
        assert_eq!(read.ordinals, OrdinalSet::default());
        assert_eq!(
            (read.storage, read.pin, read.start),
            (Storage::HostPath, Pin::Exclusive, Start::Parallel)
        );
        assert_eq!(read.on_node_loss, OnNodeLoss::Wait);
        assert!(read.volumes.is_empty() && read.nodes.is_empty() && read.service.is_none());
    }

    #[test]
    fn claims_are_not_pinned_unless_asked_for() {
        assert_eq!(settings(&[(keys::STORAGE, "claim")]).unwrap().pin, Pin::None);
        assert_eq!(
            settings(&[(keys::STORAGE, "claim"), (keys::PIN, "Shared")])
                .unwrap()
                .pin,
            Pin::Shared
        );
        assert_eq!(
            settings(&[(keys::STORAGE, "localVolume")]).unwrap().pin,
            Pin::Exclusive
        );
    }

    #[test]
    fn a_gap_in_the_list_of_nodes_leaves_the_choice_to_flock() {
        let read = settings(&[(keys::NODES, "n1.example,,n3")]).unwrap();
        assert_eq!(read.nodes, ["n1.example", "", "n3"]);
    }

    #[rstest]
    #[case::storage(&[(keys::STORAGE, "hostpath")], "\"hostpath\" is none of hostPath, localVolume, claim")]
    #[case::pin(&[(keys::PIN, "")], "\"\" is none of Exclusive, Shared, None")]
    #[case::volumes(&[(keys::VOLUMES, "data,../etc")], "\"../etc\" is no volume's name")]
    #[case::twice(&[(keys::VOLUMES, "data,data")], "names the volume data twice")]
    #[case::owner(&[(keys::VOLUME_OWNER, "root")], "\"root\" is not of the form 1000:1000")]
    #[case::service(&[(keys::SERVICE, "3scale")], "\"3scale\" is no Service's name")]
    #[case::node(&[(keys::NODES, "n1,N2")], "\"N2\" is no name of a node")]
    #[case::node_twice(&[(keys::NODES, "n1,n1")], "names a node twice")]
    #[case::class(&[(keys::STORAGE_CLASS, "fast")], "set flock.dev/storage: claim")]
    #[case::ordinals(&[(keys::ORDINALS, "4-2")], "ends before it starts; write a list such as")]
    #[case::free_data(&[(keys::VOLUMES, "d"), (keys::PIN, "None")], "leave the node that its data is on")]
    #[case::free_node(&[(keys::NODES, "n1"), (keys::PIN, "None")], "contradicts flock.dev/pin: None")]
    fn a_bad_annotation_is_refused_with_the_way_out(
        #[case] pairs: &[(&str, &'static str)],
        #[case] message: &str,
    ) {
        let error = settings(pairs).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }

    #[rstest]
    #[case::nodes(keys::NODES, ",")]
    #[case::ordinals(keys::ORDINALS, "0,2,")]
    #[case::volumes(keys::VOLUMES, "a,b,")]
    #[case::service(keys::SERVICE, "a")]
    fn values_that_are_made_to_cost_memory_are_refused_unread(#[case] key: &str, #[case] part: &str) {
        let long = part.repeat(7 << 20);
        let error = Settings::parse(|asked| (asked == key).then_some(long.as_str())).unwrap_err();
        assert!(
            error.to_string().contains("is longer than 16384 bytes"),
            "{error}"
        );
        let many = part.repeat(LONGEST_LIST + 1);
        if part.contains(',') {
            let error = Settings::parse(|asked| (asked == key).then_some(many.as_str())).unwrap_err();
            assert!(error.to_string().contains("more than 1000 entries"), "{error}");
        }
    }

    #[test]
    fn a_list_of_the_most_volumes_is_read_once() {
        let names: Vec<_> = (0..LONGEST_LIST).map(|number| format!("v{number}")).collect();
        let text = names.join(",");
        let read = Settings::parse(|key| (key == keys::VOLUMES).then_some(text.as_str())).unwrap();
        assert_eq!(read.volumes.len(), LONGEST_LIST);
    }
}
