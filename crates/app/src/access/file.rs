//! The file of keys, looked at again and again.
//!
//! A changed file is read as a whole, and its keys are taken together. A Kubernetes Secret is a link that is
//! replaced, so the content is compared, not the time of the file.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;
use wellhead_access::KeyRecord;
use wellhead_dispatch::now;

use super::snapshot_age::SnapshotAge;
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
    let (known, mut told) = (Arc::new(Mutex::new(None)), Vec::new());
    let mut age = SnapshotAge::new(stale_max);
    if !control.is_stale(KeyOrigin::File) {
        age.hear(now());
    }
    loop {
        looks.tick().await;
        let (from, own, known) = (path.clone(), Arc::clone(&control), Arc::clone(&known));
        let begun = now();
        // Files may lie on a disk that hangs: then their keys grow old meanwhile.
        let look = tokio::task::spawn_blocking(move || look(&own, &from, &mut known.lock()));
        match growing_old(&control, &age, look).await {
            Ok(FileLook::Invalid(problems)) => {
                if told != problems {
                    for problem in &problems {
                        tracing::error!(%problem, "the file of keys is invalid; keeping the keys in use");
                    }
                    told = problems;
                }
            }
            Ok(look) => {
                age.hear(begun);
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
        control.set_stale(KeyOrigin::File, age.is_stale(now()));
    }
}

/// What comes of `work`, which may hang: while it does, the keys are told stale when their time has come.
async fn growing_old<T>(
    control: &CallerControl,
    age: &SnapshotAge,
    work: impl Future<Output = T>,
) -> T {
    let mut work = pin!(work);
    let mut checks = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = checks.tick() => {
                if age.is_stale(now()) {
                    control.set_stale(KeyOrigin::File, true);
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::plan;
    use crate::config;

    const STALE_MAX: Duration = Duration::from_secs(60);

    fn control() -> Arc<CallerControl> {
        let yaml = "access: { keys: { file: keys.jsonl } }\nchains: { main: { id: 1, upstreams: [{ url: 'http://a' }] } }";
        let settings = config::sound(yaml);
        plan(&settings, None, now()).expect("they fit together").expect("callers").control
    }

    /// A disk that hangs says nothing of its keys, as one that fails: they are used up to the bound and not
    /// beyond it, and again from the first good reading on.
    #[tokio::test(start_paused = true)]
    async fn keys_of_a_file_whose_disk_hangs_grow_old() {
        let control = control();
        let _ = control.take_keys(KeyOrigin::File, Vec::new());
        let mut age = SnapshotAge::new(STALE_MAX);
        age.hear(now());
        let (hangs, ends) = tokio::sync::oneshot::channel::<()>();
        let own = Arc::clone(&control);
        let watched = tokio::spawn(async move { growing_old(&own, &age, ends).await });
        tokio::time::sleep(STALE_MAX - Duration::from_secs(1)).await;
        assert!(!control.is_stale(KeyOrigin::File));
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert!(control.is_stale(KeyOrigin::File) && control.has_stale_source());
        hangs.send(()).expect("it is waited for");
        watched.await.expect("no panic").expect("it ended");
    }
}
