//! How long certificates live and when they are replaced. Pure: the clock is an argument.
//!
//! The moments of a validity are whole seconds, as they are in a certificate.

use std::{fmt, time::Duration};

use jiff::Timestamp;

/// A CA lives for a year: long enough that a cluster which is off for months still trusts it when it comes back.
pub const CA_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// A leaf lives for a week. Its key never leaves the process, so it costs nothing to replace it often.
pub const LEAF_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A certificate is valid from an hour before it was made, for API servers whose clock is behind.
pub const BACKDATE: Duration = Duration::from_secs(3600);
/// How long a caBundle must have been published before a leaf may rely on it. API servers learn of it through a
/// watch, which takes milliseconds; a loaded one may take seconds.
pub const SETTLE: Duration = Duration::from_secs(10);

/// The durations that a rotation is made of; tests shorten them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// Life of a CA, see [`CA_LIFE`].
    pub ca: Duration,
    /// Life of a leaf, see [`LEAF_LIFE`].
    pub leaf: Duration,
    /// How far `notBefore` lies in the past, see [`BACKDATE`].
    pub backdate: Duration,
    /// How long a published CA rests before it is used, see [`SETTLE`].
    pub settle: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            ca: CA_LIFE,
            leaf: LEAF_LIFE,
            backdate: BACKDATE,
            settle: SETTLE,
        }
    }
}

/// The period in which a certificate is valid, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// First second of validity.
    pub not_before: Timestamp,
    /// Last second of validity.
    pub not_after: Timestamp,
}

/// Why a certificate has to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Its validity has ended.
    Expired {
        /// When it ended.
        not_after: Timestamp,
    },
    /// Two thirds of its life are over.
    Due {
        /// When two thirds were over.
        since: Timestamp,
    },
    /// Its validity has not begun: the clock was ahead where it was made.
    Early {
        /// When it begins.
        not_before: Timestamp,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired { not_after } => write!(f, "it expired at {not_after}"),
            Self::Due { since } => write!(f, "two thirds of its life were over at {since}"),
            Self::Early { not_before } => write!(
                f,
                "it is not valid before {not_before}, so it was made by a clock that was ahead"
            ),
        }
    }
}

impl Validity {
    /// The validity of a CA made now.
    pub fn of_ca(lifetimes: &Lifetimes, now: Timestamp) -> Self {
        let now = whole_second(now);
        Self {
            not_before: earlier(now, lifetimes.backdate),
            not_after: later(now, lifetimes.ca),
        }
    }

    /// The validity of a leaf made now: never outside that of the CA that signs it, and beginning with it where that is
    /// yet to come.
    pub fn of_leaf(lifetimes: &Lifetimes, ca: &Self, now: Timestamp) -> Self {
        let now = whole_second(now);
        Self {
            not_before: earlier(now, lifetimes.backdate).max(ca.not_before),
            not_after: later(now.max(ca.not_before), lifetimes.leaf).min(ca.not_after),
        }
    }

    /// The moment at which two thirds of the life are over.
    pub fn renewal_due(&self) -> Timestamp {
        let life = self
            .not_after
            .as_second()
            .saturating_sub(self.not_before.as_second());
        at(self
            .not_before
            .as_second()
            .saturating_add(life.saturating_mul(2) / 3))
    }

    /// Whether the validity has ended.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        now > self.not_after
    }

    /// Whether the validity has not begun. Only a wrong clock, here or where the certificate was made, explains it.
    pub fn is_in_the_future(&self, now: Timestamp) -> bool {
        now < self.not_before
    }

    /// Whether the moment is in it.
    pub fn holds(&self, now: Timestamp) -> bool {
        !self.has_expired(now) && !self.is_in_the_future(now)
    }
}

/// Whether a certificate of that validity has to be replaced now, and why.
///
/// One that is not valid *yet* has to be. Replicas whose clocks differ do not replace each other's for ever by that: one
/// that is made in its place begins earlier, so whoever made the first finds it valid, and [`BACKDATE`] forgives an hour.
pub fn needs_renewal(validity: &Validity, now: Timestamp) -> Option<Reason> {
    if validity.has_expired(now) {
        return Some(Reason::Expired {
            not_after: validity.not_after,
        });
    }
    if validity.is_in_the_future(now) {
        return Some(Reason::Early {
            not_before: validity.not_before,
        });
    }
    let since = validity.renewal_due();
    (now >= since).then_some(Reason::Due { since })
}

/// The moment `by` after `from`; the end of time where there is none.
pub fn later(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The moment `by` before `from`; the beginning of time where there is none.
pub fn earlier(from: Timestamp, by: Duration) -> Timestamp {
    from.checked_sub(by).unwrap_or(Timestamp::MIN)
}

/// The whole second that the moment is in.
fn whole_second(time: Timestamp) -> Timestamp {
    at(time.as_second())
}

fn at(second: i64) -> Timestamp {
    let bounded = second.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    Timestamp::from_second(bounded).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;

    fn t(second: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + second).unwrap()
    }

    #[rstest]
    #[case::just_made(0, None)]
    #[case::one_second_before_two_thirds(2 * 30 * DAY - 1, None)]
    #[case::at_two_thirds(2 * 30 * DAY, Some(Reason::Due { since: t(2 * 30 * DAY) }))]
    #[case::at_its_last_second(90 * DAY, Some(Reason::Due { since: t(2 * 30 * DAY) }))]
    #[case::after_its_end(90 * DAY + 1, Some(Reason::Expired { not_after: t(90 * DAY) }))]
    #[case::before_its_beginning(-1, Some(Reason::Early { not_before: t(0) }))]
    fn a_certificate_is_renewed_at_two_thirds_of_its_life(#[case] now: i64, #[case] reason: Option<Reason>) {
        let validity = Validity {
            not_before: t(0),
            not_after: t(90 * DAY),
        };
        assert_eq!(needs_renewal(&validity, t(now)), reason);
    }

    #[test]
    fn a_leaf_never_outlives_its_ca_nor_precedes_it() {
        let lifetimes = Lifetimes::default();
        let ca = Validity {
            not_before: t(-60),
            not_after: t(DAY),
        };
        let leaf = Validity::of_leaf(&lifetimes, &ca, t(0));
        assert_eq!(leaf, ca);
    }

    #[test]
    fn a_leaf_of_a_ca_that_is_yet_to_begin_begins_with_it_and_ends_after() {
        let lifetimes = Lifetimes::default();
        let ca = Validity {
            not_before: t(30 * DAY),
            not_after: t(90 * DAY),
        };
        let leaf = Validity::of_leaf(&lifetimes, &ca, t(0));
        let wanted = Validity {
            not_before: t(30 * DAY),
            not_after: t(37 * DAY),
        };
        assert_eq!(leaf, wanted);
    }

    #[test]
    fn the_default_lives_are_a_year_and_a_week_and_begin_an_hour_ago() {
        let lifetimes = Lifetimes::default();
        let ca = Validity::of_ca(&lifetimes, t(0));
        assert_eq!(
            ca,
            Validity {
                not_before: t(-HOUR),
                not_after: t(365 * DAY)
            }
        );
        let leaf = Validity::of_leaf(&lifetimes, &ca, t(0));
        assert_eq!(
            leaf,
            Validity {
                not_before: t(-HOUR),
                not_after: t(7 * DAY)
            }
        );
    }

    #[test]
    fn a_wait_is_not_cut_to_whole_seconds() {
        let since: Timestamp = "2030-01-01T00:00:00.9Z".parse().unwrap();
        assert_eq!(later(since, SETTLE), "2030-01-01T00:00:10.9Z".parse().unwrap());
        assert_eq!(
            Validity::of_ca(&Lifetimes::default(), since).not_after,
            "2031-01-01T00:00:00Z".parse().unwrap()
        );
    }

    #[test]
    fn a_life_without_length_or_beyond_time_is_no_panic() {
        let nothing = Validity {
            not_before: t(10),
            not_after: t(0),
        };
        assert!(needs_renewal(&nothing, t(11)).is_some());
        let always = Validity {
            not_before: Timestamp::MIN,
            not_after: Timestamp::MAX,
        };
        assert_eq!(needs_renewal(&always, t(0)), None);
        assert_eq!(later(Timestamp::MAX, Duration::MAX), Timestamp::MAX);
    }
}
