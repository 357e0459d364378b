//! The timer inside an attempt: it rings when the attempt takes long, and ends it at its deadline.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

/// The longest interval once a timer has rung: an upstream that was down may have recovered by then.
const RING_EVERY_MAX: Duration = Duration::from_millis(500);

/// Rings inside an attempt that takes long: after a while, then after twice, four times as
/// long and so on, and in the end every [`RING_EVERY_MAX`]. The poller of the attempt checks
/// whether it rang.
#[derive(Debug)]
pub(crate) struct HedgeTimer {
    after: Duration,
    rang: AtomicBool,
}

impl HedgeTimer {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, rang: AtomicBool::new(false) }
    }

    /// When it rings first.
    pub(crate) fn after(&self) -> Duration {
        self.after
    }

    /// True once for each time that it rang.
    pub(crate) fn take_ring(&self) -> bool {
        self.rang.swap(false, Ordering::Relaxed)
    }
}

/// Waits for `work` until the deadline; `None` when that passed. One timer serves the
/// deadline and the timer. The work stays where it is pinned: taken by value it would have
/// room in this future twice over.
pub(crate) async fn within<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
    began: Instant,
    deadline: Instant,
    hedge_timer: Option<&HedgeTimer>,
) -> Option<T> {
    let mut pause = hedge_timer.map(|hedge_timer| hedge_timer.after);
    // What overflows the clock is later than any deadline.
    let next = |pause: Option<Duration>| {
        pause.and_then(|pause| began.checked_add(pause)).map_or(deadline, |at| at.min(deadline))
    };
    let mut at = next(pause);
    let mut timer = pin!(tokio::time::sleep_until(at.into()));
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        loop {
            // Work that never lets its task rest must not hold up its own deadline.
            let rang = pin!(tokio::task::coop::unconstrained(timer.as_mut())).poll(cx);
            if rang.is_pending() {
                return Poll::Pending;
            }
            if at >= deadline {
                return Poll::Ready(None);
            }
            pause = pause.map(|pause| pause.saturating_add(pause.min(RING_EVERY_MAX)));
            if let Some(hedge_timer) = hedge_timer {
                hedge_timer.rang.store(true, Ordering::Relaxed);
            }
            at = next(pause);
            timer.as_mut().reset(at.into());
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::now;

    /// Rings of a timer after `after_ms` in work that never ends, and when it ended.
    async fn check(after_ms: u64, deadline_ms: u64, expected: &[u64]) {
        let began = now();
        let ms = Duration::from_millis;
        let hedge_timer = HedgeTimer::new(ms(after_ms));
        let work = pin!(std::future::pending::<()>());
        let mut waiting = pin!(within(work, began, began + ms(deadline_ms), Some(&hedge_timer)));
        let mut seen = Vec::new();
        let ended = poll_fn(|cx| {
            let poll = waiting.as_mut().poll(cx);
            if hedge_timer.take_ring() {
                seen.push((now() - began).as_millis() as u64);
            }
            poll
        });
        assert_eq!(ended.await, None);
        assert_eq!((now() - began).as_millis() as u64, deadline_ms);
        assert_eq!(seen, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_rings_more_rarely_at_first_until_the_deadline() {
        check(100, 1_000, &[100, 200, 400, 800]).await;
        check(1_000, 1_000, &[]).await;
        check(5_000, 1_000, &[]).await;
        check(20, 3_000, &[20, 40, 80, 160, 320, 640, 1_140, 1_640, 2_140, 2_640]).await;
    }
}
