//! The minutes and hours that are kept in memory, for queries.
//!
//! Each minute for an hour, each hour for 31 days, unless the bounds say otherwise. A slot holds at
//! most `rows_max` rows, those with the most calls first; the calls of further keys count in the row
//! `other` of their tenant, and from a quarter of the bound on in that of the tenant `other`: sums stay
//! right, as in [`table`](super::table). Full slots of the default bounds are about 60 MB; a hundred
//! rows a slot are 10 MB.
//!
//! Kept in memory only: after a restart it is empty. Files and stores have the rest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{OTHER, UsageAmounts, UsageKey, UsageMinute, UsageRow};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageHistoryBounds {
    /// Minutes.
    pub minutes: u32,
    /// Rows of one minute.
    pub minute_rows: usize,
    /// Hours.
    pub hours: u32,
    /// Rows of one hour.
    pub hour_rows: usize,
}

impl Default for UsageHistoryBounds {
    fn default() -> Self {
        Self { minutes: 60, minute_rows: 4_096, hours: 31 * 24, hour_rows: 512 }
    }
}

/// Rows of one minute or hour. The keys are shared by the slots.
#[derive(Debug, Default)]
pub(super) struct HistorySlot {
    pub(super) rows: HashMap<Arc<UsageKey>, UsageAmounts>,
    others: usize,
}

impl HistorySlot {
    fn add(&mut self, key: Arc<UsageKey>, amounts: &UsageAmounts, rows_max: usize) {
        let is_other = key.kind == OTHER;
        if let Some(sum) = self.rows.get_mut(&key) {
            return sum.add(amounts);
        }
        if !is_other && self.rows.len() - self.others < rows_max {
            self.rows.insert(key, *amounts);
            return;
        }
        let of_tenant = if is_other { key } else { Arc::new(key.folded(true)) };
        // Those of the tenant `other` are few, and need no bound.
        let has_room = self.others < rows_max / 4 || *of_tenant.tenant == *OTHER;
        let place = match has_room || self.rows.contains_key(&of_tenant) {
            true => of_tenant,
            false => Arc::new(of_tenant.folded(false)),
        };
        let before = self.rows.len();
        self.rows.entry(place).or_default().add(amounts);
        self.others += self.rows.len() - before;
    }
}

/// What was used lately.
#[derive(Debug)]
pub struct UsageHistory {
    bounds: UsageHistoryBounds,
    pub(super) minutes: BTreeMap<u32, HistorySlot>,
    pub(super) hours: BTreeMap<u32, HistorySlot>,
    /// When rows were last added.
    pub(super) now: UsageMinute,
}

impl UsageHistory {
    /// Nothing yet.
    pub fn new(bounds: UsageHistoryBounds) -> Self {
        let now = UsageMinute(0);
        Self { bounds, minutes: BTreeMap::new(), hours: BTreeMap::new(), now }
    }

    /// Adds rows that left the table, and forgets what is too old at `now`. What is later than `now`,
    /// because the clock was set back, counts now.
    pub fn add(&mut self, rows: &[UsageRow], now: UsageMinute) {
        self.now = now;
        let UsageHistoryBounds { minutes, minute_rows, hours, hour_rows } = self.bounds;
        keep(&mut self.minutes, now.0, minutes, minute_rows);
        keep(&mut self.hours, now.hour(), hours, hour_rows);
        let mut rows: Vec<&UsageRow> = rows.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.amounts.calls));
        for row in rows {
            let minute = row.minute.min(now);
            let key = self.shared(&row.key, minute.hour());
            if minute.hour().saturating_add(hours) > now.hour() {
                let slot = self.hours.entry(minute.hour()).or_default();
                slot.add(Arc::clone(&key), &row.amounts, hour_rows);
            }
            if minute.0.saturating_add(minutes) > now.0 {
                let slot = self.minutes.entry(minute.0).or_default();
                slot.add(key, &row.amounts, minute_rows);
            }
        }
    }

    /// The key as the hour has it, or the one before: most keys are there again and again.
    fn shared(&self, key: &UsageKey, hour: u32) -> Arc<UsageKey> {
        let slots = self.hours.range(..=hour).rev().take(2);
        let mut known = slots.filter_map(|(_, slot)| slot.rows.get_key_value(key));
        known.next().map_or_else(|| Arc::new(key.clone()), |(key, _)| Arc::clone(key))
    }

    /// The first minute of which each minute is kept.
    pub(super) fn first_minute(&self) -> u32 {
        (self.now.0 + 1).saturating_sub(self.bounds.minutes)
    }
}

/// Drops the slots that are too old, and adds those later than `now` to it.
fn keep(slots: &mut BTreeMap<u32, HistorySlot>, now: u32, slots_max: u32, rows_max: usize) {
    while let Some(oldest) = slots.first_entry()
        && oldest.key().saturating_add(slots_max) <= now
    {
        oldest.remove();
    }
    if slots.last_key_value().is_some_and(|(last, _)| *last > now) {
        let later = slots.split_off(&now.saturating_add(1));
        let slot = slots.entry(now).or_default();
        for (key, amounts) in later.into_values().flat_map(|slot| slot.rows) {
            slot.add(key, &amounts, rows_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{UsageOutcome, UsageRowId, UsageSource};

    fn row(minute: u32, tenant: &str, key: &str, calls: u64) -> UsageRow {
        let key = UsageKey {
            kind: "key",
            key: key.into(),
            ..UsageKey::other_of(tenant.into(), UsageSource::Cache, UsageOutcome::Answered)
        };
        let minute = UsageMinute(minute);
        let amounts = UsageAmounts { calls, ..UsageAmounts::default() };
        UsageRow { id: UsageRowId::new("r", 0, minute, &key), minute, key, amounts }
    }

    fn calls(slots: &BTreeMap<u32, HistorySlot>) -> Vec<(u32, u64)> {
        let sum = |slot: &HistorySlot| slot.rows.values().map(|sum| sum.calls).sum();
        slots.iter().map(|(number, slot)| (*number, sum(slot))).collect()
    }

    #[test]
    fn the_oldest_go() {
        let bounds = UsageHistoryBounds { minutes: 2, hours: 3, ..UsageHistoryBounds::default() };
        let mut history = UsageHistory::new(bounds);
        let mut check = |at: u32, minutes: &[(u32, u64)], hours: &[(u32, u64)]| {
            history.add(&[row(at, "a", "1", 1)], UsageMinute(at));
            assert_eq!(calls(&history.minutes), minutes, "minutes at {at}");
            assert_eq!(calls(&history.hours), hours, "hours at {at}");
        };
        check(600, &[(600, 1)], &[(10, 1)]);
        check(601, &[(600, 1), (601, 1)], &[(10, 2)]);
        check(602, &[(601, 1), (602, 1)], &[(10, 3)]);
        check(721, &[(721, 1)], &[(10, 3), (12, 1)]);
        check(780, &[(780, 1)], &[(12, 1), (13, 1)]);
        // The clock is set back, and on again.
        check(720, &[(720, 2)], &[(12, 3)]);
        check(2_000, &[(2_000, 1)], &[(33, 1)]);
    }

    #[test]
    fn rows_that_come_late_count_where_they_are_kept() {
        let bounds = UsageHistoryBounds { minutes: 2, hours: 3, ..UsageHistoryBounds::default() };
        let mut history = UsageHistory::new(bounds);
        let rows = [row(0, "a", "1", 1), row(500, "a", "1", 2), row(599, "a", "1", 4)];
        history.add(&rows, UsageMinute(600));
        assert_eq!(calls(&history.minutes), [(599, 4)]);
        assert_eq!(calls(&history.hours), [(8, 2), (9, 4)]);
    }

    #[test]
    fn beyond_the_bound_the_smallest_fold_by_tenant_and_then_all_together() {
        let bounds =
            UsageHistoryBounds { minute_rows: 4, hour_rows: 8, ..UsageHistoryBounds::default() };
        let mut history = UsageHistory::new(bounds);
        let rows: Vec<_> = (0..10)
            .map(|number: u64| {
                row(60, ["a", "b"][number as usize % 2], &number.to_string(), number)
            })
            .collect();
        history.add(&rows, UsageMinute(60));
        let shown = |slots: &BTreeMap<u32, HistorySlot>| {
            let rows = slots.values().flat_map(|slot| &slot.rows);
            let mut shown: Vec<_> = rows
                .map(|(key, sum)| format!("{}/{} {}", key.tenant, key.key, sum.calls))
                .collect();
            shown.sort();
            shown
        };
        let expected = ["a/6 6", "a/8 8", "b/7 7", "b/9 9", "b/other 9", "other/other 6"];
        assert_eq!(shown(&history.minutes), expected);
        assert_eq!(shown(&history.hours).len(), 10, "8, and one of each tenant");
        assert_eq!(calls(&history.hours), [(1, 45)]);
    }

    #[test]
    fn keys_are_shared_by_the_slots() {
        let mut history = UsageHistory::new(UsageHistoryBounds::default());
        for minute in 59..62 {
            history.add(&[row(minute, "a", "1", 1)], UsageMinute(minute));
        }
        let slots = history.minutes.values().chain(history.hours.values());
        let keys: Vec<_> = slots.flat_map(|slot| slot.rows.keys()).collect();
        assert_eq!(keys.len(), 5);
        assert!(keys.iter().all(|key| Arc::ptr_eq(key, keys[0])));
    }
}
