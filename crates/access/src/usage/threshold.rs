//! Shares of a quota whose reaching is told.

use std::fmt;

use serde_json::json;
use wellhead_limit::{Caps, civil};

use super::{MilliCredits, UsageSubject};

/// What a subject may use, and what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QuotaCredits {
    /// What it may use, in credits; nothing is told of what has no bound.
    pub caps: Caps,
    /// What it used today.
    pub used_today: MilliCredits,
    /// What it used this month.
    pub used_this_month: MilliCredits,
}

/// A share of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaShare {
    /// 80 %.
    Most,
    /// 100 %.
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
    pub(super) fn is_reached(self, used: MilliCredits, credits: u64) -> bool {
        let share = u128::from(credits) * 1_000 * u128::from(self.percent()) / 100;
        used.0 > 0 && u128::from(used.0) >= share
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
    pub subject: UsageSubject,
    /// Which day or month.
    pub period: QuotaPeriod,
    /// Which share.
    pub share: QuotaShare,
    /// What was used, when it was seen.
    pub used: MilliCredits,
    /// The quota, in credits.
    pub credits: u64,
}

impl QuotaCrossing {
    /// The body of a webhook: a JSON object. Its `id` is one for all replicas that tell of it, and
    /// for each time that it is sent.
    pub fn to_json(&self, replica: &str) -> String {
        let Self { subject, period, share, used, credits } = self;
        let (kind, key) = match subject {
            UsageSubject::Tenant(_) => (None, None),
            UsageSubject::Key { kind, key, .. } => (Some(*kind), Some(&**key)),
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
    use super::*;

    #[test]
    fn shares_are_reached_exactly() {
        let check = |used: u64, credits: u64, expected: [bool; 2]| {
            let reached = QuotaShare::ALL.map(|it| it.is_reached(MilliCredits(used), credits));
            assert_eq!(reached, expected, "{used} of {credits}");
        };
        check(0, 0, [false, false]);
        check(1, 0, [true, true]);
        check(7_999, 10, [false, false]);
        check(8_000, 10, [true, false]);
        check(9_999, 10, [true, false]);
        check(10_000, 10, [true, true]);
        check(u64::MAX, u64::MAX, [false, false]);
    }

    #[test]
    fn a_webhook_says_what_a_person_asks() {
        let subject = UsageSubject::Key { tenant: "acme".into(), kind: "key", key: "k1".into() };
        let crossing = QuotaCrossing {
            subject,
            period: QuotaPeriod::Month(682),
            share: QuotaShare::Most,
            used: MilliCredits(8_100),
            credits: 10,
        };
        let body: serde_json::Value =
            serde_json::from_str(&crossing.to_json("r")).expect("an object");
        let expected = json!({
            "event": "quota", "id": "acme/key/k1/2026-11/80", "tenant": "acme", "kind": "key",
            "key": "k1", "percent": 80, "period": "month", "of": "2026-11", "used": "8.1",
            "quota": "10", "replica": "r",
        });
        assert_eq!(body, expected);
        let tenant = QuotaCrossing { subject: UsageSubject::Tenant("acme".into()), ..crossing };
        let body: serde_json::Value =
            serde_json::from_str(&tenant.to_json("r")).expect("an object");
        assert_eq!((&body["key"], &body["id"]), (&json!(null), &json!("acme///2026-11/80")));
    }
}
