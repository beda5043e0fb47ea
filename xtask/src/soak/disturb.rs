//! What happens to the installation, at random moments.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flock_lab::Lab;

use super::report::Report;
use crate::say;

/// A disturbance: what it is called, and how often it is chosen.
type Disturbance = (&'static str, u32, fn(&mut Disturber) -> Result<()>);

const ALL: &[Disturbance] = &[
    ("CA rotations", 3, Disturber::rotate),
    ("rolling restarts", 2, Disturber::restart),
    ("replicas deleted", 3, Disturber::delete),
    ("replicas killed", 2, Disturber::kill),
    ("leaders paused", 1, Disturber::pause),
    ("API server restarts", 1, Disturber::restart_api_server),
    ("caBundles wiped", 1, Disturber::wipe),
];

/// Does one thing after the other.
pub(crate) struct Disturber {
    lab: Arc<Lab>,
    random: fastrand::Rng,
    report: Arc<Report>,
    rotations: u32,
}

impl Disturber {
    pub(crate) fn new(lab: Arc<Lab>, seed: u64, report: Arc<Report>) -> Self {
        Self {
            lab,
            random: fastrand::Rng::with_seed(seed),
            report,
            rotations: 0,
        }
    }

    /// Disturbs until `end`, each time after the installation is whole again.
    pub(crate) fn run(&mut self, end: Instant) -> Result<()> {
        let begin = Instant::now();
        while Instant::now() < end {
            let pause = self.random.u64(500..4000);
            std::thread::sleep(Duration::from_millis(pause));
            let total: u32 = ALL.iter().map(|(_, weight, _)| weight).sum();
            let mut ticket = self.random.u32(0..total);
            for (name, weight, act) in ALL {
                if ticket < *weight {
                    say(&format!("{:4} s  {name}", begin.elapsed().as_secs()));
                    act(self).with_context(|| format!("while disturbing: {name}"))?;
                    self.report.disturbed(name, *name == "replicas killed");
                    break;
                }
                ticket -= weight;
            }
            self.whole_again()?;
            self.measure(begin);
        }
        Ok(())
    }

    fn flock(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["-n", "flock-system"];
        all.extend(args);
        self.lab.kubectl(&all)
    }

    fn whole_again(&self) -> Result<()> {
        self.flock(&["rollout", "status", "deployment/flock", "--timeout=120s"])
            .map(drop)
    }

    /// A replica's pod, any of them.
    fn replica(&mut self) -> Result<String> {
        let names = self.flock(&[
            "get",
            "pods",
            "-l",
            "app.kubernetes.io/component=webhook",
            "-o",
            "name",
        ])?;
        let names: Vec<_> = names.lines().collect();
        let index = self.random.usize(0..names.len().max(1));
        names
            .get(index)
            .map(|name| (*name).to_owned())
            .context("no replica is left")
    }

    fn rotate(&mut self) -> Result<()> {
        self.rotations += 1;
        let value = format!("flock.dev/rotate=soak-{}", self.rotations);
        self.flock(&["annotate", "--overwrite", "secret", "flock-ca", &value])
            .map(drop)
    }

    fn restart(&mut self) -> Result<()> {
        self.flock(&["rollout", "restart", "deployment/flock"]).map(drop)
    }

    fn delete(&mut self) -> Result<()> {
        let replica = self.replica()?;
        self.flock(&["delete", &replica]).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        // Marked before too: a call fails in the moment of the signal.
        self.report.disturbed("SIGKILLs", true);
        let oldest = if self.random.bool() {
            "--oldest"
        } else {
            "--newest"
        };
        self.signal(&["--signal", "KILL", oldest])
    }

    fn pause(&mut self) -> Result<()> {
        let oldest = if self.random.bool() {
            "--oldest"
        } else {
            "--newest"
        };
        self.report.disturbed("SIGSTOPs", true);
        self.signal(&["--signal", "STOP", oldest])?;
        // Longer than the Lease holds.
        std::thread::sleep(Duration::from_secs(18));
        self.report.disturbed("SIGCONTs", true);
        self.signal(&["--signal", "CONT", oldest])
    }

    fn signal(&self, args: &[&str]) -> Result<()> {
        let status = self
            .lab
            .command("pkill")?
            .args(args)
            .args(["--full", "^/flock serve"])
            .status()?;
        anyhow::ensure!(status.success(), "no replica was found to signal");
        Ok(())
    }

    fn restart_api_server(&mut self) -> Result<()> {
        self.lab.restart("kube-apiserver")
    }

    fn wipe(&mut self) -> Result<()> {
        // Until it is healed the API server can trust nobody: what fails then is excused as after a kill.
        self.report.disturbed("caBundles emptied", true);
        let patch = r#"[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]"#;
        self.lab
            .kubectl(&[
                "patch",
                "mutatingwebhookconfiguration",
                "flock",
                "--type=json",
                "-p",
                patch,
            ])
            .map(drop)
    }

    /// The resident memory of every replica now.
    fn measure(&self, begin: Instant) {
        let Ok(mut command) = self.lab.command("sh") else {
            return;
        };
        let script = "for pid in $(pgrep --full '^/flock serve'); do grep VmRSS /proc/$pid/status; done";
        let Ok(output) = command.args(["-c", script]).output() else {
            return;
        };
        let sizes = String::from_utf8_lossy(&output.stdout);
        let sizes: Vec<_> = sizes
            .lines()
            .filter_map(|line| line.split_whitespace().nth(1))
            .collect();
        self.report.memory(format!(
            "{:4} s: {} KiB",
            begin.elapsed().as_secs(),
            sizes.join(", ")
        ));
    }
}
