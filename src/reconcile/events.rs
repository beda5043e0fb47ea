//! Events: one for each thing that a user must know, and not again while it stays the same.

use std::collections::{HashMap, HashSet};
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
/// A note that later looks did not make for so long is over: if it is made again, it is told again.
const OVER: Duration = Duration::from_secs(60);
/// Within [`OVER`], a wait is told in so many ways; others wait for later looks.
const BURST: usize = 5;
/// So many flocks are remembered before those of which nothing was told lately are dropped.
const REMEMBERED: usize = 10_000;

/// Tells users.
pub(super) struct Events {
    client: Client,
    reporter: Reporter,
    told: HashMap<FlockKey, HashMap<Note, Told>>,
}

/// When a note was told, and since when it is not made any more.
struct Told {
    told: Instant,
    gone: Option<Instant>,
}

impl Events {
    pub(super) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter {
            controller: "flock.dev/reconciler".into(),
            instance: Some(identity.into()),
        };
        Self {
            client,
            reporter,
            told: HashMap::new(),
        }
    }

    /// Tells what has not been told yet.
    pub(super) async fn tell(&mut self, key: &FlockKey, notes: &[Note]) {
        for note in self.news(key, notes, Instant::now()) {
            let event = Event {
                type_: if note.warning {
                    EventType::Warning
                } else {
                    EventType::Normal
                },
                reason: note.reason.into(),
                note: Some(shorten(&note.message)),
                action: note.reason.into(),
                secondary: None,
            };
            // One that is used again takes a second event of one reason for a repetition of the first, whatever it
            // says (`EventKey` in `kube_runtime::events`).
            let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
            if let Err(error) = recorder.publish(&event, &reference(key, &note.subject)).await {
                warn!(%error, flock = %key, reason = note.reason, note = note.message, "event not published");
            }
        }
    }

    fn news<'n>(&mut self, key: &FlockKey, notes: &'n [Note], now: Instant) -> Vec<&'n Note> {
        if self.told.len() > REMEMBERED {
            self.told
                .retain(|_, told| told.values().any(|told| now.duration_since(told.told) < AGAIN));
        }
        if notes.is_empty() && !self.told.contains_key(key) {
            return Vec::new();
        }
        let told = self.told.entry(key.clone()).or_default();
        let made: HashSet<_> = notes.iter().collect();
        told.retain(|note, told| {
            let gone = (!made.contains(note)).then(|| told.gone.unwrap_or(now));
            told.gone = gone;
            gone.is_none_or(|gone| now.duration_since(gone) < OVER)
        });
        let mut news = Vec::new();
        for note in notes {
            let known = told
                .get(note)
                .is_some_and(|known| now.duration_since(known.told) < AGAIN);
            let lately = || {
                let lately = told
                    .iter()
                    .filter(|(_, told)| now.duration_since(told.told) < OVER);
                lately
                    .map(|(other, _)| other)
                    .filter(|other| is_same_wait(other, note))
            };
            let other_numbers = lately().any(|other| shape(&other.message) == shape(&note.message));
            // What was done is told each time; a wait is told once, and not for each node that comes or goes.
            if note.rests_on.is_some() || (!known && !other_numbers && lately().count() < BURST) {
                told.insert(
                    note.clone(),
                    Told {
                        told: now,
                        gone: None,
                    },
                );
                news.push(note);
            }
        }
        if told.is_empty() {
            self.told.remove(key);
        }
        news
    }
}

/// Who waits, as a message begins: `no node for db-1: …`.
fn head(message: &str) -> &str {
    message.split_once(": ").map_or(message, |(head, _)| head)
}

fn is_same_wait(one: &Note, other: &Note) -> bool {
    one.subject == other.subject && one.reason == other.reason && head(&one.message) == head(&other.message)
}

/// A message without the numbers that follow its beginning: `0/3 nodes fit` and `0/4 nodes fit` are the same news.
fn shape(message: &str) -> String {
    let (head, tail) = message.split_at(head(message).len());
    let mut shape = head.to_owned();
    for letter in tail.chars() {
        let letter = if letter.is_ascii_digit() { '#' } else { letter };
        if letter != '#' || !shape.ends_with('#') {
            shape.push(letter);
        }
    }
    shape
}

/// An event's note has at most 1024 bytes (`k8s.io/api/events/v1`).
fn shorten(message: &str) -> String {
    const MAX: usize = 1024;
    if message.len() <= MAX {
        return message.into();
    }
    let end = (0..=MAX - 3)
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or(0);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::fixtures::key;

    fn note(message: &str) -> Note {
        let subject = Subject::Pod("db-0".into(), "uid".into());
        Note {
            subject,
            reason: "NoPlace",
            warning: true,
            message: message.into(),
            rests_on: None,
        }
    }

    /// What is told of the notes of looks at these seconds.
    async fn told(looks: &[(u64, &[&str])]) -> Vec<(u64, String)> {
        // A client starts its queue, for which it needs a runtime.
        tokio::task::yield_now().await;
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let mut events = Events::new(client, "test");
        let begin = Instant::now();
        let mut all = Vec::new();
        for (second, messages) in looks {
            let notes: Vec<_> = messages.iter().map(|message| note(message)).collect();
            let news = events.news(&key(), &notes, begin + Duration::from_secs(*second));
            all.extend(news.into_iter().map(|note| (*second, note.message.clone())));
        }
        all
    }

    #[tokio::test]
    async fn two_waits_of_one_owner_are_told_once_each() {
        let both: &[&str] = &["a", "b"];
        assert_eq!(
            told(&[(0, both), (1, both), (2, both)]).await,
            [(0, "a".into()), (0, "b".into())]
        );
    }

    #[tokio::test]
    async fn a_wait_is_not_told_for_each_node_that_comes_and_yet_for_each_that_waits() {
        let sentences: Vec<_> = (0..1000)
            .map(|number| format!("no node for db-1: 0/{number} nodes fit"))
            .collect();
        let notes: Vec<[&str; 1]> = sentences.iter().map(|sentence| [sentence.as_str()]).collect();
        let mut looks: Vec<_> = (0..)
            .zip(&notes)
            .map(|(at, note)| (at / 100, &note[..]))
            .collect();
        looks.push((11, &["no node for db-2: 0/7 nodes fit"]));
        let told = told(&looks).await;
        assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 11]);
    }

    #[tokio::test]
    async fn a_sentence_that_changes_all_the_time_is_told_so_often_and_no_more() {
        let sentences: Vec<_> = (0..1000)
            .map(|number| format!("db-1: {}", "x".repeat(number)))
            .collect();
        let notes: Vec<[&str; 1]> = sentences.iter().map(|sentence| [sentence.as_str()]).collect();
        let looks: Vec<_> = (0..)
            .zip(&notes)
            .map(|(at, note)| (at / 100, &note[..]))
            .collect();
        assert_eq!(told(&looks).await.len(), BURST);
    }

    #[tokio::test]
    async fn a_wait_that_ended_and_began_again_is_told_again() {
        let looks: &[(u64, &[&str])] = &[
            (0, &["a"]),
            (1, &[]),
            (2, &["a"]),
            (3, &[]),
            (70, &[]),
            (71, &["a"]),
        ];
        assert_eq!(told(looks).await, [(0, "a".into()), (71, "a".into())]);
    }

    #[tokio::test]
    async fn a_wait_that_goes_on_is_told_again_before_its_event_expires() {
        let looks: &[(u64, &[&str])] = &[(0, &["a"]), (1700, &["a"]), (1800, &["a"])];
        assert_eq!(told(looks).await, [(0, "a".into()), (1800, "a".into())]);
    }
}
