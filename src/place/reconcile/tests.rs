use rstest::rstest;

use super::*;
use crate::place::fixtures::{by_name, key, labels, node, ordinal};

/// A cluster of the nodes a, b and c, and what the witnesses say of ordinal 0.
#[derive(Default)]
struct Said<'a> {
    /// Nodes that carry the label.
    labels: &'a [&'a str],
    record: Option<Place>,
    pod: Option<&'a str>,
}

fn place(node: &str, machine: Option<&str>) -> Place {
    Place::new(node.into(), machine.map(Into::into))
}

fn at(node: &str) -> Place {
    place(node, Some(&format!("machine-of-{node}")))
}

fn released(node: &str) -> Place {
    Place {
        released: true,
        ..at(node)
    }
}

fn virgin(node: &str) -> Place {
    Place {
        chosen_for: Some("uid-of-pod".into()),
        ..at(node)
    }
}

fn findings(said: &Said) -> Vec<Finding> {
    compare_on(by_name(["a", "b", "c"].map(node)), said)
}

fn compare_on(mut nodes: BTreeMap<NodeName, NodeFacts>, said: &Said) -> Vec<Finding> {
    let key = key("db");
    for name in said.labels {
        let node = nodes.get_mut(*name).unwrap();
        *node = node.clone().carrying(&key, 0);
    }
    let record = said
        .record
        .iter()
        .map(|place| (ordinal(0), place.clone()))
        .collect();
    let running = said
        .pod
        .iter()
        .map(|name| (ordinal(0), NodeName::from(*name)))
        .collect();
    compare(&nodes, &labels(&nodes), &record, &running)
}

fn relabel(node: &str, evidence: Evidence) -> Finding {
    Finding::Relabel {
        ordinal: ordinal(0),
        node: node.into(),
        evidence,
    }
}

fn unlabel(node: &str, keep: &str) -> Finding {
    Finding::Unlabel {
        ordinal: ordinal(0),
        node: node.into(),
        keep: keep.into(),
    }
}

fn to_record(node: &str) -> Finding {
    Finding::Record {
        ordinal: ordinal(0),
        node: node.into(),
        machine: Some(format!("machine-of-{node}").into()),
    }
}

fn moved(from: &str, to: &str) -> Finding {
    Finding::Moved {
        ordinal: ordinal(0),
        from: from.into(),
        to: to.into(),
        machine: Some(format!("machine-of-{to}").into()),
    }
}

fn moved_while_running(from: &str, to: &str) -> Finding {
    Finding::MovedWhileRunning {
        ordinal: ordinal(0),
        from: from.into(),
        to: to.into(),
    }
}

fn other_machine(node: &str, recorded: Option<&str>, labelled: bool) -> Finding {
    Finding::OtherMachine {
        ordinal: ordinal(0),
        node: node.into(),
        recorded: recorded.map(Into::into),
        found: Some(format!("machine-of-{node}").into()),
        labelled,
    }
}

fn conflict(nodes: &[&str], running: Option<&str>) -> Finding {
    Finding::Conflict {
        ordinal: ordinal(0),
        nodes: nodes.iter().map(|name| NodeName::from(*name)).collect(),
        running: running.map(Into::into),
    }
}

fn contradiction(recorded: &str, running: &str) -> Finding {
    Finding::Contradiction {
        ordinal: ordinal(0),
        recorded: recorded.into(),
        running: running.into(),
    }
}

fn gone(node: &str) -> Finding {
    Finding::NodeGone {
        ordinal: ordinal(0),
        node: node.into(),
    }
}

fn lost(node: &str) -> Finding {
    Finding::Lost {
        ordinal: ordinal(0),
        node: node.into(),
    }
}

fn pending(node: &str) -> Finding {
    Finding::ReleasePending {
        ordinal: ordinal(0),
        node: node.into(),
    }
}

#[rstest]
#[case::registered_again(Some(at("a")), None, vec![relabel("a", Evidence::Record)])]
#[case::label_lost_while_running(Some(at("a")), Some("a"), vec![relabel("a", Evidence::Record)])]
#[case::another_machine(Some(place("a", Some("old"))), None, vec![other_machine("a", Some("old"), false)])]
#[case::another_machine_runs_it(Some(place("a", Some("old"))), Some("a"), vec![other_machine("a", Some("old"), false)])]
#[case::unknown_machine(Some(place("a", None)), None, vec![other_machine("a", None, false)])]
#[case::unknown_machine_but_running(
    Some(place("a", None)), Some("a"), vec![relabel("a", Evidence::Pod), to_record("a")]
)]
#[case::first_placement_interrupted(Some(virgin("a")), None, vec![relabel("a", Evidence::Record)])]
#[case::first_placement_on_a_silent_node(
    Some(Place { machine: None, ..virgin("a") }), None, vec![relabel("a", Evidence::Record), to_record("a")]
)]
#[case::first_placement_on_another_machine(
    Some(Place { machine: Some("old".into()), ..virgin("a") }), None, vec![other_machine("a", Some("old"), false)]
)]
#[case::node_gone(Some(at("z")), None, vec![gone("z")])]
#[case::node_gone_with_its_pod(Some(at("z")), Some("z"), vec![gone("z")])]
#[case::contradicted(Some(at("a")), Some("b"), vec![contradiction("a", "b")])]
#[case::contradicted_by_a_lost_pod(Some(at("a")), Some("z"), vec![contradiction("a", "z")])]
#[case::gone_and_contradicted(Some(at("z")), Some("b"), vec![contradiction("z", "b")])]
#[case::released(Some(released("a")), None, vec![Finding::Forget { ordinal: ordinal(0) }])]
#[case::released_from_a_lost_node(Some(released("z")), None, vec![Finding::Forget { ordinal: ordinal(0) }])]
#[case::released_while_running(Some(released("a")), Some("a"), vec![pending("a")])]
#[case::only_a_pod(None, Some("b"), vec![relabel("b", Evidence::Pod), to_record("b")])]
#[case::only_a_pod_on_a_lost_node(None, Some("z"), vec![lost("z")])]
#[case::never_placed(None, None, vec![])]
fn without_a_label_record_and_pod_tell(
    #[case] record: Option<Place>,
    #[case] pod: Option<&str>,
    #[case] expected: Vec<Finding>,
) {
    let labels = &[];
    assert_eq!(findings(&Said { labels, record, pod }), expected);
}

#[rstest]
#[case::consistent(Some(at("a")), None, vec![])]
#[case::consistent_and_running(Some(at("a")), Some("a"), vec![])]
#[case::no_record(None, None, vec![to_record("a")])]
#[case::no_record_but_running(None, Some("a"), vec![to_record("a")])]
#[case::machine_learnt(Some(place("a", None)), None, vec![to_record("a")])]
#[case::reinstalled(Some(place("a", Some("old"))), None, vec![other_machine("a", Some("old"), true)])]
#[case::reinstalled_and_running(Some(place("a", Some("old"))), Some("a"), vec![other_machine("a", Some("old"), true)])]
#[case::moved(Some(at("b")), None, vec![moved("b", "a")])]
#[case::moved_and_running_there(Some(at("b")), Some("a"), vec![moved("b", "a")])]
#[case::moved_off_a_lost_node(Some(at("z")), None, vec![moved("z", "a")])]
#[case::moved_while_running(Some(at("b")), Some("b"), vec![moved_while_running("b", "a")])]
#[case::running_nowhere_known(Some(at("b")), Some("c"), vec![moved_while_running("c", "a")])]
#[case::recorded_but_running_elsewhere(Some(at("a")), Some("c"), vec![moved_while_running("c", "a")])]
#[case::unrecorded_and_running_elsewhere(None, Some("c"), vec![moved_while_running("c", "a")])]
#[case::released(Some(released("a")), None, vec![pending("a")])]
#[case::released_and_labelled_anew(Some(released("b")), None, vec![to_record("a")])]
fn one_label_decides(
    #[case] record: Option<Place>,
    #[case] pod: Option<&str>,
    #[case] expected: Vec<Finding>,
) {
    let labels = &["a"];
    assert_eq!(findings(&Said { labels, record, pod }), expected);
}

#[rstest]
#[case::recorded(Some(at("a")), None, vec![unlabel("b", "a")])]
#[case::recorded_and_running(Some(at("b")), Some("b"), vec![unlabel("a", "b")])]
#[case::running(None, Some("b"), vec![unlabel("a", "b"), to_record("b")])]
#[case::running_and_a_third_recorded(Some(at("c")), Some("b"), vec![unlabel("a", "b"), moved("c", "b")])]
#[case::running_and_the_record_is_another_machine(
    Some(place("a", Some("old"))), Some("b"), vec![unlabel("a", "b"), moved("a", "b")]
)]
#[case::running_on_another_machine(
    Some(place("a", Some("old"))), Some("a"), vec![unlabel("b", "a"), other_machine("a", Some("old"), true)]
)]
#[case::no_evidence(None, None, vec![conflict(&["a", "b"], None)])]
#[case::recorded_on_another_machine(Some(place("a", Some("old"))), None, vec![conflict(&["a", "b"], None)])]
#[case::recorded_elsewhere(Some(at("c")), None, vec![conflict(&["a", "b"], None)])]
#[case::running_elsewhere(Some(at("a")), Some("c"), vec![conflict(&["a", "b"], Some("c"))])]
#[case::evidence_against_evidence(Some(at("a")), Some("b"), vec![conflict(&["a", "b"], Some("b"))])]
#[case::a_move_in_progress(Some(released("a")), Some("a"), vec![conflict(&["a", "b"], Some("a"))])]
fn of_two_labels_the_one_with_uncontradicted_evidence_wins(
    #[case] record: Option<Place>,
    #[case] pod: Option<&str>,
    #[case] expected: Vec<Finding>,
) {
    let labels = &["b", "a"];
    assert_eq!(findings(&Said { labels, record, pod }), expected);
}

#[test]
fn all_losers_of_three_are_unlabelled() {
    let said = Said {
        labels: &["a", "b", "c"],
        record: Some(at("b")),
        pod: None,
    };
    assert_eq!(findings(&said), [unlabel("a", "b"), unlabel("c", "b")]);
}

#[test]
fn a_node_that_does_not_tell_its_machine_yet_changes_no_record() {
    let silent = || by_name([node("a").on_machine(None)]);
    let labelled = |record| Said {
        labels: &["a"],
        record,
        pod: None,
    };
    assert_eq!(compare_on(silent(), &labelled(Some(at("a")))), []);
    assert_eq!(compare_on(silent(), &labelled(Some(place("a", None)))), []);
    let unlabelled = Said {
        record: Some(at("a")),
        ..Said::default()
    };
    let found = compare_on(silent(), &unlabelled);
    assert!(
        matches!(&found[..], [Finding::OtherMachine { found: None, .. }]),
        "{found:?}"
    );
}

#[test]
fn a_tenants_edit_of_the_record_never_moves_a_labelled_member() {
    for pod in [None, Some("a")] {
        for record in [
            None,
            Some(at("b")),
            Some(at("z")),
            Some(released("a")),
            Some(place("a", Some("x"))),
        ] {
            let said = Said {
                labels: &["a"],
                record,
                pod,
            };
            for finding in findings(&said) {
                assert!(
                    !matches!(finding, Finding::Relabel { .. } | Finding::Unlabel { .. }),
                    "{finding:?}"
                );
            }
        }
    }
}

#[test]
fn other_flocks_on_the_same_nodes_are_no_findings() {
    let nodes = by_name([node("a").carrying(&key("web"), 0), node("b")]);
    assert_eq!(
        compare(&nodes, &labels(&nodes), &Record::default(), &BTreeMap::new()),
        []
    );
}

#[test]
fn a_place_that_waits_for_its_pod_goes_on_waiting_when_the_machine_is_learnt() {
    let mut waiting = place("a", None);
    waiting.chosen_for = Some("u1".into());
    let record: Record = [(ordinal(0), waiting)].into_iter().collect();
    let after = updated(&record, &[to_record("a")]);
    let place = after.get(ordinal(0)).unwrap();
    assert_eq!(place.chosen_for.as_deref(), Some("u1"));
    assert_eq!(place.machine.as_deref(), Some("machine-of-a"));
}

#[test]
fn an_ordinal_that_never_ran_may_still_move_on_after_its_record_was_put_right() {
    // The record of a next choice was written, and its label was not, or is not seen yet.
    let said = Said {
        labels: &["a"],
        record: Some(virgin("b")),
        pod: None,
    };
    let found = findings(&said);
    assert_eq!(found, [moved("b", "a")]);
    let record: Record = [(ordinal(0), virgin("b"))].into_iter().collect();
    assert_eq!(updated(&record, &found).get(ordinal(0)), Some(&virgin("a")));
}

#[rstest]
#[case(
    relabel("a", Evidence::Record),
    "node a gets the label of db-0 back: the record names it, and it is the same machine"
)]
#[case(conflict(&["a", "b"], Some("b")), "nodes a, b all carry the label of db-0 (its pod is bound to b)")]
#[case(gone("a"), "run: flock release db 0 --namespace default")]
#[case(
    other_machine("a", Some("old"), false),
    "kubectl label node a db.default.flock.node-restriction.kubernetes.io/0="
)]
#[case(
    other_machine("a", Some("old"), true),
    "machine old, but the node of this name is machine machine-of-a now"
)]
#[case(contradiction("a", "b"), "db-0 is bound to node b, the record says a")]
#[case(
    pending("a"),
    "kubectl label node a db.default.flock.node-restriction.kubernetes.io/0-"
)]
#[case(moved_while_running("a", "b"), "it starts on b without the data of a")]
fn a_finding_is_a_sentence_with_the_way_out(#[case] finding: Finding, #[case] text: &str) {
    let sentence = finding.sentence(&key("db"));
    assert!(sentence.contains(text), "{sentence}");
}
