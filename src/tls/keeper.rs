//! Keeps the CA in its Secret, the caBundle in the webhook configurations and a leaf in the resolver.
//!
//! Runs in every replica. All decisions are those of `rotation` and `leaf`; here are the watches, the writes and the clock.

use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::leader::Lead;

use super::{
    authority::{Authority, Retired},
    config::{KeeperConfig, KeeperError},
    configuration::{Configuration, Kind},
    issue::{Ca, Leaf, ServerName},
    leaf::{LeafStep, Trust, plan_leaf},
    metrics::{CertificateMetrics, Written},
    objects::Objects,
    resolver::{LeafResolver, Renewal},
    rotation::{Change, Published, Role, Step, plan},
    secret,
    status::LeafStatus,
    watches::{Known, Seen, View},
};

/// The wall clock is looked at this often: timers stand still while a process or its machine is paused.
const CLOCK_CHECK: Duration = Duration::from_secs(60);
/// A caBundle that differs for this long is repaired by any replica; the leader does it at once.
const FOLLOWER_PUBLISHES_AFTER: Duration = Duration::from_secs(3);
/// How long a replica that remembers no CA waits before it makes one, where a published caBundle says that others
/// exist: they know which CA is in use, and keep it trusted.
const STRANGER_CREATES_AFTER: Duration = Duration::from_secs(2);
/// The first and the longest pause after a failure.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));
/// The most steps without a pause. A rotation needs two at a time; more means that somebody undoes them.
const MAX_STEPS: usize = 8;

/// Keeps the serving certificate of this replica, and its share of what all replicas have in common.
pub struct Keeper {
    config: KeeperConfig,
    names: Vec<ServerName>,
    objects: Objects,
    resolver: Arc<LeafResolver>,
    status: watch::Sender<Option<LeafStatus>>,
    metrics: CertificateMetrics,
    view: View,
    trust: Trust,
    leaf: Option<Leaf>,
    /// The CAs in use when the Secret could last be read.
    remembered: Vec<Retired>,
    differs_since: Option<Instant>,
    absent_since: Option<Instant>,
}

impl Keeper {
    /// A keeper that does nothing before [`Self::run`].
    pub fn new(client: Client, config: KeeperConfig, metrics: CertificateMetrics) -> Self {
        let mut names = ServerName::of_service(&config.service_name, &config.namespace);
        names.extend(config.extra_names.iter().cloned());
        Self {
            objects: Objects::new(client, &config),
            names,
            config,
            resolver: Arc::default(),
            status: watch::Sender::new(None),
            metrics,
            view: View::default(),
            trust: Trust::default(),
            leaf: None,
            remembered: Vec::new(),
            differs_since: None,
            absent_since: None,
        }
    }

    /// What handshakes take their certificate from.
    pub fn resolver(&self) -> Arc<LeafResolver> {
        self.resolver.clone()
    }

    /// The certificate that is served, `None` before there is one.
    pub fn status(&self) -> watch::Receiver<Option<LeafStatus>> {
        self.status.subscribe()
    }

    /// Keeps the certificate until `shutdown`; `lead` says whether this replica is the one that rotates the CA.
    pub async fn run(
        mut self,
        lead: impl Into<Lead>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), KeeperError> {
        let mut events = self.objects.watch();
        let mut shutdown = pin!(shutdown);
        let mut lead = lead.into();
        let mut failures = 0;
        let mut pause = CLOCK_CHECK;
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => return Ok(()),
                seen = events.next() => {
                    self.see(seen.ok_or(KeeperError::WatchesEnded)?, &mut events).await;
                }
                changed = lead.changes(), if open => open = changed,
                () = tokio::time::sleep(pause) => {}
            }
            // After a pause what is known of Secret and configurations may be of different times.
            let role = if lead.is_certain() {
                Role::Leader
            } else {
                Role::Follower
            };
            pause = match self.step(role).await {
                Ok(pause) => {
                    failures = 0;
                    pause
                }
                Err(error) => {
                    failures += 1;
                    self.complain(&error, failures);
                    retry_after(failures)
                }
            };
        }
    }

    /// Takes in one event and those that wait behind it, so that a burst causes one decision.
    async fn see(&mut self, first: Seen, events: &mut BoxStream<'static, Seen>) {
        let mut next = Some(first);
        while let Some(seen) = next {
            self.view.see(seen);
            next = futures::future::poll_immediate(events.next()).await.flatten();
        }
    }

    fn complain(&self, error: &KeeperError, failures: u32) {
        let error = chain(error);
        // Another replica having been faster is how they agree; it lasts no longer than the watch lags.
        if failures == 1 {
            debug!(%error, "a step of the certificates failed");
        } else {
            self.metrics.failed();
            warn!(%error, failures, "the certificates cannot be kept up to date");
        }
    }

    /// Does all that is to be done now and returns how long there is nothing more to do.
    async fn step(&mut self, role: Role) -> Result<Duration, KeeperError> {
        for _ in 0..MAX_STEPS {
            let now = Timestamp::now();
            self.trust.observe(self.view.published().as_ref(), now);
            let leaf_until = self.keep_leaf(now)?;
            let secret = match self.view.secret() {
                Known::Unknown => return Ok(CLOCK_CHECK),
                Known::Absent => None,
                Known::Present(secret) => Some(secret.clone()),
            };
            let content = secret.as_ref().map(secret::content);
            let published = self.view.published();
            let step = plan(
                content.as_ref(),
                published.as_ref(),
                role,
                &self.config.lifetimes,
                now,
            );
            self.note_absence(secret.is_none(), matches!(step, Step::Publish(_)));
            match step {
                Step::Rest { until } => return Ok(until_or_check(until.min(leaf_until), now)),
                Step::Write(Change::Create) => {
                    if let Some(wait) = self.wait_for_others(published.as_ref()) {
                        return Ok(wait);
                    }
                    self.write(Change::Create, None, now).await?;
                }
                Step::Write(change) => self.write(change, secret, now).await?,
                Step::Publish(bundle) => {
                    if let Some(wait) = self.wait_for_leader(role) {
                        return Ok(wait);
                    }
                    // A configuration is written only if it is still the one that was looked at, but the bundle comes
                    // from the Secret, whose watch may hang while the others live.
                    let secret = self.objects.secret().await?;
                    if !self.view.see_secret(secret) {
                        self.publish(&bundle).await?;
                    }
                }
            }
        }
        warn!(
            "the CA's Secret or the webhook configurations are changed back by somebody else again and again"
        );
        Ok(RETRY.1)
    }

    /// Signs a new leaf where one is due; returns when it is looked at again.
    fn keep_leaf(&mut self, now: Timestamp) -> Result<Timestamp, KeeperError> {
        let authority = match self.view.secret() {
            Known::Present(secret) => Authority::parse(&secret::content(secret)).ok(),
            Known::Unknown | Known::Absent => None,
        };
        let Some(authority) = authority else {
            self.report();
            return Ok(Timestamp::MAX);
        };
        self.remembered = authority.in_use();
        let lifetimes = &self.config.lifetimes;
        let until = match plan_leaf(self.leaf.as_ref(), &authority, &self.trust, lifetimes, now) {
            LeafStep::Keep { until } => until,
            LeafStep::Sign(why) => {
                let leaf = authority.current.sign_leaf(&self.names, lifetimes, now)?;
                info!(serial = leaf.serial, not_after = %leaf.validity.not_after, %why, "serving a new certificate");
                let renewal = Renewal {
                    ca: authority.current,
                    names: self.names.clone(),
                    lifetimes: *lifetimes,
                };
                self.resolver.set_renewable(&leaf, renewal);
                self.metrics.leaf_taken();
                let due = leaf.validity.renewal_due();
                self.leaf = Some(leaf);
                due
            }
        };
        self.report();
        Ok(until)
    }

    fn report(&self) {
        let status = self.leaf.as_ref().map(|leaf| LeafStatus {
            not_after: leaf.validity.not_after,
            ca_not_after: Some(leaf.ca_not_after),
            serial: leaf.serial.clone(),
            trusted: self.trust.accepts(&leaf.issuer),
        });
        if let Some(status) = &status {
            self.metrics.observe(status);
        }
        self.report_configurations();
        self.status.send_if_modified(|present| {
            let differs = *present != status;
            *present = status;
            differs
        });
    }

    /// What is not known yet is not told: neither a configuration before it was looked for, nor whether it trusts us
    /// before there is a certificate.
    fn report_configurations(&self) {
        for kind in [Kind::Mutating, Kind::Validating] {
            let ok = match (self.view.configuration(kind), &self.leaf) {
                (Known::Absent, _) => false,
                (Known::Present(configuration), Some(leaf)) => configuration.trusts(&leaf.issuer),
                (Known::Present(_), None) | (Known::Unknown, _) => continue,
            };
            self.metrics.configured(kind.word(), ok);
        }
    }

    fn note_absence(&mut self, absent: bool, differs: bool) {
        let begin = |since: Option<Instant>, holds: bool| holds.then(|| since.unwrap_or_else(Instant::now));
        self.absent_since = begin(self.absent_since, absent);
        self.differs_since = begin(self.differs_since, differs);
    }

    fn wait_for_others(&self, published: Option<&Published>) -> Option<Duration> {
        let others =
            published.is_some_and(|published| published.bundles.iter().any(|bundle| !bundle.is_empty()));
        let stranger = self.remembered.is_empty();
        (others && stranger)
            .then(|| remaining(self.absent_since, STRANGER_CREATES_AFTER))
            .flatten()
    }

    fn wait_for_leader(&self, role: Role) -> Option<Duration> {
        match role {
            Role::Leader => None,
            Role::Follower => remaining(self.differs_since, FOLLOWER_PUBLISHES_AFTER),
        }
    }

    async fn write(
        &mut self,
        change: Change,
        secret: Option<Secret>,
        now: Timestamp,
    ) -> Result<(), KeeperError> {
        let lifetimes = &self.config.lifetimes;
        let made = change
            .needs_a_ca()
            .then(|| Ca::generate(lifetimes, now))
            .transpose()?;
        let before = secret.as_ref().map(secret::content).unwrap_or_default();
        let after = change.apply(&before, made.as_ref(), &self.remembered, lifetimes, now);
        let written = if let Some(secret) = secret {
            self.objects.replace(&secret::with_content(secret, after)).await?
        } else {
            let secret = secret::new(&self.config.secret_name, &self.config.namespace, after);
            self.objects.create(&secret).await?
        };
        info!(
            secret = self.config.secret_name,
            namespace = self.config.namespace,
            "{change}"
        );
        self.metrics.wrote(Written::secret);
        self.view.see(Seen::written_secret(written));
        Ok(())
    }

    async fn publish(&mut self, bundle: &str) -> Result<(), KeeperError> {
        let configurations: Vec<Configuration> = self.view.configurations().cloned().collect();
        for configuration in configurations {
            let Some(patch) = configuration.patch(bundle) else {
                continue;
            };
            let patched = self.objects.patch(configuration.kind, patch).await?;
            info!(
                kind = configuration.kind.name(),
                name = self.config.configuration_name,
                "published the caBundle"
            );
            self.metrics.wrote(Written::configuration);
            self.view.see(Seen::written_configuration(patched));
        }
        Ok(())
    }
}

fn remaining(since: Option<Instant>, wait: Duration) -> Option<Duration> {
    wait.checked_sub(since.map(|since| since.elapsed()).unwrap_or_default())
        .filter(|left| !left.is_zero())
}

fn until_or_check(until: Timestamp, now: Timestamp) -> Duration {
    let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
    // Timers may be a bit early: not before it is over, and never in a spin.
    left.saturating_add(Duration::from_millis(20)).min(CLOCK_CHECK)
}

fn retry_after(failures: u32) -> Duration {
    RETRY
        .0
        .saturating_mul(1 << failures.saturating_sub(1).min(16))
        .min(RETRY.1)
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |error| error.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;
    use crate::tls::watches::Observation;
    use crate::view::fixtures::api_server;

    #[tokio::test]
    async fn configurations_are_told_as_they_were_last_seen_and_not_before() {
        let mut registry = Registry::default();
        let metrics = CertificateMetrics::register(&mut registry);
        let client = api_server(StatusCode::NOT_FOUND, "{}");
        let mut keeper = Keeper::new(client, KeeperConfig::default(), metrics);
        let now = Timestamp::now();
        let lifetimes = keeper.config.lifetimes;
        let [ours, other] = [(); 2].map(|()| Ca::generate(&lifetimes, now).unwrap());
        let shown = |keeper: &Keeper| {
            keeper.report();
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let shown = text
                .lines()
                .filter_map(|line| line.strip_prefix("webhook_config_ok{configuration="));
            shown.map(str::to_owned).collect::<Vec<_>>()
        };
        let mut version = 0;
        let mut present = |kind, ca: &Ca| {
            version += 1;
            Seen::written_configuration(Configuration {
                kind,
                resource_version: version.to_string(),
                bundles: vec![ca.certificate_pem().into_bytes()],
            })
        };
        keeper.view.see(present(Kind::Mutating, &ours));
        assert_eq!(shown(&keeper), [""; 0], "there is no certificate to trust yet");
        keeper.leaf = Some(ours.sign_leaf(&keeper.names, &lifetimes, now).unwrap());
        assert_eq!(shown(&keeper), ["\"mutating\"} 1"]);
        keeper.view.see(present(Kind::Mutating, &other));
        assert_eq!(shown(&keeper), ["\"mutating\"} 0"]);
        keeper.view.see(present(Kind::Mutating, &ours));
        assert_eq!(shown(&keeper), ["\"mutating\"} 1"]);
        let deleted = Observation::absent(0, false);
        keeper.view.see(Seen::Configuration(Kind::Mutating, deleted));
        assert_eq!(shown(&keeper), ["\"mutating\"} 0"]);
    }
}
