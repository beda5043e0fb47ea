//! What every request passes before its handler sees it: size, type and time, and what every answer gets.
//!
//! A handler is called with the whole body in memory, so a slow sender occupies no handler; and whatever the handler
//! does, its panic included, its caller gets an answer.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{
        HeaderMap, HeaderValue, Method, Request, Response, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, EXPECT},
    },
    response::IntoResponse,
};
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tower_service::Service;
use tracing::{error, warn};

use super::{
    ServeOptions,
    connections::Seat,
    deadline,
    metrics::{Refused, ServeMetrics},
    shutdown::Shutdown,
};

/// Bytes of a body that cost nothing of the memory all bodies share: as many as an ordinary pod's review has, so that
/// a few giants do not keep everyday requests waiting.
const FREE_BYTES: usize = 16 * 1024;
/// The unit in which the shared memory is counted.
const UNIT: usize = 1024;
/// How long the rest of a body that is refused is read, so that its sender sees the answer and not a reset.
const LINGER: Duration = Duration::from_secs(1);

/// The way to the handlers.
pub(super) struct Gate {
    router: Router,
    max_body: usize,
    max_time: Duration,
    memory: Semaphore,
    metrics: ServeMetrics,
    shutdown: Shutdown,
}

/// A request that gets no decision.
struct Refusal {
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
            max_body: options.max_body,
            max_time: options.max_request_time,
            memory: Semaphore::new((options.body_memory / UNIT).min(Semaphore::MAX_PERMITS)),
            metrics,
            shutdown,
        })
    }

    /// Answers one request.
    pub(super) async fn answer(&self, seat: &Seat, request: Request<Incoming>) -> Response<Body> {
        seat.touch();
        let time = deadline::for_query(request.uri().query(), self.max_time);
        let answered = timeout(time, self.pass(seat, request)).await;
        let mut response = match answered.unwrap_or_else(|_| Err(Refusal::deadline(time))) {
            Ok(response) => response,
            Err(refusal) => {
                self.metrics.refused(refusal.reason);
                warn!(reason = ?refusal.reason, status = refusal.status.as_u16(), "refused a request: {}", refusal.text);
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

    async fn pass(&self, seat: &Seat, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let (parts, body) = request.into_parts();
        if has_meaningful_body(&parts.method) && !is_json(&parts.headers) {
            linger(body, &parts.headers, self.max_body).await;
            return Err(Refusal::content_type());
        }
        let mut memory = None;
        let body = self.read(body, &parts.headers, &mut memory).await?;
        let _busy = seat.busy();
        let call = self
            .router
            .clone()
            .call(Request::from_parts(parts, Body::from(body)));
        match AssertUnwindSafe(call).catch_unwind().await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(panic) => Err(Refusal::panic(panic.as_ref())),
        }
    }

    /// Reads a body to its end; `memory` is what it takes of the memory that all share.
    async fn read<'a>(
        &'a self,
        mut body: Incoming,
        headers: &HeaderMap,
        memory: &mut Option<SemaphorePermit<'a>>,
    ) -> Result<Bytes, Refusal> {
        // What is announced as too large is not read at all, what turns out to be only so far.
        if body.size_hint().lower() <= self.max_body as u64
            && let Some(whole) = self.collect(&mut body, memory).await?
        {
            return Ok(whole);
        }
        *memory = None;
        linger(body, headers, self.max_body).await;
        Err(Refusal::too_large(self.max_body))
    }

    /// The whole body, or `None` as soon as it is too large.
    async fn collect<'a>(
        &'a self,
        body: &mut Incoming,
        memory: &mut Option<SemaphorePermit<'a>>,
    ) -> Result<Option<Bytes>, Refusal> {
        let announced = body
            .size_hint()
            .exact()
            .and_then(|bytes| usize::try_from(bytes).ok());
        let mut whole = Joined::expecting(announced.unwrap_or(0).min(self.max_body));
        while let Some(frame) = body.frame().await {
            // Trailers mean nothing here.
            let Ok(data) = frame.map_err(|_| Refusal::unreadable())?.into_data() else {
                continue;
            };
            let length = whole.len() + data.len();
            if length > self.max_body {
                return Ok(None);
            }
            self.account_for(length, memory).await?;
            whole.push(data);
        }
        Ok(Some(whole.finish()))
    }

    /// Takes what so many bytes need of the shared memory. Waiting for it holds the sender back; the deadline ends
    /// the wait.
    async fn account_for<'a>(
        &'a self,
        length: usize,
        memory: &mut Option<SemaphorePermit<'a>>,
    ) -> Result<(), Refusal> {
        let wanted = length.saturating_sub(FREE_BYTES).div_ceil(UNIT);
        let held = memory.as_ref().map_or(0, SemaphorePermit::num_permits);
        let missing = u32::try_from(wanted.saturating_sub(held)).unwrap_or(u32::MAX);
        if missing == 0 {
            return Ok(());
        }
        let more = self
            .memory
            .acquire_many(missing)
            .await
            .map_err(|_| Refusal::unreadable())?;
        match memory {
            Some(memory) => memory.merge(more),
            None => *memory = Some(more),
        }
        Ok(())
    }
}

/// Frames of a body, copied only if there is more than one.
struct Joined {
    first: Bytes,
    rest: BytesMut,
    /// How long the whole is said to be. Room for it is taken at once, so that growing does not take twice as much;
    /// as long as nothing is written there, it is no memory.
    expected: usize,
}

impl Joined {
    fn expecting(expected: usize) -> Self {
        Self {
            first: Bytes::new(),
            rest: BytesMut::new(),
            expected,
        }
    }

    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    fn push(&mut self, data: Bytes) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        let length = self.len() + data.len();
        let room = if length > FREE_BYTES {
            self.expected
        } else {
            self.expected.min(FREE_BYTES)
        };
        if self.rest.capacity() < length {
            self.rest.reserve(room.max(length) - self.rest.len());
        }
        self.rest.extend_from_slice(&std::mem::take(&mut self.first));
        self.rest.extend_from_slice(&data);
    }

    fn finish(self) -> Bytes {
        if self.rest.is_empty() {
            self.first
        } else {
            self.rest.freeze()
        }
    }
}

/// Reads on for a moment, as much again as is allowed, and forgets what comes.
async fn linger(mut body: Incoming, headers: &HeaderMap, most: usize) {
    // A sender that waits for a 100 sends nothing before it, and reading would send it.
    if headers.contains_key(EXPECT) {
        return;
    }
    let mut left = most;
    let _ = timeout(LINGER, async {
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(length) else {
                return;
            };
            left = rest;
        }
    })
    .await;
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

    fn too_large(limit: usize) -> Self {
        let text = format!("the body is larger than {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Refused::body_too_large, text)
    }

    fn unreadable() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            Refused::body_unreadable,
            "the body ended before its end",
        )
    }

    fn deadline(time: Duration) -> Self {
        let text =
            format!("no answer within {time:?}, which is what the caller has, or the body came too slowly");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Refused::deadline, text)
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
    #[case::nothing(0, &[], "")]
    #[case::one_frame(3, &["abc"], "abc")]
    #[case::several(7, &["abc", "", "de", "fg"], "abcdefg")]
    #[case::an_empty_one_first(1, &["", "a"], "a")]
    #[case::of_unknown_length(0, &["abc", "de"], "abcde")]
    #[case::longer_than_announced(1, &["abc", "de"], "abcde")]
    fn frames_are_joined_in_their_order(
        #[case] expected: usize,
        #[case] frames: &[&'static str],
        #[case] whole: &str,
    ) {
        let mut joined = Joined::expecting(expected);
        for frame in frames {
            joined.push(Bytes::from_static(frame.as_bytes()));
        }
        assert_eq!(joined.len(), whole.len());
        assert_eq!(joined.finish(), whole);
    }

    #[test]
    fn a_body_of_announced_length_takes_no_more_than_that() {
        let mut joined = Joined::expecting(1_000_000);
        for _ in 0..100 {
            joined.push(Bytes::from(vec![b' '; 10_000]));
        }
        assert_eq!(joined.rest.capacity(), 1_000_000);
    }

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
