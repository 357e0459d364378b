//! The file of keys, looked at again and again.
//!
//! A changed file is read as a whole, and its keys are taken together. A Kubernetes Secret is a link that is
//! replaced, so the content is compared, not the time of the file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use wellhead_access::KeyRecord;

use super::{CallerControl, KeyOrigin};
use crate::config::read_keys;

/// A change is in use after this time at most.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Looks at the file until it is dropped. `stale_max`: after this time without a good reading, keys are
/// refused.
pub(crate) async fn watch(control: Arc<CallerControl>, path: PathBuf, stale_max: Duration) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut known, mut told, mut read_at) = (None, Vec::new(), tokio::time::Instant::now());
    loop {
        looks.tick().await;
        let from = path.clone();
        // Files may lie on a disk that hangs.
        let read = tokio::task::spawn_blocking(move || read_keys(&from)).await;
        match read {
            Ok(Ok(records)) => {
                read_at = tokio::time::Instant::now();
                control.set_stale(false);
                if known.as_ref() != Some(&records) {
                    take(&control, records.clone());
                    known = Some(records);
                }
                told.clear();
            }
            Ok(Err(problems)) => {
                if told != problems {
                    for problem in &problems {
                        tracing::error!(%problem, "the file of keys is invalid; keeping the keys in use");
                    }
                    told = problems;
                }
                control.set_stale(read_at.elapsed() > stale_max);
            }
            Err(error) => tracing::error!(%error, "the file of keys cannot be read"),
        }
    }
}

fn take(control: &CallerControl, records: Vec<KeyRecord>) {
    let count = records.len();
    for problem in control.take_keys(KeyOrigin::File, records) {
        tracing::error!(%problem, "a key of the file is invalid and not used");
    }
    tracing::info!(keys = count, "the file of keys was read");
}
