//! Buckets, lines and the pace of a body: what time makes of the dials. Pure.
//!
//! `now` is the time since the provider started and never goes back.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::dial::{CreditBucket, Refill, RefusalForm};

/// Longest wait in a line; a request that would wait longer waits this long.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);
/// For sums of fractions: so much of a credit may be missing.
const CREDIT_MISSING_MAX: f64 = 1e-6;

/// What is in a [`CreditBucket`]. Full at first.
#[derive(Debug, Clone, PartialEq)]
pub struct Tank {
    credits: f64,
    at: Duration,
    /// What was spent within a window that slides, and when; one entry a call, so no more than
    /// a full bucket pays for.
    spent: VecDeque<(Duration, f64)>,
}

impl Tank {
    /// A full one.
    pub fn full(bucket: &CreditBucket) -> Self {
        Self { credits: bucket.size, at: Duration::ZERO, spent: VecDeque::new() }
    }

    /// What is in it now.
    ///
    /// Steady: min(size, credits + time · rate). In windows: the size again in each
    /// window that begins at a multiple of its length. Sliding: size less what was spent within
    /// the length.
    pub fn credits(&mut self, bucket: &CreditBucket, now: Duration) -> f64 {
        match bucket.refill {
            Refill::Steady { per_second } => {
                let gained = now.saturating_sub(self.at).as_secs_f64() * per_second;
                self.credits = (self.credits + gained).min(bucket.size);
            }
            Refill::Window { length } => {
                let window = |at: Duration| at.as_nanos() / length.as_nanos().max(1);
                if window(now) > window(self.at) {
                    self.credits = bucket.size;
                }
            }
            Refill::Sliding { length } => {
                while let Some((at, cost)) = self.spent.front().copied() {
                    if now < at + length {
                        break;
                    }
                    self.spent.pop_front();
                    self.credits = (self.credits + cost).min(bucket.size);
                }
            }
        }
        self.at = self.at.max(now);
        self.credits
    }

    fn holds(&mut self, bucket: &CreditBucket, now: Duration, cost: f64) -> bool {
        self.credits(bucket, now) + CREDIT_MISSING_MAX >= cost
    }

    fn spend(&mut self, bucket: &CreditBucket, cost: f64) {
        self.credits = (self.credits - cost).max(0.0);
        if matches!(bucket.refill, Refill::Sliding { .. }) && cost > 0.0 {
            self.spent.push_back((self.at, cost));
        }
    }
}

/// What the buckets say of one request, naming them by their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charge {
    /// Refused as a whole by this bucket. Nothing was spent.
    Refused(usize),
    /// Taken. For each call the bucket that refuses it in the body, if one does.
    Taken(Vec<Option<usize>>),
}

/// Takes what the calls of one request cost from all buckets, or refuses.
///
/// `tanks` belong to `buckets`, one to one.
pub fn charge(
    tanks: &mut [Tank],
    buckets: &[CreditBucket],
    now: Duration,
    methods: &[&str],
) -> Charge {
    let cost_of_all =
        |bucket: &CreditBucket| methods.iter().map(|method| bucket.cost(method)).sum();
    let by_status = |bucket: &CreditBucket| matches!(bucket.refusal, RefusalForm::Status { .. });
    for (index, (tank, bucket)) in tanks.iter_mut().zip(buckets).enumerate() {
        if by_status(bucket) && !tank.holds(bucket, now, cost_of_all(bucket)) {
            return Charge::Refused(index);
        }
    }
    for (tank, bucket) in tanks.iter_mut().zip(buckets).filter(|(_, bucket)| by_status(bucket)) {
        tank.spend(bucket, cost_of_all(bucket));
    }
    let one = |method: &&str| {
        let mut each = tanks.iter_mut().zip(buckets).enumerate();
        let refuses = each.find_map(|(index, (tank, bucket))| {
            let refuses = !by_status(bucket) && !tank.holds(bucket, now, bucket.cost(method));
            refuses.then_some(index)
        });
        if refuses.is_none() {
            for (tank, bucket) in tanks.iter_mut().zip(buckets).filter(|(_, one)| !by_status(one)) {
                tank.spend(bucket, bucket.cost(method));
            }
        }
        refuses
    };
    Charge::Taken(methods.iter().map(one).collect())
}

/// A line that calls leave at an even pace, first come, first served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacedLine {
    free_at: Duration,
}

impl PacedLine {
    /// When a request of this many calls leaves: at once when no other is before it, else
    /// when the one before has had its time. Takes its place.
    ///
    /// With `c` requests always under way and a latency of `w` besides, the throughput is
    /// min(c / w, pace): the knee is at pace · w.
    pub fn place(&mut self, now: Duration, calls: usize, per_second: f64) -> Duration {
        let leaves_at = self.free_at.max(now).min(now + WAIT_MAX);
        let takes = Duration::try_from_secs_f64(calls as f64 / per_second).unwrap_or(WAIT_MAX);
        self.free_at = leaves_at + takes.min(WAIT_MAX);
        leaves_at
    }
}

/// Smallest and largest piece of a body that is sent at a pace.
const PIECE_BYTES: (u64, u64) = (256, 64 * 1024);
/// Pieces a second, within the bounds above.
const PIECES_PER_SECOND: u64 = 20;

/// A body as pieces, each with the time after which it leaves: the last byte is sent when
/// the whole has had its time.
pub fn pieces(body: &Bytes, per_second: u64) -> impl Iterator<Item = (Duration, Bytes)> + use<> {
    let per_second = per_second.max(1);
    let size = (per_second / PIECES_PER_SECOND).clamp(PIECE_BYTES.0, PIECE_BYTES.1) as usize;
    let (mut rest, mut sent) = (body.clone(), 0u64);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let piece = rest.split_to(size.min(rest.len()));
        sent += piece.len() as u64;
        Some((Duration::from_secs_f64(sent as f64 / per_second as f64), piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Plays calls, "at_ms:method" or "at_ms:method+method" for a batch, and shows what
    /// became of each: `.` passed, `x` refused as a whole, a digit for each refused call.
    fn check(buckets: &[CreditBucket], calls: &str, expected: &str) {
        let mut tanks: Vec<Tank> = buckets.iter().map(Tank::full).collect();
        let mut shown = String::new();
        for call in calls.split_whitespace() {
            let (at, methods) = call.split_once(':').unwrap();
            let methods: Vec<&str> = methods.split('+').collect();
            match charge(&mut tanks, buckets, ms(at.parse().unwrap()), &methods) {
                Charge::Refused(_) => shown.push('x'),
                Charge::Taken(refused) => shown.extend(refused.iter().map(|bucket| match bucket {
                    None => '.',
                    Some(bucket) => char::from_digit(*bucket as u32, 10).unwrap(),
                })),
            }
        }
        assert_eq!(shown, expected, "{calls}");
    }

    fn second(calls: f64) -> CreditBucket {
        CreditBucket::steady(calls, ms(1000), RefusalForm::too_many(None))
    }

    #[test]
    fn a_steady_bucket_gives_its_size_and_then_its_pace() {
        check(&[second(4.0)], "0:a 0:a 0:a 0:a 0:a 249:a 250:a 250:a 500:a", "....xx.x.");
    }
    #[test]
    fn it_is_never_fuller_than_full() {
        check(&[second(2.0)], "0:a 90000:a 90000:a 90000:a", "...x");
    }
    #[test]
    fn a_window_gives_all_at_its_begin() {
        let fixed = CreditBucket::fixed(2.0, ms(1000), RefusalForm::too_many(None));
        check(&[fixed], "900:a 900:a 999:a 1000:a 1000:a 1999:a 2000:a", "..x..x.");
    }
    #[test]
    fn a_window_that_slides_gives_each_back_when_it_is_so_old() {
        let sliding = CreditBucket::sliding(2.0, ms(1000), RefusalForm::too_many(None));
        check(&[sliding], "0:a 900:a 999:a 1000:a 1000:a 1899:a 1900:a 2000:a 2001:a", "..x.xx..x");
    }
    #[test]
    fn what_is_spent_once_never_comes_back() {
        let spent = CreditBucket::spent_once(2.0, RefusalForm::payment_required());
        assert_eq!(spent.window(), None);
        check(&[spent], "0:a 1000:a 3600000:a", "..x");
    }
    #[test]
    fn a_refused_call_costs_nothing() {
        let priced = second(10.0).priced(1.0, &[("debug_*", 8.0)]);
        check(&[priced], "0:a 0:a 0:a 0:debug_x 0:a 0:a 0:a 0:a 0:a 0:a 0:a 0:a", "...x.......x");
    }
    #[test]
    fn every_bucket_must_have_enough() {
        let ten = CreditBucket::steady(3.0, ms(10_000), RefusalForm::too_many(None));
        check(&[second(2.0), ten], "0:a 0:a 0:a 1000:a 1000:a 3000:a 4400:a", "..x.xx.");
    }
    #[test]
    fn a_batch_passes_or_fails_as_a_whole_by_status() {
        check(&[second(3.0)], "0:a+a 0:a+a 0:a", "..x.");
    }
    #[test]
    fn in_the_body_each_call_of_a_batch_counts() {
        let body = CreditBucket::steady(2.0, ms(1000), RefusalForm::too_many_in_body());
        check(&[second(9.0), body], "0:a+a+a 500:a+a", "..1.1");
    }
    #[test]
    fn what_is_dearer_than_the_bucket_never_passes() {
        check(&[second(2.0).priced(3.0, &[])], "0:a 9000:a", "xx");
    }

    #[test]
    fn calls_in_windows_and_in_the_long_run() {
        let bucket = CreditBucket::steady(2500.0, ms(1000), RefusalForm::too_many(None))
            .priced(20.0, &[("eth_chainId", 0.0), ("trace_*", 40.0)]);
        let of = |method| (bucket.calls_at_once(method), bucket.calls_per_second(method));
        assert_eq!(of("eth_call"), (125.0, 125.0));
        assert_eq!(of("trace_block"), (62.5, 62.5));
        assert_eq!(of("eth_chainId"), (f64::INFINITY, f64::INFINITY));
        assert_eq!(bucket.window(), Some(ms(1000)));
        let fixed = CreditBucket::fixed(100.0, ms(10_000), RefusalForm::too_many(None));
        assert_eq!(fixed.calls_per_second("eth_call"), 10.0);
    }

    #[test]
    fn a_line_keeps_its_pace_and_forgets_quiet_times() {
        let mut line = PacedLine::default();
        let mut place = |at| line.place(ms(at), 1, 250.0);
        assert_eq!([place(0), place(0), place(0)], [ms(0), ms(4), ms(8)]);
        assert_eq!([place(9), place(100), place(100)], [ms(12), ms(100), ms(104)]);
    }
    #[test]
    fn a_batch_takes_the_time_of_its_calls() {
        let mut line = PacedLine::default();
        assert_eq!(line.place(ms(0), 10, 100.0), ms(0));
        assert_eq!(line.place(ms(0), 1, 100.0), ms(100));
    }
    #[test]
    fn a_wait_has_an_end() {
        let mut line = PacedLine::default();
        let mut places = (0..4).map(|_| line.place(ms(0), 1, 1e-9));
        assert_eq!(places.next(), Some(ms(0)));
        assert!(places.all(|place| place == WAIT_MAX));
    }
    #[test]
    fn throughput_is_flat_behind_the_knee() {
        // c at once, 20 ms each besides: the knee of 250/s is at 5.
        for (c, expected) in [(1, 50.0), (4, 200.0), (5, 250.0), (10, 250.0), (100, 250.0)] {
            let (mut line, mut done) = (PacedLine::default(), 0u32);
            let mut free = std::collections::BinaryHeap::from(vec![std::cmp::Reverse(ms(0)); c]);
            while let Some(std::cmp::Reverse(now)) = free.pop().filter(|at| at.0 < ms(20_000)) {
                done += 1;
                free.push(std::cmp::Reverse(line.place(now, 1, 250.0) + ms(20)));
            }
            let per_second = f64::from(done) / 20.0;
            assert!((per_second - expected).abs() < 0.02 * expected + 5.0, "{c}: {per_second}");
        }
    }

    #[test]
    fn a_body_takes_its_time_and_arrives_whole() {
        let body = Bytes::from((0..10_000u32).map(|n| n as u8).collect::<Vec<_>>());
        let sent: Vec<_> = pieces(&body, 20_000).collect();
        assert_eq!(sent.len(), 10);
        assert_eq!(sent[0].0, ms(50));
        assert_eq!(sent[9].0, ms(500));
        assert_eq!(sent.iter().flat_map(|(_, piece)| piece.to_vec()).collect::<Bytes>(), body);
        assert_eq!(pieces(&Bytes::new(), 20_000).count(), 0);
        // No frame is smaller than 256 bytes but the last, however slow.
        let times: Vec<_> = pieces(&body.slice(..300), 100).map(|(at, _)| at).collect();
        assert_eq!(times, [ms(2560), ms(3000)]);
    }
}
