use std::sync::Arc;

use rstest::rstest;

use super::sim::{Sim, ordinal};
use crate::identity::Ordinal;
use crate::identity::keys::PIN;
use crate::place::{NodeName, Record};
use crate::reconcile::plan::{Action, Memory};
use crate::view::fixtures::{key, pod, service, set};

const B: &str = r#"{"0":{"machine":"machine-of-b","node":"b"},"1":{"machine":"machine-of-c","node":"c"}}"#;

#[rstest]
#[case::not_json("{")]
#[case::not_a_record(r#"{"0":"a"}"#)]
#[case::bad_ordinal(r#"{"x":{"node":"a"}}"#)]
#[case::bad_node(r#"{"0":{"node":"../a"}}"#)]
#[case::other_places(B)]
#[case::twice(r#"{"0":{"machine":"machine-of-a","node":"a"},"1":{"machine":"machine-of-a","node":"a"}}"#)]
#[case::more(r#"{"0":{"machine":"machine-of-a","node":"a"},"1":{"machine":"machine-of-b","node":"b"},"5":{"for":"x","node":"c"}}"#)]
#[case::empty("{}")]
fn an_edited_record_is_put_right_and_nothing_moves(#[case] text: &str) {
    let mut sim = Sim::running(&["a", "b", "c"], 2, &[]);
    let record = sim.record();
    sim.annotate(Some(text));
    let actions = sim.settle();
    assert_eq!(
        actions.iter().map(Action::name).collect::<Vec<_>>(),
        ["write_record"]
    );
    assert_eq!(sim.places(2), [Some("a".into()), Some("b".into())]);
    assert_eq!(nodes(&sim.record()), nodes(&record));
}

/// Which machines a record names.
fn nodes(record: &Record) -> Vec<(Ordinal, NodeName, Option<Arc<str>>)> {
    let places = record.iter();
    places
        .map(|(ordinal, place)| (ordinal, place.node.clone(), place.machine.clone()))
        .collect()
}

#[test]
fn a_removed_record_comes_back_also_for_ordinals_whose_node_is_away() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    sim.delete_node("b");
    sim.restart(1);
    sim.settle();
    let record = sim.record();
    sim.annotate(None);
    sim.settle();
    assert_eq!(nodes(&sim.record()), nodes(&record));
    assert!(sim.told("RecordEdited", "(ordinals 1)"));
}

#[test]
fn a_deleted_service_comes_back_with_the_record() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    sim.delete_node("b");
    sim.restart(1);
    sim.settle();
    let record = sim.record();
    sim.view.delete_service("default", "db", "uid-of-service");
    assert_eq!(sim.settle().first().map(Action::name), Some("create_service"));
    assert_eq!(sim.record(), record);
}

#[test]
fn a_new_leader_does_not_overwrite_what_it_cannot_read_nor_place_anything() {
    let mut sim = Sim::waiting(&["a", "b"], 2, &[]);
    sim.label("a", 0);
    sim.annotate(Some("{"));
    let actions = sim.pass(3600);
    assert_eq!(
        actions.iter().map(Action::name).collect::<Vec<_>>(),
        ["open_gate"],
        "the label tells of ordinal 0"
    );
    assert!(sim.is_gated(1));
    assert!(sim.notes("BadRecord")[0].contains("no ordinal without a node label is placed"));
    // The way out that the event tells.
    sim.annotate(None);
    sim.settle();
    assert_eq!(sim.places(2), [Some("a".into()), Some("b".into())]);
}

#[test]
fn a_new_leader_moves_nothing_onto_a_node_that_the_record_names_twice() {
    let mut sim = Sim::waiting(&["a", "b"], 2, &[]);
    sim.label("a", 0);
    sim.annotate(Some(
        r#"{"0":{"machine":"machine-of-a","node":"a"},"1":{"machine":"machine-of-a","node":"a"}}"#,
    ));
    sim.pass(3600);
    assert!(sim.is_gated(1));
    assert_eq!(sim.place(1), None);
    assert!(sim.notes("BadRecord")[0].contains("puts db-1 on node a, which is the place of db-0 as well"));
}

#[test]
fn members_that_share_a_node_get_their_labels_back_there() {
    let mut sim = Sim::running(&["a"], 2, &[(PIN, "Shared")]);
    sim.delete_node("a");
    sim.restart(0);
    sim.restart(1);
    sim.register("a", "machine-of-a");
    sim.settle();
    assert_eq!(sim.places(2), vec![Some("a".to_owned()); 2]);
}

#[test]
fn an_invented_entry_labels_no_node_for_an_ordinal_that_nobody_has() {
    let mut sim = Sim::new(&["a", "b"], set("rs", 1));
    sim.pod(pod(0, "rs").waiting());
    sim.annotate(Some(
        r#"{"7":{"machine":"machine-of-b","node":"b"},"8":{"for":"x","node":"b"}}"#,
    ));
    sim.settle();
    assert_eq!((sim.place(7), sim.place(8)), (None, None));
    assert_eq!(sim.place(0).as_deref(), Some("a"));
}

#[test]
fn a_users_own_service_stays_as_it_is_and_the_record_stands_beside() {
    let mut sim = Sim::waiting(&["a"], 1, &[]);
    sim.view.delete_service("default", "db", "uid-of-service");
    let own = crate::view::ServiceFacts {
        made_for: None,
        places: None,
        record: None,
        ..service("{}")
    };
    sim.view.apply_service(own.clone());
    // Also the name beside is somebody's.
    let other = crate::view::ServiceFacts {
        name: "db-places".into(),
        ..own.clone()
    };
    sim.view.apply_service(other);
    let actions = sim.settle();
    let made: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            Action::CreateService { name, selects, .. } => Some((name.as_str(), *selects)),
            Action::MendService { .. } | Action::DeleteService { .. } => panic!("{action:?}"),
            _ => None,
        })
        .collect();
    assert_eq!(made, [("db-places-1", false)]);
    assert_eq!(sim.view.service("default", "db"), Some(&own));
    assert_eq!(sim.record().len(), 1);
    // When the user's own goes, the record stays where it is.
    sim.view.delete_service("default", "db", "uid-of-service");
    sim.settle();
    assert_eq!(sim.view.record_service(&key()).unwrap().name, "db-places-1");
}

#[test]
fn a_release_frees_the_ordinal_once_label_and_pod_are_gone() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    sim.restart(0);
    sim.change_node("a", |node| node.unschedulable = true);
    let mut record = sim.record();
    record.release(ordinal(0));
    sim.annotate(Some(&record.render().unwrap()));
    sim.settle();
    assert!(
        sim.notes("Place")[0].contains("released"),
        "{:?}",
        sim.notes("Place")
    );
    sim.unlabel("a", 0);
    sim.settle();
    assert_eq!(sim.place(0).as_deref(), Some("b"));
    assert!(sim.told("Released", "may be placed anew"));
}

#[test]
fn a_released_flock_of_which_nothing_else_is_left_leaves_nothing_behind() {
    let mut sim = Sim::running(&["a"], 1, &[]);
    let pod = sim.view.flock(&key()).holder(ordinal(0)).unwrap().clone();
    sim.view.delete_pod(&key(), &pod.name, &pod.uid);
    sim.view.delete_workload(&key(), "uid-of-rs");
    assert_eq!(sim.settle(), []);
    sim.memory = Memory::default();
    let mut record = sim.record();
    record.release(ordinal(0));
    sim.annotate(Some(&record.render().unwrap()));
    sim.unlabel("a", 0);
    assert!(
        sim.view.flock_keys().contains(&key()),
        "it is looked at, though only its Service is left"
    );
    sim.settle();
    assert!(sim.view.service("default", "db").is_none());
}

#[test]
fn both_copies_lost_is_told_and_not_guessed() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    sim.restart(0);
    sim.memory = Memory::default();
    sim.unlabel("a", 0);
    sim.annotate(Some("{}"));
    assert_eq!(sim.pass(3600), []);
    assert!(sim.notes("PlaceUnknown")[0].contains("no node carries the label of db-0 any more"));
}
