//! A directory of entries that all replicas read, above all the keys of callers: an id, and bytes
//! that mean nothing here.
//!
//! In the store it is the hash `wh:{cluster}:keys`. Each change counts up
//! `wh:{cluster}:keys:version` and is published with its number on `wh:{cluster}:keys:changes`, in
//! one script (`writer`). A reader that hears the next number fetches that entry; one that finds a number
//! missing reads all. The number is looked at each [`DirectoryBounds::look_every`], and everything
//! is read each [`DirectoryBounds::read_every`] anyway.
//!
//! A reader has a [`KeySnapshot`] as of its last successful look. While the store is away it stays
//! as it is; for how long that will do is for the caller to say. A store that has lost its data,
//! which shows by a number that is gone, counts as away: an empty server after a restart revokes no
//! key. Nor is it written to then: its entries would be the directory from there on, and all others gone. A
//! replica that starts takes it as it is, and can write to it.

mod entries;
mod writer;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::rngs::SmallRng;
use redis::{AsyncConnectionConfig, Client};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};
use wellhead_telemetry::SecretUrl;

pub use self::entries::KeySnapshot;
pub use self::writer::{DirectoryEntry, DirectoryError, DirectoryWrite, DirectoryWriter};

use self::entries::{DirectoryReadError, DirectorySource, EntryChange};
use self::writer::ID_MAX;
use crate::reconnect::{self, KeptConnection, LinkEnd, Reconnect};
use crate::shared::link;
use crate::subscription::ChannelSubscription;
use crate::{AbortOnDrop, Clock, NotRedis};

/// What a directory may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryBounds {
    /// What the replicas have in common. No braces.
    pub cluster: String,
    /// Entries; a further one is refused, and more that others have put are not read.
    pub entries_max: usize,
    /// Bytes of an entry; larger ones are refused, and left out of what is read.
    pub value_bytes_max: usize,
    /// Bytes of all entries; beyond it a read fails.
    pub bytes_max: usize,
    /// How often all is read.
    pub read_every: Duration,
    /// How often the number of the last change is looked at.
    pub look_every: Duration,
    /// How long connecting and each answer may take.
    pub answer_within: Duration,
    /// The pause after the first failure; it doubles with each.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for DirectoryBounds {
    fn default() -> Self {
        Self {
            cluster: "wellhead".to_owned(),
            entries_max: 100_000,
            value_bytes_max: 4 << 10,
            bytes_max: 128 << 20,
            read_every: Duration::from_secs(60),
            look_every: Duration::from_secs(1),
            answer_within: Duration::from_secs(1),
            pause_min: Duration::from_millis(100),
            // Short enough to hear of a change soon after the store is back.
            pause_max: Duration::from_secs(1),
        }
    }
}

/// How a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryStatus {
    /// Since when the store is away, in seconds since 1970; `None`: it is there.
    pub away_since: Option<u64>,
    /// Full reads.
    pub reads: u64,
    /// Changes that came by themselves.
    pub changes: u64,
    /// Entries left out at the last full read, because they are too large or too many.
    pub left_out: u64,
}

/// Changes that wait; with more, all is read.
const CHANGES_MAX: usize = 4096;

/// Reads and writes the directory; clones share it. The task ends with the last one.
#[derive(Clone)]
pub struct KeyDirectory {
    core: Arc<DirectoryCore>,
    client: Client,
    _closer: Arc<AbortOnDrop>,
}

struct DirectoryCore {
    snapshot: watch::Sender<Option<Arc<KeySnapshot>>>,
    bounds: DirectoryBounds,
    unix: Clock,
    /// A change was made from here. It may not have been read back yet.
    was_changed: AtomicBool,
    is_away: AtomicBool,
    away_since: AtomicU64,
    reads: AtomicU64,
    changes: AtomicU64,
    left_out: AtomicU64,
}

impl KeyDirectory {
    /// Begins to read, in a task of this runtime.
    ///
    /// `unix` tells seconds since 1970, for the status alone; `rng` spreads the attempts of replicas.
    pub fn start(
        url: &SecretUrl,
        bounds: DirectoryBounds,
        unix: Clock,
        rng: SmallRng,
    ) -> Result<Self, NotRedis> {
        let client = link::subscriber(url).map_err(|_| NotRedis)?;
        let core = Arc::new(DirectoryCore {
            snapshot: watch::Sender::new(None),
            was_changed: AtomicBool::new(false),
            is_away: AtomicBool::new(true),
            away_since: AtomicU64::new(unix()),
            bounds,
            unix,
            reads: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        });
        let (place, reader) = (url.clone(), client.clone());
        let task = DirectoryReader { core: Arc::clone(&core), client: reader, place };
        let reconnect = Reconnect::new(core.bounds.pause_min, core.bounds.pause_max);
        Ok(Self { core, client, _closer: reconnect::keep(task, reconnect, rng) })
    }

    /// The entries as of the last look, and each change of them; `None` before the first.
    ///
    /// A look that finds nothing new changes only [`KeySnapshot::read_at`], and is told too.
    pub fn entries(&self) -> watch::Receiver<Option<Arc<KeySnapshot>>> {
        self.core.snapshot.subscribe()
    }

    /// What changes entries. Connects anew, within [`DirectoryBounds::answer_within`].
    pub async fn writer(&self) -> Result<DirectoryWriter, DirectoryError> {
        let (core, config) = (Arc::clone(&self.core), AsyncConnectionConfig::new());
        let connecting = link::connect(&self.client, &config, core.bounds.answer_within);
        let connection = Box::pin(connecting).await.map_err(|_| DirectoryError::Away)?;
        // After a restore of older data there are fewer changes than are known here, but there are some.
        let version_min = u64::from(core.knows_changes());
        Ok(DirectoryWriter { connection, core, version_min })
    }

    /// How it is.
    pub fn status(&self) -> DirectoryStatus {
        let core = &self.core;
        let is_away = core.is_away.load(Relaxed);
        DirectoryStatus {
            away_since: is_away.then(|| core.away_since.load(Relaxed)),
            reads: core.reads.load(Relaxed),
            changes: core.changes.load(Relaxed),
            left_out: core.left_out.load(Relaxed),
        }
    }
}

impl fmt::Debug for KeyDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyDirectory").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl DirectoryCore {
    /// Changes were read, or made from here: a store that has none has lost its data.
    fn knows_changes(&self) -> bool {
        let was_read = self.snapshot.borrow().as_ref().is_some_and(|known| known.version > 0);
        was_read || self.was_changed.load(Relaxed)
    }
}

impl DirectoryBounds {
    fn hash(&self) -> String {
        format!("wh:{{{}}}:keys", self.cluster)
    }

    fn version(&self) -> String {
        format!("wh:{{{}}}:keys:version", self.cluster)
    }

    fn channel(&self) -> String {
        format!("wh:{{{}}}:keys:changes", self.cluster)
    }
}

/// The task: it reads, listens and looks.
struct DirectoryReader {
    core: Arc<DirectoryCore>,
    client: Client,
    /// Prints without its secrets.
    place: SecretUrl,
}

impl KeptConnection for DirectoryReader {
    async fn serve(&mut self) -> Result<LinkEnd, &'static str> {
        let since = Instant::now();
        let reason = self.connect_and_read().await;
        if self.core.is_away.swap(true, Relaxed) {
            return Err(reason);
        }
        self.core.away_since.store((self.core.unix)(), Relaxed);
        Ok(LinkEnd { since, reason })
    }

    fn log_away(&self, reason: &'static str) {
        warn!(redis = %self.place, reason, "the directory of keys cannot be read: it stays as it was");
    }
}

impl DirectoryReader {
    /// Until the connection is over or a read fails; returns why.
    async fn connect_and_read(&self) -> &'static str {
        let bounds = &self.core.bounds;
        let channel = bounds.channel();
        let opened = ChannelSubscription::open(
            &self.client,
            &channel,
            bounds.answer_within,
            CHANGES_MAX,
            ID_MAX + 32,
        );
        let mut subscription = match opened.await {
            Ok(subscription) => subscription,
            Err(reason) => return reason,
        };
        match self.read_on(&mut subscription).await {
            DirectoryReadError::Away(reason) => reason,
            DirectoryReadError::Lost => "its data is gone: restore it",
            DirectoryReadError::TooLarge => "the entries have more bytes than may be read",
        }
    }

    async fn read_on(&self, subscription: &mut ChannelSubscription) -> DirectoryReadError {
        let connection = subscription.connection.clone();
        let source = DirectorySource { connection, bounds: &self.core.bounds };
        loop {
            // What is published from here on is heard; what was before is read.
            let mut snapshot = match self.read_all(&source).await {
                Ok(snapshot) => snapshot,
                Err(error) => return error,
            };
            let next_read = Instant::now() + self.core.bounds.read_every;
            loop {
                match self.follow(subscription, &source, &mut snapshot, next_read).await {
                    Ok(Followed::On) => {}
                    Ok(Followed::ReadAll) => break,
                    Err(error) => return error,
                }
            }
        }
    }

    async fn read_all(
        &self,
        source: &DirectorySource<'_>,
    ) -> Result<Arc<KeySnapshot>, DirectoryReadError> {
        // Before it is asked: what it answers may be as old as the question.
        let (knows_changes, read_at) = (self.core.knows_changes(), Instant::now().into_std());
        let version = source.version().await?;
        if version == 0 && knows_changes {
            return Err(DirectoryReadError::Lost);
        }
        let (entries, left_out) = source.read().await?;
        self.core.reads.fetch_add(1, Relaxed);
        self.core.left_out.store(left_out, Relaxed);
        let snapshot = KeySnapshot { entries, version, read_at };
        Ok(self.publish(snapshot))
    }

    /// The next change or the next look.
    async fn follow(
        &self,
        subscription: &mut ChannelSubscription,
        source: &DirectorySource<'_>,
        snapshot: &mut Arc<KeySnapshot>,
        next_read: Instant,
    ) -> Result<Followed, DirectoryReadError> {
        let look = Instant::now() + self.core.bounds.look_every;
        let mut changes = Vec::new();
        tokio::select! {
            received = subscription.messages.recv_many(&mut changes, CHANGES_MAX) => {
                if received == 0 {
                    return Err(DirectoryReadError::Away("the connection broke"));
                }
            }
            () = sleep_until(look.min(next_read)) => {}
        }
        let read_at = Instant::now().into_std();
        // The number is asked for after what was heard: all up to it have been heard too.
        let version = source.version().await?;
        while let Ok(change) = subscription.messages.try_recv() {
            changes.push(change);
        }
        if subscription.take_lost() || Instant::now() >= next_read || version < snapshot.version {
            return Ok(Followed::ReadAll);
        }
        let Some(ids) = EntryChange::successors(&changes, snapshot.version, version) else {
            return Ok(Followed::ReadAll);
        };
        let mut next = KeySnapshot { read_at, ..KeySnapshot::clone(snapshot) };
        if let Some(last) = ids.last() {
            next.version = last.version;
            source.fetch(&ids, &mut next).await?;
            self.core.changes.fetch_add(ids.len() as u64, Relaxed);
        }
        *snapshot = self.publish(next);
        Ok(Followed::On)
    }

    fn publish(&self, snapshot: KeySnapshot) -> Arc<KeySnapshot> {
        let snapshot = Arc::new(snapshot);
        self.core.snapshot.send_replace(Some(Arc::clone(&snapshot)));
        if self.core.is_away.swap(false, Relaxed) {
            info!(redis = %self.place, entries = snapshot.len(), "the directory of keys is read");
        }
        snapshot
    }
}

enum Followed {
    On,
    ReadAll,
}
