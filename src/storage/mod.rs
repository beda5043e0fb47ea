//! Storage: what a member's volumes need, and the objects that they are made of (DESIGN 7).
//!
//! All of this is pure. `prepare` is the helper that runs on the node, `reconcile` makes the objects.

mod claims;
mod helper;
mod needs;
mod passport;
mod quantity;
mod root;

pub use claims::{ClaimSpec, ClaimUse, VolumeSpec, claim, claim_use, local_volume};
pub use helper::{
    COMPONENT, DATA_MISSING, Exit, Helper, HelperConfig, HelperImage, WAY_OUT, member_of_helper,
};
pub use needs::{DirectoryOwner, Needs, Security, prepares, prepares_each_start};
pub use passport::{Act, Held, Identity, Passport, Seen, judge};
pub use quantity::bytes;
pub use root::{RootError, storage_root};
