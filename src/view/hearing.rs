//! A client that tells what it hears: the library keeps bookmarks to itself, and of a watch on a quiet cluster they are
//! the only sign of life, about one a minute.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower_service::Service;

use super::{SharedView, Source};

/// `client`, for one source: each piece of an answer that is no error notes that the source was heard.
pub(super) fn hearing(client: &Client, view: &SharedView, source: Source) -> Client {
    let namespace = client.default_namespace().to_owned();
    let hearing = Hearing {
        client: client.clone(),
        view: view.clone(),
        source,
    };
    Client::new(hearing, namespace)
}

struct Hearing {
    client: Client,
    view: SharedView,
    source: Source,
}

impl Service<Request<Body>> for Hearing {
    type Response = Response<UnsyncBoxBody<Bytes, kube::Error>>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (client, view, source) = (self.client.clone(), self.view.clone(), self.source);
        async move {
            let answer = client.send(request).await?;
            let accepted = answer.status().is_success();
            Ok(answer.map(|body| {
                let hear = move |frame| {
                    if accepted {
                        view.heard(source);
                    }
                    frame
                };
                body.map_frame(hear).boxed_unsync()
            }))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::{StreamExt, TryStreamExt};
    use hyper::StatusCode;
    use k8s_openapi::api::core::v1::Pod;
    use kube::Api;
    use kube::api::WatchParams;
    use rstest::rstest;

    use super::*;
    use crate::view::fixtures::api_server;

    const BOOKMARK: &str =
        r#"{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"7"}}}"#;

    #[rstest]
    #[case::a_bookmark(StatusCode::OK, BOOKMARK, true)]
    #[case::a_watch_without_a_word(StatusCode::OK, "", false)]
    #[case::a_refusal(StatusCode::FORBIDDEN, r#"{"kind":"Status","code":403}"#, false)]
    #[tokio::test]
    async fn a_source_is_heard_by_each_event_and_bookmark_and_by_no_error(
        #[case] status: StatusCode,
        #[case] body: &str,
        #[case] heard: bool,
    ) {
        let view = SharedView::default();
        let client = api_server(status, body);
        let pods = Api::<Pod>::all(hearing(&client, &view, Source::Pods));
        let pause = Duration::from_millis(30);
        tokio::time::sleep(pause).await;
        if let Ok(events) = pods.watch(&WatchParams::default(), "0").await {
            events.boxed().try_collect::<Vec<_>>().await.unwrap();
        }
        assert_eq!(view.silence(Source::Pods) < pause, heard);
        assert!(
            view.silence(Source::Nodes) >= pause,
            "it is told of its own source only"
        );
    }
}
