//! The demo's cluster, with Flock installed as an administrator would.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use flock_lab::{Components, Flock, Lab, image};

use super::Demo;
use crate::{image as flock_image, install, lab, say, wait};

/// Where the demo's members are.
pub(crate) const NAMESPACE: &str = "flock-demo";
/// The lab's name, so that `--keep` leaves one that can be named.
const LAB: &str = "demo";

/// The cluster of the demo.
pub(crate) struct Cluster {
    lab: Arc<Lab>,
    /// On fake nodes Flock runs as a process, since pods do not.
    flock: Option<Flock>,
    own: bool,
}

impl Cluster {
    pub(crate) fn start(demo: &Demo) -> Result<Self> {
        if let Some(kubeconfig) = &demo.kubeconfig {
            let lab = Arc::new(Lab::existing(kubeconfig)?);
            say(
                "Using the cluster of the kubeconfig; its nodes must have flock:dev, etcd:demo and etcd:demo-next",
            );
            return Ok(Self {
                lab,
                flock: None,
                own: false,
            });
        }
        let options = lab::options(3, demo.fake);
        let options = flock_lab::Options {
            kubernetes: demo.kubernetes.clone(),
            ..Flock::options(options)
        };
        // Built before the lab starts: what fails here leaves nothing behind.
        let images = match options.nodes {
            flock_lab::Nodes::Real { .. } => images(&demo.kubernetes)?,
            flock_lab::Nodes::Fake { .. } => Vec::new(),
        };
        let lab = Arc::new(Lab::start(options.named(LAB))?);
        let flock = if lab.has_real_nodes() {
            for image in &images {
                lab.import_image(image)?;
            }
            None
        } else {
            let binary = crate::test::build_flock()?;
            Some(Flock::install(&lab, &flock_image::root(), &binary, 2, &[])?)
        };
        Ok(Self {
            lab,
            flock,
            own: true,
        })
    }

    /// Whether containers run.
    pub(crate) fn runs_containers(&self) -> bool {
        self.flock.is_none()
    }

    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Runs kubectl in the demo's namespace.
    pub(crate) fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", NAMESPACE];
        all.extend(args);
        self.lab.kubectl(&all)
    }

    /// Runs a program in a member.
    pub(crate) fn exec(&self, pod: &str, command: &[&str]) -> Result<String> {
        let mut args = vec!["exec", pod, "--"];
        args.extend(command);
        self.kubectl(&args)
    }

    /// Waits until `value` is there.
    pub(crate) fn eventually<T>(&self, what: &str, value: impl Fn() -> Result<Option<T>>) -> Result<T> {
        wait::until(what, value).with_context(|| {
            let pods = self
                .lab
                .kubectl(&["get", "pods", "--all-namespaces", "-o", "wide"])
                .unwrap_or_default();
            let events = self.kubectl(&["get", "events"]).unwrap_or_default();
            format!("the state then:\n{pods}\n{events}")
        })
    }

    pub(crate) fn keep_logs(&self) {
        self.lab.keep_state();
        if let Ok(logs) = self.lab.logs() {
            say(&format!("The logs are in {}", logs.display()));
        }
    }

    /// Ends it, unless it is to be kept.
    pub(crate) fn end(self, keep: bool) -> Result<()> {
        drop(self.flock);
        if !self.own {
            self.lab
                .kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"])?;
            return Ok(());
        }
        let lab = Arc::into_inner(self.lab).context("the lab is still in use")?;
        if keep {
            lab.keep_running()?;
            say("The cluster goes on. To look around:");
            say(&format!(
                "  cargo xtask lab kubectl --name {LAB} -- -n {NAMESPACE} get pods -o wide"
            ));
            say(&format!("  cargo xtask lab shell --name {LAB}"));
            say(&format!("To end it: cargo xtask lab down --name {LAB}"));
            return Ok(());
        }
        say("Cleaning up. `cargo xtask demo --keep` leaves the cluster up to look around in.");
        lab.down()
    }
}

/// Flock's image, and etcd under two names, to roll from one to the other.
fn images(kubernetes: &str) -> Result<Vec<PathBuf>> {
    let folder = flock_image::target_dir().join("image");
    let mut images = vec![install::flock_image(true)?];
    let etcd = image::etcd(&Components::new(kubernetes)?)?;
    for name in ["etcd:demo", "etcd:demo-next"] {
        let archive = folder.join(format!("{}.tar", name.replace(':', "-")));
        etcd.clone().named(name).write(&archive)?;
        images.push(archive);
    }
    Ok(images)
}
