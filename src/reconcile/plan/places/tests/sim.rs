//! A cluster in memory that does what plans say.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::identity::Ordinal;
use crate::place::{NodeFacts, Record};
use crate::reconcile::plan::{Action, Memory, Observed, Plan, PlanConfig, plan};
use crate::view::fixtures::{key, node, now, pod, service, set, view};
use crate::view::{PodFacts, ServiceFacts, View, WorkloadFacts};

pub(super) fn ordinal(number: u32) -> Ordinal {
    Ordinal::new(number).unwrap()
}

pub(super) struct Sim {
    pub(super) view: View,
    pub(super) memory: Memory,
    pub(super) now: Timestamp,
    pub(super) config: PlanConfig,
    version: u64,
    /// The plans that were carried out.
    pub(super) plans: Vec<Plan>,
}

impl Sim {
    /// The nodes `a`, `b`, … without labels, and the ReplicaSet `rs`.
    pub(super) fn new(nodes: &[&str], workload: WorkloadFacts) -> Self {
        let mut view = view(vec![workload], vec![]);
        view.apply_service(service("{}"));
        for name in nodes {
            view.apply_node(node(name, &[]));
        }
        let config = PlanConfig {
            node_loss_grace: SignedDuration::from_secs(10),
            ..PlanConfig::default()
        };
        Self {
            view,
            memory: Memory::default(),
            now: now(),
            config,
            version: 1,
            plans: Vec::new(),
        }
    }

    /// A ReplicaSet of `replicas` whose pods wait behind their gates.
    pub(super) fn waiting(nodes: &[&str], replicas: u32, annotations: &[(&str, &str)]) -> Self {
        let mut sim = Self::new(nodes, set("rs", replicas).annotated(annotations));
        for ordinal in 0..replicas {
            sim.pod(pod(ordinal, "rs").annotated(annotations).waiting());
        }
        sim
    }

    /// The same, placed, bound and running.
    pub(super) fn running(nodes: &[&str], replicas: u32, annotations: &[(&str, &str)]) -> Self {
        let mut sim = Self::waiting(nodes, replicas, annotations);
        sim.settle();
        sim.bind_all();
        sim.settle();
        sim
    }

    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    pub(super) fn pod(&mut self, mut pod: PodFacts) {
        pod.resource_version = self.next();
        self.view.apply_pod(key(), pod);
    }

    pub(super) fn change_pod(&mut self, number: u32, change: impl FnOnce(&mut PodFacts)) {
        let mut pod = self.view.flock(&key()).holder(ordinal(number)).unwrap().clone();
        change(&mut pod);
        self.pod(pod);
    }

    /// Ends the pod of an ordinal, and has its owner make another one, gated as admission would.
    pub(super) fn restart(&mut self, number: u32) {
        let old = self.view.flock(&key()).holder(ordinal(number)).unwrap().clone();
        self.view.delete_pod(&key(), &old.name, &old.uid);
        let uid = format!("{}+", old.uid);
        let gated = self.view.place_of(&key(), ordinal(number)).is_none();
        let new = PodFacts {
            uid,
            node: None,
            gated,
            ready_since: None,
            terminating: false,
            unschedulable: None,
            ..old
        };
        self.pod(new);
    }

    /// What the scheduler does with the pods that it sees: binds them to a node with their label. Returns where to.
    pub(super) fn bind_all(&mut self) -> Vec<(u32, NodeFacts)> {
        let mut bound = Vec::new();
        let pods: Vec<_> = self.view.flock(&key()).members().into_values().cloned().collect();
        for mut pod in pods.into_iter().filter(|pod| !pod.gated && pod.node.is_none()) {
            let nodes = self.view.places(&key()).get(&pod.ordinal.unwrap());
            let Some(node) = nodes.and_then(|nodes| nodes.first()) else {
                continue;
            };
            bound.push((pod.ordinal.unwrap().get(), self.view.nodes()[node].clone()));
            pod.node = Some(node.to_string());
            pod.unschedulable = None;
            pod.ready_since = Some(self.now);
            self.pod(pod);
        }
        bound
    }

    pub(super) fn change_node(&mut self, name: &str, change: impl FnOnce(&mut NodeFacts)) {
        let mut node = self.view.nodes()[name].clone();
        change(&mut node);
        node.resource_version = self.next();
        self.view.apply_node(node);
    }

    /// Somebody's `kubectl label node`.
    pub(super) fn label(&mut self, name: &str, number: u32) {
        self.change_node(name, |node| {
            node.members.entry(key()).or_default().insert(ordinal(number));
        });
    }

    pub(super) fn unlabel(&mut self, name: &str, number: u32) {
        self.change_node(name, |node| {
            node.members.entry(key()).or_default().remove(&ordinal(number));
            node.members.retain(|_, ordinals| !ordinals.is_empty());
        });
    }

    pub(super) fn delete_node(&mut self, name: &str) {
        self.view.delete_node(name);
    }

    /// The node registers (again), on this machine, under a new uid and without member labels.
    pub(super) fn register(&mut self, name: &str, machine: &str) {
        let mut new = node(name, &[]);
        new.uid = format!("uid-{}", self.next());
        new.machine_id = Some(machine.into());
        new.resource_version = self.next();
        self.view.apply_node(new);
    }

    /// Somebody's edit of the annotation.
    pub(super) fn annotate(&mut self, text: Option<&str>) {
        let mut service = self.service().clone();
        service.resource_version = self.next();
        service.places = text.map(Into::into);
        service.record = text.and_then(|text| Record::parse(text).ok()).map(Into::into);
        self.view.apply_service(service);
    }

    pub(super) fn service(&self) -> &ServiceFacts {
        self.view
            .record_service(&key())
            .or_else(|| self.view.service("default", "db"))
            .unwrap()
    }

    pub(super) fn record(&self) -> Record {
        self.service().record.as_deref().cloned().unwrap_or_default()
    }

    /// The node with the label of an ordinal.
    pub(super) fn place(&self, number: u32) -> Option<String> {
        let nodes = self.view.places(&key()).get(&ordinal(number))?;
        assert_eq!(nodes.len(), 1, "{nodes:?}");
        nodes.first().map(ToString::to_string)
    }

    /// The nodes of the first ordinals.
    pub(super) fn places(&self, count: u32) -> Vec<Option<String>> {
        (0..count).map(|number| self.place(number)).collect()
    }

    pub(super) fn is_gated(&self, number: u32) -> bool {
        self.view.flock(&key()).holder(ordinal(number)).unwrap().gated
    }

    pub(super) fn look(&self) -> Plan {
        plan(&Observed {
            key: &key(),
            view: &self.view,
            budgets: &HashMap::new(),
            memory: &self.memory,
            config: &self.config,
            now: self.now,
        })
    }

    /// Looks and does what the plan says, but for what comes after the first `limit` actions.
    pub(super) fn step(&mut self, limit: usize) -> usize {
        let plan = self.look();
        self.memory = plan.memory.clone();
        let mut done = 0;
        for action in plan.actions.iter().take(limit) {
            if !self.act(action) {
                break;
            }
            done += 1;
        }
        self.plans.push(plan);
        done
    }

    /// Goes on until nothing is left to do; returns what was done.
    pub(super) fn settle(&mut self) -> Vec<Action> {
        let mut all = Vec::new();
        for _ in 0..30 {
            self.step(usize::MAX);
            let actions = &self.plans.last().unwrap().actions;
            if actions.is_empty() {
                return all;
            }
            all.extend(actions.iter().cloned());
        }
        panic!("never settles: {all:#?}");
    }

    /// Lets time pass, second by second, as looks are due.
    pub(super) fn pass(&mut self, seconds: i64) -> Vec<Action> {
        let mut all = self.settle();
        let end = self.now + SignedDuration::from_secs(seconds);
        while let Some(again) = self.look().again.filter(|again| *again <= end) {
            self.now = again.max(self.now + SignedDuration::from_millis(1));
            all.extend(self.settle());
        }
        self.now = end;
        all.extend(self.settle());
        all
    }

    /// The messages of the notes of the last look with this reason.
    pub(super) fn notes(&self, reason: &str) -> Vec<String> {
        self.look()
            .notes
            .into_iter()
            .filter(|note| note.reason == reason)
            .map(|note| note.message)
            .collect()
    }

    /// The members that wait for this reason now.
    pub(super) fn waiting_for(&self, reason: &str) -> Vec<u32> {
        let plan = self.look();
        let waiting = plan.waiting.get(reason).into_iter().flatten();
        waiting.map(|ordinal| ordinal.get()).collect()
    }

    /// Whether a plan that was carried out told this.
    pub(super) fn told(&self, reason: &str, text: &str) -> bool {
        let notes = self.plans.iter().flat_map(|plan| &plan.notes);
        notes
            .into_iter()
            .any(|note| note.reason == reason && note.message.contains(text))
    }

    /// Whether the action could be carried out.
    fn act(&mut self, action: &Action) -> bool {
        match action {
            Action::Label { node, uid, ordinal } => {
                assert_eq!(self.view.nodes()[&**node].uid, *uid);
                self.label(node, ordinal.get());
            }
            Action::Unlabel { node, uid, ordinal } => {
                assert_eq!(self.view.nodes()[&**node].uid, *uid);
                self.unlabel(node, ordinal.get());
            }
            Action::WriteRecord {
                service,
                version,
                record,
            } => {
                let mut facts = self.view.service("default", service).unwrap().clone();
                assert_eq!(facts.resource_version, *version);
                facts.resource_version = self.next();
                facts.record = Record::parse(record).ok().map(Into::into);
                facts.places = Some(record.as_str().into());
                self.view.apply_service(facts);
                self.memory.record = Record::parse(record).ok();
            }
            Action::CreateService { name, record, .. } => {
                let mut facts = service(record.as_deref().unwrap_or("{}"));
                facts.name.clone_from(name);
                facts.uid = self.next();
                facts.resource_version = self.next();
                if record.is_none() {
                    (facts.places, facts.record) = (None, None);
                }
                self.memory.record = facts.record.as_deref().cloned();
                self.view.apply_service(facts);
            }
            Action::DeleteService { name, uid } => {
                self.view.delete_service("default", name, uid);
            }
            Action::OpenGate { pod, .. } => {
                let ordinal = key().ordinal_of(pod).unwrap();
                self.change_pod(ordinal.get(), |pod| pod.gated = false);
            }
            Action::ConfirmGone { .. } => {}
            other => panic!("not of places: {other:?}"),
        }
        true
    }
}
