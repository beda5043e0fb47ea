//! Bodies, types, protocol versions, panics.

use std::time::Duration;

use flock::serve::ServeOptions;
use rstest::rstest;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    client::{NAME, Peer, head, trusting},
    setup::{eventually, new_ca, server},
};

const LIMIT: usize = 7 * 1024 * 1024;

#[tokio::test]
async fn a_body_of_the_largest_size_is_served_and_one_byte_more_is_not() {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    let answer = peer.post("/length", &vec![b' '; LIMIT]).await.unwrap();
    assert_eq!((answer.status, answer.closes), (200, false));
    assert_eq!(answer.body, LIMIT.to_string().into_bytes());
    let answer = peer.post("/length", &vec![b' '; LIMIT + 1]).await.unwrap();
    assert_eq!((answer.status, answer.closes), (413, true));
    peer.closed().await;
    assert_eq!(
        server.metric("server_requests_refused_total{server=\"webhook\",reason=\"body_too_large\"} "),
        1
    );
    server.assert_serves().await;
}

#[tokio::test]
async fn a_chunked_body_is_refused_as_soon_as_it_is_too_large() {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    peer.send(&head("/length", "transfer-encoding: chunked\r\n"))
        .await
        .unwrap();
    let chunk = [b"100000\r\n", vec![b' '; 0x0010_0000].as_slice(), b"\r\n"].concat();
    for _ in 0..7 {
        peer.send(&chunk).await.unwrap();
    }
    // The eighth MiB is one too many; no last chunk ever comes.
    peer.send(&chunk).await.unwrap();
    let answer = peer.answer().await.unwrap();
    assert_eq!((answer.status, answer.closes), (413, true));
}

#[tokio::test]
async fn a_chunked_body_within_the_limit_is_served() {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    peer.send(&head("/echo", "transfer-encoding: chunked\r\n"))
        .await
        .unwrap();
    peer.send(b"2\r\n[1\r\n2\r\n,2\r\n1\r\n]\r\n0\r\n\r\n")
        .await
        .unwrap();
    let answer = peer.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"[1,2]"[..]));
}

#[tokio::test]
async fn an_announced_gigabyte_is_refused_without_waiting_for_it() {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    peer.send(&head("/length", "content-length: 1073741824\r\n"))
        .await
        .unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), peer.answer())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(answer.status, 413);
}

#[rstest]
#[case::json("content-type: application/json\r\n", 200)]
#[case::json_with_a_charset("content-type: application/json; charset=utf-8\r\n", 200)]
#[case::json_in_capitals("Content-Type: Application/JSON\r\n", 200)]
#[case::none("", 415)]
#[case::yaml("content-type: application/yaml\r\n", 415)]
#[case::a_longer_name("content-type: application/json-patch+json\r\n", 415)]
#[case::a_form("content-type: application/x-www-form-urlencoded\r\n", 415)]
#[tokio::test]
async fn only_json_is_read(#[case] header: &str, #[case] status: u16) {
    let server = server(ServeOptions::default()).await;
    let mut peer = server.peer().await;
    let request = format!("POST /echo HTTP/1.1\r\nhost: {NAME}\r\n{header}content-length: 2\r\n\r\n{{}}");
    peer.send(request.as_bytes()).await.unwrap();
    assert_eq!(peer.answer().await.unwrap().status, status);
}

#[tokio::test]
async fn a_panic_is_answered_and_harms_nobody_else() {
    let server = server(ServeOptions::default()).await;
    let mut other = server.peer().await;
    assert_eq!(other.post("/echo", b"1").await.unwrap().status, 200);
    let mut peer = server.peer().await;
    // What the alert looks at, as it stands there.
    let rules = include_str!("../../deploy/monitoring/rules.yaml");
    let (_, alert) = rules.split_once("- alert: FlockPanics").unwrap();
    let (_, watched) = alert.split_once("expr: increase(").unwrap();
    let watched = watched.split_once('[').unwrap().0;
    let watched = format!("{} ", watched.strip_prefix("flock_").unwrap());
    assert_eq!(server.metric(&watched), 0);
    for count in 1..=3 {
        let answer = server.caller().call("/panic", b"{}").await.unwrap();
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (500, &b"a bug in Flock, see its log"[..])
        );
        assert_eq!(server.metric(&watched), count);
    }
    assert_eq!(other.post("/echo", b"2").await.unwrap().body, b"2");
    assert_eq!(peer.post("/echo", b"3").await.unwrap().body, b"3");
}

#[tokio::test]
async fn large_answers_arrive_whole() {
    let server = server(ServeOptions::default()).await;
    let answer = server.peer().await.post("/large", b"{}").await.unwrap();
    assert_eq!(answer.body, vec![b'x'; 1 << 20]);
}

#[rstest]
#[case::tls_1_1([3, 2])]
#[case::tls_1_0([3, 1])]
#[tokio::test]
async fn old_versions_of_tls_are_refused(#[case] version: [u8; 2]) {
    let server = server(ServeOptions::default()).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // A ClientHello: version, random, no session, ECDHE-ECDSA-AES128-SHA, no compression; P-256, ECDSA with SHA-256.
    let hello = [
        &version[..],
        &[7; 32],
        &[0],
        &[0, 2, 0xc0, 0x09],
        &[1, 0],
        &[0, 16],
        &[0, 10, 0, 4, 0, 2, 0, 23],
        &[0, 13, 0, 4, 0, 2, 4, 3],
    ]
    .concat();
    let length = u8::try_from(hello.len()).unwrap();
    let record = [&[22, 3, 1, 0, length + 4, 1, 0, 0, length], hello.as_slice()].concat();
    stream.write_all(&record).await.unwrap();
    let mut alert = [0; 7];
    stream.read_exact(&mut alert).await.unwrap();
    // An alert of 2 bytes: fatal, protocol_version.
    assert_eq!((alert[0], &alert[3..]), (21, &[0, 2, 2, 70][..]));
    server.assert_serves().await;
    eventually(|| {
        server.metric("server_connections_dropped_total{server=\"webhook\",reason=\"handshake\"} ") == 1
    })
    .await;
}

#[rstest]
#[case::tls_1_2(&rustls::version::TLS12)]
#[case::tls_1_3(&rustls::version::TLS13)]
#[tokio::test]
async fn present_versions_of_tls_are_served(#[case] version: &'static rustls::SupportedProtocolVersion) {
    let server = server(ServeOptions::default()).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.ca.certificate().clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(flock::tls::crypto_provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut peer = Peer::connect(server.address, &config.into()).await.unwrap();
    assert_eq!(peer.post("/echo", b"{}").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_client_that_trusts_another_ca_does_not_connect() {
    let server = server(ServeOptions::default()).await;
    let other = new_ca();
    assert!(
        Peer::connect(server.address, &trusting([other.certificate()]))
            .await
            .is_err()
    );
}
