//! The port for the kubelet and for Prometheus: `/livez`, `/readyz` and `/metrics`.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{encoding::text, registry::Registry};

use super::{readiness::Readiness, shutdown::Shutdown};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Admin {
    readiness: Readiness,
    registry: Arc<Registry>,
    shutdown: Shutdown,
}

/// The admin port's routes. `shutdown` is that of the webhook: once it has begun, the replica is not ready.
pub fn router(readiness: Readiness, registry: Arc<Registry>, shutdown: Shutdown) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Admin {
            readiness,
            registry,
            shutdown,
        })
}

/// That this answers is all there is to know: a process that only waits for the API server must not be restarted.
async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let mut unmet = admin.readiness.unmet();
    if admin.shutdown.has_begun() {
        unmet.push(("shutdown", "the process is ending".into()));
    }
    if unmet.is_empty() {
        return "ok\n".into_response();
    }
    let list: String = unmet
        .iter()
        .map(|(name, reason)| name.to_string() + ": " + reason + "\n")
        .collect();
    (StatusCode::SERVICE_UNAVAILABLE, list).into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let mut body = String::new();
    match text::encode(&mut body, &admin.registry) {
        Ok(()) => ([(CONTENT_TYPE, OPEN_METRICS)], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
