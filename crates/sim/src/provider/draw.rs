//! Random providers whose truth is known: for checks that measure blind.
//!
//! One dial is drawn at a time, with a latency besides; all else is without limit. The
//! ranges are such that a measurement of some seconds can find the value.

use std::time::Duration;

use rand::Rng;

use super::dial::{
    CreditBucket, LimitScope, ProviderDials, Refill, RefusalForm, Shaping, StreamCap, StreamWay,
};
use crate::node::LatencyDial;

/// Which dial is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray)]
pub enum DrawnDial {
    /// The cap on streams: its number and its way.
    Streams,
    /// Requests per connection.
    Recycle,
    /// Time without a request.
    Idle,
    /// One bucket.
    Bucket,
    /// One bucket, of any kind and of a second, ten or a minute.
    Window,
    /// One bucket to which methods count differently.
    Costs,
    /// The silent line.
    Shaping,
    /// No limit at all.
    Nothing,
}

wellhead_word::variants!(DrawnDial);

/// What a measurement should find.
#[derive(Debug, Clone, PartialEq)]
pub enum Truth {
    /// This cap.
    Streams(StreamCap),
    /// A connection ends after this many requests.
    Recycle(u64),
    /// A connection ends after this long without one.
    Idle(Duration),
    /// This bucket. For what it means in calls see [`CreditBucket::calls_per_second`].
    Bucket(CreditBucket),
    /// This pace.
    Shaping(Shaping),
    /// No limit.
    Nothing,
}

impl ProviderDials {
    /// A latency and nothing else.
    pub(super) fn draw_latency(rng: &mut impl Rng) -> Self {
        let base = Duration::from_millis(rng.random_range(10..=40));
        let jitter = Duration::from_millis(rng.random_range(0..=5));
        let latency = LatencyDial::even(base, jitter);
        Self { seed: rng.random(), latency, ..Self::default() }
    }

    /// A provider with one random dial, and what that is.
    ///
    /// - Streams: a cap from 8 to 200, announced, refused or fatal; the last two with
    ///   nothing announced, or with more than the cap.
    /// - Recycle: after 50 to 2,000 requests, small numbers as likely as large ones.
    /// - Idle: after 200 ms to 5 s.
    /// - Bucket: worth 20 to 200 calls a second, of 1 s or 10 s, steady or in windows, at
    ///   1 to 25 credits a call; refused by 429 with or without `Retry-After`, or in the body.
    /// - Window: 20 to 200 calls in 1 s, 100 to 600 in 10 s or 200 to 800 in a minute; steady, in
    ///   windows by the clock or in one that slides; refused as above, or with a `Retry-After` of
    ///   the whole window.
    /// - Costs: 30 to 90 of the cheapest calls a second, of 1 s or 3 s, steady or in windows; other
    ///   methods count 1 to 10 times as much, and `eth_chainId` nothing.
    /// - Shaping: at 50 to 400 calls a second, per connection or per account.
    pub fn draw(rng: &mut impl Rng, subject: DrawnDial) -> (Self, Truth) {
        let mut dials = Self::draw_latency(rng);
        let truth = match subject {
            DrawnDial::Streams => Truth::Streams(*dials.stream_cap.insert(draw_streams(rng))),
            DrawnDial::Recycle => {
                let after = 50.0 * 40f64.powf(rng.random::<f64>());
                Truth::Recycle(*dials.recycle_after.insert(after as u64))
            }
            DrawnDial::Idle => {
                let after = Duration::from_millis(rng.random_range(200..=5000));
                Truth::Idle(*dials.idle_close.insert(after))
            }
            DrawnDial::Bucket => {
                let bucket = draw_bucket(rng);
                dials.buckets = vec![bucket.clone()];
                Truth::Bucket(bucket)
            }
            DrawnDial::Window | DrawnDial::Costs => {
                let bucket = match subject {
                    DrawnDial::Costs => draw_costs(rng),
                    _ => draw_window(rng),
                };
                dials.buckets = vec![bucket.clone()];
                Truth::Bucket(bucket)
            }
            DrawnDial::Shaping => {
                let scope = match rng.random() {
                    true => LimitScope::Connection,
                    false => LimitScope::Account,
                };
                let per_second = f64::from(rng.random_range(50..=400u32));
                Truth::Shaping(*dials.shaping.insert(Shaping { per_second, scope }))
            }
            DrawnDial::Nothing => Truth::Nothing,
        };
        (dials, truth)
    }
}

fn draw_streams(rng: &mut impl Rng) -> StreamCap {
    let max = rng.random_range(8..=200);
    let announced = rng.random::<bool>().then(|| max + rng.random_range(1..=64));
    // NO_ERROR, PROTOCOL_ERROR, ENHANCE_YOUR_CALM, or not a word.
    let goaway = [Some(0), Some(1), Some(11), None][rng.random_range(0..4)];
    let way = match rng.random_range(0..3) {
        0 => StreamWay::Announced,
        1 => StreamWay::Refused { announced },
        _ => StreamWay::Fatal { goaway, announced },
    };
    StreamCap { max, way }
}

fn draw_bucket(rng: &mut impl Rng) -> CreditBucket {
    let seconds = [1u32, 10][rng.random_range(0..2)];
    let cost = f64::from(rng.random_range(1..=25u32));
    let size = cost * f64::from(rng.random_range(20..=200u32) * seconds);
    let refill = match rng.random() {
        true => Refill::Steady { per_second: size / f64::from(seconds) },
        false => Refill::Window { length: Duration::from_secs(seconds.into()) },
    };
    let refusal = match rng.random_range(0..3) {
        0 => RefusalForm::too_many(None),
        1 => RefusalForm::too_many(Some(Duration::from_secs(1))),
        _ => RefusalForm::too_many_in_body(),
    };
    CreditBucket { size, refill, costs: Vec::new(), cost_otherwise: cost, refusal }
}

fn draw_window(rng: &mut impl Rng) -> CreditBucket {
    let (seconds, calls) = match rng.random_range(0..3) {
        0 => (1, rng.random_range(20..=200u32)),
        1 => (10, rng.random_range(100..=600u32)),
        _ => (60, rng.random_range(200..=800u32)),
    };
    let length = Duration::from_secs(seconds);
    let cost = f64::from(rng.random_range(1..=25u32));
    let size = cost * f64::from(calls);
    let refusal = match rng.random_range(0..4) {
        0 => RefusalForm::too_many(None),
        1 => RefusalForm::too_many(Some(Duration::from_secs(1))),
        2 => RefusalForm::too_many(Some(length)),
        _ => RefusalForm::too_many_in_body(),
    };
    let bucket = match rng.random_range(0..3) {
        0 => CreditBucket::steady(size, length, refusal),
        1 => CreditBucket::fixed(size, length, refusal),
        _ => CreditBucket::sliding(size, length, refusal),
    };
    bucket.priced(cost, &[])
}

/// Methods that are priced apart.
const PRICED: [&str; 4] = ["eth_call", "eth_getBalance", "eth_getBlockByNumber", "eth_getLogs"];

fn draw_costs(rng: &mut impl Rng) -> CreditBucket {
    let seconds = [1u32, 3][rng.random_range(0..2)];
    let cheapest = f64::from(rng.random_range(1..=20u32));
    let size = cheapest * f64::from(rng.random_range(30..=90u32) * seconds);
    let length = Duration::from_secs(seconds.into());
    let refusal = RefusalForm::too_many(None);
    let bucket = match rng.random() {
        true => CreditBucket::steady(size, length, refusal),
        false => CreditBucket::fixed(size, length, refusal),
    };
    let mut costs = vec![("eth_chainId", 0.0)];
    costs.extend(PRICED.map(|method| {
        let times = [1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0][rng.random_range(0..7)];
        (method, cheapest * times)
    }));
    bucket.priced(cheapest, &costs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    fn drawn(subject: DrawnDial) -> Vec<(ProviderDials, Truth)> {
        (0..200)
            .map(|seed| ProviderDials::draw(&mut SmallRng::seed_from_u64(seed), subject))
            .collect()
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        for subject in DrawnDial::ALL {
            assert_eq!(drawn(subject), drawn(subject));
        }
    }
    #[test]
    fn the_truth_is_in_the_dials_and_nothing_else_is() {
        for (dials, truth) in DrawnDial::ALL.into_iter().flat_map(drawn) {
            let mut left = dials.clone();
            match truth {
                Truth::Streams(cap) => assert_eq!(left.stream_cap.take(), Some(cap)),
                Truth::Recycle(after) => assert_eq!(left.recycle_after.take(), Some(after)),
                Truth::Idle(after) => assert_eq!(left.idle_close.take(), Some(after)),
                Truth::Bucket(bucket) => assert_eq!(left.buckets.pop(), Some(bucket)),
                Truth::Shaping(shaping) => assert_eq!(left.shaping.take(), Some(shaping)),
                Truth::Nothing => {}
            }
            let (seed, latency) = (left.seed, left.latency);
            assert_eq!(left, ProviderDials { seed, latency, ..ProviderDials::default() });
            assert!(latency.base >= Duration::from_millis(10));
        }
    }
    #[test]
    fn all_kinds_are_drawn() {
        let caps = drawn(DrawnDial::Streams);
        let ways = |is: fn(&StreamWay) -> bool| {
            let caps = caps.iter().filter_map(|(dials, _)| dials.stream_cap);
            caps.filter(|cap| is(&cap.way)).count()
        };
        assert!(ways(|way| matches!(way, StreamWay::Announced)) > 40);
        assert!(ways(|way| matches!(way, StreamWay::Refused { announced: None })) > 15);
        assert!(ways(|way| matches!(way, StreamWay::Fatal { goaway: None, .. })) > 5);
        assert!(ways(|way| matches!(way, StreamWay::Fatal { announced: Some(_), .. })) > 15);
        let buckets = drawn(DrawnDial::Bucket);
        let in_windows = |seconds| {
            let window = Some(Duration::from_secs(seconds));
            buckets.iter().filter(|(dials, _)| dials.buckets[0].window() == window).count()
        };
        assert_eq!(in_windows(1) + in_windows(10), 200);
        assert!(in_windows(1) > 70 && in_windows(10) > 70);
        for (dials, _) in &buckets {
            let calls = dials.buckets[0].calls_per_second("eth_chainId");
            assert!((20.0..=200.0).contains(&calls), "{calls}");
        }
    }
}
