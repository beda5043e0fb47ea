//! The open connections: how many there may be, and which one goes when another comes.
//!
//! Junk must not keep API servers out, so a full server does not stop accepting: it closes the connection that has
//! been quiet for the longest. A caller whose idle connection is closed opens another.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// How long an evicted connection has before another is evicted too.
const EVICTION_TAKES: Duration = Duration::from_millis(100);

/// All connections of one server.
#[derive(Debug)]
pub(super) struct Connections {
    room: Arc<Semaphore>,
    most: u32,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    epoch: Instant,
    next_id: AtomicU64,
}

/// One connection, as others see it.
#[derive(Debug)]
pub(super) struct Connection {
    /// Milliseconds of the server's life at which something happened last.
    last: AtomicU64,
    /// A handler works for it: it is never evicted then.
    busy: AtomicBool,
    evicted: Notify,
}

/// Room for one connection; dropped, it is free for another.
#[derive(Debug)]
pub(super) struct Seat {
    connections: Arc<Connections>,
    id: u64,
    connection: Arc<Connection>,
    _room: OwnedSemaphorePermit,
}

impl Connections {
    pub(super) fn new(most: u32) -> Arc<Self> {
        let most = most.max(1);
        Arc::new(Self {
            room: Arc::new(Semaphore::new(most as usize)),
            most,
            open: Mutex::default(),
            epoch: Instant::now(),
            next_id: AtomicU64::default(),
        })
    }

    /// Room for a new connection. Where there is none, quiet ones are evicted; `evicting` is told of each.
    pub(super) async fn seat(self: &Arc<Self>, evicting: impl Fn()) -> Option<Seat> {
        let room = loop {
            if let Ok(room) = self.room.clone().try_acquire_owned() {
                break room;
            }
            if self.evict_quietest() {
                evicting();
            }
            if let Ok(room) = tokio::time::timeout(EVICTION_TAKES, self.room.clone().acquire_owned()).await {
                break room.ok()?;
            }
        };
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            last: AtomicU64::new(self.now()),
            busy: AtomicBool::new(false),
            evicted: Notify::new(),
        });
        self.open.lock().insert(id, connection.clone());
        Some(Seat {
            connections: self.clone(),
            id,
            connection,
            _room: room,
        })
    }

    fn evict_quietest(&self) -> bool {
        let mut open = self.open.lock();
        let quietest = open
            .iter()
            .filter(|(_, connection)| !connection.busy.load(Ordering::Relaxed))
            .min_by_key(|(_, connection)| connection.last.load(Ordering::Relaxed))
            .map(|(id, _)| *id);
        let evicted = quietest.and_then(|id| open.remove(&id));
        if let Some(connection) = &evicted {
            connection.evicted.notify_one();
        }
        evicted.is_some()
    }

    /// Waits until none is open.
    pub(super) async fn all_closed(&self) {
        drop(self.room.acquire_many(self.most).await);
    }

    /// How many are open.
    #[cfg(test)]
    fn count(&self) -> usize {
        (self.most as usize).saturating_sub(self.room.available_permits())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Seat {
    /// Waits until this connection has to make room.
    pub(super) async fn evicted(&self) {
        self.connection.evicted.notified().await;
    }

    /// Notes that something was received or sent.
    pub(super) fn touch(&self) {
        self.connection
            .last
            .store(self.connections.now(), Ordering::Relaxed);
    }

    /// Notes that a handler works, until the guard is dropped.
    pub(super) fn busy(&self) -> Busy<'_> {
        self.connection.busy.store(true, Ordering::Relaxed);
        Busy(self)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.connections.open.lock().remove(&self.id);
    }
}

/// A handler works.
pub(super) struct Busy<'a>(&'a Seat);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.touch();
        self.0.connection.busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_server_evicts_the_quietest_that_is_not_busy() {
        let connections = Connections::new(3);
        let seats = [
            seat(&connections).await,
            seat(&connections).await,
            seat(&connections).await,
        ];
        for (seat, last) in seats.iter().zip([1, 2, 3]) {
            seat.connection.last.store(last, Ordering::Relaxed);
        }
        let busy = seats[0].busy();
        let waiting = tokio::spawn({
            let connections = connections.clone();
            async move { seat(&connections).await }
        });
        seats[1].evicted().await;
        assert!(!waiting.is_finished(), "the evicted one has not gone yet");
        let [first, second, third] = seats.each_ref().map(|seat| seat.id);
        assert!(connections.open.lock().contains_key(&first));
        assert!(!connections.open.lock().contains_key(&second));
        assert!(connections.open.lock().contains_key(&third));
        drop(busy);
        drop(seats);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn it_is_empty_when_the_last_one_goes() {
        let connections = Connections::new(2);
        let one = seat(&connections).await;
        assert_eq!(connections.count(), 1);
        let closed = connections.all_closed();
        futures::pin_mut!(closed);
        assert!(futures::poll!(&mut closed).is_pending());
        drop(one);
        closed.await;
        assert_eq!(connections.count(), 0);
        assert!(connections.open.lock().is_empty());
    }

    async fn seat(connections: &Arc<Connections>) -> Seat {
        connections.seat(|| ()).await.unwrap()
    }
}
