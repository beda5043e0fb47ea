//! Answers in memory until their callers have taken them.

use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::Response;
use bytes::Bytes;
use hyper::body::Body as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{ServeOptions, gate::Refusal};

/// Up to this size an answer takes no room: one connection has one at a time.
const SMALL: usize = 16 * 1024;
/// The unit in which room is counted.
const UNIT: usize = 1024;

/// The room for answers. A caller that does not read keeps its own in memory until the write's deadline.
pub(super) struct Answers {
    free: Arc<Semaphore>,
}

/// An answer with the room that it takes, which is free again when its last byte is written.
struct Held {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Answers {
    pub(super) fn new(options: &ServeOptions) -> Self {
        Self {
            free: Arc::new(Semaphore::new(
                (options.answer_memory / UNIT).min(Semaphore::MAX_PERMITS),
            )),
        }
    }

    /// The answer, if there is room for it now: one that waited would be in memory as well.
    pub(super) async fn keep(&self, answer: Response<Body>) -> Result<Response<Body>, Refusal> {
        let size = answer.body().size_hint().lower();
        if size <= SMALL as u64 {
            return Ok(answer);
        }
        let units = u32::try_from(size.div_ceil(UNIT as u64)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.free)
            .try_acquire_many_owned(units)
            .map_err(|_| Refusal::no_room())?;
        let (parts, body) = answer.into_parts();
        let bytes = to_bytes(body, usize::MAX).await.map_err(|_| Refusal::no_room())?;
        let held = Bytes::from_owner(Held {
            bytes,
            _permit: permit,
        });
        Ok(Response::from_parts(parts, Body::from(held)))
    }
}
