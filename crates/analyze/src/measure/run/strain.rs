//! Whether the machine that measures has enough of itself.
//!
//! An open loop sees by its calls that they begin late. A closed one does not: a call begins when
//! another is over, and where our own thread is late with both, the target looks slow. And where it
//! has half a processor it never uses more than that half. So there are two signs that no schedule
//! is needed for: how late the loop sees a tick that fell due, and how long the thread was ready
//! and had to wait for a processor.

use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::record::{CellDoubt, GeneratorLoad};

/// Between two ticks: half of what a loop may be late, so that no such pause falls between them.
const TICK: Duration = Duration::from_millis(5);
/// A loop that is later than this for more than a hundredth of the time may make times its own.
const LAG_MAX: Duration = Duration::from_millis(10);
/// The share of a core, used or waited for, above which the times of calls may be our own.
const CPU_MAX: f64 = 0.7;
/// What is ours may be so large a share of what is measured.
const OWN_MAX: f64 = 0.1;

/// What a thread has had of the processors, since some moment that stays the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// It ran for this long.
    pub ran: Duration,
    /// It was ready to run for this long, and others did.
    pub waited: Duration,
}

/// What the thread that sends has had; `None` where it is not known.
pub type CpuClock = fn() -> Option<CpuTime>;

/// What this thread, which does all the sending, has had. `None` where the system does not tell.
pub(super) fn cpu_time() -> Option<CpuTime> {
    taken(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
}

/// Nanoseconds on a processor, nanoseconds of waiting for one, and turns, which are not needed.
fn taken(schedstat: &str) -> Option<CpuTime> {
    let mut fields = schedstat.split_whitespace();
    let mut next = || fields.next()?.parse().ok().map(Duration::from_nanos);
    Some(CpuTime { ran: next()?, waited: next()? })
}

/// Shares of one core.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CpuShares {
    pub(super) ran: f64,
    pub(super) waited: f64,
}

impl CpuShares {
    /// What was had between the two; nothing where the system does not tell.
    pub(super) fn of(from: Option<CpuTime>, to: Option<CpuTime>, took: Duration) -> Self {
        let Some((from, to)) = from.zip(to).filter(|_| !took.is_zero()) else {
            return Self::default();
        };
        let share = |from, to: Duration| to.saturating_sub(from).as_secs_f64() / took.as_secs_f64();
        Self { ran: share(from.ran, to.ran), waited: share(from.waited, to.waited) }
    }

    /// The load of a generator that was so late, 99th percentiles in microseconds.
    pub(super) fn load(
        self,
        late_p99: f64,
        lag_p99: f64,
        doubt: Option<CellDoubt>,
    ) -> GeneratorLoad {
        GeneratorLoad {
            late_p99: late_p99 as u64,
            lag_p99: lag_p99 as u64,
            cpu: self.ran,
            waited: self.waited,
            saturated: doubt.is_some(),
            doubt,
        }
    }

    fn are_too_much(self) -> bool {
        self.ran + self.waited > CPU_MAX
    }
}

/// What was measured, which our own share of the times stands beside.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct MeasuredTimes {
    /// Calls that ended.
    pub(super) calls: u64,
    /// From the first to the last of them, microseconds.
    pub(super) lasted_us: f64,
    /// The median time of those that were served, microseconds; 0 where none was.
    pub(super) p50_us: f64,
}

impl MeasuredTimes {
    /// Microseconds of our own that do not matter beside what is measured.
    pub(super) fn own_max_us(self, at_least: Duration) -> f64 {
        (at_least.as_secs_f64() * 1e6).max(OWN_MAX * self.p50_us)
    }

    /// What a call takes of our thread, and waits for it: the wait in a queue of even turns, by the formula
    /// of Pollaczek and Khinchine. Infinite where the thread has no time left.
    fn own_us(self, shares: CpuShares) -> f64 {
        let busy = shares.ran + shares.waited;
        let own = busy * self.lasted_us / self.calls.max(1) as f64;
        if busy < 1.0 { own * (1.0 + busy / (2.0 * (1.0 - busy))) } else { f64::INFINITY }
    }
}

/// Whether the times of calls may be our own, where the loop was so late, 99th percentile in
/// microseconds, and its thread had such shares.
pub(super) fn is_behind(lag_us: f64, shares: CpuShares, measured: MeasuredTimes) -> bool {
    let own_matters = || measured.own_us(shares) > OWN_MAX * measured.p50_us;
    lag_us > measured.own_max_us(LAG_MAX) || (shares.are_too_much() && own_matters())
}

/// Ticks that fall due in a loop, each of them however late: a pause of a second is seen two
/// hundred times, as a second of the cell is.
#[derive(Debug)]
pub(super) struct LagTicks(Interval);

impl LagTicks {
    pub(super) fn begin(now: Instant) -> Self {
        let mut ticks = interval_at(now + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        Self(ticks)
    }

    /// How late the next tick is seen.
    async fn lag(&mut self) -> Duration {
        let due = self.0.tick().await;
        Instant::now().saturating_duration_since(due)
    }
}

/// Never where there is none.
pub(super) async fn next_lag(pulse: Option<&mut LagTicks>) -> Duration {
    match pulse {
        Some(pulse) => pulse.lag().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read() {
        let ms = Duration::from_millis;
        assert_eq!(taken("3000000 5000000 12\n"), Some(CpuTime { ran: ms(3), waited: ms(5) }));
        for text in ["", "3000000", "a b c"] {
            assert_eq!(taken(text), None, "{text:?}");
        }
    }

    #[track_caller]
    fn check(ran_ms: u64, waited_ms: u64, too_much: bool) {
        let ms = Duration::from_millis;
        let from = CpuTime { ran: ms(500), waited: ms(90) };
        let to = CpuTime { ran: from.ran + ms(ran_ms), waited: from.waited + ms(waited_ms) };
        let shares = CpuShares::of(Some(from), Some(to), ms(1_000));
        assert_eq!(shares.are_too_much(), too_much, "{shares:?}");
    }

    #[test]
    fn what_is_waited_for_counts_as_what_is_used() {
        check(600, 0, false);
        check(800, 0, true);
        // Half a processor, all of it used.
        check(500, 450, true);
        check(100, 100, false);
    }

    /// Whether 1,000 calls of a second, half of which take this long, are doubted.
    #[track_caller]
    fn judged(lag_ms: f64, ran: f64, waited: f64, p50_ms: f64, doubted: bool) {
        let measured = MeasuredTimes { calls: 1_000, lasted_us: 1e6, p50_us: p50_ms * 1e3 };
        let shares = CpuShares { ran, waited };
        assert_eq!(is_behind(lag_ms * 1e3, shares, measured), doubted, "{shares:?}");
    }

    #[test]
    fn lateness_stands_beside_what_is_measured() {
        judged(9.0, 0.1, 0.0, 20.0, false);
        judged(11.0, 0.1, 0.0, 20.0, true);
        judged(11.0, 0.1, 0.0, 120.0, false);
        judged(13.0, 0.1, 0.0, 120.0, true);
    }

    #[test]
    fn a_busy_thread_matters_where_calls_are_short() {
        // A call takes 0.8 ms of the thread, and waits for 1.6 ms.
        judged(0.0, 0.8, 0.0, 20.0, true);
        judged(0.0, 0.4, 0.4, 20.0, true);
        judged(0.0, 0.8, 0.0, 30.0, false);
        judged(0.0, 0.6, 0.0, 1.0, false);
        // With no time left calls wait for as long as they come.
        judged(0.0, 0.9, 0.1, 10_000.0, true);
    }

    #[test]
    fn unknown_cpu_time_gives_default_shares() {
        let second = Duration::from_secs(1);
        assert_eq!(CpuShares::of(None, Some(CpuTime::default()), second), CpuShares::default());
        let all = CpuTime { ran: second, waited: second };
        assert_eq!(CpuShares::of(Some(all), Some(all), Duration::ZERO), CpuShares::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_is_seen_by_all_ticks_that_fell_into_it() {
        let mut pulse = LagTicks::begin(Instant::now());
        assert_eq!(pulse.lag().await, Duration::ZERO);
        tokio::time::advance(Duration::from_millis(23)).await;
        let mut lags = Vec::new();
        for _ in 0..5 {
            lags.push(pulse.lag().await.as_millis());
        }
        assert_eq!(lags, [18, 13, 8, 3, 0]);
    }
}
