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

impl ProviderDials {
    /// A latency and nothing else.
    pub(super) fn draw_latency(rng: &mut impl Rng) -> Self {
        let base = Duration::from_millis(rng.random_range(10..=40));
        let jitter = Duration::from_millis(rng.random_range(0..=5));
        let latency = LatencyDial::even(base, jitter);
        Self { seed: rng.random(), latency, ..Self::default() }
    }

    /// A provider with one random dial.
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
    pub fn draw(rng: &mut impl Rng, subject: DrawnDial) -> Self {
        let mut dials = Self::draw_latency(rng);
        match subject {
            DrawnDial::Streams => dials.stream_cap = Some(draw_streams(rng)),
            DrawnDial::Recycle => {
                let after = 50.0 * 40f64.powf(rng.random::<f64>());
                dials.recycle_after = Some(after as u64);
            }
            DrawnDial::Idle => {
                dials.idle_close = Some(Duration::from_millis(rng.random_range(200..=5000)));
            }
            DrawnDial::Bucket => dials.buckets = vec![draw_bucket(rng)],
            DrawnDial::Window => dials.buckets = vec![draw_window(rng)],
            DrawnDial::Costs => dials.buckets = vec![draw_costs(rng)],
            DrawnDial::Shaping => {
                let scope = match rng.random() {
                    true => LimitScope::Connection,
                    false => LimitScope::Account,
                };
                let per_second = f64::from(rng.random_range(50..=400u32));
                dials.shaping = Some(Shaping { per_second, scope });
            }
            DrawnDial::Nothing => {}
        }
        dials
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

    fn drawn(subject: DrawnDial) -> Vec<ProviderDials> {
        let draw = |seed| ProviderDials::draw(&mut SmallRng::seed_from_u64(seed), subject);
        (0..200).map(draw).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        for subject in DrawnDial::ALL {
            assert_eq!(drawn(subject), drawn(subject));
        }
    }
    #[test]
    fn one_dial_is_drawn_and_nothing_else_is() {
        for subject in DrawnDial::ALL {
            for mut dials in drawn(subject) {
                let is_drawn = match subject {
                    DrawnDial::Streams => dials.stream_cap.take().is_some(),
                    DrawnDial::Recycle => dials.recycle_after.take().is_some(),
                    DrawnDial::Idle => dials.idle_close.take().is_some(),
                    DrawnDial::Bucket | DrawnDial::Window | DrawnDial::Costs => {
                        dials.buckets.pop().is_some()
                    }
                    DrawnDial::Shaping => dials.shaping.take().is_some(),
                    DrawnDial::Nothing => true,
                };
                assert!(is_drawn, "{subject:?}");
                let (seed, latency) = (dials.seed, dials.latency);
                assert_eq!(dials, ProviderDials { seed, latency, ..ProviderDials::default() });
                assert!(latency.base >= Duration::from_millis(10));
            }
        }
    }
    #[test]
    fn all_kinds_are_drawn() {
        let caps = drawn(DrawnDial::Streams);
        let ways = |is: fn(&StreamWay) -> bool| {
            let caps = caps.iter().filter_map(|dials| dials.stream_cap);
            caps.filter(|cap| is(&cap.way)).count()
        };
        assert!(ways(|way| matches!(way, StreamWay::Announced)) > 40);
        assert!(ways(|way| matches!(way, StreamWay::Refused { announced: None })) > 15);
        assert!(ways(|way| matches!(way, StreamWay::Fatal { goaway: None, .. })) > 5);
        assert!(ways(|way| matches!(way, StreamWay::Fatal { announced: Some(_), .. })) > 15);
        let buckets = drawn(DrawnDial::Bucket);
        let in_windows = |seconds| {
            let window = Some(Duration::from_secs(seconds));
            buckets.iter().filter(|dials| dials.buckets[0].window() == window).count()
        };
        assert_eq!(in_windows(1) + in_windows(10), 200);
        assert!(in_windows(1) > 70 && in_windows(10) > 70);
        for dials in &buckets {
            let calls = dials.buckets[0].calls_per_second("eth_chainId");
            assert!((20.0..=200.0).contains(&calls), "{calls}");
        }
    }
}
