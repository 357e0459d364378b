//! What an upstream may be asked for: what the settings and the catalogue say together.
//!
//! Plain values; what is counted against them is in `control`. A setting goes before the
//! plan that is named, and without either there is no bound but what is learnt.

use std::time::Duration;

use wellhead_limit::{Caps, Pace};

use crate::provider::{Meter, Metering, Provider, PushPrice, Tariff};

/// A rate as the provider meters it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BudgetRate {
    /// Paced, with a burst.
    Paced(Pace),
    /// Counted, in a window that opens with its first call.
    Counted { credits: u64, window: Duration },
}

impl BudgetRate {
    fn new(meter: Meter, credits: u64, window: Duration) -> Self {
        match meter {
            Meter::Bucket => Self::Paced(Pace::for_bucket(credits as f64, window)),
            Meter::Window => Self::Paced(Pace::for_window(credits as f64, window)),
            Meter::Fixed => Self::Counted { credits, window },
        }
    }
}

/// The bounds of one upstream.
#[derive(Debug, Clone, Default)]
pub struct Budget {
    /// What each method costs; one credit a call when `None`.
    pub(crate) tariff: Option<Tariff>,
    /// What a pushed message costs; nothing when `None`.
    pub(crate) push: Option<PushPrice>,
    /// Credits in a window.
    pub(crate) credits: Option<BudgetRate>,
    /// Calls in a second.
    pub(crate) calls: Option<BudgetRate>,
    /// Credits in a day and in a month.
    pub(crate) caps: Caps,
    /// Calls at once.
    pub(crate) in_flight: Option<u32>,
    /// Whether it may be used beyond its caps if no other upstream can serve.
    pub(crate) overspend: bool,
    /// Whether unknown limits are not learnt.
    pub(crate) fixed: bool,
    /// The wall time of the upstream's epoch, in seconds since 1970: days are counted by it.
    pub(crate) epoch_unix: u64,
}

/// What the settings of one upstream say; nothing of it must be given.
#[derive(Debug, Clone, Default)]
pub struct BudgetTerms<'a> {
    /// The plan, by its name in the catalogue.
    pub plan: Option<&'a str>,
    /// Credits a second.
    pub credits_per_second: Option<u64>,
    /// Credits a day.
    pub credits_per_day: Option<u64>,
    /// Credits a month.
    pub credits_per_month: Option<u64>,
    /// Calls a second.
    pub calls_per_second: Option<u64>,
    /// The time in which those are counted; a second where it is not said.
    pub calls_window: Option<Duration>,
    /// Calls that pass together after a pause, where the rate is a bucket that fills bit by bit.
    pub calls_burst: Option<u64>,
    /// Calls at once.
    pub in_flight: Option<u32>,
    /// Whether it may be used beyond its caps if no other upstream can serve.
    pub overspend: bool,
    /// Whether unknown limits are learnt.
    pub learn: bool,
}

impl BudgetTerms<'_> {
    /// A window holds as many calls as come in it at the rate; of a bucket nine tenths are used
    /// at once, and 95 % of what comes back, because both were measured from outside.
    fn calls(&self, per_second: u64) -> BudgetRate {
        const SECOND: Duration = Duration::from_secs(1);
        let rate = per_second as f64;
        BudgetRate::Paced(match (self.calls_burst, self.calls_window) {
            (Some(burst), _) => Pace::new(0.95 * rate, SECOND, 0.9 * burst as f64),
            (None, window) => {
                let window = window.unwrap_or(SECOND);
                Pace::for_window(rate * window.as_secs_f64(), window)
            }
        })
    }
}

impl Budget {
    /// What `terms` and `provider` say together. `epoch_unix` is the wall time, in seconds
    /// since 1970, of the instant that the upstream is made at.
    pub fn new(provider: Option<&Provider>, terms: &BudgetTerms<'_>, epoch_unix: u64) -> Self {
        const SECOND: Duration = Duration::from_secs(1);
        let metering = provider.and_then(|provider| provider.rate.as_ref());
        let plan = provider.zip(terms.plan).and_then(|(provider, name)| provider.plan(name));
        let meter = metering.map_or(Meter::Window, |rate| rate.meter);
        let window = metering.map_or(SECOND, Metering::window);
        let own = terms.credits_per_second.map(|each| each.saturating_mul(window.as_secs()));
        let credits = own.or_else(|| plan?.credits);
        let calls = terms.calls_per_second.or_else(|| plan?.calls_per_second);
        Self {
            tariff: provider.map(Tariff::of),
            push: provider.map(PushPrice::of),
            credits: credits.map(|credits| BudgetRate::new(meter, credits, window)),
            calls: calls.map(|calls| terms.calls(calls)),
            caps: Caps {
                day: terms.credits_per_day.or_else(|| plan?.credits_per_day),
                month: terms.credits_per_month.or_else(|| plan?.credits_per_month),
            },
            in_flight: terms.in_flight,
            overspend: terms.overspend,
            fixed: !terms.learn,
            epoch_unix,
        }
    }

    /// Whether anything but what is learnt has to be looked at before a call.
    pub(crate) fn is_bounded(&self) -> bool {
        self.credits.is_some()
            || self.calls.is_some()
            || self.caps != Caps::default()
            || self.tariff.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        provider: &str,
        terms: &BudgetTerms<'_>,
        credits: Option<BudgetRate>,
        calls: Option<u64>,
    ) {
        let budget = Budget::new(Provider::named(provider), terms, 0);
        assert_eq!(budget.credits, credits, "{provider} {terms:?}");
        let calls = calls
            .map(|calls| BudgetRate::Paced(Pace::for_window(calls as f64, Duration::from_secs(1))));
        assert_eq!(budget.calls, calls, "{provider} {terms:?}");
    }

    #[test]
    fn a_plan_fills_in_what_is_not_said() {
        let secs = Duration::from_secs;
        let bucket = |credits, window| Some(BudgetRate::Paced(Pace::for_bucket(credits, window)));
        let free = BudgetTerms { plan: Some("free"), ..BudgetTerms::default() };
        check("alchemy", &free, bucket(5_000.0, secs(10)), None);
        let own = BudgetTerms { credits_per_second: Some(660), ..free };
        check("alchemy", &own, bucket(6_600.0, secs(10)), None);
        check("alchemy", &BudgetTerms::default(), None, None);
        let developer = BudgetTerms { plan: Some("developer"), ..BudgetTerms::default() };
        check("chainstack", &developer, None, Some(25));
        let standard = BudgetTerms { plan: Some("standard"), ..BudgetTerms::default() };
        let counted = Some(BudgetRate::Counted { credits: 10_000, window: secs(300) });
        check("fiews", &standard, counted, None);
        // Of an unknown provider a second is the window.
        let own = BudgetTerms { credits_per_second: Some(100), ..BudgetTerms::default() };
        check("example", &own, Some(BudgetRate::Paced(Pace::for_window(100.0, secs(1)))), None);
    }

    #[test]
    fn calls_are_counted_as_the_provider_counts_them() {
        let secs = Duration::from_secs;
        let calls = |calls_window, calls_burst| {
            let calls_per_second = Some(50);
            let terms =
                BudgetTerms { calls_per_second, calls_window, calls_burst, ..Default::default() };
            Budget::new(None, &terms, 0).calls
        };
        assert_eq!(calls(None, None), Some(BudgetRate::Paced(Pace::for_window(50.0, secs(1)))));
        let ten = Some(BudgetRate::Paced(Pace::for_window(500.0, secs(10))));
        assert_eq!(calls(Some(secs(10)), None), ten);
        let bucket = Some(BudgetRate::Paced(Pace::new(47.5, secs(1), 450.0)));
        assert_eq!(calls(Some(secs(10)), Some(500)), bucket);
    }

    #[test]
    fn caps_of_a_plan_give_way_to_ones_own() {
        let caps = |own| {
            let plan = Some("free");
            let terms = BudgetTerms { plan, credits_per_month: own, ..BudgetTerms::default() };
            Budget::new(Provider::named("alchemy"), &terms, 0).caps
        };
        assert_eq!(caps(None), Caps { day: None, month: Some(30_000_000) });
        assert_eq!(caps(Some(5)), Caps { day: None, month: Some(5) });
    }
}
