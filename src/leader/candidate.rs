//! What one replica asks of the Lease, and what it knows of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use tokio::time::{Instant, timeout};
use tracing::info;

use super::{ANSWER, DURATION};
use crate::identity::keys;

/// Why a try came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("no answer within {ANSWER:?}")]
    Silence,
    /// Somebody else has written the Lease, and what they wrote is not known.
    #[error("another has written it; then: {0}")]
    Overtaken(#[source] Box<Failure>),
}

/// What a try came to: the Lease as it is now, `None` if there is none.
pub(super) type Answer = Result<Option<Lease>, Failure>;

/// One who competes for the Lease, and what it knows of it.
#[derive(Clone)]
pub(super) struct Candidate {
    leases: Api<Lease>,
    pub(super) name: String,
    identity: String,
    /// The Lease as it was seen last.
    seen: Option<Lease>,
    /// The last renewal by somebody else, as long as nobody is known to have come after it.
    other: Option<Renewal>,
}

/// A renewal by somebody else.
#[derive(Clone, Debug)]
struct Renewal {
    holder: String,
    at: Option<MicroTime>,
    lasts: Duration,
    /// When it was seen first. It was made before.
    since: Instant,
}

impl Candidate {
    pub(super) fn new(leases: Api<Lease>, name: &str, identity: &str) -> Self {
        Self {
            leases,
            name: name.to_owned(),
            identity: identity.to_owned(),
            seen: None,
            other: None,
        }
    }

    /// Renews or takes the Lease if that may be, and looks at it otherwise. What is said to be ours in the answer was
    /// granted by the API server just now.
    pub(super) async fn ask(self) -> Answer {
        let overtaken = AtomicBool::new(false);
        let asked = timeout(ANSWER, async {
            if let Some(ours) = self.seen.as_ref().filter(|_| self.has_it()) {
                match self.write(self.claim(Some(ours))).await {
                    // Somebody else has written or deleted it.
                    Err(error) if is_status(&error, 404) || is_status(&error, 409) => {
                        overtaken.store(true, Ordering::Relaxed);
                    }
                    written => return written.map(Some),
                }
            }
            let found = self.leases.get_opt(&self.name).await?;
            if self.may_claim(found.as_ref()) {
                self.write(self.claim(found.as_ref())).await.map(Some)
            } else {
                Ok(found)
            }
        });
        let answer = asked.await.map_err(|_| Failure::Silence);
        let answer = answer.and_then(|answer| answer.map_err(Failure::Api));
        answer.map_err(|failure| {
            if overtaken.load(Ordering::Relaxed) {
                Failure::Overtaken(Box::new(failure))
            } else {
                failure
            }
        })
    }

    /// Writes the Lease as it was seen with this change, or makes it; refused if it was changed in between.
    async fn write(&self, lease: Lease) -> Result<Lease, kube::Error> {
        let params = PostParams {
            field_manager: Some(keys::MANAGER.into()),
            ..PostParams::default()
        };
        if lease.metadata.resource_version.is_some() {
            self.leases.replace(&self.name, &params, &lease).await
        } else {
            self.leases.create(&params, &lease).await
        }
    }

    /// Takes in how the Lease is now.
    pub(super) fn saw(&mut self, lease: Option<Lease>) {
        let spec = lease.as_ref().and_then(|lease| lease.spec.as_ref());
        match (spec.and_then(holder), spec) {
            (Some(holder), Some(spec)) if holder != self.identity => {
                let known = self.other.take();
                if known.as_ref().is_none_or(|other| other.holder != holder) {
                    info!(holder, lease = self.name, "another replica has the Lease");
                }
                let same = known.filter(|other| other.holder == holder && other.at == spec.renew_time);
                self.other = same.or_else(|| {
                    Some(Renewal {
                        holder: holder.to_owned(),
                        at: spec.renew_time.clone(),
                        lasts: lasts(spec),
                        since: Instant::now(),
                    })
                });
            }
            // Whoever had it may not know yet that it is gone.
            _ if lease.is_none() => {}
            _ => self.other = None,
        }
        self.seen = lease;
    }

    /// Whether the Lease as it was seen last is ours.
    pub(super) fn has_it(&self) -> bool {
        let spec = self.seen.as_ref().and_then(|lease| lease.spec.as_ref());
        spec.and_then(holder) == Some(self.identity.as_str())
    }

    /// Whether the Lease, being so now, may be claimed: it is ours, was given back, or is over.
    fn may_claim(&self, found: Option<&Lease>) -> bool {
        let over = |other: &Renewal| other.since.elapsed() >= other.lasts;
        // Who has just begun and finds no Lease knows of nobody to wait for. Where one was deleted at just that moment, its
        // holder learns of it by its next renewal; the preconditions of all writes bear with both until then.
        let Some(lease) = found else {
            return self.other.as_ref().is_none_or(over);
        };
        let Some(spec) = &lease.spec else { return true };
        match holder(spec) {
            None => true,
            Some(holder) if holder == self.identity => true,
            Some(holder) => self
                .other
                .as_ref()
                .is_some_and(|other| other.holder == holder && other.at == spec.renew_time && over(other)),
        }
    }

    /// The Lease with us as its holder from now on.
    fn claim(&self, found: Option<&Lease>) -> Lease {
        let mut lease = found.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        });
        let spec = lease.spec.get_or_insert_default();
        let now = MicroTime(Timestamp::now());
        if holder(spec) != Some(self.identity.as_str()) {
            spec.holder_identity = Some(self.identity.clone());
            spec.acquire_time = Some(now.clone());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        spec.renew_time = Some(now);
        spec.lease_duration_seconds = i32::try_from(DURATION.as_secs()).ok();
        lease
    }

    /// Gives the Lease back if it is ours.
    pub(super) async fn give_back(&mut self) -> Result<bool, kube::Error> {
        loop {
            self.seen = self.leases.get_opt(&self.name).await?;
            let Some(mut lease) = self.seen.clone().filter(|_| self.has_it()) else {
                return Ok(false);
            };
            lease.spec = lease.spec.map(|spec| LeaseSpec {
                lease_transitions: spec.lease_transitions,
                ..LeaseSpec::default()
            });
            match self.write(lease).await {
                Ok(_) => return Ok(true),
                Err(error) if is_status(&error, 404) || is_status(&error, 409) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn holder(spec: &LeaseSpec) -> Option<&str> {
    spec.holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())
}

fn lasts(spec: &LeaseSpec) -> Duration {
    let seconds = spec
        .lease_duration_seconds
        .and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(DURATION, Duration::from_secs)
}

pub(super) fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
