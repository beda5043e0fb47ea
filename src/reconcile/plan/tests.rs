//! Tables of what is done about a flock. Its members have no node of their own here: places have their own tests.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;

use crate::view::fixtures::{
    key, now, pod as pinned_pod, revision as pinned_revision, service, set as pinned_set, view,
};
use crate::view::{Controller, Failure};

use super::*;
use crate::view::PortFacts;

const FREE: &[(&str, &str)] = &[("flock.dev/pin", "None")];
const ORDERED: &[(&str, &str)] = &[("flock.dev/pin", "None"), ("flock.dev/start", "Ordered")];

fn pod(ordinal: u32, owner: &str) -> PodFacts {
    pinned_pod(ordinal, owner).annotated(FREE)
}

fn set(name: &str, replicas: u32) -> WorkloadFacts {
    pinned_set(name, replicas).annotated(FREE)
}

fn revision(name: &str, number: u64, replicas: u32, desired: u32) -> WorkloadFacts {
    pinned_revision(name, number, replicas, desired).annotated(FREE)
}

/// A ReplicaSet of a Deployment of one replica, with its ordinal.
fn one(ordinal: u32, number: u64, replicas: u32) -> WorkloadFacts {
    let ordinals = ordinal.to_string();
    let mut facts = pinned_revision(&format!("one-{ordinal}-{number}"), number, replicas, 1)
        .annotated(&[("flock.dev/pin", "None"), ("flock.dev/ordinals", &ordinals)]);
    facts.deployment = Some(Controller {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: format!("one-{ordinal}"),
        uid: format!("uid-of-one-{ordinal}"),
    });
    facts
}

fn at(millis: i64) -> Timestamp {
    now() + SignedDuration::from_secs(60) + SignedDuration::from_millis(millis)
}

struct Look {
    view: View,
    budget: u32,
    memory: Memory,
}

impl Look {
    fn new(workloads: Vec<WorkloadFacts>, pods: Vec<PodFacts>) -> Self {
        let mut view = view(workloads, pods);
        view.apply_service(service("{}"));
        Self {
            view,
            budget: 0,
            memory: Memory::default(),
        }
    }

    fn plan(&self, millis: i64) -> Plan {
        let budgets = HashMap::from([("uid-of-deploy".to_owned(), self.budget)]);
        plan(&Observed {
            key: &key(),
            view: &self.view,
            budgets: &budgets,
            memory: &self.memory,
            config: &PlanConfig::default(),
            now: at(millis),
        })
    }

    /// What is done at a time, in words; what is remembered stays.
    fn acts(&mut self, millis: i64) -> Vec<String> {
        let plan = self.plan(millis);
        self.memory = plan.memory;
        plan.actions.iter().map(words).collect()
    }
}

fn words(action: &Action) -> String {
    match action {
        Action::Evict { pod, .. } => format!("evict {pod}"),
        Action::Delete { pod, .. } => format!("delete {pod}"),
        Action::Wake { name, .. } => format!("wake {name}"),
        Action::OpenGate { pod, .. } => format!("open {pod}"),
        other => other.name().to_owned(),
    }
}

fn acts(workloads: Vec<WorkloadFacts>, pods: Vec<PodFacts>) -> Vec<String> {
    Look::new(workloads, pods).acts(0)
}

#[rstest]
#[case::replicas(vec![set("rs", 3)], vec![pod(0, "rs"), pod(1, "rs"), pod(2, "rs")])]
#[case::none(vec![set("rs", 0)], vec![])]
#[case::two_workloads(vec![set("a", 1), set("b", 1)], vec![pod(0, "a"), pod(1, "b")])]
#[case::after_a_rollout(vec![revision("old", 1, 0, 2), revision("new", 2, 2, 2)], vec![pod(0, "new"), pod(1, "new")])]
#[case::bare_pods(vec![], vec![pod(0, "x").bare(), pod(5, "x").bare()])]
#[case::one_that_is_leaving(vec![set("rs", 1)], vec![pod(0, "rs").going()])]
#[case::one_that_starts(vec![set("rs", 1)], vec![pod(0, "rs").unready()])]
fn a_consistent_flock_yields_no_action(#[case] workloads: Vec<WorkloadFacts>, #[case] pods: Vec<PodFacts>) {
    assert_eq!(acts(workloads, pods), [""; 0]);
}

#[rstest]
#[case::highest_first(1, 0, vec![pod(0, "old"), pod(1, "old"), pod(2, "old")], &["evict db-2"])]
#[case::one_at_a_time_without_a_budget(3, 0, vec![pod(0, "old"), pod(1, "old"), pod(2, "old")], &["evict db-2"])]
#[case::as_many_as_the_budget(3, 2, vec![pod(0, "old"), pod(1, "old"), pod(2, "old")], &["evict db-2", "evict db-1"])]
#[case::an_unready_one_first_and_free(1, 0, vec![pod(0, "old").unready(), pod(1, "old"), pod(2, "old")], &["delete db-0"])]
#[case::unready_ones_whatever_the_budget(
    2, 0, vec![pod(0, "old").unready(), pod(1, "old").unready(), pod(2, "old")], &["delete db-1", "delete db-0"]
)]
#[case::not_while_a_new_one_starts(2, 0, vec![pod(0, "old"), pod(1, "old"), pod(2, "new").unready()], &[])]
#[case::not_while_one_is_leaving(1, 0, vec![pod(0, "old"), pod(1, "old"), pod(2, "old").going()], &[])]
#[case::not_what_is_outside(1, 0, vec![pod(0, "old"), pod(1, "old"), pod(2, "old"), pod(3, "old")], &["evict db-2"])]
fn a_newer_revision_gets_the_ordinals_of_an_older_one(
    #[case] replicas: u32,
    #[case] budget: u32,
    #[case] pods: Vec<PodFacts>,
    #[case] expected: &[&str],
) {
    let mut look = Look::new(
        vec![revision("old", 1, 3, 3), revision("new", 2, replicas, 3)],
        pods,
    );
    look.budget = budget;
    assert_eq!(look.acts(0), expected);
}

#[test]
fn an_undo_deletes_what_is_broken_and_leaves_what_serves() {
    // The first revision is the third now, and lacks the pod whose ordinal the broken one has.
    let workloads = vec![revision("broken", 2, 1, 3), revision("good", 3, 3, 3)];
    assert_eq!(
        acts(
            workloads,
            vec![pod(0, "good"), pod(1, "good"), pod(2, "broken").unready()]
        ),
        ["delete db-2"]
    );
}

#[test]
fn a_member_counts_once_it_has_been_ready_for_long_enough() {
    let patient = |name: &str, number, replicas| WorkloadFacts {
        min_ready_seconds: 90,
        ..revision(name, number, replicas, 2)
    };
    let mut look = Look::new(
        vec![patient("old", 1, 2), patient("new", 2, 2)],
        vec![pod(0, "old"), pod(1, "new")],
    );
    assert_eq!(look.acts(0), [""; 0]);
    assert_eq!(look.plan(0).again, Some(now() + SignedDuration::from_secs(90)));
    assert_eq!(look.acts(30_000), ["evict db-0"]);
}

#[test]
fn deployments_that_change_together_share_one_budget() {
    let changed = |ordinal| [one(ordinal, 1, 1), one(ordinal, 2, 1)];
    let workloads: Vec<_> = (0..3).flat_map(changed).collect();
    let old: Vec<_> = (0..3)
        .map(|ordinal| pod(ordinal, &format!("one-{ordinal}-1")))
        .collect();
    assert_eq!(acts(workloads.clone(), old.clone()), ["evict db-0"]);
    let mut next = old;
    next[0] = pod(0, "one-0-2").unready();
    assert_eq!(acts(workloads.clone(), next.clone()), [""; 0]);
    next[0] = pod(0, "one-0-2");
    assert_eq!(acts(workloads, next), ["evict db-1"]);
}

#[rstest]
#[case::a_gap_below(3, vec![pod(1, "rs"), pod(2, "rs"), pod(3, "rs")], &["evict db-3"])]
#[case::the_highest_of_several(2, vec![pod(4, "rs"), pod(7, "rs")], &["evict db-7"])]
#[case::no_gap(3, vec![pod(0, "rs"), pod(1, "rs"), pod(2, "rs")], &[])]
#[case::one_is_leaving(2, vec![pod(4, "rs"), pod(7, "rs").going()], &[])]
#[case::scaling_down(2, vec![pod(1, "rs"), pod(2, "rs"), pod(3, "rs")], &[])]
#[case::all_inside_is_held_by_others(2, vec![pod(0, "x"), pod(1, "x"), pod(5, "rs")], &[])]
#[case::the_gap_is_not_free_yet(3, vec![pod(0, "rs").going(), pod(1, "rs"), pod(2, "rs"), pod(3, "rs")], &[])]
fn members_outside_make_room_for_a_gap_inside(
    #[case] replicas: u32,
    #[case] pods: Vec<PodFacts>,
    #[case] expected: &[&str],
) {
    let evictions: Vec<_> = acts(vec![set("rs", replicas)], pods)
        .into_iter()
        .filter(|a| a != "wake rs")
        .collect();
    assert_eq!(evictions, expected);
}

#[rstest]
#[case::refused_by_flock(Some(Failure::Flock), &[0, 1000, 3000, 7000])]
#[case::busy(None, &[3000, 4000, 6000])]
#[case::refused_by_another(Some(Failure::Other), &[30_000, 60_000, 120_000])]
fn a_workload_that_lacks_pods_is_woken_at_growing_intervals(
    #[case] failing: Option<Failure>,
    #[case] expected: &[i64],
) {
    let mut look = Look::new(
        vec![WorkloadFacts {
            failing,
            ..set("rs", 2)
        }],
        vec![pod(0, "rs")],
    );
    let woken: Vec<i64> = (0..=expected[expected.len() - 1])
        .step_by(500)
        .filter(|millis| look.acts(*millis) == ["wake rs"])
        .collect();
    assert_eq!(woken, expected);
}

#[test]
fn wakes_are_at_most_a_minute_apart() {
    let mut look = Look::new(vec![set("rs", 1).failing()], vec![]);
    let woken: Vec<i64> = (0..600_000)
        .step_by(1000)
        .filter(|millis| look.acts(*millis) == ["wake rs"])
        .collect();
    assert!(
        woken.windows(2).all(|pair| pair[1] - pair[0] <= 60_000),
        "{woken:?}"
    );
    assert_eq!(
        woken.windows(2).last().map(|pair| pair[1] - pair[0]),
        Some(60_000)
    );
}

#[rstest]
#[case::nothing_is_free(vec![set("rs", 1).failing(), set("other", 1)], vec![pod(0, "other")], &[])]
#[case::its_ordinal_is_still_leaving(vec![set("rs", 1).failing()], vec![pod(0, "rs").going()], &[])]
#[case::the_newer_one_is_first(
    vec![revision("old", 1, 3, 3).failing(), revision("new", 2, 1, 3).failing()], vec![pod(0, "old"), pod(1, "old")],
    &["wake new"]
)]
#[case::the_older_one_gets_what_the_newer_does_not_want(
    vec![revision("old", 1, 2, 3).failing(), revision("new", 2, 1, 3)], vec![pod(0, "old"), pod(2, "new")],
    &["wake old"]
)]
fn only_who_may_have_a_free_ordinal_is_woken(
    #[case] workloads: Vec<WorkloadFacts>,
    #[case] pods: Vec<PodFacts>,
    #[case] expected: &[&str],
) {
    assert_eq!(acts(workloads, pods), expected);
}

#[test]
fn pods_that_are_over_are_buried_but_for_bare_ones() {
    let mut look = Look::new(
        vec![set("rs", 3)],
        vec![
            pod(0, "rs"),
            pod(1, "rs").over("Evicted"),
            pod(2, "rs").over("Completed").going(),
            pod(3, "x").over("x").bare(),
        ],
    );
    assert_eq!(look.acts(0), ["delete db-1"]);
    let notes = look.plan(0).notes;
    let said: Vec<_> = notes.iter().map(|note| (note.reason, note.warning)).collect();
    assert!(said.contains(&("OrdinalHeld", true)), "{said:?}");
}

#[test]
fn pods_that_end_as_soon_as_they_start_are_buried_at_growing_intervals() {
    let mut look = Look::new(vec![set("rs", 1)], vec![pod(0, "rs").over("OutOfcpu")]);
    let buried: Vec<i64> = (0..8000)
        .step_by(500)
        .filter(|millis| look.acts(*millis) == ["delete db-0"])
        .collect();
    assert_eq!(buried, [0, 1000, 3000, 7000]);
    assert_eq!(look.acts(800_000), ["delete db-0"]);
    assert_eq!(
        look.memory.buried.values().next().map(|buried| buried.times),
        Some(1)
    );
}

#[rstest]
#[case::parallel(FREE, vec![pod(0, "rs").unready(), pod(1, "rs").waiting(), pod(2, "rs").waiting()], &["open db-1", "open db-2"])]
#[case::in_order(ORDERED, vec![pod(0, "rs"), pod(1, "rs").waiting(), pod(2, "rs").waiting()], &["open db-1"])]
#[case::not_before_the_lower(ORDERED, vec![pod(0, "rs").unready(), pod(1, "rs").waiting(), pod(2, "rs").waiting()], &[])]
#[case::not_before_one_that_leaves(ORDERED, vec![pod(0, "rs").going(), pod(1, "rs").waiting(), pod(2, "rs")], &[])]
fn gates_open_in_the_order_that_the_owner_wants_now(
    #[case] annotations: &[(&str, &str)],
    #[case] pods: Vec<PodFacts>,
    #[case] expected: &[&str],
) {
    // What the pods' own template said does not count: the order can be switched while they wait.
    assert_eq!(
        acts(vec![pinned_set("rs", 3).annotated(annotations)], pods),
        expected
    );
}

#[test]
fn a_member_that_waits_for_its_turn_is_counted() {
    let pods = vec![
        pod(0, "rs").unready(),
        pod(1, "rs").waiting(),
        pod(2, "rs").waiting(),
    ];
    let plan = Look::new(vec![pinned_set("rs", 3).annotated(ORDERED)], pods).plan(0);
    let waiting = plan.waiting["WaitingForTurn"].iter().map(|ordinal| ordinal.get());
    assert_eq!(waiting.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_ordered_start_never_waits_for_an_older_revision() {
    let ordered =
        |name: &str, number, replicas| pinned_revision(name, number, replicas, 2).annotated(ORDERED);
    let pods = vec![pod(0, "old").unready(), pod(1, "new").waiting()];
    assert_eq!(
        acts(vec![ordered("old", 1, 1), ordered("new", 2, 1)], pods),
        ["open db-1"]
    );
}

#[test]
fn the_service_has_each_port_once_under_a_name_of_its_own() {
    let port = |name: Option<&str>, protocol: &str, port| PortFacts {
        name: name.map(Into::into),
        protocol: protocol.into(),
        port,
    };
    let with = |name: &str, ports: Vec<PortFacts>| {
        let mut facts = set(name, 0);
        let mut template = (*facts.template).clone();
        template.ports = ports;
        facts.template = template.into();
        facts
    };
    let look = Look::new(
        vec![
            with(
                "a",
                vec![port(Some("peer"), "TCP", 2380), port(None, "TCP", 2379)],
            ),
            with(
                "b",
                vec![
                    port(Some("peer"), "TCP", 2381),
                    port(Some("other"), "TCP", 2380),
                    port(None, "UDP", 2379),
                ],
            ),
        ],
        vec![],
    );
    let plan = look.plan(0);
    let Some(Action::MendService { ports, .. }) = plan.actions.first() else {
        panic!("{:?}", plan.actions)
    };
    let named: BTreeMap<_, _> = ports
        .iter()
        .map(|p| ((p.port, p.protocol.as_str()), p.name.clone().unwrap()))
        .collect();
    assert_eq!(ports.len(), 4, "{ports:?}");
    assert_eq!(named[&(2379, "TCP")], "tcp-2379");
    assert_eq!(named[&(2379, "UDP")], "udp-2379");
    let distinct: BTreeSet<_> = named.values().collect();
    assert_eq!(distinct.len(), 4, "two ports of one name: {named:?}");
}

#[test]
fn a_note_of_a_deed_rests_on_it() {
    let look = Look::new(
        vec![revision("old", 1, 1, 1), revision("new", 2, 1, 1)],
        vec![pod(0, "old")],
    );
    let plan = look.plan(0);
    let note = plan.notes.iter().find(|note| note.reason == "HandOver").unwrap();
    assert_eq!(note.rests_on, Some(0));
    assert!(matches!(plan.actions[0], Action::Evict { .. }));
}
