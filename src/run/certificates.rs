//! Certificates from where the arguments say.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{Instrument, info_span};

use crate::args::{Certificates, ServeArgs};
use crate::leader::Lead;
use crate::serve::Condition;
use crate::tls::issue::ServerName;
use crate::tls::lifetime::Lifetimes;
use crate::tls::{
    CertificateMetrics, ClientAuth, ClientCaKeeper, DirectoryKeeper, Keeper, KeeperConfig, LeafResolver,
    LeafStatus,
};

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

/// Met while a certificate is there that API servers trust.
pub(super) async fn watch_certificate(mut status: watch::Receiver<Option<LeafStatus>>, condition: Condition) {
    loop {
        match status.borrow_and_update().as_ref() {
            Some(leaf) if leaf.trusted => condition.met(),
            Some(_) => condition.unmet("the webhook configurations do not carry our CA yet"),
            None => condition.unmet("no certificate yet"),
        }
        if status.changed().await.is_err() {
            return;
        }
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
