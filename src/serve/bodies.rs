//! Bodies in memory, and the room that they may take there.
//!
//! An everyday review is small and never waits for anything. Larger ones share a little room, and the largest come one
//! at a time: whoever sends them keeps nobody waiting but those who do the same.

use std::time::Duration;

use axum::http::{HeaderMap, header::EXPECT};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use super::{
    ServeOptions,
    gate::Refusal,
    joined::Joined,
    room::{Arrival, Arriving, Room as Pool},
};

/// Up to this size a body takes no room: as much as an ordinary pod's review has.
pub(super) const SMALL: usize = 16 * 1024;
/// Beyond this size a body is alone. No pod that anyone wrote by hand comes near.
const LARGE: usize = 256 * 1024;
/// The unit in which the shared room is counted.
const UNIT: usize = 1024;
/// Room is taken in steps of so many units.
const STEP: usize = 16;
/// How long the rest of a body that is refused is read, so that its sender sees the answer and not a reset.
const LINGER: Duration = Duration::from_secs(1);

/// The room for bodies.
pub(super) struct Bodies {
    max_body: usize,
    shared: Pool,
    alone: Pool,
}

/// What a body holds of the room.
pub(super) enum Room {
    /// It is small.
    Free,
    /// A part of what many share.
    Shared {
        /// Given back at its end.
        _permit: OwnedSemaphorePermit,
    },
    /// All there is for the largest.
    Alone(OwnedSemaphorePermit),
}

/// A body that was read to its end.
pub(super) struct Whole {
    pub(super) bytes: Bytes,
    pub(super) room: Room,
}

impl Bodies {
    pub(super) fn new(options: &ServeOptions) -> Self {
        Self {
            max_body: options.max_body,
            shared: Pool::new(options.body_memory / UNIT),
            alone: Pool::new(1),
        }
    }

    /// Reads a body to its end.
    pub(super) async fn read(&self, mut body: Incoming, headers: &HeaderMap) -> Result<Whole, Refusal> {
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
    async fn collect(&self, body: &mut Incoming) -> Result<Option<Whole>, Refusal> {
        let arrival = Arrival::default();
        tokio::select! {
            biased;
            whole = self.take_in(body, &arrival) => whole,
            () = arrival.has_to_give_way() => Err(Refusal::slow()),
        }
    }

    async fn take_in(&self, body: &mut Incoming, arrival: &Arrival) -> Result<Option<Whole>, Refusal> {
        let announced = body
            .size_hint()
            .exact()
            .and_then(|bytes| usize::try_from(bytes).ok());
        let announced = announced.unwrap_or(0).min(self.max_body);
        let mut held = Held::default();
        if announced > LARGE {
            held.alone(&self.alone, arrival).await;
        }
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
            // Who sends nothing keeps nobody waiting. Who sends has room for all that is announced, as nobody should wait
            // for more while he holds some; only where nothing is announced it comes in steps.
            if length > LARGE {
                held.alone(&self.alone, arrival).await;
            } else if length > SMALL {
                held.grow(&self.shared, length.max(announced), arrival).await;
            }
            bytes.push(data);
        }
        let bytes = bytes.finish();
        Ok(Some(Whole {
            bytes,
            room: held.room(),
        }))
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

/// What a body that is arriving holds.
#[derive(Default)]
struct Held<'a> {
    shared: Option<OwnedSemaphorePermit>,
    alone: Option<OwnedSemaphorePermit>,
    arriving: Option<Arriving<'a>>,
}

impl<'a> Held<'a> {
    /// All the room for the largest. Meanwhile it keeps what it has, for it is in memory.
    async fn alone(&mut self, pool: &'a Pool, arrival: &Arrival) {
        if self.alone.is_none() {
            self.alone = pool.take(1).await;
            self.arriving = Some(pool.arriving(arrival));
            self.shared = None;
        }
    }

    /// Shared room for so many bytes. Waiting for it holds the sender back; the deadline ends the wait.
    async fn grow(&mut self, pool: &'a Pool, length: usize, arrival: &Arrival) {
        if self.alone.is_some() {
            return;
        }
        let held = self.shared.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = units(length).saturating_sub(held);
        if missing == 0 {
            return;
        }
        let Some(more) = pool.take(missing).await else {
            return;
        };
        match &mut self.shared {
            Some(held) => held.merge(more),
            none => {
                *none = Some(more);
                self.arriving = Some(pool.arriving(arrival));
            }
        }
    }

    /// It has arrived, and nobody makes it give way any more.
    fn room(self) -> Room {
        match (self.alone, self.shared) {
            (Some(alone), _) => Room::Alone(alone),
            (None, Some(permit)) => Room::Shared { _permit: permit },
            (None, None) => Room::Free,
        }
    }
}

/// How much of the shared room a body of this length takes.
fn units(length: usize) -> usize {
    length.saturating_sub(SMALL).div_ceil(UNIT).next_multiple_of(STEP)
}
