//! Certificates from where the arguments say.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument, info_span};

use crate::args::{Certificates, ServeArgs};
use crate::leader::Lead;
use crate::serve::Condition;
use crate::tls::issue::ServerName;
use crate::tls::lifetime::{Lifetimes, Validity};
use crate::tls::{
    CertificateMetrics, ClientAuth, ClientCaKeeper, DirectoryKeeper, Keeper, KeeperConfig, LeafResolver,
    LeafStatus,
};

/// How often it is looked whether the certificate is still valid.
const VALIDITY_CHECK: Duration = Duration::from_secs(10);

/// Starts what keeps the certificate; where it is, and what is known of it.
pub(super) fn certificates(
    args: &ServeArgs,
    client: Client,
    lead: Lead,
    metrics: CertificateMetrics,
    tasks: &mut JoinSet<()>,
) -> (Arc<LeafResolver>, watch::Receiver<Option<LeafStatus>>) {
    match args.certificates {
        Certificates::SelfSigned => {
            let config = KeeperConfig {
                namespace: args.namespace.clone(),
                service_name: args.service_name.clone(),
                extra_names: args
                    .webhook_url
                    .iter()
                    .filter_map(|url| host(url))
                    .map(ServerName::parse)
                    .collect(),
                lifetimes: lifetimes(args.test_ca_life, args.test_leaf_life),
                ..KeeperConfig::default()
            };
            let keeper = Keeper::new(client, config, metrics);
            let (resolver, status) = (keeper.resolver(), keeper.status());
            tasks.spawn(
                async move {
                    if let Err(error) = keeper.run(lead, std::future::pending()).await {
                        tracing::error!(%error, "the certificates' keeper ended");
                    }
                }
                .instrument(info_span!("certificates")),
            );
            (resolver, status)
        }
        Certificates::CertManager => {
            let keeper = DirectoryKeeper::new(args.certificate_dir.clone(), metrics);
            let (resolver, status) = (keeper.resolver(), keeper.status());
            tasks.spawn(
                async move {
                    keeper.run(std::future::pending()).await;
                }
                .instrument(info_span!("certificates")),
            );
            (resolver, status)
        }
    }
}

/// Whom the webhook lets in; starts what follows their CAs.
pub(super) async fn client_auth(
    args: &ServeArgs,
    metrics: CertificateMetrics,
    tasks: &mut JoinSet<()>,
) -> Result<ClientAuth> {
    let Some(path) = &args.client_ca else {
        return Ok(ClientAuth::None);
    };
    let keeper = ClientCaKeeper::open(path.clone(), args.client_names.clone(), metrics).await?;
    let verifier = keeper.verifier();
    tasks.spawn(
        keeper
            .run(std::future::pending())
            .instrument(info_span!("certificates")),
    );
    Ok(ClientAuth::Required(verifier))
}

/// The usual ones, but for what is asked for.
fn lifetimes(ca_life: u32, leaf_life: u32) -> Lifetimes {
    let mut lifetimes = Lifetimes::default();
    if ca_life > 0 {
        lifetimes.ca = Duration::from_secs(ca_life.into());
        lifetimes.settle = Duration::from_secs(2);
    }
    if leaf_life > 0 {
        lifetimes.leaf = Duration::from_secs(leaf_life.into());
    }
    if ca_life > 0 || leaf_life > 0 {
        // Two thirds of so short a life would be over before it begins.
        lifetimes.backdate = Duration::ZERO;
    }
    lifetimes
}

/// Met while a certificate is there that API servers trust, and that is valid.
pub(super) async fn watch_certificate(
    mut status: watch::Receiver<Option<LeafStatus>>,
    resolver: Arc<LeafResolver>,
    condition: Condition,
) {
    loop {
        let leaf = status.borrow_and_update().clone();
        let now = Timestamp::now();
        match why_not(leaf.as_ref(), resolver.validity(now).as_ref(), now) {
            None => condition.met(),
            Some(reason) => condition.unmet(reason),
        }
        // A certificate may end, and a clock may be set, without anything else changing.
        if let Ok(Err(_)) = tokio::time::timeout(VALIDITY_CHECK, status.changed()).await {
            return;
        }
    }
}

/// Why this replica's certificate is of no use. API servers refuse one that is not valid, so nothing is lost by leaving
/// their calls to replicas that have one.
fn why_not(
    leaf: Option<&LeafStatus>,
    validity: Option<&Validity>,
    now: Timestamp,
) -> Option<Cow<'static, str>> {
    let (Some(leaf), Some(validity)) = (leaf, validity) else {
        return Some("no certificate yet".into());
    };
    if !leaf.trusted {
        Some("the webhook configurations do not carry our CA yet".into())
    } else if validity.has_expired(now) {
        Some(
            format!(
                "the certificate expired at {}: does what renews it run?",
                validity.not_after
            )
            .into(),
        )
    } else if validity.is_in_the_future(now) {
        let begins = validity.not_before;
        Some(format!("the certificate is not valid before {begins}: is this node's clock right?").into())
    } else {
        None
    }
}

fn host(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split('/').next()?;
    Some(match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => authority.split(':').next()?,
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn t(second: i64) -> Timestamp {
        Timestamp::from_second(1_900_000_000 + second).unwrap()
    }

    #[rstest]
    #[case::in_its_first_second(true, 0, None)]
    #[case::in_its_last_second(true, 60, None)]
    #[case::not_published(false, 0, Some("do not carry our CA"))]
    #[case::expired(true, 61, Some("expired at"))]
    #[case::of_the_future(true, -1, Some("not valid before"))]
    fn a_certificate_is_of_use_while_it_is_trusted_and_valid(
        #[case] trusted: bool,
        #[case] now: i64,
        #[case] says: Option<&str>,
    ) {
        let validity = Validity {
            not_before: t(0),
            not_after: t(60),
        };
        let leaf = LeafStatus {
            not_after: validity.not_after,
            ca_not_after: None,
            serial: "1".into(),
            trusted,
        };
        let why = why_not(Some(&leaf), Some(&validity), t(now));
        assert_eq!(why.is_some(), says.is_some(), "{why:?}");
        assert!(why.unwrap_or_default().contains(says.unwrap_or_default()));
        assert!(
            why_not(None, None, t(now))
                .unwrap()
                .contains("no certificate yet")
        );
    }
}
