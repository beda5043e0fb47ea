//! Dials this replica's own TLS port: readiness proves that it answers with the certificate it should.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{
    readiness::Condition,
    shutdown::{Phase, Shutdown},
};
use crate::tls::{LeafResolver, Signatures, crypto_provider};

/// Time for one dial; on the loopback it takes less than a millisecond.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often it is dialled while all is well, and while it is not.
const INTERVAL: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);
/// One failure says little on a loaded machine.
const FAILURES: u32 = 2;

/// The port does not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum SelfCheckError {
    /// There is nothing to serve yet.
    #[error("no certificate is loaded yet")]
    NoCertificate,
    /// TLS cannot be set up.
    #[error("failed to set up TLS for the self-check")]
    Setup(#[source] rustls::Error),
    /// No connection or no handshake.
    #[error("the own port does not answer: {0}")]
    Dial(std::io::Error),
    /// No answer in time.
    #[error("the own port does not answer in time")]
    Timeout,
}

/// Keeps the condition true while the port answers, until the shutdown begins. `caller` is the certificate to call with,
/// where the port asks for one.
pub async fn self_check(
    address: SocketAddr,
    resolver: Arc<LeafResolver>,
    caller: Option<Arc<CertifiedKey>>,
    condition: Condition,
    shutdown: Shutdown,
) {
    let mut failures = 0;
    loop {
        let result = tokio::select! {
            result = dial(address, &resolver, caller.as_ref()) => result,
            () = shutdown.reached(Phase::Unready) => return,
        };
        let pause = match result {
            Ok(()) => {
                failures = 0;
                condition.met();
                INTERVAL
            }
            Err(error) => {
                failures += 1;
                if failures >= FAILURES {
                    condition.unmet(error.to_string());
                }
                RETRY.saturating_mul(failures).min(INTERVAL)
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.reached(Phase::Unready) => return,
        }
    }
}

/// One handshake with the port, which has to show the certificate that the resolver holds, and to let this caller in.
pub async fn dial(
    address: SocketAddr,
    resolver: &LeafResolver,
    caller: Option<&Arc<CertifiedKey>>,
) -> Result<(), SelfCheckError> {
    let certified = resolver.current().ok_or(SelfCheckError::NoCertificate)?;
    let expected = certified
        .end_entity_cert()
        .map_err(SelfCheckError::Setup)?
        .clone()
        .into_owned();
    let provider = crypto_provider();
    let verifier = Arc::new(Exactly {
        expected,
        signatures: Signatures::default(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SelfCheckError::Setup)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match caller {
        Some(caller) => {
            config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(caller))))
        }
        None => config.with_no_client_auth(),
    };
    let name = ServerName::IpAddress(address.ip().into());
    let handshake = async {
        let stream = TcpStream::connect(reachable(address).as_slice()).await?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        // With TLS 1.3 the handshake is over on this side before the other has judged the caller: what it says when it
        // is asked to end, a farewell or an alert, is its answer.
        stream.shutdown().await?;
        stream.read(&mut [0]).await.map(drop)
    };
    timeout(DIAL_TIMEOUT, handshake)
        .await
        .map_err(|_| SelfCheckError::Timeout)?
        .map_err(SelfCheckError::Dial)
}

/// Where a port is reached from here; one that listens everywhere wherever there is a loopback, which a pod without IPv6 has
/// of IPv4 alone.
fn reachable(address: SocketAddr) -> Vec<SocketAddr> {
    let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
    let ips = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => vec![v4],
        IpAddr::V6(ip) if ip.is_unspecified() => vec![v6, v4],
        ip => vec![ip],
    };
    ips.into_iter()
        .map(|ip| SocketAddr::new(ip, address.port()))
        .collect()
}

/// Accepts one certificate, whoever signed it: the question here is what is served, not whether others trust it.
#[derive(Debug)]
struct Exactly {
    expected: CertificateDer<'static>,
    signatures: Signatures,
}

impl ServerCertVerifier for Exactly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.expected {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.tls12(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signatures.tls13(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signatures.schemes()
    }
}
