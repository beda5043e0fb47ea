//! A client that shows each byte it sends, and one that behaves as Go's `net/http` does.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use futures::FutureExt;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The name by which API servers call.
pub const NAME: &str = "flock.flock-system.svc";

/// What is trusted, as an API server makes it of a caBundle.
pub fn trusting<'a>(cas: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for ca in cas {
        roots.add(ca.clone()).unwrap();
    }
    let mut config = ClientConfig::builder_with_provider(flock::tls::crypto_provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = rustls::client::Resumption::disabled();
    config.into()
}

/// One connection.
pub struct Peer {
    stream: BufReader<TlsStream<TcpStream>>,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The server asks for another connection next time.
    pub closes: bool,
    pub body: Vec<u8>,
}

impl Peer {
    pub async fn connect(address: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(NAME).unwrap();
        let stream = TlsConnector::from(config.clone()).connect(name, stream).await?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// The leaf that the server has shown.
    #[allow(dead_code, reason = "for other suites than the server's")]
    pub fn certificate(&self) -> CertificateDer<'static> {
        let shown = self.stream.get_ref().get_ref().1.peer_certificates().unwrap();
        shown[0].clone().into_owned()
    }

    /// What is beneath TLS.
    pub fn into_socket(self) -> TcpStream {
        self.stream.into_inner().into_inner().0
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    pub async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.send(&head(path, &format!("content-length: {}\r\n", body.len())))
            .await?;
        self.send(body).await?;
        self.answer().await
    }

    /// Begins a request and waits until the server waits for its body.
    pub async fn begin(&mut self, path: &str, length: usize) {
        self.send(&head(
            path,
            &format!("expect: 100-continue\r\ncontent-length: {length}\r\n"),
        ))
        .await
        .unwrap();
        let mut go_on = [0; 25];
        self.stream.read_exact(&mut go_on).await.unwrap();
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    }

    /// Reads one answer; an end before it is an error.
    pub async fn answer(&mut self) -> io::Result<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if self.stream.read_until(b'\n', &mut head).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let header = |name: &str| {
            head.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                .map(str::to_owned)
        };
        let mut body = vec![0; header("content-length").unwrap().parse().unwrap()];
        self.stream.read_exact(&mut body).await?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Answer {
            status,
            closes: header("connection").as_deref() == Some("close"),
            body,
        })
    }

    /// Waits until the server has closed the connection, and says how long that took.
    pub async fn closed(&mut self) -> Duration {
        let begun = std::time::Instant::now();
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest))
            .await
            .expect("it is closed in time");
        begun.elapsed()
    }

    /// Whether the server has closed it, without waiting.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf().now_or_never() {
            None => false,
            Some(read) => read.map_or(true, <[u8]>::is_empty),
        }
    }
}

/// The head of a request with a body of JSON.
pub fn head(path: &str, more: &str) -> Vec<u8> {
    format!("POST {path} HTTP/1.1\r\nhost: {NAME}\r\ncontent-type: application/json\r\n{more}\r\n").into()
}

/// Calls as an API server does: keeps a connection, takes another when it is closed *before* a call, and has failed
/// when it is closed during one (Go sends a POST again only if not a byte of it was written).
pub struct Caller {
    address: SocketAddr,
    config: Arc<ClientConfig>,
    kept: Option<Peer>,
    pub connections: usize,
}

impl Caller {
    pub fn new(address: SocketAddr, config: Arc<ClientConfig>) -> Self {
        Self {
            address,
            config,
            kept: None,
            connections: 0,
        }
    }

    /// Trusts something else from the next connection on, as an API server does that sees another caBundle.
    pub fn trust(&mut self, config: Arc<ClientConfig>) {
        if !Arc::ptr_eq(&self.config, &config) {
            self.config = config;
            self.kept = None;
        }
    }

    pub async fn call(&mut self, path: &str, body: &[u8]) -> io::Result<Answer> {
        let mut peer = self.kept.take();
        if peer.as_mut().is_none_or(Peer::is_closed) {
            self.connections += 1;
            peer = Some(Peer::connect(self.address, &self.config).await?);
        }
        let mut peer = peer.unwrap();
        let answer = timeout(PATIENCE, peer.post(path, body)).await??;
        if !answer.closes {
            self.kept = Some(peer);
        }
        Ok(answer)
    }
}
