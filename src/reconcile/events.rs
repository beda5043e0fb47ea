//! Events: one for each thing that a user must know, and not again while it stays the same.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::time::Instant;
use tracing::warn;

use crate::identity::FlockKey;

use super::plan::{Note, Subject};

/// A wait that goes on is told again after this long: events live for an hour by default.
const AGAIN: Duration = Duration::from_secs(30 * 60);
/// So many notes are remembered before those that ran out are dropped.
const REMEMBERED: usize = 10_000;

/// Tells users.
pub(super) struct Events {
    recorder: Recorder,
    told: HashMap<(FlockKey, Subject, &'static str), (String, Instant)>,
}

impl Events {
    pub(super) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter { controller: "flock.dev/reconciler".into(), instance: Some(identity.into()) };
        Self { recorder: Recorder::new(client, reporter), told: HashMap::new() }
    }

    /// Tells what has not been told yet.
    pub(super) async fn tell(&mut self, key: &FlockKey, notes: &[Note]) {
        if self.told.len() > REMEMBERED {
            self.told.retain(|_, (_, at)| at.elapsed() < AGAIN);
        }
        for note in notes {
            let id = (key.clone(), note.subject.clone(), note.reason);
            let known = self.told.get(&id).is_some_and(|(said, at)| *said == note.message && at.elapsed() < AGAIN);
            if known {
                continue;
            }
            self.told.insert(id, (note.message.clone(), Instant::now()));
            let event = Event {
                type_: if note.warning { EventType::Warning } else { EventType::Normal },
                reason: note.reason.into(),
                note: Some(shorten(&note.message)),
                action: note.reason.into(),
                secondary: None,
            };
            if let Err(error) = self.recorder.publish(&event, &reference(key, &note.subject)).await {
                warn!(%error, flock = %key, reason = note.reason, note = note.message, "event not published");
            }
        }
    }
}

/// An event's note has at most 1024 bytes (`k8s.io/api/events/v1`).
fn shorten(message: &str) -> String {
    const MAX: usize = 1024;
    if message.len() <= MAX {
        return message.into();
    }
    let end = (0..=MAX - 3).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &message[..end])
}

fn reference(key: &FlockKey, subject: &Subject) -> ObjectReference {
    let (api_version, kind, name, uid, namespaced) = match subject {
        Subject::Pod(name, uid) => ("v1", "Pod", name, uid, true),
        Subject::Workload(kind, name, uid) => (kind.api_version(), kind.name(), name, uid, true),
        Subject::Service(name, uid) => ("v1", "Service", name, uid, true),
        Subject::Node(name, uid) => ("v1", "Node", name, uid, false),
    };
    ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some(kind.into()),
        name: Some(name.clone()),
        uid: Some(uid.clone()),
        namespace: namespaced.then(|| key.namespace.to_string()),
        ..ObjectReference::default()
    }
}
