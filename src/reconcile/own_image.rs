//! The image that helpers run: that of the pod which this process is in.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::{Api, Client, Error};
use tokio::sync::OnceCell;
use tracing::warn;

use crate::storage::HelperImage;

/// The name of Flock's own container. Others may be in its pod too, put there by other webhooks.
const CONTAINER: &str = "flock";

/// What helpers run.
#[derive(Clone)]
pub struct OwnImage(Source);

#[derive(Clone)]
enum Source {
    Fixed(HelperImage),
    Pod(Arc<OwnPod>),
}

struct OwnPod {
    pods: Api<Pod>,
    name: String,
    otherwise: HelperImage,
    known: OnceCell<HelperImage>,
}

impl OwnImage {
    /// This one.
    pub fn fixed(image: HelperImage) -> Self {
        Self(Source::Fixed(image))
    }

    /// That of the pod of this name, with the Secrets that it was pulled with; `otherwise` where there is no such pod,
    /// since this process is in none. It is looked up when the first helper needs it.
    pub fn of_pod(client: Client, namespace: &str, name: &str, otherwise: HelperImage) -> Self {
        Self(Source::Pod(Arc::new(OwnPod {
            pods: Api::namespaced(client, namespace),
            name: name.to_owned(),
            otherwise,
            known: OnceCell::new(),
        })))
    }

    /// The image. An error is not the last word: whoever asks again has it looked up again.
    pub(super) async fn get(&self) -> Result<&HelperImage, Error> {
        match &self.0 {
            Source::Fixed(image) => Ok(image),
            Source::Pod(pod) => pod.known.get_or_try_init(|| pod.look_up()).await,
        }
    }
}

impl OwnPod {
    async fn look_up(&self) -> Result<HelperImage, Error> {
        let pod = self.pods.get_opt(&self.name).await.inspect_err(|error| {
            warn!(
                %error,
                pod = self.name,
                "our own pod cannot be read, so no helper is made: its image is theirs, unless --helper-image is set"
            );
        })?;
        let image = pod.and_then(|pod| pod.spec).and_then(image);
        Ok(image.unwrap_or_else(|| self.otherwise.clone()))
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

    fn of_pod(answers: impl IntoIterator<Item = (u16, Value)>) -> OwnImage {
        let client = Client::new(Answers(answers.into_iter().collect()), "default");
        OwnImage::of_pod(
            client,
            "flock-system",
            "flock-1",
            HelperImage::public("flock:dev"),
        )
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
        let image = of_pod([
            failure(503, "ServiceUnavailable"),
            failure(403, "Forbidden"),
            pod(&containers),
        ]);
        assert!(image.get().await.is_err());
        assert!(image.get().await.is_err());
        let found = HelperImage {
            name: "registry.example/flock:1".into(),
            pull_secrets: vec!["pull".into()],
        };
        assert_eq!(image.get().await.unwrap(), &found);
        assert_eq!(image.clone().get().await.unwrap(), &found);
    }

    #[tokio::test]
    async fn a_container_of_another_name_is_ours_where_none_has_it() {
        let image = of_pod([pod(&json!([{ "name": "server", "image": "flock:2" }]))]);
        assert_eq!(image.get().await.unwrap().name, "flock:2");
    }

    #[tokio::test]
    async fn outside_of_any_pod_helpers_run_the_default_image() {
        let image = of_pod([failure(404, "NotFound")]);
        assert_eq!(image.get().await.unwrap(), &HelperImage::public("flock:dev"));
    }
}
