//! Serves a certificate that another (cert-manager) writes and the kubelet mounts: `tls.crt` and `tls.key` of a directory.
//!
//! The kubelet swaps a symbolic link, which file notifications miss after the first time: the bytes are read and compared.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{
    file,
    lifetime::Validity,
    metrics::CertificateMetrics,
    pem::{self, Fault},
    resolver::{LeafResolver, crypto_provider},
    status::LeafStatus,
};

/// How often the files are read; the kubelet itself takes up to a minute to write them.
const POLL: Duration = Duration::from_secs(10);
const CERTIFICATE_FILE: &str = "tls.crt";
const KEY_FILE: &str = "tls.key";

/// The certificate of the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// A file cannot be read.
    #[error("failed to read {}: is the Secret mounted there?", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A file holds something else.
    #[error("{} cannot be used: {fault}", .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
    },
    /// The validity is over.
    #[error("the certificate in {} expired at {not_after}: does cert-manager renew it?", .path.display())]
    Expired {
        /// Which file.
        path: PathBuf,
        /// When.
        not_after: Timestamp,
    },
}

/// Serves the certificate of a directory and takes over every new one.
pub struct DirectoryKeeper {
    directory: PathBuf,
    poll: Duration,
    resolver: Arc<LeafResolver>,
    status: watch::Sender<Option<LeafStatus>>,
    metrics: CertificateMetrics,
}

#[derive(PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl DirectoryKeeper {
    /// A keeper that does nothing before [`Self::run`].
    pub fn new(directory: PathBuf, metrics: CertificateMetrics) -> Self {
        Self {
            directory,
            poll: POLL,
            resolver: Arc::default(),
            status: watch::Sender::new(None),
            metrics,
        }
    }

    /// The same keeper, looking at its files this often.
    #[must_use]
    pub fn poll_every(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// What handshakes take their certificate from.
    pub fn resolver(&self) -> Arc<LeafResolver> {
        self.resolver.clone()
    }

    /// The certificate that is served, `None` before there is one.
    pub fn status(&self) -> watch::Receiver<Option<LeafStatus>> {
        self.status.subscribe()
    }

    /// Keeps the certificate until `shutdown`. What cannot be used is logged, and the last good pair goes on serving.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let mut served = None;
        let mut failures = 0_u32;
        loop {
            match self.look(served.as_ref(), Timestamp::now()).await {
                Ok(Some(pair)) => served = Some(pair),
                Ok(None) => failures = 0,
                Err(error) => {
                    self.metrics.failed();
                    // Certificate and key are two reads: once, they may be of two generations.
                    if failures > 0 {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        warn!(%error, cause, serving = served.is_some(), "keeping the certificate as it is");
                    }
                    failures += 1;
                }
            }
            let pause = if failures == 1 {
                self.poll.min(Duration::from_secs(1))
            } else {
                self.poll
            };
            tokio::select! {
                () = &mut shutdown => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&self, served: Option<&Pair>, now: Timestamp) -> Result<Option<Pair>, DirectoryError> {
        let pair = Pair {
            certificate: read(self.directory.join(CERTIFICATE_FILE)).await?,
            key: read(self.directory.join(KEY_FILE)).await?,
        };
        if served == Some(&pair) {
            return Ok(None);
        }
        let (certified, status, validity) = load(&self.directory, &pair, now)?;
        // By a clock that is behind it is not valid yet. What is served is, by the same clock: it stays until then.
        let served_holds = || {
            self.resolver
                .validity(now)
                .is_some_and(|validity| validity.holds(now))
        };
        if validity.is_in_the_future(now) && served_holds() {
            return Ok(None);
        }
        info!(serial = status.serial, not_after = %status.not_after, "serving a new certificate");
        self.resolver.set(Arc::new(certified));
        self.metrics.leaf_taken();
        self.metrics.observe(&status);
        self.status.send_replace(Some(status));
        Ok(Some(pair))
    }
}

async fn read(path: PathBuf) -> Result<Vec<u8>, DirectoryError> {
    match file::read(&path).await {
        Ok(bytes) => Ok(bytes),
        Err(source) => Err(DirectoryError::Read { path, source }),
    }
}

fn load(
    directory: &Path,
    pair: &Pair,
    now: Timestamp,
) -> Result<(CertifiedKey, LeafStatus, Validity), DirectoryError> {
    let fault = |file: &str| {
        let path = directory.join(file);
        move |fault| DirectoryError::Content { path, fault }
    };
    let chain = pem::certificates(&pair.certificate).map_err(fault(CERTIFICATE_FILE))?;
    let facts = chain
        .first()
        .ok_or(Fault::Empty)
        .and_then(facts)
        .map_err(fault(CERTIFICATE_FILE))?;
    let key = signing_key(&pair.key).map_err(fault(KEY_FILE))?;
    let certified = CertifiedKey::new(chain, key);
    certified
        .keys_match()
        .map_err(|_| fault(KEY_FILE)(Fault::KeyMismatch))?;
    if facts.validity.has_expired(now) {
        let path = directory.join(CERTIFICATE_FILE);
        return Err(DirectoryError::Expired {
            path,
            not_after: facts.validity.not_after,
        });
    }
    let status = LeafStatus {
        not_after: facts.validity.not_after,
        ca_not_after: None,
        serial: facts.serial,
        trusted: true,
    };
    Ok((certified, status, facts.validity))
}

fn facts(certificate: &CertificateDer<'static>) -> Result<pem::Facts, Fault> {
    pem::facts(certificate)
}

/// Any kind of key that TLS knows: here the issuer chooses, not Flock.
fn signing_key(text: &[u8]) -> Result<Arc<dyn rustls::sign::SigningKey>, Fault> {
    if text.len() > pem::MAX_BYTES {
        return Err(Fault::TooLarge);
    }
    let der = PrivateKeyDer::from_pem_slice(text).map_err(|_| Fault::NotPem)?;
    crypto_provider()
        .key_provider
        .load_private_key(der)
        .map_err(|_| Fault::WrongKeyType)
}
