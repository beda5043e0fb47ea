//! Flock's replicas as processes of this machine. They are found by their pods' cgroups, so that no other lab's, and
//! nobody else's, is ever signalled.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Result;
use flock_lab::{Lab, ProcessId};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams};

use crate::wait;

const NAMESPACE: &str = "flock-system";

/// One replica that runs.
#[derive(Debug)]
pub(crate) struct Replica {
    /// Its pod.
    pub(crate) pod: String,
    /// Where it listens.
    pub(crate) address: IpAddr,
    /// Its process.
    pub(crate) process: ProcessId,
}

impl Replica {
    /// Its memory in KiB, from `/proc/PID/status`: resident now (`VmRSS`), and the most it ever was (`VmHWM`).
    pub(crate) fn memory(&self) -> Option<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.pid)).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> Option<usize> {
        Some(
            fs::read_dir(format!("/proc/{}/fd", self.process.pid))
                .ok()?
                .count(),
        )
    }
}

/// The replicas of a lab.
pub(crate) struct Replicas {
    lab: Arc<Lab>,
    client: Client,
}

impl Replicas {
    pub(crate) fn new(lab: Arc<Lab>, client: Client) -> Self {
        Self { lab, client }
    }

    /// Every replica that runs and is meant to stay.
    pub(crate) fn all(&self) -> Result<Vec<Replica>> {
        Ok(self.pods()?.iter().filter_map(replica).collect())
    }

    /// The replica that holds the Lease; one that is on its way out hands it over at its very end.
    pub(crate) fn leader(&self) -> Result<Replica> {
        let leases = Api::<Lease>::namespaced(self.client.clone(), NAMESPACE);
        wait::until("a leader that stays", || {
            let lease = self.lab.block_on(leases.get("flock"))?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            let mut all = self.all()?.into_iter();
            Ok(all.find(|replica| Some(&replica.pod) == holder.as_ref()))
        })
    }

    /// How many containers of Flock the kernel ended for their memory, of the pods that are there.
    pub(crate) fn out_of_memory(&self) -> Result<usize> {
        let killed = |pod: &Pod| {
            let containers = pod
                .status
                .iter()
                .flat_map(|status| status.container_statuses.iter().flatten());
            let states = containers.flat_map(|container| [&container.last_state, &container.state]);
            let mut ends = states.filter_map(|state| state.as_ref()?.terminated.as_ref()?.reason.as_deref());
            ends.any(|reason| reason == "OOMKilled")
        };
        Ok(self.pods()?.iter().filter(|pod| killed(pod)).count())
    }

    fn pods(&self) -> Result<Vec<Pod>> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), NAMESPACE);
        let of_the_deployment = ListParams::default().labels("app.kubernetes.io/component=webhook");
        Ok(self.lab.block_on(pods.list(&of_the_deployment))?.items)
    }
}

fn replica(pod: &Pod) -> Option<Replica> {
    let metadata = &pod.metadata;
    if metadata.deletion_timestamp.is_some() {
        return None;
    }
    Some(Replica {
        pod: metadata.name.clone()?,
        address: pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?,
        process: process(metadata.uid.as_ref()?)?,
    })
}

/// The process of the pod: the one in its cgroup that is Flock, and not the sandbox's.
fn process(uid: &str) -> Option<ProcessId> {
    let of_pod = format!("pod{uid}");
    let pids = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let pid = pids.find(|pid| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        read("cmdline").starts_with(b"/flock\0")
            && String::from_utf8_lossy(&read("cgroup"))
                .replace('_', "-")
                .contains(&of_pod)
    })?;
    ProcessId::of(pid).ok()
}
