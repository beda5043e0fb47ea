//! The webhooks: from the bytes of a review to the bytes of a response. The mutating one makes pods members; the
//! validating one tells those who apply workloads what their pods would be told.
//!
//! `decide`, `choose`, `checks`, `patch`, `refusal`, `reservations` and `workload` are pure; `lookup`, `handler` and
//! `validate` do the I/O.
//!
//! Three outcomes are kept apart: a refusal is HTTP 200 with `allowed: false`, the request's uid and a 4xx code in
//! the status; a body that cannot be read is HTTP 400; and where Flock itself cannot decide (caches not complete,
//! API server away) the answer is HTTP 500, so that the failurePolicy decides.

mod checks;
mod choose;
mod decide;
mod handler;
mod json;
mod lookup;
mod patch;
mod pod;
mod refusal;
mod reservations;
mod review;
mod validate;
mod workload;

pub use choose::End;
pub use decide::{Context, Look, Policy, Verdict, decide, flock_key};
pub use handler::{Admission, AdmissionError, routes};
pub use lookup::Lookup;
pub use patch::{Membership, Op, patch};
pub use pod::RawPod;
pub use refusal::Refusal;
pub use reservations::{Hold, Reservations};
pub use review::{Answer, Request, ReviewError, parse, render};
pub use workload::{Fault, Judgement, Known, RawWorkload, Subject, judge};
