//! What every request passes before its handler sees it: size, type and time, and what every answer gets.
//!
//! A handler is called with the whole body in memory, so a slow sender occupies no handler; and whatever the handler
//! does, its panic included, its caller gets an answer.

use std::{
    collections::HashMap,
    net::SocketAddr,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{
        HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
        header::{CONNECTION, CONTENT_TYPE},
    },
    response::IntoResponse,
};
use futures::FutureExt;
use hyper::body::Incoming;
use tokio::{
    runtime::Handle,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};
use tower_service::Service;
use tracing::{error, warn};

use super::{
    ServeOptions,
    answers::Answers,
    bodies::{Bodies, Room, Whole},
    connections::Seat,
    deadline,
    metrics::{Refused, ServeMetrics},
    shutdown::Shutdown,
};
use crate::telemetry::Sparse;

/// The way to the handlers.
pub(super) struct Gate {
    router: Router,
    bodies: Bodies,
    answers: Answers,
    max_time: Duration,
    metrics: ServeMetrics,
    shutdown: Shutdown,
    /// Anybody can be refused as often as they like; one reason must not hide the others.
    lines: HashMap<Refused, Sparse>,
}

/// A request that gets no decision.
pub(super) struct Refusal {
    status: StatusCode,
    reason: Refused,
    text: String,
}

impl Gate {
    pub(super) fn new(
        router: Router,
        options: &ServeOptions,
        metrics: ServeMetrics,
        shutdown: Shutdown,
    ) -> Arc<Self> {
        Arc::new(Self {
            // The limit is kept here, for every handler alike; axum's own would be 2 MB.
            router: router.layer(axum::extract::DefaultBodyLimit::disable()),
            bodies: Bodies::new(options),
            answers: Answers::new(options),
            max_time: options.max_request_time,
            metrics,
            shutdown,
            lines: Refused::ALL.map(|reason| (reason, Sparse::default())).into(),
        })
    }

    /// Answers one request of this peer.
    pub(super) async fn answer(
        &self,
        seat: &Seat,
        peer: SocketAddr,
        request: Request<Incoming>,
    ) -> Response<Body> {
        seat.touch();
        let uri = request.uri().clone();
        let time = deadline::for_query(uri.query(), self.max_time);
        let end = Instant::now() + time;
        let reached = AtomicBool::new(false);
        let answered = timeout_at(end, self.pass(seat, request, end, &reached)).await;
        let late = || Refusal::late(time, reached.load(Ordering::Relaxed));
        let mut response = match answered
            .unwrap_or(Ok(None))
            .and_then(|answer| answer.ok_or_else(late))
        {
            Ok(response) => response,
            Err(refusal) => {
                self.metrics.refused(refusal.reason);
                self.log(&refusal, peer, uri.path());
                let mut response = (refusal.status, refusal.text).into_response();
                // Some of its body may not have been read: there is no next request on this connection.
                response
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
        };
        if self.shutdown.has_begun() {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        seat.touch();
        response
    }

    fn log(&self, refusal: &Refusal, peer: SocketAddr, path: &str) {
        let Refusal { status, reason, text } = refusal;
        // A panic was logged where it was caught.
        let lines = self.lines.get(reason).filter(|_| *reason != Refused::panic);
        if let Some(left_out) = lines.and_then(|lines| lines.pass(std::time::Instant::now())) {
            warn!(%peer, path, ?reason, status = status.as_u16(), left_out, "refused a request: {text}");
        }
    }

    /// Tells by `reached` that it calls a handler. `None`: there was no answer by `end`.
    async fn pass(
        &self,
        seat: &Seat,
        request: Request<Incoming>,
        end: Instant,
        reached: &AtomicBool,
    ) -> Result<Option<Response<Body>>, Refusal> {
        let (parts, body) = request.into_parts();
        if has_meaningful_body(&parts.method) && !is_json(&parts.headers) {
            self.bodies.linger(body, &parts.headers).await;
            return Err(Refusal::content_type());
        }
        let Whole { bytes, room } = self.bodies.read(body, &parts.headers).await?;
        let _busy = seat.busy();
        reached.store(true, Ordering::Relaxed);
        let call = self
            .router
            .clone()
            .call(Request::from_parts(parts, Body::from(bytes)));
        let call = AssertUnwindSafe(call).catch_unwind();
        // Parsing megabytes takes as long as thousands of everyday answers: it must not stand in their way.
        let called = if let Room::Alone(alone) = room {
            let runtime = Handle::current();
            let apart = spawn_blocking(move || {
                let _alone = alone;
                // Nobody ends a thread from outside: the next large body would wait for this one's looks.
                runtime.block_on(timeout_at(end, call))
            });
            apart.await.map_err(|ended| Refusal::panic(&ended))?
        } else {
            Ok(call.await)
        };
        match called {
            Ok(Ok(Ok(response))) => Ok(Some(self.answers.keep(response).await?)),
            Ok(Ok(Err(never))) => match never {},
            Ok(Err(panic)) => Err(Refusal::panic(panic.as_ref())),
            Err(_) => Ok(None),
        }
    }
}

fn has_meaningful_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

impl Refusal {
    fn new(status: StatusCode, reason: Refused, text: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            text: text.into(),
        }
    }

    fn content_type() -> Self {
        let text = "the body has to be application/json";
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, Refused::content_type, text)
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let text = format!("the body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Refused::body_too_large, text)
    }

    pub(super) fn unreadable() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            Refused::body_unreadable,
            "the body ended before its end",
        )
    }

    /// It took long to arrive, and another waited for its room.
    pub(super) fn slow() -> Self {
        let text = "the body came slowly, and others wait for the memory that it takes; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Refused::body_slow, text)
    }

    pub(super) fn no_room() -> Self {
        let text = "there is no memory for so large an answer while others are not taken; try again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Refused::no_room, text)
    }

    /// The time is over: for the handler, if it was reached, else for the body.
    fn late(time: Duration, reached: bool) -> Self {
        let (reason, text) = if reached {
            (
                Refused::deadline,
                format!("no answer within {time:?}, which is what the caller has"),
            )
        } else {
            (
                Refused::body_late,
                format!("the body did not come within {time:?}, which is what the caller has"),
            )
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, text)
    }

    fn panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or(panic.downcast_ref::<String>().map(String::as_str));
        error!(
            panic = text.unwrap_or("of another kind"),
            "a handler panicked; this is a bug of Flock, please report it"
        );
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            Refused::panic,
            "a bug in Flock, see its log",
        )
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_it_is("application/json", true)]
    #[case::with_a_parameter("application/json; charset=utf-8", true)]
    #[case::with_space(" application/json ;x", true)]
    #[case::another("text/json", false)]
    #[case::longer("application/json5", false)]
    #[case::empty("", false)]
    fn json_is_known_by_its_type_without_parameters(#[case] value: &'static str, #[case] json: bool) {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]);
        assert_eq!(is_json(&headers), json);
    }
}
