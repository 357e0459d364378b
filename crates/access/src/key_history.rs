//! What was known of the keys of one source, so that an older copy of them is told from a newer one.
//!
//! A file that is restored from a backup, and a store that comes back with the data of yesterday, bring back
//! keys that were revoked and secrets that were replaced. Both are for good, so no change brings them
//! back: what was known stays. A key that was taken out and is there again may have been put back by its
//! owner; it is used, and told.
//!
//! It is known as long as the process runs, and no longer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash as _;

use xxhash_rust::xxh3::Xxh3;

use crate::key::KeyId;
use crate::key_hash::KeyHash;
use crate::key_record::{KeyRecord, PreviousHash};

/// Keys that were taken out and are remembered at most; those beyond are not known again.
const REMOVED_MAX: usize = 100_000;
/// Replaced secrets of one key that are remembered, the latest ones.
const REPLACED_MAX: usize = 8;
/// Contents that are known again, the latest ones.
const CONTENTS_MAX: usize = 64;

/// The keys of one source, as they followed each other.
#[derive(Debug, Default)]
pub struct KeyHistory {
    /// As they were when they were taken out.
    removed: HashMap<KeyId, KeyRecord>,
    replaced: HashMap<KeyId, VecDeque<KeyHash>>,
    /// Digests, the latest last.
    contents: VecDeque<u64>,
    /// Keys that were kept as they are, and told.
    told: HashSet<KeyId>,
}

/// What a source brings back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyReturn {
    /// A key that was revoked: it stays revoked.
    Revoked,
    /// A secret that was replaced: the one after it stays.
    Replaced,
    /// A key that was taken out: it is used.
    Removed,
}

impl KeyReturn {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Revoked, Self::Replaced, Self::Removed];

    /// As metrics and the log call it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Revoked => "revoked",
            Self::Replaced => "replaced",
            Self::Removed => "removed",
        }
    }

    /// Whether what was known stays in the place of what came.
    pub fn is_refused(self) -> bool {
        match self {
            Self::Revoked | Self::Replaced => true,
            Self::Removed => false,
        }
    }
}

/// The keys of a source after a change.
#[derive(Debug, PartialEq, Eq)]
pub struct FollowedKeys {
    /// Those to be used.
    pub records: Vec<KeyRecord>,
    /// What it brings back and was not told before.
    pub returned: Vec<(KeyId, KeyReturn)>,
    /// Whether all of it is as it was once before, with something else since.
    pub is_earlier: bool,
}

impl KeyHistory {
    /// What to use of `new`, which came after `old`: the records that the last call returned.
    pub fn follow(&mut self, old: &[KeyRecord], new: Vec<KeyRecord>) -> FollowedKeys {
        let is_earlier = self.note_content(&new);
        let mut before = HashMap::with_capacity(old.len());
        for record in old {
            // Of two with one id the first counts.
            before.entry(record.id).or_insert(record);
        }
        let (mut records, mut returned) = (Vec::with_capacity(new.len()), Vec::new());
        for record in new {
            let removed = self.removed.remove(&record.id);
            let known = before.remove(&record.id).or(removed.as_ref());
            let id = record.id;
            let (record, why) = self.newer(known, record);
            let why = why.or(removed.map(|_| KeyReturn::Removed));
            match why {
                Some(why) => {
                    let is_news = !why.is_refused() || self.told.insert(id);
                    returned.extend(is_news.then_some((id, why)));
                }
                None => drop(self.told.remove(&id)),
            }
            records.push(record);
        }
        for (id, record) in before {
            if self.removed.len() < REMOVED_MAX {
                self.removed.insert(id, record.clone());
            }
        }
        FollowedKeys { records, returned, is_earlier }
    }

    /// Of what is known of a key and what came of it, the one that is newer.
    fn newer(
        &mut self,
        known: Option<&KeyRecord>,
        mut record: KeyRecord,
    ) -> (KeyRecord, Option<KeyReturn>) {
        let Some(known) = known else { return (record, None) };
        if known.hash != record.hash {
            let is_previous = known.previous.is_some_and(|it| it.hash == record.hash);
            let replaced = self.replaced.entry(record.id).or_default();
            if is_previous || replaced.contains(&record.hash) {
                return (known.clone(), Some(KeyReturn::Replaced));
            }
            if replaced.len() == REPLACED_MAX {
                replaced.pop_front();
            }
            replaced.push_back(known.hash);
        }
        match (known.revoked_at, record.revoked_at) {
            (Some(at), None) => {
                record.revoked_at = Some(at);
                (record, Some(KeyReturn::Revoked))
            }
            (Some(at), Some(later)) => {
                // Nor is it valid for another while.
                record.revoked_at = Some(at.min(later));
                (record, None)
            }
            (None, _) => (record, None),
        }
    }

    /// Remembers a content, and says whether it was there before the last one.
    fn note_content(&mut self, records: &[KeyRecord]) -> bool {
        let mut hasher = Xxh3::new();
        records.iter().for_each(|record| digest_record(record, &mut hasher));
        let digest = hasher.digest();
        if self.contents.back() == Some(&digest) {
            return false;
        }
        let is_earlier = self.contents.contains(&digest);
        if self.contents.len() == CONTENTS_MAX {
            self.contents.pop_front();
        }
        self.contents.push_back(digest);
        is_earlier
    }
}

/// What is for people alone is left out.
fn digest_record(record: &KeyRecord, hasher: &mut Xxh3) {
    let KeyRecord { id, hash, tenant, note: _, quota, rights, .. } = record;
    let KeyRecord { created_at: _, expires_at, previous, revoked_at, .. } = record;
    (id, tenant, quota, rights, expires_at, revoked_at).hash(hasher);
    hasher.update(hash.as_bytes());
    if let Some(PreviousHash { hash, valid_until }) = previous {
        valid_until.hash(hasher);
        hasher.update(hash.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_hash::Pepper;
    use crate::unix_seconds::UnixSeconds;

    /// `a:1`: the key `a` with its first secret; `a:2<1`: its second, while the first is valid; `a:1!9`: revoked
    /// at 9.
    fn record(text: &str) -> KeyRecord {
        let (text, revoked) = text
            .split_once('!')
            .map_or((text, None), |(text, at)| (text, Some(UnixSeconds(at.parse().unwrap()))));
        let (id, secrets) = text.split_once(':').unwrap();
        let (secret, previous) =
            secrets.split_once('<').map_or((secrets, None), |(new, old)| (new, Some(old)));
        let hash = |secret: &str| Pepper::well_known().hash(secret);
        let id = id.repeat(8).parse().unwrap();
        let mut record = KeyRecord::new(id, hash(previous.unwrap_or(secret)), "acme");
        if previous.is_some() {
            record.rotate(hash(secret), UnixSeconds(99));
        }
        record.revoked_at = revoked;
        record
    }

    fn records(text: &str) -> Vec<KeyRecord> {
        text.split_whitespace().map(record).collect()
    }

    /// The contents follow each other; the last leads to these keys, and to these words.
    #[track_caller]
    fn check(contents: &[&str], used: &str, told: &str) {
        let (mut history, mut followed) = (KeyHistory::default(), None::<FollowedKeys>);
        for content in contents {
            let old = followed.take().map_or_else(Vec::new, |it| it.records);
            followed = Some(history.follow(&old, records(content)));
        }
        let FollowedKeys { records: found, returned, is_earlier } = followed.unwrap();
        assert_eq!(found, records(used), "{contents:?}");
        let words =
            returned.iter().map(|(id, why)| format!("{}:{}", &id.as_str()[..1], why.word()));
        let words: Vec<_> = words.chain(is_earlier.then(|| "earlier".to_owned())).collect();
        assert_eq!(words.join(" "), told, "{contents:?}");
    }

    #[test]
    fn what_goes_on_is_not_told() {
        check(&["a:1 b:1"], "a:1 b:1", "");
        check(&["a:1 b:1", "a:1 b:1"], "a:1 b:1", "");
        check(&["", "a:1"], "a:1", "");
        check(&["a:1", "a:1!9"], "a:1!9", "");
        check(&["a:1", "a:2<1", "a:2", "a:3<2"], "a:3<2", "");
        check(&["a:1 b:1", "a:1"], "a:1", "");
        check(&["a:1", "b:1 a:1"], "b:1 a:1", "");
    }

    #[test]
    fn a_revoked_key_stays_revoked() {
        check(&["a:1", "a:1!9", "a:1"], "a:1!9", "a:revoked earlier");
        check(&["a:1!9 b:1", "a:1 b:1 c:1"], "a:1!9 b:1 c:1", "a:revoked");
        // Told once, until it is revoked where it comes from too.
        check(&["a:1!9", "a:1", "a:1 b:1"], "a:1!9 b:1", "");
        check(&["a:1!9", "a:1", "a:1!9", "a:1"], "a:1!9", "a:revoked earlier");
        // Nor does it help to take it out first.
        check(&["a:1!9", "", "a:1"], "a:1!9", "a:revoked");
        check(&["a:1!9", "a:1!50"], "a:1!9", "");
        check(&["a:1!9", "a:1!5"], "a:1!5", "");
    }

    #[test]
    fn a_replaced_secret_stays_replaced() {
        check(&["a:1", "a:2<1", "a:1"], "a:2<1", "a:replaced earlier");
        check(&["a:2<1", "a:1 b:1"], "a:2<1 b:1", "a:replaced");
        check(&["a:1", "a:2", "a:3", "a:1"], "a:3", "a:replaced earlier");
        check(&["a:1", "a:2", "", "a:1"], "a:2", "a:replaced earlier");
        check(&["a:2<1!9", "a:1"], "a:2<1!9", "a:replaced");
    }

    #[test]
    fn a_key_that_was_taken_out_is_used_again_and_told() {
        check(&["a:1 b:1", "a:1", "a:1 b:1"], "a:1 b:1", "b:removed earlier");
        check(&["a:1 b:1", "a:1", "a:1 b:1 c:1"], "a:1 b:1 c:1", "b:removed");
        check(&["a:1 b:1", "a:1", "a:1 b:1 c:1", "a:1 b:1"], "a:1 b:1", "earlier");
        // Each time, as it is used each time.
        check(&["a:1", "", "a:1", "", "a:1"], "a:1", "a:removed earlier");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut history, mut old) = (KeyHistory::default(), Vec::new());
        for secret in 0..100 {
            old = history.follow(&old, records(&format!("a:{secret}"))).records;
        }
        assert_eq!(history.contents.len(), CONTENTS_MAX);
        assert!(history.replaced.values().all(|hashes| hashes.len() == REPLACED_MAX));
        assert_eq!(history.follow(&old, records("a:95")).records, records("a:99"));
    }
}
