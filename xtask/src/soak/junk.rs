//! What reaches a port that is open to a whole cluster: peers that say nothing, that say it slowly, and bodies made to
//! cost memory. Bounded in number and time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use flock_lab::junk::{LARGEST, reviews};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a flood goes on.
pub(crate) const TIME: Duration = Duration::from_secs(10);
const NAME: &str = "flock.flock-system.svc";
/// Of the next small review.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// One way to be a burden.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Connects and says nothing.
    Idle,
    /// Begins a TLS handshake.
    HalfShake,
    /// A byte of a header now and then.
    SlowHeader,
    /// A byte of a body now and then.
    SlowBody,
    /// Nearly all of a body that shares the room of others, and then nothing.
    StalledBody,
    /// A body that is larger than any may be.
    Huge,
    /// Small reviews of members that nobody creates, each of another flock.
    Members,
    /// Small reviews of members whose owner nobody knows, so that it is looked up.
    Owners,
    /// Reviews of the largest size, each of too much of one thing.
    Reviews,
}

/// Each with what it has too much of.
type Reviews = Arc<[(&'static str, Vec<u8>)]>;

/// How many of each at one time, for each replica: together more than the 512 connections that it has.
const CROWD: &[(Kind, usize)] = &[
    (Kind::Idle, 400),
    (Kind::HalfShake, 100),
    (Kind::SlowHeader, 40),
    (Kind::SlowBody, 40),
    (Kind::StalledBody, 30),
    (Kind::Huge, 4),
    (Kind::Members, 4),
    (Kind::Owners, 4),
    (Kind::Reviews, 8),
];
/// Between two small reviews of one sender.
const PAUSE: Duration = Duration::from_millis(10);

/// A TLS client that trusts what the webhook configuration says.
pub(crate) fn connector(bundle: &[u8]) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        roots.add(certificate.context("the caBundle is no PEM")?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The certificate that a replica shows.
pub(crate) async fn leaf(address: SocketAddr, connector: &TlsConnector) -> Result<Vec<u8>> {
    let stream = connect(address, connector).await?;
    let certificates = stream.get_ref().1.peer_certificates();
    let leaf = certificates
        .and_then(<[_]>::first)
        .context("no certificate was shown")?;
    Ok(leaf.to_vec())
}

/// Floods all addresses at once; returns how many connections were made.
pub(crate) async fn flood(addresses: Vec<SocketAddr>, connector: TlsConnector) -> u64 {
    let end = Instant::now() + TIME;
    let reviews: Reviews = reviews().into();
    let mut crowd = JoinSet::new();
    for address in addresses {
        for (kind, count) in CROWD {
            for _ in 0..*count {
                crowd.spawn(bother(
                    *kind,
                    address,
                    connector.clone(),
                    Arc::clone(&reviews),
                    end,
                ));
            }
        }
    }
    crowd.join_all().await.into_iter().sum()
}

/// Connects again and again until the end.
async fn bother(
    kind: Kind,
    address: SocketAddr,
    connector: TlsConnector,
    reviews: Reviews,
    end: Instant,
) -> u64 {
    let mut connections = 0;
    while Instant::now() < end {
        connections += 1;
        let _ = timeout_at(end, once(kind, address, &connector, &reviews)).await;
        // Refused at once or not, it does not become a flood of connections alone.
        sleep(Duration::from_millis(100)).await;
    }
    connections
}

async fn once(kind: Kind, address: SocketAddr, connector: &TlsConnector, reviews: &Reviews) -> Result<()> {
    match kind {
        Kind::Idle => {
            let mut stream = TcpStream::connect(address).await?;
            until_closed(&mut stream).await?;
        }
        Kind::HalfShake => {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(&[22, 3, 1]).await?;
            until_closed(&mut stream).await?;
        }
        Kind::SlowHeader => {
            let mut stream = connect(address, connector).await?;
            dribble(
                &mut stream,
                b"POST /mutate HTTP/1.1\r\nhost: flock\r\nx-slow: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            )
            .await?;
        }
        Kind::SlowBody => {
            let mut stream = connect(address, connector).await?;
            stream.write_all(head(100_000).as_bytes()).await?;
            dribble(&mut stream, &[b' '; 100]).await?;
        }
        Kind::StalledBody => {
            let mut stream = connect(address, connector).await?;
            stream.write_all(head(250_000).as_bytes()).await?;
            stream.write_all(&vec![b' '; 200_000]).await?;
            until_closed(&mut stream).await?;
        }
        Kind::Members => ask(address, connector, "").await?,
        Kind::Owners => {
            let owner =
                r#","ownerReferences":[{"kind":"ReplicaSet","name":"junk","uid":"UID","controller":true}]"#;
            ask(address, connector, owner).await?;
        }
        Kind::Huge => post(address, connector, &vec![b' '; LARGEST + 1]).await?,
        Kind::Reviews => {
            for (_, body) in reviews.iter() {
                post(address, connector, body).await?;
            }
        }
    }
    Ok(())
}

async fn connect(address: SocketAddr, connector: &TlsConnector) -> Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    Ok(connector.connect(ServerName::try_from(NAME)?, stream).await?)
}

/// Reads whatever comes, to the end.
async fn until_closed(stream: &mut (impl AsyncReadExt + Unpin)) -> Result<()> {
    tokio::io::copy(stream, &mut tokio::io::sink()).await?;
    Ok(())
}

async fn dribble(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> Result<()> {
    for byte in bytes {
        stream.write_all(&[*byte]).await?;
        stream.flush().await?;
        sleep(Duration::from_millis(300)).await;
    }
    Ok(())
}

async fn post(address: SocketAddr, connector: &TlsConnector, body: &[u8]) -> Result<()> {
    let mut stream = connect(address, connector).await?;
    stream.write_all(head(body.len()).as_bytes()).await?;
    stream.write_all(body).await?;
    stream.flush().await?;
    let read = stream.read(&mut [0; 64]).await?;
    anyhow::ensure!(read > 0, "closed without an answer");
    Ok(())
}

/// Reviews one after the other over one connection, each with another number in its flock's name and its owner's uid.
async fn ask(address: SocketAddr, connector: &TlsConnector, metadata: &str) -> Result<()> {
    let mut stream = connect(address, connector).await?;
    let mut answer = vec![0; 32 * 1024];
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let body = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"junk","namespace":"default",
            "operation":"CREATE","kind":{{"version":"v1","kind":"Pod"}},"resource":{{"version":"v1","resource":"pods"}},
            "object":{{"metadata":{{"generateName":"junk-","labels":{{"flock.dev/name":"junk{number}"}}{}}},
            "spec":{{"containers":[{{"name":"c"}}]}}}}}}}}"#,
            metadata.replace("UID", &number.to_string())
        );
        stream.write_all(head(body.len()).as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        // An answer is one record, and what it says is of no interest.
        let read = stream.read(&mut answer).await?;
        anyhow::ensure!(read > 0, "closed without an answer");
        sleep(PAUSE).await;
    }
}

fn head(length: usize) -> String {
    format!(
        "POST /mutate HTTP/1.1\r\nhost: flock\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}
