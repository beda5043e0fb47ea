//! The caBundle: what the API server believes of whoever answers it.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::{ByteString, serde_json::Value};

use super::super::finding::Finding;
use super::super::seen::Seen;
use super::setup::Setup;
use super::webhooks::{Kind, list};
use crate::tls::authority::CA_CERTIFICATE;
use crate::tls::pem;

const CHECK: &str = "caBundle";
/// The end of a CA is told so long before. Flock renews its own months earlier, cert-manager a year.
const SOON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// The Secret whose CA signs what is served.
pub fn secret_name(setup: &Setup) -> &str {
    setup.leaf.as_deref().unwrap_or("flock-ca")
}

/// Judges the caBundle of every webhook of a configuration.
pub fn judge(
    kind: Kind,
    configuration: &Value,
    ca: &Seen<Secret>,
    setup: &Setup,
    now: Timestamp,
) -> Vec<Finding> {
    let webhooks = list(configuration);
    let findings = webhooks.iter().filter_map(|webhook| {
        let name = webhook["name"].as_str().unwrap_or_default();
        let what = format!("the caBundle of webhook {name} in {} flock", kind.name());
        let bundle = serde_json::from_value::<ByteString>(webhook["clientConfig"]["caBundle"].clone());
        one(&what, &bundle.unwrap_or_default().0, ca, setup, now).err()
    });
    let mut findings: Vec<_> = findings.collect();
    if findings.is_empty() && !webhooks.is_empty() {
        let message = format!(
            "{} flock has the CA of secret/{}",
            kind.name(),
            secret_name(setup)
        );
        findings.push(Finding::ok(CHECK, message));
    }
    findings
}

fn one(what: &str, bundle: &[u8], ca: &Seen<Secret>, setup: &Setup, now: Timestamp) -> Result<(), Finding> {
    let namespace = &setup.namespace;
    let (writer, maker) = match setup.leaf {
        None => (
            format!(
                "the leader writes it within seconds; if it stays, see the logs of the replicas in {namespace}"
            ),
            "a replica that runs makes it anew".to_owned(),
        ),
        Some(_) => (
            "cert-manager's cainjector writes it: see its log, and kubectl apply -k certs/webhook-config"
                .to_owned(),
            format!("cert-manager makes it: see kubectl -n {namespace} describe certificates"),
        ),
    };
    if bundle.is_empty() {
        let message = format!("{what} is empty, so the API server trusts nobody to be Flock: {writer}");
        return Err(Finding::broken(CHECK, message));
    }
    let certificates = pem::certificates(bundle)
        .and_then(|all| {
            all.into_iter()
                .map(|one| Ok((pem::facts(&one)?, one)))
                .collect::<Result<Vec<_>, _>>()
        })
        .map_err(|fault| Finding::broken(CHECK, format!("{what} cannot be used, {fault}: {writer}")))?;
    let ends = certificates
        .iter()
        .filter(|(facts, _)| facts.validity.holds(now))
        .map(|(facts, _)| facts.validity.not_after)
        .max();
    let Some(ends) = ends else {
        let message = format!("{what} has no certificate that is valid now: {writer}");
        return Err(Finding::broken(CHECK, message));
    };
    let secret = secret_name(setup);
    let absent = || {
        let message = format!(
            "secret/{secret} does not exist in namespace {namespace}, and what is served cannot be compared with {what}: \
             {maker}"
        );
        Finding::broken(CHECK, message)
    };
    let secret_object = ca.or_finding(
        CHECK,
        &format!("secret/{secret}, to compare with {what},"),
        absent,
    )?;
    let signs = secret_object
        .data
        .as_ref()
        .and_then(|data| data.get(CA_CERTIFICATE))
        .map(|text| pem::one_certificate(&text.0));
    let signs = match signs {
        Some(Ok(certificate)) => certificate,
        Some(Err(fault)) => {
            let message = format!(
                "{CA_CERTIFICATE} of secret/{secret} cannot be used, {fault}: delete it to have it made anew"
            );
            return Err(Finding::broken(CHECK, message));
        }
        None => {
            let message = format!("secret/{secret} has no {CA_CERTIFICATE}: delete it to have it made anew");
            return Err(Finding::broken(CHECK, message));
        }
    };
    if !certificates.iter().any(|(_, certificate)| *certificate == signs) {
        let message = format!("{what} has not the CA of secret/{secret}, so calls fail: {writer}");
        return Err(Finding::broken(CHECK, message));
    }
    if ends.duration_since(now) < SOON {
        let message = format!("{what} ends at {ends} and was not renewed: {writer}");
        return Err(Finding::warning(CHECK, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
