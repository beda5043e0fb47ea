//! What one can do with a lab's nodes.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::fake::{self, FakeNode};
use crate::lab::Lab;

impl Lab {
    /// The names of the nodes that the lab has made and not deleted.
    pub fn node_names(&self) -> Result<Vec<String>> {
        Ok(self.cluster()?.services.state().nodes)
    }

    /// Whether its nodes are real.
    pub fn has_real_nodes(&self) -> bool {
        self.cluster
            .as_ref()
            .is_some_and(|cluster| cluster.services.state().real)
    }

    fn fake_only(&self) -> Result<()> {
        if self.cluster()?.services.state().real {
            bail!(
                "lab {} has real nodes, so no fake one can be added, failed or deleted: start one with --fake",
                self.name
            );
        }
        Ok(())
    }

    /// Registers a fake node, also one that was deleted before.
    pub fn add_fake_node(&self, node: &FakeNode) -> Result<()> {
        self.fake_only()?;
        let cluster = self.cluster()?;
        // Numbers are not given twice, so that a node's addresses are never an earlier one's.
        let mut index = 0;
        cluster.services.update_state(|state| {
            index = state.next_node;
            state.next_node += 1;
            state.nodes.retain(|name| *name != node.name);
            state.nodes.push(node.name.clone());
        })?;
        self.block_on(async {
            fake::register(
                &self.client().await?,
                node,
                index,
                cluster.components.kubernetes(),
            )
            .await
        })
    }

    /// Deletes a fake node; its pods are left to Kubernetes' garbage collection, as with a real one.
    pub fn delete_fake_node(&self, name: &str) -> Result<()> {
        self.fake_only()?;
        self.cluster()?
            .services
            .update_state(|state| state.nodes.retain(|node| node != name))?;
        self.block_on(async { fake::delete(&self.client().await?, name).await })
    }

    /// Fails a fake node: its heartbeats end, and nothing happens to its pods any more. After the grace
    /// period, see [`crate::Options::node_monitor_grace`], the controller manager finds it unreachable.
    pub fn fail_fake_node(&self, name: &str) -> Result<()> {
        self.fake_only()?;
        self.block_on(async { fake::fail(&self.client().await?, name).await })
    }

    /// Brings a failed fake node back; it is ready a quarter of its lease's duration later at most.
    pub fn recover_fake_node(&self, name: &str) -> Result<()> {
        self.fake_only()?;
        let seconds = self.cluster()?.services.state().node_lease_seconds;
        self.block_on(async { fake::recover(&self.client().await?, name, seconds).await })
    }

    /// Writes into a pod's status what a kubelet would report, such as a crashed container.
    pub fn patch_pod_status(&self, namespace: &str, name: &str, status: &Value) -> Result<()> {
        self.block_on(async { fake::patch_pod_status(&self.client().await?, namespace, name, status).await })
    }
}
