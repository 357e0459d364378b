//! The keys in Redis, followed.
//!
//! Each entry of the directory is a key, as a line of a file of keys would hold it. One that cannot be read is
//! told and left out: it must not keep the others from being used, nor from being revoked.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use tokio::time::{MissedTickBehavior, interval};
use wellhead_access::KeyRecord;
use wellhead_dispatch::now;
use wellhead_store::{DirectoryBounds, KeyDirectory, KeySnapshot};
use wellhead_telemetry::clock;

use super::snapshot_age::SnapshotAge;
use super::{CallerControl, KeyOrigin};
use crate::config::SharedStore;

/// How often it is asked whether the keys are too old.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Problems of keys that are told at once; more are only counted.
const PROBLEMS_TOLD: usize = 10;

/// Begins to read the directory, in a task of this runtime. `None`: the URL is none of a Redis, which is told.
pub(crate) fn open(settings: &SharedStore, rng: SmallRng) -> Option<KeyDirectory> {
    let cluster = settings.cluster.as_ref().to_owned();
    let bounds = DirectoryBounds { cluster, ..DirectoryBounds::default() };
    let directory =
        KeyDirectory::start(&settings.redis, bounds, Arc::new(clock::unix_seconds), rng);
    directory.inspect_err(|error| tracing::error!(%error, "the keys in Redis cannot be read")).ok()
}

/// Takes the keys of the directory, and each change of them, until it is dropped. `stale_max`: after this time
/// without a look into Redis they are not used.
pub(crate) async fn follow(
    control: Arc<CallerControl>,
    directory: KeyDirectory,
    stale_max: Duration,
) {
    let mut entries = directory.entries();
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
