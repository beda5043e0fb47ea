//! The CA's Secret as an object of the API.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams},
};
use serde_json::json;

use super::authority::{ROTATE, SecretContent};
use crate::identity::keys::{MANAGED_BY, MANAGER};

/// What the Secret holds.
pub(super) fn content(secret: &Secret) -> SecretContent {
    SecretContent {
        data: secret
            .data
            .iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.0.clone()))
            .collect(),
        annotations: secret.metadata.annotations.clone().unwrap_or_default(),
    }
}

/// A new Secret with this content.
pub(super) fn new(name: &str, namespace: &str, content: SecretContent) -> Secret {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        labels: Some(BTreeMap::from([(MANAGED_BY.to_owned(), MANAGER.to_owned())])),
        ..ObjectMeta::default()
    };
    with_content(
        Secret {
            metadata,
            type_: Some("Opaque".into()),
            ..Secret::default()
        },
        content,
    )
}

/// The same Secret with another content; everything else of it stays, its resourceVersion (the precondition) too.
pub(super) fn with_content(mut secret: Secret, content: SecretContent) -> Secret {
    secret.data = Some(
        content
            .data
            .into_iter()
            .map(|(name, value)| (name, ByteString(value)))
            .collect(),
    );
    secret.metadata.annotations = Some(content.annotations);
    // The API server adds this one to `data`, where it would come back after every removal.
    secret.string_data = None;
    secret
}

/// Asks the leader for a new CA; `token` is any value that was not used before.
///
/// The rotation itself takes the settling time and fails no admission.
pub async fn request_rotation(client: Client, namespace: &str, name: &str, token: &str) -> kube::Result<()> {
    let patch = json!({ "metadata": { "annotations": { ROTATE: token } } });
    let api: Api<Secret> = Api::namespaced(client, namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_leaves_the_rest_of_the_secret_alone() {
        let mut secret = new("flock-ca", "flock-system", SecretContent::default());
        secret.metadata.resource_version = Some("7".into());
        secret.metadata.finalizers = Some(vec!["example.com/keep".into()]);
        let wanted = SecretContent {
            data: BTreeMap::from([("ca.crt".into(), b"x".to_vec())]),
            annotations: BTreeMap::from([("a".into(), "b".into())]),
        };
        let after = with_content(secret.clone(), wanted.clone());
        assert_eq!(content(&after), wanted);
        assert_eq!(after.metadata.resource_version, secret.metadata.resource_version);
        assert_eq!(after.metadata.finalizers, secret.metadata.finalizers);
        assert_eq!(after.metadata.labels, secret.metadata.labels);
    }
}
