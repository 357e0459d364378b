//! The file of keys, looked at again and again.
//!
//! A changed file is read as a whole, and its keys are taken together. A Kubernetes Secret is a link that is
//! replaced, so the content is compared, not the time of the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use wellhead_access::KeyRecord;

use super::{CallerControl, KeyOrigin};
use crate::config::read_keys;

/// A change is in use after this time at most.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Reads the file before the first request, so that no key is refused at the start. Its problems are told by
/// [`watch`], which reads it again.
pub(crate) fn begin(control: &CallerControl, path: &Path) {
    if let Ok(records) = read_keys(path) {
        // Told with the next reading.
        let _ = control.take_keys(KeyOrigin::File, records);
    }
}

/// What was found when the file was looked at.
enum FileLook {
    /// What is in use.
    Unchanged,
    /// These are in use now, but for those with a problem.
    Taken(usize, Vec<String>),
    /// Nothing of it is used.
    Invalid(Vec<String>),
}

/// Looks at the file until it is dropped. `stale_max`: after this time without a good reading, its keys
/// are not used.
pub(crate) async fn watch(control: Arc<CallerControl>, path: PathBuf, stale_max: Duration) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let known = Arc::new(Mutex::new(None));
    let (mut told, mut read_at) = (Vec::new(), tokio::time::Instant::now());
    let mut was_read = !control.is_stale(KeyOrigin::File);
    loop {
        looks.tick().await;
        let (from, own, known) = (path.clone(), Arc::clone(&control), Arc::clone(&known));
        // Files may lie on a disk that hangs.
        let look = move || look(&own, &from, &mut known.lock());
        match tokio::task::spawn_blocking(look).await {
            Ok(FileLook::Invalid(problems)) => {
                if told != problems {
                    for problem in &problems {
                        tracing::error!(%problem, "the file of keys is invalid; keeping the keys in use");
                    }
                    told = problems;
                }
                // Before the first good reading its keys are not known, which is no better.
                let is_stale = !was_read || read_at.elapsed() > stale_max;
                control.set_stale(KeyOrigin::File, is_stale);
            }
            Ok(look) => {
                read_at = tokio::time::Instant::now();
                was_read = true;
                control.set_stale(KeyOrigin::File, false);
                told.clear();
                if let FileLook::Taken(keys, problems) = look {
                    for problem in problems {
                        tracing::error!(%problem, "a key of the file is invalid and not used");
                    }
                    tracing::info!(keys, "the file of keys was read");
                }
            }
            Err(error) => tracing::error!(%error, "the file of keys cannot be read"),
        }
    }
}

fn look(control: &CallerControl, path: &Path, known: &mut Option<Vec<KeyRecord>>) -> FileLook {
    // What an admin action writes meanwhile must not be undone by what was read before it.
    let _turn = control.file_turn();
    match read_keys(path) {
        Ok(records) if known.as_ref() == Some(&records) => FileLook::Unchanged,
        Ok(records) => {
            let problems = control.take_keys(KeyOrigin::File, records.clone());
            let count = records.len();
            *known = Some(records);
            FileLook::Taken(count, problems)
        }
        Err(problems) => FileLook::Invalid(problems),
    }
}
