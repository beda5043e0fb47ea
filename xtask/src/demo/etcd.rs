//! What etcd says of itself.

use anyhow::{Context, Result, bail};

use super::cluster::Cluster;

/// Waits until every member of the etcd cluster is healthy.
pub(crate) fn wait_healthy(cluster: &Cluster) -> Result<()> {
    cluster.eventually("a healthy etcd cluster", || {
        let out = cluster.exec(
            "etcd-0",
            &["etcdctl", "endpoint", "health", "--cluster", "-w", "json"],
        )?;
        let health: serde_json::Value = serde_json::from_str(out.trim())?;
        let members = health.as_array().context("no list of members")?;
        Ok((members.len() == 3 && members.iter().all(|member| member["health"] == true)).then_some(()))
    })
}

/// The id under which a member has joined.
pub(crate) fn member_id(cluster: &Cluster, pod: &str) -> Result<String> {
    let out = cluster.exec(pod, &["etcdctl", "endpoint", "status", "-w", "json"])?;
    let status: serde_json::Value = serde_json::from_str(out.trim())?;
    let id = status
        .pointer("/0/Status/header/member_id")
        .context("etcd does not tell its id")?;
    Ok(id.to_string())
}

/// Reads a key from the member's own data, without asking the others.
pub(crate) fn get_local(cluster: &Cluster, pod: &str, key: &str) -> Result<String> {
    let out = cluster.exec(
        pod,
        &["etcdctl", "get", "--consistency=s", "--print-value-only", key],
    )?;
    Ok(out.trim().to_owned())
}

/// Writes a key.
pub(crate) fn put(cluster: &Cluster, pod: &str, key: &str, value: &str) -> Result<()> {
    let out = cluster.exec(pod, &["etcdctl", "put", key, value])?;
    if out.trim() != "OK" {
        bail!("etcd did not take the key: {out}");
    }
    Ok(())
}
