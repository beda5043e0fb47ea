//! How long the API server may be silent. A machine that loses its power closes no connection: whoever waits for an
//! answer from it waits for a quarter of an hour, and the next request may take the same dead connection.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::{Request, Response};
use bytes::Bytes;
use futures::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use kube::client::{Body, ClientBuilder};
use kube::runtime::watcher;
use kube::{Client, Config};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower_layer::layer_fn;
use tower_service::Service;

/// How long the API server may take for an answer's head, and be silent within its body. It lets a request wait for
/// its turn for 15 s at most, a quarter of the minute that a request has
/// (`k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go`).
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a watch lives, in seconds, until the API server ends it and the next one begins where it ended. A watch may be
/// silent for that long and 5 s more, which is how late a watch is noticed that a machine without power, or a load
/// balancer before one, will never end; `kube` would ask for 290 s.
const WATCH: u32 = 60;
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The API server was silent for too long.
#[derive(Debug, thiserror::Error)]
#[error("the API server was silent for {0:?}")]
struct Silence(Duration);

/// A client that gives a request up when the API server is silent for so long. Watches are silent by nature: theirs
/// is only the time to the answer's head, and `kube`'s watcher gives a silent one up by itself, 5 s after the API
/// server should have ended it, see [`watch_config`].
pub fn client(mut config: Config, patience: Duration) -> Result<Client, kube::Error> {
    config.connect_timeout = Some(CONNECT.min(patience));
    let layer = layer_fn(move |inner| Patient { inner, patience });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// What every watch is asked for with.
pub fn watch_config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH)
}

/// Requests that are given up in time.
struct Patient<S> {
    inner: S,
    patience: Duration,
}

impl<S, B> Service<Request<Body>> for Patient<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<PatientBody<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let patience = self.patience;
        let body_patience = (!is_watch(request.uri().query())).then_some(patience);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = timeout(patience, answer).await.map_err(|_| Silence(patience))?;
            Ok(answer.map_err(Into::into)?.map(|body| PatientBody {
                body,
                limit: body_patience.map(|patience| (patience, Box::pin(sleep(patience)))),
            }))
        })
    }
}

fn is_watch(query: Option<&str>) -> bool {
    let mut pairs = query.into_iter().flat_map(|query| query.split('&'));
    pairs.any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

/// A body that fails when nothing comes for too long.
struct PatientBody<B> {
    body: B,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<B> HttpBody for PatientBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if let Some((patience, silence)) = &mut this.limit {
                silence.as_mut().reset(Instant::now() + *patience);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((patience, silence)) = &mut this.limit else {
            return Poll::Pending;
        };
        ready!(silence.as_mut().poll(context));
        Poll::Ready(Some(Err(Silence(*patience).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::SocketAddr;
    use std::sync::Arc;

    use axum::extract::Query;
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::api::{Api, ListParams, WatchParams};
    use rstest::rstest;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
    use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::watch;

    use crate::view::{SharedView, run};

    use super::*;

    const SHORT: Duration = Duration::from_millis(500);
    /// Less than what the system gives up after, and enough for a busy machine.
    const IN_TIME: Duration = Duration::from_secs(60);

    /// An API server that has nothing and whose watches say nothing.
    async fn empty() -> SocketAddr {
        let answer = |Query(query): Query<BTreeMap<String, String>>| async move {
            if query.contains_key("watch") {
                return axum::body::Body::from_stream(futures::stream::pending::<Result<Bytes, BoxError>>());
            }
            let list = r#"{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#;
            axum::body::Body::from(list)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    /// What is between a client and an API server: it may begin to swallow all that comes by the connections that
    /// there are, which stay open, and by new ones as long as it is told to.
    struct Network {
        address: SocketAddr,
        works: watch::Sender<bool>,
    }

    impl Network {
        async fn before(server: SocketAddr) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (works, state) = watch::channel(true);
            tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    let server = TcpStream::connect(server).await.unwrap();
                    let ((from_client, to_client), (from_server, to_server)) =
                        (client.into_split(), server.into_split());
                    tokio::spawn(pass_on(from_client, to_server, state.clone()));
                    tokio::spawn(pass_on(from_server, to_client, state.clone()));
                }
            });
            Self { address, works }
        }

        fn client(&self, patience: Duration) -> Client {
            let url = format!("http://{}", self.address).parse().unwrap();
            client(Config::new(url), patience).unwrap()
        }
    }

    async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut works: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            _ = works.wait_for(|works| !works) => {}
            _ = copy(&mut from, &mut to) => return,
        }
        let mut swallowed = [0; 1024];
        while from.read(&mut swallowed).await.is_ok_and(|count| count > 0) {}
        // It stays open: a machine without power closes nothing.
        std::future::pending::<()>().await;
        let _ = to.shutdown().await;
    }

    #[tokio::test]
    async fn a_request_by_a_dead_connection_is_given_up_and_the_next_one_takes_another() {
        let network = Network::before(empty().await).await;
        let nodes = Api::<Node>::all(network.client(SHORT));
        let list = async || nodes.list(&ListParams::default()).await;
        list().await.unwrap();
        network.works.send_replace(false);
        let error = timeout(IN_TIME, list())
            .await
            .expect("it is given up")
            .unwrap_err();
        network.works.send_replace(true);
        timeout(IN_TIME, list()).await.expect("an answer").unwrap();
        let silence = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        assert!(
            silence
                .into_iter()
                .any(|error| error.to_string().contains("was silent"))
        );
    }

    #[tokio::test]
    async fn a_view_that_is_listed_while_the_api_server_is_silent_follows_when_it_is_back() {
        let network = Network::before(empty().await).await;
        network.works.send_replace(false);
        let view = SharedView::default();
        let client = network.client(SHORT);
        let quiet = Arc::new(|_: &_, _: &_| {});
        let watches = tokio::spawn(run(client, view.clone(), "flock".into(), quiet, Duration::ZERO));
        assert!(timeout(SHORT * 3, view.wait_until_synced()).await.is_err());
        network.works.send_replace(true);
        timeout(IN_TIME, view.wait_until_synced())
            .await
            .expect("it follows");
        watches.abort();
    }

    #[tokio::test]
    async fn a_watch_may_be_silent_and_its_beginning_may_not() {
        let network = Network::before(empty().await).await;
        let pods = Api::<Pod>::all(network.client(SHORT));
        let begin = async || pods.watch(&WatchParams::default(), "1").await;
        let mut watch = begin().await.unwrap().boxed();
        assert!(timeout(SHORT * 3, watch.next()).await.is_err());
        network.works.send_replace(false);
        assert!(timeout(IN_TIME, begin()).await.expect("it is given up").is_err());
    }

    #[rstest]
    #[case::a_watch(Some("watch=true&timeoutSeconds=290"), true)]
    #[case::a_watch_by_its_last_pair(Some("a=b&watch=1"), true)]
    #[case::a_list(Some("limit=500"), false)]
    #[case::something_that_is_called_like_it(Some("notwatch=true"), false)]
    #[case::nothing(None, false)]
    fn watches_are_known_by_their_query(#[case] query: Option<&str>, #[case] watch: bool) {
        assert_eq!(is_watch(query), watch);
    }
}
