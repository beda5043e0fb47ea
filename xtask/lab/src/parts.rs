//! The cluster's own components, each by its name, and its DNS.

use anyhow::Result;

use crate::lab::Lab;
use crate::process::Signal;

impl Lab {
    /// The names of the cluster's components and whether each runs.
    pub fn component_names(&self) -> Result<Vec<(String, bool)>> {
        Ok(self.cluster()?.services.list())
    }

    /// The process of a component that runs.
    pub fn component_process(&self, component: &str) -> Result<crate::ProcessId> {
        self.cluster()?.services.process_id(component)
    }

    /// Stops a component with SIGTERM.
    pub fn stop(&self, component: &str) -> Result<()> {
        self.cluster()?.services.stop(component, false)
    }

    /// Kills a component.
    pub fn kill(&self, component: &str) -> Result<()> {
        self.cluster()?.services.stop(component, true)
    }

    /// Starts a component that was stopped or killed, and waits until it is ready.
    pub fn start_component(&self, component: &str) -> Result<()> {
        self.cluster()?.services.start(component)?;
        self.wait_ready(component)
    }

    /// Starts the components that ended by themselves, as a kubelet does with static pods. A scheduler that lost an answer
    /// with the API server ends on purpose (`cache is corrupted` in `k8s.io/kubernetes/pkg/scheduler/backend/cache/cache.go`).
    pub fn revive(&self) -> Result<()> {
        for component in self.cluster()?.services.ended() {
            self.start_component(&component)?;
        }
        Ok(())
    }

    /// Stops a component, starts it again and waits until it is ready.
    pub fn restart(&self, component: &str) -> Result<()> {
        self.stop(component)?;
        self.start_component(component)
    }

    /// Halts a component where it is, as a machine does that is overloaded; see [`Lab::unpause`].
    pub fn pause(&self, component: &str) -> Result<()> {
        self.cluster()?.services.signal(component, Signal::SIGSTOP)
    }

    /// Lets a paused component go on.
    pub fn unpause(&self, component: &str) -> Result<()> {
        self.cluster()?.services.signal(component, Signal::SIGCONT)
    }

    /// The IPv4 addresses that the lab's DNS has for `name`, sorted; none when there is no such name.
    pub fn dns_lookup_a(&self, name: &str) -> Result<Vec<std::net::IpAddr>> {
        self.cluster()?;
        self.block_on(crate::dns::lookup_a(name))
    }

    /// The names that the lab's DNS has for `address`, sorted; none when there are none.
    pub fn dns_lookup_ptr(&self, address: std::net::IpAddr) -> Result<Vec<String>> {
        self.cluster()?;
        self.block_on(crate::dns::lookup_ptr(address))
    }
}
