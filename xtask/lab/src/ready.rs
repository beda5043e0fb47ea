//! Waiting for parts of a lab to be ready.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lab::Lab;
use crate::progress::human;
use crate::{dns, net};

/// How long a component may take until it is ready, on a machine that has other things to do.
const READY_TIMEOUT: Duration = Duration::from_secs(120);
/// How often it is looked at meanwhile.
const POLL: Duration = Duration::from_millis(50);

impl Lab {
    /// Waits until a component answers; those that have nothing to ask are ready at once.
    pub(crate) fn wait_ready(&self, component: &str) -> Result<()> {
        let rests_on = |program: &str| ["etcd", "kube-apiserver", component].contains(&program);
        match component {
            "kube-apiserver" | "etcd" => self.wait_while(rests_on, "the API server is ready", async || {
                let request = http::Request::get("/readyz").body(Vec::new())?;
                Ok(self.client().await?.request_text(request).await.is_ok())
            }),
            "coredns" => self.wait_while(rests_on, "DNS answers", async || {
                Ok(!dns::lookup_a("kubernetes.default.svc.cluster.local")
                    .await?
                    .is_empty())
            }),
            "kube-proxy" => self.wait_while(rests_on, "kube-proxy has set up Services", async || {
                answers_ok(net::PROXY_HEALTH, "/healthz").await
            }),
            name => match name.strip_prefix("containerd-") {
                Some(node) => self.wait_runtime(node),
                None => Ok(()),
            },
        }
    }

    /// Waits until every node that the lab has made is ready.
    pub fn wait_nodes_ready(&self) -> Result<()> {
        let wanted = self.cluster()?.services.state().nodes;
        self.wait_until("all nodes are ready", async || {
            let nodes: Api<Node> = Api::all(self.client().await?);
            let nodes = nodes.list(&ListParams::default()).await?;
            // A new node has a taint until the controller manager has seen that it is ready.
            let ready = |node: &&Node| {
                let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
                let tainted = node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
                !tainted
                    && conditions
                        .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
            };
            let names: Vec<_> = nodes
                .iter()
                .filter(ready)
                .filter_map(|node| node.metadata.name.as_ref())
                .collect();
            Ok(wanted.iter().all(|name| names.contains(&name)))
        })
    }

    /// Asks `condition` until it holds. An error of it counts as no; the last one is told when time is up or
    /// a program of the cluster has ended.
    pub(crate) fn wait_until<F>(&self, what: &str, condition: impl Fn() -> F + Sync) -> Result<()>
    where
        F: Future<Output = Result<bool>> + Send,
    {
        self.wait_while(|_| true, what, condition)
    }

    /// As [`Self::wait_until`], while the programs live that it `rests_on`; others may end meanwhile.
    fn wait_while<F>(
        &self,
        rests_on: impl Fn(&str) -> bool,
        what: &str,
        condition: impl Fn() -> F + Sync,
    ) -> Result<()>
    where
        F: Future<Output = Result<bool>> + Send,
    {
        let services = &self.cluster()?.services;
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let answer = self.block_on(condition());
            if matches!(answer, Ok(true)) {
                return Ok(());
            }
            services.check(&rests_on)?;
            if Instant::now() >= deadline {
                let error = answer
                    .err()
                    .map_or_else(String::new, |error| format!(": {error:#}"));
                bail!("it took more than {} until {what}{error}", human(READY_TIMEOUT));
            }
            thread::sleep(POLL);
        }
    }
}

/// Whether a server without encryption answers a question with 200.
async fn answers_ok(address: SocketAddr, path: &str) -> Result<bool> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1) == Some("200"))
}
