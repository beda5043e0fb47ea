use super::sim::Sim;
use crate::reconcile::plan::Action;
use crate::view::fixtures::{node, pod, set};

/// 1,000 nodes and 500 ordinals in one go.
#[test]
fn five_hundred_ordinals_are_placed_on_a_thousand_nodes_in_one_look() {
    let names: Vec<_> = (0..1000).map(|number| format!("node-{number:04}")).collect();
    let mut sim = Sim::new(&[], set("rs", 500));
    for (number, name) in names.iter().enumerate() {
        let mut node = node(name, &[]);
        node.labels.insert(
            "topology.kubernetes.io/zone".into(),
            format!("zone-{}", number % 3),
        );
        sim.view.apply_node(node);
    }
    for ordinal in 0..500 {
        sim.pod(pod(ordinal, "rs").waiting());
    }
    let begin = std::time::Instant::now();
    let plan = sim.look();
    let took = begin.elapsed();
    let count = |name: &str| plan.actions.iter().filter(|action| action.name() == name).count();
    assert_eq!(count("write_record"), 1);
    assert_eq!(count("label_node"), 500);
    assert_eq!(count("open_gate"), 500);
    let nodes: std::collections::BTreeSet<_> = plan
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Label { node, .. } => Some(node),
            _ => None,
        })
        .collect();
    assert_eq!(nodes.len(), 500, "each has its own node");
    println!("500 ordinals on 1,000 nodes: one look took {took:?}");
    sim.settle();
    let begin = std::time::Instant::now();
    assert!(sim.look().actions.is_empty());
    println!("and the next one, with nothing to do, {:?}", begin.elapsed());
}
