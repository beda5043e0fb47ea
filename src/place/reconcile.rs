//! Labels, record and pods of one flock compared: what to mend, and what to hold and report.
//!
//! Three witnesses tell where an ordinal lives. The *label* on a Node can be set by administrators only, and it is
//! what pins pods, so it decides where there is exactly one. The *record* may be edited by any tenant who may edit
//! Services, so it is asked only where no label answers, and never moves a member that has one. The *pod* object, bound
//! to a node, shows where the member really runs. Where no label decides, one witness is enough, two that agree are
//! better, and two that contradict each other prove nothing: the ordinal is held, nothing is taken off, and an
//! administrator decides by setting or removing the label.
//!
//! | labels | record | pod bound to | finding |
//! |---|---|---|---|
//! | none | N, same machine | none or N | [`Relabel`](Finding::Relabel): registered again, or the label was lost |
//! | none | N, no machine | N | [`Relabel`](Finding::Relabel): the pod tells |
//! | none | N, no machine, never run there | none | [`Relabel`](Finding::Relabel): first placement, interrupted |
//! | none | N, otherwise | none or N | [`OtherMachine`](Finding::OtherMachine): not granted again |
//! | none | N, which does not exist | none or N | [`NodeGone`](Finding::NodeGone) |
//! | none | N | another node | [`Contradiction`](Finding::Contradiction) |
//! | none | N, released | none | [`Forget`](Finding::Forget): the ordinal is free |
//! | none | N, released | any | [`ReleasePending`](Finding::ReleasePending) until the pod is gone |
//! | none | none | N | [`Relabel`](Finding::Relabel) and [`Record`](Finding::Record): both copies were lost |
//! | none | none | a node that does not exist | [`Lost`](Finding::Lost) |
//! | N | N, same machine | none or N | none |
//! | N | N, one machine unknown | none or N | [`Record`](Finding::Record) if it is the record's, else none |
//! | N | N, another machine | none or N | [`OtherMachine`](Finding::OtherMachine): reinstalled, the Node object kept |
//! | N | none | none or N | [`Record`](Finding::Record) |
//! | N | M | none or N | [`Moved`](Finding::Moved): the label was moved, or the record edited |
//! | N | any | another node | [`MovedWhileRunning`](Finding::MovedWhileRunning): the record waits |
//! | N | N, released | none or N | [`ReleasePending`](Finding::ReleasePending) until the label is taken off |
//! | N | M, released | none or N | [`Record`](Finding::Record): moved by hand, step by step |
//! | several, N among them | N, same machine | none or N | [`Unlabel`](Finding::Unlabel) the others |
//! | several, N among them | none of them with its machine | N | the same, then as for N alone |
//! | several | otherwise, or released | otherwise | [`Conflict`](Finding::Conflict): held |
//!
//! Consequences for whoever writes: a move is recorded first, then labelled, then unlabelled; a release marks the
//! record first, then takes the label off. In each order a crash in between leaves a row of this table that either
//! goes on or goes back, never one that loses a place.

mod finding;

use std::collections::{BTreeMap, BTreeSet};

pub use finding::{Evidence, Finding};

use super::node::{NodeFacts, NodeName};
use super::record::{Place, Record};
use crate::identity::Ordinal;

/// Compares the flock's labels (`labels` is what of `nodes`, all of the cluster's, carries each ordinal) with its
/// record and with where its pods are bound. Findings are in the order of their ordinals; a consistent flock has none.
/// Not meant for `flock.dev/pin: None`.
pub fn compare(
    nodes: &BTreeMap<NodeName, NodeFacts>,
    labels: &BTreeMap<Ordinal, BTreeSet<NodeName>>,
    record: &Record,
    running: &BTreeMap<Ordinal, NodeName>,
) -> Vec<Finding> {
    let recorded = record.iter().map(|(ordinal, _)| ordinal);
    let ordinals: BTreeSet<_> = labels
        .keys()
        .copied()
        .chain(recorded)
        .chain(running.keys().copied())
        .collect();
    let mut findings = Vec::new();
    for ordinal in ordinals {
        let case = Case {
            ordinal,
            nodes,
            place: record.get(ordinal),
            running: running.get(&ordinal),
        };
        let carriers: Vec<_> = labels
            .get(&ordinal)
            .into_iter()
            .flatten()
            .filter_map(|name| nodes.get(name))
            .collect();
        match carriers.as_slice() {
            [] => case.unlabelled(&mut findings),
            [node] => findings.extend(case.labelled(node)),
            several => case.conflict(several, &mut findings),
        }
    }
    findings
}

/// The record after the findings were acted on; what only needs a label, or is only reported, changes nothing.
#[must_use]
pub fn updated(record: &Record, findings: &[Finding]) -> Record {
    let mut updated = record.clone();
    for finding in findings {
        match finding {
            Finding::Record {
                ordinal,
                node,
                machine,
            } => {
                let mut place = Place::new(node.clone(), machine.clone());
                // The same place, of which more is known now, goes on waiting for its pod.
                let before = record
                    .get(*ordinal)
                    .filter(|before| before.node == *node && !before.released);
                place.chosen_for = before.and_then(|before| before.chosen_for.clone());
                updated.insert(*ordinal, place);
            }
            Finding::Moved {
                ordinal, to, machine, ..
            } => {
                let mut place = Place::new(to.clone(), machine.clone());
                // An ordinal that never ran on its old node still has not run: the record may be ahead of its labels.
                place.chosen_for = record.get(*ordinal).and_then(|before| before.chosen_for.clone());
                updated.insert(*ordinal, place);
            }
            Finding::Forget { ordinal } => {
                updated.remove(*ordinal);
            }
            _ => {}
        }
    }
    updated
}

/// One ordinal and its witnesses, but for the labels.
struct Case<'a> {
    ordinal: Ordinal,
    nodes: &'a BTreeMap<NodeName, NodeFacts>,
    place: Option<&'a Place>,
    running: Option<&'a NodeName>,
}

impl Case<'_> {
    fn unlabelled(&self, findings: &mut Vec<Finding>) {
        let ordinal = self.ordinal;
        match (self.place, self.running) {
            (None, None) => {}
            (None, Some(running)) => self.by_pod(running, findings),
            (Some(place), None) if place.released => findings.push(Finding::Forget { ordinal }),
            (Some(place), Some(_)) if place.released => findings.push(Finding::ReleasePending {
                ordinal,
                node: place.node.clone(),
            }),
            (Some(place), Some(running)) if place.node != *running => findings.push(Finding::Contradiction {
                ordinal,
                recorded: place.node.clone(),
                running: running.clone(),
            }),
            (Some(place), _) => self.by_record(place, findings),
        }
    }

    fn by_pod(&self, running: &NodeName, findings: &mut Vec<Finding>) {
        let (ordinal, node) = (self.ordinal, running.clone());
        let Some(facts) = self.nodes.get(running) else {
            findings.push(Finding::Lost { ordinal, node });
            return;
        };
        findings.push(Finding::Relabel {
            ordinal,
            node,
            evidence: Evidence::Pod,
        });
        findings.extend(self.labelled(facts));
    }

    fn by_record(&self, place: &Place, findings: &mut Vec<Finding>) {
        let (ordinal, node) = (self.ordinal, place.node.clone());
        let Some(facts) = self.nodes.get(&place.node) else {
            findings.push(Finding::NodeGone { ordinal, node });
            return;
        };
        let unknown = place.machine.is_none();
        // The pod is bound there, as the caller made sure, and no machine is recorded that speaks against it.
        if unknown && self.running.is_some() {
            self.by_pod(&node, findings);
            return;
        }
        // An ordinal that never ran has no data that another machine could be without.
        let virgin = unknown && place.chosen_for.is_some();
        if !virgin && !facts.is_machine(place.machine.as_deref()) {
            findings.push(self.other_machine(place, facts, false));
            return;
        }
        findings.push(Finding::Relabel {
            ordinal,
            node,
            evidence: Evidence::Record,
        });
        findings.extend(self.labelled(facts));
    }

    fn labelled(&self, node: &NodeFacts) -> Option<Finding> {
        let ordinal = self.ordinal;
        let name = || node.name.clone();
        if let Some(running) = self.running.filter(|running| **running != node.name) {
            return Some(Finding::MovedWhileRunning {
                ordinal,
                from: running.clone(),
                to: name(),
            });
        }
        let machine = node.machine_id.clone();
        let rebuilt = Finding::Record {
            ordinal,
            node: name(),
            machine: machine.clone(),
        };
        let Some(place) = self.place else {
            return Some(rebuilt);
        };
        match (place.node == node.name, place.released) {
            (true, true) => Some(Finding::ReleasePending {
                ordinal,
                node: name(),
            }),
            (false, true) => Some(rebuilt),
            (false, false) => Some(Finding::Moved {
                ordinal,
                from: place.node.clone(),
                to: name(),
                machine,
            }),
            (true, false) => match (&place.machine, &node.machine_id) {
                (None, Some(_)) => Some(rebuilt),
                (Some(recorded), Some(found)) if recorded != found => {
                    Some(self.other_machine(place, node, true))
                }
                _ => None,
            },
        }
    }

    fn conflict(&self, several: &[&NodeFacts], findings: &mut Vec<Finding>) {
        let ordinal = self.ordinal;
        let Some(winner) = self.winner(several) else {
            findings.push(Finding::Conflict {
                ordinal,
                nodes: several.iter().map(|node| node.name.clone()).collect(),
                running: self.running.cloned(),
            });
            return;
        };
        let losers = several.iter().filter(|node| node.name != winner.name);
        findings.extend(losers.map(|loser| Finding::Unlabel {
            ordinal,
            node: loser.name.clone(),
            keep: winner.name.clone(),
        }));
        findings.extend(self.labelled(winner));
    }

    /// The one of several labelled nodes that a witness stands for and none against.
    fn winner<'n>(&self, several: &[&'n NodeFacts]) -> Option<&'n NodeFacts> {
        if self.place.is_some_and(|place| place.released) {
            return None;
        }
        let recorded = self.place.and_then(|place| {
            let same =
                |node: &&&NodeFacts| node.name == place.node && node.is_machine(place.machine.as_deref());
            several.iter().find(same)
        });
        let Some(running) = self.running else {
            return recorded.copied();
        };
        let running = several.iter().find(|node| node.name == *running)?;
        let agreed = recorded.is_none_or(|recorded| recorded.name == running.name);
        agreed.then_some(*running)
    }

    fn other_machine(&self, place: &Place, node: &NodeFacts, labelled: bool) -> Finding {
        Finding::OtherMachine {
            ordinal: self.ordinal,
            node: node.name.clone(),
            recorded: place.machine.clone(),
            found: node.machine_id.clone(),
            labelled,
        }
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
