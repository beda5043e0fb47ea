//! The record as it stands on the Service, which everybody may edit who may edit Services: what is taken from it.
//!
//! While this replica leads it knows the record, so an edit by anybody else is seen and undone: places change by node
//! labels and by `flock release` only. A replica that leads anew takes the record as it is.

use std::collections::BTreeSet;

use crate::identity::{Ordinal, OrdinalSet, Pin};
use crate::place::Record;
use crate::view::ServiceFacts;

use super::super::{Observed, Plan, Subject};
use super::pin;

/// The record, and whether it can be trusted to be whole.
pub(super) fn read(observed: &Observed<'_>, service: &ServiceFacts, plan: &mut Plan) -> (Record, bool) {
    let subject = || Subject::Service(service.name.clone(), service.uid.clone());
    let known = observed.memory.record.as_ref();
    let seen = match (&service.places, &service.record) {
        (Some(text), None) => {
            let error = Record::parse(text).map_or_else(|error| error.to_string(), |_| String::new());
            let Some(known) = known else {
                let message = format!(
                    "{error}. Until then it is left as it is, and no ordinal without a node label is placed"
                );
                plan.stuck(unplaced(observed), subject(), "BadRecord", message);
                return (Record::default(), false);
            };
            plan.warn(
                subject(),
                "BadRecord",
                format!("{error}. It was restored from what Flock knew"),
            );
            return (known.clone(), true);
        }
        (_, Some(record)) => (**record).clone(),
        (None, None) => Record::default(),
    };
    let Some(known) = known else {
        plan.memory.record = Some(seen.clone());
        return (seen, true);
    };
    let labelled = |ordinal| {
        observed
            .view
            .places(observed.key)
            .get(&ordinal)
            .is_some_and(|nodes| nodes.len() == 1)
    };
    let (accepted, refused) = accept(&seen, known, labelled);
    if !refused.is_empty() {
        let refused = refused.iter().fold(OrdinalSet::empty(), |set, ordinal| {
            set.union(&OrdinalSet::one(*ordinal))
        });
        plan.warn(
            subject(),
            "RecordEdited",
            format!(
                "Annotation flock.dev/places was edited (ordinals {refused}): that moves nothing and is undone. To \
                 move a member, move its label from one node to the other; to give its data up: flock release {} \
                 ORDINAL --namespace {}",
                observed.key.flock, observed.key.namespace
            ),
        );
    }
    plan.memory.record = Some(accepted.clone());
    (accepted, true)
}

/// The members that have no node and no label of one.
pub(super) fn unplaced(observed: &Observed<'_>) -> BTreeSet<Ordinal> {
    let places = observed.view.places(observed.key);
    let members = observed.flock().members().into_iter();
    members
        .filter(|(ordinal, pod)| {
            pin(pod) != Pin::None && pod.is_live() && pod.node.is_none() && !places.contains_key(ordinal)
        })
        .map(|(ordinal, _)| ordinal)
        .collect()
}

/// What of the record that was `seen` is taken over against the one that is `known`; and the ordinals of the rest.
/// A release is; so is the removal of an entry whose ordinal has a label, by which it is made anew.
fn accept(seen: &Record, known: &Record, labelled: impl Fn(Ordinal) -> bool) -> (Record, BTreeSet<Ordinal>) {
    let mut accepted = seen.clone();
    let mut refused = BTreeSet::new();
    if seen == known {
        return (accepted, refused);
    }
    let ordinals: BTreeSet<_> = seen
        .iter()
        .chain(known.iter())
        .map(|(ordinal, _)| ordinal)
        .collect();
    for ordinal in ordinals {
        match (seen.get(ordinal), known.get(ordinal)) {
            (Some(seen), Some(known)) if seen == known => {}
            (Some(seen), Some(known)) if seen.node == known.node && seen.released => {}
            (Some(seen), None) if seen.released => {}
            (None, Some(known)) if labelled(ordinal) || known.released => {}
            (_, Some(known)) => {
                accepted.insert(ordinal, known.clone());
                refused.insert(ordinal);
            }
            (Some(_), None) => {
                accepted.remove(ordinal);
                refused.insert(ordinal);
            }
            (None, None) => {}
        }
    }
    (accepted, refused)
}
