//! What the settings say of usage. The config makes these; here they become outlets.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wellhead_access::usage::UsageHistoryBounds;
use wellhead_net::{Auth, Endpoint, EndpointError, HttpVersion, TlsSetupError};
use wellhead_telemetry::{Secret, SecretUrl};
use wellhead_transport::Transport;

use super::UsageTransports;
use super::deliver::{DeliverySettings, PushBody};
use crate::assemble::auth_of;
use crate::config::{Settings, UsageConfig, UsageFormat, is_clickhouse_table};
use crate::outlet::{OutletError, PAUSE_MIN, instance_name, outlet_transport};

/// Where usage goes, and how much of it is kept.
#[derive(Debug, Clone)]
pub(crate) struct UsageSettings {
    /// The name of this replica in rows; the default is the name of the host. A run of a process adds
    /// its start and a number, so that ids of rows are those of one run.
    pub(crate) replica: Option<String>,
    /// What is kept in memory for `/usage`.
    pub(crate) history: UsageHistoryBounds,
    /// Files, if any.
    pub(crate) file: Option<UsageFileSettings>,
    /// A store that is pushed to, if any.
    pub(crate) push: Option<UsagePushSettings>,
    /// What is told of quotas, if it is.
    pub(crate) webhook: Option<UsageWebhookSettings>,
    /// How long the end of the process waits for files, store and webhook.
    pub(crate) drain: Duration,
}

impl Default for UsageSettings {
    /// Kept in memory alone.
    fn default() -> Self {
        Self {
            replica: None,
            history: UsageHistoryBounds::default(),
            file: None,
            push: None,
            webhook: None,
            drain: Duration::from_secs(10),
        }
    }
}

/// Files of usage.
#[derive(Debug, Clone)]
pub(crate) struct UsageFileSettings {
    /// Where they are; it is made if it is not there.
    pub(crate) folder: PathBuf,
    /// How they are written.
    pub(crate) format: UsageFormat,
    /// A file that would be longer is followed by another one of its day.
    pub(crate) bytes_max: u64,
    /// When there are more, the oldest are removed.
    pub(crate) files_max: usize,
    /// Rows that wait while the disk takes none; at the bound the oldest go.
    pub(crate) backlog_rows: usize,
}

/// A store that usage is pushed to.
#[derive(Debug, Clone)]
pub(crate) struct UsagePushSettings {
    /// Where to POST.
    pub(crate) url: SecretUrl,
    /// With which credentials.
    pub(crate) auth: Auth,
    /// The table of ClickHouse, as `database.table`; without it the body is JSON lines for any store.
    pub(crate) clickhouse_table: Option<String>,
    /// Rows of one request.
    pub(crate) batch_rows: usize,
    /// Rows that wait while the store takes none; at the bound the oldest go.
    pub(crate) backlog_rows: usize,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
}

/// Who is told of quotas.
#[derive(Debug, Clone)]
pub(crate) struct UsageWebhookSettings {
    /// Where to POST.
    pub(crate) url: SecretUrl,
    /// With which credentials.
    pub(crate) auth: Auth,
    /// How long one attempt may take.
    pub(crate) timeout: Duration,
}

/// Why usage cannot be handed out as the settings say.
#[derive(Debug)]
pub(crate) enum UsageSetupError {
    /// The URL or the credentials of `push` or `webhook`.
    Endpoint(&'static str, EndpointError),
    /// The table is no name.
    Table,
    /// TLS.
    Tls(TlsSetupError),
}

impl fmt::Display for UsageSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(which, error) => write!(f, "usage: `{which}`: {error}"),
            Self::Table => f.write_str(
                "usage: the ClickHouse table must be a name such as `billing.usage`, of letters, digits and `_`",
            ),
            Self::Tls(error) => write!(f, "usage: {error}"),
        }
    }
}

impl std::error::Error for UsageSetupError {}

/// Rows that wait for a disk or store that takes none: a row has some 300 bytes, so these are 30 MB. That is
/// an hour for a proxy that fills 1,600 rows a minute; a store that is away for longer loses the oldest.
const BACKLOG_ROWS: usize = 100_000;
/// Rows of one request to a store: a body of some 3 MB. ClickHouse asks for few and large inserts, of 1,000
/// to 100,000 rows.
const BATCH_ROWS: usize = 10_000;

impl UsageSettings {
    /// What the config says.
    pub(crate) fn of(settings: &Settings) -> Self {
        let UsageConfig { replica, file, push, webhook } = &settings.usage;
        Self {
            replica: replica.as_ref().map(|name| name.as_ref().to_owned()),
            file: file.as_ref().map(|file| UsageFileSettings {
                folder: file.folder.clone(),
                format: file.format,
                bytes_max: file.bytes.0,
                files_max: file.files,
                backlog_rows: BACKLOG_ROWS,
            }),
            push: push.as_ref().map(|push| UsagePushSettings {
                url: push.url.clone(),
                auth: auth_of(push.auth.as_ref()),
                clickhouse_table: push.clickhouse_table.as_ref().map(|it| it.as_ref().to_owned()),
                batch_rows: BATCH_ROWS,
                backlog_rows: BACKLOG_ROWS,
                timeout: push.timeout,
            }),
            webhook: webhook.as_ref().map(|webhook| UsageWebhookSettings {
                url: webhook.url.clone(),
                auth: auth_of(webhook.auth.as_ref()),
                timeout: webhook.timeout,
            }),
            drain: settings.timeouts.drain,
            ..Self::default()
        }
    }

    /// The replica's name in the rows of this run.
    pub(super) fn run_name(&self, started: u64) -> String {
        let name = instance_name(self.replica.as_deref());
        format!("{name}/{started:x}-{:08x}", rand::random::<u32>())
    }

    /// The clients of `push` and `webhook`.
    pub(super) fn transports(&self) -> Result<UsageTransports, UsageSetupError> {
        let push = match &self.push {
            Some(push) => {
                let ndjson = ("content-type".to_owned(), Secret::new("application/x-ndjson"));
                let endpoint = Endpoint {
                    headers: vec![ndjson],
                    auth: push.auth.clone(),
                    version: HttpVersion::H1,
                    ..Endpoint::new(push.target()?)
                };
                Some(transport("push", &endpoint, push.timeout)?)
            }
            None => None,
        };
        let webhook = match &self.webhook {
            Some(webhook) => {
                let endpoint = Endpoint {
                    auth: webhook.auth.clone(),
                    version: HttpVersion::H1,
                    ..Endpoint::new(webhook.url.clone())
                };
                Some(transport("webhook", &endpoint, webhook.timeout)?)
            }
            None => None,
        };
        Ok(UsageTransports { push, webhook })
    }

    pub(super) fn push_delivery(&self) -> Option<DeliverySettings> {
        let push = self.push.as_ref()?;
        let body = match push.clickhouse_table {
            Some(_) => PushBody::ClickHouse,
            None => PushBody::Jsonl,
        };
        let (timeout, batch_rows) = (push.timeout, push.batch_rows.max(1));
        Some(DeliverySettings { name: "push", body, batch_rows, timeout, pause_min: PAUSE_MIN })
    }

    pub(super) fn webhook_delivery(&self) -> Option<DeliverySettings> {
        let timeout = self.webhook.as_ref()?.timeout;
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

impl UsagePushSettings {
    /// The URL, for ClickHouse with the query of the insert. `wait_for_async_insert` makes a 200 mean
    /// that the rows are stored.
    pub(super) fn target(&self) -> Result<SecretUrl, UsageSetupError> {
        let Some(table) = &self.clickhouse_table else { return Ok(self.url.clone()) };
        if !is_clickhouse_table(table) {
            return Err(UsageSetupError::Table);
        }
        let mut url = self.url.expose().clone();
        let insert = format!("query=INSERT%20INTO%20{table}%20FORMAT%20JSONEachRow");
        let wait = "async_insert=1&wait_for_async_insert=1";
        let query = match url.query() {
            Some(own) if !own.is_empty() => format!("{own}&{insert}&{wait}"),
            Some(_) | None => format!("{insert}&{wait}"),
        };
        url.set_query(Some(&query));
        SecretUrl::parse(url.as_str()).map_err(|_| UsageSetupError::Table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, parse};

    #[track_caller]
    fn settings(usage: &str) -> UsageSettings {
        let source = format!(
            "usage: {usage}\ntimeouts: {{ drain: 7s }}\n\
             chains: {{ a: {{ upstreams: [{{ url: \"http://h\" }}] }} }}"
        );
        let loaded = parse("test", &source, &|_| None, Overrides::default());
        UsageSettings::of(&loaded.expect("sound").settings)
    }

    #[test]
    fn what_the_config_leaves_out_is_kept_in_memory() {
        let plain = settings("{}");
        assert!(plain.replica.is_none() && plain.file.is_none());
        assert!(plain.push.is_none() && plain.webhook.is_none());
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
        assert_eq!(all.replica.as_deref(), Some("a-1"));
        let file = all.file.as_ref().expect("given");
        assert_eq!((&*file.folder, file.format), ("/u".as_ref(), UsageFormat::Jsonl));
        assert_eq!((file.bytes_max, file.files_max), (2 << 20, 3));
        let push = all.push.as_ref().expect("given");
        assert_eq!(push.timeout, Duration::from_secs(2));
        assert!(matches!(push.auth, Auth::Bearer(_)));
        let target = push.target().expect("a table");
        let insert = "http://c:8123/?user=x&query=INSERT%20INTO%20b.usage%20FORMAT%20JSONEachRow";
        assert!(target.expose().as_str().starts_with(insert), "{}", target.expose());
        let webhook = all.webhook.as_ref().expect("given");
        assert_eq!(webhook.timeout, Duration::from_secs(10));
        assert!(matches!(webhook.auth, Auth::Basic { .. }));
        let transports = all.transports().expect("good endpoints");
        assert!(transports.push.is_some() && transports.webhook.is_some());
    }
}
