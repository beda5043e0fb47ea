//! A client that tells what it hears: the library keeps bookmarks to itself, and of a watch on a quiet cluster they are
//! the only sign of life. They come every minute, but only with a version that is newer than the watch (`process` in
//! `k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go`), so that of some kinds there is none; but the API server ends
//! each watch after a minute, as it was asked to, and the next one begins with an answer.

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

/// `client`, for one source: an answer that is no error, and each piece of it, notes that the source was heard.
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
            if accepted {
                view.heard(source);
            }
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
    use std::time::{Duration, Instant};

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
    #[case::a_bookmark(StatusCode::OK, BOOKMARK, [true, true])]
    #[case::a_watch_without_a_word(StatusCode::OK, "", [true, false])]
    #[case::a_refusal(StatusCode::FORBIDDEN, r#"{"kind":"Status","code":403}"#, [false, false])]
    #[tokio::test]
    async fn a_source_is_heard_when_its_watch_begins_and_by_what_it_brings(
        #[case] status: StatusCode,
        #[case] body: &str,
        #[case] heard: [bool; 2],
    ) {
        let view = SharedView::default();
        let pods = Api::<Pod>::all(hearing(&api_server(status, body), &view, Source::Pods));
        let pause = || tokio::time::sleep(Duration::from_millis(10));
        let heard_since = |begin: Instant| view.silence(Source::Pods) <= begin.elapsed();

        pause().await;
        let begin = Instant::now();
        let watch = pods.watch(&WatchParams::default(), "0").await;
        assert_eq!(heard_since(begin), heard[0]);
        pause().await;
        let begin = Instant::now();
        if let Ok(events) = watch {
            events.boxed().try_collect::<Vec<_>>().await.unwrap();
        }
        assert_eq!(heard_since(begin), heard[1]);
        assert!(
            view.silence(Source::Nodes) > begin.elapsed(),
            "it is told of its own source only"
        );
    }
}
