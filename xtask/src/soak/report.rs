//! What the soak has seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of memory in the report, whatever the time.
const LINES: usize = 30;
/// The most memory that a replica may ever have, in KiB: the limit of `deploy/`.
const MEMORY: u64 = 128 * 1024;
/// After this time the API server gives a call up: `timeoutSeconds` of `webhook-config/`.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Something that was done to the installation.
#[derive(Debug)]
struct Disturbance {
    what: &'static str,
    at: Instant,
    /// Calls that begin until so long afterwards may fail.
    excuse: Duration,
}

/// One admission that failed.
#[derive(Debug)]
struct Failure {
    begun: Instant,
    ended: Instant,
    message: String,
}

/// The counters, shared by the stream and the disturber.
#[derive(Debug, Default)]
pub(crate) struct Report {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    quiet: Vec<Duration>,
    under_junk: Vec<Duration>,
    junk: bool,
    stored: u64,
    away: u64,
    clashes: u64,
    failures: Vec<Failure>,
    disturbances: Vec<Disturbance>,
    leaves: BTreeSet<Vec<u8>>,
    memory: Vec<String>,
    most_memory: u64,
    facts: Vec<String>,
    violations: Vec<String>,
}

impl Inner {
    /// What was done last before the call ended.
    fn blamed(&self, failure: &Failure) -> Option<&Disturbance> {
        let mut before = self.disturbances.iter().rev();
        before.find(|disturbance| disturbance.at <= failure.ended)
    }

    fn excused(&self, failure: &Failure) -> bool {
        self.disturbances.iter().any(|disturbance| {
            disturbance.at <= failure.ended
                && failure.begun <= disturbance.at + disturbance.excuse
                && !disturbance.excuse.is_zero()
        })
    }
}

impl Report {
    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A creation was admitted.
    pub(crate) fn admitted(&self, took: Duration, stored: bool) {
        self.with(|inner| {
            let latencies = if inner.junk {
                &mut inner.under_junk
            } else {
                &mut inner.quiet
            };
            latencies.push(took);
            inner.stored += u64::from(stored);
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

    /// An admission that began then has failed now.
    pub(crate) fn failed(&self, begun: Instant, message: String) {
        let ended = Instant::now();
        self.with(|inner| {
            inner.failures.push(Failure {
                begun,
                ended,
                message,
            });
        });
    }

    /// Something is about to be done; calls that begin until `excuse` later may fail.
    pub(crate) fn disturbed(&self, what: &'static str, excuse: Duration) {
        let at = Instant::now();
        self.with(|inner| inner.disturbances.push(Disturbance { what, at, excuse }));
    }

    /// Junk is sent from now on, or no longer.
    pub(crate) fn junk(&self, sent: bool) {
        self.with(|inner| inner.junk = sent);
    }

    /// A replica shows this certificate.
    pub(crate) fn leaf(&self, certificate: Vec<u8>) {
        self.with(|inner| inner.leaves.insert(certificate));
    }

    /// How much memory the replicas have at some time, in words, and the most that one of them ever had, in KiB.
    pub(crate) fn memory(&self, line: String, most: u64) {
        self.with(|inner| {
            inner.memory.push(line);
            inner.most_memory = inner.most_memory.max(most);
        });
    }

    /// A line for the report.
    pub(crate) fn fact(&self, line: String) {
        self.with(|inner| inner.facts.push(line));
    }

    /// Something happened that must not.
    pub(crate) fn violation(&self, line: String) {
        self.with(|inner| inner.violations.push(line));
    }

    /// What must not be, one sentence each; none, if all is well.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.with(|inner| {
            let mut faults = inner.violations.clone();
            faults.extend(unexcused(inner));
            if inner.most_memory >= MEMORY {
                faults.push(format!(
                    "a replica took {} KiB of memory, its limit is {MEMORY}",
                    inner.most_memory
                ));
            }
            let slow = quantile(&mut inner.under_junk, 990);
            if slow >= TIMEOUT {
                faults.push(format!("under junk the p99 of creations was {slow:?}"));
            }
            for (count, what) in [
                (inner.quiet.len(), "without junk"),
                (inner.disturbances.len(), "disturbances"),
            ] {
                if count == 0 {
                    faults.push(format!("nothing was measured: {what}"));
                }
            }
            faults
        })
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        self.with(|inner| {
            let mut text = String::new();
            let admissions = inner.quiet.len() + inner.under_junk.len();
            let excused = inner
                .failures
                .iter()
                .filter(|failure| inner.excused(failure))
                .count();
            let mut line = |line: String| {
                let _ = writeln!(text, "{line}");
            };
            line(format!(
                "admissions: {admissions}, of them stored: {}",
                inner.stored
            ));
            line(format!(
                "failures: {}; excused by a SIGKILL, a SIGSTOP or an emptied caBundle: {excused}",
                inner.failures.len() - excused
            ));
            line(format!(
                "violations (two pods of one ordinal, wrong names, moved members): {}",
                inner.violations.len()
            ));
            line(format!(
                "names that were taken (409): {}; calls that met no API server: {}",
                inner.clashes, inner.away
            ));
            line(latency("create calls", &mut inner.quiet));
            line(latency("create calls under junk", &mut inner.under_junk));
            line(format!("certificates shown: {}", inner.leaves.len()));
            for fact in &inner.facts {
                line(fact.clone());
            }
            for (what, (count, failed, last)) in by_kind(inner) {
                let failed = match last {
                    Some(last) => format!(
                        ", {failed} calls failed, the last of them begun {:.2} s after",
                        last.as_secs_f64()
                    ),
                    None => String::new(),
                };
                line(format!("{what}: {count}{failed}"));
            }
            line(format!("most memory of a replica: {} KiB", inner.most_memory));
            let step = inner.memory.len().div_ceil(LINES).max(1);
            for memory in inner.memory.iter().step_by(step) {
                line(format!("memory, {memory}"));
            }
            text
        })
    }
}

/// The failures that nothing excuses: one line for those with the same words after the same disturbance.
fn unexcused(inner: &Inner) -> Vec<String> {
    let mut groups: BTreeMap<_, (usize, Duration, Duration)> = BTreeMap::new();
    for failure in inner.failures.iter().filter(|failure| !inner.excused(failure)) {
        let blamed = inner.blamed(failure);
        let what = blamed.map_or("no disturbance", |blamed| blamed.what);
        let after = blamed.map(|blamed| failure.begun.saturating_duration_since(blamed.at));
        // Addresses and ports differ from call to call.
        let words: String = failure.message.chars().filter(|c| !c.is_ascii_digit()).collect();
        let after = after.unwrap_or_default();
        let group = groups.entry((what, words)).or_insert((0, after, after));
        *group = (group.0 + 1, group.1.min(after), group.2.max(after));
    }
    let line = |((what, words), (count, first, last)): ((&str, String), (usize, Duration, Duration))| {
        let (first, last) = (first.as_secs_f64(), last.as_secs_f64());
        format!("{count} admissions failed that began {first:.1} to {last:.1} s after {what}: {words}")
    };
    groups.into_iter().map(line).collect()
}

/// Of every kind of disturbance: how often, how many calls failed after it, and how long after it the last of these
/// began.
fn by_kind(inner: &Inner) -> BTreeMap<&'static str, (usize, usize, Option<Duration>)> {
    let mut kinds: BTreeMap<_, (usize, usize, Option<Duration>)> = BTreeMap::new();
    for disturbance in &inner.disturbances {
        kinds.entry(disturbance.what).or_default().0 += 1;
    }
    for failure in &inner.failures {
        if let Some(blamed) = inner.blamed(failure) {
            let entry = kinds.entry(blamed.what).or_default();
            let after = failure.begun.saturating_duration_since(blamed.at);
            entry.1 += 1;
            entry.2 = entry.2.max(Some(after));
        }
    }
    kinds
}

/// The value below which so many of a thousand are.
fn quantile(values: &mut [Duration], share: usize) -> Duration {
    values.sort_unstable();
    let index = (values.len() * share / 1000).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or_default()
}

fn latency(what: &str, values: &mut [Duration]) -> String {
    let mut at = |share| quantile(values, share).as_secs_f64() * 1000.0;
    let (half, most, all) = (at(500), at(990), at(1000));
    format!(
        "{what}, ms: p50 {half:.1}, p99 {most:.1}, slowest {all:.1}, of {}",
        values.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_excused_by_a_kill_that_was_before_its_end_and_by_nothing_else() {
        let report = Report::default();
        report.admitted(Duration::from_millis(1), false);
        let begun = Instant::now();
        report.disturbed("replicas killed", Duration::from_secs(2));
        report.failed(begun, "in flight".into());
        assert_eq!(report.faults(), Vec::<String>::new());
        for port in [4711, 4712] {
            report.failed(begun + Duration::from_secs(9), format!("long after, port {port}"));
        }
        assert_eq!(
            report.faults().len(),
            1,
            "one line for both: {:?}",
            report.faults()
        );
        let report = Report::default();
        report.admitted(Duration::from_millis(1), false);
        report.disturbed("CA rotations", Duration::ZERO);
        report.failed(Instant::now(), "x509".into());
        assert!(
            report.faults()[0].contains("CA rotations"),
            "{:?}",
            report.faults()
        );
        assert!(
            report.text().contains("CA rotations: 1, 1 calls failed"),
            "{}",
            report.text()
        );
    }

    #[test]
    fn memory_over_the_limit_slow_calls_under_junk_and_violations_are_faults() {
        let report = Report::default();
        report.disturbed("junk", Duration::ZERO);
        report.admitted(Duration::from_millis(1), true);
        report.memory("2 s".into(), 200 * 1024);
        report.junk(true);
        report.admitted(Duration::from_secs(4), false);
        report.violation("ordinal 1 was two".into());
        assert_eq!(report.faults().len(), 3, "{:?}", report.faults());
    }

    #[test]
    fn a_soak_that_measured_nothing_is_at_fault() {
        assert_eq!(Report::default().faults().len(), 2);
    }
}
