use proptest::prelude::*;

use super::*;
use crate::place::fixtures::{by_name, key, labels, node, ordinal};

/// Nodes n0 to n3; n4 and n5 may be named but do not exist.
fn cluster() -> impl Strategy<Value = BTreeMap<NodeName, NodeFacts>> {
    let one = (
        prop::collection::vec(0u32..3, 0..3),
        prop::option::weighted(0.8, 0u8..3),
    );
    prop::collection::vec(one, 4).prop_map(|all| {
        by_name(all.into_iter().enumerate().map(|(at, (ordinals, machine))| {
            let bare = node(&format!("n{at}")).on_machine(machine.map(|m| format!("m{m}")).as_deref());
            ordinals
                .into_iter()
                .fold(bare, |it, n| it.carrying(&key("db"), n))
        }))
    })
}

fn name() -> impl Strategy<Value = NodeName> {
    (0u8..6).prop_map(|at| format!("n{at}").into())
}

fn record() -> impl Strategy<Value = Record> {
    let place = (
        name(),
        prop::option::weighted(0.8, 0u8..3),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.3),
    );
    prop::collection::btree_map(0u32..3, place, 0..4).prop_map(|places| {
        let build = |(n, (node, machine, released, virgin)): (u32, (_, Option<u8>, _, bool))| {
            let mut place = Place::new(node, machine.map(|m| format!("m{m}").into()));
            place.released = released;
            place.chosen_for = virgin.then(|| "uid-of-pod".into());
            (ordinal(n), place)
        };
        places.into_iter().map(build).collect()
    })
}

fn running() -> impl Strategy<Value = BTreeMap<Ordinal, NodeName>> {
    prop::collection::btree_map((0u32..3).prop_map(ordinal), name(), 0..4)
}

/// Does to the nodes' labels what the findings say.
fn relabelled(nodes: &BTreeMap<NodeName, NodeFacts>, findings: &[Finding]) -> BTreeMap<NodeName, NodeFacts> {
    let mut nodes = nodes.clone();
    for finding in findings {
        match finding {
            Finding::Relabel { ordinal, node, .. } => {
                nodes
                    .get_mut(node)
                    .unwrap()
                    .members
                    .entry(key("db"))
                    .or_default()
                    .insert(*ordinal);
            }
            Finding::Unlabel { ordinal, node, .. } => {
                nodes
                    .get_mut(node)
                    .unwrap()
                    .members
                    .get_mut(&key("db"))
                    .unwrap()
                    .remove(ordinal);
            }
            _ => {}
        }
    }
    nodes
}

fn compare_on(
    nodes: &BTreeMap<NodeName, NodeFacts>,
    record: &Record,
    running: &BTreeMap<Ordinal, NodeName>,
) -> Vec<Finding> {
    compare(nodes, &labels(nodes), record, running)
}

fn carriers(nodes: &BTreeMap<NodeName, NodeFacts>, ordinal: Ordinal) -> Vec<NodeName> {
    let carrying = nodes
        .values()
        .filter(|node| node.carries(&key("db")).contains(&ordinal));
    carrying.map(|node| node.name.clone()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn mending_once_leaves_nothing_to_mend(nodes in cluster(), record in record(), running in running()) {
        let first = compare_on(&nodes, &record, &running);
        let second = compare_on(&relabelled(&nodes, &first), &updated(&record, &first), &running);
        prop_assert!(second.iter().all(Finding::is_report), "{first:?} then {second:?}");
        let reports: Vec<_> = first.into_iter().filter(Finding::is_report).collect();
        prop_assert_eq!(second, reports);
    }

    #[test]
    fn a_crash_between_labels_and_record_is_mended_too(nodes in cluster(), record in record(), running in running()) {
        let both = compare_on(&nodes, &record, &running);
        let whole = (relabelled(&nodes, &both), updated(&record, &both));
        for half in [(whole.0.clone(), record.clone()), (nodes.clone(), whole.1.clone())] {
            let rest = compare_on(&half.0, &half.1, &running);
            prop_assert_eq!(&relabelled(&half.0, &rest), &whole.0, "{:?} then {:?}", both, rest);
            prop_assert_eq!(&updated(&half.1, &rest), &whole.1, "{:?} then {:?}", both, rest);
        }
    }

    #[test]
    fn the_last_label_is_never_taken_off_and_a_sole_one_never_moves(
        nodes in cluster(), record in record(), running in running(),
    ) {
        let findings = compare_on(&nodes, &record, &running);
        let after = relabelled(&nodes, &findings);
        for n in (0..3).map(ordinal) {
            let (before, after) = (carriers(&nodes, n), carriers(&after, n));
            match before.len() {
                0 => prop_assert!(after.len() <= 1),
                1 => prop_assert_eq!(before, after),
                _ => prop_assert!(after == before || after.len() == 1),
            }
        }
    }

    #[test]
    fn the_record_alone_never_places_a_member_on_another_machine(nodes in cluster(), record in record()) {
        for finding in compare_on(&nodes, &record, &BTreeMap::new()) {
            if let Finding::Relabel { ordinal, node, .. } = finding {
                let place = record.get(ordinal).unwrap();
                let interrupted = place.machine.is_none() && place.chosen_for.is_some();
                prop_assert!(interrupted || nodes[&node].is_machine(place.machine.as_deref()));
            }
        }
    }
}
