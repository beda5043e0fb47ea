//! New leaves and new CAs while callers call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use flock::serve::ServeOptions;
use rustls::ClientConfig;

use super::{
    client::{Caller, trusting},
    setup::{Server, eventually, new_ca, serve_leaf_of, server},
};

/// Callers that never stop, half of them on a new connection each time.
struct Hammer {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    tasks: Vec<tokio::task::JoinHandle<usize>>,
}

impl Hammer {
    fn start(server: &Server, trust: &Arc<ArcSwap<ClientConfig>>) -> Self {
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let address = server.address;
        let tasks = (0..4)
            .map(|number| {
                let (stop, done, trust) = (stop.clone(), done.clone(), trust.clone());
                tokio::spawn(async move {
                    let mut failures = 0;
                    let mut caller = Caller::new(address, trust.load_full());
                    while !stop.load(Ordering::Relaxed) {
                        if number % 2 == 0 {
                            caller = Caller::new(address, trust.load_full());
                        } else {
                            caller.trust(trust.load_full());
                        }
                        match caller.call("/echo", b"{}").await {
                            Ok(answer) if answer.status == 200 => done.fetch_add(1, Ordering::Relaxed),
                            failed => {
                                eprintln!("failed: {failed:?}");
                                failures += 1;
                                0
                            }
                        };
                    }
                    failures
                })
            })
            .collect();
        Self { stop, done, tasks }
    }

    /// Waits until some more calls were answered.
    async fn goes_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        eventually(|| self.done.load(Ordering::Relaxed) > before + 8).await;
    }

    async fn failures(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = 0;
        for task in self.tasks {
            failures += task.await.unwrap();
        }
        assert!(self.done.load(Ordering::Relaxed) > 100);
        failures
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leaf_fails_no_call() {
    let server = server(ServeOptions::default()).await;
    let hammer = Hammer::start(&server, &Arc::new(ArcSwap::new(server.trust())));
    for _ in 0..50 {
        serve_leaf_of(&server.ca, &server.resolver);
        hammer.goes_on().await;
    }
    assert_eq!(hammer.failures().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_ca_fails_no_call_while_both_are_published() {
    let server = server(ServeOptions::default()).await;
    let trust = Arc::new(ArcSwap::new(server.trust()));
    let hammer = Hammer::start(&server, &trust);
    let mut current = server.ca.certificate().clone();
    for _ in 0..50 {
        let next = new_ca();
        trust.store(trusting([&current, next.certificate()]));
        // A handshake that has begun with the old bundle ends with the old leaf.
        tokio::time::sleep(Duration::from_millis(20)).await;
        hammer.goes_on().await;
        serve_leaf_of(&next, &server.resolver);
        hammer.goes_on().await;
        current = next.certificate().clone();
        trust.store(trusting([&current]));
        hammer.goes_on().await;
    }
    assert_eq!(hammer.failures().await, 0);
}

#[tokio::test]
async fn a_kept_connection_outlives_its_leaf() {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    assert_eq!(peer.post("/echo", b"1").await.unwrap().status, 200);
    serve_leaf_of(&new_ca(), &server.resolver);
    assert_eq!(peer.post("/echo", b"2").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_new_ca_that_is_not_published_is_what_the_order_avoids() {
    let server = server(ServeOptions::default()).await;
    serve_leaf_of(&new_ca(), &server.resolver);
    assert!(server.caller().call("/echo", b"{}").await.is_err());
}
