//! A rate with a burst that several replicas share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::side::{LeaseSide, SideTaken, SideTerms, serve_side};
use super::{
    AloneCount, CREDIT, DEPTH, GAP, LEASE, LIFE, LINGER, LeaseAsk, LeaseGrant, LeaseShortage,
    STOCK, WhenAway, milli,
};
use crate::{Bucket, Pace};

/// The bucket in the store, in thousandths of credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketTerms {
    /// What comes back in a second; at least 1.
    pub rate: u64,
    /// What a full bucket holds. Not more than comes back in a year.
    pub depth: u64,
}

/// One replica's part in a bucket that the store keeps for all.
///
/// Away, with one replica, until a control loop serves it. See [`super`] for the rules and the
/// bounds.
#[derive(Debug)]
pub struct LeasedBucket {
    side: LeaseSide,
    /// Credits a second, and at once.
    rate: f64,
    burst: f64,
    when_away: WhenAway,
    /// Decides while the store is away or silent.
    share: Bucket,
    /// Thousandths of credits that were taken without the store.
    alone: AloneCount,
}

serve_side!(LeasedBucket);

impl LeasedBucket {
    /// `rate` credits a second over all replicas, `burst` at once.
    pub fn new(rate: f64, burst: f64) -> Self {
        let rate = rate.max(f64::MIN_POSITIVE);
        let burst = burst.max(0.0);
        let depth = milli(burst.max(rate * DEPTH.as_secs_f64())).max(1);
        let side = LeaseSide::new(SideTerms {
            smooth: LEASE,
            stock: STOCK,
            life: LIFE,
            gap: GAP,
            want_max: depth,
            back_min: milli(rate * LINGER.as_secs_f64()),
            short_below: 0.5,
        });
        Self {
            side,
            rate,
            burst,
            when_away: WhenAway::Share,
            share: Bucket::default(),
            alone: AloneCount::default(),
        }
    }

    /// What holds while the store is away, instead of [`WhenAway::Share`].
    #[must_use]
    pub fn with_when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Takes `credits`. A call dearer than the whole burst passes when the bucket is full, and those
    /// after it wait until its debt is paid.
    ///
    /// `now` may be behind the control loop's by some milliseconds, not more.
    pub fn take(&self, credits: f64, now: Duration) -> Result<(), LeaseShortage> {
        if self.side.away().is_some() {
            return self.take_away(credits, now);
        }
        let price = milli(credits);
        let part = price.min(self.side.terms.want_max);
        match self.side.take(price, part, Some(self.credit()), now) {
            SideTaken::Taken => Ok(()),
            SideTaken::Refused(wait) => Err(LeaseShortage::Refused(wait)),
            SideTaken::Unanswered(wait) => Err(LeaseShortage::Unanswered(wait)),
            SideTaken::Silent => self.take_away(credits, now),
        }
    }

    /// How long a call of `credits` would be refused, as far as is known; takes none. Zero where it would be
    /// taken, or the store has not said.
    pub fn wait(&self, credits: f64, now: Duration) -> Duration {
        if self.side.away().is_some() {
            return match self.when_away {
                WhenAway::Share => self.share.wait(credits, self.share_pace(), now),
                WhenAway::Open => Duration::ZERO,
                WhenAway::Closed => LEASE,
            };
        }
        let part = milli(credits).min(self.side.terms.want_max);
        match self.side.pool.held(crate::nanos(now)) >= part {
            true => Duration::ZERO,
            false => self.side.refused_for(now),
        }
    }

    /// Takes `credits` that were spent regardless: later calls wait longer.
    pub fn charge(&self, credits: f64, now: Duration) {
        if self.side.away().is_some() {
            self.share.charge(credits, self.share_pace(), now);
        } else {
            self.side.charge(milli(credits), now);
        }
    }

    /// Puts back what was taken for a call that was not made after all, or was cheaper than
    /// thought.
    pub fn give_back(&self, credits: f64) {
        if self.side.away().is_some() {
            self.share.give_back(credits, self.share_pace());
        } else {
            self.side.give_back(milli(credits));
        }
    }

    /// The rate and the depth of the bucket in the store, in thousandths of credits.
    pub fn terms(&self) -> BucketTerms {
        BucketTerms { rate: milli(self.rate).max(1), depth: self.side.terms.want_max }
    }

    /// What to ask the store for at `now`, if anything. To be followed by [`Self::grant`] or
    /// [`Self::fail`].
    pub fn ask(&self, now: Duration) -> Option<LeaseAsk> {
        // A quiet key at one replica must not hold all there is.
        let least_max = self.side.terms.want_max / (2 * u64::from(self.side.replicas()));
        self.side.ask(least_max, now)
    }

    /// The answer to the last ask.
    pub fn grant(&self, grant: LeaseGrant, now: Duration) {
        self.side.grant(grant, now);
    }

    /// The store is back.
    pub fn note_back(&self) {
        // Not to be given back: the bucket has filled up meanwhile.
        self.side.pool.clear();
        self.side.note_back();
    }

    /// What can be spent at once without the store, and what is owed to it, in credits.
    pub fn held(&self, now: Duration) -> (f64, f64) {
        let credits = |milli: u64| milli as f64 / super::MILLI;
        (credits(self.side.pool.held(crate::nanos(now))), credits(self.side.debt()))
    }

    /// Credits that were taken without the store so far, because it was away or silent.
    pub fn taken_alone(&self) -> f64 {
        self.alone.amount() as f64 / super::MILLI
    }

    /// This replica's share of the credit, in thousandths.
    fn credit(&self) -> u64 {
        milli(self.rate * CREDIT.as_secs_f64() / f64::from(self.side.replicas()))
    }

    #[cold]
    fn take_away(&self, credits: f64, now: Duration) -> Result<(), LeaseShortage> {
        match self.when_away {
            WhenAway::Share => {
                self.share.take(credits, self.share_pace(), now).map_err(LeaseShortage::Refused)?;
            }
            WhenAway::Open => {}
            WhenAway::Closed => return Err(LeaseShortage::Refused(LEASE)),
        }
        self.alone.add(milli(credits));
        Ok(())
    }

    fn share_pace(&self) -> Pace {
        let replicas = f64::from(self.side.away().unwrap_or(self.side.replicas()));
        Pace::new(self.rate / replicas, Duration::from_secs(1), self.burst / replicas)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn the_wait_is_what_a_refusal_would_say() {
        let bucket = LeasedBucket::new(100.0, 10.0);
        let at = Duration::from_millis;
        let check = |credits: f64, now: u64, wait: u64| {
            assert_eq!(bucket.wait(credits, at(now)), at(wait), "at {now} ms");
            if wait > 0 {
                let refused = LeaseShortage::Refused(at(wait));
                assert_eq!(bucket.take(credits, at(now)), Err(refused), "at {now} ms");
            }
        };
        check(10.0, 0, 0);
        assert_eq!(bucket.take(10.0, at(0)), Ok(()));
        check(3.0, 0, 30);
        bucket.note_back();
        check(3.0, 1, 0);
        assert_eq!(bucket.take(1.0, at(1)), Ok(()), "on credit");
        let ask = bucket.ask(at(2)).expect("it owes one");
        bucket.grant(LeaseGrant { granted: ask.want, wait: Duration::ZERO }, at(3));
        check(1.0, 3, 0);
        while bucket.take(1.0, at(3)).is_ok() {}
        bucket.ask(at(4)).expect("it wants more");
        bucket.grant(LeaseGrant { granted: 0, wait: at(200) }, at(5));
        check(1.0, 6, 199);
    }

    const RING: &str = "!";

    /// Plays steps of `at_ms:act[:number[:number]]` on a bucket of 100/s with a burst of 10, of three
    /// replicas, and compares what each led to; `!` is a ring.
    fn check(script: &str, expected: &str) {
        let bucket = LeasedBucket::new(100.0, 10.0);
        let rings = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&rings);
        bucket.set_bell(move || {
            count.fetch_add(1, Relaxed);
        });
        bucket.note_replicas(3);
        bucket.note_back();
        let mut found = Vec::new();
        for step in script.split_whitespace() {
            let words: Vec<_> = step.split(':').collect();
            let at = Duration::from_millis(words[0].parse().expect("ms"));
            let number = |n: usize| words.get(n).map_or(0, |word| word.parse().expect("a number"));
            found.push(match words[1] {
                "take" => match bucket.take(f64::from(number(2)), at) {
                    Ok(()) => "ok".to_owned(),
                    Err(LeaseShortage::Refused(wait)) => format!("no{}", wait.as_millis()),
                    Err(LeaseShortage::Unanswered(wait)) => format!("wait{}", wait.as_millis()),
                },
                "ask" => bucket.ask(at).map_or("-".to_owned(), |ask| {
                    format!("{}/{}/{}", ask.want / 1_000, ask.need / 1_000, ask.back / 1_000)
                }),
                "grant" => {
                    let granted = u64::from(number(2)) * 1_000;
                    let wait = Duration::from_millis(u64::from(number(3)));
                    bucket.grant(LeaseGrant { granted, wait }, at);
                    bucket.due(at).map_or("rest".to_owned(), |due| due.as_millis().to_string())
                }
                "fail" => {
                    bucket.fail(at);
                    bucket.due(at).map_or("rest".to_owned(), |due| due.as_millis().to_string())
                }
                "charge" => {
                    bucket.charge(f64::from(number(2)), at);
                    format!("{:?}", bucket.held(at))
                }
                "back" => {
                    bucket.give_back(f64::from(number(2)));
                    format!("{:?}", bucket.held(at))
                }
                "away" => {
                    bucket.note_away(number(2));
                    String::new()
                }
                "here" => {
                    bucket.note_back();
                    String::new()
                }
                _ => panic!("no such act: {step}"),
            });
            (0..rings.swap(0, Relaxed)).for_each(|_| found.push(RING.to_owned()));
        }
        let found: Vec<_> = found.into_iter().filter(|word| !word.is_empty()).collect();
        assert_eq!(found.join(" "), expected, "{script}");
    }

    #[test]
    fn the_first_call_of_a_cold_key_is_on_credit_and_the_next_ones_wait_for_the_answer() {
        check(
            "1000:take:1 1000:take:1 1005:take:1 1006:ask 1007:grant:7 1007:take:1",
            "ok ! wait26 wait21 5/1/0 1206 ok",
        );
    }
    #[test]
    fn what_was_on_credit_is_paid_first() {
        check(
            "1000:take:1 1001:ask 1002:grant:5 1002:take:4 1002:take:1",
            "ok ! 1/1/0 1201 ok ! ok",
        );
        check("1000:take:1 1001:ask 1002:grant:5 1002:charge:0", "ok ! 1/1/0 1201 (4.0, 0.0)");
    }
    #[test]
    fn it_asks_when_half_is_left() {
        check(
            "1000:take:1 1001:ask 1002:grant:9 1002:take:3 1002:take:1 1003:take:2 1003:ask",
            "ok ! 1/1/0 1201 ok ok ! ok 2/1/0",
        );
    }
    #[test]
    fn a_refusal_of_the_store_is_remembered() {
        check(
            "1000:take:1 1001:ask 1002:grant:0:30 1003:take:1 1100:take:1 1101:take:1 1102:ask",
            "ok ! 1/1/0 1101 no98 no1 wait26 4/1/0",
        );
        check("1000:take:1 1001:ask 1002:grant:0:300 1003:take:1", "ok ! 1/1/0 1302 no299");
    }
    #[test]
    fn what_is_not_spent_in_time_is_given_back() {
        check(
            "1000:take:1 1001:ask 1002:grant:9 1200:take:1 1201:take:8 1201:ask 1202:grant:9",
            "ok ! 1/1/0 1201 ok ok ! 13/8/7 1401",
        );
        check(
            "1000:take:1 1001:ask 1002:grant:9 1201:ask 1252:grant:0",
            "ok ! 1/1/0 1201 0/0/8 rest",
        );
    }
    #[test]
    fn a_store_that_says_nothing_leaves_the_share_to_decide() {
        // A third of a burst of ten is three, and of a hundred a second one each 30 ms.
        check(
            "1000:take:1 1000:ask 1001:take:1 1026:take:1 1026:take:1 1026:take:1 1026:take:1 1027:fail",
            "ok ! 1/1/0 wait25 ok ok ok no19 1053",
        );
    }
    #[test]
    fn away_it_goes_by_its_share_and_back_by_the_store() {
        check(
            "1000:away:2 1000:take:5 1000:take:1 1020:take:1 1020:ask 1030:here 1030:take:1 1030:ask",
            "ok no20 ok - ok ! 1/1/0",
        );
    }
    #[test]
    fn calls_without_the_store_are_counted_beside_those_of_other_limits() {
        let (calls, at) = (Arc::<AtomicU64>::default(), Duration::from_secs(1));
        let buckets = [(); 2].map(|()| LeasedBucket::new(100.0, 10.0));
        for bucket in &buckets {
            bucket.count_alone(Arc::clone(&calls));
            assert_eq!(bucket.take(3.0, at), Ok(()));
            assert_eq!(bucket.take(7.0, at), Ok(()));
            bucket.take(1.0, at).expect_err("it had ten");
            assert!((bucket.taken_alone() - 10.0).abs() < 1e-9, "{}", bucket.taken_alone());
            bucket.note_back();
            assert_eq!(bucket.take(1.0, at), Ok(()), "on credit");
        }
        drop(buckets);
        assert_eq!(calls.load(Relaxed), 4);
    }
    #[test]
    fn corrections_become_debts() {
        check(
            "1000:take:1 1001:ask 1002:grant:9 1003:charge:3 1003:charge:7 1003:back:6 1003:back:3",
            "ok ! 1/1/0 1201 (5.0, 0.0) (5.0, 7.0) ! (5.0, 1.0) (7.0, 0.0)",
        );
    }
    #[test]
    fn what_is_dearer_than_the_bucket_takes_all_of_it_and_leaves_a_debt() {
        check(
            "1000:take:1 1001:take:50 1001:ask 1002:grant:20 1002:take:19 1002:take:50 1003:ask",
            "ok ! wait25 26/1/0 1201 ok ! wait26 34/4/0",
        );
    }

    #[test]
    fn no_token_is_spent_twice_or_lost_between_threads() {
        let bucket = LeasedBucket::new(1e6, 1e4);
        bucket.note_back();
        let (time, ended) = (AtomicU64::new(1_000_000), AtomicU32::new(0));
        let now = || Duration::from_micros(time.load(Relaxed));
        let (mut book, mut leased) = (crate::lease::book::LeaseBook::default(), 0_i64);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for price in [1_u64, 1, 3, 7] {
                let (bucket, taken, ended) = (&bucket, &taken, &ended);
                scope.spawn(move || {
                    for _ in 0..100_000 {
                        if bucket.take(price as f64, now()).is_ok() {
                            taken.fetch_add(price * 1_000, Relaxed);
                        }
                    }
                    ended.fetch_add(1, Relaxed);
                });
            }
            // The control loop, in whose time a round takes a millisecond.
            while ended.load(Relaxed) < 4 {
                if let Some(ask) = bucket.ask(now()) {
                    let grant = book.lease(bucket.terms(), ask, time.load(Relaxed));
                    leased += grant.granted as i64 - ask.back as i64;
                    bucket.grant(grant, now());
                }
                time.fetch_add(1_000, Relaxed);
                std::thread::yield_now();
            }
        });
        // All that is past its time is given back.
        time.fetch_add(1_000_000, Relaxed);
        while let Some(ask) = bucket.ask(now()) {
            let grant = book.lease(bucket.terms(), ask, time.load(Relaxed));
            leased += grant.granted as i64 - ask.back as i64;
            bucket.grant(grant, now());
            time.fetch_add(1_000_000, Relaxed);
        }
        let taken = taken.into_inner() as i64 - (bucket.taken_alone() * 1_000.0) as i64;
        let owed = bucket.side.debt() as i64;
        // Less than is worth an ask may be kept back.
        let kept = leased + owed - taken;
        let kept_max = milli(1e6 * LINGER.as_secs_f64()) as i64;
        assert!((0..=kept_max).contains(&kept), "{leased} leased, {owed} owed, {taken} taken");
        assert!(taken > 0, "some were taken");
    }

    #[test]
    fn open_and_closed() {
        for (when_away, admits) in [(WhenAway::Open, true), (WhenAway::Closed, false)] {
            let bucket = LeasedBucket::new(1.0, 1.0).with_when_away(when_away);
            let now = Duration::from_secs(1);
            assert!((0..100).all(|_| bucket.take(1.0, now).is_ok() == admits), "{when_away:?}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "prints what a take costs, and decides nothing")]
    fn what_a_take_costs() {
        let bucket = LeasedBucket::new(1e9, 1e9);
        bucket.note_back();
        let now = Duration::from_secs(1);
        let _first = bucket.take(1.0, now);
        let _ask = bucket.ask(now);
        bucket.grant(LeaseGrant { granted: 1_000_000_000_000, wait: Duration::ZERO }, now);
        let begin = std::time::Instant::now();
        let taken = (0..1_000_000).filter(|_| bucket.take(1.0, now).is_ok()).count();
        println!("lease: a take costs {} ns", begin.elapsed().as_nanos() / 1_000_000);
        assert_eq!(taken, 1_000_000);
    }
}
