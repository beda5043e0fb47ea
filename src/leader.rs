//! Leadership: a Lease, and a check that this process has not slept through its loss.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use kube_lease_manager::LeaseManagerBuilder;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

/// How long the Lease holds after its last renewal, in seconds: as the controllers of Kubernetes have it
/// (15 s, `k8s.io/component-base/config/v1alpha1/defaults.go`).
const DURATION: u64 = 15;
/// How long before its end it is renewed, in seconds.
const GRACE: u64 = 5;
/// A beat this late means that the process stood still (SIGSTOP, a frozen VM, a starved node).
const LATE: Duration = Duration::from_secs(4);
const BEAT: Duration = Duration::from_secs(1);

/// When the Lease was looked at last, by both clocks: one stands still while the machine does, the other may be set.
#[derive(Clone, Copy, Debug)]
struct Beat {
    timer: Instant,
    wall: Timestamp,
}

impl Beat {
    fn now() -> Self {
        Self {
            timer: Instant::now(),
            wall: Timestamp::now(),
        }
    }

    fn is_late(self, now: Self) -> bool {
        let wall = Duration::try_from(now.wall.duration_since(self.wall)).unwrap_or_default();
        now.timer.duration_since(self.timer).max(wall) > LATE
    }
}

/// Whether this replica leads, for those who write while it does.
#[derive(Clone, Debug)]
pub struct Lead {
    leads: watch::Receiver<bool>,
    /// None: somebody else sees to it that what is said is true.
    beat: Option<Arc<Mutex<Beat>>>,
}

impl From<watch::Receiver<bool>> for Lead {
    fn from(leads: watch::Receiver<bool>) -> Self {
        Self { leads, beat: None }
    }
}

impl Lead {
    /// Whether it leads and was told so a moment ago. To be asked before each write: when a process goes on that stood
    /// still, whatever it had in mind is due, and the loss of its lead is only one thing of many that it will see.
    pub fn is_certain(&self) -> bool {
        let late = |beat: &Arc<Mutex<Beat>>| beat.lock().is_late(Beat::now());
        *self.leads.borrow() && !self.beat.as_ref().is_some_and(late)
    }

    /// Waits until it leads for certain; false once nobody will ever say so.
    pub async fn begins(&mut self) -> bool {
        while self.leads.wait_for(|leads| *leads).await.is_ok() {
            if self.is_certain() {
                return true;
            }
            // The next beat tells.
            tokio::time::sleep(BEAT / 10).await;
        }
        false
    }

    /// Waits until it does not lead.
    pub async fn ends(&mut self) {
        let _ = self.leads.wait_for(|leads| !*leads).await;
    }

    /// Waits until it leads or does not lead any more; false once nobody will ever say so.
    pub async fn changes(&mut self) -> bool {
        self.leads.changed().await.is_ok()
    }
}

/// The lease task's end: given back on exit, so that another replica leads at once.
pub struct Leadership {
    leads: watch::Receiver<bool>,
    beat: Arc<Mutex<Beat>>,
    task: tokio::task::JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Leadership {
    /// Competes for the Lease `name` in `namespace` as `identity`. An API server that cannot be reached at the start
    /// is waited for, as it is later.
    pub fn compete(client: Client, namespace: &str, name: &str, identity: &str) -> Self {
        let (sender, leads) = watch::channel(false);
        let (stop, mut stopped) = watch::channel(false);
        let beat = Arc::new(Mutex::new(Beat::now()));
        let beats = Arc::clone(&beat);
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
            *beats.lock() = Beat::now();
            loop {
                let last = *beats.lock();
                tokio::select! {
                    _ = stopped.wait_for(|stop| *stop) => break,
                    changed = held.changed() => if changed.is_err() { break },
                    () = tokio::time::sleep_until(last.timer + BEAT) => {}
                }
                let begin = Beat::now();
                let mut leading = *held.borrow_and_update();
                if last.is_late(begin) && leading {
                    // The lease task will find out too, but only at its next renewal.
                    sender.send_replace(false);
                    let looked = timeout(LATE, holds(&leases, &name, &identity)).await;
                    leading = looked.unwrap_or_default();
                    warn!(leading, "the process stood still; looked at the Lease");
                }
                // Only now is what was said as new as the beat.
                sender.send_if_modified(|leads| std::mem::replace(leads, leading) != leading);
                *beats.lock() = begin;
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
        Self {
            leads,
            beat,
            task,
            stop,
        }
    }

    /// Whether this replica leads, for those who write.
    pub fn lead(&self) -> Lead {
        Lead {
            leads: self.leads.clone(),
            beat: Some(Arc::clone(&self.beat)),
        }
    }

    /// Whether this replica leads, for those who only want to know.
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::on_time(1, 1, false)]
    #[case::stopped(10, 10, true)]
    #[case::a_machine_whose_timers_stood_still(0, 10, true)]
    #[case::a_clock_that_was_set_back(1, -3600, false)]
    #[case::stopped_and_set_back(10, -3600, true)]
    fn a_lead_is_certain_while_it_was_looked_at_a_moment_ago_by_either_clock(
        #[case] timer: u64,
        #[case] wall: i64,
        #[case] late: bool,
    ) {
        let last = Beat::now();
        let now = Beat {
            timer: last.timer + Duration::from_secs(timer),
            wall: last.wall + SignedDuration::from_secs(wall),
        };
        assert_eq!(last.is_late(now), late);
    }

    #[tokio::test]
    async fn a_lead_that_was_not_looked_at_for_long_is_none_until_it_is() {
        let (_sender, leads) = watch::channel(true);
        let now = Beat::now();
        let old = Beat {
            wall: now.wall - SignedDuration::from_secs(20),
            ..now
        };
        let beat = Arc::new(Mutex::new(old));
        let mut lead = Lead {
            leads,
            beat: Some(Arc::clone(&beat)),
        };
        assert!(!lead.is_certain());
        assert!(timeout(BEAT, lead.begins()).await.is_err());
        *beat.lock() = Beat::now();
        assert!(lead.begins().await && lead.is_certain());
    }
}
