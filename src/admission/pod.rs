//! The parts of a pod that admission reads, borrowed from the request's bytes.
//!
//! This is deliberately not the typed Pod of a client library: nothing is written back from it, so a field that
//! is newer than this program is not lost, and the fields that do not matter here cost no allocation.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{List, Map, Text, or_default};
use crate::storage::{Needs, Security};

/// A pod as it came in a review.
#[derive(Debug, Default, serde::Deserialize)]
pub struct RawPod<'a> {
    /// Its metadata.
    #[serde(borrow, default, deserialize_with = "or_default")]
    pub metadata: RawMeta<'a>,
    /// Its spec.
    #[serde(borrow, default)]
    pub spec: Option<RawSpec<'a>>,
}

/// The metadata that matters.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawMeta<'a> {
    /// Empty until someone sets it.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    /// What the API server would begin a name with.
    #[serde(borrow, default)]
    pub generate_name: Text<'a>,
    /// The labels, if the pod has any.
    #[serde(borrow, default)]
    pub labels: Option<Map<'a>>,
    /// The annotations, if the pod has any.
    #[serde(borrow, default)]
    pub annotations: Option<Map<'a>>,
    /// Set once its deletion has begun.
    #[serde(borrow, default)]
    pub deletion_timestamp: Text<'a>,
    /// The owners.
    #[serde(borrow, default)]
    pub owner_references: Option<List<RawOwner<'a>>>,
}

/// An owner.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawOwner<'a> {
    /// Its API group and version.
    #[serde(borrow, default)]
    pub api_version: Text<'a>,
    /// Its kind.
    #[serde(borrow, default)]
    pub kind: Text<'a>,
    /// Its name.
    #[serde(borrow, default)]
    pub name: Text<'a>,
    /// Its uid.
    #[serde(borrow, default)]
    pub uid: Text<'a>,
    /// Whether it is the controller.
    #[serde(default)]
    pub controller: Option<bool>,
}

/// The spec that matters.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawSpec<'a> {
    /// Set where the pod bypasses the scheduler.
    #[serde(borrow, default)]
    pub node_name: Text<'a>,
    /// Whether the pod has the node's network, and so its hostname.
    #[serde(default)]
    pub host_network: Option<bool>,
    /// The hostname.
    #[serde(borrow, default)]
    pub hostname: Text<'a>,
    /// The governing Service.
    #[serde(borrow, default)]
    pub subdomain: Text<'a>,
    /// Another name for the hostname (KEP-4762).
    #[serde(borrow, default)]
    pub hostname_override: Text<'a>,
    /// The operating system.
    #[serde(borrow, default)]
    pub os: Option<RawOs<'a>>,
    /// The labels that its node must have.
    #[serde(borrow, default)]
    pub node_selector: Option<Map<'a>>,
    /// What holds it back from the scheduler.
    #[serde(borrow, default)]
    pub scheduling_gates: Option<List<RawNamed<'a>>>,
    /// Volumes.
    #[serde(borrow, default)]
    pub volumes: Option<List<RawVolume<'a>>>,
    /// Containers.
    #[serde(default)]
    pub containers: Option<List<RawContainer>>,
    /// Init containers and native sidecars.
    #[serde(default)]
    pub init_containers: Option<List<RawContainer>>,
    /// The pod's security context.
    #[serde(default)]
    pub security_context: Option<RawSecurity>,
}

/// Who the pod runs as, as far as the owner of its directories goes.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawSecurity {
    /// User id.
    #[serde(default)]
    pub run_as_user: Option<i64>,
    /// Group id.
    #[serde(default)]
    pub run_as_group: Option<i64>,
    /// Supplementary group that owns volumes.
    #[serde(default)]
    pub fs_group: Option<i64>,
    /// Whether it may not be root.
    #[serde(default)]
    pub run_as_non_root: Option<bool>,
}

impl From<Option<RawSecurity>> for Security {
    fn from(raw: Option<RawSecurity>) -> Self {
        raw.map_or_else(Self::default, |raw| Self {
            user: raw.run_as_user,
            group: raw.run_as_group,
            fs_group: raw.fs_group,
            non_root: raw.run_as_non_root,
        })
    }
}

/// `spec.os`.
#[derive(Debug, Default, serde::Deserialize)]
pub struct RawOs<'a> {
    /// `linux` or `windows`.
    #[serde(borrow, default)]
    pub name: Text<'a>,
}

/// Anything of which only the name matters.
#[derive(Debug, serde::Deserialize)]
pub struct RawNamed<'a> {
    /// The name.
    #[serde(borrow, default)]
    pub name: Text<'a>,
}

/// The variables that each container gets.
pub(super) const VARIABLES: [&str; 4] = ["FLOCK_NAME", "FLOCK_ORDINAL", "FLOCK_SERVICE", "FLOCK_SEED"];

/// Which of these variables a container has already. The others do not matter, so they are not kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnVariables([bool; VARIABLES.len()]);

impl OwnVariables {
    /// Whether it has this one.
    pub fn contains(self, name: &str) -> bool {
        VARIABLES.iter().zip(self.0).any(|(own, has)| has && *own == name)
    }
}

impl<'de> Deserialize<'de> for OwnVariables {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Variables;
        impl<'de> Visitor<'de> for Variables {
            type Value = OwnVariables;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of variables")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut own = OwnVariables::default();
                while let Some(variable) = list.next_element::<RawNamed<'de>>()? {
                    for (name, has) in VARIABLES.iter().zip(&mut own.0) {
                        *has |= *variable.name == **name;
                    }
                }
                Ok(own)
            }
        }
        deserializer.deserialize_seq(Variables)
    }
}

/// A container.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawContainer {
    /// Its environment, if it has any.
    #[serde(default)]
    pub env: Option<OwnVariables>,
    /// Who it runs as.
    #[serde(default)]
    pub security_context: Option<RawSecurity>,
}

impl RawSpec<'_> {
    /// What its volumes need, but for their sizes.
    pub fn needs(&self) -> Needs {
        let all = |containers: &Option<List<RawContainer>>| {
            let each = containers
                .iter()
                .flatten()
                .map(|container| container.security_context.into());
            each.collect::<Vec<Security>>()
        };
        Needs::of(
            self.security_context.into(),
            all(&self.containers),
            all(&self.init_containers),
        )
    }
}

/// A volume: its name, and its source without a look inside.
#[derive(Debug)]
pub struct RawVolume<'a> {
    /// Its name.
    pub name: Text<'a>,
    /// The source's field, such as `emptyDir`, and its value; `None` where only a name was given.
    pub source: Option<(Text<'a>, &'a RawValue)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawVolume<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Map(mut fields) = Map::<'de, &'de RawValue>::deserialize(deserializer)?;
        let name = match fields.remove("name") {
            Some(raw) => serde_json::from_str(raw.get()).map_err(D::Error::custom)?,
            None => Text::default(),
        };
        let source = fields.into_iter().find(|(_, value)| value.get() != "null");
        Ok(Self { name, source })
    }
}

/// The fields of an emptyDir that decide whether it may become durable.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawEmptyDir<'a> {
    /// `Memory` for a tmpfs.
    #[serde(borrow, default)]
    pub medium: Text<'a>,
}

/// The fields of a hostPath.
#[derive(Debug, Default, serde::Deserialize)]
pub(super) struct RawHostPath<'a> {
    /// The path.
    #[serde(borrow, default)]
    pub path: Text<'a>,
}

/// The fields of a claim's volume.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RawClaim<'a> {
    /// The claim.
    #[serde(borrow, default)]
    pub claim_name: Text<'a>,
    /// Whether nobody writes.
    #[serde(default)]
    pub read_only: Option<bool>,
}

impl RawPod<'_> {
    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(|value| &**value)
    }

    /// An annotation's value.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(|value| &**value)
    }

    /// The controller among the owners.
    pub fn controller(&self) -> Option<&RawOwner<'_>> {
        self.metadata
            .owner_references
            .as_ref()?
            .iter()
            .find(|owner| owner.controller == Some(true))
    }
}
