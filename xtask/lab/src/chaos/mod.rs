//! A randomized test: hundreds of operations on workloads of every kind, on nodes, on the control plane and on
//! Flock's own replicas, while a recording judges every event. Rounds end with the cluster left alone, which must
//! then come to just the pods that are wanted.
//!
//! The operations follow from the seed; when they meet the cluster does not, so a failing seed may need more than
//! one run to fail again.

mod model;
mod operation;
mod shaker;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;

use crate::{Flock, Lab, Options};
use operation::Operation;
use shaker::Shaker;

/// How many fake nodes there are.
const NODES: usize = 9;
/// How many operations there are between two times of rest.
const ROUND: usize = 40;
/// How far behind the watches of the second replica are, in milliseconds.
const LAG: u64 = 700;

/// How to shake.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// For how long, not counting the last rest.
    pub time: Duration,
    /// What the operations follow from.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Operations carried out.
    pub operations: usize,
    /// Times of rest, each ended with just the wanted pods.
    pub rounds: usize,
    /// Pods created.
    pub pods: usize,
    /// Creations refused since the name was taken.
    pub clashes: usize,
    /// The longest time until just the wanted pods ran.
    pub slowest: Duration,
    /// What was broken; with the round's operations.
    pub violations: Vec<String>,
    /// The operations of the round that broke something.
    pub replay: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} operations in {} rounds, {} pods created, {} names taken (409), slowest convergence {:.1?}",
            self.operations, self.rounds, self.pods, self.clashes, self.slowest
        )?;
        write!(f, "{} violations", self.violations.len())?;
        for violation in &self.violations {
            write!(f, "\n  {violation}")?;
        }
        if !self.replay.is_empty() {
            write!(f, "\nthe round's operations until then:")?;
        }
        for operation in &self.replay {
            write!(f, "\n  {operation}")?;
        }
        Ok(())
    }
}

/// Shakes a cluster of its own with the Flock of `binary`, installed from the project at `root`; `say` hears of
/// the progress. It ends with the first violation.
pub fn run(root: &Path, binary: &Path, settings: Settings, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let options = Options {
        raised_limits: true,
        ..Options::fake(NODES)
    };
    let lab = Arc::new(Lab::start(Flock::options(options))?);
    lab.enter()?;
    let mut flock = Flock::install(&lab, root, binary, 2, &["--log-filter=info,flock=debug"])?;
    // The second replica sees everything late.
    flock.add_arg(1, &format!("--test-watch-delay={LAG}"));
    flock.stop(1)?;
    flock.start(1)?;
    flock.wait_ready(1)?;
    let mut shaker = Shaker::new(&lab, flock, NODES)?;
    let mut rng = Rng::with_seed(settings.seed);
    let mut report = Report::default();
    let begin = Instant::now();
    shaker.converge().context("before anything was done")?;
    while begin.elapsed() < settings.time && report.violations.is_empty() {
        round(&mut shaker, &mut rng, begin + settings.time, &mut report)?;
        if report.rounds % 5 == 1 {
            say(&format!("{:4.0} s: {report}", begin.elapsed().as_secs_f64()));
        }
    }
    if !report.violations.is_empty() {
        lab.keep_state();
        say(&format!("the lab's logs are kept: {}", lab.logs()?.display()));
    }
    Ok(report)
}

fn round(shaker: &mut Shaker, rng: &mut Rng, end: Instant, report: &mut Report) -> Result<()> {
    let mut done = Vec::new();
    let begin = Instant::now();
    for _ in 0..ROUND {
        if Instant::now() >= end {
            break;
        }
        let operation = Operation::next(rng, &shaker.workloads, NODES);
        done.push(format!("{:7.3} {operation}", begin.elapsed().as_secs_f64()));
        shaker
            .carry_out(&operation)
            .with_context(|| format!("{operation}"))?;
        report.operations += 1;
        report.violations = shaker.violations();
        if !report.violations.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(rng.u64(0..250)));
    }
    if report.violations.is_empty() {
        shaker.calm()?;
        done.push(format!("{:7.3} all is left alone", begin.elapsed().as_secs_f64()));
        match shaker.converge() {
            Ok(took) => report.slowest = report.slowest.max(took),
            Err(problem) => report.violations.push(format!("{problem:#}")),
        }
        report.violations.extend(shaker.violations());
    }
    report.rounds += 1;
    report.pods = shaker.pods();
    report.clashes = shaker.clashes()?;
    if report.violations.is_empty() {
        shaker.recording.forget();
    } else {
        report.replay = done;
        report
            .violations
            .push(format!("what the pods did:\n{}", shaker.recording.story()));
    }
    Ok(())
}
