//! The image that helpers run: that of the pod which this process is in.

use std::sync::{Arc, OnceLock};

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Api, Client, Error};
use tracing::warn;

use crate::storage::HelperImage;

/// The name of Flock's own container. Others may be in its pod too, put there by other webhooks.
const CONTAINER: &str = "flock";

/// What helpers run.
#[derive(Clone)]
pub struct OwnImage(Arc<OwnPod>);

struct OwnPod {
    pods: Api<Pod>,
    name: String,
    /// Another image than its own.
    named: Option<String>,
    otherwise: HelperImage,
    known: OnceLock<HelperImage>,
}

impl OwnImage {
    /// That of the pod of this name, or the one that is `named`, with the Secrets that the pod has; `otherwise` where there is no such pod,
    /// since this process is in none, or its pod was deleted by force. It is looked up when the first helper needs it.
    pub fn of_pod(client: Client, namespace: &str, name: &str, named: Option<&str>, otherwise: &str) -> Self {
        Self(Arc::new(OwnPod {
            pods: Api::namespaced(client, namespace),
            name: name.to_owned(),
            named: named.map(str::to_owned),
            otherwise: HelperImage::public(named.unwrap_or(otherwise)),
            known: OnceLock::new(),
        }))
    }

    /// The image. An error is not the last word: whoever asks again has it looked up again.
    pub(super) async fn get(&self) -> Result<HelperImage, Error> {
        let pod = &self.0;
        if let Some(known) = pod.known.get() {
            return Ok(known.clone());
        }
        let Some(found) = pod.look_up().await? else {
            return Ok(pod.otherwise.clone());
        };
        Ok(pod.known.get_or_init(|| found).clone())
    }
}

impl OwnPod {
    async fn look_up(&self) -> Result<Option<HelperImage>, Error> {
        let pod = self.pods.get_opt(&self.name).await.inspect_err(|error| {
            warn!(
                %error,
                pod = self.name,
                "our own pod cannot be read, so no helper is made: its image is theirs, unless --helper-image is set"
            );
        })?;
        let mut found = pod.and_then(|pod| pod.spec).and_then(image);
        if let (Some(image), Some(named)) = (&mut found, &self.named) {
            image.name.clone_from(named);
        }
        Ok(found)
    }
}

fn image(spec: PodSpec) -> Option<HelperImage> {
    let ours = spec
        .containers
        .iter()
        .find(|container| container.name == CONTAINER);
    let name = ours.or(spec.containers.first())?.image.clone()?;
    let secrets = spec.image_pull_secrets.into_iter().flatten();
    Some(HelperImage {
        name,
        pull_secrets: secrets.map(|secret| secret.name).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::task::{Context, Poll};

    use axum::http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower_service::Service;

    use super::*;

    /// An API server that has these answers, one after another.
    struct Answers(VecDeque<(u16, Value)>);

    impl Service<Request<Body>> for Answers {
        type Response = Response<axum::body::Body>;
        type Error = Infallible;
        type Future = Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            assert_eq!(
                request.uri().path(),
                "/api/v1/namespaces/flock-system/pods/flock-1"
            );
            let (code, body) = self.0.pop_front().expect("it is not asked again");
            let body = axum::body::Body::from(body.to_string());
            ready(Ok(Response::builder().status(code).body(body).unwrap()))
        }
    }

    fn of_pod(answers: impl IntoIterator<Item = (u16, Value)>, named: Option<&str>) -> OwnImage {
        let client = Client::new(Answers(answers.into_iter().collect()), "default");
        OwnImage::of_pod(client, "flock-system", "flock-1", named, "flock:dev")
    }

    fn failure(code: u16, reason: &str) -> (u16, Value) {
        (
            code,
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason }),
        )
    }

    fn pod(containers: &Value) -> (u16, Value) {
        let spec = json!({ "containers": containers, "imagePullSecrets": [{ "name": "pull" }] });
        (200, json!({ "kind": "Pod", "apiVersion": "v1", "spec": spec }))
    }

    #[tokio::test]
    async fn what_could_not_be_looked_up_is_looked_up_again_and_what_was_is_not() {
        let containers = json!([
            { "name": "proxy", "image": "proxy:2" },
            { "name": "flock", "image": "registry.example/flock:1" },
        ]);
        let image = of_pod(
            [
                failure(503, "ServiceUnavailable"),
                failure(403, "Forbidden"),
                pod(&containers),
            ],
            None,
        );
        assert!(image.get().await.is_err());
        assert!(image.get().await.is_err());
        let found = HelperImage {
            name: "registry.example/flock:1".into(),
            pull_secrets: vec!["pull".into()],
        };
        assert_eq!(image.get().await.unwrap(), found);
        assert_eq!(image.clone().get().await.unwrap(), found);
    }

    #[tokio::test]
    async fn a_container_of_another_name_is_ours_where_none_has_it() {
        let image = of_pod([pod(&json!([{ "name": "server", "image": "flock:2" }]))], None);
        assert_eq!(image.get().await.unwrap().name, "flock:2");
    }

    #[tokio::test]
    async fn another_image_is_pulled_with_the_secrets_of_our_own() {
        let own = pod(&json!([{ "name": "flock", "image": "flock:2" }]));
        let image = of_pod([own], Some("mirror.example/flock:2"));
        let found = image.get().await.unwrap();
        assert_eq!(found.name, "mirror.example/flock:2");
        assert_eq!(found.pull_secrets, ["pull"]);
    }

    /// It may also be that our pod was deleted by force and we go on: that is not for ever.
    #[tokio::test]
    async fn outside_of_any_pod_helpers_run_the_default_image() {
        let own = pod(&json!([{ "name": "flock", "image": "flock:2" }]));
        let image = of_pod([failure(404, "NotFound"), own], None);
        assert_eq!(image.get().await.unwrap(), HelperImage::public("flock:dev"));
        assert_eq!(image.get().await.unwrap().name, "flock:2");
        let named = of_pod([failure(404, "NotFound")], Some("flock:3"));
        assert_eq!(named.get().await.unwrap(), HelperImage::public("flock:3"));
    }
}
