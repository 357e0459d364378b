//! Limits of a meter that replicas share.
//!
//! Where a book shares, the rates and caps of its keys and tenants, and the places of what they have under way,
//! are leased from a store: see `limit::lease`. Addresses, connections and subscriptions are counted by each
//! replica for itself.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wellhead_limit::lease::{
    LeaseShortage, LeasedBucket, LeasedCap, LeasedGate, LeasedLimit, WhenAway,
};
use wellhead_limit::{Bucket, Cap, Caps, Gate};

use super::{MeterTime, PLACE_WAIT, SubjectKind};
use crate::quota::{QuotaBounds, QuotaRate};

/// What serves limits that replicas share.
pub trait QuotaSharing: fmt::Debug + Send + Sync {
    /// What holds while the store is away.
    fn when_away(&self) -> WhenAway;

    /// Serves a limit from now on, under the name that it has at all replicas. One that is never served
    /// goes by the share of an only replica: a rate and places by the whole, of a cap only the part that
    /// [`LeasedCap`] lends without having heard of the store.
    ///
    /// Called with the book locked: it must not wait, and not look into the book.
    fn share(&self, name: &str, limit: LeasedLimit);
}

/// The name of a limit in the store: `tenant:acme:calls`, `key:h7xk2m9q:group-0:credits`.
fn limit_name(kind: SubjectKind, subject: &str, limit: &str) -> String {
    // Subjects of tokens are any text: one must not end as the limit of another does.
    let subject = subject.replace('%', "%25").replace(':', "%3A");
    format!("{}:{subject}:{limit}", kind.word())
}

/// Makes the shared limits of one subject.
#[derive(Debug, Clone, Copy)]
pub(super) struct LimitSharer<'a> {
    pub(super) sharing: &'a dyn QuotaSharing,
    pub(super) kind: SubjectKind,
    pub(super) subject: &'a str,
}

impl LimitSharer<'_> {
    /// The meters of calls and credits; `group`: of which group, if not of all.
    pub(super) fn rates(self, bounds: &QuotaBounds, group: Option<usize>) -> [RateMeter; 2] {
        let rate = |rate: Option<QuotaRate>, word: &str| {
            let Some(QuotaRate { per_second, burst, .. }) = rate else {
                return RateMeter::default();
            };
            let bucket = LeasedBucket::new(per_second, burst.max(1.0))
                .with_when_away(self.sharing.when_away());
            let bucket = Arc::new(bucket);
            let name = self.name(word, group);
            self.sharing.share(&name, LeasedLimit::Bucket(Arc::clone(&bucket)));
            RateMeter::Shared(bucket)
        };
        [rate(bounds.calls, "calls"), rate(bounds.credits, "credits")]
    }

    /// The meter of what is under way; `group`: of which group, if not of all.
    pub(super) fn places(self, bounds: &QuotaBounds, group: Option<usize>) -> PlaceMeter {
        let Some(most) = bounds.in_flight else { return PlaceMeter::default() };
        let gate = Arc::new(LeasedGate::new(most).with_when_away(self.sharing.when_away()));
        let name = self.name("in_flight", group);
        self.sharing.share(&name, LeasedLimit::Gate(Arc::clone(&gate)));
        PlaceMeter::Shared(gate)
    }

    fn name(self, word: &str, group: Option<usize>) -> String {
        match group {
            Some(place) => limit_name(self.kind, self.subject, &format!("group-{place}:{word}")),
            None => limit_name(self.kind, self.subject, word),
        }
    }

    pub(super) fn caps(self, caps: Caps) -> Option<Arc<LeasedCap>> {
        if caps == Caps::default() {
            return None;
        }
        let cap = Arc::new(LeasedCap::new(caps).with_when_away(self.sharing.when_away()));
        let name = self.name("caps", None);
        self.sharing.share(&name, LeasedLimit::Cap(Arc::clone(&cap)));
        Some(cap)
    }
}

/// What of a rate is used.
#[derive(Debug)]
pub(super) enum RateMeter {
    /// By this process alone.
    Own(Bucket),
    /// By all replicas.
    Shared(Arc<LeasedBucket>),
}

impl Default for RateMeter {
    fn default() -> Self {
        Self::Own(Bucket::default())
    }
}

impl RateMeter {
    /// A shared one lets a call through on credit while the store has not said; beyond the credit the
    /// call is worth another try soon, as [`LeaseShortage::Unanswered`] says.
    pub(super) fn take(
        &self,
        rate: Option<QuotaRate>,
        credits: u32,
        at: Duration,
    ) -> Result<(), LeaseShortage> {
        let Some(rate) = rate else { return Ok(()) };
        match self {
            Self::Own(bucket) => {
                bucket.take(f64::from(credits), rate.pace(), at).map_err(LeaseShortage::Refused)
            }
            Self::Shared(bucket) => bucket.take(f64::from(credits), at),
        }
    }

    pub(super) fn give_back(&self, rate: Option<QuotaRate>, credits: u32) {
        let Some(rate) = rate else { return };
        match self {
            Self::Own(bucket) => bucket.give_back(f64::from(credits), rate.pace()),
            Self::Shared(bucket) => bucket.give_back(f64::from(credits)),
        }
    }

    pub(super) fn charge(&self, rate: QuotaRate, credits: u32, at: Duration) {
        match self {
            Self::Own(bucket) => bucket.charge(f64::from(credits), rate.pace(), at),
            Self::Shared(bucket) => bucket.charge(f64::from(credits), at),
        }
    }

    /// Whether it is as if nothing had been taken.
    pub(super) fn is_full(&self, rate: Option<QuotaRate>, at: Duration) -> bool {
        let Some(rate) = rate else { return true };
        match self {
            Self::Own(bucket) => bucket.wait(rate.burst, rate.pace(), at).is_zero(),
            // Tokens that are held would be lost, and a debt forgotten.
            Self::Shared(bucket) => bucket.held(at) == (0.0, 0.0),
        }
    }
}

/// What of the places for requests or calls under way is taken.
#[derive(Debug)]
pub(super) enum PlaceMeter {
    /// By this process alone.
    Own(Gate),
    /// By all replicas.
    Shared(Arc<LeasedGate>),
}

impl Default for PlaceMeter {
    fn default() -> Self {
        Self::Own(Gate::default())
    }
}

impl PlaceMeter {
    /// Takes one of `most` places, for which [`Self::leave`] is to be called once.
    pub(super) fn enter(&self, most: u32, at: Duration) -> Result<(), LeaseShortage> {
        match self {
            Self::Own(gate) if gate.enter(most) => Ok(()),
            Self::Own(_) => Err(LeaseShortage::Refused(PLACE_WAIT)),
            // A place is free when a call ends, which may be much later than places are divided anew.
            Self::Shared(gate) => gate.enter(at).map_err(|shortage| match shortage {
                LeaseShortage::Refused(_) => LeaseShortage::Refused(PLACE_WAIT),
                LeaseShortage::Unanswered(_) => shortage,
            }),
        }
    }

    pub(super) fn leave(&self) {
        match self {
            Self::Own(gate) => gate.leave(),
            Self::Shared(gate) => gate.leave(),
        }
    }

    /// How many places are taken at this replica.
    pub(super) fn inside(&self) -> u32 {
        match self {
            Self::Own(gate) => gate.inside(),
            Self::Shared(gate) => gate.inside(),
        }
    }
}

/// Takes credits from a shared cap. `Err`: which cap refused, and when to try again.
pub(super) fn take_of_cap(
    cap: &LeasedCap,
    caps: Caps,
    credits: u32,
    at: MeterTime,
) -> Result<(), (Cap, LeaseShortage)> {
    let unix = Duration::from_secs(at.unix_seconds);
    cap.take(f64::from(credits), at.elapsed, unix).map_err(|shortage| {
        let only = if caps.day.is_some() { Cap::Day } else { Cap::Month };
        (cap.reached(f64::from(credits), unix).unwrap_or(only), shortage)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use wellhead_eth::MethodTable;
    use wellhead_limit::lease::LeaseGrant;

    use super::*;
    use crate::meter::{
        CallCharge, InFlightPlace, LimitDenied, MeteredCall, QuotaLimit, SubjectMeter,
    };
    use crate::quota::{Quota, QuotaGroup, QuotaPlan};

    /// Keeps what it should serve.
    #[derive(Debug, Default)]
    struct SharingOfTest(Mutex<Vec<(String, LeasedLimit)>>);

    impl QuotaSharing for SharingOfTest {
        fn when_away(&self) -> WhenAway {
            WhenAway::Share
        }

        fn share(&self, name: &str, limit: LeasedLimit) {
            self.0.lock().unwrap().push((name.to_owned(), limit));
        }
    }

    impl SharingOfTest {
        fn names(&self) -> Vec<String> {
            self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
        }

        fn bucket(&self, name: &str) -> Arc<LeasedBucket> {
            let limits = self.0.lock().unwrap();
            let found = limits.iter().find_map(|(it, limit)| match limit {
                LeasedLimit::Bucket(bucket) if it == name => Some(Arc::clone(bucket)),
                LeasedLimit::Bucket(_)
                | LeasedLimit::Cap(_)
                | LeasedLimit::Gate(_)
                | LeasedLimit::Window(_) => None,
            });
            found.expect("a rate of this name")
        }

        fn meter(&self, kind: SubjectKind, name: &str, quota: Quota) -> SubjectMeter {
            SubjectMeter::shared(kind, &name.into(), &Arc::new(QuotaPlan::new(quota)), self)
        }
    }

    fn rate(per_second: f64, burst: f64) -> Option<QuotaRate> {
        Some(QuotaRate::new(per_second, burst))
    }

    fn calls(per_second: f64, burst: f64) -> QuotaBounds {
        QuotaBounds { calls: rate(per_second, burst), ..QuotaBounds::default() }
    }

    fn at(ms: u64) -> MeterTime {
        MeterTime { elapsed: Duration::from_millis(ms), unix_seconds: 20_786 * 86_400 + ms / 1000 }
    }

    fn take(meters: &[SubjectMeter], ms: u64) -> Result<(), LimitDenied> {
        let row = MethodTable::standard().row("eth_call");
        let call = MeteredCall { row, method: "eth_call", credits: 2 };
        CallCharge::take(meters, call, at(ms)).map(drop)
    }

    #[test]
    fn each_limit_has_a_name_of_its_own() {
        let sharing = SharingOfTest::default();
        let group = QuotaGroup {
            methods: vec!["eth_*".parse().unwrap()],
            bounds: QuotaBounds {
                credits: rate(5.0, 5.0),
                in_flight: Some(2),
                ..QuotaBounds::default()
            },
        };
        let caps = Caps { day: Some(9), month: None };
        let quota =
            Quota { bounds: calls(1.0, 1.0), groups: vec![group], caps, ..Quota::default() };
        sharing.meter(SubjectKind::Tenant, "acme", quota);
        sharing.meter(SubjectKind::Key, "token:acme/x:calls", Quota { caps, ..Quota::default() });
        sharing.meter(SubjectKind::Key, "free", Quota::default());
        assert_eq!(
            sharing.names(),
            [
                "tenant:acme:calls",
                "tenant:acme:group-0:credits",
                "tenant:acme:group-0:in_flight",
                "tenant:acme:caps",
                "key:token%3Aacme/x%3Acalls:caps",
            ]
        );
    }

    #[test]
    fn until_it_is_served_a_limit_goes_by_itself() {
        let sharing = SharingOfTest::default();
        // Six for an hour.
        let caps = Caps { day: Some(24 * 6), month: None };
        let quota = Quota { bounds: calls(10.0, 2.0), caps, ..Quota::default() };
        let meters = [sharing.meter(SubjectKind::Tenant, "acme", quota)];
        assert_eq!((take(&meters, 0), take(&meters, 0)), (Ok(()), Ok(())));
        let denied = take(&meters, 0).unwrap_err();
        assert_eq!((denied.limit, denied.retry_after.as_millis()), (QuotaLimit::Calls, 100));
        assert!(!denied.is_unanswered);
        assert_eq!(take(&meters, 1_000), Ok(()));
        assert_eq!(take(&meters, 2_000).unwrap_err().limit, QuotaLimit::Day);
        assert_eq!(meters[0].ledger().on_day(at(0).day()), 6);
    }

    #[test]
    fn places_are_those_of_all_replicas() {
        let sharing = SharingOfTest::default();
        let bounds = QuotaBounds { in_flight: Some(8), ..QuotaBounds::default() };
        let meters =
            [sharing.meter(SubjectKind::Tenant, "acme", Quota { bounds, ..Quota::default() })];
        let LeasedLimit::Gate(gate) = sharing.0.lock().unwrap()[0].1.clone() else {
            panic!("places are shared");
        };
        let enter = |ms| InFlightPlace::take(&meters, at(ms));
        let alone: Vec<_> = (0..8).map(|_| enter(0)).collect();
        assert!(alone.iter().all(Result::is_ok), "until it is served");
        drop(alone);
        gate.note_replicas(2);
        gate.note_back();
        let own = [enter(0), enter(0)];
        assert!(own.iter().all(Result::is_ok), "a quarter needs no word");
        let denied = enter(0).unwrap_err();
        assert!(denied.is_unanswered && denied.limit == QuotaLimit::InFlight, "{denied:?}");
        let ask = gate.ask(at(1).elapsed).expect("it wants places");
        gate.grant(ask, 1, at(2).elapsed);
        let third = enter(2).unwrap();
        let asked = gate.ask(at(1_002).elapsed).expect("one is held");
        gate.grant(asked, 1, at(1_003).elapsed);
        assert!(!meters[0].is_idle(at(1_003).elapsed));
        drop((own, third));
        assert!(meters[0].is_idle(at(1_003).elapsed));
    }

    #[test]
    fn what_the_store_has_not_said_is_unanswered_and_takes_nothing_from_the_others() {
        let sharing = SharingOfTest::default();
        let key = Quota { bounds: calls(1_000.0, 1_000.0), ..Quota::default() };
        let tenant = Quota { bounds: calls(10.0, 10.0), ..Quota::default() };
        let meters = [
            SubjectMeter::new(SubjectKind::Address, "a".into(), Arc::new(QuotaPlan::new(key))),
            sharing.meter(SubjectKind::Tenant, "acme", tenant),
        ];
        let bucket = sharing.bucket("tenant:acme:calls");
        bucket.note_replicas(3);
        bucket.note_back();
        assert_eq!(take(&meters, 0), Ok(()), "one call on credit");
        let denied = take(&meters, 0).unwrap_err();
        assert!(denied.is_unanswered && denied.retry_after <= Duration::from_millis(26));
        let ask = bucket.ask(at(1).elapsed).expect("it wants tokens");
        bucket.grant(LeaseGrant { granted: ask.want, wait: Duration::ZERO }, at(2).elapsed);
        assert_eq!(take(&meters, 2), Ok(()));
        let mut taken = 2;
        while take(&meters, 2).is_ok() {
            taken += 1;
        }
        let ask = bucket.ask(at(3).elapsed).expect("it wants more");
        let wait = Duration::from_millis(300);
        bucket.grant(LeaseGrant { granted: 0, wait }, at(4).elapsed);
        assert!(ask.want > 0);
        let denied = take(&meters, 5).unwrap_err();
        assert!(!denied.is_unanswered, "the store said no");
        assert_eq!((denied.subject, denied.limit), (SubjectKind::Tenant, QuotaLimit::Calls));
        assert_eq!(denied.retry_after, Duration::from_millis(299));
        // The address has paid for those alone that were let through.
        let back = at(5 + taken);
        assert!(meters[0].is_idle(back.elapsed), "{taken} come back in as many ms");
    }
}
