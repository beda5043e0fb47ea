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
/// So many are kept, which are at most 10 MiB: anybody who reaches the port can have some made.
const MOST: usize = 20_000;
/// Where there are as many, only those of this age are worth their room.
const CROWDED: SignedDuration = SignedDuration::from_secs(1);

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    Offered,
    FoundFree,
    FoundHeld,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    fact: Fact,
    at: Timestamp,
}

impl Entry {
    fn is_younger(&self, time: SignedDuration, now: Timestamp) -> bool {
        is_within(time, self.at, now)
    }
}

/// Whether less than this time has gone by. What seems to come from the future was before the clock was set back.
fn is_within(time: SignedDuration, since: Timestamp, now: Timestamp) -> bool {
    (SignedDuration::ZERO..time).contains(&now.duration_since(since))
}

/// The reservations of this replica.
#[derive(Debug, Default)]
pub struct Reservations {
    flocks: HashMap<FlockKey, BTreeMap<Ordinal, Entry>>,
    count: usize,
    swept: Option<Timestamp>,
    unanswered: Option<Timestamp>,
}

impl Reservations {
    /// What is known of an ordinal.
    pub fn hold(&self, key: &FlockKey, ordinal: Ordinal, now: Timestamp) -> Hold {
        match self.flocks.get(key).and_then(|entries| entries.get(&ordinal)) {
            None => Hold::None,
            Some(entry) if entry.fact == Fact::FoundFree => Hold::None,
            Some(entry) if entry.fact == Fact::Offered && entry.is_younger(SETTLED, now) => Hold::Reserved,
            Some(entry) if entry.fact == Fact::FoundHeld && entry.is_younger(LOOKED, now) => Hold::Stranger,
            Some(_) if self.is_unanswered(now) => Hold::Doubtful,
            Some(_) => Hold::Suspect,
        }
    }

    /// Gives an ordinal to a request.
    pub fn reserve(&mut self, key: &FlockKey, ordinal: Ordinal, now: Timestamp) {
        self.note(key, ordinal, Fact::Offered, now);
    }

    fn note(&mut self, key: &FlockKey, ordinal: Ordinal, fact: Fact, now: Timestamp) {
        self.sweep(now);
        let entry = Entry { fact, at: now };
        match self.flocks.get_mut(key) {
            Some(entries) if entries.contains_key(&ordinal) => {
                entries.insert(ordinal, entry);
            }
            // One more is not worth the memory; it costs a 409 at most.
            _ if self.count >= MOST => {}
            Some(entries) => {
                entries.insert(ordinal, entry);
                self.count += 1;
            }
            None => {
                self.flocks
                    .insert(key.clone(), BTreeMap::from([(ordinal, entry)]));
                self.count += 1;
            }
        }
    }

    /// The view shows a pod of that name: the reservation has done its work.
    pub fn settle(&mut self, key: &FlockKey, ordinal: Ordinal) {
        if let Some(entries) = self.flocks.get_mut(key) {
            self.count -= usize::from(entries.remove(&ordinal).is_some());
            if entries.is_empty() {
                self.flocks.remove(key);
            }
        }
    }

    /// A live look at the name found nobody, or somebody.
    pub fn looked(&mut self, key: &FlockKey, ordinal: Ordinal, held: bool, now: Timestamp) {
        let fact = if held { Fact::FoundHeld } else { Fact::FoundFree };
        self.note(key, ordinal, fact, now);
        self.unanswered = None;
    }

    /// A live look got no answer, and none would get one now.
    pub fn not_answered(&mut self, now: Timestamp) {
        self.unanswered = Some(now);
    }

    fn is_unanswered(&self, now: Timestamp) -> bool {
        self.unanswered
            .is_some_and(|since| is_within(UNANSWERED, since, now))
    }

    /// How many are held, for the metric.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.flocks.is_empty()
    }

    /// Bounds the memory: what nobody settled is forgotten, at most once a minute, or once a second where it is much.
    fn sweep(&mut self, now: Timestamp) {
        let (pause, age) = if self.count < MOST {
            (FORGOTTEN, FORGOTTEN)
        } else {
            (CROWDED, CROWDED)
        };
        if self.swept.is_some_and(|last| is_within(pause, last, now)) {
            return;
        }
        self.swept = Some(now);
        self.flocks.retain(|_, entries| {
            entries.retain(|_, entry| entry.is_younger(age, now));
            !entries.is_empty()
        });
        self.count = self.flocks.values().map(BTreeMap::len).sum();
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
        reservations.reserve(&key(), zero(), at(0));
        assert_eq!(reservations.hold(&key(), zero(), at(100)), Hold::Reserved);
        assert_eq!(reservations.hold(&key(), zero(), at(300)), Hold::Suspect);
        reservations.looked(&key(), zero(), false, at(300));
        assert_eq!(reservations.hold(&key(), zero(), at(400)), Hold::None);
        reservations.reserve(&key(), zero(), at(400));
        assert_eq!(reservations.hold(&key(), zero(), at(5_000)), Hold::Suspect);
    }

    #[test]
    fn while_the_api_server_answers_no_look_an_offer_is_doubtful_and_not_looked_at() {
        let mut reservations = Reservations::default();
        reservations.reserve(&key(), zero(), at(0));
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
    fn what_was_noted_before_the_clock_was_set_back_is_old() {
        let mut reservations = Reservations::default();
        reservations.reserve(&key(), zero(), at(0));
        let earlier = at(-999_000);
        assert_eq!(reservations.hold(&key(), zero(), earlier), Hold::Suspect);
        reservations.looked(&key(), zero(), true, at(0));
        assert_eq!(reservations.hold(&key(), zero(), earlier), Hold::Suspect);
        reservations.not_answered(at(0));
        assert_eq!(reservations.hold(&key(), zero(), earlier), Hold::Suspect);
        reservations.reserve(&FlockKey::parse("default", "other").unwrap(), zero(), earlier);
        assert_eq!(reservations.len(), 1, "it is forgotten too");
    }

    #[test]
    fn there_are_never_more_than_are_worth_their_memory() {
        let mut reservations = Reservations::default();
        let flock = |number| FlockKey::parse("default", &format!("db{number}")).unwrap();
        for number in 0..2 * MOST {
            reservations.reserve(&flock(number), zero(), at(0));
        }
        assert_eq!(reservations.len(), MOST);
        assert_eq!(reservations.hold(&flock(0), zero(), at(1)), Hold::Reserved);
        assert_eq!(reservations.hold(&flock(MOST), zero(), at(1)), Hold::None);
        reservations.reserve(&flock(0), zero(), at(500));
        assert_eq!(reservations.len(), MOST, "known already");
        reservations.reserve(&flock(MOST), zero(), at(1_001));
        assert_eq!(reservations.hold(&flock(MOST), zero(), at(1_002)), Hold::Reserved);
        assert_eq!(reservations.len(), 2, "with the one of a moment ago");
        reservations.settle(&flock(MOST), zero());
        reservations.settle(&flock(MOST), zero());
        assert_eq!(reservations.len(), 1);
    }

    #[test]
    fn a_pod_that_appears_settles_its_reservation() {
        let mut reservations = Reservations::default();
        reservations.reserve(&key(), zero(), at(0));
        reservations.settle(&key(), zero());
        assert_eq!(reservations.hold(&key(), zero(), at(1)), Hold::None);
    }

    #[test]
    fn reservations_that_nobody_settles_do_not_pile_up() {
        let mut reservations = Reservations::default();
        for number in 0..1000 {
            reservations.reserve(&key(), Ordinal::new(number).unwrap(), at(0));
        }
        reservations.reserve(&key(), zero(), at(60_001));
        assert_eq!(reservations.len(), 1);
    }
}
