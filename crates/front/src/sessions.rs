//! Connections whose callers are judged again while nothing is sent over them.
//!
//! A change of keys wakes no connection by itself: with a hundred thousand of them, ten changes a second would
//! be a million wakes. A loop (`watch_sessions`) looks each second whether anything has changed or the time of a key has
//! come, and wakes those that it concerns.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use wellhead_access::UnixSeconds;

/// All connections that have a caller.
#[derive(Debug, Default)]
pub struct SessionBook {
    alarms: Mutex<HashMap<u64, Arc<SessionAlarm>>>,
    next: AtomicU64,
}

/// Wakes one connection.
#[derive(Debug)]
pub(crate) struct SessionAlarm {
    number: u64,
    /// Seconds since 1970.
    ends_at: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

impl SessionBook {
    /// Adds a connection whose caller ends then. It is woken until it [leaves](Self::leave).
    pub(crate) fn enter(&self, ends_at: Option<UnixSeconds>) -> Arc<SessionAlarm> {
        let number = self.next.fetch_add(1, Relaxed);
        let (ends_at, waker) = (AtomicU64::new(seconds(ends_at)), Mutex::default());
        let alarm = Arc::new(SessionAlarm { number, ends_at, waker });
        self.alarms.lock().insert(number, Arc::clone(&alarm));
        alarm
    }

    /// Forgets a connection.
    pub(crate) fn leave(&self, alarm: &SessionAlarm) {
        self.alarms.lock().remove(&alarm.number);
    }

    /// Wakes those whose time has come at `unix`, the time since 1970; with `all` the others too.
    pub(crate) fn wake(&self, all: bool, unix: Duration) {
        // Woken without the lock: other threads open and close connections meanwhile.
        let alarms = self.alarms.lock();
        let woken = alarms.values().filter(|alarm| all || alarm.is_due(unix)).cloned();
        let woken: Vec<_> = woken.collect();
        drop(alarms);
        woken.iter().for_each(|alarm| alarm.wake());
    }
}

impl SessionAlarm {
    /// Another time has come for its caller.
    pub(crate) fn set(&self, ends_at: Option<UnixSeconds>) {
        self.ends_at.store(seconds(ends_at), Relaxed);
    }

    /// Whether the time of its caller has come.
    pub(crate) fn is_due(&self, unix: Duration) -> bool {
        unix.as_secs() >= self.ends_at.load(Relaxed)
    }

    /// This task is woken from now on.
    pub(crate) fn listen(&self, waker: &Waker) {
        let mut known = self.waker.lock();
        if known.as_ref().is_none_or(|known| !known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}

fn seconds(at: Option<UnixSeconds>) -> u64 {
    at.map_or(u64::MAX, |at| at.0)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU64);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn those_that_it_concerns_are_woken() {
        let book = SessionBook::default();
        let enter = |ends_at: Option<u64>| {
            let (alarm, count) = (book.enter(ends_at.map(UnixSeconds)), Arc::<Count>::default());
            alarm.listen(&count.clone().into());
            (alarm, count)
        };
        let sessions = [enter(None), enter(Some(10)), enter(Some(20))];
        let woken = || sessions.each_ref().map(|(_, count)| count.0.swap(0, Relaxed));
        let wake = |all, seconds| book.wake(all, Duration::from_secs(seconds));
        wake(false, 9);
        assert_eq!(woken(), [0, 0, 0]);
        wake(false, 10);
        assert_eq!(woken(), [0, 1, 0]);
        wake(true, 9);
        assert_eq!(woken(), [1, 1, 1]);
        sessions[1].0.set(None);
        wake(false, 20);
        assert_eq!(woken(), [0, 0, 1]);
        sessions.iter().for_each(|(alarm, _)| book.leave(alarm));
        wake(true, 20);
        assert_eq!((woken(), book.alarms.lock().len()), ([0, 0, 0], 0));
    }

    #[test]
    fn a_connection_that_moved_to_another_task_is_woken_there() {
        let book = SessionBook::default();
        let alarm = book.enter(None);
        let counts = [Arc::<Count>::default(), Arc::<Count>::default()];
        counts.iter().for_each(|count| alarm.listen(&count.clone().into()));
        book.wake(true, Duration::ZERO);
        assert_eq!(counts.map(|count| count.0.load(Relaxed)), [0, 1]);
    }
}
