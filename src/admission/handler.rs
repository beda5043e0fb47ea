//! The shell around the decision: reads the body, looks things up where it must, answers, counts and logs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use jiff::Timestamp;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::identity::{FlockKey, Ordinal, keys, shortened};
use crate::metrics::AdmissionMetrics;
use crate::telemetry::Sparse;
use crate::view::{Flock, SharedView};

use super::choose::End;
use super::decide::{Context, Look, Policy, Verdict, decide, flock_key};
use super::json::Object;
use super::lookup::Lookup;
use super::pod::RawPod;
use super::refusal::Refusal;
use super::reservations::Reservations;
use super::review::{Answer, Request, ReviewError, parse, render};
use super::validate::validate;

/// How long a pod may wait for its own workload or namespace to come by the watch, which is on its way: the
/// controller that made the pod has just seen it by the same kind of watch. After that, one GET.
pub(super) const WATCH_LAG: Duration = Duration::from_millis(200);
/// How long a live look at a name may take: one that takes longer costs more than the 409 that it may save.
const LOOK_TIME: Duration = Duration::from_millis(500);
/// So many characters are told and logged of what is wrong with a body: the parser repeats what it does not like.
const LONGEST_PROBLEM: usize = 512;
/// How many live looks one request may need: its owner, its namespace, then names, one at a time.
const ROUNDS: usize = 8;

/// Why there is no verdict. The answer is HTTP 500, so that the failurePolicy decides.
#[derive(Debug, Error)]
pub enum AdmissionError {
    /// The watch caches are not complete yet.
    #[error("Flock has not listed {0} yet, so it cannot decide; it will in a moment, try again")]
    NotSynced(String),
    /// The API server did not answer a live look.
    #[error("Flock could not look up {what}: {source}")]
    Lookup {
        /// What was looked up.
        what: String,
        /// Why not.
        source: kube::Error,
    },
    /// The namespace is unknown.
    #[error("Flock does not know namespace {0} yet, so it cannot tell a member's directory; try again")]
    NoNamespace(String),
    /// Looking did not lead to a verdict.
    #[error("Flock could not find a free ordinal for a pod of {0} within {ROUNDS} looks; try again")]
    Undecided(FlockKey),
}

/// The state of both webhooks.
pub struct Admission {
    pub(super) view: SharedView,
    reservations: Arc<Mutex<Reservations>>,
    lookup: Lookup,
    pub(super) policy: Policy,
    leader: watch::Receiver<bool>,
    pub(super) metrics: AdmissionMetrics,
    /// Anybody who reaches the port can send what cannot be read, or go before the answer.
    unreadable: Sparse,
    unanswered: Sparse,
    undecided: Sparse,
}

/// What was decided, and everything that is said about it.
struct Decision {
    answer: Answer,
    warnings: Vec<String>,
    verdict: &'static str,
}

impl Admission {
    /// Decides from `view` and `reservations`, which the pods' watch settles.
    pub fn new(
        view: SharedView,
        reservations: Arc<Mutex<Reservations>>,
        lookup: Lookup,
        policy: Policy,
        leader: watch::Receiver<bool>,
        metrics: AdmissionMetrics,
    ) -> Self {
        Self {
            view,
            reservations,
            lookup,
            policy,
            leader,
            metrics,
            unreadable: Sparse::default(),
            unanswered: Sparse::default(),
            undecided: Sparse::default(),
        }
    }

    async fn decide(&self, request: &Request<'_>) -> Result<Decision, AdmissionError> {
        let untouched = || Decision {
            answer: Answer::Allowed(Vec::new()),
            warnings: Vec::new(),
            verdict: "untouched",
        };
        let pod_creation = &*request.operation == "CREATE"
            && &*request.resource.resource == "pods"
            && request.resource.group.is_empty()
            && request.sub_resource.is_empty();
        let Some(object) = request.object.filter(|_| pod_creation) else {
            return Ok(untouched());
        };
        let pod = match serde_json::from_str::<Object<RawPod<'_>>>(object.get()) {
            Ok(Object(pod)) => pod,
            Err(error) => {
                let message = format!("the pod cannot be read: {error}");
                let answer = Answer::refused(400, "BadRequest", &message);
                return Ok(Decision {
                    answer,
                    warnings: Vec::new(),
                    verdict: "unreadable",
                });
            }
        };
        let key = match flock_key(&request.namespace, &pod) {
            Ok(Some(key)) => key,
            Ok(None) => return Ok(untouched()),
            Err(refusal) => return Ok(refused(&refusal)),
        };
        let unsynced = self.view.unsynced();
        if !unsynced.is_empty() {
            let names: Vec<_> = unsynced.iter().map(|source| source.name()).collect();
            return Err(AdmissionError::NotSynced(names.join(", ")));
        }
        self.decide_member(request, &pod, &key).await
    }

    async fn decide_member(
        &self,
        request: &Request<'_>,
        pod: &RawPod<'_>,
        key: &FlockKey,
    ) -> Result<Decision, AdmissionError> {
        let mut live: Option<Flock> = None;
        let mut confirmed = false;
        let mut warnings = Vec::new();
        for _ in 0..ROUNDS {
            match self.verdict(request, pod, key, live.as_ref()) {
                Verdict::Untouched => {
                    return Ok(Decision {
                        answer: Answer::Allowed(Vec::new()),
                        warnings,
                        verdict: "untouched",
                    });
                }
                Verdict::Member { ops, .. } => {
                    return Ok(Decision {
                        answer: Answer::Allowed(ops),
                        warnings,
                        verdict: "member",
                    });
                }
                Verdict::Refused(refusal) if refusal.rests_on_caches() && !confirmed => {
                    // A workload without the label is not in a list by label; it is looked up anew by its name.
                    let looked = self.lookup.flock(key).await;
                    let what = format!("flock {key}");
                    live = Some(looked.map_err(|source| AdmissionError::Lookup { what, source })?);
                    confirmed = true;
                }
                Verdict::Refused(refusal) => {
                    return Ok(Decision {
                        warnings,
                        ..refused(&refusal)
                    });
                }
                Verdict::Look(Look::Owner { kind, name, uid }) => {
                    let known = |view: &crate::view::View| view.flock(key).workloads().contains_key(&uid);
                    if live.is_none() && self.view.wait_for(WATCH_LAG, known).await {
                        continue;
                    }
                    let found = self.lookup.owner(key, &kind, &name, &uid).await;
                    let what = format!("{kind} {name}");
                    let found = found.map_err(|source| AdmissionError::Lookup { what, source })?;
                    let Some(workload) = found else {
                        let namespace = key.namespace.clone();
                        return Ok(refused(&Refusal::NoOwner {
                            kind,
                            name,
                            uid,
                            namespace,
                        }));
                    };
                    if !workload.labelled && warnings.is_empty() {
                        warnings.push(format!(
                            "{kind} {name} itself lacks the label {}: {}; each of its pods costs a live look",
                            keys::NAME,
                            key.flock
                        ));
                    }
                    if !workload.labelled && *self.leader.borrow() {
                        // No watch brings it, and its pods may all be refused: the reconciler hears of it here.
                        self.view
                            .update(|view| view.apply_workload(key.clone(), workload.clone()));
                    }
                    let mut flock = live.take().unwrap_or_else(|| self.view.read().flock(key).clone());
                    flock.extend([], [workload]);
                    live = Some(flock);
                }
                Verdict::Look(Look::Name(ordinal)) => {
                    self.look(key, ordinal).await;
                }
                Verdict::Look(Look::Namespace) => {
                    let namespace = key.namespace.as_str();
                    if !self
                        .view
                        .wait_for(WATCH_LAG, |view| view.namespace(namespace).is_some())
                        .await
                    {
                        return Err(AdmissionError::NoNamespace(namespace.to_owned()));
                    }
                }
            }
        }
        Err(AdmissionError::Undecided(key.clone()))
    }

    /// Looks whether anyone has the name of this ordinal. That only saves a 409, so a member must not be refused
    /// where the API server calls us and we cannot call it: after its restart, kube-proxy may take half a minute to
    /// send pods there again.
    async fn look(&self, key: &FlockKey, ordinal: Ordinal) {
        let looked = tokio::time::timeout(LOOK_TIME, self.lookup.is_taken(key, ordinal)).await;
        let mut reservations = self.reservations.lock();
        match looked {
            Ok(Ok(taken)) => reservations.looked(key, ordinal, taken, Timestamp::now()),
            Ok(Err(error)) => {
                warn!(%key, %ordinal, %error, "the API server cannot be asked who has the name; it is offered unasked");
                reservations.not_answered(Timestamp::now());
            }
            Err(_) => {
                warn!(%key, %ordinal, "the API server does not answer who has the name; it is offered unasked");
                reservations.not_answered(Timestamp::now());
            }
        }
    }

    /// Decides, and reserves what was chosen under the same lock: two requests never get one ordinal.
    fn verdict(
        &self,
        request: &Request<'_>,
        pod: &RawPod<'_>,
        key: &FlockKey,
        live: Option<&Flock>,
    ) -> Verdict {
        let view = self.view.read();
        let mut reservations = self.reservations.lock();
        let now = Timestamp::now();
        let end = if *self.leader.borrow() {
            End::Low
        } else {
            End::High
        };
        let context = Context {
            view: &view,
            flock: live.unwrap_or_else(|| view.flock(key)),
            reservations: &reservations,
            policy: &self.policy,
            end,
            now,
        };
        let verdict = decide(&request.namespace, pod, &context);
        let for_real = request.dry_run != Some(true);
        if let Verdict::Member {
            ordinal,
            chosen: true,
            ..
        } = verdict
            && for_real
        {
            reservations.reserve(key, ordinal, now);
        }
        verdict
    }
}

fn refused(refusal: &Refusal) -> Decision {
    let (code, reason) = refusal.status();
    let answer = Answer::refused(code, reason, &refusal.to_string());
    Decision {
        answer,
        warnings: Vec::new(),
        verdict: refusal.reason(),
    }
}

/// The routes of both webhooks.
pub fn routes(admission: Arc<Admission>) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .with_state(admission)
}

async fn mutate(State(admission): State<Arc<Admission>>, body: Bytes) -> Response {
    let started = Instant::now();
    let request = match parse(&body) {
        Ok(request) => request,
        Err(problem) => {
            admission.metrics.answered("unreadable", started.elapsed());
            return admission.unreadable(&problem);
        }
    };
    let count = || admission.metrics.answered("unanswered", started.elapsed());
    let pending = Pending::new(&admission, &request, count);
    let decided = admission.decide(&request).await;
    pending.answered();
    match decided {
        Ok(decision) => {
            admission.metrics.answered(decision.verdict, started.elapsed());
            admission.log(&request, &decision);
            let body = render(&request.uid, &decision.answer, &decision.warnings);
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Err(problem) => {
            admission.metrics.answered("error", started.elapsed());
            if let Some(left_out) = admission.undecided.pass(Instant::now()) {
                error!(
                    uid = &*request.uid,
                    namespace = &*request.namespace,
                    error = format!("{problem:#}"),
                    left_out,
                    "undecided"
                );
            }
            (StatusCode::INTERNAL_SERVER_ERROR, problem.to_string()).into_response()
        }
    }
}

/// A review that is being decided. One that ends before it is answered is counted and logged like any other: its
/// caller's time was over, or the caller went, or this is a panic.
pub(super) struct Pending<'a, F: Fn()> {
    admission: &'a Admission,
    request: &'a Request<'a>,
    count: F,
    answered: bool,
}

impl<'a, F: Fn()> Pending<'a, F> {
    /// `count` counts it where it is not answered.
    pub(super) fn new(admission: &'a Admission, request: &'a Request<'a>, count: F) -> Self {
        Self {
            admission,
            request,
            count,
            answered: false,
        }
    }

    pub(super) fn answered(mut self) {
        self.answered = true;
    }
}

impl<F: Fn()> Drop for Pending<'_, F> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        (self.count)();
        if let Some(left_out) = self.admission.unanswered.pass(Instant::now()) {
            let (uid, namespace) = (&*self.request.uid, &*self.request.namespace);
            warn!(
                uid,
                namespace, left_out, "unanswered: the caller's time was over before the decision"
            );
        }
    }
}

impl Admission {
    pub(super) fn unreadable(&self, problem: &ReviewError) -> Response {
        let problem = shortened(&problem.to_string(), LONGEST_PROBLEM);
        self.log_unreadable(None, &problem);
        (StatusCode::BAD_REQUEST, problem).into_response()
    }

    /// A body that is no review has no uid either.
    pub(super) fn log_unreadable(&self, uid: Option<&str>, problem: &dyn std::fmt::Display) {
        if let Some(left_out) = self.unreadable.pass(Instant::now()) {
            warn!(uid, error = %problem, left_out, "unreadable review");
        }
    }

    fn log(&self, request: &Request<'_>, decision: &Decision) {
        let (uid, namespace, verdict) = (&*request.uid, &*request.namespace, decision.verdict);
        let dry_run = request.dry_run == Some(true);
        match &decision.answer {
            Answer::Allowed(ops) if ops.is_empty() => debug!(uid, namespace, verdict, dry_run, "allowed"),
            Answer::Allowed(ops) => {
                let name = ops
                    .iter()
                    .find(|op| op.path() == "/metadata/name")
                    .and_then(|op| op.text());
                info!(
                    uid,
                    namespace,
                    verdict,
                    dry_run,
                    name,
                    operations = ops.len(),
                    "allowed"
                );
            }
            Answer::Refused { message, .. } if verdict == "unreadable" => {
                self.log_unreadable(Some(uid), message);
            }
            Answer::Refused { code, message, .. } => {
                info!(uid, namespace, verdict, dry_run, code, message, "refused");
            }
        }
    }
}
