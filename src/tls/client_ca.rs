//! The CAs of those who may call, in a file that another writes and the kubelet mounts.
//!
//! As in `directory`, the bytes are read and compared: file notifications miss links that are swapped.

use std::{
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{info, warn};

use super::{
    callers::{ClientCaFault, ClientVerifier},
    file,
    metrics::CertificateMetrics,
};
use crate::telemetry::Sparse;

/// How often the file is read; the kubelet itself takes up to a minute to write it.
const POLL: Duration = Duration::from_secs(10);
/// How often a file that stays bad is told of.
const REMIND: Duration = Duration::from_secs(300);

/// The file of client CAs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// It cannot be read.
    #[error("failed to read the client CAs in {}: is the ConfigMap or Secret mounted there, with a key of that name?", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("{} cannot be used for client CAs: {fault}; put the certificates of the CAs there, in PEM", .path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        fault: ClientCaFault,
    },
}

/// Keeps a verifier at what its file says.
pub struct ClientCaKeeper {
    path: PathBuf,
    poll: Duration,
    /// What is in force.
    read: Vec<u8>,
    verifier: Arc<ClientVerifier>,
    metrics: CertificateMetrics,
}

impl ClientCaKeeper {
    /// Reads the file for the first time. `names` are those that may call; none: all that the CAs sign for.
    pub async fn open(
        path: PathBuf,
        names: Vec<String>,
        metrics: CertificateMetrics,
    ) -> Result<Self, ClientCaError> {
        let read = read(&path).await?;
        let verifier = ClientVerifier::new(&read, names).map_err(|fault| ClientCaError::Content {
            path: path.clone(),
            fault,
        })?;
        Ok(Self {
            path,
            poll: POLL,
            read,
            verifier: Arc::new(verifier),
            metrics,
        })
    }

    /// The same keeper, looking at its file this often.
    #[must_use]
    pub fn poll_every(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// What handshakes ask.
    pub fn verifier(&self) -> Arc<ClientVerifier> {
        Arc::clone(&self.verifier)
    }

    /// Follows the file until `shutdown`. What cannot be used is logged, and the last good CAs go on counting.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let (mut told, reminders) = (None, Sparse::new(1, REMIND));
        loop {
            match self.look().await {
                Ok(changed) => {
                    // The file may be as it was before it was bad, and that is news too.
                    if changed || told.take().is_some() {
                        info!(file = %self.path.display(), "client certificates of these CAs are let in");
                    }
                }
                Err(error) => {
                    self.metrics.failed();
                    let text = error.to_string();
                    let due = reminders.pass(Instant::now()).is_some();
                    if due || told.as_ref() != Some(&text) {
                        let cause = std::error::Error::source(&error).map(ToString::to_string);
                        warn!(%error, cause, "keeping the client CAs as they are");
                    }
                    told = Some(text);
                }
            }
            tokio::select! {
                () = &mut shutdown => return,
                () = tokio::time::sleep(self.poll) => {}
            }
        }
    }

    /// Whether there were other CAs than before.
    async fn look(&mut self) -> Result<bool, ClientCaError> {
        let read = read(&self.path).await?;
        if read == self.read {
            return Ok(false);
        }
        self.verifier
            .trust(&read)
            .map_err(|fault| ClientCaError::Content {
                path: self.path.clone(),
                fault,
            })?;
        self.read = read;
        Ok(true)
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, ClientCaError> {
    let path = path.to_owned();
    file::read(&path)
        .await
        .map_err(|source| ClientCaError::Read { path, source })
}
