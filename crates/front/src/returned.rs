//! What is told of keys that a source brings back from an earlier time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use wellhead_access::{FollowedKeys, KeyReturn};

use crate::origin::KeyOrigin;

/// Keys of one change that have a line each; more are only counted.
const KEYS_TOLD: usize = 20;

/// Keys that came back, by what they were.
#[derive(Debug, Default)]
pub struct ReturnedCounts([AtomicU64; KeyReturn::ALL.len()]);

impl ReturnedCounts {
    /// How many came back so.
    pub fn of(&self, why: KeyReturn) -> u64 {
        self.0[why as usize].load(Relaxed)
    }
}

/// Counts and tells what `source` brings back.
pub(crate) fn tell(source: KeyOrigin, followed: &FollowedKeys, counts: &ReturnedCounts) {
    let FollowedKeys { returned, is_earlier, .. } = followed;
    for (_, why) in returned {
        counts.0[*why as usize].fetch_add(1, Relaxed);
    }
    let source = source.word();
    for (id, why) in returned.iter().take(KEYS_TOLD) {
        let (outcome, reason) = (if why.is_refused() { "denied" } else { "done" }, why.word());
        tracing::warn!(
            target: "audit",
            action = "key.return", subject = %id, actor = source, outcome, reason,
            "a key came back"
        );
    }
    let refused = returned.iter().filter(|(_, why)| why.is_refused()).count();
    let used = returned.len() - refused;
    if refused > 0 {
        tracing::error!(
            source,
            keys = refused,
            "keys that were revoked, or secrets that were replaced, came back: they are not valid. Was an old copy restored?"
        );
    }
    if used > 0 {
        tracing::warn!(
            source,
            keys = used,
            "keys that had been taken out came back and are valid. Was an old copy restored?"
        );
    }
    if *is_earlier {
        tracing::warn!(
            source,
            "the keys, their rights and their ends are those of an earlier time. Was an old copy restored?"
        );
    }
}
