//! What the Secret and the webhook configurations need next. Pure: both, the role and the clock are arguments.
//!
//! A new CA is written as *next*, published beside the current one, rests for the settling time, and only then
//! becomes current and signs leaves; the old one stays published until no leaf of it can be valid. Whatever moment a
//! rotation is interrupted at, every leaf in use is trusted by what is published, and the next plan goes on from there.
//!
//! A CA that is not valid *yet* is replaced in the same way, with all the waits: if it is this replica's clock that is
//! wrong, and not the one by which the CA was made, leaves of that CA are in use.

use std::fmt;

use jiff::Timestamp;

use super::{
    authority::{
        Authority, Broken, CA_CERTIFICATE, CA_KEY, MAX_PREVIOUS, NEXT_CERTIFICATE, NEXT_KEY,
        NEXT_PUBLISHED_AT, PREVIOUS_CERTIFICATES, PREVIOUS_UNTIL, ROTATE, ROTATED, Retired, SecretContent,
    },
    issue::Ca,
    lifetime::{Lifetimes, Reason, later, needs_renewal},
    pem,
};

/// What this replica may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everything. There is one at a time.
    Leader,
    /// What cannot wait for a leader: make a CA where there is none, and publish it.
    Follower,
}

/// The caBundles of all webhooks of the configurations that exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Published {
    /// One for each webhook, empty where it has none.
    pub bundles: Vec<Vec<u8>>,
}

impl Published {
    /// Whether every webhook has exactly this bundle.
    pub fn is(&self, bundle: &str) -> bool {
        self.bundles
            .iter()
            .all(|published| published == bundle.as_bytes())
    }
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Change the Secret.
    Write(Change),
    /// Publish this caBundle.
    Publish(String),
    /// Nothing until then, or until something changes.
    Rest {
        /// When time alone makes the next step necessary.
        until: Timestamp,
    },
}

/// A change of the Secret, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// There is no Secret: make it.
    Create,
    /// The current CA cannot be used: make another.
    Replace(Cause),
    /// Write the next CA.
    Stage(Cause),
    /// Record that the next CA is published.
    Confirm,
    /// The next CA becomes the current one.
    Promote,
    /// Remove what is of no use any more.
    Tidy,
}

/// Why a CA is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The Secret's entries cannot be used.
    Broken(Broken),
    /// The current CA's life is over, or nearly so.
    Renewal(Reason),
    /// Somebody asked, with this value of the annotation.
    Requested(String),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(broken) => broken.fmt(f),
            Self::Renewal(reason) => write!(f, "the CA has to be renewed: {reason}"),
            Self::Requested(value) => write!(f, "the annotation {ROTATE}={value:?} asks for a new CA"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => f.write_str("made a CA: there was none"),
            Self::Replace(cause) => write!(f, "made a new CA: {cause}"),
            Self::Stage(cause) => write!(f, "began a rotation: {cause}"),
            Self::Confirm => f.write_str("the next CA is published"),
            Self::Promote => f.write_str("the next CA signs from now on"),
            Self::Tidy => f.write_str("removed entries that are of no use any more"),
        }
    }
}

/// Decides what comes next. `published` is `None` while it is not known.
pub fn plan(
    secret: Option<&SecretContent>,
    published: Option<&Published>,
    role: Role,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Step {
    let Some(secret) = secret else {
        return Step::Write(Change::Create);
    };
    let authority = match Authority::parse(secret) {
        Ok(authority) => authority,
        Err(broken) => return Step::Write(Change::Replace(Cause::Broken(broken))),
    };
    let renewal = needs_renewal(authority.current.validity(), now);
    if let (Some(expired @ Reason::Expired { .. }), Role::Leader) = (renewal, role) {
        return Step::Write(match &authority.next {
            Some(next) if next.validity().holds(now) => Change::Promote,
            _ => Change::Replace(Cause::Renewal(expired)),
        });
    }
    let bundle = authority.bundle();
    let is_published = published.is_some_and(|published| published.is(&bundle));
    if published.is_some() && !is_published {
        return Step::Publish(bundle);
    }
    match role {
        Role::Follower => Step::Rest {
            until: Timestamp::MAX,
        },
        Role::Leader => lead(&authority, renewal, is_published, lifetimes, now),
    }
}

fn lead(
    authority: &Authority,
    renewal: Option<Reason>,
    is_published: bool,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Step {
    // Whatever it was staged for, it has to be staged again, and not just to go.
    if let Some(early @ Reason::Early { .. }) = authority
        .next
        .as_ref()
        .and_then(|next| needs_renewal(next.validity(), now))
    {
        return Step::Write(Change::Stage(Cause::Renewal(early)));
    }
    if needs_tidying(authority, now) {
        return Step::Write(Change::Tidy);
    }
    let Some(_next) = &authority.next else {
        let cause = authority
            .requested
            .clone()
            .map(Cause::Requested)
            .or(renewal.map(Cause::Renewal));
        return match cause {
            Some(cause) => Step::Write(Change::Stage(cause)),
            None => Step::Rest {
                until: next_deadline(authority),
            },
        };
    };
    if !is_published {
        return Step::Rest {
            until: Timestamp::MAX,
        };
    }
    match authority.next_published_at {
        // A moment that has not come was written by a clock that was ahead: it says nothing.
        Some(since) if since <= now => {
            let settled = later(since, lifetimes.settle);
            if settled <= now {
                Step::Write(Change::Promote)
            } else {
                Step::Rest { until: settled }
            }
        }
        _ => Step::Write(Change::Confirm),
    }
}

fn needs_tidying(authority: &Authority, now: Timestamp) -> bool {
    !authority.defects.is_empty()
        || authority
            .next
            .as_ref()
            .is_some_and(|next| needs_renewal(next.validity(), now).is_some())
        || authority.previous.len() > MAX_PREVIOUS
        || authority.previous.len() != still_needed(authority, now).count()
}

fn still_needed(authority: &Authority, now: Timestamp) -> impl Iterator<Item = &Retired> {
    let over = authority.previous_until.is_some_and(|until| until < now);
    authority.previous.iter().filter(move |retired| {
        !over && !retired.validity.has_expired(now) && retired.certificate != *authority.current.certificate()
    })
}

fn next_deadline(authority: &Authority) -> Timestamp {
    let previous = authority
        .previous
        .iter()
        .map(|retired| retired.validity.not_after);
    let until = authority
        .previous_until
        .filter(|_| !authority.previous.is_empty());
    previous
        .chain(until)
        .fold(authority.current.validity().renewal_due(), Timestamp::min)
}

impl Change {
    /// Whether a new CA has to be made for it.
    pub fn needs_a_ca(&self) -> bool {
        matches!(self, Self::Create | Self::Replace(_) | Self::Stage(_))
    }

    /// The Secret after the change. `made` is the new CA where [`Self::needs_a_ca`]; `remembered` are the CAs that
    /// this replica knows to be in use, for the case that the Secret has lost them.
    pub fn apply(
        &self,
        secret: &SecretContent,
        made: Option<&Ca>,
        remembered: &[Retired],
        lifetimes: &Lifetimes,
        now: Timestamp,
    ) -> SecretContent {
        let mut after = secret.clone();
        match (self, Authority::parse(secret)) {
            (Self::Create | Self::Replace(_), _) => {
                after.set_ca(CA_CERTIFICATE, CA_KEY, made);
                after.set_ca(NEXT_CERTIFICATE, NEXT_KEY, None);
                after.annotations.remove(NEXT_PUBLISHED_AT);
                after.acknowledge_request();
                after.set_previous(remembered.iter().filter(|ca| !ca.validity.has_expired(now)));
                after.trust_previous_until(later(now, lifetimes.leaf));
            }
            (Self::Stage(_), _) => {
                after.set_ca(NEXT_CERTIFICATE, NEXT_KEY, made);
                after.annotations.remove(NEXT_PUBLISHED_AT);
                after.acknowledge_request();
            }
            (Self::Confirm, _) => {
                after
                    .annotations
                    .insert(NEXT_PUBLISHED_AT.into(), now.to_string());
            }
            (Self::Promote, Ok(authority)) => {
                after.set_ca(CA_CERTIFICATE, CA_KEY, authority.next.as_ref());
                after.set_ca(NEXT_CERTIFICATE, NEXT_KEY, None);
                after.annotations.remove(NEXT_PUBLISHED_AT);
                let in_use = authority.in_use();
                after.set_previous(in_use.iter().filter(|ca| !ca.validity.has_expired(now)));
                after.trust_previous_until(later(now, lifetimes.leaf));
            }
            (Self::Tidy, Ok(authority)) => {
                let next = authority
                    .next
                    .as_ref()
                    .filter(|next| needs_renewal(next.validity(), now).is_none());
                if next.is_none() {
                    after.set_ca(NEXT_CERTIFICATE, NEXT_KEY, None);
                    after.annotations.remove(NEXT_PUBLISHED_AT);
                }
                after.set_previous(still_needed(&authority, now));
                if !after.data.contains_key(PREVIOUS_CERTIFICATES) {
                    after.annotations.remove(PREVIOUS_UNTIL);
                }
            }
            // The Secret is not the one that the plan was made for: the next plan sees to it.
            (Self::Promote | Self::Tidy, Err(_)) => {}
        }
        after
    }
}

impl SecretContent {
    fn set_ca(&mut self, certificate_entry: &str, key_entry: &str, ca: Option<&Ca>) {
        if let Some(ca) = ca {
            self.data
                .insert(certificate_entry.into(), ca.certificate_pem().into_bytes());
            self.data.insert(key_entry.into(), ca.key_pem().into_bytes());
        } else {
            self.data.remove(certificate_entry);
            self.data.remove(key_entry);
        }
    }

    fn set_previous<'a>(&mut self, previous: impl Iterator<Item = &'a Retired>) {
        let mut certificates: Vec<_> = previous.map(|retired| &retired.certificate).collect();
        let excess = certificates.len().saturating_sub(MAX_PREVIOUS);
        certificates.drain(..excess);
        if certificates.is_empty() {
            self.data.remove(PREVIOUS_CERTIFICATES);
        } else {
            let text = pem::encode_certificates(certificates);
            self.data.insert(PREVIOUS_CERTIFICATES.into(), text.into_bytes());
        }
    }

    fn trust_previous_until(&mut self, until: Timestamp) {
        if self.data.contains_key(PREVIOUS_CERTIFICATES) {
            self.annotations.insert(PREVIOUS_UNTIL.into(), until.to_string());
        } else {
            self.annotations.remove(PREVIOUS_UNTIL);
        }
    }

    fn acknowledge_request(&mut self) {
        if let Some(value) = self.annotations.get(ROTATE).cloned() {
            self.annotations.insert(ROTATED.into(), value);
        }
    }
}

#[cfg(test)]
#[path = "rotation_tests.rs"]
mod tests;
