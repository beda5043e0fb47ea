//! TLS handshakes, and what becomes of those that fail.

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tracing::{Instrument, debug, info_span, warn};

use super::metrics::Dropped;
use crate::telemetry::Sparse;

/// How long one who was refused has to read why, and how much of what it still sends is read meanwhile.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 1024 * 1024;

/// Makes TLS connections of TCP connections.
pub(super) struct Handshakes {
    acceptor: TlsAcceptor,
    time: Duration,
    /// Callers without a certificate: anybody can be one.
    nameless: Sparse,
}

impl Handshakes {
    pub(super) fn new(config: Arc<rustls::ServerConfig>, time: Duration) -> Self {
        Self {
            acceptor: config.into(),
            time,
            nameless: Sparse::default(),
        }
    }

    /// One handshake, or why there is no connection.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<TlsStream<TcpStream>, Dropped> {
        // What the check of the certificate logs, in here, is about this peer.
        let accepting = self
            .acceptor
            .accept(stream)
            .into_fallible()
            .instrument(info_span!("connection", %peer));
        match timeout(self.time, accepting).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err((error, stream))) => Err(self.failed(&error, stream, peer).await),
            Err(_) => Err(Dropped::handshake_timeout),
        }
    }

    async fn failed(&self, error: &io::Error, stream: TcpStream, peer: SocketAddr) -> Dropped {
        debug!(%peer, %error, "a TLS handshake failed");
        let cause = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match cause {
            Some(rustls::Error::NoCertificatesPresented) => {
                if let Some(left_out) = self.nameless.pass(Instant::now()) {
                    warn!(%peer, left_out, "refused a caller without a client certificate");
                }
            }
            Some(rustls::Error::InvalidCertificate(_)) => {}
            _ => return Dropped::handshake,
        }
        linger(stream).await;
        Dropped::client_certificate
    }
}

/// With TLS 1.3 a caller has sent its first request before it can know that its certificate is refused. If that is left
/// unread, the kernel answers with a reset, and the alert that says why may never be seen.
async fn linger(mut stream: TcpStream) {
    let reading = async {
        stream.shutdown().await?;
        let mut rest = stream.take(LINGER_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER, reading).await;
}
