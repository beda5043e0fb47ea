//! Bodies in memory, and the room that they may take there.
//!
//! An everyday review is small and never waits for anything. Larger ones share a little room, and the largest come one
//! at a time: whoever sends them keeps nobody waiting but those who do the same.

use std::{sync::Arc, time::Duration};

use axum::http::{HeaderMap, header::EXPECT};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit},
    time::timeout,
};

use super::{ServeOptions, gate::Refusal};

/// Up to this size a body takes no room: as much as an ordinary pod's review has.
const SMALL: usize = 16 * 1024;
/// Beyond this size a body is alone. No pod that anyone wrote by hand comes near.
const LARGE: usize = 256 * 1024;
/// The unit in which the shared room is counted.
const UNIT: usize = 1024;
/// How long the rest of a body that is refused is read, so that its sender sees the answer and not a reset.
const LINGER: Duration = Duration::from_secs(1);

/// The room for bodies.
pub(super) struct Bodies {
    max_body: usize,
    shared: Semaphore,
    alone: Arc<Semaphore>,
}

/// What a body holds of the room.
pub(super) enum Room<'a> {
    /// It is small.
    Free,
    /// A part of what many share.
    Shared(SemaphorePermit<'a>),
    /// All there is for the largest.
    Alone(OwnedSemaphorePermit),
}

/// A body that was read to its end.
pub(super) struct Whole<'a> {
    pub(super) bytes: Bytes,
    pub(super) room: Room<'a>,
}

impl Bodies {
    pub(super) fn new(options: &ServeOptions) -> Self {
        Self {
            max_body: options.max_body,
            shared: Semaphore::new((options.body_memory / UNIT).min(Semaphore::MAX_PERMITS)),
            alone: Arc::new(Semaphore::new(1)),
        }
    }

    /// Reads a body to its end.
    pub(super) async fn read(&self, mut body: Incoming, headers: &HeaderMap) -> Result<Whole<'_>, Refusal> {
        // What is announced as too large is not read at all, what turns out to be only so far.
        if body.size_hint().lower() <= self.max_body as u64
            && let Some(whole) = self.collect(&mut body).await?
        {
            return Ok(whole);
        }
        self.linger(body, headers).await;
        Err(Refusal::too_large(self.max_body))
    }

    /// The whole body, or `None` as soon as it is too large.
    async fn collect(&self, body: &mut Incoming) -> Result<Option<Whole<'_>>, Refusal> {
        let announced = body
            .size_hint()
            .exact()
            .and_then(|bytes| usize::try_from(bytes).ok());
        let announced = announced.unwrap_or(0).min(self.max_body);
        // All at once: those that wait for more while they hold some would wait for each other.
        let mut room = self.enlarge(Room::Free, 0, announced).await?;
        let mut bytes = Joined::expecting(announced);
        while let Some(frame) = body.frame().await {
            // Trailers mean nothing here.
            let Ok(data) = frame.map_err(|_| Refusal::unreadable())?.into_data() else {
                continue;
            };
            let length = bytes.len() + data.len();
            if length > self.max_body {
                return Ok(None);
            }
            if length > announced {
                room = self.enlarge(room, bytes.len().max(announced), length).await?;
            }
            bytes.push(data);
        }
        let bytes = bytes.finish();
        Ok(Some(Whole { bytes, room }))
    }

    /// The room for a body of this length, of which some is there for its first bytes. Waiting for it holds the sender
    /// back; the deadline ends the wait.
    async fn enlarge<'a>(&'a self, room: Room<'a>, from: usize, length: usize) -> Result<Room<'a>, Refusal> {
        let closed = |_| Refusal::unreadable();
        match room {
            Room::Alone(_) => Ok(room),
            _ if length > LARGE => {
                // What it holds of the shared room goes back first.
                drop(room);
                let alone = Arc::clone(&self.alone).acquire_owned().await.map_err(closed)?;
                Ok(Room::Alone(alone))
            }
            _ => {
                let missing = units(length) - units(from);
                if missing == 0 {
                    return Ok(room);
                }
                let more = self.shared.acquire_many(missing).await.map_err(closed)?;
                Ok(Room::Shared(match room {
                    Room::Shared(mut held) => {
                        held.merge(more);
                        held
                    }
                    Room::Free | Room::Alone(_) => more,
                }))
            }
        }
    }

    /// Reads on for a moment, as much again as is allowed, and forgets what comes.
    pub(super) async fn linger(&self, mut body: Incoming, headers: &HeaderMap) {
        // A sender that waits for a 100 sends nothing before it, and reading would send it.
        if headers.contains_key(EXPECT) {
            return;
        }
        let mut left = self.max_body;
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
}

/// How much of the shared room a body of this length takes.
fn units(length: usize) -> u32 {
    let units = length.saturating_sub(SMALL).div_ceil(UNIT);
    u32::try_from(units).unwrap_or(u32::MAX)
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
        let room = if length > SMALL {
            self.expected
        } else {
            self.expected.min(SMALL)
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
}
