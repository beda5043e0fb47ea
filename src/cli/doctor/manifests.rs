//! The manifests that this version of Flock is installed with, as they were when it was built: what should be there is
//! written in one place.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The documents of the files that checks compare with.
const FILES: [&str; 8] = [
    include_str!("../../../deploy/namespace-policy.yaml"),
    include_str!("../../../deploy/rbac.yaml"),
    include_str!("../../../webhook-config/mutating.yaml"),
    include_str!("../../../webhook-config/validating.yaml"),
    include_str!("../../../webhook-config/members.yaml"),
    include_str!("../../../webhook-config/member-labels.yaml"),
    include_str!("../../../webhook-config/host-paths.yaml"),
    include_str!("../../../webhook-config/own-account.yaml"),
];
/// The Role that takes the place of the one in `deploy/rbac.yaml` where certificates are cert-manager's.
const CERT_MANAGER_ROLE: &str = include_str!("../../../certs/role.yaml");
/// The API group of webhook configurations, which are none of Flock's business there.
const CONFIGURATIONS: &str = "admissionregistration.k8s.io";
/// The namespace that they name.
const NAMESPACE: &str = "flock-system";

/// All documents. A namespace that is not the usual one is put in their place, as the chart does it.
#[derive(Debug)]
pub struct Manifests {
    documents: Vec<Value>,
}

impl Manifests {
    /// Reads them.
    pub fn read(namespace: &str, cert_manager: bool) -> Result<Self, String> {
        let mut documents = Vec::new();
        for file in FILES {
            documents.extend(crate::cli::inject::documents(
                &file.replace(NAMESPACE, namespace),
            )?);
        }
        if cert_manager {
            documents.retain(|document| document["kind"] != "Role");
            for document in &mut documents {
                if document["kind"] == "ClusterRole"
                    && let Some(rules) = document["rules"].as_array_mut()
                {
                    rules.retain(|rule| rule["apiGroups"] != json!([CONFIGURATIONS]));
                }
            }
            documents.extend(crate::cli::inject::documents(
                &CERT_MANAGER_ROLE.replace(NAMESPACE, namespace),
            )?);
        }
        Ok(Self { documents })
    }

    /// The objects of a kind.
    pub fn all<T: DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        self.documents
            .iter()
            .filter(|document| document["kind"] == kind)
            .filter_map(|document| serde_json::from_value(document.clone()).ok())
            .collect()
    }

    /// The only object of a kind.
    pub fn one<T: DeserializeOwned>(&self, kind: &str) -> Option<T> {
        self.all(kind).into_iter().next()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use k8s_openapi::api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingWebhookConfiguration,
    };
    use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};

    use super::*;

    #[test]
    fn every_object_of_the_webhooks_folder_is_among_them() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("webhook-config");
        let mut expected = BTreeMap::<String, usize>::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for document in crate::cli::inject::documents(&text).unwrap() {
                *expected
                    .entry(document["kind"].as_str().unwrap().to_owned())
                    .or_default() += 1;
            }
        }
        let manifests = Manifests::read("flock-system", false).unwrap();
        let policies = manifests.all::<ValidatingAdmissionPolicy>("ValidatingAdmissionPolicy");
        let bindings = manifests.all::<ValidatingAdmissionPolicyBinding>("ValidatingAdmissionPolicyBinding");
        // The one of deploy/ besides.
        assert_eq!(policies.len(), expected["ValidatingAdmissionPolicy"] + 1);
        assert_eq!(bindings.len(), expected["ValidatingAdmissionPolicyBinding"] + 1);
        let mutating = manifests.all::<MutatingWebhookConfiguration>("MutatingWebhookConfiguration");
        let validating = manifests.all::<ValidatingWebhookConfiguration>("ValidatingWebhookConfiguration");
        assert_eq!((mutating.len(), validating.len()), (1, 1));
    }

    #[test]
    fn with_cert_manager_no_secret_and_no_webhook_configuration_is_asked_for() {
        let has = |rules: &[PolicyRule], wanted: &str| {
            let mut resources = rules.iter().flat_map(|rule| rule.resources.iter().flatten());
            resources.any(|resource| resource == wanted)
        };
        for cert_manager in [false, true] {
            let manifests = Manifests::read("elsewhere", cert_manager).unwrap();
            assert_eq!(manifests.all::<ClusterRole>("ClusterRole").len(), 1);
            let everywhere: ClusterRole = manifests.one("ClusterRole").unwrap();
            let role: Role = manifests.one("Role").unwrap();
            assert_eq!(role.metadata.namespace.as_deref(), Some("elsewhere"));
            assert_eq!(has(&role.rules.unwrap(), "secrets"), !cert_manager);
            let rules = everywhere.rules.unwrap();
            assert!(has(&rules, "csidrivers"));
            for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
                assert_eq!(has(&rules, kind), !cert_manager);
            }
        }
    }
}
