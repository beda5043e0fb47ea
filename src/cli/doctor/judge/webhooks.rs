//! The two webhook configurations: that they are there, point at Flock, and are as the manifests have them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde_json::Value;

use super::super::finding::Finding;
use super::super::seen::Seen;
use super::setup::Setup;

const CHECK: &str = "webhooks";

/// Who else may set these, and has reason to: Flock or cert-manager the one, administrators and clouds the other.
const OTHERS: [&str; 2] = ["clientConfig", "namespaceSelector"];

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Without it there are no members.
    Mutating,
    /// A courtesy.
    Validating,
}

impl Kind {
    /// The kind's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }

    /// Flock serves without the courtesy.
    fn fault(self, message: String) -> Finding {
        match self {
            Self::Mutating => Finding::broken(CHECK, message),
            Self::Validating => Finding::warning(CHECK, message),
        }
    }
}

/// Judges one; `wanted` is what the manifests have.
pub fn judge(kind: Kind, seen: &Seen<Value>, wanted: &Value, setup: &Setup) -> Vec<Finding> {
    let what = format!("{} flock", kind.name());
    let absent = || {
        kind.fault(format!(
            "{what} does not exist, so the API server does not call Flock: kubectl apply -k webhook-config"
        ))
    };
    let configuration = match seen.or_finding(CHECK, &what, absent) {
        Ok(configuration) => configuration,
        Err(finding) => return vec![finding],
    };
    let faults: Vec<_> = list(wanted)
        .iter()
        .flat_map(|wanted| faults(kind, list(configuration), wanted, setup))
        .collect();
    if !faults.is_empty() {
        return faults;
    }
    let client = list(configuration)
        .first()
        .map(|webhook| &webhook["clientConfig"]);
    let url = client.and_then(|client| client["url"].as_str());
    let at = url.map_or_else(
        || format!("at Service {} in namespace {}", setup.service, setup.namespace),
        str::to_owned,
    );
    vec![Finding::ok(CHECK, format!("{what} calls Flock {at}"))]
}

/// The webhooks of a configuration.
pub fn list(configuration: &Value) -> &[Value] {
    configuration["webhooks"].as_array().map_or(&[], Vec::as_slice)
}

fn faults(kind: Kind, there: &[Value], wanted: &Value, setup: &Setup) -> Vec<Finding> {
    let what = format!("{} flock", kind.name());
    let name = wanted["name"].as_str().unwrap_or_default();
    let apply = "kubectl apply -k webhook-config";
    let Some(webhook) = there.iter().find(|webhook| webhook["name"] == name) else {
        return vec![kind.fault(format!("{what} has no webhook {name}: {apply}"))];
    };
    let mut findings = Vec::new();
    let (client, path) = (
        &webhook["clientConfig"],
        wanted["clientConfig"]["service"]["path"]
            .as_str()
            .unwrap_or_default(),
    );
    let service = &client["service"];
    let ours = client["url"].as_str().map_or_else(
        || {
            service["name"] == *setup.service
                && service["namespace"] == *setup.namespace
                && service["path"] == path
        },
        |url| url.ends_with(path),
    );
    if !ours {
        let message = format!(
            "webhook {name} of {what} points elsewhere than at {path} of Service {} in namespace {}: {apply}, or name \
             Flock's own namespace by --namespace",
            setup.service, setup.namespace
        );
        findings.push(kind.fault(message));
    }
    let ignores = kind == Kind::Mutating && webhook["failurePolicy"] != "Fail";
    if ignores {
        let message = format!(
            "webhook {name} has failurePolicy {}, so members start without their name and data while Flock is away: \
             {apply}",
            webhook["failurePolicy"].as_str().unwrap_or("Ignore")
        );
        findings.push(Finding::broken(CHECK, message));
    }
    let fields = wanted.as_object().into_iter().flatten();
    let others: Vec<_> = fields
        .filter(|(field, value)| {
            let known = ignores && *field == "failurePolicy";
            !known && !OTHERS.contains(&field.as_str()) && webhook[field.as_str()] != **value
        })
        .map(|(field, _)| field.as_str())
        .collect();
    if !others.is_empty() {
        let message = format!(
            "webhook {name} of {what} differs from what this version is installed with in {}: {apply}, if nobody meant \
             that",
            others.join(", ")
        );
        findings.push(Finding::warning(CHECK, message));
    }
    findings
}

/// The namespaces whose flocks the mutating webhook does not see: their pods get no name, and the policy
/// `flock-members` refuses them, unless it leaves the namespace out as well.
pub fn hidden(configuration: &Value, flocks: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<Finding> {
    let selectors: Vec<Selector> = list(configuration)
        .iter()
        .filter_map(|webhook| {
            let selector: LabelSelector =
                serde_json::from_value(webhook["namespaceSelector"].clone()).ok()?;
            Selector::try_from(selector).ok()
        })
        .collect();
    let unseen: Vec<_> = flocks
        .iter()
        .filter(|(_, labels)| selectors.iter().any(|selector| !selector.matches(labels)))
        .map(|(namespace, _)| namespace.as_str())
        .collect();
    if unseen.is_empty() {
        return Vec::new();
    }
    let message = format!(
        "the namespaceSelector of MutatingWebhookConfiguration flock leaves out {}, where workloads have the label \
         flock.dev/name: their pods get no identity; take the label off or the exclusion away",
        unseen.join(", ")
    );
    vec![Finding::warning(CHECK, message)]
}

#[cfg(test)]
mod tests;
