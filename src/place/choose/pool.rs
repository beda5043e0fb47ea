//! The candidates of one set of constraints, in the order in which they are taken.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::place::eligibility::{Tally, Unfit};

/// What is known of the nodes for one set of constraints and one kind of pin.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Seats that qualify, free or not, ascending.
    pub(super) eligible: Vec<usize>,
    /// The nodes that do not.
    pub(super) refused: Tally,
    pub(super) candidates: Candidates,
    tally: Option<(usize, Arc<Tally>)>,
}

impl Pool {
    /// All nodes, counted anew only after a placement: a hundred failures in a row count once.
    pub(super) fn tally(
        &mut self,
        placements: usize,
        free: impl Fn(usize) -> Result<(), Unfit>,
    ) -> Arc<Tally> {
        if let Some((at, tally)) = &self.tally
            && *at == placements
        {
            return tally.clone();
        }
        let mut tally = self.refused.clone();
        for &at in &self.eligible {
            tally.add(free(at));
        }
        let tally = Arc::new(tally);
        self.tally = Some((placements, tally.clone()));
        tally
    }
}

/// Free seats in two ordered levels: seats within their zone, and every zone by its best seat.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    zones: HashMap<usize, Zone>,
    /// (members of the flock in the zone, members on the zone's best seat, that seat, the zone)
    order: BTreeSet<(usize, usize, usize, usize)>,
}

#[derive(Debug, Default)]
struct Zone {
    members: usize,
    /// (members on the seat, the seat)
    seats: BTreeSet<(usize, usize)>,
}

impl Zone {
    fn rank(&self, zone: usize) -> Option<(usize, usize, usize, usize)> {
        let (members, seat) = self.seats.first()?;
        Some((self.members, *members, *seat, zone))
    }
}

impl Candidates {
    /// Adds a seat with so many members, in a zone with so many.
    pub(super) fn insert(&mut self, seat: usize, zone: usize, zone_members: usize, members: usize) {
        self.rerank(zone, zone_members, |seats| {
            seats.insert((members, seat));
        });
    }

    /// A seat that had `before` members got one more, and its zone has `zone_members` now; the seat stays a candidate
    /// only if `keep`.
    pub(super) fn moved(&mut self, seat: usize, zone: usize, zone_members: usize, before: usize, keep: bool) {
        self.rerank(zone, zone_members, |seats| {
            if seats.remove(&(before, seat)) && keep {
                seats.insert((before + 1, seat));
            }
        });
    }

    /// The best seat that `allowed` lets through.
    pub(super) fn best(&self, allowed: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(usize, usize, usize)> = None;
        for &(zone_members, members, seat, zone) in &self.order {
            // No seat of this zone, or of a later one, beats what its first would be.
            if best.is_some_and(|best| best < (zone_members, members, seat)) {
                break;
            }
            let first = self.zones[&zone].seats.iter().find(|(_, seat)| allowed(*seat));
            let found = first.map(|&(members, seat)| (zone_members, members, seat));
            best = [best, found].into_iter().flatten().min();
        }
        best.map(|(_, _, seat)| seat)
    }

    fn rerank(
        &mut self,
        zone: usize,
        zone_members: usize,
        change: impl FnOnce(&mut BTreeSet<(usize, usize)>),
    ) {
        let entry = self.zones.entry(zone).or_default();
        if let Some(rank) = entry.rank(zone) {
            self.order.remove(&rank);
        }
        entry.members = zone_members;
        change(&mut entry.seats);
        if let Some(rank) = entry.rank(zone) {
            self.order.insert(rank);
        }
    }
}
