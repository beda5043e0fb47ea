//! The keeper's reads and writes at the API server.

use std::time::Duration;

use futures::stream::BoxStream;
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    core::v1::Secret,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};

use super::{
    config::{KeeperConfig, KeeperError},
    configuration::{Configuration, Kind},
    watches::{Seen, merged, observe},
};
use crate::identity::keys::MANAGER;

/// An API server that takes longer than this for one small object is as good as gone; the keeper tries again.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The objects that the keeper cares for.
pub(super) struct Objects {
    secrets: Api<Secret>,
    mutating: Api<MutatingWebhookConfiguration>,
    validating: Api<ValidatingWebhookConfiguration>,
    secret_name: String,
    configuration_name: String,
}

impl Objects {
    pub(super) fn new(client: Client, config: &KeeperConfig) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &config.namespace),
            mutating: Api::all(client.clone()),
            validating: Api::all(client),
            secret_name: config.secret_name.clone(),
            configuration_name: config.configuration_name.clone(),
        }
    }

    /// Watches all of them.
    pub(super) fn watch(&self) -> BoxStream<'static, Seen> {
        let name = &self.configuration_name;
        merged(
            observe(self.secrets.clone(), &self.secret_name, |secret| secret),
            [
                (
                    Kind::Mutating,
                    observe(self.mutating.clone(), name, |object| (&object).into()),
                ),
                (
                    Kind::Validating,
                    observe(self.validating.clone(), name, |object| (&object).into()),
                ),
            ],
        )
    }

    /// The Secret as it is now, whatever the watch has shown.
    pub(super) async fn secret(&self) -> Result<Option<Secret>, KeeperError> {
        let read = self.secrets.get_opt(&self.secret_name);
        within_time("read", format!("Secret {}", self.secret_name), read).await
    }

    /// Creates the Secret; fails with a conflict where another replica was faster.
    pub(super) async fn create(&self, secret: &Secret) -> Result<Secret, KeeperError> {
        let params = params();
        let create = self.secrets.create(&params, secret);
        let object = format!("Secret {}", self.secret_name);
        within_time("create", object, create).await
    }

    /// Replaces the Secret, if it is still the one that was read.
    pub(super) async fn replace(&self, secret: &Secret) -> Result<Secret, KeeperError> {
        let params = params();
        let replace = self.secrets.replace(&self.secret_name, &params, secret);
        let object = format!("Secret {}", self.secret_name);
        within_time("update", object, replace).await
    }

    /// Patches a configuration, if it is still the one that was read (the patch says so).
    pub(super) async fn patch(&self, kind: Kind, patch: JsonPatch) -> Result<Configuration, KeeperError> {
        let name = &self.configuration_name;
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        let patch = Patch::<()>::Json(patch);
        let object = format!("{} {name}", kind.name());
        let attempt = "publish the caBundle in";
        match kind {
            Kind::Mutating => within_time(attempt, object, self.mutating.patch(name, &params, &patch))
                .await
                .map(|patched| (&patched).into()),
            Kind::Validating => within_time(attempt, object, self.validating.patch(name, &params, &patch))
                .await
                .map(|patched| (&patched).into()),
        }
    }
}

fn params() -> PostParams {
    PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    }
}

async fn within_time<T>(
    attempt: &'static str,
    object: String,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, KeeperError> {
    match tokio::time::timeout(TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(KeeperError::Api {
            attempt,
            way_out: way_out(&source),
            object,
            source,
        }),
        Err(_) => Err(KeeperError::Timeout {
            attempt,
            object,
            after: TIMEOUT,
        }),
    }
}

fn way_out(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) => match status.code {
            403 => "Flock's ClusterRole and Role must allow it; apply deploy/ again",
            404 => "does its namespace exist?",
            // A JSON patch whose test fails is 422, an update of another version 409.
            409 | 422 => {
                "somebody else has changed it meanwhile, or it is immutable; what is there now is looked at next"
            }
            _ => "the API server refused, see its answer",
        },
        _ => "the API server cannot be reached",
    }
}
