//! What the settings say of usage. The config makes these; here they become outlets.

use std::sync::Arc;
use std::time::Duration;

use wellhead_net::{Endpoint, EndpointError, HttpVersion, TlsSetupError};
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::Transport;

use super::UsageTransports;
use super::deliver::{DeliverySettings, PushBody};
use crate::assemble::auth_of;
use crate::config::{
    self, Settings, UsageConfig, UsagePushConfig, UsageWebhookConfig, is_clickhouse_table,
};
use crate::outlet::{OutletError, PAUSE_MIN, instance_name, outlet_transport};

/// Rows that wait for a disk or store that takes none: a row has some 300 bytes, so these are 30 MB. That is
/// an hour for a proxy that fills 1,600 rows a minute; a store that is away for longer loses the oldest.
const BACKLOG_ROWS: usize = 100_000;
/// Rows of one request to a store: a body of some 3 MB. ClickHouse asks for few and large inserts, of 1,000
/// to 100,000 rows.
const BATCH_ROWS: usize = 10_000;

/// Where usage goes, and how much of it is kept.
#[derive(Debug, Clone)]
pub(crate) struct UsageSettings {
    /// The name of this replica, and where usage goes beside memory.
    pub(crate) config: UsageConfig,
    /// Rows that wait while a disk or a store takes none; at the bound the oldest go.
    pub(crate) backlog_rows: usize,
    /// Rows of one request to a store.
    pub(crate) batch_rows: usize,
    /// How long the end of the process waits for files, store and webhook.
    pub(crate) drain: Duration,
}

impl Default for UsageSettings {
    /// Kept in memory alone.
    fn default() -> Self {
        Self {
            config: UsageConfig::default(),
            backlog_rows: BACKLOG_ROWS,
            batch_rows: BATCH_ROWS,
            drain: Duration::from_secs(10),
        }
    }
}

/// Why usage cannot be handed out as the settings say.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsageSetupError {
    /// The URL or the credentials of `push` or `webhook`.
    #[error("usage: `{0}`: {1}")]
    Endpoint(&'static str, EndpointError),
    /// The table is no name.
    #[error(
        "usage: the ClickHouse table must be a name such as `billing.usage`, of letters, digits and `_`"
    )]
    Table,
    /// TLS.
    #[error("usage: {0}")]
    Tls(TlsSetupError),
}

impl UsageSettings {
    /// What the config says.
    pub(crate) fn of(settings: &Settings) -> Self {
        let (config, drain) = (settings.usage.clone(), settings.timeouts.drain);
        Self { config, drain, ..Self::default() }
    }

    /// The replica's name in the rows of this run: its start and a number, so that ids of rows are those
    /// of one run.
    pub(super) fn run_name(&self, started: u64) -> String {
        let name = instance_name(self.config.replica.as_ref().map(AsRef::as_ref));
        format!("{name}/{started:x}-{:08x}", rand::random::<u32>())
    }

    /// The clients of `push` and `webhook`.
    pub(super) fn transports(&self) -> Result<UsageTransports, UsageSetupError> {
        let push = |push: &UsagePushConfig| {
            let ndjson = ("content-type".to_owned(), Secret::new("application/x-ndjson"));
            let endpoint = endpoint(target(push)?, push.auth.as_ref());
            transport("push", &Endpoint { headers: vec![ndjson], ..endpoint }, push.timeout)
        };
        let webhook = |webhook: &UsageWebhookConfig| {
            let endpoint = endpoint(webhook.url.clone(), webhook.auth.as_ref());
            transport("webhook", &endpoint, webhook.timeout)
        };
        Ok(UsageTransports {
            push: self.config.push.as_ref().map(push).transpose()?,
            webhook: self.config.webhook.as_ref().map(webhook).transpose()?,
        })
    }

    pub(super) fn push_delivery(&self) -> Option<DeliverySettings> {
        let push = self.config.push.as_ref()?;
        let body = match push.clickhouse_table {
            Some(_) => PushBody::ClickHouse,
            None => PushBody::Jsonl,
        };
        let (timeout, batch_rows) = (push.timeout, self.batch_rows.max(1));
        Some(DeliverySettings { name: "push", body, batch_rows, timeout, pause_min: PAUSE_MIN })
    }

    pub(super) fn webhook_delivery(&self) -> Option<DeliverySettings> {
        let timeout = self.config.webhook.as_ref()?.timeout;
        let (body, batch_rows, pause_min) = (PushBody::Jsonl, 1, PAUSE_MIN);
        Some(DeliverySettings { name: "webhook", body, batch_rows, timeout, pause_min })
    }
}

fn transport(
    which: &'static str,
    endpoint: &Endpoint,
    timeout: Duration,
) -> Result<Arc<dyn Transport>, UsageSetupError> {
    outlet_transport(endpoint, timeout).map_err(|error| match error {
        OutletError::Endpoint(error) => UsageSetupError::Endpoint(which, error),
        OutletError::Tls(error) => UsageSetupError::Tls(error),
    })
}

fn endpoint(url: SecretUrl, auth: Option<&config::Auth>) -> Endpoint {
    Endpoint { auth: auth_of(auth), version: HttpVersion::H1, ..Endpoint::new(url) }
}

/// The URL, for ClickHouse with the query of the insert. `wait_for_async_insert` makes a 200 mean
/// that the rows are stored.
pub(super) fn target(push: &UsagePushConfig) -> Result<SecretUrl, UsageSetupError> {
    let Some(table) = &push.clickhouse_table else { return Ok(push.url.clone()) };
    if !is_clickhouse_table(&table.0) {
        return Err(UsageSetupError::Table);
    }
    let mut url = push.url.expose().clone();
    let insert = format!("query=INSERT%20INTO%20{}%20FORMAT%20JSONEachRow", table.0);
    let wait = "async_insert=1&wait_for_async_insert=1";
    let query = match url.query() {
        Some(own) if !own.is_empty() => format!("{own}&{insert}&{wait}"),
        Some(_) | None => format!("{insert}&{wait}"),
    };
    url.set_query(Some(&query));
    SecretUrl::parse(url.as_str()).map_err(|_| UsageSetupError::Table)
}

#[cfg(test)]
mod tests {
    use wellhead_net::Auth;

    use super::*;
    use crate::config::UsageFormat;

    #[track_caller]
    fn settings(usage: &str) -> UsageSettings {
        let source = format!(
            "usage: {usage}\ntimeouts: {{ drain: 7s }}\n\
             chains: {{ a: {{ upstreams: [{{ url: \"http://h\" }}] }} }}"
        );
        UsageSettings::of(&config::sound(&source))
    }

    #[test]
    fn what_the_config_leaves_out_is_kept_in_memory() {
        let plain = settings("{}");
        assert_eq!(plain.config, UsageConfig::default());
        assert_eq!(plain.drain, Duration::from_secs(7));
        assert!(plain.transports().expect("nothing to set up").push.is_none());
    }

    #[test]
    fn each_outlet_is_as_the_config_says() {
        let all = settings(
            "{ replica: a-1, file: { folder: /u, format: jsonl, bytes: 2MiB, files: 3 }, \
             push: { url: \"http://c:8123/?user=x\", clickhouse_table: b.usage, timeout: 2s, auth: { bearer: T } }, \
             webhook: { url: \"https://h/q\", auth: { basic: { user: u, password: p } } } }",
        );
        let UsageConfig { replica, file, push, webhook } = &all.config;
        assert_eq!(replica.as_ref().map(AsRef::as_ref), Some("a-1"));
        let file = file.as_ref().expect("given");
        assert_eq!((&*file.folder, file.format), ("/u".as_ref(), UsageFormat::Jsonl));
        assert_eq!((file.bytes.0, file.files), (2 << 20, 3));
        let push = push.as_ref().expect("given");
        assert_eq!(push.timeout, Duration::from_secs(2));
        assert!(matches!(auth_of(push.auth.as_ref()), Auth::Bearer(_)));
        let target = target(push).expect("a table");
        let insert = "http://c:8123/?user=x&query=INSERT%20INTO%20b.usage%20FORMAT%20JSONEachRow";
        assert!(target.expose().as_str().starts_with(insert), "{}", target.expose());
        let webhook = webhook.as_ref().expect("given");
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        assert!(matches!(auth_of(webhook.auth.as_ref()), Auth::Basic { .. }));
        let transports = all.transports().expect("good endpoints");
        assert!(transports.push.is_some() && transports.webhook.is_some());
    }
}
