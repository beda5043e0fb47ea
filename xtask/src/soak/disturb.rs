//! What happens to the installation, at random moments.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use flock_lab::{Lab, Signal};
use kube::Client;
use tokio::runtime::Handle;

use super::junk;
use super::replicas::{Replica, Replicas};
use super::report::Report;
use super::whole::Whole;
use crate::say;

/// Something that can be done.
struct Disturbance {
    name: &'static str,
    /// How often it is chosen.
    weight: u32,
    /// How long the calls that begin after it may fail.
    excuse: Duration,
    act: fn(&mut Disturber) -> Result<()>,
}

const NONE: Duration = Duration::ZERO;
/// Calls that are in flight at the moment of a SIGKILL fail, and so does what is sent to the dead address until the
/// kubelet has seen the end of the container and every Service knows.
const KILLED: Duration = Duration::from_secs(3);
/// Longer than the Lease holds, so that the other replica leads.
const PAUSE: Duration = Duration::from_secs(18);
/// A paused process still takes connections until its readiness has failed twice, and the API server's idle connections
/// to it stay open for as long as it sleeps: whoever gets one waits for the webhook's 3 s in vain.
const PAUSED: Duration = Duration::from_secs(19);
/// Until the leader has seen it and healed it.
const EMPTIED: Duration = Duration::from_secs(1);

const ALL: &[Disturbance] = &[
    disturbance("CA rotations", 3, NONE, Disturber::rotate),
    disturbance("CA Secrets deleted", 1, NONE, Disturber::lose_secret),
    disturbance("rolling restarts", 2, NONE, Disturber::restart),
    disturbance("replicas deleted", 3, NONE, Disturber::delete),
    disturbance("replicas killed", 2, KILLED, Disturber::kill),
    disturbance("leaders paused", 1, PAUSED, Disturber::pause),
    disturbance("API server restarts", 1, NONE, Disturber::restart_api_server),
    disturbance("caBundles emptied", 1, EMPTIED, Disturber::empty),
    disturbance("junk floods", 2, NONE, Disturber::flood),
];

const fn disturbance(
    name: &'static str,
    weight: u32,
    excuse: Duration,
    act: fn(&mut Disturber) -> Result<()>,
) -> Disturbance {
    Disturbance {
        name,
        weight,
        excuse,
        act,
    }
}

/// Does one thing after the other.
pub(crate) struct Disturber {
    lab: Arc<Lab>,
    replicas: Replicas,
    runtime: Handle,
    random: fastrand::Rng,
    report: Arc<Report>,
    rotations: u32,
}

impl Disturber {
    pub(crate) fn new(
        lab: Arc<Lab>,
        client: Client,
        runtime: Handle,
        seed: u64,
        report: Arc<Report>,
    ) -> Self {
        Self {
            replicas: Replicas::new(Arc::clone(&lab), client),
            lab,
            runtime,
            random: fastrand::Rng::with_seed(seed),
            report,
            rotations: 0,
        }
    }

    /// Disturbs until `end`, each time after the installation is whole again; everything at least once, if there is
    /// time. With names in `only`, nothing else.
    pub(crate) fn run(&mut self, only: &[String], end: Instant) -> Result<()> {
        let begin = Instant::now();
        let wanted =
            |one: &&Disturbance| only.is_empty() || only.iter().any(|name| one.name.contains(name.as_str()));
        let all: Vec<_> = ALL.iter().filter(wanted).collect();
        anyhow::ensure!(!all.is_empty(), "no disturbance is called like that: {only:?}");
        let mut first = all.clone();
        self.random.shuffle(&mut first);
        let mut whole = Whole::new(Arc::clone(&self.lab), self.runtime.clone());
        whole.wait(&self.replicas)?;
        self.measure(begin);
        while Instant::now() < end {
            let pause = self.random.u64(500..4000);
            std::thread::sleep(Duration::from_millis(pause));
            let next = first.pop().unwrap_or_else(|| self.choose(&all));
            say(&format!("{:4} s  {}", begin.elapsed().as_secs(), next.name));
            self.report.disturbed(next.name, next.excuse);
            (next.act)(self).with_context(|| format!("while disturbing: {}", next.name))?;
            self.measure(begin);
            whole.wait(&self.replicas)?;
        }
        self.report.fact(format!(
            "containers that were killed for their memory: {}",
            self.out_of_memory()?
        ));
        Ok(())
    }

    fn choose(&mut self, all: &[&'static Disturbance]) -> &'static Disturbance {
        let total: u32 = all.iter().map(|one| one.weight).sum();
        let mut ticket = self.random.u32(0..total);
        let chosen = all.iter().find(|one| {
            let hit = ticket < one.weight;
            ticket = ticket.saturating_sub(one.weight);
            hit
        });
        chosen.copied().unwrap_or(all[0])
    }

    fn flock(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["-n", "flock-system"];
        all.extend(args);
        self.lab.kubectl(&all)
    }

    fn out_of_memory(&self) -> Result<usize> {
        let count = self.replicas.out_of_memory()?;
        if count > 0 {
            self.report
                .violation(format!("{count} replicas were killed for their memory"));
        }
        Ok(count)
    }

    /// A replica, any of them.
    fn replica(&mut self) -> Result<Replica> {
        let mut all = self.replicas.all()?;
        anyhow::ensure!(!all.is_empty(), "no replica is left");
        Ok(all.swap_remove(self.random.usize(0..all.len())))
    }

    fn rotate(&mut self) -> Result<()> {
        self.rotations += 1;
        let value = format!("flock.dev/rotate=soak-{}", self.rotations);
        self.flock(&["annotate", "--overwrite", "secret", "flock-ca", &value])
            .map(drop)
    }

    fn lose_secret(&mut self) -> Result<()> {
        self.flock(&["delete", "secret", "flock-ca", "--wait=false"])
            .map(drop)
    }

    fn restart(&mut self) -> Result<()> {
        self.flock(&["rollout", "restart", "deployment/flock"]).map(drop)
    }

    fn delete(&mut self) -> Result<()> {
        let replica = self.replica()?;
        self.flock(&["delete", "pod", &replica.pod]).map(drop)
    }

    fn kill(&mut self) -> Result<()> {
        self.replica()?.process.signal(Signal::SIGKILL)
    }

    fn pause(&mut self) -> Result<()> {
        let leader = self.replicas.leader()?;
        leader.process.signal(Signal::SIGSTOP)?;
        std::thread::sleep(PAUSE);
        leader.process.signal(Signal::SIGCONT)
    }

    fn restart_api_server(&mut self) -> Result<()> {
        self.lab.restart("kube-apiserver")
    }

    fn empty(&mut self) -> Result<()> {
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

    fn flood(&mut self) -> Result<()> {
        let addresses = self.addresses()?;
        let connector = self.connector()?;
        self.report.junk(true);
        let connections = self
            .runtime
            .block_on(self.runtime.spawn(junk::flood(addresses, connector)));
        self.report.junk(false);
        let connections = connections.context("the flood")?;
        self.out_of_memory()?;
        say(&format!(
            "        {connections} connections of junk in {} s",
            junk::TIME.as_secs()
        ));
        Ok(())
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let replicas = self.replicas.all()?;
        let address = |replica: &Replica| SocketAddr::new(replica.address, 8443);
        Ok(replicas.iter().map(address).collect())
    }

    fn connector(&self) -> Result<tokio_rustls::TlsConnector> {
        let bundle = "-o=go-template={{(index .webhooks 0).clientConfig.caBundle | base64decode}}";
        let bundle = self
            .lab
            .kubectl(&["get", "mutatingwebhookconfiguration", "flock", bundle])?;
        junk::connector(bundle.as_bytes())
    }

    /// The memory of every replica now, and the certificate that it shows.
    fn measure(&self, begin: Instant) {
        let Ok(all) = self.replicas.all() else {
            return;
        };
        let sizes: BTreeMap<_, _> = all
            .iter()
            .filter_map(|replica| {
                let size = (replica.memory()?, replica.open_files()?);
                Some((replica.pod.clone(), size))
            })
            .collect();
        let words: Vec<_> = sizes
            .iter()
            .map(|(pod, ((now, most), files))| format!("{pod} {now} KiB (most {most}), {files} files open"))
            .collect();
        let most = sizes
            .values()
            .map(|((_, most), _)| *most)
            .max()
            .unwrap_or_default();
        self.report.memory(
            format!("{:4} s: {}", begin.elapsed().as_secs(), words.join(", ")),
            most,
        );
        let (Ok(connector), Ok(addresses)) = (self.connector(), self.addresses()) else {
            return;
        };
        for address in addresses {
            let connector = connector.clone();
            let shown = self
                .runtime
                .spawn(async move { junk::leaf(address, &connector).await });
            if let Ok(Ok(leaf)) = self.runtime.block_on(shown) {
                self.report.leaf(leaf);
            }
        }
    }
}
