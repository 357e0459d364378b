//! The keys in Redis, followed.
//!
//! Each entry of the directory is a key, as a line of a file of keys would hold it. One that cannot be read is
//! told and left out: it must not keep the others from being used, nor from being revoked.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rand::rngs::SmallRng;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use wellhead_access::KeyRecord;
use wellhead_dispatch::now;
use wellhead_store::{DirectoryBounds, DirectoryError, DirectoryWriter, KeyDirectory, KeySnapshot};
use wellhead_telemetry::clock;

use super::snapshot_age::SnapshotAge;
use super::{CallerControl, KeyOrigin};
use crate::config::SharedStore;

/// How often it is asked whether the keys are too old.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Problems of keys that are told at once; more are only counted.
const PROBLEMS_TOLD: usize = 10;

/// A change that was made in Redis is followed after this time, or the connection on which it would be heard of is
/// broken.
const TAKEN_WITHIN: Duration = Duration::from_secs(2);

/// The keys in Redis: which of them are in use here, and the way to change them.
#[derive(Default)]
pub(crate) struct RedisKeys {
    /// From the start of the control loops on.
    directory: OnceLock<KeyDirectory>,
    /// The keys that were taken into use last.
    taken: watch::Sender<Option<Arc<KeySnapshot>>>,
}

impl fmt::Debug for RedisKeys {
    /// Without the hashes of keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisKeys").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl RedisKeys {
    /// Begins to read the directory, in a task of this runtime. `None`: the URL is none of a Redis, which is told.
    pub(crate) fn open(&self, settings: &SharedStore, rng: SmallRng) -> Option<&KeyDirectory> {
        let cluster = settings.cluster.as_ref().to_owned();
        let bounds = DirectoryBounds { cluster, ..DirectoryBounds::default() };
        match KeyDirectory::start(&settings.redis, bounds, Arc::new(clock::unix_seconds), rng) {
            Ok(directory) => Some(self.directory.get_or_init(|| directory)),
            Err(error) => {
                tracing::error!(%error, "the keys in Redis cannot be read");
                None
            }
        }
    }

    /// What changes the keys, one by one.
    pub(crate) async fn writer(&self) -> Result<DirectoryWriter, DirectoryError> {
        match self.directory.get() {
            Some(directory) => directory.writer().await,
            None => Err(DirectoryError::Away),
        }
    }

    /// Waits until the keys in use are `so`, for [`TAKEN_WITHIN`]; says whether they are.
    pub(crate) async fn until_taken(&self, so: impl Fn(&KeySnapshot) -> bool) -> bool {
        let mut taken = self.taken.subscribe();
        let so = taken.wait_for(|taken| taken.as_ref().is_some_and(|keys| so(keys)));
        timeout(TAKEN_WITHIN, so).await.is_ok_and(|seen| seen.is_ok())
    }
}

/// Takes the keys of the directory, and each change of them, until it is dropped. `stale_max`: after this time
/// without a look into Redis they are not used.
pub(crate) async fn follow(control: Arc<CallerControl>, keys: Arc<RedisKeys>, stale_max: Duration) {
    let Some(mut entries) = keys.directory.get().map(KeyDirectory::entries) else { return };
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: Option<Arc<KeySnapshot>> = None;
    let mut age = SnapshotAge::new(stale_max);
    loop {
        tokio::select! {
            changed = entries.changed() => {
                // Its sender lives as long as the directory.
                if changed.is_err() {
                    return;
                }
            }
            _ = looks.tick() => {}
        }
        let Some(snapshot) = entries.borrow_and_update().clone() else { continue };
        let is_known = known.as_ref().is_some_and(|known| known.has_entries_of(&snapshot));
        if !is_known {
            let (control, snapshot) = (Arc::clone(&control), Arc::clone(&snapshot));
            // A hundred thousand keys take a moment, and this thread has other things to do.
            let taken = tokio::task::spawn_blocking(move || take(&control, &snapshot)).await;
            if let Err(error) = taken {
                tracing::error!(%error, "the keys in Redis cannot be used");
                continue;
            }
        }
        age.hear(snapshot.read_at);
        control.set_stale(KeyOrigin::Redis, age.is_stale(now()));
        keys.taken.send_replace(Some(Arc::clone(&snapshot)));
        known = Some(snapshot);
    }
}

fn take(control: &CallerControl, snapshot: &KeySnapshot) {
    let (records, mut problems) = records(snapshot);
    let count = records.len();
    problems.extend(control.take_keys(KeyOrigin::Redis, records));
    for problem in problems.iter().take(PROBLEMS_TOLD) {
        tracing::error!(%problem, "a key in Redis is invalid and not used");
    }
    tracing::info!(keys = count, problems = problems.len(), "the keys in Redis were read");
}

/// The keys by their ids, so that of two the first is the same at all replicas, and what is wrong with some.
fn records(snapshot: &KeySnapshot) -> (Vec<KeyRecord>, Vec<String>) {
    let mut entries: Vec<_> = snapshot.iter().collect();
    entries.sort_unstable_by_key(|(id, _)| *id);
    let (mut records, mut problems) = (Vec::with_capacity(entries.len()), Vec::new());
    for (id, value) in entries {
        let text = std::str::from_utf8(value).map_err(|_| "it is no text".to_owned());
        match text.and_then(KeyRecord::parse) {
            Ok(record) if record.id.to_string() == id => records.push(record),
            Ok(_) => problems.push(format!("`{id}`: its value is a key of another id")),
            Err(problem) => problems.push(format!("`{id}`: {problem}")),
        }
    }
    (records, problems)
}
