use super::sim::{Sim, ordinal};
use crate::identity::keys::PIN;
use crate::reconcile::plan::Action;
use crate::view::fixtures::{key, set};

#[test]
fn a_label_that_was_taken_off_comes_back_after_a_while() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    sim.unlabel("a", 0);
    assert_eq!(sim.settle(), []);
    assert!(sim.notes("LabelChanged")[0].contains("it comes back"));
    sim.pass(20);
    assert_eq!(sim.place(0).as_deref(), Some("a"));
    assert_eq!(sim.notes("LabelChanged"), Vec::<String>::new());
}

#[test]
fn a_new_leader_gives_a_lost_label_back_at_once() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    let record = sim.record().render().unwrap();
    let mut other = Sim::new(&["a", "b"], set("rs", 1));
    other.annotate(Some(&record));
    other.pod(sim.view.flock(&key()).holder(ordinal(0)).unwrap().clone());
    sim = other;
    assert_eq!(
        sim.settle().iter().map(Action::name).collect::<Vec<_>>(),
        ["label_node"]
    );
    assert_eq!(sim.place(0).as_deref(), Some("a"));
}

#[test]
fn a_label_moved_by_hand_moves_the_member_in_either_order() {
    for first_off in [true, false] {
        let mut sim = Sim::running(&["a", "b"], 1, &[]);
        sim.restart(0);
        for step in [first_off, !first_off] {
            if step {
                sim.unlabel("a", 0);
            } else {
                sim.label("b", 0);
            }
            sim.settle();
        }
        assert_eq!(sim.place(0).as_deref(), Some("b"));
        assert_eq!(&*sim.record().get(ordinal(0)).unwrap().node, "b");
        assert!(sim.told(
            "Moved",
            "moved from node a to b by its label; its data is not moved with it"
        ));
    }
}

#[test]
fn a_label_moved_while_the_member_runs_is_told_of_and_followed_when_it_ends() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    sim.unlabel("a", 0);
    sim.label("b", 0);
    sim.settle();
    assert!(sim.notes("Place")[0].contains("is bound to node a while its label stands on b"));
    assert_eq!(&*sim.record().get(ordinal(0)).unwrap().node, "a");
    sim.restart(0);
    sim.settle();
    assert_eq!(&*sim.record().get(ordinal(0)).unwrap().node, "b");
}

#[test]
fn a_second_label_holds_new_pods_and_goes_after_a_while() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    sim.label("b", 0);
    sim.settle();
    sim.restart(0);
    sim.settle();
    assert!(sim.is_gated(0));
    let note = &sim.notes("LabelChanged")[0];
    assert!(
        note.contains("nodes b and a both carry the label of db-0, which lives on a"),
        "{note}"
    );
    sim.pass(20);
    assert_eq!(sim.place(0).as_deref(), Some("a"));
    assert!(!sim.is_gated(0));
}

#[test]
fn two_labels_that_nothing_tells_apart_hold_until_one_goes() {
    let mut sim = Sim::waiting(&["a", "b"], 1, &[]);
    sim.label("a", 0);
    sim.label("b", 0);
    assert_eq!(sim.pass(3600), []);
    assert!(sim.is_gated(0));
    assert!(sim.notes("Place")[0].contains("nodes a, b all carry the label of db-0"));
    sim.unlabel("a", 0);
    sim.settle();
    assert!(!sim.is_gated(0));
    assert_eq!(sim.place(0).as_deref(), Some("b"));
}

#[test]
fn the_same_machine_gets_its_labels_back_and_another_one_does_not() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    sim.delete_node("a");
    sim.restart(0);
    sim.settle();
    assert!(sim.is_gated(0));
    assert!(sim.notes("NodeLost")[0].contains("db-0 lives on node a, which is gone"));
    sim.register("a", "stranger");
    assert_eq!(sim.pass(3600), []);
    assert!(sim.notes("Place")[0].contains("the node of this name is machine stranger now"));
    sim.delete_node("a");
    sim.register("a", "machine-of-a");
    sim.settle();
    assert_eq!(sim.place(0).as_deref(), Some("a"));
    assert!(!sim.is_gated(0));
}

#[test]
fn a_machine_that_was_replaced_under_its_node_object_holds_new_pods() {
    let mut sim = Sim::running(&["a"], 1, &[]);
    sim.change_node("a", |node| node.machine_id = Some("stranger".into()));
    assert_eq!(sim.view.place_of(&key(), ordinal(0)), None);
    sim.restart(0);
    assert_eq!(sim.pass(3600), []);
    assert!(sim.is_gated(0));
    // The way out that the event tells.
    sim.annotate(Some("{}"));
    sim.settle();
    assert!(!sim.is_gated(0));
}

#[test]
fn labels_come_back_for_ordinals_that_a_workload_or_a_pod_has_and_for_no_others() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    let pod = sim.view.flock(&key()).holder(ordinal(1)).unwrap().clone();
    sim.view.apply_workload(
        key(),
        crate::view::WorkloadFacts {
            resource_version: "9".into(),
            ..set("rs", 1)
        },
    );
    sim.view.delete_pod(&key(), &pod.name, &pod.uid);
    for name in ["a", "b"] {
        sim.delete_node(name);
        sim.register(name, &format!("machine-of-{name}"));
    }
    sim.settle();
    assert_eq!(sim.places(2), [Some("a".into()), None]);
    assert_eq!(sim.record().len(), 2, "what is not needed is not forgotten");
}

#[test]
fn garbage_is_told_of_and_left() {
    let mut sim = Sim::running(&["a"], 1, &[]);
    let label = format!("{}/x", key().node_label_prefix());
    sim.change_node("a", |node| node.garbage_labels = vec![format!("{label}=")]);
    assert_eq!(sim.pass(100), []);
    assert!(sim.notes("BadLabel")[0].contains(&label));
}

#[test]
fn labels_that_an_earlier_revision_left_are_nothing_to_a_member_without_a_pin() {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    sim.change_pod(0, |pod| {
        pod.template = crate::view::fixtures::template(&[(PIN, "None")]);
        pod.node = Some("b".into());
    });
    assert_eq!(sim.pass(100), []);
    assert_eq!(sim.notes("Place"), Vec::<String>::new());
}

#[test]
fn the_labels_of_a_namespace_that_is_gone_are_taken_off() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    for number in 0..2 {
        let pod = sim.view.flock(&key()).holder(ordinal(number)).unwrap().clone();
        sim.view.delete_pod(&key(), &pod.name, &pod.uid);
    }
    sim.view.delete_workload(&key(), "uid-of-rs");
    sim.view.delete_service("default", "db", "uid-of-service");
    sim.view.delete_namespace("default");
    let names: Vec<_> = sim.settle().iter().map(Action::name).collect();
    assert_eq!(names, ["confirm_gone", "unlabel_node", "unlabel_node"]);
    assert_eq!(sim.places(2), [None, None]);
}

#[test]
fn a_namespace_made_anew_inherits_nothing_from_memory() {
    let mut sim = Sim::running(&["a", "b"], 2, &[]);
    let old = sim.view.namespace("default").unwrap().clone();
    for number in 0..2 {
        let pod = sim.view.flock(&key()).holder(ordinal(number)).unwrap().clone();
        sim.view.delete_pod(&key(), &pod.name, &pod.uid);
        sim.unlabel(["a", "b"][number as usize], number);
    }
    sim.view.delete_service("default", "db", "uid-of-service");
    // Between two looks: nobody saw it gone.
    sim.view.apply_namespace(crate::view::NamespaceFacts {
        uid: "another".into(),
        ..old
    });
    sim.pod(
        crate::view::fixtures::pod(0, "rs")
            .annotated(&[(crate::identity::keys::NODES, "b")])
            .waiting(),
    );
    sim.settle();
    assert_eq!(sim.record().len(), 1);
    assert_eq!(sim.places(2), [Some("b".into()), None]);
}
