//! The webhook configurations: which caBundle they carry, and the patch that changes nothing else. Pure.
//!
//! Cloud providers add selectors to them and complain when those are taken away again (Azure/AKS#4002), so a patch
//! names the one field, and a configuration whose bundle is right is never written.

use base64::{Engine, engine::general_purpose::STANDARD};
use json_patch::{AddOperation, Patch, PatchOperation, TestOperation, jsonptr::PointerBuf};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::ObjectMeta;
use rustls::pki_types::CertificateDer;

use super::pem;

/// Which of the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mutating,
    Validating,
}

impl Kind {
    /// A word for metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Mutating => "mutating",
            Self::Validating => "validating",
        }
    }

    /// Name of the kind in the API.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        }
    }
}

/// What Flock looks at in a webhook configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) kind: Kind,
    pub(super) resource_version: String,
    /// The caBundle of each webhook, empty where there is none.
    pub(super) bundles: Vec<Vec<u8>>,
}

impl Configuration {
    fn new<'a>(
        kind: Kind,
        metadata: &ObjectMeta,
        webhooks: impl Iterator<Item = &'a WebhookClientConfig>,
    ) -> Self {
        Self {
            kind,
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            bundles: webhooks
                .map(|client| {
                    client
                        .ca_bundle
                        .as_ref()
                        .map(|bundle| bundle.0.clone())
                        .unwrap_or_default()
                })
                .collect(),
        }
    }

    /// Whether there are webhooks and every one of them trusts this CA.
    pub(super) fn trusts(&self, ca: &CertificateDer<'_>) -> bool {
        let trusts = |bundle: &Vec<u8>| pem::certificates(bundle).is_ok_and(|bundle| bundle.contains(ca));
        !self.bundles.is_empty() && self.bundles.iter().all(trusts)
    }

    /// The patch that makes every webhook carry this bundle; `None` where all of them do.
    ///
    /// The position of a webhook in the list means something only in the version that was looked at, so the patch
    /// holds for that version alone.
    pub(super) fn patch(&self, bundle: &str) -> Option<Patch> {
        let value = STANDARD.encode(bundle);
        let mut operations = vec![PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["metadata", "resourceVersion"]),
            value: self.resource_version.clone().into(),
        })];
        let differing = self
            .bundles
            .iter()
            .enumerate()
            .filter(|(_, carried)| *carried != bundle.as_bytes());
        operations.extend(differing.map(|(index, _)| {
            PatchOperation::Add(AddOperation {
                path: PointerBuf::from_tokens(["webhooks", &index.to_string(), "clientConfig", "caBundle"]),
                value: value.clone().into(),
            })
        }));
        (operations.len() > 1).then_some(Patch(operations))
    }
}

impl From<&MutatingWebhookConfiguration> for Configuration {
    fn from(object: &MutatingWebhookConfiguration) -> Self {
        let webhooks = object
            .webhooks
            .iter()
            .flatten()
            .map(|webhook| &webhook.client_config);
        Self::new(Kind::Mutating, &object.metadata, webhooks)
    }
}

impl From<&ValidatingWebhookConfiguration> for Configuration {
    fn from(object: &ValidatingWebhookConfiguration) -> Self {
        let webhooks = object
            .webhooks
            .iter()
            .flatten()
            .map(|webhook| &webhook.client_config);
        Self::new(Kind::Validating, &object.metadata, webhooks)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tls::{issue::Ca, lifetime::Lifetimes};

    fn object() -> serde_json::Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": "flock", "resourceVersion": "12" },
            "webhooks": [
                { "name": "a.flock.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                  "clientConfig": { "service": { "name": "flock", "namespace": "flock-system" } },
                  "namespaceSelector": { "matchExpressions": [{ "key": "added", "operator": "DoesNotExist" }] } },
                { "name": "b.flock.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                  "clientConfig": { "url": "https://host:1/x", "caBundle": STANDARD.encode("right") } },
                { "name": "c.flock.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                  "clientConfig": { "url": "https://host:1/y", "caBundle": STANDARD.encode("wrong") } }
            ]
        })
    }

    fn configuration(object: &serde_json::Value) -> Configuration {
        let typed: MutatingWebhookConfiguration = serde_json::from_value(object.clone()).unwrap();
        (&typed).into()
    }

    #[test]
    fn only_bundles_that_differ_are_patched_and_nothing_else() {
        let before = object();
        let patch = configuration(&before).patch("right").unwrap();
        let mut after = before.clone();
        json_patch::patch(&mut after, &patch).unwrap();
        let mut wanted = before;
        for index in [0, 2] {
            wanted["webhooks"][index]["clientConfig"]["caBundle"] = STANDARD.encode("right").into();
        }
        assert_eq!(after, wanted);
        assert_eq!(configuration(&after).patch("right"), None);
    }

    #[test]
    fn a_patch_holds_for_the_version_it_was_made_for() {
        let before = object();
        let patch = configuration(&before).patch("right").unwrap();
        let mut changed = before;
        changed["metadata"]["resourceVersion"] = "13".into();
        assert!(json_patch::patch(&mut changed, &patch).is_err());
    }

    #[test]
    fn a_configuration_without_webhooks_needs_nothing() {
        let mut empty = object();
        empty["webhooks"] = json!([]);
        assert_eq!(configuration(&empty).patch("right"), None);
    }

    #[test]
    fn a_ca_is_trusted_where_every_webhook_carries_it() {
        let [ours, other] = [(); 2].map(|()| {
            let now = jiff::Timestamp::now();
            Ca::generate(&Lifetimes::default(), now).unwrap()
        });
        let trusts = |bundles: &[String]| {
            let mut configuration = configuration(&object());
            configuration.bundles = bundles.iter().map(|text| text.clone().into_bytes()).collect();
            configuration.trusts(ours.certificate())
        };
        let both = other.certificate_pem() + &ours.certificate_pem();
        assert!(trusts(&[ours.certificate_pem(), both.clone()]));
        assert!(!trusts(&[ours.certificate_pem(), other.certificate_pem()]));
        assert!(!trusts(&[both, String::new()]), "one carries none");
        assert!(!trusts(&[]), "there is no webhook");
    }
}
