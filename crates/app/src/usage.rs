//! What becomes of usage: each minute it leaves the table for memory, files, a store and webhooks.
//!
//! ```text
//! UsageTable ── each minute ──┬─ history ─> GET /usage
//!   meters of quotas ─────────┼─ crossings ─> webhook ─────────┐
//!                             ├─ backlog ─> push               ┴─> `deliver`, over `net`
//!                             └─ backlog ─> `file`
//! ```
//!
//! No request waits for any of it. Each outlet has a backlog of its own, bounded in rows
//! (`backlog`): at the bound the oldest rows go, are counted and told once. What an outlet
//! takes is tried until it succeeds, so that a store gets each row at least once; the ids of rows
//! tell doubles. A crash loses what was recorded since the last minute and what waits in memory.

mod backlog;
mod counts;
mod deliver;
mod file;
mod page;
mod settings;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::watch;
use tokio::task::JoinSet;
use wellhead_access::usage::{UsageHistory, UsageHistoryBounds, UsageMinute, UsageRow, UsageTable};
use wellhead_access::{MeterBook, QuotaWatch};
use wellhead_server::UsageReport;
use wellhead_transport::{BoxFuture, Transport};

use self::backlog::OutletBacklog;
pub(crate) use self::counts::UsageCounts;
use self::deliver::{Delivery, UsageParcel};
use self::file::FileWriter;
pub(crate) use self::settings::{UsageSettings, UsageSetupError};

/// A minute is taken so long after its end: most calls that began in it have ended by then.
const AFTER_THE_END: Duration = Duration::from_secs(2);
/// Requests may use all the time to drain: this is enough for a disk and a store that are well.
const END_MIN: Duration = Duration::from_secs(2);
/// Crossings that wait to be told. More are nothing to a person: the oldest go.
const CROSSINGS_MAX: usize = 1_000;

/// Seconds since 1970.
pub(crate) type UnixClock = dyn Fn() -> u64 + Send + Sync;

/// Where usage goes.
pub(crate) struct Usage {
    table: Arc<UsageTable>,
    history: Mutex<UsageHistory>,
    quotas: Mutex<QuotaWatch>,
    /// What is used of quotas, where callers are told apart.
    meters: OnceLock<Arc<MeterBook>>,
    clock: Arc<UnixClock>,
    counts: Arc<UsageCounts>,
    outlets: Outlets,
    /// Whether the outlets end when they have nothing left.
    closing: watch::Sender<bool>,
    /// Held for a tenth of a second at most, by one turn at a time.
    turning: Mutex<()>,
    /// The loops of the outlets before they run, and when they do.
    prepared: Mutex<Vec<BoxFuture<'static, ()>>>,
    running: tokio::sync::Mutex<JoinSet<()>>,
    drain: Duration,
}

/// Those that the settings ask for.
#[derive(Default)]
struct Outlets {
    file: Option<Arc<OutletBacklog<Arc<[UsageRow]>>>>,
    push: Option<Arc<OutletBacklog<UsageParcel>>>,
    webhook: Option<Arc<OutletBacklog<UsageParcel>>>,
}

impl std::fmt::Debug for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Usage").field("table", &self.table).finish_non_exhaustive()
    }
}

/// Ways out of this process, made by the settings or by a test.
#[derive(Default)]
pub(crate) struct UsageTransports {
    push: Option<Arc<dyn Transport>>,
    webhook: Option<Arc<dyn Transport>>,
}

impl Usage {
    /// Checks the settings; [`Self::run`] starts what they ask for.
    ///
    /// # Errors
    ///
    /// If a URL, table or credential cannot be used.
    pub(crate) fn new(
        settings: &UsageSettings,
        clock: Arc<UnixClock>,
    ) -> Result<Arc<Self>, UsageSetupError> {
        let transports = settings.transports()?;
        Ok(Self::with_transports(settings, clock, &transports))
    }

    fn with_transports(
        settings: &UsageSettings,
        clock: Arc<UnixClock>,
        transports: &UsageTransports,
    ) -> Arc<Self> {
        let table = Arc::new(UsageTable::new(&settings.run_name(clock())));
        let config = &settings.config;
        let outlets = Outlets {
            file: config.file.as_ref().map(|_| Arc::new(OutletBacklog::new(settings.backlog_rows))),
            push: config.push.as_ref().map(|_| Arc::new(OutletBacklog::new(settings.backlog_rows))),
            webhook: config.webhook.as_ref().map(|_| Arc::new(OutletBacklog::new(CROSSINGS_MAX))),
        };
        let usage = Arc::new(Self {
            table,
            history: Mutex::new(UsageHistory::new(UsageHistoryBounds::default())),
            quotas: Mutex::default(),
            meters: OnceLock::new(),
            clock,
            counts: Arc::default(),
            outlets,
            closing: watch::Sender::new(false),
            turning: Mutex::default(),
            prepared: Mutex::default(),
            running: tokio::sync::Mutex::default(),
            drain: settings.drain,
        });
        usage.prepare(settings, transports);
        usage
    }

    /// Makes the loops of the outlets; there is no runtime yet.
    fn prepare(&self, settings: &UsageSettings, transports: &UsageTransports) {
        let replica: Arc<str> = self.table.replica().into();
        let mut loops = self.prepared.lock();
        let counts = || Arc::clone(&self.counts);
        let closing = || self.closing.subscribe();
        if let (Some(backlog), Some(file)) = (&self.outlets.file, &settings.config.file) {
            let writer = FileWriter::new(file.clone(), &replica);
            loops.push(Box::pin(file::run(Arc::clone(backlog), writer, counts(), closing())));
        }
        for (backlog, transport, settings) in [
            (&self.outlets.push, &transports.push, settings.push_delivery()),
            (&self.outlets.webhook, &transports.webhook, settings.webhook_delivery()),
        ] {
            if let (Some(backlog), Some(transport), Some(settings)) = (backlog, transport, settings)
            {
                let delivery = Delivery {
                    backlog: Arc::clone(backlog),
                    transport: Arc::clone(transport),
                    settings,
                    replica: Arc::clone(&replica),
                    counts: counts(),
                    rng: SmallRng::from_os_rng(),
                };
                loops.push(Box::pin(delivery.run(closing())));
            }
        }
    }

    /// Tells of the quotas of these meters from now on.
    pub(crate) fn watch(&self, meters: &Arc<MeterBook>) {
        let _first = self.meters.set(Arc::clone(meters));
    }

    /// Where calls are counted.
    pub(crate) fn table(&self) -> &Arc<UsageTable> {
        &self.table
    }

    /// What became of rows so far.
    pub(crate) fn counts(&self) -> &UsageCounts {
        &self.counts
    }

    /// Takes each minute as it ends, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        self.start().await;
        loop {
            let into_minute = Duration::from_secs((self.clock)() % 60);
            let next = Duration::from_secs(60) + AFTER_THE_END;
            tokio::time::sleep(next.saturating_sub(into_minute)).await;
            let usage = Arc::clone(&self);
            // A full table takes a tenth of a second, which is too long for the control thread.
            let turned = tokio::task::spawn_blocking(move || usage.turn(usage.minute())).await;
            if let Err(error) = turned {
                tracing::error!(%error, "usage of a minute is lost");
            }
        }
    }

    async fn start(&self) {
        let mut running = self.running.lock().await;
        for outlet in self.prepared.lock().drain(..) {
            running.spawn(outlet);
        }
    }

    fn minute(&self) -> UsageMinute {
        UsageMinute::of(Duration::from_secs((self.clock)()))
    }

    /// Hands the rows of the minutes before `before` to all outlets.
    fn turn(&self, before: UsageMinute) {
        // The last turn waits for one under way, whose rows would else come when the outlets have ended.
        let _turning = self.turning.lock();
        let rows: Arc<[UsageRow]> = self.table.take_minute(before).into();
        self.history.lock().add(&rows, self.minute());
        let watched = self.meters.get();
        let crossings = watched.map(|book| self.quotas.lock().crossings(book, (self.clock)()));
        for crossing in crossings.into_iter().flatten() {
            let (tenant, percent) = (crossing.subject.tenant(), crossing.share.percent());
            tracing::info!(tenant, percent, period = %crossing.period, "a quota is used to this share");
            if let Some(backlog) = &self.outlets.webhook {
                self.counts.dropped_crossings(backlog.push(UsageParcel::Crossing(crossing), 1));
            }
        }
        if rows.is_empty() {
            return;
        }
        if let Some(backlog) = &self.outlets.file {
            self.counts.dropped_by_file(backlog.push(Arc::clone(&rows), rows.len()));
        }
        if let Some(backlog) = &self.outlets.push {
            let parcel = UsageParcel::Rows { range: 0..rows.len(), rows };
            let weight = parcel.weight();
            self.counts.dropped_by_push(backlog.push(parcel, weight));
        }
    }

    /// Hands out what is left, and waits for the outlets to take it: for what is left of the time to
    /// drain, of which requests used `used`, and at least [`END_MIN`].
    pub(crate) async fn end(&self, used: Duration) {
        self.start().await;
        self.turn(UsageMinute::MAX);
        self.closing.send_replace(true);
        let mut loops = self.running.lock().await;
        let all = async { while loops.join_next().await.is_some() {} };
        if tokio::time::timeout(self.drain.saturating_sub(used).max(END_MIN), all).await.is_err() {
            loops.abort_all();
            let file_rows = self.outlets.file.as_ref().map_or(0, |it| it.weight());
            let push_rows = self.outlets.push.as_ref().map_or(0, |it| it.weight());
            tracing::warn!(
                file_rows,
                push_rows,
                "usage could not be handed out in the time to drain: these rows and those on their way are lost"
            );
        }
    }

    /// Answers `GET /usage?from=&to=&by=&format=`.
    pub(crate) fn page(&self, query: &str) -> UsageReport {
        page::page(&self.history, (self.clock)(), query)
    }
}

#[cfg(test)]
mod tests;
