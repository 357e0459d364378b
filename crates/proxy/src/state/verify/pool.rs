//! A pool for work that would delay other calls.
//!
//! A worker's thread serves thousands of calls; a whole block at the level `full` takes a
//! tenth of a second. Such work runs on the runtime's blocking threads, a few at a time over
//! the whole process, and waits in a bounded queue for a bounded time. At the bound it is not
//! done, and the caller learns so at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use wellhead_dispatch::now;
use wellhead_limit::Permits;

/// Answers, or batches of them, that wait for their turn; each holds its bytes meanwhile.
pub(crate) const WAITING_MAX: usize = 64;
/// And for at most this long: an answer that was not looked at now is better than a late one.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(1);

/// Where answers are looked at that take long. One for all chains and workers of a process.
#[derive(Debug)]
pub struct VerifyPool {
    /// `None`: nowhere else.
    turns: Option<Arc<Semaphore>>,
    waiting: Permits,
}

impl VerifyPool {
    /// This many are looked at at once, at least one: threads that clients' calls do not have
    /// meanwhile.
    pub fn new(at_once: usize) -> Self {
        Self {
            turns: Some(Arc::new(Semaphore::new(at_once.max(1)))),
            waiting: Permits::new(WAITING_MAX),
        }
    }

    /// All are looked at where they come in, however long that takes: for simulations, which
    /// go the same way each time only on one thread.
    pub fn nowhere() -> Self {
        Self { turns: None, waiting: Permits::new(WAITING_MAX) }
    }

    /// Does `work`; `None` when its turn did not come, or it did not end until `until`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        until: Instant,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let Some(turns) = &self.turns else { return Some(work()) };
        let turn = {
            let _permit = self.waiting.try_acquire()?;
            let latest = until.min(now() + WAIT_MAX);
            let turn = Arc::clone(turns).acquire_owned();
            tokio::time::timeout_at(latest.into(), turn).await.ok()?.ok()?
        };
        let work = tokio::task::spawn_blocking(move || {
            let done = work();
            // Not earlier, even if the caller has given up.
            drop(turn);
            done
        });
        tokio::time::timeout_at(until.into(), work).await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use futures_util::FutureExt;
    use futures_util::future::join_all;

    use super::*;

    fn soon() -> Instant {
        now() + Duration::from_secs(30)
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_is_bounded_in_places_and_in_time() {
        let pool = VerifyPool::new(1);
        let (go, wait) = mpsc::channel::<()>();
        let mut first = Box::pin(pool.run(soon(), move || wait.recv().is_ok()));
        assert_eq!(first.as_mut().now_or_never(), None, "it is at work");
        let mut line: Vec<_> =
            (0..WAITING_MAX).map(|n| Box::pin(pool.run(soon(), move || n))).collect();
        for waiting in &mut line {
            assert_eq!(waiting.as_mut().now_or_never(), None, "it waits");
        }
        assert_eq!(pool.run(soon(), || ()).now_or_never(), Some(None), "the line is full");
        // The clock stands still while something is at work aside, and is moved by hand.
        tokio::time::advance(WAIT_MAX).await;
        assert!(join_all(line).await.iter().all(Option::is_none), "none waits for longer");
        go.send(()).expect("it waits for this");
        assert_eq!(first.await, Some(true));
        assert_eq!(pool.run(soon(), || 7).await, Some(7), "the turn came back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_check_without_a_waiter_keeps_its_turn_until_it_ends() {
        let pool = VerifyPool::new(1);
        let (go, wait) = mpsc::channel::<()>();
        let mut first = Box::pin(pool.run(soon(), move || wait.recv().is_ok()));
        assert_eq!(first.as_mut().now_or_never(), None);
        drop(first);
        let mut second = Box::pin(pool.run(soon(), || 2));
        assert_eq!(second.as_mut().now_or_never(), None);
        go.send(()).expect("it waits for this");
        assert_eq!(second.await, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn there_may_be_nowhere_else() {
        assert_eq!(VerifyPool::nowhere().run(now(), || 3).now_or_never(), Some(Some(3)));
    }
}
