//! New leaves and new CAs while callers call.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use arc_swap::ArcSwap;
use flock::serve::ServeOptions;
use rustls::ClientConfig;

use super::{
    client::{Caller, trusting},
    setup::{Server, eventually, new_ca, serve_leaf_of, server},
};

const CALLERS: usize = 4;

/// Callers that never stop, half of them on a new connection each time.
struct Hammer {
    stop: Arc<AtomicBool>,
    /// How many calls each caller has made.
    done: Arc<[AtomicUsize; CALLERS]>,
    tasks: Vec<tokio::task::JoinHandle<usize>>,
}

impl Hammer {
    fn start(server: &Server, trust: &Arc<ArcSwap<ClientConfig>>) -> Self {
        let (stop, done) = (
            Arc::<AtomicBool>::default(),
            Arc::<[AtomicUsize; CALLERS]>::default(),
        );
        let address = server.address;
        let tasks = (0..CALLERS)
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
                        let answer = caller.call("/echo", b"{}").await;
                        if !answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                            eprintln!("failed: {answer:?}");
                            failures += 1;
                        }
                        done[number].fetch_add(1, Ordering::Relaxed);
                    }
                    failures
                })
            })
            .collect();
        Self { stop, done, tasks }
    }

    /// Waits until each caller has made two more calls, the second of which it began after now.
    async fn goes_on(&self) {
        let count = || self.done.each_ref().map(|done| done.load(Ordering::Relaxed));
        let before = count();
        eventually(|| count().iter().zip(before).all(|(now, before)| *now >= before + 2)).await;
    }

    async fn failures(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        let mut failures = 0;
        for task in self.tasks {
            failures += task.await.unwrap();
        }
        assert!(self.done.iter().all(|done| done.load(Ordering::Relaxed) > 50));
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
        // The settling time: whoever began with the old bundle has ended.
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
