//! What was used: by tenant, key, chain, method, source, outcome and minute.
//!
//! ```text
//! workers ── record ──> UsageTable ── take_minute, each minute ──┬─> UsageHistory ─> UsageQuery, UsageAnswer
//!                       one row per UsageKey and minute          └─> write: CSV, JSON lines  ─> files, push
//! ```
//!
//! `table` is the hot path; the rest runs once a minute. A row leaves the table once, with an id of
//! its own ([`UsageRowId`]): what sends rows at least once keeps the row, and a store that has the id
//! already drops the double. Sums are never lost at a bound: rows beyond it fold into a row `other`.
//!
//! Nothing here reads a clock, a file or a socket. What must not be lost when the process dies is
//! written elsewhere; the table forgets at most what was recorded since the last take.

mod history;
mod query;
mod table;
mod write;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub use history::{UsageHistory, UsageHistoryBounds};
pub use query::{UsageAnswer, UsageBy, UsageByError, UsageQuery, UsageResolution, UsageSum};
pub use table::{UsageRecord, UsageTable};
pub use write::{CSV_HEADER, write_clickhouse, write_csv, write_jsonl};

use crate::AccessGrant;

/// What stands for everything beyond a bound, in place of a name. A tenant or key that has this very
/// name is counted with it.
pub const OTHER: &str = "other";

/// A minute, counted in UTC from 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UsageMinute(pub u32);

impl UsageMinute {
    /// Later than all: `take_minute` of it takes everything.
    pub const MAX: Self = Self(u32::MAX);

    /// The minute that an instant, counted from 1970, is in.
    pub fn of(unix: Duration) -> Self {
        Self(u32::try_from(unix.as_secs() / 60).unwrap_or(u32::MAX))
    }

    /// Seconds from 1970 to its begin.
    pub fn unix_seconds(self) -> u64 {
        u64::from(self.0) * 60
    }

    /// The hour that it is in, counted from 1970.
    pub fn hour(self) -> u32 {
        self.0 / 60
    }

    /// The day that it is in, counted from 1970.
    pub fn day(self) -> u32 {
        self.0 / (24 * 60)
    }
}

impl fmt::Display for UsageMinute {
    /// As `2026-11-25T07:05:00Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = wellhead_limit::civil(self.day());
        let (hour, minute) = (self.hour() % 24, self.0 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00Z")
    }
}

/// Thousandths of a credit, so that sums of parts of credits are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MilliCredits(pub u64);

impl MilliCredits {
    /// So many whole credits.
    pub const fn whole(credits: u64) -> Self {
        Self(credits.saturating_mul(1_000))
    }

    fn add(&mut self, more: Self) {
        self.0 = self.0.saturating_add(more.0);
    }
}

impl fmt::Display for MilliCredits {
    /// In credits, as a decimal number with at most three places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        match rest {
            0 => write!(f, "{whole}"),
            _ if rest % 100 == 0 => write!(f, "{whole}.{}", rest / 100),
            _ if rest % 10 == 0 => write!(f, "{whole}.{:02}", rest / 10),
            _ => write!(f, "{whole}.{rest:03}"),
        }
    }
}

/// What calls amount to. Sums stay at the largest number rather than turn over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageAmounts {
    /// Calls; each item of a batch is one.
    pub calls: u64,
    /// What the client is charged.
    pub credits_in: MilliCredits,
    /// What upstreams charged.
    pub credits_out: MilliCredits,
    /// Bytes that clients sent.
    pub bytes_in: u64,
    /// Bytes that clients were sent.
    pub bytes_out: u64,
    /// Time that calls took, in microseconds.
    pub time_us: u64,
}

impl UsageAmounts {
    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        self.calls = self.calls.saturating_add(more.calls);
        self.credits_in.add(more.credits_in);
        self.credits_out.add(more.credits_out);
        self.bytes_in = self.bytes_in.saturating_add(more.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(more.bytes_out);
        self.time_us = self.time_us.saturating_add(more.time_us);
    }
}

/// Where an answer came from. Its words stand in files and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum UsageSource {
    /// An upstream was asked.
    Upstream,
    /// It was kept, or another call of its kind was under way.
    Cache,
    /// What is known of the chain.
    View,
    /// Nowhere: it was refused before any of these.
    Refused,
}

wellhead_word::words!(UsageSource);

/// How calls ended for the client. Its words stand in files and queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum UsageOutcome {
    /// With a result.
    Answered,
    /// With an error that an upstream wrote: a revert, bad params, missing data.
    UpstreamError,
    /// With an error of wellhead, because no upstream could answer.
    Failed,
    /// With an error of wellhead, because the call may or can not be served.
    Refused,
    /// With an error of wellhead, because a limit or quota of the caller was reached.
    Limited,
    /// Not at all: the client went away before. What was charged stays charged, as upstreams charge too.
    Abandoned,
}

wellhead_word::words!(UsageOutcome);

/// What a row is about, but for its minute. Ordered by its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageKey {
    /// The name of the tenant.
    pub tenant: Arc<str>,
    /// What the key is: the word of its [`GrantKind`](crate::GrantKind), or [`OTHER`].
    pub kind: &'static str,
    /// The public id of the grant.
    pub key: Arc<str>,
    /// The name of the chain.
    pub chain: Arc<str>,
    /// The row of the method table, never a client's own word.
    pub method: &'static str,
    /// Where answers came from.
    pub source: UsageSource,
    /// How calls ended.
    pub outcome: UsageOutcome,
}

impl UsageKey {
    /// What [`Self::names`] are called by files and queries.
    const COLUMNS: [&'static str; 7] =
        ["tenant", "kind", "key", "chain", "method", "source", "outcome"];

    /// All names, in the order of its fields.
    fn names(&self) -> [&str; 7] {
        let Self { tenant, kind, key, chain, method, source, outcome } = self;
        [tenant, kind, key, chain, method, source.word(), outcome.word()]
    }

    /// The row `other` of a tenant. Source and outcome stay, so that their sums stay right.
    fn other_of(tenant: Arc<str>, source: UsageSource, outcome: UsageOutcome) -> Self {
        // Made once, so that counting at the bound allocates nothing.
        static NAME: LazyLock<Arc<str>> = LazyLock::new(|| OTHER.into());
        let (key, chain) = (Arc::clone(&NAME), Arc::clone(&NAME));
        Self { tenant, kind: OTHER, key, chain, method: OTHER, source, outcome }
    }

    /// The row into which it folds at a bound: that of its tenant, or that of all tenants.
    fn folded(&self, keeps_tenant: bool) -> Self {
        let tenant = if keeps_tenant { Arc::clone(&self.tenant) } else { OTHER.into() };
        Self::other_of(tenant, self.source, self.outcome)
    }
}

impl AccessGrant {
    fn usage_key(&self, record: &UsageRecord<'_>) -> UsageKey {
        UsageKey {
            tenant: Arc::clone(&self.tenant.name),
            kind: self.kind.word(),
            key: Arc::clone(&self.id),
            chain: Arc::clone(record.chain),
            method: record.method,
            source: record.source,
            outcome: record.outcome,
        }
    }
}

/// The identity of a row: 128 bits of BLAKE3 over the replica, the take that the row left the table
/// with, its minute and its key.
///
/// A call that is recorded after its minute was taken makes a second row of the minute and key. The
/// number of the take tells the two apart: without it a store would drop the second as a double.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageRowId([u8; 16]);

impl UsageRowId {
    fn new(replica: &str, take: u64, minute: UsageMinute, key: &UsageKey) -> Self {
        let mut hasher = blake3::Hasher::new();
        // With its length, so that no two lists of names are one text.
        let mut name = |name: &str| {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
        };
        name(replica);
        key.names().into_iter().for_each(name);
        hasher.update(&take.to_le_bytes());
        hasher.update(&minute.0.to_le_bytes());
        let mut id = [0; 16];
        hasher.finalize_xof().fill(&mut id);
        Self(id)
    }
}

impl fmt::Display for UsageRowId {
    /// As 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UsageRowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What was used in a minute under one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// For stores that drop doubles.
    pub id: UsageRowId,
    /// The minute.
    pub minute: UsageMinute,
    /// What it is about.
    pub key: UsageKey,
    /// What it amounts to.
    pub amounts: UsageAmounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_have_dates() {
        let check = |seconds: u64, expected: &str| {
            let minute = UsageMinute::of(Duration::from_secs(seconds));
            assert_eq!(minute.to_string(), expected);
        };
        check(0, "1970-01-01T00:00:00Z");
        check(59, "1970-01-01T00:00:00Z");
        check(1_709_251_199, "2024-02-29T23:59:00Z");
        check(1_795_590_360, "2026-11-25T07:06:00Z");
    }

    #[test]
    fn credits_are_decimal() {
        let check = |milli: u64, expected: &str| {
            assert_eq!(MilliCredits(milli).to_string(), expected);
        };
        check(0, "0");
        check(1, "0.001");
        check(20, "0.02");
        check(12_300, "12.3");
        check(12_000, "12");
        check(12_345, "12.345");
        check(u64::MAX, "18446744073709551.615");
        assert_eq!(MilliCredits::whole(u64::MAX), MilliCredits(u64::MAX));
    }

    #[test]
    fn an_id_depends_on_each_part() {
        let key = |key: &str, chain: &str| UsageKey {
            key: key.into(),
            chain: chain.into(),
            ..UsageKey::other_of("acme".into(), UsageSource::Cache, UsageOutcome::Answered)
        };
        let minute = UsageMinute(7);
        let id = |replica, take, minute, key: &UsageKey| {
            UsageRowId::new(replica, take, minute, key).to_string()
        };
        let first = id("a", 1, minute, &key("k", "c"));
        assert_eq!(first, id("a", 1, minute, &key("k", "c")), "of equal rows it is equal");
        assert_eq!(first.len(), 32);
        let others = [
            id("b", 1, minute, &key("k", "c")),
            id("a", 2, minute, &key("k", "c")),
            id("a", 1, UsageMinute(8), &key("k", "c")),
            id("a", 1, minute, &key("kc", "")),
            id("a", 1, minute, &UsageKey { kind: "key", ..key("k", "c") }),
            id("a", 1, minute, &UsageKey { source: UsageSource::View, ..key("k", "c") }),
            id("a", 1, minute, &UsageKey { outcome: UsageOutcome::Failed, ..key("k", "c") }),
        ];
        let mut all: Vec<_> = others.into_iter().chain([first]).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8);
    }
}
