//! Shares of quotas whose reaching is told.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::json;
use wellhead_limit::{Cap, civil, month_of};

use crate::meter::{QuotaSubject, SubjectKind, SubjectMeter};
use crate::meter_book::MeterBook;

const DAY_SECONDS: u64 = 86_400;

/// A share of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaShare {
    /// 80 %.
    Most,
    /// 100 %, or so near to it that a call was refused.
    All,
}

impl QuotaShare {
    /// Both, the smaller first.
    pub const ALL: [Self; 2] = [Self::Most, Self::All];

    /// In per cent.
    pub fn percent(self) -> u64 {
        match self {
            Self::Most => 80,
            Self::All => 100,
        }
    }

    /// Whether `used` is at least this share. A quota of nothing is reached with the first credit.
    fn is_reached(self, used: u64, credits: u64) -> bool {
        let share = u128::from(credits) * u128::from(self.percent());
        used > 0 && u128::from(used) * 100 >= share
    }
}

/// The day or month of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaPeriod {
    /// Counted from 1970.
    Day(u32),
    /// Counted from January 1970.
    Month(u32),
}

impl QuotaPeriod {
    /// `day` or `month`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Day(_) => "day",
            Self::Month(_) => "month",
        }
    }
}

impl fmt::Display for QuotaPeriod {
    /// As `2026-11-25` or `2026-11`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Day(day) => {
                let (year, month, day) = civil(day);
                write!(f, "{year:04}-{month:02}-{day:02}")
            }
            Self::Month(month) => write!(f, "{:04}-{:02}", 1970 + month / 12, month % 12 + 1),
        }
    }
}

/// A subject reached a share of its quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCrossing {
    /// Whose quota it is.
    pub subject: QuotaSubject,
    /// Which day or month.
    pub period: QuotaPeriod,
    /// Which share.
    pub share: QuotaShare,
    /// Credits that were used, when it was seen.
    pub used: u64,
    /// The quota, in credits.
    pub credits: u64,
}

/// What was told of one meter.
#[derive(Debug, PartialEq, Eq, Hash)]
struct ToldCrossing {
    kind: SubjectKind,
    name: Arc<str>,
    period: QuotaPeriod,
    share: QuotaShare,
}

/// Which crossings were told: of each subject with a cap at most two a day, and two a month.
///
/// Forgotten with the process: the next one tells them again, with the same ids.
#[derive(Debug, Default)]
pub struct QuotaWatch {
    told: HashSet<ToldCrossing>,
}

impl QuotaWatch {
    /// The shares that were reached since this was last asked: each once per subject and period, also where the
    /// quota grows or shrinks meanwhile. What is used between the last question and midnight is not told.
    pub fn crossings(&mut self, book: &MeterBook, unix_seconds: u64) -> Vec<QuotaCrossing> {
        let day = u32::try_from(unix_seconds / DAY_SECONDS).unwrap_or(u32::MAX);
        let (today, month) = (QuotaPeriod::Day(day), QuotaPeriod::Month(month_of(day)));
        self.told.retain(|told| told.period == today || told.period == month);
        let mut crossings = Vec::new();
        for meter in book.all() {
            let (Some(subject), caps) = (meter.subject(), meter.quota().caps) else { continue };
            for (cap, credits, period) in
                [(Cap::Day, caps.day, today), (Cap::Month, caps.month, month)]
            {
                let Some(credits) = credits else { continue };
                let used = meter.used(cap, unix_seconds);
                let is_full = meter.has_refused(cap, day);
                for share in QuotaShare::ALL {
                    if (share.is_reached(used, credits) || is_full)
                        && self.note(&meter, period, share)
                    {
                        let subject = subject.clone();
                        crossings.push(QuotaCrossing { subject, period, share, used, credits });
                    }
                }
            }
        }
        crossings
    }

    /// Whether it was not told before.
    fn note(&mut self, meter: &SubjectMeter, period: QuotaPeriod, share: QuotaShare) -> bool {
        let (kind, name) = (meter.kind(), Arc::clone(meter.name()));
        self.told.insert(ToldCrossing { kind, name, period, share })
    }
}

impl QuotaCrossing {
    /// The body of a webhook: a JSON object. Its `id` is one for all replicas that tell of it, and
    /// for each time that it is sent.
    pub fn to_json(&self, replica: &str) -> String {
        let Self { subject, period, share, used, credits } = self;
        let (kind, key) = match subject {
            QuotaSubject::Tenant(_) => (None, None),
            QuotaSubject::Grant { kind, id, .. } => (Some(*kind), Some(&**id)),
        };
        let (tenant, percent) = (subject.tenant(), share.percent());
        let mut body = json!({
            "event": "quota",
            "id": format!("{}/{}/{}/{period}/{percent}", tenant, kind.unwrap_or_default(), key.unwrap_or_default()),
            "tenant": tenant,
            "percent": percent,
            "period": period.word(),
            "of": period.to_string(),
            // As text, as no integer may pass through a float.
            "used": used.to_string(),
            "quota": credits.to_string(),
            "replica": replica,
        });
        if let (Some(kind), Some(key)) = (kind, key) {
            (body["kind"], body["key"]) = (json!(kind), json!(key));
        }
        body.to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wellhead_eth::MethodTable;
    use wellhead_limit::Caps;

    use super::*;
    use crate::meter::{CallCharge, MeterTime, MeteredCall};
    use crate::quota::{Quota, QuotaPlan};

    /// 2026-11-29 12:00:00.
    const NOON: u64 = 20_786 * DAY_SECONDS + DAY_SECONDS / 2;

    #[test]
    fn shares_are_reached_exactly() {
        let check = |used: u64, credits: u64, expected: [bool; 2]| {
            let reached = QuotaShare::ALL.map(|it| it.is_reached(used, credits));
            assert_eq!(reached, expected, "{used} of {credits}");
        };
        check(0, 0, [false, false]);
        check(1, 0, [true, true]);
        check(7, 10, [false, false]);
        check(8, 10, [true, false]);
        check(9, 10, [true, false]);
        check(10, 10, [true, true]);
        check(3, 4, [false, false]);
        check(u64::MAX, u64::MAX, [true, true]);
    }

    fn meter(book: &MeterBook, subject: &QuotaSubject, caps: Caps) -> Arc<SubjectMeter> {
        let plan = Arc::new(QuotaPlan::new(Quota { caps, ..Quota::default() }));
        book.named(subject, &"acme".into(), &plan)
    }

    fn told(watch: &mut QuotaWatch, book: &MeterBook, at: u64) -> Vec<String> {
        let crossings = watch.crossings(book, at);
        crossings.iter().map(|it| format!("{} {}", it.period, it.share.percent())).collect()
    }

    #[test]
    fn each_share_is_told_once_in_its_period() {
        let (mut watch, book) = (QuotaWatch::default(), MeterBook::default());
        let acme = QuotaSubject::Tenant("acme".into());
        let caps = Caps { day: Some(10), month: Some(20) };
        let meter = meter(&book, &acme, caps);
        let mut check = |at: u64, credits: u64, expected: &[&str]| {
            meter.ledger().spend(credits, (at / DAY_SECONDS) as u32);
            assert_eq!(told(&mut watch, &book, at), expected, "{credits} at {at}");
        };
        let days = |days: u64| NOON + days * DAY_SECONDS;
        check(NOON, 7, &[]);
        check(NOON, 1, &["2026-11-29 80"]);
        check(NOON, 1, &[]);
        check(NOON, 1, &["2026-11-29 100"]);
        check(NOON, 5, &[]);
        check(days(1), 1, &["2026-11 80"]);
        check(days(1), 20, &["2026-11-30 80", "2026-11-30 100", "2026-11 100"]);
        check(days(1), 20, &[]);
        check(days(2), 0, &[]);
        check(days(2), 16, &["2026-12-01 80", "2026-12-01 100", "2026-12 80"]);
    }

    #[test]
    fn a_quota_without_room_for_a_call_is_used_up() {
        let (mut watch, book) = (QuotaWatch::default(), MeterBook::default());
        let key = QuotaSubject::Grant { tenant: "acme".into(), kind: "key", id: "k1".into() };
        let meter = meter(&book, &key, Caps { day: Some(10), month: None });
        let at = MeterTime { elapsed: Duration::ZERO, unix_seconds: NOON };
        let row = MethodTable::standard().row("eth_call");
        let call = |credits| {
            CallCharge::take([&*meter], MeteredCall { row, method: "eth_call", credits }, at)
        };
        assert!(call(4).is_ok() && call(3).is_ok());
        assert_eq!(told(&mut watch, &book, NOON), Vec::<String>::new());
        assert!(call(4).is_err());
        assert_eq!(told(&mut watch, &book, NOON), ["2026-11-29 80", "2026-11-29 100"]);
        assert_eq!(told(&mut watch, &book, NOON), Vec::<String>::new());
        // Another quota does not tell it again.
        let wider = Caps { day: Some(11), month: None };
        assert_eq!(self::meter(&book, &key, wider).ledger().on_day(20_786), 7);
        assert_eq!(told(&mut watch, &book, NOON), Vec::<String>::new());
    }

    #[test]
    fn a_webhook_says_what_a_person_asks() {
        let subject = QuotaSubject::Grant { tenant: "acme".into(), kind: "key", id: "k1".into() };
        let crossing = QuotaCrossing {
            subject,
            period: QuotaPeriod::Month(682),
            share: QuotaShare::Most,
            used: 8,
            credits: 10,
        };
        let body: serde_json::Value =
            serde_json::from_str(&crossing.to_json("r")).expect("an object");
        let expected = json!({
            "event": "quota", "id": "acme/key/k1/2026-11/80", "tenant": "acme", "kind": "key",
            "key": "k1", "percent": 80, "period": "month", "of": "2026-11", "used": "8",
            "quota": "10", "replica": "r",
        });
        assert_eq!(body, expected);
        let tenant = QuotaCrossing { subject: QuotaSubject::Tenant("acme".into()), ..crossing };
        let body: serde_json::Value =
            serde_json::from_str(&tenant.to_json("r")).expect("an object");
        assert_eq!((&body["key"], &body["id"]), (&json!(null), &json!("acme///2026-11/80")));
    }
}
