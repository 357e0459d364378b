//! When the keys of an issuer are fetched again. A loop elsewhere waits, fetches and reports here.

use std::time::Duration;

use rand::Rng;

/// How often keys are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefreshSettings {
    /// From one success to the next attempt.
    pub interval: Duration,
    /// The least time between two attempts of which the later is because of a token with an unknown
    /// `kid`: any client can invent such tokens.
    pub early_gap: Duration,
    /// From the first failure to the next attempt; doubled with each further one.
    pub backoff_min: Duration,
    /// The longest time from a failure to the next attempt.
    pub backoff_max: Duration,
    /// How long after a success its keys are used.
    pub stale_max: Duration,
}

impl Default for RefreshSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(10 * 60),
            early_gap: Duration::from_secs(30),
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            stale_max: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// The attempts to fetch the keys of one issuer, and when the next is due.
///
/// Instants are of one clock that does not step, whatever its epoch.
#[derive(Debug, Clone)]
pub struct RefreshPlan {
    settings: RefreshSettings,
    attempted_at: Option<Duration>,
    succeeded_at: Option<Duration>,
    /// Since the last success.
    failures: u32,
    due_at: Duration,
}

impl RefreshPlan {
    /// A plan whose first attempt is due at once.
    pub fn new(settings: RefreshSettings) -> Self {
        Self {
            settings,
            attempted_at: None,
            succeeded_at: None,
            failures: 0,
            due_at: Duration::ZERO,
        }
    }

    /// When the next attempt is due.
    pub fn due_at(&self) -> Duration {
        self.due_at
    }

    /// Whether an attempt is due.
    pub fn is_due(&self, now: Duration) -> bool {
        now >= self.due_at
    }

    /// A token came with a key that is not known: brings the next attempt forward, but not to within
    /// `early_gap` of the last one. Whether it is due now.
    pub fn request_early(&mut self, now: Duration) -> bool {
        let soonest =
            self.attempted_at.map_or(now, |at| at.saturating_add(self.settings.early_gap));
        self.due_at = self.due_at.min(soonest.max(now));
        self.is_due(now)
    }

    /// An attempt that ended at `now` brought keys. The next one is due after the interval, or up to
    /// a tenth of it sooner, so that replicas do not ask all at once.
    pub fn record_success(&mut self, now: Duration, rng: &mut impl Rng) {
        self.attempted_at = Some(now);
        self.succeeded_at = Some(now);
        self.failures = 0;
        self.due_at =
            now.saturating_add(self.settings.interval.mul_f64(rng.random_range(0.9..=1.0)));
    }

    /// An attempt that ended at `now` brought none. The next one is due after the backoff, or up to
    /// half of it sooner.
    pub fn record_failure(&mut self, now: Duration, rng: &mut impl Rng) {
        let RefreshSettings { backoff_min, backoff_max, .. } = self.settings;
        // At 2^31 every backoff has reached its maximum.
        let doubled = backoff_min.saturating_mul(1 << self.failures.min(31));
        self.attempted_at = Some(now);
        self.failures = self.failures.saturating_add(1);
        let backoff = doubled.min(backoff_max);
        self.due_at = now.saturating_add(backoff.mul_f64(rng.random_range(0.5..=1.0)));
    }

    /// When keys last came.
    pub fn succeeded_at(&self) -> Option<Duration> {
        self.succeeded_at
    }

    /// From when on the keys are too old to be used; `None`: there are none.
    pub fn stale_at(&self) -> Option<Duration> {
        self.succeeded_at.map(|at| at.saturating_add(self.settings.stale_max))
    }

    /// Whether the keys are too old to be used, or there are none.
    pub fn is_stale(&self, now: Duration) -> bool {
        self.stale_at().is_none_or(|at| now >= at)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng as _;
    use rand::rngs::SmallRng;

    use super::{RefreshPlan, RefreshSettings};

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Plays steps: `ok@5` and `bad@5` end attempts, `kid@5` is a token with an unknown key. After
    /// the last one the next attempt is due within these seconds.
    fn check(steps: &str, due: std::ops::RangeInclusive<u64>) {
        for seed in 0..50 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut plan = RefreshPlan::new(RefreshSettings::default());
            for step in steps.split_whitespace() {
                let (what, at) = step.split_once('@').unwrap();
                let now = s(at.parse().unwrap());
                match what {
                    "ok" => plan.record_success(now, &mut rng),
                    "bad" => plan.record_failure(now, &mut rng),
                    "kid" => {
                        let at_once = plan.request_early(now);
                        assert_eq!(at_once, plan.is_due(now), "{steps}");
                    }
                    _ => panic!("unknown step {step}"),
                }
            }
            let range = s(*due.start())..=s(*due.end());
            assert!(range.contains(&plan.due_at()), "{steps}: {:?}, not {range:?}", plan.due_at());
        }
    }

    #[test]
    fn the_first_attempt_is_due_at_once() {
        check("", 0..=0);
        check("kid@7", 0..=0);
    }

    #[test]
    fn a_success_is_followed_by_the_interval() {
        check("ok@100", 640..=700);
        check("bad@1 bad@2 ok@100", 640..=700);
    }

    #[test]
    fn failures_double_the_backoff_up_to_its_maximum() {
        check("bad@100", 100..=101);
        check("bad@100 bad@100", 101..=102);
        check("ok@0 bad@100 bad@100 bad@100", 102..=104);
        check(&"bad@100 ".repeat(7), 130..=160);
        check(&"bad@100 ".repeat(80), 130..=160);
        check("bad@1 bad@1 bad@1 ok@2 bad@100", 100..=101);
    }

    #[test]
    fn an_unknown_key_brings_the_attempt_forward_but_not_within_the_gap() {
        check("ok@100 kid@140", 140..=140);
        check("ok@100 kid@130", 130..=130);
        check("ok@100 kid@105", 130..=130);
        check("ok@100 kid@105 kid@106 kid@107", 130..=130);
        check("ok@100 kid@140 ok@141 kid@142 kid@150", 171..=171);
    }

    #[test]
    fn an_unknown_key_does_not_shorten_the_backoff_below_the_gap_nor_lengthen_it() {
        check("bad@100 kid@100", 100..=101);
        check(&format!("{} kid@101", "bad@100 ".repeat(8)), 130..=130);
        check("ok@100 kid@700", 640..=700);
    }

    #[test]
    fn keys_are_stale_before_the_first_success_and_a_day_after_the_last() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut plan = RefreshPlan::new(RefreshSettings::default());
        assert!(plan.is_stale(s(0)));
        plan.record_success(s(10), &mut rng);
        plan.record_failure(s(86_000), &mut rng);
        assert!(!plan.is_stale(s(86_409)));
        assert!(plan.is_stale(s(86_410)));
        assert_eq!((plan.failures, plan.succeeded_at()), (1, Some(s(10))));
        assert_eq!(plan.stale_at(), Some(s(86_410)));
    }
}
