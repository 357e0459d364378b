//! What was known of the keys of one source, so that an older copy of them is told from a newer one.
//!
//! A file that is restored from a backup, and a store that comes back with the data of yesterday, bring back
//! keys that were revoked and secrets that were replaced. Both are for good, so no change brings them
//! back: what was known stays. A key that was taken out and is there again may have been put back by its
//! owner; it is used, and told.
//!
//! What is for good outlives the process where its owner keeps the [`EndedKey`]s and gives them back. Of a secret
//! that was replaced before the start the one after it is not known: such a key is left out. The rest is known as
//! long as the process runs.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash as _;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::key::KeyId;
use crate::key_hash::KeyHash;
use crate::key_record::{KeyRecord, PreviousHash};
use crate::unix_seconds::UnixSeconds;

/// Keys that were taken out and are remembered at most; those beyond are not known again.
const REMOVED_MAX: usize = 100_000;
/// Keys that are known as revoked at most. Beyond it half of them are forgotten, those that were revoked first.
const REVOKED_MAX: usize = 200_000;
/// Keys to be kept over a restart at most: those that were revoked last, then those with replaced secrets.
pub const ENDED_KEYS_MAX: usize = 100_000;
/// Replaced secrets of one key that are remembered, the latest ones.
const REPLACED_MAX: usize = 8;
/// Contents that are known again, the latest ones.
const CONTENTS_MAX: usize = 64;

/// The keys of one source, as they followed each other.
#[derive(Debug, Default)]
pub struct KeyHistory {
    /// As they were when they were taken out.
    removed: HashMap<KeyId, KeyRecord>,
    /// When, whether they are there or not.
    revoked: HashMap<KeyId, UnixSeconds>,
    replaced: HashMap<KeyId, VecDeque<SecretMark>>,
    /// Digests, the latest last.
    contents: VecDeque<u64>,
    /// Keys that were kept as they are, and told.
    told: HashSet<KeyId>,
}

/// By which the secret of a key is known again: a digest of its hash, from which neither is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct SecretMark(u64);

impl SecretMark {
    fn of(hash: &KeyHash) -> Self {
        Self(xxh3_64(hash.as_bytes()))
    }
}

impl From<SecretMark> for String {
    /// 16 hex digits.
    fn from(mark: SecretMark) -> Self {
        format!("{:016x}", mark.0)
    }
}

impl TryFrom<Cow<'_, str>> for SecretMark {
    type Error = std::num::ParseIntError;

    fn try_from(text: Cow<'_, str>) -> Result<Self, Self::Error> {
        u64::from_str_radix(&text, 16).map(Self)
    }
}

/// What of a key has ended for good.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedKey {
    /// Its id.
    pub id: KeyId,
    /// When it was revoked, if it was.
    pub revoked_at: Option<UnixSeconds>,
    /// Secrets that others have taken the place of, at most the eight latest ones.
    pub replaced: Vec<SecretMark>,
}

/// What a source brings back. Its words stand in metrics and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum KeyReturn {
    /// A key that was revoked: it stays revoked.
    Revoked,
    /// A secret that was replaced: the one after it stays.
    Replaced,
    /// A key that was taken out: it is used.
    Removed,
}

wellhead_word::words!(KeyReturn);

impl KeyReturn {
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
            records.extend(record);
        }
        for (id, record) in before {
            if self.removed.len() < REMOVED_MAX {
                self.removed.insert(id, record.clone());
            }
        }
        self.forget_first_revoked();
        FollowedKeys { records, returned, is_earlier }
    }

    /// What has ended for good, by the ids: at most [`ENDED_KEYS_MAX`] keys.
    pub fn ended(&self) -> Vec<EndedKey> {
        let of = |id: &KeyId| EndedKey {
            id: *id,
            revoked_at: self.revoked.get(id).copied(),
            replaced: self.replaced.get(id).into_iter().flatten().copied().collect(),
        };
        let replaced = self.replaced.keys().filter(|id| !self.revoked.contains_key(*id));
        let mut ended: Vec<_> = self.revoked.keys().chain(replaced).map(of).collect();
        if ended.len() > ENDED_KEYS_MAX {
            ended.sort_unstable_by_key(|key| (Reverse(key.revoked_at), key.id));
            ended.truncate(ENDED_KEYS_MAX);
        }
        ended.sort_unstable_by_key(|key| key.id);
        ended
    }

    /// Adds what was known to have ended for good before a restart, or is to another process. The keys that are in
    /// use are to be judged again: by [`Self::follow`], with none before them.
    pub fn restore(&mut self, ended: Vec<EndedKey>) {
        for EndedKey { id, revoked_at, replaced } in ended {
            if let Some(at) = revoked_at {
                self.note_revoked(id, at);
            }
            replaced.into_iter().for_each(|mark| self.note_replaced(id, mark));
        }
        self.forget_first_revoked();
    }

    /// Of what is known of a key and what came of it, the one that is newer; `None` where that is not known.
    fn newer(
        &mut self,
        known: Option<&KeyRecord>,
        mut record: KeyRecord,
    ) -> (Option<KeyRecord>, Option<KeyReturn>) {
        let id = record.id;
        if known.is_none_or(|known| known.hash != record.hash) {
            let mark = SecretMark::of(&record.hash);
            if self.replaced.get(&id).is_some_and(|replaced| replaced.contains(&mark)) {
                return (known.cloned(), Some(KeyReturn::Replaced));
            }
            if let Some(known) = known {
                self.note_replaced(id, SecretMark::of(&known.hash));
            }
        }
        if let Some(PreviousHash { hash, .. }) = &record.previous {
            self.note_replaced(id, SecretMark::of(hash));
        }
        let known_at = self.revoked.get(&id).copied();
        let why = (known_at.is_some() && record.revoked_at.is_none()).then_some(KeyReturn::Revoked);
        // Nor is it valid for another while.
        record.revoked_at = known_at.into_iter().chain(record.revoked_at).min();
        if let Some(at) = record.revoked_at {
            self.note_revoked(id, at);
        }
        (Some(record), why)
    }

    fn note_revoked(&mut self, id: KeyId, at: UnixSeconds) {
        self.revoked.entry(id).and_modify(|known| *known = at.min(*known)).or_insert(at);
    }

    fn note_replaced(&mut self, id: KeyId, mark: SecretMark) {
        let replaced = self.replaced.entry(id).or_default();
        if replaced.contains(&mark) {
            return;
        }
        if replaced.len() == REPLACED_MAX {
            replaced.pop_front();
        }
        replaced.push_back(mark);
    }

    fn forget_first_revoked(&mut self) {
        if self.revoked.len() <= REVOKED_MAX {
            return;
        }
        let mut all: Vec<_> = self.revoked.iter().map(|(id, at)| (*at, *id)).collect();
        all.sort_unstable();
        all.iter().take(all.len() - REVOKED_MAX / 2).for_each(|(_, id)| {
            self.revoked.remove(id);
        });
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

    /// A process knew these contents one after the other; the next one begins with this, and has these keys.
    #[track_caller]
    fn check_restart(contents: &[&str], begins_with: &str, used: &str, told: &str) {
        let (mut before, mut old) = (KeyHistory::default(), Vec::new());
        for content in contents {
            old = before.follow(&old, records(content)).records;
        }
        let mut after = KeyHistory::default();
        after.restore(before.ended());
        assert_eq!(after.ended(), before.ended());
        let FollowedKeys { records: found, returned, is_earlier } =
            after.follow(&[], records(begins_with));
        assert_eq!(found, records(used), "{contents:?} {begins_with}");
        let words =
            returned.iter().map(|(id, why)| format!("{}:{}", &id.as_str()[..1], why.word()));
        assert_eq!(words.collect::<Vec<_>>().join(" "), told, "{contents:?} {begins_with}");
        assert!(!is_earlier);
    }

    #[test]
    fn what_ended_for_good_ends_at_a_restart_too() {
        check_restart(&["a:1 b:1", "a:1!9 b:1"], "a:1 b:1", "a:1!9 b:1", "a:revoked");
        check_restart(&["a:1!9 b:1"], "a:1!9 b:1", "a:1!9 b:1", "");
        check_restart(&["a:1!9", ""], "a:1", "a:1!9", "a:revoked");
        check_restart(&["a:1", "a:2<1"], "a:2<1", "a:2<1", "");
        check_restart(&["a:1", "a:2<1"], "a:3<2", "a:3<2", "");
        // Which secret took its place is not known any more.
        check_restart(&["a:1 b:1", "a:2<1 b:1"], "a:1 b:1", "b:1", "a:replaced");
        check_restart(&["a:2<1"], "a:1", "", "a:replaced");
        check_restart(&["a:1", "a:2!9"], "a:1", "", "a:replaced");
        // It may have been put back.
        check_restart(&["a:1 b:1", "a:1"], "a:1 b:1", "a:1 b:1", "");
    }

    #[test]
    fn what_another_process_knew_ends_the_keys_in_use() {
        let mut other = KeyHistory::default();
        other.follow(&[], records("a:1!9 b:2<1 c:1"));
        let mut own = KeyHistory::default();
        let used = own.follow(&[], records("a:1 b:1 c:1")).records;
        own.restore(other.ended());
        let judged = own.follow(&[], used);
        assert_eq!(judged.records, records("a:1!9 c:1"));
        assert_eq!(judged.returned.len(), 2);
    }

    #[test]
    fn of_too_many_ended_keys_the_latest_are_kept() {
        let mut history = KeyHistory::default();
        let id = |number: u64| KeyId::of_number(number);
        let ended = |number: u64| EndedKey {
            id: id(number),
            revoked_at: Some(UnixSeconds(number)),
            replaced: Vec::new(),
        };
        history.restore((0..REVOKED_MAX as u64 + 1).map(ended).collect());
        assert_eq!(history.revoked.len(), REVOKED_MAX / 2);
        let kept = history.ended();
        assert_eq!(kept.len(), ENDED_KEYS_MAX);
        assert!(kept.contains(&ended(REVOKED_MAX as u64)) && !kept.contains(&ended(0)));
        let text = "00000000000000ff";
        assert_eq!(SecretMark::try_from(Cow::from(text)), Ok(SecretMark(255)));
        assert_eq!(String::from(SecretMark(255)), text);
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
