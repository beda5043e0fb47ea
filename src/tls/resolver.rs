//! Hands the present certificate to each handshake, and makes the TLS configuration around it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use tracing::{info, warn};

use super::{
    callers::ClientVerifier,
    issue::{Ca, Leaf, ServerName},
    lifetime::{Lifetimes, Validity},
    pem,
};

/// The TLS configuration could not be made: the crypto provider cannot do what is asked of it.
#[derive(Debug, thiserror::Error)]
#[error("failed to set up TLS 1.2 and 1.3")]
pub struct ConfigError(#[source] rustls::Error);

/// The serving certificate of the moment. A handshake takes it without a lock; one that is under way keeps what it has.
#[derive(Debug, Default)]
pub struct LeafResolver {
    current: ArcSwapOption<Served>,
    signing: Mutex<()>,
}

#[derive(Debug)]
struct Served {
    certified: Arc<CertifiedKey>,
    /// `None` where it cannot be read.
    validity: Option<Validity>,
    /// What it is signed anew from where it is not valid.
    renewal: Option<Arc<Renewal>>,
}

/// What leaves are signed from.
#[derive(Debug)]
pub(super) struct Renewal {
    pub(super) ca: Ca,
    pub(super) names: Vec<ServerName>,
    pub(super) lifetimes: Lifetimes,
}

impl LeafResolver {
    /// Serves this certificate from the next handshake on.
    pub fn set(&self, certified: Arc<CertifiedKey>) {
        let leaf = certified.cert.first().map(pem::facts);
        let validity = leaf.and_then(Result::ok).map(|facts| facts.validity);
        self.current.store(Some(Arc::new(Served {
            certified,
            validity,
            renewal: None,
        })));
    }

    /// Serves this leaf from the next handshake on, and another one of the same CA where it is not valid by then: after
    /// a pause of the process or its machine, or when its clock is set, callers may be here before the keeper has seen
    /// what time it is.
    pub(super) fn set_renewable(&self, leaf: &Leaf, renewal: Renewal) {
        self.current
            .store(Some(Served::new(leaf, Arc::new(renewal)).into()));
    }

    /// The certificate that is served now; handshakes fail while there is none.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        Some(self.at(Timestamp::now())?.certified.clone())
    }

    /// When what a handshake at this moment gets is valid; `None` while there is nothing, or it cannot be read.
    pub fn validity(&self, now: Timestamp) -> Option<Validity> {
        self.at(now)?.validity
    }

    fn at(&self, now: Timestamp) -> Option<Arc<Served>> {
        let served = self.current.load_full()?;
        if served.unusable(now).is_none() {
            return Some(served);
        }
        // One of those who come signs for all.
        let _signing = self.signing.lock();
        let served = self.current.load_full()?;
        let renewed = served.unusable(now).and_then(|renewal| renewal.sign(now));
        let renewed = renewed.map(Arc::new).inspect(|renewed| {
            self.current.store(Some(renewed.clone()));
        });
        Some(renewed.unwrap_or(served))
    }
}

impl Served {
    fn new(leaf: &Leaf, renewal: Arc<Renewal>) -> Self {
        Self {
            certified: leaf.certified.clone(),
            validity: Some(leaf.validity),
            renewal: Some(renewal),
        }
    }

    /// What it can be signed anew from, if it is not valid.
    fn unusable(&self, now: Timestamp) -> Option<&Arc<Renewal>> {
        let valid = self.validity.is_some_and(|validity| validity.holds(now));
        self.renewal.as_ref().filter(|_| !valid)
    }
}

impl Renewal {
    /// Another leaf, while the CA itself is valid.
    fn sign(self: &Arc<Self>, now: Timestamp) -> Option<Served> {
        if !self.ca.validity().holds(now) {
            return None;
        }
        match self.ca.sign_leaf(&self.names, &self.lifetimes, now) {
            Ok(leaf) => {
                info!(serial = leaf.serial, not_after = %leaf.validity.not_after, "a caller came before the keeper: serving a new certificate");
                Some(Served::new(&leaf, self.clone()))
            }
            Err(error) => {
                warn!(%error, "the certificate is not valid now and cannot be renewed");
                None
            }
        }
    }
}

impl ResolvesServerCert for LeafResolver {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

/// Whether callers have to show a certificate.
#[derive(Debug, Clone, Default)]
pub enum ClientAuth {
    /// Anybody may call. What they may learn is a verdict on their own question.
    #[default]
    None,
    /// Only those whose certificate this lets pass. API servers get theirs by `--admission-control-config-file`.
    Required(Arc<ClientVerifier>),
}

/// The crypto provider that all of Flock uses.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    rustls::crypto::ring::default_provider().into()
}

/// TLS 1.3 and 1.2, HTTP/1.1 (API servers speak nothing else to webhooks), the certificate of the resolver.
pub fn server_config(
    resolver: Arc<LeafResolver>,
    client_auth: ClientAuth,
) -> Result<ServerConfig, ConfigError> {
    let builder = ServerConfig::builder_with_provider(crypto_provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(ConfigError)?;
    let builder = match client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Required(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // API servers resume no session. Without them there is nothing to remember, and a new leaf serves all at once, as
    // do other client CAs.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    reason = "a test says by panicking that something is not as it should be"
)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::tls::lifetime::{earlier, later};

    /// A leaf of a minute, of a CA of an hour.
    fn resolver(begun: Timestamp) -> LeafResolver {
        let lifetimes = Lifetimes {
            ca: Duration::from_secs(3600),
            leaf: Duration::from_secs(60),
            ..Lifetimes::default()
        };
        let ca = Ca::generate(&lifetimes, begun).unwrap();
        let names = vec![ServerName::parse("flock.flock-system.svc")];
        let leaf = ca.sign_leaf(&names, &lifetimes, begun).unwrap();
        let resolver = LeafResolver::default();
        resolver.set_renewable(&leaf, Renewal { ca, names, lifetimes });
        resolver
    }

    fn facts(resolver: &LeafResolver, now: Timestamp) -> pem::Facts {
        pem::facts(&resolver.at(now).unwrap().certified.cert[0]).unwrap()
    }

    #[test]
    fn a_caller_after_the_leaf_s_end_gets_another_one_and_the_next_caller_the_same() {
        let begun = Timestamp::now();
        let resolver = resolver(begun);
        let (first, end) = (facts(&resolver, begun), later(begun, Duration::from_secs(60)));
        assert_eq!(facts(&resolver, first.validity.not_after).serial, first.serial);
        let late = later(end, Duration::from_secs(5));
        let second = facts(&resolver, late);
        assert_ne!(second.serial, first.serial);
        assert!(!second.validity.has_expired(late));
        assert_eq!(facts(&resolver, late).serial, second.serial);
    }

    #[test]
    fn after_the_clock_was_set_back_the_next_caller_gets_a_leaf_that_is_valid() {
        let begun = Timestamp::now();
        let resolver = resolver(begun);
        let ahead = later(begun, Duration::from_secs(3600));
        let names = vec![ServerName::parse("flock.flock-system.svc")];
        let lifetimes = Lifetimes {
            backdate: Duration::ZERO,
            ..Lifetimes::default()
        };
        let ca = Ca::generate(&Lifetimes::default(), begun).unwrap();
        let leaf = ca.sign_leaf(&names, &lifetimes, ahead).unwrap();
        resolver.set_renewable(&leaf, Renewal { ca, names, lifetimes });
        assert_eq!(facts(&resolver, ahead).serial, leaf.serial);
        assert!(facts(&resolver, begun).validity.holds(begun));
        assert!(resolver.validity(begun).unwrap().holds(begun));
    }

    #[test]
    fn outside_of_the_ca_s_life_the_leaf_stays_as_it_is() {
        let begun = Timestamp::now();
        let resolver = resolver(begun);
        let first = facts(&resolver, begun);
        let late = later(begun, Duration::from_secs(3605));
        assert_eq!(facts(&resolver, late).serial, first.serial);
        let early = earlier(begun, Duration::from_secs(2 * 3600));
        assert_eq!(facts(&resolver, early).serial, first.serial);
        assert!(!resolver.validity(early).unwrap().holds(early));
    }

    #[test]
    fn the_validity_of_what_another_signed_is_known() {
        let begun = Timestamp::now();
        let served = resolver(begun).current().unwrap();
        let resolver = LeafResolver::default();
        assert_eq!(resolver.validity(begun), None);
        resolver.set(served);
        let late = later(begun, Duration::from_secs(65));
        assert!(!resolver.validity(late).unwrap().holds(late));
    }
}
