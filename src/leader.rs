//! Leadership: a Lease, and a check that this process has not slept through its loss.
//!
//! As with the controllers of Kubernetes (`k8s.io/client-go/tools/leaderelection`), nobody compares clocks of two
//! machines: a Lease has ended when it was seen without a renewal for as long as it lasts, by the clock of whoever
//! looks; and its holder counts from before it asked for the last renewal that was granted. Every write is for the
//! Lease as it was seen (its resourceVersion), so two who find it free do not both get it.

mod candidate;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use jiff::Timestamp;
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use candidate::{Answer, Candidate, Failure};

/// How long the Lease holds after its last renewal: as the controllers of Kubernetes have it
/// (15 s, `k8s.io/component-base/config/v1alpha1/defaults.go`).
const DURATION: Duration = Duration::from_secs(15);
/// How long a lead holds after the last renewal was asked for. What is begun in its last moment has a second to arrive
/// before somebody else leads.
const HOLDS: Duration = Duration::from_secs(14);
/// How soon after a renewal the next one is due. Two may fail before the lead ends.
const RENEW: Duration = Duration::from_secs(5);
/// How often it is looked at by those who do not have it, and how soon anything is tried again.
const BEAT: Duration = Duration::from_secs(1);
/// How long the API server gets for one try.
const ANSWER: Duration = Duration::from_secs(3);
/// A beat this late means that the process stood still (SIGSTOP, a frozen VM, a starved node).
const LATE: Duration = Duration::from_secs(4);

/// A moment by both clocks: one stands still while the machine does, the other may be set.
#[derive(Clone, Copy, Debug)]
struct Moment {
    timer: Instant,
    wall: Timestamp,
}

impl Moment {
    fn now() -> Self {
        Self {
            timer: Instant::now(),
            wall: Timestamp::now(),
        }
    }

    /// How long ago it was at `now`, by the clock that says more.
    fn age(self, now: Self) -> Duration {
        let wall = Duration::try_from(now.wall.duration_since(self.wall)).unwrap_or_default();
        now.timer.duration_since(self.timer).max(wall)
    }
}

/// What a lead rests on.
#[derive(Clone, Copy, Debug)]
struct Proof {
    /// When this process was last seen to run.
    beat: Moment,
    /// When the last renewal that was granted was asked for; `None` after anything that speaks against it.
    confirmed: Option<Moment>,
}

impl Proof {
    fn holds(self, now: Moment) -> bool {
        self.beat.age(now) <= LATE && self.confirmed.is_some_and(|at| at.age(now) < HOLDS)
    }
}

/// Whether this replica leads, for those who write while it does.
#[derive(Clone, Debug)]
pub struct Lead {
    leads: watch::Receiver<bool>,
    /// None: somebody else sees to it that what is said is true.
    proof: Option<Arc<Mutex<Proof>>>,
}

impl From<watch::Receiver<bool>> for Lead {
    fn from(leads: watch::Receiver<bool>) -> Self {
        Self { leads, proof: None }
    }
}

impl Lead {
    /// Whether it leads, by a renewal that still holds, and has not stood still since. To be asked before each write:
    /// when a process goes on that stood still, whatever it had in mind is due, and the loss of its lead is only one
    /// thing of many that it will see.
    pub fn is_certain(&self) -> bool {
        let holds = |proof: &Arc<Mutex<Proof>>| proof.lock().holds(Moment::now());
        *self.leads.borrow() && self.proof.as_ref().is_none_or(holds)
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

/// The election's end: the Lease is given back on exit, so that another replica leads at once.
pub struct Leadership {
    leads: watch::Receiver<bool>,
    proof: Arc<Mutex<Proof>>,
    task: tokio::task::JoinHandle<()>,
    stop: watch::Sender<bool>,
}

impl Leadership {
    /// Competes for the Lease `name` in `namespace` as `identity`. An API server that cannot be reached at the start
    /// is waited for, as it is later. Nothing is asked for before `able`: a replica that cannot do a leader's work, as it
    /// cannot list what it needs for that, must not keep others from it.
    pub fn compete(
        client: Client,
        namespace: &str,
        name: &str,
        identity: &str,
        able: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let (sender, leads) = watch::channel(false);
        let (stop, stopped) = watch::channel(false);
        let proof = Arc::new(Mutex::new(Proof {
            beat: Moment::now(),
            confirmed: None,
        }));
        let candidate = Candidate::new(Api::namespaced(client, namespace), name, identity);
        let election = (sender, Arc::clone(&proof));
        let mut given_up = stopped.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                _ = given_up.wait_for(|stop| *stop) => return,
                () = able => {}
            }
            run(candidate, election.0, election.1, stopped).await;
        });
        Self {
            leads,
            proof,
            task,
            stop,
        }
    }

    /// Whether this replica leads, for those who write.
    pub fn lead(&self) -> Lead {
        Lead {
            leads: self.leads.clone(),
            proof: Some(Arc::clone(&self.proof)),
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
            warn!(%error, "the election died");
        }
    }
}

/// Competes until `stopped`, and gives the Lease back then.
async fn run(
    mut candidate: Candidate,
    leads: watch::Sender<bool>,
    proof: Arc<Mutex<Proof>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut due = Instant::now();
    let mut failures = 0_u32;
    // The try under way, and when it began.
    let mut asking: Option<(Moment, BoxFuture<'static, Answer>)> = None;
    loop {
        let last = *proof.lock();
        if asking.is_none() && due <= Instant::now() {
            asking = Some((Moment::now(), candidate.clone().ask().boxed()));
        }
        let beat = last.beat.timer + BEAT;
        let wake = if asking.is_some() { beat } else { beat.min(due) };
        let answer = tokio::select! {
            biased;
            _ = stopped.wait_for(|stop| *stop) => break,
            Some(answer) = OptionFuture::from(asking.as_mut().map(|(_, answer)| answer)) => Some(answer),
            () = sleep_until(wake) => None,
        };
        let asked = answer.is_some().then(|| asking.take()).flatten();
        let now = Moment::now();
        let mut confirmed = last.confirmed;
        if last.beat.age(now) > LATE {
            if confirmed.take().is_some() {
                warn!("the process stood still: it does not lead before the Lease is renewed");
            }
            // What was asked before says nothing of now.
            asking = None;
            due = now.timer;
        } else if let (Some(answer), Some((asked, _))) = (answer, asked) {
            due = now.timer + BEAT;
            match answer {
                Ok(lease) => {
                    failures = 0;
                    candidate.saw(lease);
                    confirmed = candidate.has_it().then_some(asked);
                    if confirmed.is_some() {
                        due = asked.timer + RENEW;
                    }
                }
                Err(failure) => {
                    // The next look tells what.
                    if matches!(&failure, Failure::Overtaken(_)) {
                        confirmed = None;
                    }
                    failures = failures.saturating_add(1);
                    let (error, lease) = (&failure, &candidate.name);
                    if failures.is_power_of_two() {
                        warn!(%error, lease, failures, "the Lease cannot be read or written; trying again");
                    } else {
                        debug!(%error, lease, failures, "the Lease cannot be read or written; trying again");
                    }
                }
            }
        }
        let proven = Proof { beat: now, confirmed };
        *proof.lock() = proven;
        let leading = proven.holds(now);
        if leads.send_if_modified(|leads| std::mem::replace(leads, leading) != leading) && !leading {
            warn!(
                lease = candidate.name,
                "the Lease is lost, or could not be renewed"
            );
        }
    }
    proof.lock().confirmed = None;
    leads.send_replace(false);
    // It may be a write, which would come in between.
    if let Some((_, answer)) = asking {
        let _ = answer.await;
    }
    match timeout(ANSWER, candidate.give_back()).await {
        Ok(Ok(true)) => info!("released the Lease"),
        Ok(Ok(false)) => {}
        Ok(Err(error)) => warn!(%error, "the Lease cannot be released"),
        Err(_) => warn!("the Lease cannot be released: no answer within {ANSWER:?}"),
    }
}

#[cfg(test)]
mod tests;
