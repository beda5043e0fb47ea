//! What reaches a port that is open to a whole cluster: peers that say nothing, that say it slowly, and bodies made to
//! cost memory. Bounded in number and time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
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
/// The largest body that the server takes.
const LARGEST: usize = 7 * 1024 * 1024;

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
    /// A body that is larger than any may be.
    Huge,
    /// A review of the largest size, of brackets within brackets.
    Deep,
    /// A review of the largest size, of millions of values.
    Wide,
    /// A review of the largest size, of annotations.
    Annotations,
    /// A review of the largest size, of containers.
    Containers,
}

/// How many of each at one time, for each replica.
const CROWD: &[(Kind, usize)] = &[
    (Kind::Idle, 300),
    (Kind::HalfShake, 100),
    (Kind::SlowHeader, 40),
    (Kind::SlowBody, 40),
    (Kind::Huge, 4),
    (Kind::Deep, 2),
    (Kind::Wide, 2),
    (Kind::Annotations, 2),
    (Kind::Containers, 2),
];

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
    let mut crowd = JoinSet::new();
    for address in addresses {
        for (kind, count) in CROWD {
            for _ in 0..*count {
                crowd.spawn(bother(*kind, address, connector.clone(), end));
            }
        }
    }
    crowd.join_all().await.into_iter().sum()
}

/// Connects again and again until the end.
async fn bother(kind: Kind, address: SocketAddr, connector: TlsConnector, end: Instant) -> u64 {
    let mut connections = 0;
    while Instant::now() < end {
        connections += 1;
        let _ = timeout_at(end, once(kind, address, &connector)).await;
        // Refused at once or not, it does not become a flood of connections alone.
        sleep(Duration::from_millis(100)).await;
    }
    connections
}

async fn once(kind: Kind, address: SocketAddr, connector: &TlsConnector) -> Result<()> {
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
        Kind::Huge => post(address, connector, &vec![b' '; LARGEST + 1]).await?,
        Kind::Deep => {
            let depth = LARGEST / 7;
            let nested = ["{\"a\":".repeat(depth), "0".into(), "}".repeat(depth)].concat();
            post(address, connector, &review("", "", &nested)).await?;
        }
        Kind::Wide => post(address, connector, &review("", "", &repeat(|_| "0".into()))).await?,
        Kind::Annotations => {
            let annotations = repeat(|number| format!("\"{number}\":\"\""));
            post(address, connector, &review(&annotations, "", "0")).await?;
        }
        Kind::Containers => {
            let containers = [",", &repeat(|_| "{\"name\":\"c\"}".into())].concat();
            post(address, connector, &review("", &containers, "0")).await?;
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

fn head(length: usize) -> String {
    format!(
        "POST /mutate HTTP/1.1\r\nhost: flock\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// A review of a member with these annotations, further containers and arguments.
fn review(annotations: &str, containers: &str, arguments: &str) -> Vec<u8> {
    format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"junk","namespace":"default",
        "operation":"CREATE","kind":{{"version":"v1","kind":"Pod"}},"resource":{{"version":"v1","resource":"pods"}},
        "object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"generateName":"junk-",
        "labels":{{"flock.dev/name":"junk"}},"annotations":{{{annotations}}}}},
        "spec":{{"containers":[{{"name":"c","args":[{arguments}]}}{containers}]}}}}}}}}"#
    )
    .into_bytes()
}

/// As many of these, with commas between them, as nearly fill the largest body.
fn repeat(value: impl Fn(usize) -> String) -> String {
    let mut text = String::with_capacity(LARGEST);
    for number in 0.. {
        let value = value(number);
        if text.len() + value.len() + 2048 > LARGEST {
            break;
        }
        if number > 0 {
            text.push(',');
        }
        text.push_str(&value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_json_that_fits_into_the_largest_body() {
        let annotations = repeat(|number| format!("\"{number}\":\"\""));
        let containers = [",", &repeat(|_| "{\"name\":\"c\"}".into())].concat();
        for body in [
            review("", "", &repeat(|_| "0".into())),
            review(&annotations, "", "0"),
            review("", &containers, "0"),
        ] {
            assert!(
                body.len() < LARGEST && body.len() > LARGEST - 8192,
                "{}",
                body.len()
            );
            let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(read["request"]["object"]["kind"], "Pod");
        }
    }
}
