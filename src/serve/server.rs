//! Accepts connections and serves a router on them, over TLS or plain.
//!
//! By hand, over hyper's HTTP/1.1: it knows when a connection is quiet and may go, how long a first request may take,
//! and what to do about a peer that reads nothing, which ready-made servers do not.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tracing::{debug, warn};

use super::{
    ServeOptions,
    connections::{Connections, Seat},
    gate::Gate,
    handshake::Handshakes,
    metrics::{Dropped, ServeMetrics},
    shutdown::{Phase, Shutdown},
    stall::WriteDeadline,
};

/// Pause after a failed accept: without file descriptors the next one fails at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long an evicted connection has to say goodbye.
const GOODBYE: Duration = Duration::from_millis(50);
/// How long the last connections have to end after they were cut.
const LAST_WORD: Duration = Duration::from_secs(1);
/// hyper's buffer for each connection. An API server's headers have less than 1 KiB, and a TLS record ends at 16.
const BUFFER: usize = 16 * 1024;
/// The kernel's buffer for what a connection sends; it takes twice as much for its own needs. By itself it grows to
/// megabytes.
const SEND_BUFFER: usize = 64 * 1024;

struct Server {
    gate: Arc<Gate>,
    tls: Option<Handshakes>,
    http: http1::Builder,
    options: ServeOptions,
    metrics: ServeMetrics,
    shutdown: Shutdown,
    /// Connections that were cut at the end.
    cut: AtomicUsize,
}

/// Serves until the shutdown has drained or cut every connection; returns how many were cut. Plain HTTP without `tls`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
    router: Router,
    options: ServeOptions,
    metrics: ServeMetrics,
    shutdown: Shutdown,
) -> usize {
    let connections = Connections::new(options.max_connections);
    let mut http = http1::Builder::new();
    // Since hyper 1.6 this is the time to the end of the next request's header, the idle time before it included.
    http.timer(TokioTimer::new())
        .header_read_timeout(options.idle_timeout)
        .max_buf_size(BUFFER);
    let server = Arc::new(Server {
        gate: Gate::new(router, &options, metrics.clone(), shutdown.clone()),
        tls: tls.map(|config| Handshakes::new(config, options.handshake_timeout)),
        http,
        options,
        metrics,
        shutdown: shutdown.clone(),
        cut: AtomicUsize::default(),
    });
    tokio::select! {
        () = accept(&listener, &server, &connections) => {}
        () = shutdown.reached(Phase::Draining) => {}
    }
    drop(listener);
    tokio::select! {
        () = connections.all_closed() => {}
        () = shutdown.reached(Phase::Aborted) => {
            // Each sees that for itself, unless its handler never gives way.
            let _ = timeout(LAST_WORD, connections.all_closed()).await;
        }
    }
    server.cut.load(Ordering::Relaxed)
}

async fn accept(listener: &TcpListener, server: &Arc<Server>, connections: &Arc<Connections>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                server.metrics.dropped(Dropped::accept);
                warn!(%error, "cannot accept a connection; is the limit of open files reached?");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(seat) = connections
            .seat(|| server.metrics.dropped(Dropped::no_room))
            .await
        else {
            return;
        };
        // A socket of both families calls those of IPv4 `::ffff:10.0.0.1`.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let server = server.clone();
        tokio::spawn(async move {
            server.metrics.opened();
            server.connection(stream, peer, Arc::new(seat)).await;
            server.metrics.closed();
        });
    }
}

impl Server {
    fn cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    async fn connection(&self, stream: TcpStream, peer: SocketAddr, seat: Arc<Seat>) {
        // An answer is one small write; waiting for more would only delay it.
        let _ = stream.set_nodelay(true);
        // What is written and not taken is the kernel's, and counts against the container all the same.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BUFFER);
        let Some(tls) = &self.tls else {
            return self.http(stream, peer, &seat).await;
        };
        let handshake = tokio::select! {
            handshake = tls.accept(stream, peer) => handshake,
            () = seat.evicted() => return,
            () = self.shutdown.reached(Phase::Aborted) => return self.cut(),
        };
        match handshake {
            Ok(stream) => {
                seat.touch();
                self.http(stream, peer, &seat).await;
            }
            Err(reason) => self.metrics.dropped(reason),
        }
    }

    async fn http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send,
        peer: SocketAddr,
        seat: &Arc<Seat>,
    ) {
        let asked = AtomicBool::new(false);
        let service = service_fn(|request| {
            asked.store(true, Ordering::Relaxed);
            async { Ok::<_, std::convert::Infallible>(self.gate.answer(seat, peer, request).await) }
        });
        let io = TokioIo::new(WriteDeadline::new(stream, self.options.write_timeout));
        let mut connection = std::pin::pin!(self.http.serve_connection(io, service));
        let mut first_request = std::pin::pin!(tokio::time::sleep(self.options.first_request_timeout));
        let mut waits_for_first = true;
        let mut draining = std::pin::pin!(self.shutdown.reached(Phase::Draining));
        let mut drains = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        debug!(%error, "a connection ended before its time");
                    }
                    return;
                }
                () = first_request.as_mut(), if waits_for_first => {
                    waits_for_first = false;
                    if !asked.load(Ordering::Relaxed) {
                        return self.metrics.dropped(Dropped::no_request);
                    }
                }
                () = draining.as_mut(), if !drains => {
                    drains = true;
                    // An idle connection is closed at once, a busy one after its answer.
                    connection.as_mut().graceful_shutdown();
                }
                () = seat.evicted() => {
                    connection.as_mut().graceful_shutdown();
                    let _ = timeout(GOODBYE, connection.as_mut()).await;
                    return;
                }
                () = self.shutdown.reached(Phase::Aborted) => return self.cut(),
            }
        }
    }
}
