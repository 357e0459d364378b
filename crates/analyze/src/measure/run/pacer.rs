//! The pacer of an open loop, finer than the runtime's timer.
//!
//! The runtime counts milliseconds, and a call that leaves a millisecond late looks a millisecond
//! slow, for its time counts from when it should have left. A thread that sleeps until each call
//! is due is late by what the system takes to wake it, some fifty microseconds. It only tells
//! that time has come; the sender looks at the clock.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Calls that are closer together are told together.
const APART_MIN: Duration = Duration::from_micros(100);

/// A thread that tells when calls are due, until it is dropped.
#[derive(Debug)]
pub(super) struct Pacer {
    shared: Arc<PacerShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct PacerShared {
    told: Notify,
    over: AtomicBool,
}

impl Pacer {
    /// Begins to tell of calls that are due at `begun + n / per_second`.
    pub(super) fn start(begun: Instant, per_second: f64, calls: u64) -> io::Result<Self> {
        let shared = Arc::<PacerShared>::default();
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("wellhead-pacer".to_owned())
            .spawn(move || own.run(begun, per_second, calls))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Waits until `due` is past.
    pub(super) async fn until(&self, due: Instant) {
        while Instant::now() < due {
            tokio::select! {
                // One that was told before is not lost.
                () = self.shared.told.notified() => {}
                // A timer that rounds otherwise than the thread waits a bit longer, not for ever.
                () = sleep_until(due) => {}
            }
        }
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.shared.over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl PacerShared {
    fn run(&self, begun: Instant, per_second: f64, calls: u64) {
        let due = |n: u64| begun + Duration::from_secs_f64(n as f64 / per_second);
        let mut n = 0;
        while n < calls && !self.over.load(Relaxed) {
            let now = Instant::now();
            let next = due(n);
            if now < next {
                thread::park_timeout((next - now).max(APART_MIN));
                continue;
            }
            self.told.notify_one();
            // All that are due by now are told with this one.
            let past = (now - begun).as_secs_f64() * per_second;
            n = (n + 1).max(past as u64 + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_call_is_told_of_and_none_before_its_time() {
        let begun = Instant::now();
        let pacer = Pacer::start(begun, 2_000.0, 100).expect("a thread");
        for n in 0..100 {
            let due = begun + Duration::from_secs_f64(f64::from(n) / 2_000.0);
            pacer.until(due).await;
            assert!(Instant::now() >= due);
        }
    }

    #[test]
    fn it_ends_when_no_loop_waits() {
        // In an hour the next call would be due.
        let pacer = Pacer::start(Instant::now(), 1.0 / 3_600.0, 10).expect("a thread");
        drop(pacer);
    }
}
