//! Brings changes of the view to the plan, and the plan to `apply`, while this replica leads.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use crate::identity::{FlockKey, Ordinal, is_object_name};
use crate::leader::Lead;
use crate::metrics::ReconcileMetrics;
use crate::place::Record;
use crate::view::{Controller as Owner, SharedView, View, fetch_workload};

use super::apply::Apply;
use super::carry_out::{ANSWER, Outcome, carry_out};
use super::events::Events;
use super::own_image::OwnImage;
use super::plan::{Action, Memory, Note, Observed, Plan, PlanConfig, Subject, plan};
use super::storage::StorageLookup;
use super::waits::Waits;

/// The longest pause after failed writes for one flock; the first is 100 ms, and it doubles.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How soon an eviction that a budget forbade is tried again.
const BLOCKED: Duration = Duration::from_secs(5);
/// How long what was looked up of a Deployment or of a workload without the label is good.
const LOOKED_UP: Duration = Duration::from_secs(5);

/// The reconciler of one process.
pub struct Controller {
    client: Client,
    view: SharedView,
    apply: Apply,
    events: Events,
    metrics: ReconcileMetrics,
    config: PlanConfig,
    memories: HashMap<FlockKey, Memory>,
    failures: HashMap<FlockKey, u32>,
    /// When each flock is due again.
    due: BTreeMap<FlockKey, Instant>,
    deployments: HashMap<String, (u32, Instant)>,
    unlabelled: HashMap<String, Instant>,
    storage: StorageLookup,
    waits: Waits,
}

impl Controller {
    /// A reconciler that writes through `client` as `identity`. Its helpers run `image`.
    pub fn new(
        client: Client,
        view: SharedView,
        identity: &str,
        config: PlanConfig,
        image: OwnImage,
        metrics: ReconcileMetrics,
    ) -> Self {
        Self {
            apply: Apply::new(client.clone(), view.clone(), config.helper.clone(), image),
            events: Events::new(client.clone(), identity),
            storage: StorageLookup::new(client.clone()),
            waits: Waits::default(),
            client,
            view,
            metrics,
            config,
            memories: HashMap::new(),
            failures: HashMap::new(),
            due: BTreeMap::new(),
            deployments: HashMap::new(),
            unlabelled: HashMap::new(),
        }
    }

    /// Reconciles while this replica leads for certain, until nobody will ever say so again.
    pub async fn run(mut self, lead: impl Into<Lead>) {
        let mut lead = lead.into();
        self.view.wait_until_synced().await;
        self.metrics.synced(true);
        while lead.begins().await {
            self.metrics.leads(true);
            info!("leading: reconciling");
            self.lead(&mut lead).await;
            self.metrics.leads(false);
            info!("not leading any more");
            // Whoever led in between knows better; and what no watch brings is kept up to date by the leader only.
            self.view.update(View::forget_unlabelled);
            self.memories.clear();
            self.failures.clear();
            self.due.clear();
            self.waits.clear(&self.metrics);
        }
    }

    async fn lead(&mut self, lead: &mut Lead) {
        let (sender, mut concerned) = mpsc::unbounded_channel();
        self.view.listen(sender);
        loop {
            let next = self.due.values().min().copied();
            let timer = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = lead.ends() => return,
                key = concerned.recv() => {
                    let Some(key) = key else { return };
                    self.due.insert(key, Instant::now());
                    // What came in the meantime is one look, not many.
                    while let Ok(key) = concerned.try_recv() {
                        self.due.insert(key, Instant::now());
                    }
                }
                () = timer => {}
            }
            let now = Instant::now();
            let due: Vec<_> = self
                .due
                .iter()
                .filter(|(_, at)| **at <= now)
                .map(|(key, _)| key.clone())
                .collect();
            for key in due {
                self.due.remove(&key);
                if !self.reconcile(&key, lead).await {
                    return;
                }
            }
        }
    }

    /// False: it is not certain any more that this replica leads.
    async fn reconcile(&mut self, key: &FlockKey, lead: &Lead) -> bool {
        if !lead.is_certain() {
            return false;
        }
        self.metrics.ran();
        match timeout(ANSWER, self.look_up(key)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(flock = %key, %error, "lookup failed");
                self.metrics.failed();
                self.fail(key);
                return true;
            }
            Err(_) => {
                warn!(flock = %key, "lookup was not answered");
                self.metrics.failed();
                self.fail(key);
                return true;
            }
        }
        let mut plan = self.plan(key);
        if !plan.actions.is_empty() {
            debug!(flock = %key, actions = ?plan.actions, "planned");
        }
        let outcome = carry_out(&self.apply, &self.metrics, key, &plan.actions, lead).await;
        let Some(Outcome {
            done,
            blocked,
            failed,
        }) = outcome
        else {
            return false;
        };
        for index in &done {
            if let Some(
                Action::WriteRecord { record, .. }
                | Action::CreateService {
                    record: Some(record), ..
                },
            ) = plan.actions.get(*index)
            {
                plan.memory.record = Record::parse(record).ok();
            }
        }
        if failed {
            // What was planned as done may not be.
            let before = self.memories.get(key).cloned().unwrap_or_default();
            plan.memory.starved = before.starved;
            plan.memory.buried = before.buried;
        }
        let mut notes = plan.notes;
        notes.retain(|note| note.rests_on.is_none_or(|action| done.contains(&action)));
        for (pod, message) in &blocked {
            if let Some((ordinal, note)) = self.blocked(key, pod, message) {
                plan.waiting.entry(note.reason).or_default().insert(ordinal);
                notes.push(note);
            }
        }
        // What rests on no action is told here, and may be old as well.
        if !lead.is_certain() {
            return false;
        }
        self.waits.note(key, &plan.waiting, &self.metrics);
        self.metrics.places(self.view.read().place_count());
        if timeout(ANSWER, self.events.tell(key, &notes)).await.is_err() {
            warn!(flock = %key, "events were not taken");
        }
        self.finish(key, plan.memory, plan.again, failed, !blocked.is_empty());
        true
    }

    fn finish(
        &mut self,
        key: &FlockKey,
        memory: Memory,
        again: Option<Timestamp>,
        failed: bool,
        blocked: bool,
    ) {
        if memory == Memory::default() {
            self.memories.remove(key);
        } else {
            self.memories.insert(key.clone(), memory);
        }
        if failed {
            self.fail(key);
            return;
        }
        self.failures.remove(key);
        if blocked {
            self.look_again(key, BLOCKED);
        }
        if let Some(at) = again {
            let wait = at.duration_since(Timestamp::now());
            self.look_again(
                key,
                Duration::try_from(wait).unwrap_or(Duration::ZERO) + Duration::from_millis(1),
            );
        }
    }

    fn plan(&self, key: &FlockKey) -> Plan {
        let view = self.view.read();
        let memory = self.memories.get(key).cloned().unwrap_or_default();
        let budgets = self
            .deployments
            .iter()
            .map(|(uid, (budget, _))| (uid.clone(), *budget))
            .collect();
        plan(&Observed {
            key,
            view: &view,
            budgets: &budgets,
            memory: &memory,
            config: &self.config,
            now: Timestamp::now(),
        })
    }

    fn look_again(&mut self, key: &FlockKey, after: Duration) {
        let at = Instant::now() + after;
        let due = self.due.entry(key.clone()).or_insert(at);
        *due = at.min(*due);
    }

    fn fail(&mut self, key: &FlockKey) {
        let failures = self.failures.entry(key.clone()).or_default();
        let pause = Duration::from_millis(100) * 2_u32.pow((*failures).min(9));
        *failures += 1;
        self.look_again(key, pause.min(LONGEST_PAUSE));
    }

    /// Who waits since a budget keeps this pod, and what is told of it.
    fn blocked(&self, key: &FlockKey, pod: &str, message: &str) -> Option<(Ordinal, Note)> {
        let view = self.view.read();
        let pod = view.flock(key).pods().get(pod)?;
        let workload = view.flock(key).workloads().get(&pod.owner.as_ref()?.uid)?;
        let newest = view.flock(key).newest(workload);
        let note = Note {
            subject: Subject::Workload(newest.kind, newest.name.clone(), newest.uid.clone()),
            reason: "EvictionBlocked",
            warning: true,
            rests_on: None,
            message: format!(
                "{} waits for the ordinal of {}, which a PodDisruptionBudget keeps from being evicted ({message}); \
                 allow a disruption or delete the pod",
                newest.name, pod.name
            ),
        };
        Some((pod.ordinal?, note))
    }

    /// What the watches don't bring: the budgets of Deployments in a rollout, and workloads without the label.
    async fn look_up(&mut self, key: &FlockKey) -> Result<(), kube::Error> {
        self.storage.run(&self.view, key).await?;
        let (deployments, owners) = {
            let view = self.view.read();
            let flock = view.flock(key);
            let deployments: Vec<_> = flock
                .workloads()
                .values()
                .filter(|workload| {
                    let newest = flock.newest(workload);
                    newest.uid == workload.uid && flock.missing(newest) > 0
                })
                .filter_map(|workload| Some((workload.deployment.clone()?, workload.desired)))
                .collect();
            let of_pods = flock
                .pods()
                .values()
                .filter_map(|pod| pod.owner.clone())
                .filter(|owner| matches!(owner.kind.as_str(), "ReplicaSet" | "ReplicationController"))
                .filter(|owner| !flock.workloads().contains_key(&owner.uid));
            // Those without the label, whether they have pods or wait for their first.
            let known = flock
                .workloads()
                .values()
                .filter(|workload| !workload.labelled)
                .map(|workload| Owner {
                    api_version: workload.kind.api_version().into(),
                    kind: workload.kind.name().into(),
                    name: workload.name.clone(),
                    uid: workload.uid.clone(),
                });
            let owners: Vec<_> = of_pods
                .chain(known)
                .map(|owner| (owner.uid.clone(), owner))
                .collect::<BTreeMap<_, _>>()
                .into_values()
                .collect();
            (deployments, owners)
        };
        let fresh = |at: &Instant| at.elapsed() < LOOKED_UP;
        self.deployments
            .retain(|_, (_, at)| at.elapsed() < LOOKED_UP * 12);
        self.unlabelled.retain(|_, at| at.elapsed() < LOOKED_UP * 12);
        for (owner, desired) in deployments {
            if self.deployments.get(&owner.uid).is_some_and(|(_, at)| fresh(at)) {
                continue;
            }
            if !is_object_name(&owner.name) {
                continue;
            }
            let api = Api::<Deployment>::namespaced(self.client.clone(), key.namespace.as_str());
            if let Some(deployment) = api.get_opt(&owner.name).await? {
                self.deployments
                    .insert(owner.uid, (budget(&deployment, desired), Instant::now()));
            }
        }
        for owner in owners {
            if let Some(at) = self.unlabelled.get(&owner.uid).filter(|at| fresh(at)) {
                self.look_again(key, LOOKED_UP.saturating_sub(at.elapsed()));
                continue;
            }
            self.unlabelled.insert(owner.uid.clone(), Instant::now());
            let client = self.client.clone();
            let found = fetch_workload(client, key, &owner.kind, &owner.name, &owner.uid).await?;
            self.view.update(|view| match found {
                Some(workload) => view.apply_workload(key.clone(), workload),
                None => view.delete_workload(key, &owner.uid),
            });
            self.look_again(key, LOOKED_UP);
        }
        Ok(())
    }
}

/// `maxUnavailable` in pods, rounded down as the Deployment controller does
/// (`ResolveFenceposts` in `k8s.io/kubernetes/pkg/controller/deployment/util/deployment_util.go`).
fn budget(deployment: &Deployment, desired: u32) -> u32 {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    match rolling.and_then(|rolling| rolling.max_unavailable.as_ref()) {
        Some(IntOrString::Int(pods)) => u32::try_from(*pods).unwrap_or(0),
        Some(IntOrString::String(percent)) => {
            let percent = percent.trim_end_matches('%').parse::<u64>().unwrap_or(0);
            u32::try_from(u64::from(desired) * percent / 100).unwrap_or(u32::MAX)
        }
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;
    use tokio::sync::watch;

    use super::*;
    use crate::view::fixtures::{api_server, key, pod, view};

    #[tokio::test]
    async fn a_lookup_that_is_forbidden_counts_as_an_error() {
        let status =
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}"#;
        let client = api_server(StatusCode::FORBIDDEN, status);
        let mut registry = Registry::default();
        let metrics = ReconcileMetrics::register(&mut registry);
        let shared = SharedView::default();
        // Its owner is not in the view, so it is looked up.
        shared.update(|empty| {
            *empty = view(vec![], vec![pod(0, "rs")]);
            Vec::new()
        });
        let config = PlanConfig::default();
        let image = OwnImage::of_pod(client.clone(), "flock-system", "test", None, "flock:dev");
        let mut controller = Controller::new(client, shared, "test", config, image, metrics);
        let (_leader, leads) = watch::channel(true);
        assert!(controller.reconcile(&key(), &leads.into()).await);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(text.contains("reconcile_errors_total 1"), "{text}");
    }
}
