//! How the process ends: in phases that only go forward, and that everything which serves can see.
//!
//! API servers keep connections to a pod that is being deleted, and learn late that it is (kubernetes#127335). So a
//! server that is asked to end first says so to everybody, by readiness and by `Connection: close`, and goes on serving.

use std::{io, time::Duration};

use futures::{Stream, StreamExt, stream};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::{info, warn};

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Nobody has asked for the end.
    Serving,
    /// Unready, but every request is still served; each answer asks its caller to connect elsewhere next time.
    Unready,
    /// No new connection is accepted; what was begun is finished.
    Draining,
    /// Whatever is still open is cut.
    Aborted,
}

/// How long the phases take. Together they have to be shorter than the pod's `terminationGracePeriodSeconds` (30).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Between the signal and the end of accepting: until every API server's node knows that the endpoint is gone.
    pub unready: Duration,
    /// For finishing what was begun. No request lasts longer than 10 s.
    pub draining: Duration,
}

impl Default for Grace {
    fn default() -> Self {
        Self {
            unready: Duration::from_secs(10),
            draining: Duration::from_secs(12),
        }
    }
}

/// Sees how far the end has come.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<Phase>);

/// Makes the end come.
#[derive(Debug)]
pub struct Trigger(watch::Sender<Phase>);

/// A new process's end: its trigger and its view.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(Phase::Serving);
    (Trigger(sender), Shutdown(receiver))
}

impl Shutdown {
    /// The phase of now.
    pub fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    /// Whether the end was asked for.
    pub fn has_begun(&self) -> bool {
        self.phase() > Phase::Serving
    }

    /// Waits until that phase has come, or its trigger is gone and nothing can be waited for.
    pub async fn reached(&self, phase: Phase) {
        let _ = self.0.clone().wait_for(|present| *present >= phase).await;
    }
}

impl Trigger {
    /// Goes on to that phase, unless it is already further.
    pub fn advance(&self, phase: Phase) {
        self.0.send_if_modified(|present| {
            let forward = phase > *present;
            if forward {
                *present = phase;
            }
            forward
        });
    }

    /// Waits for the first signal and goes through the phases; a second one cuts everything. Returns at the latest
    /// when all time is over; the process may end before, when nothing is left to drain.
    pub async fn on_signals(self, signals: impl Stream<Item = &'static str>, grace: Grace) {
        let mut signals = std::pin::pin!(signals);
        let Some(signal) = signals.next().await else {
            return;
        };
        info!(
            signal,
            seconds = grace.unready.as_secs(),
            "ending: not ready any more, still serving"
        );
        self.advance(Phase::Unready);
        for (phase, time) in [(Phase::Draining, grace.unready), (Phase::Aborted, grace.draining)] {
            tokio::select! {
                () = tokio::time::sleep(time) => {
                    info!(?phase, "ending: the next phase has come");
                    self.advance(phase);
                }
                Some(signal) = signals.next() => {
                    warn!(signal, "ending at once: a second signal has come");
                    break;
                }
            }
        }
        self.advance(Phase::Aborted);
    }
}

/// The signals that ask a process to end.
pub fn signals() -> io::Result<impl Stream<Item = &'static str>> {
    let listen = |kind, name| {
        Ok::<_, io::Error>(stream::unfold(signal(kind)?, move |mut signal| async move {
            signal.recv().await.map(|()| (name, signal))
        }))
    };
    let (terminate, interrupt) = (
        listen(SignalKind::terminate(), "SIGTERM")?,
        listen(SignalKind::interrupt(), "SIGINT")?,
    );
    Ok(stream::select(terminate, interrupt))
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use tokio::time::Instant;

    use super::*;

    const GRACE: Grace = Grace {
        unready: Duration::from_secs(10),
        draining: Duration::from_secs(12),
    };

    #[tokio::test(start_paused = true)]
    async fn the_phases_come_one_after_the_other() {
        let (trigger, shutdown) = channel();
        let (signals, receiver) = mpsc::unbounded();
        let phases = tokio::spawn(trigger.on_signals(receiver, GRACE));
        assert!(!shutdown.has_begun());
        let begun = Instant::now();
        signals.unbounded_send("SIGTERM").unwrap();
        for (phase, after) in [(Phase::Unready, 0), (Phase::Draining, 10), (Phase::Aborted, 22)] {
            shutdown.reached(phase).await;
            assert_eq!(shutdown.phase(), phase);
            assert_eq!(begun.elapsed().as_secs(), after, "{phase:?}");
        }
        phases.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_signal_ends_it_at_once() {
        let (trigger, shutdown) = channel();
        let (signals, receiver) = mpsc::unbounded();
        tokio::spawn(trigger.on_signals(receiver, GRACE));
        signals.unbounded_send("SIGTERM").unwrap();
        shutdown.reached(Phase::Unready).await;
        let begun = Instant::now();
        signals.unbounded_send("SIGINT").unwrap();
        shutdown.reached(Phase::Aborted).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[test]
    fn a_phase_never_goes_back() {
        let (trigger, shutdown) = channel();
        trigger.advance(Phase::Draining);
        trigger.advance(Phase::Unready);
        assert_eq!(shutdown.phase(), Phase::Draining);
    }

    #[test]
    fn the_default_grace_fits_into_that_of_a_pod() {
        let Grace { unready, draining } = Grace::default();
        assert!(unready + draining < Duration::from_secs(30));
    }
}
