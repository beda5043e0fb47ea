use rstest::rstest;

use super::sim::{Sim, ordinal};
use crate::identity::keys::{ON_NODE_LOSS, PIN};
use crate::place::{NodeFacts, Taint};
use crate::reconcile::plan::{Action, Gone, Memory};
use crate::view::fixtures::key;

const REASSIGN: &[(&str, &str)] = &[(ON_NODE_LOSS, "Reassign")];

fn off(node: &mut NodeFacts) {
    node.ready = false;
    node.taints.push(Taint {
        key: "node.kubernetes.io/out-of-service".into(),
        value: "nodeshutdown".into(),
        effect: "NoExecute".into(),
    });
}

#[rstest]
#[case::wait(&[])]
#[case::reassign(REASSIGN)]
fn a_node_that_is_not_ready_for_hours_proves_nothing(#[case] annotations: &[(&str, &str)]) {
    let mut sim = Sim::running(&["a", "b"], 1, annotations);
    sim.change_node("a", |node| node.ready = false);
    sim.change_pod(0, |pod| pod.terminating = true);
    assert_eq!(sim.pass(6 * 3600), []);
    assert!(sim.notes("NodeUnreachable")[0].contains("its node a is not Ready"));
    assert_eq!(sim.waiting_for("NodeUnreachable"), [0]);
    sim.restart(0);
    sim.change_pod(0, |pod| pod.unschedulable = Some("0/2 nodes".into()));
    assert_eq!(sim.pass(6 * 3600), []);
    assert!(sim.notes("WaitingForNode")[0].contains("waits for its node a, where its data is: not Ready"));
}

#[test]
fn a_cordoned_node_is_waited_for() {
    let mut sim = Sim::running(&["a", "b"], 1, REASSIGN);
    sim.change_node("a", |node| node.unschedulable = true);
    sim.restart(0);
    sim.change_pod(0, |pod| pod.unschedulable = Some("0/2 nodes".into()));
    assert_eq!(sim.pass(3600), []);
    assert!(sim.notes("WaitingForNode")[0].contains("kubectl uncordon"));
    assert_eq!(sim.waiting_for("WaitingForNode"), [0]);
}

#[rstest]
#[case::gone(true)]
#[case::out_of_service(false)]
fn wait_waits_for_ever_and_says_how_to_give_up(#[case] gone: bool) {
    let mut sim = Sim::running(&["a", "b"], 1, &[]);
    if gone {
        sim.delete_node("a");
    } else {
        sim.change_node("a", off);
    }
    sim.restart(0);
    assert!(
        sim.pass(6 * 3600)
            .iter()
            .all(|action| matches!(action, Action::OpenGate { .. }))
    );
    assert!(sim.notes("NodeLost")[0].contains("flock release db 0 --namespace default"));
    assert_eq!(sim.waiting_for("NodeLost"), [0]);
}

#[rstest]
#[case::gone(true)]
#[case::out_of_service(false)]
fn reassign_acts_after_the_grace_and_a_live_look_and_only_once_the_old_pod_is_gone(#[case] gone: bool) {
    let mut sim = Sim::running(&["a", "b", "c"], 1, REASSIGN);
    if gone {
        sim.delete_node("a");
    } else {
        sim.change_node("a", off);
    }
    sim.change_pod(0, |pod| pod.terminating = true);
    assert_eq!(sim.pass(3600), [], "the old pod is still there");
    sim.restart(0);
    let actions: Vec<_> = sim
        .settle()
        .into_iter()
        .filter(|a| a.name() != "open_gate")
        .collect();
    let proof = if gone {
        Gone::Node("a".into())
    } else {
        Gone::Machine("a".into())
    };
    assert_eq!(actions[0], Action::ConfirmGone { what: proof });
    let names: Vec<_> = actions[1..].iter().map(Action::name).collect();
    let expected = if gone {
        &["write_record", "label_node"][..]
    } else {
        &["write_record", "label_node", "unlabel_node"]
    };
    assert_eq!(names, expected);
    assert_eq!(sim.place(0).as_deref(), Some("b"));
    assert!(sim.told("Reassigned", "its data stayed behind on a"));
}

#[test]
fn the_grace_counts_from_the_first_proof() {
    let mut sim = Sim::running(&["a", "b"], 1, REASSIGN);
    sim.delete_node("a");
    sim.restart(0);
    sim.settle();
    assert_eq!(sim.place(0), None);
    sim.pass(9);
    assert_eq!(sim.place(0), None);
    sim.pass(2);
    assert_eq!(sim.place(0).as_deref(), Some("b"));
}

#[test]
fn a_node_that_comes_back_within_the_grace_keeps_its_member() {
    let mut sim = Sim::running(&["a", "b"], 1, REASSIGN);
    sim.delete_node("a");
    sim.restart(0);
    sim.pass(5);
    sim.register("a", "machine-of-a");
    sim.pass(3600);
    assert_eq!(sim.place(0).as_deref(), Some("a"));
}

#[test]
fn two_lost_members_do_not_meet_on_one_node() {
    for gone in [true, false] {
        let mut sim = Sim::running(&["a", "b"], 2, REASSIGN);
        for name in ["c", "d"] {
            sim.register(name, name);
        }
        for (name, number) in [("a", 0), ("b", 1)] {
            if gone {
                sim.delete_node(name);
            } else {
                sim.change_node(name, off);
            }
            sim.restart(number);
        }
        sim.pass(20);
        assert_eq!(sim.places(2), [Some("c".into()), Some("d".into())]);
    }
}

#[test]
fn a_reassigned_member_that_is_refused_moves_on() {
    let mut sim = Sim::running(&["a", "b", "c"], 1, REASSIGN);
    sim.delete_node("a");
    sim.restart(0);
    sim.pass(15);
    sim.change_pod(0, |pod| pod.unschedulable = Some("0/2 nodes".into()));
    sim.pass(5);
    assert_eq!(sim.place(0).as_deref(), Some("c"));
}

#[test]
fn an_interrupted_reassignment_leaves_the_old_place_no_right_to_move() {
    for cut in 0..4 {
        let mut sim = Sim::running(&["a", "b", "c"], 1, REASSIGN);
        sim.change_node("a", off);
        sim.restart(0);
        sim.settle();
        sim.now += jiff::SignedDuration::from_secs(11);
        sim.step(cut);
        // The leader dies, and the node turns out to be well, but full.
        sim.memory = Memory::default();
        sim.change_node("a", |node| {
            node.taints.clear();
            node.ready = true;
        });
        sim.change_pod(0, |pod| pod.unschedulable = Some("0/3 nodes".into()));
        sim.pass(3600);
        let place = sim.place(0).unwrap();
        let expected = if cut < 3 { "a" } else { "b" };
        assert_eq!(place, expected, "cut after {cut}");
        assert_eq!(sim.view.places(&key())[&ordinal(0)].len(), 1);
    }
}

#[test]
fn a_taint_left_on_a_node_that_is_ready_is_no_proof() {
    let mut sim = Sim::running(&["a", "b"], 1, REASSIGN);
    sim.change_node("a", |node| {
        off(node);
        node.ready = true;
    });
    sim.restart(0);
    sim.pass(3600);
    assert_eq!(sim.place(0).as_deref(), Some("a"));
}

#[test]
fn all_nodes_gone_and_back_brings_every_member_home() {
    let names = ["a", "b", "c"];
    for annotations in [&[][..], REASSIGN, &[(PIN, "Shared")]] {
        let mut sim = Sim::running(&names, 3, annotations);
        let before = sim.places(3);
        for name in names {
            sim.delete_node(name);
        }
        for number in 0..3 {
            sim.restart(number);
        }
        // A pool that is scaled to zero has no node to reassign to.
        sim.pass(3600);
        assert_eq!(sim.places(3), [None, None, None]);
        for name in names {
            sim.register(name, &format!("machine-of-{name}"));
        }
        sim.pass(60);
        assert_eq!(sim.places(3), before);
    }
}
