//! `flock doctor`: checks an installation with the rights of whoever runs it, and says what is wrong and what to do.
//!
//! `gather` asks, `attempts` tries (all of it `dry run`), `judge` decides.

pub mod attempts;
pub mod finding;
pub mod gather;
pub mod judge;
pub mod manifests;
pub mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Client;
use kube::api::Api;
use serde_json::Value;
use thiserror::Error;

use super::look::{Cluster, LookError, look_at};
use crate::view::View;
use finding::{Finding, Report, Verdict};
use judge::setup::Setup;
use judge::webhooks::Kind;
use manifests::Manifests;
use seen::Seen;

/// `flock doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Flock's own namespace.
    #[arg(short, long, default_value = "flock-system")]
    pub namespace: String,
    /// Where pods are tried by a dry run, which stores nothing; without it the context's namespace.
    #[arg(long, value_name = "NAMESPACE")]
    pub probe_namespace: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub cluster: Cluster,
}

/// Why the doctor is not content.
#[derive(Debug, Error)]
pub enum DoctorError {
    /// The cluster cannot be reached.
    #[error(transparent)]
    Look(#[from] LookError),
    /// The API server does not answer.
    #[error("the API server does not answer; nothing was checked")]
    Unreachable(#[source] kube::Error),
    /// The manifests in this program cannot be read: a fault of the program.
    #[error("this program's own manifests cannot be read: {0}; please report it")]
    Manifests(String),
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Output(#[from] std::io::Error),
    /// Something does not work.
    #[error("{0} of the findings are broken")]
    Broken(usize),
}

/// Checks, and tells on `out`. Findings that are broken are an error, after all was told.
pub async fn run(args: &DoctorArgs, out: &mut impl Write) -> Result<(), DoctorError> {
    let mut config = args.cluster.config().await?;
    // An answer that asks to come back later is a finding too.
    config.default_retry = false;
    let probe_namespace = args
        .probe_namespace
        .clone()
        .unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(LookError::Client)?;
    let report = Report {
        namespace: args.namespace.clone(),
        findings: Box::pin(findings(&client, &args.namespace, &probe_namespace)).await?,
    };
    write!(out, "{report}")?;
    match report.count(Verdict::Broken) {
        0 => Ok(()),
        broken => Err(DoctorError::Broken(broken)),
    }
}

async fn findings(
    client: &Client,
    namespace: &str,
    probe_namespace: &str,
) -> Result<Vec<Finding>, DoctorError> {
    let server = attempts::server(client).await.map_err(DoctorError::Unreachable)?;
    let ahead = server.ahead();
    let now = || Timestamp::now() + ahead;
    let mut findings = judge::server::judge(&server);

    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let deployment = gather::get(&deployments, "flock").await;
    let setup = Setup::of(namespace, deployment.found());
    let manifests = Manifests::read(namespace, setup.leaf.is_some()).map_err(DoctorError::Manifests)?;
    let replicas = gather::replicas(client, deployment, &setup).await;
    findings.extend(judge::replicas::judge(&replicas, &setup, now()));

    let (mutating, validating) = gather::webhooks(client).await;
    findings.extend(webhooks(client, &mutating, &validating, &manifests, &setup, now()).await);

    let probe = attempts::probe(client, probe_namespace)
        .await
        .map_err(|error| DoctorError::Manifests(error.to_string()))?;
    findings.extend(judge::probe::judge(&probe, &setup));
    findings.extend(judge::policies::judge(
        &gather::guards(client, &manifests).await,
        &setup,
    ));
    let rights = gather::rights(client, judge::rights::wanted(&manifests, &setup), &setup).await;
    findings.extend(judge::rights::judge(&rights, &setup));
    findings.extend(flocks(client, &mutating, &setup, probe_namespace, now()).await);
    Ok(findings)
}

async fn webhooks(
    client: &Client,
    mutating: &Seen<Value>,
    validating: &Seen<Value>,
    manifests: &Manifests,
    setup: &Setup,
    now: Timestamp,
) -> Vec<Finding> {
    let ca = gather::secret(client, setup).await;
    // Through the types of the API, so that both have the same shape.
    let wanted = |kind: Kind| {
        let object = match kind {
            Kind::Mutating => manifests
                .one::<MutatingWebhookConfiguration>(kind.name())
                .map(serde_json::to_value),
            Kind::Validating => manifests
                .one::<ValidatingWebhookConfiguration>(kind.name())
                .map(serde_json::to_value),
        };
        object.and_then(Result::ok).unwrap_or_default()
    };
    let mut findings = Vec::new();
    for (kind, seen) in [(Kind::Mutating, mutating), (Kind::Validating, validating)] {
        findings.extend(judge::webhooks::judge(kind, seen, &wanted(kind), setup));
        if let Some(configuration) = seen.found() {
            findings.extend(judge::bundle::judge(kind, configuration, &ca, setup, now));
        }
    }
    findings
}

/// The flocks of the cluster; for those who may not see all of it, of one namespace.
async fn flocks(
    client: &Client,
    mutating: &Seen<Value>,
    setup: &Setup,
    probe_namespace: &str,
    now: Timestamp,
) -> Vec<Finding> {
    const CHECK: &str = "flocks";
    let (mut scope, mut findings) = (None, Vec::new());
    let mut seen = look_at(client, None).await;
    if seen.as_ref().is_err_and(LookError::is_refusal) {
        scope = Some(probe_namespace);
        seen = look_at(client, scope).await;
        let message = format!("you may not see those outside of namespace {probe_namespace}");
        findings.push(Finding::not_checked(CHECK, message));
    }
    let mut view = match seen {
        Ok(view) => view,
        Err(error) => {
            let why = match &error {
                LookError::List { source, .. } => seen::words(source),
                _ => String::new(),
            };
            let message = format!("{error}: {why}");
            let mut findings = vec![if error.is_refusal() {
                Finding::not_checked(CHECK, message)
            } else {
                Finding::warning(CHECK, message)
            }];
            findings.extend(judge::members::judge(&gather::members(client, scope).await));
            return findings;
        }
    };
    gather::add_helpers(client, &setup.namespace, &mut view).await;
    let namespaces = gather::namespaces(client).await;
    let names = namespaces
        .found()
        .map(|all| all.keys().cloned().collect::<BTreeSet<_>>());
    findings.extend(judge::flocks::judge(&view, names.as_ref(), now));
    findings.extend(judge::members::judge(&gather::members(client, scope).await));
    if let (Some(configuration), Some(all)) = (mutating.found(), namespaces.found()) {
        findings.extend(judge::webhooks::hidden(configuration, &with_flocks(&view, all)));
    }
    findings
}

/// The labels of the namespaces that flocks are in.
fn with_flocks(
    view: &View,
    all: &BTreeMap<String, BTreeMap<String, String>>,
) -> BTreeMap<String, BTreeMap<String, String>> {
    view.flock_keys()
        .into_iter()
        .filter(|key| !view.flock(key).is_empty())
        .filter_map(|key| all.get_key_value(key.namespace.as_str()))
        .map(|(name, labels)| (name.clone(), labels.clone()))
        .collect()
}
