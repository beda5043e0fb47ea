//! The shell around the judgement of workloads.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use tracing::{debug, info};

use crate::identity::keys;

use super::handler::{Admission, Pending, WATCH_LAG};
use super::json::Object;
use super::review::{Answer, Request, parse, render};
use super::workload::{Judgement, Known, RawWorkload, Subject, judge};

/// The kinds that are judged; the rules of the configuration name the same.
const KINDS: [&str; 7] = [
    "Deployment",
    "ReplicaSet",
    "ReplicationController",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
];

pub(super) async fn validate(State(admission): State<Arc<Admission>>, body: Bytes) -> Response {
    let request = match parse(&body) {
        Ok(request) => request,
        Err(problem) => {
            admission.metrics.judged("unreadable");
            return admission.unreadable(&problem);
        }
    };
    let pending = Pending::new(&admission, &request, || admission.metrics.judged("unanswered"));
    let judged = admission.judge(&request).await;
    pending.answered();
    let (verdict, answer, warnings) = match judged {
        Ok(None) => ("untouched", Answer::Allowed(Vec::new()), Vec::new()),
        Ok(Some(judgement)) => told(judgement),
        Err(error) => {
            let message = format!("the {} cannot be read: {error}", &*request.kind.kind);
            (
                "unreadable",
                Answer::refused(400, "BadRequest", &message),
                Vec::new(),
            )
        }
    };
    admission.metrics.judged(verdict);
    let (uid, namespace, name) = (&*request.uid, &*request.namespace, &*request.name);
    match &answer {
        Answer::Allowed(_) => debug!(uid, namespace, name, verdict, ?warnings, "workload judged"),
        Answer::Refused { message, .. } if verdict == "unreadable" => {
            admission.log_unreadable(Some(uid), message);
        }
        Answer::Refused { message, .. } => info!(uid, namespace, name, verdict, message, "workload denied"),
    }
    (
        [(header::CONTENT_TYPE, "application/json")],
        render(uid, &answer, &warnings),
    )
        .into_response()
}

/// The answer in words: all that is wrong at once, so that nobody has to apply five times.
fn told(judgement: Judgement) -> (&'static str, Answer, Vec<String>) {
    let Judgement { denials, warnings } = judgement;
    let Some(first) = denials.first() else {
        let verdict = if warnings.is_empty() { "fits" } else { "warned" };
        return (verdict, Answer::Allowed(Vec::new()), warnings);
    };
    let (code, reason) = first.status();
    let message = if denials.len() == 1 {
        first.to_string()
    } else {
        let numbered: Vec<_> = (1..)
            .zip(&denials)
            .map(|(number, fault)| format!("({number}) {fault}"))
            .collect();
        numbered.join("; ")
    };
    ("denied", Answer::refused(code, reason, &message), warnings)
}

impl Admission {
    async fn judge(&self, request: &Request<'_>) -> Result<Option<Judgement>, serde_json::Error> {
        let update = &*request.operation == "UPDATE";
        let applied = (update || &*request.operation == "CREATE") && request.sub_resource.is_empty();
        let kind = &*request.kind.kind;
        let Some(object) = request.object.filter(|_| applied && KINDS.contains(&kind)) else {
            return Ok(None);
        };
        let workload = match serde_json::from_str::<Object<RawWorkload<'_>>>(object.get()) {
            Ok(Object(workload)) => workload,
            // What is stored already is not held by what we cannot read of it.
            Err(_) if update => return Ok(None),
            Err(error) => return Err(error),
        };
        if workload
            .template()
            .is_none_or(|template| template.label(keys::NAME).is_none())
        {
            return Ok(None);
        }
        let old = request.old_object.filter(|_| update).and_then(readable);
        // The namespace of a workload is often applied in the same breath.
        let namespace = &*request.namespace;
        self.view
            .wait_for(WATCH_LAG, |view| view.namespace(namespace).is_some())
            .await;
        let view = self.view.read();
        let subject = Subject {
            kind,
            namespace,
            workload: &workload,
        };
        Ok(judge(
            subject,
            old.as_ref(),
            Known {
                view: &view,
                policy: &self.policy,
            },
        ))
    }
}

fn readable(raw: &RawValue) -> Option<RawWorkload<'_>> {
    serde_json::from_str(raw.get()).ok()
}
