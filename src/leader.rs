//! Leadership: a Lease, and a check that this process has not slept through its loss.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use kube_lease_manager::LeaseManagerBuilder;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// How long the Lease holds after its last renewal, in seconds: as the controllers of Kubernetes have it
/// (15 s, `k8s.io/component-base/config/v1alpha1/defaults.go`).
const DURATION: u64 = 15;
/// How long before its end it is renewed, in seconds.
const GRACE: u64 = 5;
/// A beat this late means that the process stood still (SIGSTOP, a frozen VM, a starved node).
const LATE: Duration = Duration::from_secs(4);
const BEAT: Duration = Duration::from_secs(1);

/// The lease task's end: given back on exit, so that another replica leads at once.
pub struct Leadership {
    leads: watch::Receiver<bool>,
    task: tokio::task::JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Leadership {
    /// Competes for the Lease `name` in `namespace` as `identity`. An API server that cannot be reached at the start
    /// is waited for, as it is later.
    pub fn compete(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        let (sender, leads) = watch::channel(false);
        let (stop, mut stopped) = watch::channel(false);
        let leases = Api::<Lease>::namespaced(client.clone(), namespace);
        let (namespace, name, identity) = (namespace.to_owned(), name.to_owned(), identity.to_owned());
        let task = tokio::spawn(async move {
            let manager = loop {
                let builder = LeaseManagerBuilder::new(client.clone(), name.clone())
                    .with_namespace(namespace.clone())
                    .with_identity(identity.clone())
                    .with_field_manager(format!("flock-{identity}"))
                    .with_duration(DURATION)
                    .with_grace(GRACE);
                match builder.build().await {
                    Ok(manager) => break manager,
                    Err(error) => {
                        warn!(%error, lease = name, "the Lease cannot be read or made; trying again");
                    }
                }
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => return,
                    () = tokio::time::sleep(BEAT) => {}
                }
            };
            let (mut held, task) = manager.watch().await;
            let mut last_beat = Instant::now();
            loop {
                let beat = tokio::time::sleep_until(last_beat + BEAT);
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => break,
                    changed = held.changed() => if changed.is_err() { break },
                    () = beat => {}
                }
                let late = last_beat.elapsed() > LATE;
                last_beat = Instant::now();
                let mut leading = *held.borrow_and_update();
                if late && leading {
                    // The lease task will find out too, but only at its next renewal.
                    sender.send_replace(false);
                    leading = holds(&leases, &name, &identity).await;
                    warn!(leading, "the process stood still; looked at the Lease");
                }
                sender.send_if_modified(|leads| std::mem::replace(leads, leading) != leading);
            }
            sender.send_replace(false);
            // Closing the channel ends the lease task, which releases the Lease.
            drop(held);
            match task.await {
                Ok(Ok(_)) => info!("released the Lease"),
                Ok(Err(error)) => warn!(%error, "lease task failed"),
                Err(error) => warn!(%error, "lease task died"),
            }
        });
        Self { leads, task, stop }
    }

    /// Whether this replica leads, and when that changes.
    pub fn leads(&self) -> watch::Receiver<bool> {
        self.leads.clone()
    }

    /// Gives the Lease back.
    pub async fn release(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            warn!(%error, "lease task died");
        }
    }
}

async fn holds(leases: &Api<Lease>, name: &str, identity: &str) -> bool {
    let Ok(lease) = leases.get(name).await else {
        return false;
    };
    let Some(spec) = lease.spec else { return false };
    let fresh = spec.renew_time.is_some_and(|renewed| {
        Timestamp::now().duration_since(renewed.0) < SignedDuration::from_secs(DURATION.cast_signed())
    });
    spec.holder_identity.as_deref() == Some(identity) && fresh
}
