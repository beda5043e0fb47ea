use super::sim::{Sim, ordinal};
use crate::identity::keys::{NODES, PIN};
use crate::reconcile::plan::{Action, Memory};
use crate::view::fixtures::{key, pod, set};

#[test]
fn the_record_is_written_once_then_each_label_then_the_gates_open() {
    let mut sim = Sim::waiting(&["a", "b", "c"], 3, &[]);
    let actions = sim.settle();
    let names: Vec<_> = actions.iter().map(Action::name).collect();
    let labels = ["label_node"; 3];
    assert_eq!(
        names,
        [&["write_record"][..], &labels[..], &["open_gate"; 3][..]].concat()
    );
    assert_eq!(
        sim.places(3),
        [Some("a".into()), Some("b".into()), Some("c".into())]
    );
    assert_eq!(sim.record().len(), 3);
}

#[test]
fn a_restart_writes_nothing() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    sim.restart(1);
    assert_eq!(sim.settle(), []);
    sim.bind_all();
    assert_eq!(sim.settle(), []);
}

#[test]
fn members_without_a_node_are_told_of_together_and_placed_when_one_comes() {
    let mut sim = Sim::waiting(&["a"], 4, &[]);
    sim.settle();
    let notes = sim.notes("NoPlace");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].starts_with("no node for db-1, db-2, db-3: 0/1 nodes fit"),
        "{notes:?}"
    );
    assert!(sim.is_gated(3));
    sim.register("b", "machine-of-b");
    sim.settle();
    assert_eq!(sim.place(1).as_deref(), Some("b"));
    assert!(sim.notes("NoPlace")[0].starts_with("no node for db-2, db-3: 0/2 nodes fit"));
}

#[test]
fn shared_members_live_on_one_node() {
    let mut sim = Sim::waiting(&["a"], 3, &[(PIN, "Shared")]);
    sim.settle();
    assert_eq!(sim.places(3), vec![Some("a".to_owned()); 3]);
}

#[test]
fn unpinned_members_get_no_label_and_no_record() {
    let mut sim = Sim::waiting(&["a"], 2, &[(PIN, "None")]);
    sim.annotate(None);
    let actions = sim.settle();
    assert!(
        actions.iter().all(|action| action.name() == "open_gate"),
        "{actions:?}"
    );
    assert_eq!(sim.service().places, None);
}

#[test]
fn a_node_by_hand_is_taken_or_told_of() {
    let mut sim = Sim::waiting(&["a", "b", "c"], 3, &[(NODES, "b,x,c")]);
    sim.label("c", 9);
    sim.settle();
    assert_eq!(sim.places(3), [Some("b".into()), None, None]);
    let notes = sim.notes("NoPlace");
    assert!(
        notes
            .iter()
            .any(|note| note.contains("\"x\"") && note.contains("does not exist")),
        "{notes:?}"
    );
    assert!(
        notes.iter().any(|note| note.contains("which carries db-9")),
        "{notes:?}"
    );
}

fn refuse(sim: &mut Sim, number: u32) {
    sim.change_pod(number, |pod| {
        pod.unschedulable = Some("0/3 nodes are available: 1 Insufficient cpu".into());
    });
}

#[test]
fn a_refused_virgin_moves_on_slower_and_slower_and_begins_again_after_a_minute() {
    let mut sim = Sim::waiting(&["a", "b", "c"], 1, &[]);
    sim.settle();
    refuse(&mut sim, 0);
    let begin = sim.now;
    let mut moves = Vec::new();
    while moves.len() < 4 {
        sim.step(usize::MAX);
        moves.extend(
            sim.plans
                .last()
                .unwrap()
                .actions
                .iter()
                .filter_map(|action| match action {
                    Action::Label { node, .. } => {
                        Some((node.clone(), sim.now.duration_since(begin).as_secs()))
                    }
                    _ => None,
                }),
        );
        assert!(sim.plans.len() < 60, "a tight loop: {moves:?}");
        if sim.plans.last().unwrap().actions.is_empty() {
            sim.now = sim.look().again.unwrap().max(sim.now);
        }
    }
    let nodes: Vec<_> = moves.iter().map(|(node, _)| node.as_str()).collect();
    assert_eq!(nodes, ["b", "c", "a", "b"]);
    let at: Vec<_> = moves.iter().map(|(_, at)| *at).collect();
    assert_eq!(at[..2], [1, 5]);
    assert!(at[2] - at[1] >= 60, "{at:?}");
    assert!(sim.told(
        "NoPlace",
        "the scheduler could not place it on any of those that do"
    ));
}

#[test]
fn a_member_that_ran_never_moves_however_often_it_is_refused() {
    let mut sim = Sim::running(&["a", "b", "c"], 1, &[]);
    sim.restart(0);
    refuse(&mut sim, 0);
    assert_eq!(sim.pass(3600), []);
    assert_eq!(sim.place(0).as_deref(), Some("a"));
}

#[test]
fn one_that_waited_in_vain_leaves_its_unused_place_to_the_next_pod_and_leader() {
    let mut sim = Sim::waiting(&["a", "b"], 1, &[]);
    sim.settle();
    sim.restart(0);
    assert_eq!(
        sim.settle().iter().map(Action::name).collect::<Vec<_>>(),
        ["write_record"]
    );
    // Another leader knows nothing but the record.
    sim.memory = Memory::default();
    refuse(&mut sim, 0);
    sim.pass(5);
    assert_eq!(sim.place(0).as_deref(), Some("b"));
}

#[test]
fn one_that_went_unseen_may_have_run() {
    let mut sim = Sim::waiting(&["a", "b"], 1, &[]);
    sim.settle();
    let old = sim.view.flock(&key()).holder(ordinal(0)).unwrap().clone();
    // The watch was interrupted: a new list has another pod of that name.
    let new = crate::view::PodFacts {
        uid: "other".into(),
        gated: false,
        ..pod(0, "rs").waiting()
    };
    sim.view
        .forget_unseen(crate::view::Source::Pods, &["other".to_owned()].into());
    assert!(!sim.view.flock(&key()).went_unbound(ordinal(0), &old.uid));
    sim.pod(new);
    refuse(&mut sim, 0);
    sim.pass(100);
    assert_eq!(sim.place(0).as_deref(), Some("a"));
}

#[test]
fn a_pod_that_was_bound_while_its_place_moved_on_keeps_where_it_runs() {
    let mut sim = Sim::waiting(&["a", "b"], 1, &[]);
    sim.settle();
    refuse(&mut sim, 0);
    sim.step(0);
    sim.now += jiff::SignedDuration::from_secs(5);
    sim.step(2);
    // Record and label are at b by now; the scheduler had followed the label to a.
    sim.change_pod(0, |pod| {
        pod.node = Some("a".into());
        pod.unschedulable = None;
    });
    sim.settle();
    assert_eq!(sim.place(0).as_deref(), Some("a"));
    assert_eq!(&*sim.record().get(ordinal(0)).unwrap().node, "a");
}

#[test]
fn a_place_that_goes_before_it_was_used_is_replaced() {
    let mut sim = Sim::waiting(&["a", "b"], 1, &[]);
    sim.settle();
    sim.delete_node("a");
    sim.settle();
    assert_eq!(sim.place(0).as_deref(), Some("b"));
}

#[test]
fn a_place_on_another_machine_before_it_was_used_is_taken_anew() {
    let mut sim = Sim::waiting(&["a"], 1, &[]);
    sim.settle();
    sim.delete_node("a");
    sim.settle();
    sim.register("a", "other");
    sim.settle();
    assert_eq!(sim.place(0).as_deref(), Some("a"));
    assert_eq!(
        sim.record().get(ordinal(0)).unwrap().machine.as_deref(),
        Some("other")
    );
}

#[test]
fn every_interrupted_first_placement_ends_like_one_that_was_not() {
    for cut in 0..8 {
        let mut sim = Sim::waiting(&["a", "b", "c"], 3, &[]);
        sim.step(cut);
        sim.memory = Memory::default();
        sim.settle();
        assert_eq!(
            sim.places(3),
            [Some("a".into()), Some("b".into()), Some("c".into())],
            "cut after {cut}"
        );
        assert!((0..3).all(|number| !sim.is_gated(number)));
    }
}

#[test]
fn ordinals_come_from_the_workload_not_from_their_number() {
    let mut sim = Sim::new(
        &["a"],
        set("rs", 1).annotated(&[(crate::view::fixtures::ORDINALS, "7")]),
    );
    sim.pod(pod(7, "rs").waiting());
    sim.settle();
    assert_eq!(sim.place(7).as_deref(), Some("a"));
}

#[test]
fn each_member_without_a_node_is_counted_though_one_event_tells_of_them_all() {
    let mut sim = Sim::waiting(&["a"], 3, &[]);
    sim.settle();
    assert_eq!(sim.waiting_for("NoPlace"), [1, 2]);
    assert_eq!(
        sim.look()
            .notes
            .iter()
            .filter(|note| note.reason == "NoPlace")
            .count(),
        1
    );
}
