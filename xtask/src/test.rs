//! `cargo xtask test`: every test, on real clusters where one is needed.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use flock_lab::{Components, DEFAULT_KUBERNETES, KUBERNETES_VARIABLE, human};

use crate::image::{self, target_dir};
use crate::say;

/// Which tests.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The version of Kubernetes that clusters of the tests have.
    #[arg(long, default_value = DEFAULT_KUBERNETES)]
    kubernetes: String,
    /// What `cargo test` gets: the names of tests, after `--`.
    #[arg(last = true)]
    args: Vec<String>,
}

/// Runs them; the last line counts them.
pub(crate) fn run(test: &Test) -> Result<()> {
    let begin = Instant::now();
    // Before the tests, so that its progress is seen and no test's deadline runs meanwhile.
    let components = Components::new(&test.kubernetes)?;
    components.ensure(true)?;
    components.ensure(false)?;
    for program in ["kubectl", "etcdctl", "helm", "cert-manager"] {
        components.ensure_program(program)?;
    }
    let mut cargo = image::cargo();
    cargo.args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    cargo.env(KUBERNETES_VARIABLE, &test.kubernetes);
    if !test.args.is_empty() {
        cargo.arg("--").args(&test.args);
    }
    let counts = crate::count::run(cargo)?;
    say(&format!(
        "\nIn {}, on Kubernetes {}:",
        human(begin.elapsed()),
        test.kubernetes
    ));
    say(&format!("{} passed, {} failed", counts.passed, counts.failed));
    if counts.failed > 0 || !counts.succeeded {
        bail!("tests failed; their names and output are above");
    }
    if counts.passed == 0 {
        bail!("no test has run: the filter fits none");
    }
    Ok(())
}

/// Builds Flock for this machine, quickly.
pub(crate) fn build_flock() -> Result<PathBuf> {
    let status = image::cargo()
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "flock",
            "--bin",
            "flock",
        ])
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("flock could not be built ({status}); cargo has said why");
    }
    Ok(target_dir().join("debug/flock"))
}
