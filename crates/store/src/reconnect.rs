//! How a connection to a store is kept: the pauses between attempts, and which failures are logged.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tokio::time::{Instant, sleep};

use crate::AbortOnDrop;

/// What is done on a connection, each time that there is one.
pub(crate) trait KeptConnection: Send + 'static {
    /// Connects, and serves until the connection is over. An error: there was none, for this reason.
    fn serve(&mut self) -> impl Future<Output = Result<LinkEnd, &'static str>> + Send;

    /// Logs that there is no connection.
    fn log_away(&self, reason: &'static str);
}

/// How a connection ended.
pub(crate) struct LinkEnd {
    /// When it was made.
    pub(crate) since: Instant,
    pub(crate) reason: &'static str,
}

/// Connects again and again, in a task of this runtime, until what is returned is dropped.
///
/// `rng` spreads the attempts of replicas.
pub(crate) fn keep(
    mut kept: impl KeptConnection,
    mut reconnect: Reconnect,
    mut rng: SmallRng,
) -> Arc<AbortOnDrop> {
    let task = tokio::spawn(async move {
        loop {
            let reason = match kept.serve().await {
                Ok(end) => {
                    reconnect.note_end(end.since);
                    end.reason
                }
                Err(reason) => reason,
            };
            if reconnect.take_log() {
                kept.log_away(reason);
            }
            reconnect.pause(&mut rng).await;
        }
    });
    Arc::new(AbortOnDrop(task.abort_handle()))
}

/// Pauses double from the shortest to the longest. Of failures in a row only the first is logged.
#[derive(Debug)]
pub(crate) struct Reconnect {
    min: Duration,
    max: Duration,
    next: Duration,
    is_logged: bool,
}

impl Reconnect {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min, is_logged: false }
    }

    /// The connection that was made at `since` has ended. If it lasted longer than the longest pause, the next
    /// pause is the shortest.
    fn note_end(&mut self, since: Instant) {
        self.is_logged = false;
        if since.elapsed() > self.max {
            self.next = self.min;
        }
    }

    /// Takes the right to log a failure: `true` once, until a connection has ended.
    fn take_log(&mut self) -> bool {
        !std::mem::replace(&mut self.is_logged, true)
    }

    /// Waits. The time is between half of the pause and all of it, so that replicas do not connect together.
    async fn pause(&mut self, rng: &mut SmallRng) {
        sleep(self.next.mul_f64(rng.random_range(0.5..=1.0))).await;
        self.next = self.next.saturating_mul(2).min(self.max);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const MIN: Duration = Duration::from_millis(100);
    const MAX: Duration = Duration::from_secs(1);

    async fn paused(reconnect: &mut Reconnect) -> Duration {
        let before = Instant::now();
        reconnect.pause(&mut SmallRng::seed_from_u64(1)).await;
        before.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_until_a_connection_lasted() {
        let mut reconnect = Reconnect::new(MIN, MAX);
        for pause in [100, 200, 400, 800, 1_000, 1_000].map(Duration::from_millis) {
            let took = paused(&mut reconnect).await;
            assert!((pause / 2..=pause + Duration::from_millis(1)).contains(&took), "{took:?}");
        }
        reconnect.note_end(Instant::now());
        assert!(paused(&mut reconnect).await >= MAX / 2, "it ended at once");
        let since = Instant::now();
        tokio::time::advance(MAX * 2).await;
        reconnect.note_end(since);
        assert!(paused(&mut reconnect).await <= MIN + Duration::from_millis(1));
    }

    #[test]
    fn the_first_failure_in_a_row_is_logged() {
        let mut reconnect = Reconnect::new(MIN, MAX);
        assert_eq!([reconnect.take_log(), reconnect.take_log()], [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_end_of_a_connection_is_logged() {
        let mut reconnect = Reconnect::new(MIN, MAX);
        assert!(reconnect.take_log());
        reconnect.note_end(Instant::now());
        assert_eq!([reconnect.take_log(), reconnect.take_log()], [true, false]);
    }
}
