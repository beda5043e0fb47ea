//! The record of places: the annotation `flock.dev/places` on the governing Service.
//!
//! A JSON object, ordinal → `{"machine": id, "node": name}`, sorted by ordinal and without spaces, so that an
//! unchanged record is an unchanged text and nothing is written. It is the memory of nodes whose Node object is gone,
//! and their labels with it. It stands in the tenant's namespace and anybody there may edit it, so it is only ever
//! asked where no label answers (see [`super::reconcile`]).
//!
//! A record that cannot be read must not be overwritten: it may be all that is left of a place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use super::node::NodeName;
use crate::identity::{DnsLabel, Ordinal};

/// The longest record, in bytes. All annotations of an object have 256 KiB together
/// (`TotalAnnotationSizeLimitB` in `k8s.io/apimachinery/pkg/api/validation/objectmeta.go`); the Service's others keep
/// 16 of them. With a machine id of 32 digits and a node name of 20 characters this is enough for 2,700 members.
pub const MAX_BYTES: usize = 240 * 1024;

/// Longest machine id that is taken from a record; the longest real one, a UUID, has 36 characters.
const MACHINE_MAX: usize = 128;

/// Where one ordinal lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The uid of the pod that the node was chosen for, until it ran: so long, the ordinal may still move on.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub chosen_for: Option<String>,
    /// The machine; `None` if the node had not told its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Arc<str>>,
    /// The Node's name.
    pub node: NodeName,
    /// Set to give the ordinal free: written before its label is taken off, so that neither copy brings the other
    /// back in between; a label on the same node still holds.
    #[serde(default, skip_serializing_if = "is_false")]
    pub released: bool,
}

impl Place {
    /// The place of a member that may already have run there.
    pub fn new(node: NodeName, machine: Option<Arc<str>>) -> Self {
        Self {
            chosen_for: None,
            machine,
            node,
            released: false,
        }
    }
}

/// Why a record cannot be read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RecordError {
    /// Too long to be stored.
    #[error(
        "the record of places would have {0} bytes, and a Service has room for {max}; split the flock, or release \
         ordinals that are no longer used (flock release)",
        max = MAX_BYTES
    )]
    TooLong(usize),
    /// Not JSON, or not the JSON of a record.
    #[error(
        "annotation flock.dev/places is no record of places ({0}); restore it from a backup, or remove it to have it \
         rebuilt from the labels of the nodes: members whose node is gone are forgotten then"
    )]
    Unreadable(String),
}

/// The places of a flock by ordinal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record(BTreeMap<Ordinal, Place>);

impl Record {
    /// Reads the annotation's text.
    pub fn parse(text: &str) -> Result<Self, RecordError> {
        if text.len() > MAX_BYTES {
            return Err(RecordError::TooLong(text.len()));
        }
        serde_json::from_str(text).map_err(|error| RecordError::Unreadable(error.to_string()))
    }

    /// The annotation's text: the same record is the same text.
    pub fn render(&self) -> Result<String, RecordError> {
        let text = serde_json::to_string(self).map_err(|error| RecordError::Unreadable(error.to_string()))?;
        if text.len() > MAX_BYTES {
            return Err(RecordError::TooLong(text.len()));
        }
        Ok(text)
    }

    /// The place of an ordinal.
    pub fn get(&self, ordinal: Ordinal) -> Option<&Place> {
        self.0.get(&ordinal)
    }

    /// Sets the place of an ordinal and returns the one before.
    pub fn insert(&mut self, ordinal: Ordinal, place: Place) -> Option<Place> {
        self.0.insert(ordinal, place)
    }

    /// Forgets an ordinal.
    pub fn remove(&mut self, ordinal: Ordinal) -> Option<Place> {
        self.0.remove(&ordinal)
    }

    /// The ordinal ran on its node, so its place is for ever.
    pub fn settle(&mut self, ordinal: Ordinal) {
        if let Some(place) = self.0.get_mut(&ordinal) {
            place.chosen_for = None;
        }
    }

    /// Marks the ordinal as given free (see [`Place::released`]).
    pub fn release(&mut self, ordinal: Ordinal) {
        if let Some(place) = self.0.get_mut(&ordinal) {
            place.released = true;
        }
    }

    /// All places by ordinal.
    pub fn iter(&self) -> impl Iterator<Item = (Ordinal, &Place)> {
        self.0.iter().map(|(ordinal, place)| (*ordinal, place))
    }

    /// How many ordinals have a place.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no ordinal has a place.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nodes that more than one ordinal names, which is right only without `flock.dev/pin: Exclusive`.
    pub fn duplicates(&self) -> BTreeMap<NodeName, Vec<Ordinal>> {
        let mut nodes: BTreeMap<NodeName, Vec<Ordinal>> = BTreeMap::new();
        for (ordinal, place) in self.iter().filter(|(_, place)| !place.released) {
            nodes.entry(place.node.clone()).or_default().push(ordinal);
        }
        nodes.retain(|_, ordinals| ordinals.len() > 1);
        nodes
    }
}

impl FromIterator<(Ordinal, Place)> for Record {
    fn from_iter<I: IntoIterator<Item = (Ordinal, Place)>>(places: I) -> Self {
        Self(places.into_iter().collect())
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(ordinal, place)| (ordinal.get(), place)))
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of ordinals and their places")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut record = Record::default();
        while let Some((key, place)) = map.next_entry::<String, Place>()? {
            let ordinal: Ordinal = key.parse().map_err(de::Error::custom)?;
            if !is_node_name(&place.node) {
                return Err(de::Error::custom(format!(
                    "ordinal {key}: {:?} is no node's name",
                    place.node
                )));
            }
            let machine = place.machine.as_deref();
            if machine.is_some_and(|id| id.is_empty() || id.len() > MACHINE_MAX) {
                return Err(de::Error::custom(format!(
                    "ordinal {key}: the machine's id is empty or too long"
                )));
            }
            if record.insert(ordinal, place).is_some() {
                return Err(de::Error::custom(format!("ordinal {key} stands there twice")));
            }
        }
        Ok(record)
    }
}

/// A Node's name is a DNS subdomain; nothing else may reach a request's path.
fn is_node_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(|label| DnsLabel::parse(label).is_ok())
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

#[cfg(test)]
mod tests;
