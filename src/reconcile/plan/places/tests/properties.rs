//! Whatever happens, in whatever order: a member that ran starts on the machine that has its data, or not at all.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::sim::{Sim, ordinal};
use crate::place::{Place, Record};
use crate::reconcile::plan::Memory;
use crate::view::fixtures::key;

const NODES: [&str; 4] = ["a", "b", "c", "d"];
const MEMBERS: u32 = 3;

#[derive(Clone, Debug)]
enum Event {
    Look,
    /// The leader dies after so many writes.
    Interrupted(usize),
    Pass(i64),
    Bind,
    Restart(u32),
    Refuse(u32),
    DeleteNode(usize),
    Register(usize, bool),
    Cordon(usize, bool),
    /// A tenant's.
    EditRecord(u32, usize, bool),
    GarbageRecord,
    DeleteService,
}

fn common() -> Vec<BoxedStrategy<Event>> {
    let node = 0..NODES.len();
    let member = 0..MEMBERS;
    vec![
        Just(Event::Look).boxed(),
        (1i64..100).prop_map(Event::Pass).boxed(),
        Just(Event::Bind).boxed(),
        member.clone().prop_map(Event::Restart).boxed(),
        member.prop_map(Event::Refuse).boxed(),
        node.clone().prop_map(Event::DeleteNode).boxed(),
        (node.clone(), prop::bool::weighted(0.7))
            .prop_map(|(at, same)| Event::Register(at, same))
            .boxed(),
        (node, any::<bool>())
            .prop_map(|(at, cordoned)| Event::Cordon(at, cordoned))
            .boxed(),
    ]
}

fn history(more: Vec<BoxedStrategy<Event>>) -> impl Strategy<Value = Vec<Event>> {
    let all: Vec<_> = common().into_iter().chain(more).collect();
    prop::collection::vec(prop::strategy::Union::new(all), 1..40)
}

fn happen(sim: &mut Sim, event: &Event) {
    match *event {
        Event::Look => {
            sim.settle();
        }
        Event::Interrupted(cut) => {
            sim.step(cut);
            sim.memory = Memory::default();
        }
        Event::Pass(seconds) => {
            sim.pass(seconds);
        }
        Event::Bind => {
            sim.bind_all();
        }
        Event::Restart(number) => sim.restart(number),
        Event::Refuse(number) => sim.change_pod(number, |pod| {
            if pod.node.is_none() && !pod.gated {
                pod.unschedulable = Some("0/4 nodes are available".into());
            }
        }),
        Event::DeleteNode(at) => sim.delete_node(NODES[at]),
        Event::Register(at, same) => {
            if !sim.view.nodes().contains_key(NODES[at]) {
                let machine = if same {
                    format!("machine-of-{}", NODES[at])
                } else {
                    "stranger".into()
                };
                sim.register(NODES[at], &machine);
            }
        }
        Event::Cordon(at, cordoned) => {
            if sim.view.nodes().contains_key(NODES[at]) {
                sim.change_node(NODES[at], |node| node.unschedulable = cordoned);
            }
        }
        Event::EditRecord(number, at, with_mark) => {
            let mut record = sim.record();
            let mut place = Place::new(NODES[at].into(), Some(format!("machine-of-{}", NODES[at]).into()));
            let pod = sim
                .view
                .flock(&key())
                .holder(ordinal(number))
                .map(|pod| pod.uid.clone());
            place.chosen_for = pod.filter(|_| with_mark);
            record.insert(ordinal(number), place);
            sim.annotate(Some(&record.render().unwrap()));
        }
        Event::GarbageRecord => sim.annotate(Some("{")),
        Event::DeleteService => {
            let service = sim.service().clone();
            sim.view.delete_service("default", &service.name, &service.uid);
            // The Service is gone: what stands for it in the meantime is made by the next look.
            sim.settle();
        }
    }
}

fn holds(events: &[Event]) -> Result<(), TestCaseError> {
    let mut sim = Sim::waiting(&NODES, MEMBERS, &[]);
    sim.settle();
    let mut homes: BTreeMap<u32, (String, String)> = BTreeMap::new();
    for event in events {
        if !matches!(event, Event::Bind) {
            happen(&mut sim, event);
            continue;
        }
        for (number, node) in sim.bind_all() {
            let now = (
                node.name.to_string(),
                node.machine_id.as_deref().unwrap_or_default().to_owned(),
            );
            let home = homes.entry(number).or_insert_with(|| now.clone());
            prop_assert_eq!(&*home, &now, "db-{} started elsewhere", number);
        }
    }
    // Time enough to end what was interrupted.
    sim.pass(100);
    for number in 0..MEMBERS {
        let labels = sim
            .view
            .places(&key())
            .get(&ordinal(number))
            .map_or(0, std::collections::BTreeSet::len);
        prop_assert!(labels <= 1, "no label is there twice at the end");
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_member_never_starts_without_its_data_whenever_leaders_die(
        events in history(vec![(0usize..6).prop_map(Event::Interrupted).boxed()]),
    ) {
        holds(&events)?;
    }

    #[test]
    fn a_member_never_starts_without_its_data_whatever_tenants_do(
        events in history(vec![
            (0..MEMBERS, 0..NODES.len(), any::<bool>()).prop_map(|(n, at, mark)| Event::EditRecord(n, at, mark)).boxed(),
            Just(Event::GarbageRecord).boxed(),
            Just(Event::DeleteService).boxed(),
        ]),
    ) {
        holds(&events)?;
    }
}

#[test]
fn the_record_survives_every_one_of_these() {
    let mut sim = Sim::running(&NODES, MEMBERS, &[]);
    let before: Vec<_> = sim
        .record()
        .iter()
        .map(|(ordinal, place)| (ordinal, place.node.clone()))
        .collect();
    for event in [
        Event::DeleteNode(0),
        Event::Restart(0),
        Event::GarbageRecord,
        Event::DeleteService,
        Event::Pass(99),
    ] {
        happen(&mut sim, &event);
    }
    let record: Record = sim.record();
    let after: Vec<_> = record
        .iter()
        .map(|(ordinal, place)| (ordinal, place.node.clone()))
        .collect();
    assert_eq!(after, before);
}
