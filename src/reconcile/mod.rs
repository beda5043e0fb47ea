//! The reconciler: what the webhook can't do at admission. One leader runs it.
//!
//! `plan` decides (pure), `apply` carries out (one API call for each action, each with a precondition),
//! `controller` brings changes of the view to the plan, `events` tells users.

mod apply;
mod carry_out;
mod controller;
mod events;
mod own_image;
pub mod plan;
mod storage;
mod waits;

pub use apply::{Apply, ApplyError};
pub use controller::Controller;
pub use own_image::OwnImage;
pub use plan::{ACTIONS, PlanConfig};
