//! Providers of the mind, for tests: what they let through and when they answer.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::{LearntLimit, LearntRate, nanos};

/// How a provider meters.
#[derive(Debug)]
pub(crate) enum Meter {
    /// Credits a second, and how many a full bucket holds; what is in it, as of when.
    Bucket { rate: f64, size: f64, held: f64, at: Duration },
    /// Calls in windows of the clock.
    Fixed { calls: u64, window: Duration, number: u128, used: u64 },
    /// Calls in any stretch of this length.
    Sliding { calls: usize, window: Duration, log: VecDeque<Duration> },
    /// None until then, and all afterwards.
    Closed { until: Duration },
    /// This bucket until then, and all afterwards.
    Lifted { bucket: Box<Self>, until: Duration },
}

impl Meter {
    pub(crate) fn bucket(rate: f64, size: f64) -> Self {
        Self::Bucket { rate, size, held: size, at: Duration::ZERO }
    }

    pub(crate) fn fixed(calls: u64, window: Duration) -> Self {
        Self::Fixed { calls, window, number: 0, used: 0 }
    }

    pub(crate) fn sliding(calls: usize, window: Duration) -> Self {
        Self::Sliding { calls, window, log: VecDeque::new() }
    }

    pub(crate) fn closed(until: Duration) -> Self {
        Self::Closed { until }
    }

    /// A bucket of one second until then.
    pub(crate) fn lifted(rate: f64, until: Duration) -> Self {
        Self::Lifted { bucket: Box::new(Self::bucket(rate, rate)), until }
    }

    fn accepts(&mut self, now: Duration) -> bool {
        match self {
            Self::Bucket { rate, size, held, at } => {
                *held = (*held + *rate * (now - *at).as_secs_f64()).min(*size);
                *at = now;
                let fits = *held >= 1.0;
                *held -= f64::from(u8::from(fits));
                fits
            }
            Self::Fixed { calls, window, number, used } => {
                let current = now.as_nanos() / window.as_nanos();
                if current != *number {
                    (*number, *used) = (current, 0);
                }
                let fits = *used < *calls;
                *used += u64::from(fits);
                fits
            }
            Self::Sliding { calls, window, log } => {
                while log.front().is_some_and(|first| *first + *window <= now) {
                    log.pop_front();
                }
                let fits = log.len() < *calls;
                if fits {
                    log.push_back(now);
                }
                fits
            }
            Self::Closed { until } => now >= *until,
            Self::Lifted { bucket, until } => now >= *until || bucket.accepts(now),
        }
    }
}

/// What is the same whichever meter it is.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) demand_per_second: u64,
    pub(crate) seconds: u64,
    pub(crate) retry_after: Option<Duration>,
}

/// What a provider saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) accepted: u64,
    pub(crate) accepted_after_10_s: u64,
    pub(crate) refused: u64,
}

/// From sending to hearing.
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// In flight at most.
const IN_FLIGHT: usize = 32;

/// Sends what the rate allows of the demand, in steps of a millisecond.
pub(crate) fn drive(mut meter: Meter, shared: &Shared, rate: &LearntRate) -> Seen {
    let mut seen = Seen::default();
    let mut under_way: VecDeque<(Duration, Duration, bool)> = VecDeque::new();
    let (mut waiting, mut paused_until) = (0, Duration::ZERO);
    for ms in 0..shared.seconds * 1_000 {
        let now = Duration::from_millis(ms);
        while under_way.front().is_some_and(|(_, due, _)| *due <= now) {
            let Some((began, _, accepted)) = under_way.pop_front() else { break };
            if accepted {
                rate.answered(began);
            } else {
                let pause = rate.refused(1.0, began, now, shared.retry_after);
                paused_until = paused_until.max(now + pause);
            }
        }
        // The line is bounded, as ours is.
        waiting += u64::from(
            ms * shared.demand_per_second / 1_000 != (ms + 1) * shared.demand_per_second / 1_000,
        ) * shared.demand_per_second.div_ceil(1_000);
        waiting = waiting.min(1_000);
        while waiting > 0
            && now >= paused_until
            && under_way.len() < IN_FLIGHT
            && rate.take(1.0, now).is_ok()
        {
            rate.sent(1, now);
            waiting -= 1;
            let accepted = meter.accepts(now + ROUND_TRIP / 2);
            seen.accepted += u64::from(accepted);
            seen.accepted_after_10_s += u64::from(accepted && ms >= 10_000);
            seen.refused += u64::from(!accepted);
            under_way.push_back((now, now + ROUND_TRIP, accepted));
        }
    }
    seen
}

/// A provider that answers everything, at its own rate.
#[derive(Debug)]
pub(crate) struct Shaper {
    pub(crate) per_second: u64,
    pub(crate) unloaded: Duration,
    /// Every so many calls one is of the second class, five times as slow; 0: none.
    pub(crate) slow_every: u64,
    /// The unloaded latency is that times `exp(scatter · z)`, with `z` about normal.
    pub(crate) scatter: f64,
    /// When the load begins.
    pub(crate) begin: Duration,
}

impl Shaper {
    pub(crate) fn new(per_second: u64, unloaded_ms: u64) -> Self {
        let unloaded = Duration::from_millis(unloaded_ms);
        Self { per_second, unloaded, slow_every: 0, scatter: 0.0, begin: Duration::ZERO }
    }
}

/// What came of a load, over the last minute or the second half.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Share of the shaper's rate.
    pub(crate) used: f64,
    /// Mean latency as a multiple of the unloaded one.
    pub(crate) latency: f64,
}

/// Keeps `clients` busy, each with one call at a time, as far as the limit allows.
pub(crate) fn load<const CLASSES: usize>(
    shaper: &Shaper,
    clients: u32,
    limit: &LearntLimit<CLASSES>,
    lasts: Duration,
) -> Loaded {
    let from = lasts.saturating_sub(Duration::from_secs(60)).max(lasts / 3).max(shaper.begin);
    let spacing = Duration::from_nanos(1_000_000_000 / shaper.per_second);
    // When each call in flight is answered, when it was sent, its class.
    let mut under_way: BinaryHeap<Reverse<(u64, u64, usize, u64)>> = BinaryHeap::new();
    let (mut free_at, mut sent) = (Duration::ZERO, 0_u64);
    let mut chance = 0x9E37_79B9_7F4A_7C15_u64;
    let mut now = shaper.begin;
    let (mut answers, mut ratios) = (0_u64, 0.0);
    while now < lasts {
        while (under_way.len() as u32) < clients.min(limit.limit()) {
            sent += 1;
            let class =
                usize::from(shaper.slow_every > 0 && sent.is_multiple_of(shaper.slow_every));
            let factor = if class == 1 { 5.0 } else { 1.0 };
            let unloaded =
                shaper.unloaded.mul_f64(factor * (shaper.scatter * normal(&mut chance)).exp());
            free_at = free_at.max(now) + spacing;
            let due = free_at - spacing + unloaded;
            under_way.push(Reverse((nanos(due), nanos(now), class, nanos(unloaded))));
        }
        let Some(Reverse((due, began, class, unloaded))) = under_way.pop() else { break };
        now = now.max(Duration::from_nanos(due));
        let in_flight = under_way.len() as u32 + 1;
        limit.answered(class, Duration::from_nanos(began), now, in_flight);
        if now >= from {
            answers += 1;
            ratios += (due - began) as f64 / unloaded as f64;
        }
    }
    let rate = answers as f64 / (lasts - from).as_secs_f64();
    Loaded { used: rate / shaper.per_second as f64, latency: ratios / answers as f64 }
}

/// Twelve dice, as of old: mean 0, variance 1.
fn normal(chance: &mut u64) -> f64 {
    let mut draw = || {
        // xorshift64: enough for a test, and the same everywhere.
        *chance ^= *chance << 13;
        *chance ^= *chance >> 7;
        *chance ^= *chance << 17;
        (*chance >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..12).map(|_| draw()).sum::<f64>() - 6.0
}
