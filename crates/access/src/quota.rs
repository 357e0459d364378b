//! Quotas: the limits that a subject has, as the settings name them.

use std::sync::Arc;
use std::time::Duration;

use wellhead_eth::{MethodGlob, MethodRow, MethodTable};
use wellhead_limit::{Caps, Pace};

/// The methods of a quota's groups fit one word.
pub const QUOTA_GROUPS_MAX: usize = 32;

/// A rate with a burst.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QuotaRate {
    /// Calls or credits in each second, in the long run.
    pub per_second: f64,
    /// As many at once after a pause.
    pub burst: f64,
    /// Computed once, not for each call.
    pace: Pace,
}

impl QuotaRate {
    /// So many calls or credits in each second, and after a pause `burst` of them, or one, at once.
    pub fn new(per_second: f64, burst: f64) -> Self {
        let pace = Pace::new(per_second, Duration::from_secs(1), burst.max(1.0));
        Self { per_second, burst, pace }
    }

    pub(crate) fn pace(self) -> Pace {
        self.pace
    }
}

/// The bounds of what a subject, or one group of its methods, may use. `None` bounds nothing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct QuotaBounds {
    /// Calls.
    pub calls: Option<QuotaRate>,
    /// Credits, by the prices of the settings.
    pub credits: Option<QuotaRate>,
    /// For a subject requests under way at once, a batch being one; for a group its calls.
    pub in_flight: Option<u32>,
}

/// A group of methods with bounds of its own, within those of the subject.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaGroup {
    /// Which methods, in any case of letters.
    pub methods: Vec<MethodGlob>,
    /// What its calls may use.
    pub bounds: QuotaBounds,
}

/// What a subject may use: settings, read once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Quota {
    /// As the settings name it; a refusal tells it.
    pub name: Arc<str>,
    /// What all its calls may use.
    pub bounds: QuotaBounds,
    /// Credits a day and a calendar month, of UTC.
    pub caps: Caps,
    /// WebSocket connections open at once.
    pub connections: Option<u32>,
    /// Subscriptions at once, over all connections.
    pub subscriptions: Option<u32>,
    /// At most [`QUOTA_GROUPS_MAX`]; a call counts in each group that names its method.
    pub groups: Vec<QuotaGroup>,
}

/// A quota, with the groups of each method found out once.
#[derive(Debug)]
pub struct QuotaPlan {
    quota: Quota,
    /// By the place of the method in the table: a bit for each group.
    groups_of: Box<[u32]>,
}

impl QuotaPlan {
    /// Finds the groups of each method in the table.
    pub fn new(mut quota: Quota) -> Self {
        debug_assert!(quota.groups.len() <= QUOTA_GROUPS_MAX, "the settings are checked");
        quota.groups.truncate(QUOTA_GROUPS_MAX);
        let rows = MethodTable::standard().rows();
        let of = |row: &MethodRow| groups_named(&quota, row.name);
        // Without a group the table is not read.
        let groups_of =
            if quota.groups.is_empty() { Box::default() } else { rows.iter().map(of).collect() };
        Self { quota, groups_of }
    }

    /// The quota.
    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The groups that name a method, a bit each. Of a method that the table does not list its name decides.
    pub(crate) fn groups(&self, row: &MethodRow, method: &str) -> u32 {
        if self.groups_of.is_empty() {
            0
        } else if row.is_unknown() {
            groups_named(&self.quota, method)
        } else {
            self.groups_of[row.index.get()]
        }
    }
}

fn groups_named(quota: &Quota, method: &str) -> u32 {
    let names = |group: &QuotaGroup| {
        group.methods.iter().any(|pattern| pattern.matches_ignoring_case(method))
    };
    let groups = quota.groups.iter().enumerate();
    groups.filter(|(_, group)| names(group)).fold(0, |bits, (place, _)| bits | 1 << place)
}
