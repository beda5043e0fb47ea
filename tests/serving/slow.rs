//! Peers that are slow on purpose: each ends by its deadline, and others are served meanwhile.

use std::time::{Duration, Instant};

use flock::serve::ServeOptions;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    client::{PATIENCE, head},
    setup::{Server, eventually, server},
};

const SHORT: Duration = Duration::from_secs(1);

/// Asserts that a connection ends no earlier than its deadline, and that others are served until then.
async fn ends_after(server: &Server, stream: &mut TcpStream, deadline: Instant) {
    server.assert_serves().await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest))
        .await
        .expect("it is closed in time");
    let early = deadline.saturating_duration_since(Instant::now());
    assert_eq!(early, Duration::ZERO, "it ended so long before its deadline");
}

#[tokio::test]
async fn a_stalled_handshake_ends() {
    let server = server(ServeOptions {
        handshake_timeout: SHORT,
        ..ServeOptions::default()
    })
    .await;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut stalled = TcpStream::connect(server.address).await.unwrap();
    stalled.write_all(&[22, 3, 1, 2, 0, 1]).await.unwrap();
    ends_after(&server, &mut silent, begun + SHORT).await;
    ends_after(&server, &mut stalled, begun).await;
    eventually(|| {
        server.metric("server_connections_dropped_total{server=\"webhook\",reason=\"handshake_timeout\"} ")
            == 2
    })
    .await;
    server.connections(0).await;
}

#[tokio::test]
async fn a_connection_without_a_request_ends() {
    let server = server(ServeOptions {
        first_request_timeout: SHORT,
        ..ServeOptions::default()
    })
    .await;
    let (mut silent, mut stalled) = (server.peer().await, server.peer().await);
    stalled.send(b"POST /echo HTTP/1.1\r\nhost: ").await.unwrap();
    server.assert_serves().await;
    silent.closed().await;
    stalled.closed().await;
    assert_eq!(
        server.metric("server_connections_dropped_total{server=\"webhook\",reason=\"no_request\"} "),
        2
    );
}

#[tokio::test]
async fn a_second_request_that_stalls_in_its_header_ends_with_the_idle_time() {
    let server = server(ServeOptions {
        idle_timeout: SHORT,
        ..ServeOptions::default()
    })
    .await;
    let mut peer = server.peer().await;
    assert_eq!(peer.post("/echo", b"{}").await.unwrap().status, 200);
    peer.send(b"POST /echo HTTP/1.1\r\n").await.unwrap();
    server.assert_serves().await;
    assert!(peer.closed().await < PATIENCE);
}

#[tokio::test]
async fn a_stalled_body_is_answered_by_the_deadline() {
    let server = server(ServeOptions {
        max_request_time: SHORT,
        ..ServeOptions::default()
    })
    .await;
    let mut peer = server.peer().await;
    let begun = Instant::now();
    peer.send(&head("/echo", "content-length: 100\r\n"))
        .await
        .unwrap();
    peer.send(b"{").await.unwrap();
    server.assert_serves().await;
    let answer = peer.answer().await.unwrap();
    assert_eq!((answer.status, answer.closes), (503, true));
    assert!(begun.elapsed() >= SHORT);
    peer.closed().await;
    assert_eq!(
        server.metric("server_requests_refused_total{server=\"webhook\",reason=\"body_late\"} "),
        1
    );
}

#[tokio::test]
async fn a_body_that_drips_is_answered_by_the_deadline() {
    let server = server(ServeOptions {
        max_request_time: SHORT,
        ..ServeOptions::default()
    })
    .await;
    let mut peer = server.peer().await;
    peer.send(&head("/echo", "content-length: 1000000\r\n"))
        .await
        .unwrap();
    let begun = Instant::now();
    while begun.elapsed() < SHORT * 3 && peer.send(b" ").await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(peer.is_closed() || peer.answer().await.is_ok_and(|answer| answer.status == 503));
}

#[tokio::test]
async fn the_callers_timeout_is_the_deadline_minus_a_margin() {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    let begun = Instant::now();
    let answer = peer.post("/slow?timeout=500ms", b"20000").await.unwrap();
    assert_eq!(answer.status, 503);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(450), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(
        server.metric("server_requests_refused_total{server=\"webhook\",reason=\"deadline\"} "),
        1
    );
    // A handler that is quicker is not touched.
    assert_eq!(
        server
            .peer()
            .await
            .post("/slow?timeout=20s", b"50")
            .await
            .unwrap()
            .status,
        200
    );
}

#[tokio::test]
async fn an_idle_connection_serves_again_after_a_pause_shorter_than_the_idle_time() {
    // The default is 120 s for API servers that keep connections for 90 s: the same, 25 times as fast.
    let idle_timeout = ServeOptions::default().idle_timeout / 25;
    let pause = Duration::from_secs(90) / 25;
    let server = server(ServeOptions {
        idle_timeout,
        ..ServeOptions::default()
    })
    .await;
    let mut peer = server.peer().await;
    for _ in 0..3 {
        assert_eq!(peer.post("/echo", b"{}").await.unwrap().status, 200);
        tokio::time::sleep(pause).await;
    }
    assert!(!peer.is_closed());
    assert!(peer.closed().await < PATIENCE);
}

#[tokio::test]
async fn a_peer_that_reads_no_answers_ends() {
    let server = server(ServeOptions {
        write_timeout: SHORT,
        ..ServeOptions::default()
    })
    .await;
    let mut peer = server.peer().await;
    let request = [head("/large", "content-length: 2\r\n"), b"{}".to_vec()].concat();
    // Asks for more than any buffer holds and reads nothing of it.
    for _ in 0..64 {
        if peer.send(&request).await.is_err() {
            break;
        }
    }
    server.assert_serves().await;
    server.connections(0).await;
}

#[tokio::test]
async fn junk_on_every_connection_does_not_keep_a_caller_out() {
    let server = server(ServeOptions {
        max_connections: 16,
        ..ServeOptions::default()
    })
    .await;
    let address = server.address;
    let mut junk = Vec::new();
    for round in 0..10 {
        for _ in 0..16 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(&[22, 3, 1]).await;
            junk.push(stream);
        }
        server.assert_serves().await;
        assert!(
            server.metric("server_connections{server=\"webhook\"} ") <= 16,
            "round {round}"
        );
    }
    assert!(server.metric("server_connections_dropped_total{server=\"webhook\",reason=\"no_room\"} ") >= 100);
}

#[tokio::test]
async fn a_request_under_way_is_never_evicted() {
    let server = server(ServeOptions {
        max_connections: 2,
        ..ServeOptions::default()
    })
    .await;
    let mut working = server.peer().await;
    let work = tokio::spawn(async move { working.post("/slow", b"500").await });
    // Until a handler is at work, the connection is as good as any.
    server.at_work(1).await;
    for _ in 0..20 {
        server.assert_serves().await;
        let _idle = server.peer().await;
    }
    assert_eq!(work.await.unwrap().unwrap().status, 200);
}

/// On one thread: what keeps that busy would keep everybody waiting.
#[tokio::test(flavor = "current_thread")]
async fn everyday_calls_are_answered_while_a_large_body_is_worked_on() {
    let server = server(ServeOptions::default()).await;
    let mut stubborn = server.peer().await;
    let large = vec![b' '; 300_000];
    let work = tokio::spawn(async move { stubborn.post("/stubborn", &large).await });
    server.at_work(1).await;
    for _ in 0..5 {
        server.assert_serves().await;
    }
    assert!(!work.is_finished());
    server.let_go();
    assert_eq!(work.await.unwrap().unwrap().status, 200);
}

#[tokio::test]
async fn bodies_of_some_size_do_not_wait_for_the_largest() {
    let server = server(ServeOptions::default()).await;
    let mut holding = Vec::new();
    // The first has the room for the largest and never ends; the others wait for it.
    for _ in 0..4 {
        let mut peer = server.peer().await;
        peer.send(&head("/length", "content-length: 7000000\r\n"))
            .await
            .unwrap();
        peer.send(&b" ".repeat(50_000)).await.unwrap();
        holding.push(peer);
    }
    for _ in 0..20 {
        let answer = server
            .caller()
            .call("/length", &vec![b' '; 200_000])
            .await
            .unwrap();
        assert_eq!(answer.status, 200);
    }
}

/// Some hundreds of peers may send nothing, or nearly all, of bodies that share the room.
#[tokio::test]
async fn bodies_that_do_not_arrive_keep_none_waiting_that_do() {
    let server = server(ServeOptions::default()).await;
    let mut holding = Vec::new();
    // The large ones have the room of one at a time and give way after a second each: few enough that a call which
    // waits for all of them is in time.
    let small = [(262_144, 1), (262_144, 200_000)].repeat(30);
    let large = [(7_000_000, 300_000)].repeat(4);
    for (announced, sent) in small.into_iter().chain(large) {
        let mut peer = server.peer().await;
        let length = format!("content-length: {announced}\r\n");
        peer.send(&head("/length", &length)).await.unwrap();
        holding.push(tokio::spawn(async move {
            // All of it may never be taken.
            let _ = peer.send(&b" ".repeat(sent)).await;
            peer
        }));
    }
    for size in [20_000, 250_000, 300_000].repeat(3) {
        let begun = Instant::now();
        let answer = server.caller().call("/length", &vec![b' '; size]).await.unwrap();
        assert_eq!(answer.status, 200, "of {size} bytes, after {:?}", begun.elapsed());
    }
    assert!(server.metric("server_requests_refused_total{server=\"webhook\",reason=\"body_slow\"} ") > 0);
    for peer in holding {
        peer.abort();
    }
}

/// A call costs its answer's memory for as long as its caller takes nothing of it.
#[tokio::test]
async fn answers_that_nobody_takes_have_bounded_memory() {
    let server = server(ServeOptions::default()).await;
    let mut holding = Vec::new();
    // More than fits into the buffers of the connection, and four of them into the room.
    for _ in 0..8 {
        let mut peer = server.peer().await;
        peer.send(&head("/large", "content-length: 0\r\n")).await.unwrap();
        holding.push(peer);
    }
    eventually(|| {
        server.metric("server_requests_refused_total{server=\"webhook\",reason=\"no_room\"} ") >= 4
    })
    .await;
    server.assert_serves().await;
    drop(holding);
    let taken = || async { server.caller().call("/large", b"").await.unwrap().status };
    let deadline = Instant::now() + PATIENCE;
    while taken().await != 200 {
        assert!(Instant::now() < deadline, "its memory is not free again");
    }
}

#[tokio::test]
async fn large_bodies_wait_for_memory_and_small_ones_do_not() {
    let server = server(ServeOptions::default()).await;
    let large = vec![b' '; 6 * 1024 * 1024];
    // Is the only one and never ends.
    let mut holding = server.peer().await;
    holding
        .send(&head("/length", "content-length: 7000000\r\n"))
        .await
        .unwrap();
    holding.send(&large).await.unwrap();
    let mut waiting = server.peer().await;
    let waiting = tokio::spawn(async move { waiting.post("/length", &large).await });
    for _ in 0..20 {
        server.assert_serves().await;
    }
    // The first one has to give way to the second, which arrives.
    assert_eq!(holding.answer().await.unwrap().status, 503);
    assert_eq!(waiting.await.unwrap().unwrap().status, 200);
    let again = server
        .caller()
        .call("/length", &vec![b' '; 7_000_000])
        .await
        .unwrap();
    assert_eq!(again.status, 200, "all memory is free again");
}

#[tokio::test]
async fn a_large_body_whose_answer_does_not_come_keeps_the_next_one_waiting_for_its_own_time_only() {
    let server = server(ServeOptions::default()).await;
    let mut large = vec![b' '; 300 * 1024];
    large.extend(b"3600000");
    let mut peer = server.peer().await;
    let answer = peer.post("/slow?timeout=1s", &large).await.unwrap();
    assert_eq!(answer.status, 503);
    let mut next = server.peer().await;
    let answer = next.post("/length?timeout=10s", &large).await.unwrap();
    assert_eq!(
        (answer.status, answer.body),
        (200, large.len().to_string().into_bytes())
    );
}
