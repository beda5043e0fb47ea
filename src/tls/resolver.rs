//! Hands the present certificate to each handshake, and makes the TLS configuration around it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};

use super::pem;

/// The TLS configuration could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The crypto provider cannot do what is asked of it.
    #[error("failed to set up TLS 1.2 and 1.3")]
    Versions(#[source] rustls::Error),
    /// The client CAs cannot be used.
    #[error("failed to read the CAs of the client certificates: {0}")]
    ClientCa(pem::Fault),
    /// The client CAs make no verifier.
    #[error("failed to set up the check of client certificates")]
    Verifier(#[source] rustls::server::VerifierBuilderError),
}

/// The serving certificate of the moment. A handshake takes it without a lock; one that is under way keeps what it has.
#[derive(Debug, Default)]
pub struct LeafResolver {
    current: ArcSwapOption<CertifiedKey>,
}

impl LeafResolver {
    /// Serves this certificate from the next handshake on.
    pub fn set(&self, certified: Arc<CertifiedKey>) {
        self.current.store(Some(certified));
    }

    /// The certificate that is served now; handshakes fail while there is none.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

impl ResolvesServerCert for LeafResolver {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

/// Whether callers have to show a certificate.
#[derive(Debug, Clone, Copy, Default)]
pub enum ClientAuth<'a> {
    /// Anybody may call. What they may learn is a verdict on their own question.
    #[default]
    None,
    /// Only those with a certificate of these CAs (PEM). API servers get theirs by `--admission-control-config-file`.
    Required(&'a [u8]),
}

/// The crypto provider that all of Flock uses.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}

/// TLS 1.3 and 1.2, HTTP/1.1 (API servers speak nothing else to webhooks), the certificate of the resolver.
pub fn server_config(
    resolver: Arc<LeafResolver>,
    client_auth: ClientAuth<'_>,
) -> Result<ServerConfig, ConfigError> {
    let builder = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(ConfigError::Versions)?;
    let builder = match client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Required(cas) => {
            let mut roots = RootCertStore::empty();
            for ca in pem::certificates(cas).map_err(ConfigError::ClientCa)? {
                roots
                    .add(ca)
                    .map_err(|_| ConfigError::ClientCa(pem::Fault::NotX509))?;
            }
            builder.with_client_cert_verifier(
                WebPkiClientVerifier::builder_with_provider(roots.into(), crypto_provider())
                    .build()
                    .map_err(ConfigError::Verifier)?,
            )
        }
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // API servers resume no session. Without them there is nothing to remember, and a new leaf serves all at once.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
