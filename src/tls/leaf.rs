//! When a replica signs itself a new leaf. Pure.
//!
//! A leaf of another CA than the one in service is taken only once API servers have had time to learn to trust that
//! CA; what they trust now goes on being served until then. That holds however the CA came to change: by a rotation,
//! or because somebody deleted the Secret. And it is taken only while that CA is valid: where it is not, a clock was wrong
//! when it was made, and a leaf that is valid is worth more.

use std::fmt;

use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use super::{
    authority::Authority,
    issue::Leaf,
    lifetime::{Lifetimes, Reason, Validity, later, needs_renewal},
    pem,
    rotation::Published,
};

/// Which CAs every published caBundle holds, and since when this replica has seen it so.
#[derive(Debug, Default)]
pub struct Trust {
    seen: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// No webhook exists that could call.
    nobody_calls: bool,
    since: Vec<(CertificateDer<'static>, Timestamp)>,
}

impl Trust {
    /// Takes note of what is published now.
    pub fn observe(&mut self, published: Option<&Published>, now: Timestamp) {
        let Some(published) = published else {
            return;
        };
        let before = self.seen.take().map(|seen| seen.since).unwrap_or_default();
        let since = |certificate: &CertificateDer<'_>| {
            let known = before.iter().find(|(known, _)| known == certificate);
            // A clock that was set back must not make the wait longer.
            known.map_or(now, |(_, since)| (*since).min(now))
        };
        self.seen = Some(Seen {
            nobody_calls: published.bundles.is_empty(),
            since: common(published)
                .into_iter()
                .map(|certificate| {
                    let since = since(&certificate);
                    (certificate, since)
                })
                .collect(),
        });
    }

    /// Whether a leaf of that CA is accepted, as far as is known.
    pub fn accepts(&self, ca: &CertificateDer<'_>) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| seen.nobody_calls || seen.since.iter().any(|(known, _)| known == ca))
    }

    /// From when on leaves of that CA may be served; `None` while it is not published.
    fn settled(&self, ca: &CertificateDer<'_>, lifetimes: &Lifetimes) -> Option<Timestamp> {
        let seen = self.seen.as_ref()?;
        if seen.nobody_calls {
            return Some(Timestamp::MIN);
        }
        seen.since
            .iter()
            .find(|(known, _)| known == ca)
            .map(|(_, since)| later(*since, lifetimes.settle))
    }
}

/// The certificates that all bundles hold.
fn common(published: &Published) -> Vec<CertificateDer<'static>> {
    let mut bundles = published
        .bundles
        .iter()
        .map(|text| pem::certificates(text).unwrap_or_default());
    let first = bundles.next().unwrap_or_default();
    bundles.fold(first, |mut common, bundle| {
        common.retain(|certificate| bundle.contains(certificate));
        common
    })
}

/// What to do about the leaf.
#[derive(Debug, PartialEq, Eq)]
pub enum LeafStep {
    /// Sign a new one and serve it.
    Sign(Why),
    /// Go on with the present one until then, or until something changes.
    Keep {
        /// When time alone makes a new one necessary.
        until: Timestamp,
    },
}

/// Why a new leaf is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// There is none.
    First,
    /// Its life is over, or nearly so.
    Renewal(Reason),
    /// The CA has changed, and the new one is published.
    NewCa,
    /// The CA has changed, and the old one is no longer published.
    Distrusted,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::First => f.write_str("there was none"),
            Self::Renewal(reason) => reason.fmt(f),
            Self::NewCa => f.write_str("the CA has changed and is published"),
            Self::Distrusted => f.write_str("the CA of the old one is not published any more"),
        }
    }
}

/// Decides about the leaf.
pub fn plan_leaf(
    leaf: Option<&Leaf>,
    authority: &Authority,
    trust: &Trust,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> LeafStep {
    let Some(leaf) = leaf else {
        return LeafStep::Sign(Why::First);
    };
    let ca = &authority.current;
    let renewal = needs_renewal(&leaf.validity, now);
    if leaf.issuer == *ca.certificate() {
        let fresh = Validity::of_leaf(lifetimes, ca.validity(), now);
        return match renewal {
            Some(reason @ Reason::Early { .. }) if fresh.holds(now) => LeafStep::Sign(Why::Renewal(reason)),
            // The CA itself is of the future. The leader makes another; one that is of use for longer is signed then.
            Some(Reason::Early { .. }) => LeafStep::Keep {
                until: fresh.not_before,
            },
            // Near the end of the CA a new leaf would end with it, as the present one does.
            Some(reason) if fresh.not_after > leaf.validity.not_after => LeafStep::Sign(Why::Renewal(reason)),
            Some(_) => LeafStep::Keep {
                until: Timestamp::MAX,
            },
            None => LeafStep::Keep {
                until: leaf.validity.renewal_due(),
            },
        };
    }
    if leaf.validity.holds(now) && !ca.validity().holds(now) {
        return LeafStep::Keep {
            until: leaf.validity.not_after,
        };
    }
    match renewal {
        Some(reason @ Reason::Expired { .. }) => return LeafStep::Sign(Why::Renewal(reason)),
        Some(reason @ Reason::Early { .. }) if trust.accepts(ca.certificate()) => {
            return LeafStep::Sign(Why::Renewal(reason));
        }
        _ => {}
    }
    match trust.settled(ca.certificate(), lifetimes) {
        Some(settled) if settled <= now => LeafStep::Sign(Why::NewCa),
        Some(_) if !trust.accepts(&leaf.issuer) => LeafStep::Sign(Why::Distrusted),
        Some(settled) => LeafStep::Keep {
            until: settled.min(leaf.validity.not_after),
        },
        None => LeafStep::Keep {
            until: leaf.validity.not_after,
        },
    }
}
