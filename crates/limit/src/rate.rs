//! An unknown rate, learnt from refusals.
//!
//! Before the first refusal there is no bound, and a call costs an addition. A refusal
//! (429, or the same in a 200) cuts the rate and pauses; afterwards it grows again by the
//! curve of CUBIC (RFC 9438, section 4.2) with a fixed time to the old height:
//!
//! `r(t) = W · (1 - (1 - f) · (1 - t/K)³)`, at most `2·W`
//!
//! `W` is the rate at which we were refused, `f` what is left of it after the cut and `t`
//! the time since the pause. Thus `r(0) = f·W` and `r(K) = W`: quickly back to near `W`,
//! long near it, where the limit must be, and then ever faster away from it in case the
//! limit was raised. A low `W` may be far below the limit, and from `2·K` on the rate doubles every
//! [`LOW_DOUBLES`]. `f` is [`SHARE`], or [`SHARE_AGAIN`] when refusals follow each other.
//! Over the way back to `W` the mean is `1 - (1 - f)/4` of `W`: 98 %.
//!
//! The first `W` is what went out in the second before, if that was not next to nothing. Later ones are the rate then
//! allowed, or twice the rate that was sent if that is less: a rate that was not used
//! taught nothing. Calls sent before the cut say nothing new, however many are
//! refused.
//!
//! From the fourth refusal in a row on, if no call was answered in between, the upstream refuses
//! everything: because of an outage, its account, or a window of ten seconds that is used up. How
//! low the rate goes then says nothing of where the limit is. So `f` is cut further, `W` stays, and
//! afterwards the rate doubles each second up to half of `W` (as TCP's slow start, RFC 5681,
//! section 3.1). Where no rate was known before these refusals, `W` is a guess: the rate doubles
//! until it is refused, which shows the limit, or until it is twice `W` and at least [`LEAST`],
//! where it is forgotten.
//!
//! A call that was refused though no other went out in the second before says nothing of a
//! rate, however often that happens: an upstream that refuses everything, because of its account
//! or its daily limit, is paused, and gets all calls again when it recovers.
//!
//! The pause is what the provider asked for. Without that, or where it asks for none and refuses
//! all the same, it is a second the first time,
//! then [`PAUSE`], doubled while refusals follow each other. A rate is forgotten
//! [`FORGET`] after the last refusal.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::bucket::{Bucket, Pace};
use crate::nanos;
use crate::recent::Recent;

/// What is left of a rate after a refusal.
const SHARE: f64 = 0.93;
/// What is left when the one before was less than [`AGAIN`] ago.
const SHARE_AGAIN: f64 = 0.85;
/// Refusals that follow each other sooner are of one kind: the rate is still too high.
const AGAIN: Duration = Duration::from_secs(2);
/// `K`: from a cut back to the rate that was refused.
const BACK: Duration = Duration::from_secs(40);
/// `K` of a low rate, below [`LEAST`]: one call more or less is a large part of it, and it may be far
/// below what the upstream takes once a time of trouble is over.
const BACK_LOW: Duration = Duration::from_secs(15);
/// From twice [`BACK_LOW`] on a low rate doubles in this time: where it was refused there is no limit any more.
const LOW_DOUBLES: Duration = Duration::from_secs(4);
/// A rate grows to no more than this many times the one that was refused.
const GROWTH_MAX: f64 = 2.0;
/// As does a low one.
const GROWTH_LOW_MAX: f64 = 100.0;
/// The pause after a refusal; short, as the rate itself is lower already.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause while no rate is known yet: providers' shortest window.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
/// No pause of our own is longer: a provider that is back must not wait for us, and one
/// refused call in so long a time costs it nothing.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// What is not refused for so long is not limited, as far as we can know.
const FORGET: Duration = Duration::from_secs(600);
/// A refusal says something of a rate if at least this many calls a second went out: the one
/// refusal of a quiet hour may be a mistake. After [`ALONE`] refusals in a row one call a second is
/// enough.
const LEAST: f64 = 10.0;
/// From this many refusals in a row on, low rates are learnt.
const ALONE: u32 = 3;
/// A guess that was forgotten, and is refused again within this time while other calls are
/// answered, was a low limit.
const GUESSED: Duration = Duration::from_secs(30);
/// What may go at once, as a part of a second's credits. Some providers count in parts
/// of a second themselves.
const BURST: f64 = 0.05;

/// A rate that is learnt. Racing writers may lose a count; no state is ever torn into
/// one that does not end by itself.
#[derive(Debug, Default)]
pub struct LearntRate {
    recent: Recent,
    bucket: Bucket,
    /// `W` in credits a second, as bits; zero while nothing is known.
    ceiling: AtomicU64,
    /// `f`, as bits.
    share: AtomicU64,
    /// When the last cut was made, and when its pause ends, in nanoseconds.
    cut: AtomicU64,
    resumes: AtomicU64,
    /// Refusals that followed each other.
    streak: AtomicU32,
    /// A call that went out after the last cut was answered.
    has_passed: AtomicBool,
    /// The upstream refused everything, so the rate doubles each second.
    doubles: AtomicBool,
    /// The rate at which a guess is forgotten, as bits; zero for a rate that is known.
    ends: AtomicU64,
    /// `W` is below [`LEAST`].
    is_low: AtomicBool,
}

impl LearntRate {
    /// A rate for a part of the calls of this one, of which nothing is known: what went out
    /// lately is taken for calls of that part.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { recent: self.recent.copied(), ..Self::default() }
    }

    /// Forgets what was learnt: it was another's limit.
    pub fn forget(&self) {
        self.ceiling.store(0, Ordering::Relaxed);
        self.ends.store(0, Ordering::Relaxed);
        self.streak.store(0, Ordering::Relaxed);
    }

    /// Notes that a call went out. To be called for each, learnt or not.
    pub fn sent(&self, credits: u32, now: Duration) {
        self.recent.add(credits, now);
    }

    /// Whether a rate was ever learnt; it may be forgotten since.
    pub fn is_known(&self) -> bool {
        self.ceiling.load(Ordering::Relaxed) != 0
    }

    /// The rate now, in credits a second; `None` while there is no bound.
    pub fn rate(&self, now: Duration) -> Option<f64> {
        let ceiling = match self.ceiling.load(Ordering::Relaxed) {
            0 => return None,
            bits => f64::from_bits(bits),
        };
        let resumes = Duration::from_nanos(self.resumes.load(Ordering::Relaxed));
        let since = now.saturating_sub(resumes);
        if since >= FORGET {
            return None;
        }
        let share = f64::from_bits(self.share.load(Ordering::Relaxed));
        let slow = curve(ceiling, share, since, self.is_low.load(Ordering::Relaxed));
        if !self.doubles.load(Ordering::Relaxed) {
            return Some(slow);
        }
        let doubled = ceiling * share * since.as_secs_f64().min(60.0).exp2();
        match f64::from_bits(self.ends.load(Ordering::Relaxed)) {
            0.0 => Some(slow.max(doubled.min(ceiling / 2.0))),
            ends => (doubled < ends).then_some(doubled),
        }
    }

    /// Notes that a call that went out at `began` was answered, and not refused.
    pub fn answered(&self, began: Duration) {
        if nanos(began) > self.cut.load(Ordering::Relaxed) {
            self.has_passed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes `credits` from the rate, or says how long until they are there.
    pub fn take(&self, credits: f64, now: Duration) -> Result<(), Duration> {
        match self.pace(credits, now) {
            Some(pace) => self.bucket.take(credits, pace, now),
            None => Ok(()),
        }
    }

    /// How long until `credits` could be taken; takes none.
    pub fn wait(&self, credits: f64, now: Duration) -> Duration {
        self.pace(credits, now).map_or(Duration::ZERO, |pace| self.bucket.wait(credits, pace, now))
    }

    /// Puts back what was taken for a call that was not made after all.
    pub fn give_back(&self, credits: f64, now: Duration) {
        if let Some(pace) = self.pace(credits, now) {
            self.bucket.give_back(credits, pace);
        }
    }

    /// The time that `credits` take to come back; zero without a bound.
    pub fn time_of(&self, credits: f64, now: Duration) -> Duration {
        self.pace(credits, now).map_or(Duration::ZERO, |pace| pace.time_of(credits))
    }

    fn pace(&self, credits: f64, now: Duration) -> Option<Pace> {
        let rate = self.rate(now)?;
        Some(Pace::new(rate, Duration::from_secs(1), (BURST * rate).max(credits)))
    }

    /// Learns from the refusal of a call of `credits` that went out at `began`. `asked` is
    /// the pause that the provider asked for. Returns the pause to make.
    pub fn refused(
        &self,
        credits: f64,
        began: Duration,
        now: Duration,
        asked: Option<Duration>,
    ) -> Duration {
        let asked = asked.filter(|pause| !pause.is_zero());
        let cut = self.cut.load(Ordering::Relaxed);
        let (began_nanos, now_nanos) = (nanos(began), nanos(now).max(1));
        let is_news = cut == 0 || began_nanos > cut;
        let claim = || {
            let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
            self.cut.compare_exchange(cut, now_nanos, success, failure).is_ok()
        };
        if !is_news || !claim() {
            return asked.unwrap_or_default();
        }
        let measured = self.recent.last_second(now) as f64;
        let known = self.rate(now);
        let resumed = Duration::from_nanos(self.resumes.load(Ordering::Relaxed));
        let again = cut != 0 && began.saturating_sub(resumed) < AGAIN;
        let streak = if again { self.streak.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        let has_passed = self.has_passed.swap(false, Ordering::Relaxed);
        let first = if known.is_none() { PAUSE_FIRST } else { PAUSE };
        let usual = first.saturating_mul(2_u32.saturating_pow(streak.min(16))).min(PAUSE_MAX);
        let pause = asked.unwrap_or(usual);
        self.streak.store(streak, Ordering::Relaxed);
        self.resumes.store(nanos(now + pause), Ordering::Relaxed);
        let evidence = RefusalEvidence { credits, measured, known, again, streak, has_passed };
        match self.lesson(&evidence, now.saturating_sub(resumed)) {
            Some(learnt) => {
                let is_low = learnt.ceiling < LEAST * credits.max(1.0);
                self.is_low.store(is_low, Ordering::Relaxed);
                self.learn(&learnt);
            }
            None => self.ceiling.store(0, Ordering::Relaxed),
        }
        pause
    }

    /// What a refusal teaches, this long after the last pause; `None` for nothing.
    fn lesson(&self, evidence: &RefusalEvidence, since: Duration) -> Option<CurveParameters> {
        let RefusalEvidence { credits, measured, known, again, streak, has_passed } = *evidence;
        let ends = f64::from_bits(self.ends.load(Ordering::Relaxed));
        let was_guessed = ends != 0.0 && self.doubles.load(Ordering::Relaxed) && since < GUESSED;
        let may_be_low = streak >= ALONE || was_guessed && has_passed;
        let one = credits.max(1.0);
        let least = if may_be_low { one } else { LEAST * one };
        let refuses_all = streak >= ALONE && !has_passed;
        let share = if again { SHARE_AGAIN } else { SHARE };
        Some(match known {
            None if measured < least || measured < 2.0 * credits => return None,
            None => CurveParameters {
                ceiling: measured,
                share,
                doubles: refuses_all,
                ends: if has_passed { 0.0 } else { (2.0 * measured).max(LEAST * one) },
            },
            Some(rate) if refuses_all => {
                let height = f64::from_bits(self.ceiling.load(Ordering::Relaxed));
                let share = (rate.min(height) * SHARE_AGAIN).max(least) / height;
                // At most, as a share of 1 never grows: a limit of one call a second would stay.
                CurveParameters {
                    ceiling: height,
                    share: share.min(SHARE_AGAIN),
                    doubles: true,
                    ends,
                }
            }
            Some(rate) => {
                // After a pause the last second says little.
                let used = if again { rate } else { rate.min(2.0 * measured) };
                let ends = if has_passed { 0.0 } else { ends };
                CurveParameters {
                    ceiling: used.max(least.min(rate)).max(one),
                    share,
                    doubles: false,
                    ends,
                }
            }
        })
    }

    fn learn(&self, learnt: &CurveParameters) {
        self.share.store(learnt.share.to_bits(), Ordering::Relaxed);
        self.doubles.store(learnt.doubles, Ordering::Relaxed);
        self.ends.store(learnt.ends.to_bits(), Ordering::Relaxed);
        self.ceiling.store(learnt.ceiling.to_bits(), Ordering::Relaxed);
    }
}

/// What is known of a refusal.
#[derive(Debug)]
struct RefusalEvidence {
    /// Of the call.
    credits: f64,
    /// Sent in the second before, in credits.
    measured: f64,
    /// The rate then allowed.
    known: Option<f64>,
    /// It came less than [`AGAIN`] after the last pause.
    again: bool,
    /// Refusals that followed each other before this one.
    streak: u32,
    /// A call was answered since the last cut.
    has_passed: bool,
}

/// What a refusal taught.
#[derive(Debug)]
struct CurveParameters {
    /// `W`.
    ceiling: f64,
    /// `f`.
    share: f64,
    /// The rate doubles each second.
    doubles: bool,
    /// The rate at which it is forgotten; 0 for one that is known.
    ends: f64,
}

/// `W · (1 - (1 - f) · (1 - t/K)³)`, at most `2·W`. Of a low rate `W · 2^((t - 2·K)/4 s)` from `2·K` on if that is more,
/// and at most `100·W`.
fn curve(ceiling: f64, share: f64, since: Duration, is_low: bool) -> f64 {
    let (back, growth_max) = if is_low { (BACK_LOW, GROWTH_LOW_MAX) } else { (BACK, GROWTH_MAX) };
    let left = 1.0 - since.as_secs_f64() / back.as_secs_f64();
    let slow = ceiling * (1.0 - (1.0 - share) * left.powi(3));
    let outgrown = since.saturating_sub(2 * BACK_LOW);
    let doubled = match is_low && !outgrown.is_zero() {
        true => ceiling * (outgrown.as_secs_f64() / LOW_DOUBLES.as_secs_f64()).exp2(),
        false => 0.0,
    };
    slow.max(doubled).min(growth_max * ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Meter, Shared, drive};

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_curve_is_its_formula() {
        for (since_s, percent) in
            [(0, 93.0), (20, 99.125), (40, 100.0), (60, 100.875), (80, 107.0), (160, 289.0)]
        {
            let expected = (100.0_f64 * percent / 100.0).min(200.0);
            let found = curve(100.0, SHARE, secs(since_s), false);
            assert!((found - expected).abs() < 1e-9, "{since_s}: {found}");
        }
    }

    #[test]
    fn a_low_rate_doubles_once_it_is_outgrown() {
        let low = |since_s| curve(1.0, SHARE, secs(since_s), true);
        assert_eq!([low(15), low(34), low(38), low(46)], [1.0, 2.0, 4.0, 16.0]);
        // Until then as slowly as any other.
        assert!((1.0..1.1).contains(&low(30)), "{}", low(30));
        assert!((low(600) - GROWTH_LOW_MAX).abs() < 1e-9);
    }

    #[test]
    fn without_a_refusal_there_is_no_bound() {
        let rate = LearntRate::default();
        (0..10_000).for_each(|_| assert_eq!(rate.take(1.0, Duration::ZERO), Ok(())));
        assert_eq!(rate.rate(Duration::ZERO), None);
    }

    #[test]
    fn the_first_refusal_learns_what_went_out() {
        let rate = LearntRate::default();
        (0..1_000).for_each(|ms| {
            if ms % 5 == 0 {
                rate.sent(1, Duration::from_millis(ms));
            }
        });
        let pause = rate.refused(1.0, Duration::from_millis(980), secs(1), None);
        assert_eq!(pause, PAUSE_FIRST);
        let learnt = rate.rate(secs(2)).expect("learnt");
        assert!((learnt - 0.93 * 200.0).abs() < 3.0, "{learnt}");
        assert_eq!(rate.rate(secs(2) + FORGET), None, "forgotten");
    }

    #[test]
    fn one_refusal_of_a_quiet_hour_says_nothing_of_a_rate() {
        let rate = LearntRate::default();
        rate.sent(5, secs(1));
        let pause = rate.refused(1.0, secs(1), secs(1), None);
        assert_eq!((pause, rate.rate(secs(3))), (PAUSE_FIRST, None));
        // But when it is refused again and again, it does.
        let mut now = secs(1) + pause;
        for _ in 0..ALONE {
            now += Duration::from_millis(300);
            rate.sent(5, now);
            now += rate.refused(1.0, now, now, None);
        }
        let learnt = rate.rate(now).expect("learnt");
        assert!((4.0..6.0).contains(&learnt), "{learnt}");
    }

    #[test]
    fn an_upstream_that_refuses_each_call_alone_is_not_slow_when_it_is_back() {
        let rate = LearntRate::default();
        let mut now = secs(1);
        for _ in 0..20 {
            rate.sent(1, now);
            now += rate.refused(1.0, now, now, None) + Duration::from_millis(10);
        }
        assert_eq!((rate.rate(now), rate.wait(1.0, now)), (None, Duration::ZERO));
    }

    #[test]
    fn a_pause_of_nothing_is_none_that_was_asked_for() {
        let (asked, silent) = (LearntRate::default(), LearntRate::default());
        let mut now = secs(1);
        for _ in 0..8 {
            [&asked, &silent].into_iter().for_each(|rate| rate.sent(20, now));
            let pause = asked.refused(1.0, now, now, Some(Duration::ZERO));
            assert_eq!(pause, silent.refused(1.0, now, now, None));
            now += pause;
        }
        assert_eq!(asked.rate(now), silent.rate(now));
    }

    #[test]
    fn calls_that_were_under_way_say_nothing_new() {
        let rate = LearntRate::default();
        rate.sent(100, secs(1));
        rate.refused(1.0, secs(1), secs(1) + PAUSE, None);
        let learnt = rate.rate(secs(9));
        for _ in 0..50 {
            let pause = rate.refused(1.0, secs(1), secs(2), None);
            assert_eq!(pause, Duration::ZERO);
        }
        assert_eq!(rate.rate(secs(9)), learnt);
        // But a pause that is asked for is made.
        assert_eq!(rate.refused(1.0, secs(1), secs(2), Some(secs(7))), secs(7));
    }

    #[test]
    fn a_part_begins_with_what_went_out_and_learns_alone() {
        let all = LearntRate::default();
        all.sent(100, secs(1));
        let part = all.apart();
        part.refused(1.0, secs(1), secs(1), None);
        assert_eq!(all.rate(secs(2)), None);
        assert!(part.rate(secs(2)).is_some_and(|rate| rate > 90.0));
        part.forget();
        assert_eq!((part.rate(secs(2)), part.is_known()), (None, false));
    }

    #[test]
    fn refusals_in_a_row_pause_longer_and_cut_deeper() {
        let rate = LearntRate::default();
        rate.sent(1_000, secs(1));
        let mut now = secs(1) + rate.refused(1.0, secs(1), secs(1), None);
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let pause = rate.refused(1.0, now, now, None);
            pauses.push(pause.as_millis());
            now += pause;
        }
        assert_eq!(pauses, [200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000, 2_000, 2_000]);
        let learnt = rate.rate(now).expect("learnt");
        assert!((150.0..250.0).contains(&learnt), "930 · 0.85¹⁰ = 183: {learnt}");
    }

    /// Drives a provider whose limit is unknown with more than it takes, and wants
    /// 90 % of its limit with less than 1 % refusals, the first ones included.
    fn check(meter: Meter, limit_per_second: f64, retry_after: Option<Duration>, demand: u64) {
        let bounds = UseBounds { used_min: 0.9, refused_max: 0.01 };
        check_use(meter, limit_per_second, retry_after, demand, bounds);
    }

    /// Shares: of the limit that is used, and of the calls that are refused.
    struct UseBounds {
        used_min: f64,
        refused_max: f64,
    }

    /// As [`check`], for other bounds.
    fn check_use(
        meter: Meter,
        limit_per_second: f64,
        retry_after: Option<Duration>,
        demand: u64,
        UseBounds { used_min, refused_max }: UseBounds,
    ) {
        let told = format!("{meter:?} {retry_after:?} {demand}");
        let shared = Shared { demand_per_second: demand, seconds: 180, retry_after };
        let seen = drive(meter, &shared, &LearntRate::default());
        let used = seen.accepted_after_10_s as f64 / (limit_per_second * 170.0);
        let sent = seen.accepted + seen.refused;
        let refused = seen.refused as f64 / sent as f64;
        println!(
            "{told}: used {:.1} %, refused {:.2} % ({} of {sent})",
            used * 100.0,
            refused * 100.0,
            seen.refused
        );
        assert!(used >= used_min, "{told}: {used}");
        assert!(refused < refused_max, "{told}: {refused}");
    }

    #[test]
    fn a_bucket_of_a_second_is_found() {
        let bucket = || Meter::bucket(125.0, 125.0);
        for demand in [150, 200, 300, 1_000] {
            check(bucket(), 125.0, None, demand);
            check(bucket(), 125.0, Some(secs(1)), demand);
        }
    }

    #[test]
    fn a_bucket_of_ten_seconds_is_found() {
        check(Meter::bucket(400.0, 4_000.0), 400.0, None, 600);
        check(Meter::bucket(400.0, 4_000.0), 400.0, None, 1_500);
    }

    /// Free plans: few calls a second, metered by the second or by ten.
    #[test]
    fn a_low_limit_is_found() {
        for (limit, refused_max) in
            [(1_u64, 0.3), (2, 0.15), (3, 0.12), (5, 0.08), (8, 0.05), (12, 0.05), (15, 0.05)]
        {
            for demand in [2 * limit, 10 * limit] {
                let meters = [
                    Meter::bucket(limit as f64, limit as f64),
                    Meter::fixed(limit, secs(1)),
                    Meter::fixed(10 * limit, secs(10)),
                ];
                for meter in meters {
                    let bounds = UseBounds { used_min: 0.8, refused_max };
                    check_use(meter, limit as f64, None, demand, bounds);
                }
            }
        }
    }

    /// A limit that is low for half a minute does not slow what follows.
    #[test]
    fn a_low_limit_that_ends_is_outgrown() {
        for limit in [2.0, 4.0, 8.0] {
            let shared = |seconds| Shared { demand_per_second: 20, seconds, retry_after: None };
            let accepted = |seconds| {
                let meter = Meter::lifted(limit, secs(30));
                drive(meter, &shared(seconds), &LearntRate::default()).accepted
            };
            let (soon, late) = (accepted(70), accepted(110));
            assert!(late - soon >= 40 * 19, "{limit}/s: {} within 40 to 80 s", late - soon);
        }
    }

    /// An upstream that refuses everything for twelve seconds has shown no limit.
    #[test]
    fn an_outage_does_not_slow_what_follows() {
        for demand in [2, 3, 5, 8, 15, 40, 200] {
            let shared = |seconds| Shared { demand_per_second: demand, seconds, retry_after: None };
            let accepted = |seconds| {
                drive(Meter::closed(secs(12)), &shared(seconds), &LearntRate::default()).accepted
            };
            // All that was wanted, the calls of the outage included, has passed soon after it.
            let (soon, late) = (accepted(20), accepted(40));
            assert!(soon >= 4 * demand, "{demand}/s wanted: {soon} within 8 s");
            assert!(late >= 30 * demand, "{demand}/s wanted: {late} within 28 s");
        }
    }

    /// An answer between two outages looks like a limit of one call a second, which must not stay.
    #[test]
    fn an_answer_between_two_outages_holds_the_rate_for_less_than_a_minute() {
        let millis = Duration::from_millis;
        let (rate, mut now) = (LearntRate::default(), secs(10));
        for round in 0..3 {
            for _ in 0..12 {
                now += millis(320);
                (0..4).for_each(|_| rate.sent(1, now));
                // Polls do not wait for the end of the pause.
                rate.refused(1.0, now, now, None);
            }
            if round < 2 {
                rate.answered(now + millis(50));
            }
        }
        assert!(rate.rate(now).is_some_and(|rate| rate <= 2.0), "{:?}", rate.rate(now));
        let later = rate.rate(now + secs(60));
        assert!(later.is_none_or(|rate| rate >= 4.0), "{later:?}");
    }

    #[test]
    fn a_fixed_window_is_found() {
        check(Meter::fixed(125, secs(1)), 125.0, None, 200);
        check(Meter::fixed(125, secs(1)), 125.0, Some(secs(1)), 300);
    }

    #[test]
    fn a_sliding_window_is_found() {
        check(Meter::sliding(125, secs(1)), 125.0, None, 200);
        check(Meter::sliding(125, secs(1)), 125.0, Some(secs(1)), 300);
    }
}
