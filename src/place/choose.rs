//! First placement: a node for each ordinal that has none, many ordinals in one go.
//!
//! The node with the fewest members of the flock in its zone wins, then the one with the fewest members of all
//! flocks, then the one whose name sorts first; so the outcome is a function of the cluster, whichever replica of
//! Flock decides. Every placement counts for the next one.
//!
//! Eligibility is checked once for each node and each distinct [`Constraints`]. The candidates stand in two
//! ordered levels, nodes within their zone and each zone by its best node, so that a placement moves one node and
//! one zone, not the whole zone: n ordinals on m nodes take O(m + n log m) steps.

mod no_place;
mod pool;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

pub use no_place::NoPlace;

use super::constraints::Constraints;
use super::eligibility::{Tally, Unfit, check};
use super::node::{NodeFacts, NodeName};
use crate::identity::{FlockKey, Ordinal, Pin};
use pool::Pool;

/// Chooses nodes for the ordinals of one flock.
#[derive(Debug)]
pub struct Placer<'a> {
    flock: &'a FlockKey,
    /// By name.
    seats: Vec<Seat<'a>>,
    by_name: HashMap<&'a str, usize>,
    /// The seat of every ordinal that has one.
    carriers: HashMap<Ordinal, usize>,
    /// Members of this flock by zone.
    zones: Vec<usize>,
    pools: HashMap<(Constraints, bool), Pool>,
    /// Grows with every placement: a pool's tally of a failure is good until then.
    placements: usize,
    checks: usize,
}

/// One node, and what this run gave to it.
#[derive(Debug)]
struct Seat<'a> {
    node: &'a NodeFacts,
    zone: usize,
    /// Members of all flocks.
    members: usize,
    /// Members of this flock.
    own: BTreeSet<Ordinal>,
}

impl<'a> Placer<'a> {
    /// A placer for the flock on these nodes, which are all of the cluster's.
    pub fn new(nodes: impl Iterator<Item = &'a NodeFacts>, flock: &'a FlockKey) -> Self {
        let mut nodes: Vec<_> = nodes.collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut zone_ids = BTreeMap::new();
        let mut zones = Vec::new();
        let mut seats = Vec::with_capacity(nodes.len());
        for node in nodes {
            let zone = *zone_ids.entry(node.zone()).or_insert_with(|| {
                zones.push(0);
                zones.len() - 1
            });
            let own = node.carries(flock).clone();
            zones[zone] += own.len();
            seats.push(Seat {
                node,
                zone,
                members: node.member_count(),
                own,
            });
        }
        let mut carriers = HashMap::new();
        for (at, seat) in seats.iter().enumerate() {
            for ordinal in &seat.own {
                carriers.entry(*ordinal).or_insert(at);
            }
        }
        Self {
            flock,
            carriers,
            by_name: seats
                .iter()
                .enumerate()
                .map(|(at, seat)| (&*seat.node.name, at))
                .collect(),
            seats,
            zones,
            pools: HashMap::new(),
            placements: 0,
            checks: 0,
        }
    }

    /// Counts an ordinal as placed on a node whose label is still to be written, such as one that the record names.
    /// A node that does not exist is ignored.
    pub fn reserve(&mut self, ordinal: Ordinal, node: &str) {
        if let Some(&at) = self.by_name.get(node) {
            self.take(at, ordinal);
        }
    }

    /// Chooses the node of an ordinal that has never run.
    ///
    /// A node chosen by hand (`flock.dev/nodes`) is taken or refused, never replaced; an empty name is no choice.
    /// `tried` are nodes on which the scheduler could not place the ordinal's pod before; a choice by hand stands
    /// even then. An ordinal whose label a node carries already, one not tried yet, stays there. Any pin but
    /// Exclusive lets members share a node.
    pub fn place(
        &mut self,
        ordinal: Ordinal,
        constraints: &Constraints,
        pin: Pin,
        by_hand: Option<&str>,
        tried: &BTreeSet<NodeName>,
    ) -> Result<&'a NodeFacts, NoPlace> {
        let exclusive = pin == Pin::Exclusive;
        if let Some(name) = by_hand.filter(|name| !name.is_empty()) {
            let at = self.by_hand(ordinal, name, constraints, exclusive)?;
            self.take(at, ordinal);
            return Ok(self.seats[at].node);
        }
        if let Some(at) = self.stays_at(ordinal, constraints, tried) {
            return Ok(self.seats[at].node);
        }
        let key = (constraints.clone(), exclusive);
        if !self.pools.contains_key(&key) {
            let pool = self.fill_pool(constraints, exclusive);
            self.pools.insert(key.clone(), pool);
        }
        let seats = &self.seats;
        let untried = |at: usize| !tried.contains(&seats[at].node.name);
        let best = self
            .pools
            .get(&key)
            .and_then(|pool| pool.candidates.best(untried));
        if let Some(at) = best {
            self.take(at, ordinal);
            return Ok(self.seats[at].node);
        }
        let pod = self.pod_name(ordinal);
        let tally = self.tally_for(&key, ordinal);
        Err(if tally.fit == 0 {
            NoPlace::NoneFits { pod, tally }
        } else {
            NoPlace::AllTried { pod, tally }
        })
    }

    /// How often a node's eligibility was checked so far: nodes times distinct constraints, not times ordinals.
    pub fn checks(&self) -> usize {
        self.checks
    }

    fn by_hand(
        &mut self,
        ordinal: Ordinal,
        name: &str,
        constraints: &Constraints,
        exclusive: bool,
    ) -> Result<usize, NoPlace> {
        let pod = self.pod_name(ordinal);
        let Some(&at) = self.by_name.get(name) else {
            let node = name.into();
            return Err(NoPlace::UnknownNode { pod, node });
        };
        let node = self.seats[at].node.name.clone();
        if let Some(holder) = self.other_member(at, ordinal).filter(|_| exclusive) {
            let holder = self.pod_name(holder);
            return Err(NoPlace::Taken { pod, node, holder });
        }
        self.checks += 1;
        match check(self.seats[at].node, constraints) {
            Ok(()) => Ok(at),
            Err(reason) => Err(NoPlace::Unfit { pod, node, reason }),
        }
    }

    /// Where the ordinal's label is already, if the node qualifies and was not tried.
    fn stays_at(
        &mut self,
        ordinal: Ordinal,
        constraints: &Constraints,
        tried: &BTreeSet<NodeName>,
    ) -> Option<usize> {
        let at = *self.carriers.get(&ordinal)?;
        let node = self.seats[at].node;
        self.checks += 1;
        (!tried.contains(&node.name) && check(node, constraints).is_ok()).then_some(at)
    }

    fn fill_pool(&mut self, constraints: &Constraints, exclusive: bool) -> Pool {
        let mut pool = Pool::default();
        self.checks += self.seats.len();
        for (at, seat) in self.seats.iter().enumerate() {
            match check(seat.node, constraints) {
                Ok(()) => pool.eligible.push(at),
                Err(reason) => pool.refused.add(Err(reason)),
            }
        }
        for &at in &pool.eligible {
            let seat = &self.seats[at];
            if !exclusive || seat.own.is_empty() {
                pool.candidates
                    .insert(at, seat.zone, self.zones[seat.zone], seat.members);
            }
        }
        pool
    }

    /// Gives the node to the ordinal, in the counts and in every pool.
    fn take(&mut self, at: usize, ordinal: Ordinal) {
        let seat = &mut self.seats[at];
        if !seat.own.insert(ordinal) {
            return;
        }
        self.carriers.insert(ordinal, at);
        let (zone, before) = (seat.zone, seat.members);
        seat.members += 1;
        self.zones[zone] += 1;
        self.placements += 1;
        for ((_, exclusive), pool) in &mut self.pools {
            pool.candidates
                .moved(at, zone, self.zones[zone], before, !exclusive);
        }
    }
    /// How the nodes stand for the ordinal, which has found none.
    fn tally_for(&mut self, key: &(Constraints, bool), ordinal: Ordinal) -> Arc<Tally> {
        let (seats, flock, placements) = (&self.seats, self.flock, self.placements);
        let Some(pool) = self.pools.get_mut(key) else {
            return Arc::default();
        };
        let mut tally = pool.tally(placements, |at| match seats[at].own.first() {
            Some(holder) if key.1 => Err(Unfit::Carries(pod_name(flock, *holder))),
            _ => Ok(()),
        });
        // The node that it holds itself, and was tried on, is not another's.
        let own = self
            .carriers
            .get(&ordinal)
            .filter(|at| pool.eligible.binary_search(at).is_ok());
        if key.1 && own.is_some_and(|at| seats[*at].own.len() == 1) {
            let tally = Arc::make_mut(&mut tally);
            tally.unfit.remove(&Unfit::Carries(pod_name(flock, ordinal)));
            tally.fit += 1;
        }
        tally
    }

    /// Another member of the flock on the node.
    fn other_member(&self, at: usize, ordinal: Ordinal) -> Option<Ordinal> {
        self.seats[at].own.iter().copied().find(|own| *own != ordinal)
    }

    fn pod_name(&self, ordinal: Ordinal) -> String {
        pod_name(self.flock, ordinal)
    }
}

/// For messages only: a member whose name is too long was refused long before it came here.
fn pod_name(flock: &FlockKey, ordinal: Ordinal) -> String {
    format!("{}-{ordinal}", flock.flock)
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
