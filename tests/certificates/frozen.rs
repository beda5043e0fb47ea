//! A watch that hangs, as behind a proxy that has lost its connection without a word, while others live.

use std::task::{Context, Poll};

use axum::http::{Request, Response};
use flock::tls::{pem, request_rotation};
use futures::future::BoxFuture;
use kube::{Client, client::Body};
use tower_service::Service;

use super::{
    callers::Callers,
    replica::{LIFETIMES, Replica},
    scene::{Scene, eventually, run},
};

/// A client by which Secrets are listed, read and written, but whose watches of them never show a thing.
#[derive(Clone)]
struct Frozen(Client);

impl Service<Request<Body>> for Frozen {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let uri = request.uri();
        let watches = uri.query().is_some_and(|query| query.contains("watch=true"));
        let frozen = watches && uri.path().ends_with("/secrets");
        let client = self.0.clone();
        Box::pin(async move {
            if frozen {
                std::future::pending::<()>().await;
            }
            client.send(request).await
        })
    }
}

#[test]
fn a_follower_whose_watch_of_the_secret_hangs_writes_no_bundle_of_yesterday() {
    run(async {
        let scene = Scene::new("frozen").await;
        let mut leader = Replica::start(&scene, true, LIFETIMES).await;
        leader.trusted().await;
        let hanging = Scene {
            client: Client::new(Frozen(scene.client.clone()), "default"),
            ..scene.clone()
        };
        let mut follower = Replica::start(&hanging, false, LIFETIMES).await;
        scene.configure(leader.address, follower.address).await;
        leader.trusted().await;
        follower.trusted().await;
        let callers = Callers::start(&scene).await;
        let serial = follower.serial();
        for round in 0..2 {
            let before = scene.entry("ca.crt").await;
            request_rotation(scene.client.clone(), &scene.name, "flock-ca", &round.to_string())
                .await
                .unwrap();
            eventually("the next CA", async || scene.entry("ca.crt").await != before).await;
        }
        let wanted = [scene.entry("previous.crt").await, scene.entry("ca.crt").await].concat();
        assert_eq!(pem::certificates(&wanted).unwrap().len(), 3);
        eventually("the bundle", async || {
            scene.bundles().await.iter().all(|bundle| *bundle == wanted)
        })
        .await;
        let versions = scene.versions().await;
        // It sees that the bundle is another one than it knows, and looks at the Secret before it does anything about it.
        eventually("a leaf of another CA", async || follower.serial() != serial).await;
        callers.assert_none_failed_after(5).await;
        assert_eq!(scene.versions().await, versions, "nobody fights over it");
        let configuration = scene.mutating().get(&scene.name).await.unwrap();
        // Created, published, and once more for each of the two CAs that came.
        assert_eq!(
            configuration.metadata.generation,
            Some(4),
            "nobody fought over it"
        );
    });
}
