//! What tenants and keys used today and this month, in UTC.
//!
//! Summed from the rows of the table, so it is late by up to a minute: for people, and for what warns
//! them ([`crossings`](UsageTotals::crossings)). What refuses a call counts by itself (`meter`).
//!
//! The last minute of a day arrives when the day is over, and is in no sum of it. A clock that is set
//! back begins day and month anew.
//!
//! At most [`SUBJECTS_MAX`] subjects have sums. At the bound those that used nothing this month go, at
//! most once a day; then a new subject has no sum ([`left_out`](UsageTotals::left_out)).

use std::collections::HashMap;
use std::sync::Arc;

use wellhead_limit::{Cap, month_of};

use super::threshold::{QuotaCredits, QuotaCrossing, QuotaPeriod, QuotaShare};
use super::{MilliCredits, UsageAmounts, UsageKey, UsageMinute, UsageRow};

/// Tenants and keys together: about 20 MB.
const SUBJECTS_MAX: usize = 65_536;

/// Whose use is summed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum UsageSubject {
    /// A tenant, by its name.
    Tenant(Arc<str>),
    /// A key of a tenant.
    Key {
        /// The name of the tenant.
        tenant: Arc<str>,
        /// The word of its [`GrantKind`](crate::GrantKind).
        kind: &'static str,
        /// Its public id.
        key: Arc<str>,
    },
}

impl UsageSubject {
    fn both(key: &UsageKey) -> [Self; 2] {
        let (tenant, kind) = (Arc::clone(&key.tenant), key.kind);
        let key = Self::Key { tenant: Arc::clone(&tenant), kind, key: Arc::clone(&key.key) };
        [Self::Tenant(tenant), key]
    }

    /// The name of the tenant.
    pub fn tenant(&self) -> &str {
        match self {
            Self::Tenant(tenant) | Self::Key { tenant, .. } => tenant,
        }
    }
}

/// The sums of one subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubjectTotals {
    /// The day of `today`, counted from 1970.
    pub day: u32,
    /// What was used on that day.
    pub today: UsageAmounts,
    /// The month of `this_month`, counted from January 1970.
    pub month: u32,
    /// What was used in that month.
    pub this_month: UsageAmounts,
    /// Which thresholds were told, as bits: for [`UsageTotals::restore`] alone.
    pub told: u8,
}

impl SubjectTotals {
    fn turn(&mut self, today: u32) {
        let month = month_of(today);
        if self.month != month {
            (self.month, self.this_month) = (month, UsageAmounts::default());
            self.told &= !told_bits(Cap::Month);
        }
        if self.day != today {
            (self.day, self.today) = (today, UsageAmounts::default());
            self.told &= !told_bits(Cap::Day);
        }
    }
}

fn told_bit(period: Cap, share: QuotaShare) -> u8 {
    1 << ((period as u8) * QuotaShare::ALL.len() as u8 + share as u8)
}

fn told_bits(period: Cap) -> u8 {
    QuotaShare::ALL.into_iter().fold(0, |bits, share| bits | told_bit(period, share))
}

/// The sums of all subjects.
#[derive(Debug)]
pub struct UsageTotals {
    subjects: HashMap<UsageSubject, SubjectTotals>,
    subjects_max: usize,
    /// The day on which subjects were last removed.
    tidied_on: Option<u32>,
    left_out: u64,
}

impl Default for UsageTotals {
    fn default() -> Self {
        Self::with_bound(SUBJECTS_MAX)
    }
}

impl UsageTotals {
    /// The most subjects that are counted.
    pub fn with_bound(subjects_max: usize) -> Self {
        Self { subjects: HashMap::new(), subjects_max, tidied_on: None, left_out: 0 }
    }

    /// Adds rows that left the table. Those of a minute after `now` count now.
    pub fn add(&mut self, rows: &[UsageRow], now: UsageMinute) {
        let today = now.day();
        for row in rows {
            let day = row.minute.min(now).day();
            for subject in UsageSubject::both(&row.key) {
                let Some(totals) = self.subject(subject, today) else {
                    self.left_out = self.left_out.saturating_add(row.amounts.calls);
                    continue;
                };
                if day == today {
                    totals.today.add(&row.amounts);
                }
                if month_of(day) == totals.month {
                    totals.this_month.add(&row.amounts);
                }
            }
        }
    }

    fn subject(&mut self, subject: UsageSubject, today: u32) -> Option<&mut SubjectTotals> {
        let is_full = self.subjects.len() >= self.subjects_max;
        if is_full && !self.subjects.contains_key(&subject) {
            if self.tidied_on != Some(today) {
                self.tidied_on = Some(today);
                self.subjects.retain(|_, totals| totals.month == month_of(today));
            }
            if self.subjects.len() >= self.subjects_max {
                return None;
            }
        }
        let totals = self.subjects.entry(subject).or_default();
        totals.turn(today);
        Some(totals)
    }

    /// The sums of a subject on the day and in the month of `now`; none if it used nothing, or has no
    /// sums for want of room.
    pub fn of(&self, subject: &UsageSubject, now: UsageMinute) -> Option<SubjectTotals> {
        let mut totals = *self.subjects.get(subject)?;
        totals.turn(now.day());
        Some(totals)
    }

    /// Calls since the start that are in no sum of their tenant or key, for want of room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// All sums, to be kept over a restart.
    pub fn all(&self) -> impl Iterator<Item = (&UsageSubject, &SubjectTotals)> {
        self.subjects.iter()
    }

    /// Adds sums that were kept. Those of other days and months than `now` count for nothing, and so
    /// do those beyond the bound.
    pub fn restore(&mut self, subject: UsageSubject, mut kept: SubjectTotals, now: UsageMinute) {
        kept.turn(now.day());
        if let Some(totals) = self.subject(subject, now.day()) {
            totals.today.add(&kept.today);
            totals.this_month.add(&kept.this_month);
            totals.told |= kept.told;
        }
    }

    /// The thresholds that were reached since they were last asked for: each once per subject, share
    /// and period, also where the quota grows or shrinks meanwhile.
    ///
    /// `quota_of` says what a subject may use and what it used; these sums know what this process
    /// saw, and the caller may know what all replicas did.
    pub fn crossings(
        &mut self,
        now: UsageMinute,
        quota_of: impl Fn(&UsageSubject, &SubjectTotals) -> QuotaCredits,
    ) -> Vec<QuotaCrossing> {
        let mut crossings = Vec::new();
        for (subject, totals) in &mut self.subjects {
            totals.turn(now.day());
            let quota = quota_of(subject, totals);
            for (cap, credits, used) in [
                (Cap::Day, quota.caps.day, quota.used_today),
                (Cap::Month, quota.caps.month, quota.used_this_month),
            ] {
                let Some(credits) = credits else { continue };
                let period = match cap {
                    Cap::Day => QuotaPeriod::Day(totals.day),
                    Cap::Month => QuotaPeriod::Month(totals.month),
                };
                for share in QuotaShare::ALL {
                    let bit = told_bit(cap, share);
                    if totals.told & bit == 0 && share.is_reached(used, credits) {
                        totals.told |= bit;
                        let subject = subject.clone();
                        crossings.push(QuotaCrossing { subject, period, share, used, credits });
                    }
                }
            }
        }
        crossings
    }
}

impl QuotaCredits {
    /// Of a subject whose calls all come to this process.
    pub fn own(caps: wellhead_limit::Caps, totals: &SubjectTotals) -> Self {
        let used = |amounts: &UsageAmounts| -> MilliCredits { amounts.credits_in };
        let (used_today, used_this_month) = (used(&totals.today), used(&totals.this_month));
        Self { caps, used_today, used_this_month }
    }
}

#[cfg(test)]
mod tests {
    use wellhead_limit::Caps;

    use super::*;
    use crate::usage::{UsageOutcome, UsageRowId, UsageSource};

    const DAY: u32 = 24 * 60;
    /// 2026-11-30, the last day of a month.
    const LAST: u32 = 20_787;

    fn row(minute: u32, tenant: &str, key: &str, credits: u64) -> UsageRow {
        let key = UsageKey {
            kind: "key",
            key: key.into(),
            ..UsageKey::other_of(tenant.into(), UsageSource::Cache, UsageOutcome::Answered)
        };
        let minute = UsageMinute(minute);
        let credits_in = MilliCredits::whole(credits);
        let amounts = UsageAmounts { calls: 1, credits_in, ..UsageAmounts::default() };
        UsageRow { id: UsageRowId::new("r", 0, minute, &key), minute, key, amounts }
    }

    fn tenant(name: &str) -> UsageSubject {
        UsageSubject::Tenant(name.into())
    }

    fn key(name: &str, key: &str) -> UsageSubject {
        UsageSubject::Key { tenant: name.into(), kind: "key", key: key.into() }
    }

    /// Credits of today and this month.
    fn sums(totals: &UsageTotals, subject: &UsageSubject, now: u32) -> Option<(u64, u64)> {
        let totals = totals.of(subject, UsageMinute(now))?;
        let credits = |amounts: UsageAmounts| amounts.credits_in.0 / 1_000;
        Some((credits(totals.today), credits(totals.this_month)))
    }

    #[test]
    fn days_and_months_turn() {
        let mut totals = UsageTotals::default();
        let noon = (LAST - 1) * DAY + DAY / 2;
        let rows = [row(noon, "a", "1", 5), row(noon, "a", "2", 7), row(noon, "b", "1", 1)];
        totals.add(&rows, UsageMinute(noon + 1));
        assert_eq!(sums(&totals, &tenant("a"), noon), Some((12, 12)));
        assert_eq!(sums(&totals, &key("a", "2"), noon), Some((7, 7)));
        assert_eq!(sums(&totals, &key("b", "2"), noon), None);
        let next = LAST * DAY;
        assert_eq!(sums(&totals, &tenant("a"), next), Some((0, 12)), "a day later");
        // The last minute of the day before, and one of a clock that runs ahead.
        totals.add(&[row(next - 1, "a", "1", 100), row(next + 9, "a", "1", 1)], UsageMinute(next));
        assert_eq!(sums(&totals, &tenant("a"), next), Some((1, 113)));
        assert_eq!(sums(&totals, &tenant("a"), next + DAY), Some((0, 0)), "a month later");
    }

    #[test]
    fn at_the_bound_those_of_last_month_go_and_new_ones_are_left_out() {
        let mut totals = UsageTotals::with_bound(4);
        let now = LAST * DAY;
        let rows = ["a", "b", "c"].map(|name| row(now, name, "1", 1));
        totals.add(&rows, UsageMinute(now));
        assert_eq!(totals.all().count(), 4);
        assert_eq!((sums(&totals, &tenant("c"), now), totals.left_out()), (None, 2));
        totals.add(&rows[2..], UsageMinute(now + DAY));
        assert_eq!(sums(&totals, &tenant("c"), now + DAY), Some((0, 0)), "there is room");
        assert_eq!((totals.all().count(), totals.left_out()), (2, 2));
    }

    fn told(totals: &mut UsageTotals, now: u32, caps: Caps) -> Vec<String> {
        let of_tenants = |subject: &UsageSubject, totals: &SubjectTotals| match subject {
            UsageSubject::Tenant(_) => QuotaCredits::own(caps, totals),
            UsageSubject::Key { .. } => QuotaCredits::default(),
        };
        let crossings = totals.crossings(UsageMinute(now), of_tenants);
        crossings.iter().map(|it| format!("{} {}", it.period, it.share.percent())).collect()
    }

    #[test]
    fn each_threshold_is_told_once_in_its_period() {
        let mut totals = UsageTotals::default();
        let caps = Caps { day: Some(10), month: Some(20) };
        let noon = (LAST - 1) * DAY + DAY / 2;
        let mut check = |now: u32, credits: u64, expected: &[&str]| {
            totals.add(&[row(now, "a", "1", credits)], UsageMinute(now));
            assert_eq!(told(&mut totals, now, caps), expected, "{credits} at {now}");
        };
        check(noon, 7, &[]);
        check(noon, 1, &["2026-11-29 80"]);
        check(noon, 1, &[]);
        check(noon, 1, &["2026-11-29 100"]);
        check(noon, 5, &[]);
        check(noon + DAY, 1, &["2026-11 80"]);
        check(noon + DAY, 20, &["2026-11-30 80", "2026-11-30 100", "2026-11 100"]);
        check(noon + DAY, 20, &[]);
        check(noon + 2 * DAY, 0, &[]);
        check(noon + 2 * DAY, 16, &["2026-12-01 80", "2026-12-01 100", "2026-12 80"]);
    }

    #[test]
    fn what_was_kept_goes_on() {
        let mut before = UsageTotals::default();
        let now = LAST * DAY;
        before.add(&[row(now, "a", "1", 9)], UsageMinute(now));
        let caps = Caps { day: Some(10), month: Some(100) };
        assert_eq!(told(&mut before, now, caps), ["2026-11-30 80"]);
        let restored = |at: u32| {
            let mut after = UsageTotals::default();
            for (subject, totals) in before.all() {
                after.restore(subject.clone(), *totals, UsageMinute(at));
            }
            after
        };
        let mut after = restored(now);
        assert_eq!(told(&mut after, now, caps), Vec::<String>::new(), "told before");
        assert_eq!(sums(&after, &key("a", "1"), now), Some((9, 9)));
        assert_eq!(sums(&restored(now + DAY), &tenant("a"), now + DAY), Some((0, 0)));
    }
}
