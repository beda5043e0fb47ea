//! Which ordinals this replica has just given away, before the watch shows the pods.
//!
//! Without this, a burst of creations would be offered one and the same lowest ordinal. It is only an
//! optimisation: the pod's name in etcd decides who holds an ordinal, and a lost reservation costs one 409.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use crate::identity::{FlockKey, Ordinal};

/// After this long a creation that we answered has come to its end, well or badly: the API server itself needs
/// some 10 ms. From then on the offer may be made again, once a live look shows that no pod followed.
const SETTLED: SignedDuration = SignedDuration::from_millis(250);
/// How long a name counts as held by a stranger after a live look.
const LOOKED: SignedDuration = SignedDuration::from_secs(2);
/// How long nobody looks again after a look that the API server did not answer.
const UNANSWERED: SignedDuration = SignedDuration::from_secs(2);
/// After this long nothing is known any more.
const FORGOTTEN: SignedDuration = SignedDuration::from_secs(60);

/// What is known of an ordinal beyond the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nothing: it is free as far as the view is.
    None,
    /// Given away a moment ago.
    Reserved,
    /// Given away a while ago, and no pod came: look before it is offered again.
    Suspect,
    /// Given away a while ago, no pod came, and the API server could not be asked a moment ago: the last to be
    /// offered. If somebody has the name after all, its creation is answered with 409, as without any look.
    Doubtful,
    /// A pod without the flock's label has the name.
    Stranger,
}

#[derive(Clone, Debug)]
enum Entry {
    Offered {
        owner: String,
        request: String,
        at: Timestamp,
    },
    FoundFree {
        at: Timestamp,
    },
    FoundHeld {
        at: Timestamp,
    },
}

/// The reservations of this replica.
#[derive(Debug, Default)]
pub struct Reservations {
    flocks: HashMap<FlockKey, BTreeMap<Ordinal, Entry>>,
    swept: Option<Timestamp>,
    unanswered: Option<Timestamp>,
}

impl Reservations {
    /// What is known of an ordinal.
    pub fn hold(&self, key: &FlockKey, ordinal: Ordinal, now: Timestamp) -> Hold {
        match self.flocks.get(key).and_then(|entries| entries.get(&ordinal)) {
            None | Some(Entry::FoundFree { .. }) => Hold::None,
            Some(Entry::Offered { at, .. }) if now.duration_since(*at) < SETTLED => Hold::Reserved,
            Some(Entry::FoundHeld { at }) if now.duration_since(*at) < LOOKED => Hold::Stranger,
            Some(_) if self.is_unanswered(now) => Hold::Doubtful,
            Some(_) => Hold::Suspect,
        }
    }

    /// Gives an ordinal to a request.
    pub fn reserve(&mut self, key: &FlockKey, ordinal: Ordinal, owner: &str, request: &str, now: Timestamp) {
        self.sweep(now);
        let entry = Entry::Offered {
            owner: owner.into(),
            request: request.into(),
            at: now,
        };
        self.flocks.entry(key.clone()).or_default().insert(ordinal, entry);
    }

    /// The view shows a pod of that name: the reservation has done its work.
    pub fn settle(&mut self, key: &FlockKey, ordinal: Ordinal) {
        if let Some(entries) = self.flocks.get_mut(key) {
            entries.remove(&ordinal);
            if entries.is_empty() {
                self.flocks.remove(key);
            }
        }
    }

    /// A live look at the name found nobody, or somebody.
    pub fn looked(&mut self, key: &FlockKey, ordinal: Ordinal, held: bool, now: Timestamp) {
        let entry = if held {
            Entry::FoundHeld { at: now }
        } else {
            Entry::FoundFree { at: now }
        };
        self.flocks.entry(key.clone()).or_default().insert(ordinal, entry);
        self.unanswered = None;
    }

    /// A live look got no answer, and none would get one now.
    pub fn not_answered(&mut self, now: Timestamp) {
        self.unanswered = Some(now);
    }

    fn is_unanswered(&self, now: Timestamp) -> bool {
        self.unanswered
            .is_some_and(|since| now.duration_since(since) < UNANSWERED)
    }

    /// How many are held, for the metric.
    pub fn len(&self) -> usize {
        self.flocks.values().map(BTreeMap::len).sum()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.flocks.is_empty()
    }

    /// To whom an ordinal was offered last: owner's and request's uid, for the log.
    pub fn offered_to(&self, key: &FlockKey, ordinal: Ordinal) -> Option<(&str, &str)> {
        match self.flocks.get(key)?.get(&ordinal)? {
            Entry::Offered { owner, request, .. } => Some((owner, request)),
            Entry::FoundFree { .. } | Entry::FoundHeld { .. } => None,
        }
    }

    /// Bounds the memory: what nobody settled is forgotten, at most once a minute.
    fn sweep(&mut self, now: Timestamp) {
        if self
            .swept
            .is_some_and(|last| now.duration_since(last) < FORGOTTEN)
        {
            return;
        }
        self.swept = Some(now);
        for entries in self.flocks.values_mut() {
            entries.retain(|_, entry| {
                let at = match entry {
                    Entry::Offered { at, .. } | Entry::FoundFree { at } | Entry::FoundHeld { at } => *at,
                };
                now.duration_since(at) < FORGOTTEN
            });
        }
        self.flocks.retain(|_, entries| !entries.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_000_000 + millis).unwrap()
    }

    fn key() -> FlockKey {
        FlockKey::parse("default", "db").unwrap()
    }

    fn zero() -> Ordinal {
        Ordinal::new(0).unwrap()
    }

    #[test]
    fn an_offer_that_no_pod_followed_is_looked_at_before_it_is_made_again() {
        let mut reservations = Reservations::default();
        assert_eq!(reservations.hold(&key(), zero(), at(0)), Hold::None);
        reservations.reserve(&key(), zero(), "owner", "request", at(0));
        assert_eq!(reservations.hold(&key(), zero(), at(100)), Hold::Reserved);
        assert_eq!(reservations.hold(&key(), zero(), at(300)), Hold::Suspect);
        reservations.looked(&key(), zero(), false, at(300));
        assert_eq!(reservations.hold(&key(), zero(), at(400)), Hold::None);
        reservations.reserve(&key(), zero(), "owner", "another", at(400));
        assert_eq!(
            reservations.offered_to(&key(), zero()),
            Some(("owner", "another"))
        );
        assert_eq!(reservations.hold(&key(), zero(), at(5_000)), Hold::Suspect);
    }

    #[test]
    fn while_the_api_server_answers_no_look_an_offer_is_doubtful_and_not_looked_at() {
        let mut reservations = Reservations::default();
        reservations.reserve(&key(), zero(), "owner", "request", at(0));
        reservations.not_answered(at(300));
        assert_eq!(reservations.hold(&key(), zero(), at(300)), Hold::Doubtful);
        assert_eq!(reservations.hold(&key(), zero(), at(2_400)), Hold::Suspect);
        reservations.not_answered(at(2_400));
        reservations.looked(&key(), Ordinal::new(1).unwrap(), false, at(2_500));
        assert_eq!(
            reservations.hold(&key(), zero(), at(2_500)),
            Hold::Suspect,
            "it answers again"
        );
    }

    #[test]
    fn a_stranger_holds_a_name_until_the_next_look() {
        let mut reservations = Reservations::default();
        reservations.looked(&key(), zero(), true, at(0));
        assert_eq!(reservations.hold(&key(), zero(), at(1_000)), Hold::Stranger);
        assert_eq!(reservations.hold(&key(), zero(), at(3_000)), Hold::Suspect);
    }

    #[test]
    fn a_pod_that_appears_settles_its_reservation() {
        let mut reservations = Reservations::default();
        reservations.reserve(&key(), zero(), "owner", "request", at(0));
        reservations.settle(&key(), zero());
        assert_eq!(reservations.hold(&key(), zero(), at(1)), Hold::None);
    }

    #[test]
    fn reservations_that_nobody_settles_do_not_pile_up() {
        let mut reservations = Reservations::default();
        for number in 0..1000 {
            reservations.reserve(&key(), Ordinal::new(number).unwrap(), "owner", "request", at(0));
        }
        reservations.reserve(&key(), zero(), "owner", "request", at(60_001));
        assert_eq!(reservations.len(), 1);
    }
}
