//! Flock's replicas as processes of this machine. They are found by their pods' cgroups, so that no other lab's, and
//! nobody else's, is ever signalled.

use std::fs;
use std::net::IpAddr;

use anyhow::{Context, Result};
use flock_lab::{Lab, ProcessId};
use serde_json::Value;

use crate::wait;

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
}

/// Every replica that runs and is meant to stay.
pub(crate) fn all(lab: &Lab) -> Result<Vec<Replica>> {
    let replicas = pods(lab)?.iter().filter_map(replica).collect::<Vec<_>>();
    Ok(replicas)
}

/// The replica that holds the Lease; one that is on its way out hands it over at its very end.
pub(crate) fn leader(lab: &Lab) -> Result<Replica> {
    wait::until("a leader that stays", || {
        let holder = "-o=jsonpath={.spec.holderIdentity}";
        let holder = lab.kubectl(&["-n", "flock-system", "get", "lease", "flock", holder])?;
        Ok(all(lab)?.into_iter().find(|replica| replica.pod == holder))
    })
}

/// How many containers of Flock the kernel ended for their memory, of the pods that are there.
pub(crate) fn out_of_memory(lab: &Lab) -> Result<usize> {
    let killed = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        [&status["lastState"], &status["state"]]
            .iter()
            .any(|state| state["terminated"]["reason"] == "OOMKilled")
    };
    Ok(pods(lab)?.iter().filter(|pod| killed(pod)).count())
}

fn pods(lab: &Lab) -> Result<Vec<Value>> {
    let selector = "--selector=app.kubernetes.io/component=webhook";
    let list = lab.kubectl(&["-n", "flock-system", "get", "pods", selector, "-o=json"])?;
    let mut list: Value = serde_json::from_str(&list).context("kubectl printed no JSON")?;
    Ok(list["items"]
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default())
}

fn replica(pod: &Value) -> Option<Replica> {
    let metadata = &pod["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return None;
    }
    Some(Replica {
        pod: metadata["name"].as_str()?.to_owned(),
        address: pod["status"]["podIP"].as_str()?.parse().ok()?,
        process: process(metadata["uid"].as_str()?)?,
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
