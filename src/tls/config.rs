//! What the keeper needs to know, and what may go wrong for it.

use std::time::Duration;

use super::{
    issue::{IssueError, ServerName},
    lifetime::Lifetimes,
};

/// What the keeper needs to know.
#[derive(Debug, Clone)]
pub struct KeeperConfig {
    /// Namespace of the Secret and the Service.
    pub namespace: String,
    /// Name of the CA's Secret.
    pub secret_name: String,
    /// Name of both webhook configurations.
    pub configuration_name: String,
    /// Name of the Service that API servers call.
    pub service_name: String,
    /// Further names that the leaf is valid for, such as the host of `--webhook-url`.
    pub extra_names: Vec<ServerName>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
}

impl Default for KeeperConfig {
    fn default() -> Self {
        Self {
            namespace: "flock-system".into(),
            secret_name: "flock-ca".into(),
            configuration_name: "flock".into(),
            service_name: "flock".into(),
            extra_names: Vec::new(),
            lifetimes: Lifetimes::default(),
        }
    }
}

/// A step of the keeper failed; it tries again.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A certificate could not be made.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The API server refused or did not answer.
    #[error("failed to {attempt} {object}: {way_out}")]
    Api {
        /// What was tried.
        attempt: &'static str,
        /// On which object.
        object: String,
        /// What a person can do.
        way_out: &'static str,
        /// The answer.
        #[source]
        source: kube::Error,
    },
    /// The API server did not answer in time.
    #[error("failed to {attempt} {object}: no answer within {} s; is the API server overloaded?", .after.as_secs())]
    Timeout {
        /// What was tried.
        attempt: &'static str,
        /// On which object.
        object: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The watches ended, which they never do by themselves.
    #[error("the watches of the certificates' objects ended; restart the process")]
    WatchesEnded,
}
