//! A server with a router of its own, and everything that is needed to look at it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    routing::{get, post},
};
use bytes::Bytes;
use flock::{
    serve::{Phase, ServeMetrics, ServeOptions, Shutdown, Trigger, bind, serve, shutdown},
    tls::{
        ClientAuth, LeafResolver,
        issue::{Ca, ServerName},
        lifetime::Lifetimes,
        server_config,
    },
};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use rustls::ClientConfig;
use tokio::{net::TcpListener, task::JoinHandle};

use super::client::{Caller, NAME, PATIENCE, Peer, trusting};

pub struct Server {
    pub address: SocketAddr,
    pub ca: Ca,
    pub resolver: Arc<LeafResolver>,
    pub trigger: Trigger,
    pub shutdown: Shutdown,
    registry: Registry,
    /// Handlers of `/slow` and `/stubborn` that have begun.
    at_work: Arc<AtomicU64>,
    pub task: JoinHandle<usize>,
}

/// A handler for each thing that may happen.
fn router(at_work: Arc<AtomicU64>) -> Router {
    let blocking = Arc::clone(&at_work);
    Router::new()
        .route("/echo", post(|body: Bytes| async move { body }))
        .route(
            "/length",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .route("/panic", post(panics))
        .route(
            "/slow",
            post(move |body: Bytes| async move {
                at_work.fetch_add(1, Ordering::Relaxed);
                let milliseconds = std::str::from_utf8(&body).unwrap().trim().parse().unwrap();
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                body
            }),
        )
        .route(
            "/stubborn",
            post(move |_: Bytes| async move {
                blocking.fetch_add(1, Ordering::Relaxed);
                let begin = std::time::Instant::now();
                while blocking.load(Ordering::Relaxed) > 0 && begin.elapsed() < PATIENCE {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }),
        )
        .route("/large", post(|| async { vec![b'x'; 1 << 20] }))
        .route("/", get(|| async { "hello" }))
}

async fn panics() -> &'static str {
    panic!("as it was asked to")
}

pub async fn server(options: ServeOptions) -> Server {
    server_with(options, ClientAuth::None).await
}

pub async fn server_with(options: ServeOptions, client_auth: ClientAuth) -> Server {
    let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    server_on(listener, options, client_auth)
}

pub fn server_on(listener: TcpListener, options: ServeOptions, client_auth: ClientAuth) -> Server {
    let ca = new_ca();
    let resolver = Arc::new(LeafResolver::default());
    serve_leaf_of(&ca, &resolver);
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = shutdown::channel();
    let mut registry = Registry::default();
    let metrics = ServeMetrics::register(&mut registry);
    let config = server_config(resolver.clone(), client_auth).unwrap();
    let at_work = Arc::default();
    let serving = serve(
        listener,
        Some(config.into()),
        router(Arc::clone(&at_work)),
        options,
        metrics,
        shutdown.clone(),
    );
    let task = tokio::spawn(serving);
    Server {
        address,
        ca,
        resolver,
        trigger,
        shutdown,
        registry,
        at_work,
        task,
    }
}

pub fn new_ca() -> Ca {
    Ca::generate(&Lifetimes::default(), Timestamp::now()).unwrap()
}

pub fn serve_leaf_of(ca: &Ca, resolver: &LeafResolver) {
    let names = [ServerName::parse(NAME)];
    resolver.set(
        ca.sign_leaf(&names, &Lifetimes::default(), Timestamp::now())
            .unwrap()
            .certified,
    );
}

impl Server {
    pub fn trust(&self) -> Arc<ClientConfig> {
        trusting([self.ca.certificate()])
    }

    pub async fn peer(&self) -> Peer {
        Peer::connect(self.address, &self.trust()).await.unwrap()
    }

    pub fn caller(&self) -> Caller {
        Caller::new(self.address, self.trust())
    }

    /// Lets handlers of `/stubborn` end, which keep their thread until then.
    pub fn let_go(&self) {
        self.at_work.store(0, Ordering::Relaxed);
    }

    /// Calls once, on a connection of its own.
    pub async fn assert_serves(&self) {
        let answer = self.caller().call("/echo", b"{}").await.unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"{}"[..]));
    }

    /// The value of a metric, by the beginning of its line.
    pub fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
        line.trim().parse().unwrap()
    }

    /// Waits until so many handlers of `/slow` have begun.
    pub async fn at_work(&self, wanted: u64) {
        eventually(|| self.at_work.load(Ordering::Relaxed) >= wanted).await;
    }

    /// Waits until so many connections are open.
    pub async fn connections(&self, wanted: u64) {
        eventually(|| self.metric("server_connections{server=\"webhook\"} ") == wanted).await;
    }

    /// Drains, and says how many connections had to be cut.
    pub async fn drain(self) -> usize {
        self.trigger.advance(Phase::Draining);
        tokio::time::timeout(PATIENCE, self.task)
            .await
            .expect("it drains in time")
            .unwrap()
    }
}

/// Waits until it holds.
pub async fn eventually(mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it comes to hold in time");
}
