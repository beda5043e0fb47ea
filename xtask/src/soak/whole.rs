//! The installation is whole again: what is disturbed next finds a cluster that has got over the last.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use flock_lab::Lab;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::replicas::Replicas;
use super::stream;
use crate::wait;

/// Waits, and keeps the replicas' logs, which go with their pods.
pub(crate) struct Whole {
    lab: Arc<Lab>,
    runtime: Handle,
    waits: u32,
}

impl Whole {
    pub(crate) fn new(lab: Arc<Lab>, runtime: Handle) -> Self {
        Self {
            lab,
            runtime,
            waits: 0,
        }
    }

    /// Waits until both replicas are Ready, nothing is on its way out, and Services lead where they should.
    pub(crate) fn wait(&mut self, replicas: &Replicas) -> Result<()> {
        self.waits += 1;
        let whole = self.is_whole(replicas);
        self.keep_logs()?;
        whole
    }

    fn is_whole(&self, replicas: &Replicas) -> Result<()> {
        let rollout = [
            "-n",
            "flock-system",
            "rollout",
            "status",
            "deployment/flock",
            "--timeout=120s",
        ];
        self.lab.kubectl(&rollout)?;
        wait::until("two replicas", || Ok((replicas.all()?.len() == 2).then_some(())))?;
        self.services_are_followed()
    }

    /// After a restart of the API server, kube-proxy watches again only after a pause that grows to half a minute: until
    /// then Services lead to replicas that are gone. A Service made now is reached when that is over.
    fn services_are_followed(&self) -> Result<()> {
        let name = format!("canary-{}", self.waits);
        let host = self.lab.host_ip();
        let of = json!({ "name": name, "namespace": stream::NAMESPACE });
        let labelled = json!({
            "name": name, "namespace": stream::NAMESPACE, "labels": { "kubernetes.io/service-name": name },
        });
        self.lab.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": [
            { "apiVersion": "v1", "kind": "Service", "metadata": of, "spec": { "ports": [{ "port": 6443 }] } },
            {
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": labelled,
                "addressType": "IPv4", "ports": [{ "port": 6443 }], "endpoints": [{ "addresses": [host] }],
            },
        ]}).to_string())?;
        let ip = [
            "-n",
            stream::NAMESPACE,
            "get",
            "service",
            &name,
            "-o=jsonpath={.spec.clusterIP}",
        ];
        let ip: IpAddr = self
            .lab
            .kubectl(&ip)?
            .parse()
            .context("a Service without an address")?;
        wait::until("a kube-proxy that follows", || {
            let connecting = self.runtime.spawn(async move {
                tokio::time::timeout(
                    Duration::from_secs(1),
                    TcpStream::connect(SocketAddr::new(ip, 6443)),
                )
                .await
            });
            let connected = self.runtime.block_on(connecting)?;
            Ok(connected.is_ok_and(|stream| stream.is_ok()).then_some(()))
        })?;
        self.lab
            .kubectl(&["-n", stream::NAMESPACE, "delete", "service,endpointslice", &name])
            .map(drop)
    }

    fn keep_logs(&self) -> Result<()> {
        let selector = "--selector=app.kubernetes.io/component=webhook";
        let logs = self.lab.kubectl(&[
            "-n",
            "flock-system",
            "logs",
            selector,
            "--prefix",
            "--timestamps",
            "--tail=-1",
            "--since=5m",
        ]);
        let path = self.lab.logs()?.join(format!("flock-{}.log", self.waits));
        let mut file =
            File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        // Of a pod that has just gone there is none.
        file.write_all(logs.unwrap_or_else(|error| error.to_string()).as_bytes())?;
        Ok(())
    }
}
