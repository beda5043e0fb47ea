//! The admin port, and the check that the webhook's own port answers.

use std::sync::Arc;

use flock::{
    serve::{Phase, Readiness, ServeMetrics, ServeOptions, admin, bind, dial, self_check, serve, shutdown},
    tls::{ClientAuth, LeafResolver},
};
use prometheus_client::registry::Registry;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::setup::{eventually, serve_leaf_of, server, server_on};

async fn get(address: std::net::SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[tokio::test]
async fn readiness_follows_its_conditions_and_the_end_while_liveness_does_not() {
    let mut registry = Registry::with_prefix("flock");
    let readiness = Readiness::register(&mut registry);
    ServeMetrics::register(&mut registry);
    let (caches, certificate) = (readiness.condition("caches"), readiness.condition("certificate"));
    let (trigger, webhook) = shutdown::channel();
    let (_end, until) = shutdown::channel();
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = admin::router(readiness, Arc::new(registry), webhook);
    tokio::spawn(serve(
        listener,
        None,
        router,
        ServeOptions::admin(),
        ServeMetrics::default(),
        until,
    ));

    caches.unmet("pods are not listed yet");
    let (status, answer) = get(address, "/readyz").await;
    assert_eq!(status, 503);
    assert!(
        answer.ends_with("caches: pods are not listed yet\ncertificate: not yet\n"),
        "{answer}"
    );
    caches.met();
    certificate.met();
    assert_eq!(get(address, "/readyz").await.0, 200);
    let (status, answer) = get(address, "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        answer.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{answer}"
    );
    assert!(
        answer.contains("\nflock_ready 1\n") && answer.ends_with("# EOF\n"),
        "{answer}"
    );
    trigger.advance(Phase::Unready);
    let (status, answer) = get(address, "/readyz").await;
    assert_eq!(status, 503);
    assert!(answer.ends_with("shutdown: the process is ending\n"), "{answer}");
    assert_eq!(get(address, "/livez").await.0, 200);
    assert_eq!(get(address, "/elsewhere").await.0, 404);
}

#[tokio::test]
async fn the_self_check_reaches_a_port_wherever_it_listens() {
    for address in ["[::]:0", "0.0.0.0:0", "127.0.0.1:0", "[::1]:0"] {
        let listening = bind(address.parse().unwrap()).await;
        if address == "[::1]:0" && listening.is_err() {
            let has_ipv6 = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
            assert_eq!(has_ipv6, "", "a machine without IPv6 has no such address");
            continue;
        }
        let server = server_on(listening.unwrap(), ServeOptions::default(), ClientAuth::None);
        dial(server.address, &server.resolver, None)
            .await
            .unwrap_or_else(|error| panic!("{address}: {error}"));
    }
}

#[tokio::test]
async fn the_self_check_holds_while_the_port_serves_the_certificate() {
    let server = server(ServeOptions::default()).await;
    let readiness = Readiness::default();
    let condition = readiness.condition("port");
    tokio::spawn(self_check(
        server.address,
        server.resolver.clone(),
        None,
        condition,
        server.shutdown.clone(),
    ));
    eventually(|| readiness.is_ready()).await;
    assert!(dial(server.address, &server.resolver, None).await.is_ok());
    serve_leaf_of(&server.ca, &server.resolver);
    assert!(
        dial(server.address, &server.resolver, None).await.is_ok(),
        "a new leaf is what is expected next"
    );
}

#[tokio::test]
async fn the_self_check_tells_a_port_that_is_another_processs_or_nobodys() {
    let (server, other) = (
        server(ServeOptions::default()).await,
        server(ServeOptions::default()).await,
    );
    let error = dial(server.address, &other.resolver, None).await.unwrap_err();
    assert!(
        error.to_string().starts_with("the own port does not answer"),
        "{error}"
    );
    assert!(
        dial(server.address, &LeafResolver::default(), None)
            .await
            .is_err(),
        "no certificate yet"
    );
    let (address, resolver) = (server.address, server.resolver.clone());
    server.drain().await;
    assert!(dial(address, &resolver, None).await.is_err());
}
