//! The settings of usage: where the minutes of what was used go.

use std::path::PathBuf;
use std::time::Duration;

use wellhead_telemetry::SecretUrl;

use super::chain::Auth;
use super::name::{ClickHouseTable, ReplicaName};
use super::read::{section, with_defaults};
use super::rule::{default, derived, required, secs};
use super::unit::ByteSize;
use super::value::UsageFormat;

section! {
    /// Where usage goes: calls, credits, bytes and time for each minute, tenant, key, chain, method and
    /// outcome. `/usage` of the admin listener has the minutes of the last hour and the hours of the last
    /// month in any case; a restart forgets these.
    UsageConfig {
        /// The name of this wellhead in rows, beside others that write to the same place.
        replica: Option<ReplicaName> = derived("the name of the host"),
        /// Files with a row for each of these.
        file: Option<UsageFileConfig> = derived("none"),
        /// A ClickHouse, or another store, that each minute is sent to.
        push: Option<UsagePushConfig> = derived("none"),
        /// A URL that is told when a tenant or key has used 80 and 100 % of its quota of a day or month.
        webhook: Option<UsageWebhookConfig> = derived("none"),
    }
}

section! {
    /// Files of usage: one per day of UTC, `usage-2026-11-25.csv`.
    UsageFileConfig {
        /// The directory for them. It is created if it does not exist.
        folder: PathBuf = required(),
        /// `csv` with a line of names, or `jsonl` with one JSON object per line.
        format: UsageFormat = default(UsageFormat::Csv),
        /// Largest size of one file. A day with more has several.
        bytes: ByteSize = default(ByteSize::mib(64)).within(ByteSize::mib(1), ByteSize::gib(16)),
        /// The most files; the oldest are removed.
        files: usize = default(90).within(1, 10_000),
    }
}

section! {
    /// A store that usage is sent to by POST, each minute. Rows are sent until it answers with success, so
    /// some may arrive twice; their ids tell.
    UsagePushConfig {
        /// Where to send them; for ClickHouse its HTTP port: `http://clickhouse:8123`.
        url: SecretUrl = required(),
        /// Credentials for it.
        auth: Option<Auth> = derived("none"),
        /// The table of ClickHouse: `billing.usage`. Otherwise the body is one JSON object per line, for
        /// any store.
        clickhouse_table: Option<ClickHouseTable> = derived("none: any store that takes JSON lines"),
        /// Time for one attempt.
        timeout: Duration = default(secs(10)).within(secs(1), secs(60)),
    }
}

section! {
    /// A URL that is told of quotas by POST, within a minute: of each share once, and once more after a restart.
    /// The `id` in the JSON object is one for all replicas. 100 % also means that a call was refused, as no room
    /// was left for it. With `shared`, what replicas hold in advance counts as used.
    UsageWebhookConfig {
        /// Where to send it.
        url: SecretUrl = required(),
        /// Credentials for it.
        auth: Option<Auth> = derived("none"),
        /// Time for one attempt.
        timeout: Duration = default(secs(10)).within(secs(1), secs(60)),
    }
}

with_defaults!(UsageConfig);
