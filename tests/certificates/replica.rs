//! A replica: a keeper and a server that allows whatever it is asked.

use std::{net::SocketAddr, time::Duration};

use axum::{Router, http::header::CONTENT_TYPE, response::IntoResponse, routing::post};
use bytes::Bytes;
use flock::{
    serve::{self, ServeMetrics, ServeOptions, Trigger, shutdown},
    tls::{
        CertificateMetrics, ClientAuth, Keeper, KeeperConfig, LeafStatus, issue::ServerName,
        lifetime::Lifetimes, server_config,
    },
};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};

use super::scene::{PATIENCE, Scene};

/// As in production, but for the wait.
pub const LIFETIMES: Lifetimes = Lifetimes {
    ca: Duration::from_secs(365 * 24 * 3600),
    leaf: Duration::from_secs(7 * 24 * 3600),
    backdate: Duration::from_secs(3600),
    settle: Duration::from_secs(2),
};

pub struct Replica {
    pub address: SocketAddr,
    pub status: watch::Receiver<Option<LeafStatus>>,
    pub leader: watch::Sender<bool>,
    keeper: JoinHandle<()>,
    _trigger: Trigger,
}

impl Replica {
    pub async fn start(scene: &Scene, leads: bool, lifetimes: Lifetimes) -> Self {
        let config = KeeperConfig {
            namespace: scene.name.clone(),
            configuration_name: scene.name.clone(),
            extra_names: vec![ServerName::parse("127.0.0.1")],
            lifetimes,
            ..KeeperConfig::default()
        };
        let keeper = Keeper::new(scene.client.clone(), config, CertificateMetrics::default());
        let (resolver, status) = (keeper.resolver(), keeper.status());
        let (leader, leading) = watch::channel(leads);
        let keeper = tokio::spawn(async move { keeper.run(leading, std::future::pending()).await.unwrap() });
        let listener = serve::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (trigger, shutdown) = shutdown::channel();
        let tls = server_config(resolver, ClientAuth::None).unwrap();
        let router = Router::new().route("/review", post(allow));
        let options = ServeOptions::default();
        let metrics = ServeMetrics::default();
        tokio::spawn(serve::serve(
            listener,
            Some(tls.into()),
            router,
            options,
            metrics,
            shutdown,
        ));
        Self {
            address,
            status,
            leader,
            keeper,
            _trigger: trigger,
        }
    }

    /// Waits until it serves a certificate that is trusted by all configurations.
    pub async fn trusted(&mut self) -> LeafStatus {
        let trusted = |status: &Option<LeafStatus>| status.as_ref().is_some_and(|status| status.trusted);
        let status = tokio::time::timeout(PATIENCE, self.status.wait_for(trusted))
            .await
            .unwrap()
            .unwrap();
        status.clone().unwrap()
    }

    pub fn serial(&self) -> String {
        self.status.borrow().as_ref().unwrap().serial.clone()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn allow(body: Bytes) -> impl IntoResponse {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": { "uid": review["request"]["uid"], "allowed": true },
    });
    ([(CONTENT_TYPE, "application/json")], answer.to_string())
}
