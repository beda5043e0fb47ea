//! The parts of a pod that admission reads, borrowed from the request's bytes.
//!
//! This is deliberately not the typed Pod of a client library: nothing is written back from it, so a field that
//! is newer than this program is not lost, and the fields that do not matter here cost no allocation.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::storage::{Needs, Security};

/// A string that borrows from the input where it has no escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                // `null` stands for an absent string in JSON made by hand.
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

/// Labels, annotations, node selectors.
pub(super) type Map<'a> = BTreeMap<Text<'a>, Text<'a>>;

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

/// What is read of a JSON object, and of nothing else: an array would pass for a struct, field by field.
#[derive(Debug)]
pub(super) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Reads `null` as absent, as the API server does.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
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
    pub owner_references: Option<Vec<RawOwner<'a>>>,
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
    pub scheduling_gates: Option<Vec<RawNamed<'a>>>,
    /// Volumes.
    #[serde(borrow, default)]
    pub volumes: Option<Vec<RawVolume<'a>>>,
    /// Containers.
    #[serde(borrow, default)]
    pub containers: Option<Vec<RawContainer<'a>>>,
    /// Init containers and native sidecars.
    #[serde(borrow, default)]
    pub init_containers: Option<Vec<RawContainer<'a>>>,
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

/// A container.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RawContainer<'a> {
    /// Its environment.
    #[serde(borrow, default)]
    pub env: Option<Vec<RawNamed<'a>>>,
    /// Who it runs as.
    #[serde(default)]
    pub security_context: Option<RawSecurity>,
}

impl RawSpec<'_> {
    /// What its volumes need, but for their sizes.
    pub fn needs(&self) -> Needs {
        let all = |containers: &Option<Vec<RawContainer<'_>>>| {
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
        let mut fields = BTreeMap::<Text<'de>, &'de RawValue>::deserialize(deserializer)?;
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
