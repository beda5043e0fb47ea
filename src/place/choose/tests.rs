use k8s_openapi::api::core::v1::PodSpec;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::place::fixtures::{key, node, ordinal};

fn constraints(mut spec: Value) -> Constraints {
    spec["containers"] = json!([]);
    Constraints::from(&serde_json::from_value::<PodSpec>(spec).unwrap())
}

fn anywhere() -> Constraints {
    constraints(json!({}))
}

fn tried(nodes: &[&str]) -> BTreeSet<NodeName> {
    nodes.iter().map(|name| NodeName::from(*name)).collect()
}

/// Places the ordinals 0, 1, … and returns the nodes' names, up to the first that finds none.
fn place_all(nodes: &[NodeFacts], count: u32, pin: Pin) -> Vec<String> {
    let flock = key("db");
    let mut placer = Placer::new(nodes.iter(), &flock);
    (0..count)
        .map_while(|n| placer.place(ordinal(n), &anywhere(), pin, None, &tried(&[])).ok())
        .map(|node| node.name.to_string())
        .collect()
}

#[test]
fn members_spread_over_zones_then_nodes_then_by_name() {
    let nodes = [
        node("a1").in_zone("a"),
        node("a2").in_zone("a"),
        node("a3").in_zone("a"),
        node("b1").in_zone("b"),
        node("b2").in_zone("b"),
    ];
    assert_eq!(
        place_all(&nodes, 9, Pin::Exclusive),
        ["a1", "b1", "a2", "b2", "a3"]
    );
    assert_eq!(
        place_all(&nodes, 6, Pin::Shared),
        ["a1", "b1", "a2", "b2", "a3", "b1"]
    );
}

#[test]
fn members_of_all_flocks_weigh_on_a_node_but_only_this_one_on_its_zone() {
    let (db, web) = (key("db"), key("web"));
    let busy = [
        node("a1").in_zone("a").carrying(&web, 0).carrying(&web, 1),
        node("a2").in_zone("a").carrying(&web, 2),
        node("b1").in_zone("b").carrying(&db, 7),
        node("b2").in_zone("b"),
    ];
    assert_eq!(place_all(&busy, 3, Pin::Exclusive), ["a2", "b2", "a1"]);
}

#[test]
fn nodes_without_a_zone_are_one_zone() {
    let nodes = [node("n1"), node("n2"), node("z1").in_zone("z")];
    assert_eq!(place_all(&nodes, 3, Pin::Exclusive), ["n1", "z1", "n2"]);
}

#[test]
fn the_order_in_which_nodes_arrive_makes_no_difference() {
    let mut nodes = [node("n3"), node("n1"), node("n2")];
    let first = place_all(&nodes, 3, Pin::Exclusive);
    nodes.reverse();
    assert_eq!(first, ["n1", "n2", "n3"]);
    assert_eq!(place_all(&nodes, 3, Pin::Exclusive), first);
}

#[test]
fn a_node_whose_name_is_anothers_hostname_is_not_mixed_up() {
    let nodes = [
        node("ip-10-0-0-7.ec2.internal").with_label("kubernetes.io/hostname", "worker-b"),
        node("worker-b").with_label("kubernetes.io/hostname", "ip-10-0-0-8"),
    ];
    assert_eq!(
        place_all(&nodes, 3, Pin::Exclusive),
        ["ip-10-0-0-7.ec2.internal", "worker-b"]
    );
}

#[test]
fn an_ordinal_placed_twice_gets_the_same_node() {
    let (flock, nodes) = (key("db"), [node("n1"), node("n2").carrying(&key("db"), 0)]);
    let mut placer = Placer::new(nodes.iter(), &flock);
    for _ in 0..2 {
        assert_eq!(
            &*placer
                .place(ordinal(0), &anywhere(), Pin::Exclusive, None, &tried(&[]))
                .unwrap()
                .name,
            "n2"
        );
        assert_eq!(
            &*placer
                .place(ordinal(1), &anywhere(), Pin::Exclusive, None, &tried(&[]))
                .unwrap()
                .name,
            "n1"
        );
    }
}

#[test]
fn a_reserved_node_is_taken() {
    let (flock, nodes) = (key("db"), [node("n1"), node("n2")]);
    let mut placer = Placer::new(nodes.iter(), &flock);
    placer.reserve(ordinal(5), "n1");
    placer.reserve(ordinal(6), "gone");
    assert_eq!(
        &*placer
            .place(ordinal(0), &anywhere(), Pin::Exclusive, None, &tried(&[]))
            .unwrap()
            .name,
        "n2"
    );
    let error = placer
        .place(ordinal(1), &anywhere(), Pin::Exclusive, None, &tried(&[]))
        .unwrap_err();
    assert!(
        error.to_string().contains("0/2 nodes fit: 2 carry other members"),
        "{error}"
    );
}

/// The example of a flock that asks for one zone, with a tainted node in it and one of the control plane.
#[test]
fn an_ordinal_without_a_node_is_told_how_many_qualify_and_why_others_do_not() {
    let nodes = [
        node("n1").in_zone("a"),
        node("n2").in_zone("b"),
        node("n3").in_zone("b").taint("k", "v", "NoSchedule"),
        node("cp").taint("node-role.kubernetes.io/control-plane", "", "NoSchedule"),
    ];
    let zone_b = constraints(json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]},
        ]}]},
    }}}));
    let flock = key("db");
    let mut placer = Placer::new(nodes.iter(), &flock);
    let mut place = |n| placer.place(ordinal(n), &zone_b, Pin::Exclusive, None, &tried(&[]));
    assert_eq!(&*place(0).unwrap().name, "n2");
    for n in 1..5 {
        assert_eq!(
            place(n).unwrap_err().to_string(),
            format!(
                "no node for db-{n}: 0/4 nodes fit: 1 carries db-0, 1 node affinity, 1 taint k=v:NoSchedule, 1 taint \
                 node-role.kubernetes.io/control-plane:NoSchedule; add a node that fits, or set flock.dev/pin: Shared to \
                 let members share one"
            )
        );
    }
}

#[rstest]
#[case::empty(vec![], "0/0 nodes fit; add a node")]
#[case::cordoned(vec![node("n1").cordoned()], "1 cordoned; add a node that fits, or uncordon it (kubectl uncordon)")]
#[case::tainted(
    vec![node("n1").taint("k", "", "NoExecute")],
    "1 taint k:NoExecute; add a node that fits, or add a toleration"
)]
fn the_way_out_goes_by_the_commonest_reason(#[case] nodes: Vec<NodeFacts>, #[case] end: &str) {
    let flock = key("db");
    let error = Placer::new(nodes.iter(), &flock)
        .place(ordinal(0), &anywhere(), Pin::Exclusive, None, &tried(&[]))
        .unwrap_err();
    assert!(error.to_string().contains(end), "{error}");
}

#[test]
fn a_node_that_the_scheduler_refused_is_passed_over() {
    let (flock, nodes) = (
        key("db"),
        [
            node("n1").in_zone("a"),
            node("n2").in_zone("a"),
            node("n3").in_zone("b"),
        ],
    );
    let place = |tried: &BTreeSet<NodeName>| {
        let mut placer = Placer::new(nodes.iter(), &flock);
        placer
            .place(ordinal(0), &anywhere(), Pin::Exclusive, None, tried)
            .map(|node| node.name.to_string())
    };
    assert_eq!(place(&tried(&[])).unwrap(), "n1");
    assert_eq!(place(&tried(&["n1"])).unwrap(), "n2");
    assert_eq!(place(&tried(&["n1", "n2"])).unwrap(), "n3");
    let error = place(&tried(&["n1", "n2", "n3"])).unwrap_err();
    assert!(matches!(error, NoPlace::AllTried { .. }));
    assert!(
        error
            .to_string()
            .starts_with("no node for db-0: 3/3 nodes fit, but the scheduler"),
        "{error}"
    );
}

#[rstest]
#[case(Pin::Exclusive)]
#[case(Pin::Shared)]
fn the_node_that_an_ordinal_was_tried_on_last_is_not_taken_by_another(#[case] pin: Pin) {
    let (flock, nodes) = (key("db"), [node("n1").carrying(&key("db"), 0)]);
    let mut placer = Placer::new(nodes.iter(), &flock);
    let error = placer
        .place(ordinal(0), &anywhere(), pin, None, &tried(&["n1"]))
        .unwrap_err();
    assert!(
        matches!(&error, NoPlace::AllTried { tally, .. } if tally.fit == 1),
        "{error}"
    );
}

#[test]
fn a_node_by_hand_is_taken_even_if_another_would_be_better_or_it_was_tried() {
    let (flock, nodes) = (key("db"), [node("n1"), node("n2").carrying(&key("web"), 0)]);
    let mut placer = Placer::new(nodes.iter(), &flock);
    let place = placer.place(
        ordinal(0),
        &anywhere(),
        Pin::Exclusive,
        Some("n2"),
        &tried(&["n2"]),
    );
    assert_eq!(&*place.unwrap().name, "n2");
    let place = placer.place(ordinal(1), &anywhere(), Pin::Exclusive, Some(""), &tried(&[]));
    assert_eq!(
        &*place.unwrap().name,
        "n1",
        "an empty entry leaves the choice to Flock"
    );
}

#[rstest]
#[case::unknown(
    Pin::Exclusive,
    "n9",
    "flock.dev/nodes puts db-1 on the node \"n9\", which does not exist"
)]
#[case::taken(
    Pin::Exclusive,
    "n1",
    "on the node n1, which carries db-0; choose another node, or set flock.dev/pin: Shared"
)]
#[case::unfit(
    Pin::Exclusive,
    "n2",
    "on the node n2, which does not fit: cordoned; choose another node, or uncordon it"
)]
#[case::unfit_shared(Pin::Shared, "n2", "on the node n2, which does not fit: cordoned")]
fn a_node_by_hand_that_cannot_be_is_held_with_the_reason(
    #[case] pin: Pin,
    #[case] by_hand: &str,
    #[case] reason: &str,
) {
    let (flock, nodes) = (
        key("db"),
        [
            node("n1").carrying(&key("db"), 0),
            node("n2").cordoned(),
            node("n3"),
        ],
    );
    let mut placer = Placer::new(nodes.iter(), &flock);
    let error = placer
        .place(ordinal(1), &anywhere(), pin, Some(by_hand), &tried(&[]))
        .unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn a_node_by_hand_may_be_shared_where_the_pin_allows_it() {
    let (flock, nodes) = (key("db"), [node("n1").carrying(&key("db"), 0), node("n2")]);
    let mut placer = Placer::new(nodes.iter(), &flock);
    let place = placer.place(ordinal(1), &anywhere(), Pin::Shared, Some("n1"), &tried(&[]));
    assert_eq!(&*place.unwrap().name, "n1");
}

#[test]
fn five_hundred_ordinals_on_a_thousand_nodes_check_each_node_once() {
    let nodes: Vec<_> = (0..1000)
        .map(|n| node(&format!("n{n:03}")).in_zone(&format!("z{}", n % 3)))
        .collect();
    let flock = key("db");
    let mut placer = Placer::new(nodes.iter(), &flock);
    for n in 0..500 {
        placer
            .place(ordinal(n), &anywhere(), Pin::Exclusive, None, &tried(&[]))
            .unwrap();
    }
    assert_eq!(placer.checks(), 1000);
    let ssd = constraints(json!({"nodeSelector": {"disk": "ssd"}}));
    for n in 500..1000 {
        placer
            .place(ordinal(n), &ssd, Pin::Exclusive, None, &tried(&[]))
            .unwrap_err();
    }
    assert_eq!(placer.checks(), 2000, "once more for other constraints");
}

#[test]
fn failures_in_a_row_share_one_count() {
    let (flock, nodes) = (key("db"), [node("n1"), node("n2").cordoned()]);
    let mut placer = Placer::new(nodes.iter(), &flock);
    let mut place = |n| placer.place(ordinal(n), &anywhere(), Pin::Exclusive, None, &tried(&[]));
    place(0).unwrap();
    let tallies = [1, 2].map(|n| match place(n) {
        Err(NoPlace::NoneFits { tally, .. }) => tally,
        other => panic!("{other:?}"),
    });
    assert!(Arc::ptr_eq(&tallies[0], &tallies[1]));
}
