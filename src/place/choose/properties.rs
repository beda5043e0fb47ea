use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::place::fixtures::{key, node, ordinal};

/// Nodes in few zones, some out of order, some carrying members of this and another flock.
fn nodes() -> impl Strategy<Value = Vec<NodeFacts>> {
    let one = (
        0u8..4,
        any::<[bool; 4]>(),
        prop::option::weighted(0.2, 40u32..60),
        0u32..3,
    );
    prop::collection::vec(one, 0..25).prop_map(|all| {
        let build = |(at, (zone, [ssd, cordoned, tainted, silent], own, others)): (
            usize,
            (u8, [bool; 4], _, u32),
        )| {
            let mut it = node(&format!("n{at}"));
            if zone > 0 {
                it = it.in_zone(&format!("z{zone}"));
            }
            if ssd {
                it = it.with_label("disk", "ssd");
            }
            it.unschedulable = cordoned && silent;
            it.ready = !silent || ssd;
            if tainted && cordoned {
                it = it.taint("k", "v", "NoSchedule");
            }
            if let Some(own) = own {
                it = it.carrying(&key("db"), own);
            }
            (0..others).fold(it, |it, n| it.carrying(&key("web"), n))
        };
        all.into_iter().enumerate().map(build).collect()
    })
}

fn kinds() -> [Constraints; 3] {
    [
        json!({"containers": []}),
        json!({"containers": [], "nodeSelector": {"disk": "ssd"}}),
        json!({"containers": [], "tolerations": [{"operator": "Exists"}]}),
    ]
    .map(|spec| Constraints::from(&serde_json::from_value::<PodSpec>(spec).unwrap()))
}

/// One request: which constraints, whether by hand, which nodes were tried.
type Request = (usize, Option<u8>, Vec<u8>);

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let by_hand = prop::option::weighted(0.1, 0u8..25);
    prop::collection::vec((0usize..3, by_hand, prop::collection::vec(0u8..25, 0..3)), 0..30)
}

fn run(nodes: &[NodeFacts], requests: &[Request], pin: Pin) -> Vec<Result<String, NoPlace>> {
    let (flock, kinds) = (key("db"), kinds());
    let mut placer = Placer::new(nodes.iter(), &flock);
    let mut place = |(n, (kind, by_hand, tried)): (usize, &Request)| {
        let by_hand = by_hand.map(|at| format!("n{at}"));
        let tried = tried.iter().map(|at| NodeName::from(format!("n{at}"))).collect();
        let number = ordinal(u32::try_from(n).unwrap());
        let found = placer.place(number, &kinds[*kind], pin, by_hand.as_deref(), &tried);
        found.map(|node| node.name.to_string())
    };
    requests.iter().enumerate().map(&mut place).collect()
}

/// What [`Placer`] promises, said slowly: the least of all nodes that qualify.
fn slowly(nodes: &[NodeFacts], requests: &[Request], pin: Pin) -> Vec<Option<String>> {
    let mut nodes = nodes.to_vec();
    let (flock, kinds) = (key("db"), kinds());
    let mut placed = Vec::new();
    for (n, (kind, by_hand, tried)) in requests.iter().enumerate() {
        let mut zones: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for node in &nodes {
            *zones.entry(node.zone().map(Into::into)).or_default() += node.carries(&flock).len();
        }
        let best = nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| match by_hand {
                Some(at) => *node.name == *format!("n{at}"),
                None => !tried.iter().any(|at| *node.name == *format!("n{at}")),
            })
            .filter(|(_, node)| check(node, &kinds[*kind]).is_ok())
            .filter(|(_, node)| pin != Pin::Exclusive || node.carries(&flock).is_empty())
            .min_by_key(|(_, node)| {
                (
                    zones[&node.zone().map(Into::into)],
                    node.member_count(),
                    node.name.clone(),
                )
            })
            .map(|(at, _)| at);
        placed.push(best.map(|at| nodes[at].name.to_string()));
        if let Some(at) = best {
            nodes[at] = nodes[at].clone().carrying(&flock, u32::try_from(n).unwrap());
        }
    }
    placed
}

proptest! {
    #[test]
    fn the_choice_is_the_least_of_all_nodes_that_qualify(
        nodes in nodes(), requests in requests(), exclusive in any::<bool>(),
    ) {
        let pin = if exclusive { Pin::Exclusive } else { Pin::Shared };
        let placed: Vec<_> = run(&nodes, &requests, pin).into_iter().map(Result::ok).collect();
        prop_assert_eq!(placed, slowly(&nodes, &requests, pin));
    }

    #[test]
    fn exclusive_members_never_share_a_node_and_none_gets_an_unfit_one(nodes in nodes(), requests in requests()) {
        let mut taken: BTreeSet<String> = nodes
            .iter()
            .filter(|node| !node.carries(&key("db")).is_empty())
            .map(|node| node.name.to_string())
            .collect();
        for ((kind, ..), placed) in requests.iter().zip(run(&nodes, &requests, Pin::Exclusive)) {
            let Ok(name) = placed else { continue };
            let node = nodes.iter().find(|node| *node.name == *name).unwrap();
            prop_assert_eq!(check(node, &kinds()[*kind]), Ok(()));
            prop_assert!(taken.insert(name), "{} has two members", node.name);
        }
    }

    #[test]
    fn the_outcome_does_not_depend_on_the_order_of_nodes(
        (nodes, shuffled) in nodes().prop_flat_map(|nodes| (Just(nodes.clone()), Just(nodes).prop_shuffle())),
        requests in requests(),
    ) {
        prop_assert_eq!(run(&nodes, &requests, Pin::Exclusive), run(&shuffled, &requests, Pin::Exclusive));
    }

    #[test]
    fn every_failure_accounts_for_every_node(nodes in nodes(), requests in requests()) {
        for failure in run(&nodes, &requests, Pin::Exclusive).into_iter().filter_map(Result::err) {
            if let NoPlace::NoneFits { tally, .. } | NoPlace::AllTried { tally, .. } = failure {
                prop_assert_eq!(tally.total(), nodes.len());
            }
        }
    }
}
