//! Place: which node an ordinal lives on.
//!
//! An ordinal's place is a label on a Node, in a domain that kubelets cannot set on themselves; a record of it also
//! stands on the governing Service. [`choose`] picks the nodes of ordinals that never ran, by the same rules as the
//! scheduler ([`eligibility`]); [`reconcile`] compares labels, record and pods and says what to mend.
//!
//! All of this is pure: no clock, no I/O, no cluster.

pub mod choose;
pub mod constraints;
pub mod eligibility;
#[cfg(test)]
mod fixtures;
mod loss;
pub mod node;
pub mod reconcile;
pub mod record;

pub use choose::{NoPlace, Placer};
pub use constraints::Constraints;
pub use eligibility::{Tally, Unfit, check};
pub use loss::{Proof, lost};
pub use node::{NodeFacts, NodeName, Taint};
pub use reconcile::{Evidence, Finding, compare, updated};
pub use record::{Place, Record, RecordError};
