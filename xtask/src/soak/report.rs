//! What the soak has seen.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long after a replica was killed its calls may fail: until its readiness is found out (period 2 s, twice) and
/// every proxy knows. What is in flight fails at once; what is sent to a dead address until then is refused.
const EXCUSED: Duration = Duration::from_secs(8);

/// One admission that failed.
#[derive(Debug)]
struct Failure {
    at: Instant,
    message: String,
}

/// The counters, shared by the stream and the disturber.
#[derive(Debug, Default)]
pub(crate) struct Report {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    latencies: Vec<Duration>,
    real: u64,
    away: u64,
    clashes: u64,
    failures: Vec<Failure>,
    kills: Vec<Instant>,
    disturbances: BTreeMap<&'static str, u64>,
    memory: Vec<String>,
}

impl Report {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A creation was admitted.
    pub(crate) fn admitted(&self, took: Duration, real: bool) {
        self.with(|inner| {
            inner.latencies.push(took);
            inner.real += u64::from(real);
        });
    }

    /// The API server itself was away.
    pub(crate) fn away(&self) {
        self.with(|inner| inner.away += 1);
    }

    /// A name was taken.
    pub(crate) fn clashed(&self) {
        self.with(|inner| inner.clashes += 1);
    }

    /// An admission failed.
    pub(crate) fn failed(&self, message: String) {
        self.with(|inner| {
            inner.failures.push(Failure {
                at: Instant::now(),
                message,
            });
        });
    }

    /// Something was done to the installation; `kill`: by SIGKILL.
    pub(crate) fn disturbed(&self, what: &'static str, kill: bool) {
        self.with(|inner| {
            *inner.disturbances.entry(what).or_default() += 1;
            if kill {
                inner.kills.push(Instant::now());
            }
        });
    }

    /// How much memory the replicas have, at some time.
    pub(crate) fn memory(&self, line: String) {
        self.with(|inner| inner.memory.push(line));
    }

    /// How many failures no SIGKILL excuses.
    pub(crate) fn unexcused(&self) -> usize {
        self.with(|inner| {
            let excused = |failure: &Failure| {
                inner
                    .kills
                    .iter()
                    .any(|kill| failure.at >= *kill && failure.at - *kill < EXCUSED)
            };
            inner.failures.iter().filter(|failure| !excused(failure)).count()
        })
    }

    /// All of it.
    pub(crate) fn text(&self, duplicates: u64) -> String {
        let unexcused = self.unexcused();
        self.with(|inner| {
            inner.latencies.sort_unstable();
            let at = |share: usize| {
                let index =
                    (inner.latencies.len() * share / 1000).min(inner.latencies.len().saturating_sub(1));
                inner
                    .latencies
                    .get(index)
                    .map_or(0.0, |took| took.as_secs_f64() * 1000.0)
            };
            let mut text = String::new();
            let admissions = inner.latencies.len();
            let _ = writeln!(text, "admissions: {admissions}, of them stored: {}", inner.real);
            let _ = writeln!(
                text,
                "failures: {unexcused}; after a SIGKILL: {}",
                inner.failures.len() - unexcused
            );
            let _ = writeln!(
                text,
                "duplicate ordinals: {duplicates}; names that were taken (409): {}",
                inner.clashes
            );
            let _ = writeln!(text, "calls that met no API server: {}", inner.away);
            let _ = writeln!(
                text,
                "whole create calls, ms: p50 {:.1}, p99 {:.1}",
                at(500),
                at(990)
            );
            let done: Vec<_> = inner
                .disturbances
                .iter()
                .map(|(what, count)| format!("{what} {count}"))
                .collect();
            let _ = writeln!(text, "disturbances: {}", done.join(", "));
            for line in &inner.memory {
                let _ = writeln!(text, "memory: {line}");
            }
            for failure in inner.failures.iter().take(5) {
                let _ = writeln!(text, "for example: {}", failure.message);
            }
            text
        })
    }
}
