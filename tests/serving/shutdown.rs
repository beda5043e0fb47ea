//! The end: nobody who called in time is let down.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use flock::serve::{Grace, Phase, ServeOptions};
use futures::channel::mpsc;
use tokio::net::TcpStream;

use super::{
    client::PATIENCE,
    setup::{eventually, server},
};

#[tokio::test]
async fn before_the_drain_every_answer_asks_for_another_connection() {
    let server = server(ServeOptions::default()).await;
    let mut kept = server.peer().await;
    assert!(!kept.post("/echo", b"{}").await.unwrap().closes);
    server.trigger.advance(Phase::Unready);
    let answer = kept.post("/echo", b"{}").await.unwrap();
    assert_eq!((answer.status, answer.closes), (200, true));
    kept.closed().await;
    // New connections are still served: API servers learn late that the endpoint is gone.
    let answer = server.peer().await.post("/echo", b"{}").await.unwrap();
    assert_eq!((answer.status, answer.closes), (200, true));
    assert_eq!(server.drain().await, 0);
}

#[tokio::test]
async fn a_request_under_way_is_finished() {
    let server = server(ServeOptions::default()).await;
    let address = server.address;
    let (mut working, mut sending, mut idle) =
        (server.peer().await, server.peer().await, server.peer().await);
    idle.post("/echo", b"{}").await.unwrap();
    let work = tokio::spawn(async move { working.post("/slow", b"500").await });
    sending.begin("/echo", 2).await;
    server.at_work(1).await;
    server.trigger.advance(Phase::Draining);
    idle.closed().await;
    assert!(
        TcpStream::connect(address).await.is_err(),
        "nobody is let in any more"
    );
    sending.send(b"{}").await.unwrap();
    let answer = sending.answer().await.unwrap();
    assert_eq!((answer.status, answer.closes), (200, true));
    let answer = work.await.unwrap().unwrap();
    assert_eq!((answer.status, answer.closes), (200, true));
    assert_eq!(server.drain().await, 0);
}

#[tokio::test]
async fn what_does_not_end_is_cut_and_counted() {
    let server = server(ServeOptions::default()).await;
    let mut working = server.peer().await;
    working.begin("/echo", 2).await;
    let _handshaking = TcpStream::connect(server.address).await.unwrap();
    server.connections(2).await;
    server.trigger.advance(Phase::Draining);
    server.trigger.advance(Phase::Aborted);
    let cut = tokio::time::timeout(PATIENCE, server.task)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(cut, 2);
    working.closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_keep_connections_see_no_failure_while_a_replica_ends() {
    for _ in 0..10 {
        let server = server(ServeOptions::default()).await;
        let stop = Arc::<AtomicBool>::default();
        let done: [Arc<AtomicUsize>; 4] = Default::default();
        let calls = || done.each_ref().map(|done| done.load(Ordering::Relaxed));
        let callers: Vec<_> = done
            .iter()
            .map(|done| {
                let (stop, done, mut caller) = (stop.clone(), done.clone(), server.caller());
                tokio::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(caller.call("/echo", b"{}").await.unwrap().status, 200);
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    caller.connections
                })
            })
            .collect();
        eventually(|| calls().iter().all(|calls| *calls > 10)).await;
        server.trigger.advance(Phase::Unready);
        let before = calls();
        eventually(|| std::iter::zip(calls(), before).all(|(now, before)| now > before + 10)).await;
        // The endpoint is gone for everybody: they call elsewhere.
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            assert!(caller.await.unwrap() > 1, "each was asked to connect anew");
        }
        assert_eq!(server.drain().await, 0);
    }
}

#[tokio::test]
async fn signals_lead_through_the_phases_to_the_end_of_serving() {
    let server = server(ServeOptions::default()).await;
    let (signals, receiver) = mpsc::unbounded();
    let grace = Grace {
        unready: Duration::from_millis(300),
        draining: PATIENCE,
    };
    let phases = tokio::spawn(server.trigger.on_signals(receiver, grace));
    signals.unbounded_send("SIGTERM").unwrap();
    server.shutdown.reached(Phase::Unready).await;
    assert_eq!(server.shutdown.phase(), Phase::Unready);
    server.shutdown.reached(Phase::Draining).await;
    assert_eq!(
        tokio::time::timeout(PATIENCE, server.task)
            .await
            .unwrap()
            .unwrap(),
        0
    );
    phases.abort();
}
