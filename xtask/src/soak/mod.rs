//! `cargo xtask soak`: the installation of `deploy/` on real kubelets, under a steady stream of pod creations, while
//! everything happens to it that happens to such a program in a year.

mod disturb;
mod report;
mod stream;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
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
    #[arg(long, default_value_t = 40)]
    rate: u32,
    /// Begins the same sequence of disturbances again.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The version of Kubernetes.
    #[arg(long, default_value = DEFAULT_KUBERNETES)]
    kubernetes: String,
}

/// Runs it; fails where an admission failed that nothing excuses, or an ordinal was given twice.
pub(crate) fn run(soak: &Soak) -> Result<()> {
    let image = install::flock_image(false)?;
    let options = Options {
        kubernetes: soak.kubernetes.clone(),
        ..Options::real(2)
    };
    let lab = Arc::new(Lab::start(options.named("soak"))?);
    lab.import_image(&image)?;
    install::install(&lab)?;
    say("Two replicas are Ready; the stream begins");
    let report = Arc::new(Report::default());
    let over = Arc::new(AtomicBool::new(false));
    let runtime = lab.runtime()?;
    let client = lab.block_on(lab.client())?;
    lab.apply("{apiVersion: v1, kind: Namespace, metadata: {name: soak}}")?;
    let streaming = runtime.spawn(stream::run(
        client.clone(),
        soak.rate,
        Arc::clone(&report),
        Arc::clone(&over),
    ));
    let begin = Instant::now();
    let mut disturber = Disturber::new(Arc::clone(&lab), soak.seed, Arc::clone(&report));
    let end = begin + Duration::from_secs(soak.seconds);
    let outcome = disturber.run(end);
    over.store(true, Relaxed);
    let duplicates = lab.block_on(streaming)?;
    drop(runtime);
    outcome?;
    say(&format!(
        "\nIn {}:\n{}",
        human(begin.elapsed()),
        report.text(duplicates)
    ));
    let account = "--as=system:serviceaccount:flock-system:flock";
    say("\nWhat Flock's account may do in a tenant's namespace:");
    say(&lab.kubectl(&["auth", "can-i", "--list", account, "-n", "default"])?);
    let failed = report.unexcused();
    if failed > 0 || duplicates > 0 {
        lab.keep_state();
        bail!("{failed} admissions failed without an excuse, {duplicates} ordinals were given twice");
    }
    Ok(())
}
