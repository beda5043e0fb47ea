//! What a member is: its ordinal and every name that is derived from it.
//!
//! All of this is pure: no clock, no I/O, no cluster. A derived name is an injective function of
//! (namespace, flock, ordinal); `names` says why for each, and a property test checks it.

pub mod keys;
mod names;
mod ordinal;
mod settings;

mod quote;
pub use names::{
    DnsLabel, FlockKey, LabelError, Member, NODE_LABEL_DOMAIN, is_object_name, parse_node_label,
};
pub use ordinal::{Ordinal, OrdinalError, OrdinalSet};
pub use quote::{Quoted, shortened};
pub use settings::{OnNodeLoss, Owner, Pin, Settings, SettingsError, Start, Storage};
