//! Room that many share, and that nobody keeps from the others by being slow.
//!
//! API servers send a body at once. One that arrives for longer gives its room up as soon as somebody waits for it: else a
//! few peers who send nearly all of a body, and then nothing, would keep everybody else out.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

/// How long a body may take to arrive while somebody waits for its room.
const SLOW: Duration = Duration::from_secs(1);
/// How long one that has to give way may take to do so, before the next has to.
const PACE: Duration = Duration::from_millis(20);

/// The room.
pub(super) struct Room {
    free: Arc<Semaphore>,
    size: usize,
    /// Who holds some of it and has not arrived yet, in the order of their beginnings.
    arriving: Mutex<BTreeMap<(Instant, u64), Arc<Notify>>>,
    next: AtomicU64,
}

/// One that is arriving.
#[derive(Default)]
pub(super) struct Arrival {
    give_way: Arc<Notify>,
}

impl Arrival {
    /// It has taken long, and others wait.
    pub(super) async fn has_to_give_way(&self) {
        self.give_way.notified().await;
    }
}

/// As long as this is there, its owner may have to give way.
pub(super) struct Arriving<'a> {
    room: &'a Room,
    key: (Instant, u64),
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        self.room.arriving.lock().remove(&self.key);
    }
}

impl Room {
    /// Room of so many units.
    pub(super) fn new(size: usize) -> Self {
        let size = size.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(size)),
            size,
            arriving: Mutex::default(),
            next: AtomicU64::default(),
        }
    }

    /// From now on this one has room, and may have to give way. How long it has waited for that does not count against it.
    pub(super) fn arriving(&self, arrival: &Arrival) -> Arriving<'_> {
        let key = (Instant::now(), self.next.fetch_add(1, Ordering::Relaxed));
        self.arriving.lock().insert(key, Arc::clone(&arrival.give_way));
        Arriving { room: self, key }
    }

    /// Takes so many units, or all there are, if that is less, as soon as they are free.
    pub(super) async fn take(&self, units: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(units.min(self.size)).unwrap_or(u32::MAX);
        if let Ok(taken) = Arc::clone(&self.free).try_acquire_many_owned(units) {
            return Some(taken);
        }
        let mut turn = pin!(Arc::clone(&self.free).acquire_many_owned(units));
        let mut not_before = Instant::now();
        loop {
            tokio::select! {
                biased;
                // The semaphore is never closed.
                taken = &mut turn => return taken.ok(),
                () = sleep_until(self.next_due().max(not_before)) => {
                    self.let_the_oldest_give_way();
                    not_before = Instant::now() + PACE;
                }
            }
        }
    }

    /// When the oldest has taken long.
    fn next_due(&self) -> Instant {
        let oldest = self
            .arriving
            .lock()
            .first_key_value()
            .map(|((since, _), _)| *since);
        oldest.unwrap_or_else(Instant::now) + SLOW
    }

    fn let_the_oldest_give_way(&self) {
        let mut arriving = self.arriving.lock();
        if let Some(oldest) = arriving
            .first_entry()
            .filter(|oldest| oldest.key().0.elapsed() >= SLOW)
        {
            oldest.remove().notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_oldest_that_takes_long_gives_way_to_one_that_waits() {
        let room = Room::new(2);
        let (first, second) = (Arrival::default(), Arrival::default());
        let held = (room.take(1).await.unwrap(), room.take(1).await.unwrap());
        let (first_holds, second_holds) = (room.arriving(&first), room.arriving(&second));
        let begun = Instant::now();
        let mut waiting = pin!(room.take(1));
        tokio::select! {
            _ = &mut waiting => panic!("nothing is free"),
            () = first.has_to_give_way() => {}
        }
        assert_eq!(begun.elapsed(), SLOW);
        assert!(second.has_to_give_way().now_or_never().is_none());
        drop((first_holds, held.0));
        assert!(waiting.await.is_some());
        assert!(
            second.has_to_give_way().now_or_never().is_none(),
            "there is room again"
        );
        drop((second_holds, held.1));
        assert!(room.arriving.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_in_the_queue_does_not_count_against_who_gets_its_turn() {
        let room = Room::new(1);
        let held = room.take(1).await;
        let arrival = Arrival::default();
        let mut queued = pin!(room.take(1));
        assert!(tokio::time::timeout(SLOW * 3, &mut queued).await.is_err());
        drop(held);
        let taken = queued.await;
        let arriving = room.arriving(&arrival);
        let begun = Instant::now();
        let mut next = pin!(room.take(1));
        tokio::select! {
            _ = &mut next => panic!("nothing is free"),
            () = arrival.has_to_give_way() => {}
        }
        assert_eq!(begun.elapsed(), SLOW);
        drop((arriving, taken));
        assert!(next.await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_arrived_need_not_give_way() {
        let room = Room::new(1);
        let arrival = Arrival::default();
        let held = room.take(1).await;
        drop(room.arriving(&arrival));
        let waiting = tokio::time::timeout(SLOW * 10, room.take(1)).await;
        assert!(waiting.is_err(), "it waits on");
        assert!(arrival.has_to_give_way().now_or_never().is_none());
        drop(held);
        assert!(room.take(5).await.is_some(), "all there is, if it is less");
    }
}
