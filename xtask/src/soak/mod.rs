//! `cargo xtask soak`: the installation of `deploy/` on real kubelets, under a steady stream of pod creations, while
//! everything happens to it that happens to such a program in a year.

mod disturb;
mod junk;
mod members;
mod replicas;
mod report;
mod stream;
mod whole;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use flock_lab::recording::Recording;
use flock_lab::{DEFAULT_KUBERNETES, Lab, Options, human};

use crate::{install, say};
use disturb::Disturber;
use report::Report;

/// How long, and how much.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// How long to disturb, in seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Creations a second.
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// Begins the same sequence of disturbances again.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Does nothing but this, such as `junk`; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Builds Flock with fewer optimisations, in less than half the time.
    #[arg(long)]
    quick: bool,
    /// The version of Kubernetes.
    #[arg(long, default_value = DEFAULT_KUBERNETES)]
    kubernetes: String,
}

/// Runs it; fails where an admission failed that nothing excuses, an ordinal was two pods, data was lost, or memory
/// was not bounded.
pub(crate) fn run(soak: &Soak) -> Result<()> {
    let image = install::flock_image(soak.quick)?;
    let options = Options {
        kubernetes: soak.kubernetes.clone(),
        ..Options::real(members::COUNT)
    };
    let lab = Arc::new(Lab::start(options.named("soak"))?);
    lab.import_image(&image)?;
    install::install(&lab)?;
    // A new leaf every 40 s, whatever else happens.
    lab.kubectl(&[
        "-n",
        "flock-system",
        "set",
        "env",
        "deployment/flock",
        "FLOCK_TEST_LEAF_LIFE=60",
    ])?;
    for namespace in [stream::NAMESPACE, members::NAMESPACE] {
        lab.kubectl(&["create", "namespace", namespace])?;
    }
    members::create(&lab)?;
    say("Two replicas and two members are Ready; the stream begins");
    let report = Arc::new(Report::default());
    let begin = Instant::now();
    let outcome = disturb(&lab, soak, &report);
    say(&format!(
        "\nIn {}, on Kubernetes {}:\n{}",
        human(begin.elapsed()),
        soak.kubernetes,
        report.text()
    ));
    let account = "--as=system:serviceaccount:flock-system:flock";
    say("What Flock's account may do in a tenant's namespace:");
    say(&lab.kubectl(&["auth", "can-i", "--list", account, "-n", stream::NAMESPACE])?);
    let faults = report.faults();
    if outcome.is_err() || !faults.is_empty() {
        lab.keep_state();
    }
    outcome?;
    if !faults.is_empty() {
        bail!("{} faults:\n{}", faults.len(), faults.join("\n"));
    }
    Ok(())
}

/// The stream, the members, the disturbances, and what came of them.
fn disturb(lab: &Arc<Lab>, soak: &Soak, report: &Arc<Report>) -> Result<()> {
    let runtime = lab.runtime()?;
    let client = lab.block_on(lab.client())?;
    let record = |namespace| Recording::start(runtime.handle(), client.clone(), namespace);
    let recordings = [
        (record(stream::NAMESPACE), true),
        (record(members::NAMESPACE), false),
    ];
    let over = Arc::new(AtomicBool::new(false));
    let streaming = runtime.spawn(stream::run(
        client.clone(),
        soak.rate,
        Arc::clone(report),
        Arc::clone(&over),
    ));
    let deleting = runtime.spawn(members::delete(
        client.clone(),
        Arc::clone(report),
        Arc::clone(&over),
    ));
    let end = Instant::now() + Duration::from_secs(soak.seconds);
    let outcome = Disturber::new(
        Arc::clone(lab),
        client.clone(),
        runtime.handle().clone(),
        soak.seed,
        Arc::clone(report),
    )
    .run(&soak.only, end);
    over.store(true, Relaxed);
    lab.block_on(streaming)?;
    let mut away = lab.block_on(deleting)?;
    outcome?;
    for (recording, may_move) in &recordings {
        for violation in recording.violations(*may_move) {
            report.violation(violation);
        }
    }
    for wrong in members::check_data(lab, members::COUNT + away.len())? {
        report.violation(wrong);
    }
    away.sort_unstable();
    report.fact(format!(
        "members deleted: {}; Ready again after {} (median), {} (slowest)",
        away.len(),
        away.get(away.len() / 2)
            .copied()
            .map_or_else(|| "-".into(), human),
        away.last().copied().map_or_else(|| "-".into(), human),
    ));
    Ok(())
}
