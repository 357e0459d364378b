//! What a text is compared with that says it is a certain key.

use std::time::Duration;

use crate::key_hash::KeyHash;
use crate::key_record::{KeyRecord, PreviousHash};
use crate::unix_seconds::UnixSeconds;

/// The hashes of a key, and its end. Of a grant without a key: what no text fits.
///
/// Its fields are in the order in which they are read: see `AccessGrant`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct KeyCheck {
    /// Seconds since 1970 from which on it is expired or revoked.
    ends_at: u64,
    hash: KeyHash,
    /// Rare, so apart.
    previous: Option<Box<PreviousHash>>,
}

impl KeyCheck {
    /// Fits no text.
    pub(crate) const NONE: Self = Self { ends_at: 0, hash: KeyHash::NONE, previous: None };

    /// That of a record.
    pub(crate) fn of(record: &KeyRecord) -> Self {
        let ends = [record.expires_at, record.revoked_at].into_iter().flatten();
        Self {
            ends_at: ends.map(|at| at.0).min().unwrap_or(u64::MAX),
            hash: record.hash,
            previous: record.previous.map(Box::new),
        }
    }

    /// Whether it is the hash of this key, or of the secret before it while that is valid.
    pub(crate) fn fits(&self, hash: &KeyHash, now: Duration) -> bool {
        let previous = self.previous.as_deref();
        let previous = previous.filter(|previous| !previous.valid_until.is_over(now));
        let replaced = previous.map_or(&KeyHash::NONE, |previous| &previous.hash);
        // Both are compared whatever the first says, and joined before anything branches on them.
        (self.hash == *hash) | (*replaced == *hash)
    }

    /// When the key ends; `None` where it does not, and where there is no key.
    pub(crate) fn ends_at(&self) -> Option<UnixSeconds> {
        let ends = self.ends_at != 0 && self.ends_at != u64::MAX;
        ends.then_some(UnixSeconds(self.ends_at))
    }

    /// Whether the key is expired or revoked.
    pub(crate) fn has_ended(&self, now: Duration) -> bool {
        now.as_secs() >= self.ends_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_hash::{Pepper, comparisons};

    /// A key and its text are compared twice, whatever comes of it: the first secret, the one before it, and
    /// none of a key that is not there take as long.
    #[test]
    fn each_answer_takes_as_many_comparisons() {
        let hash = |text: &str| Pepper::well_known().hash(text);
        let mut record = KeyRecord::new("7c9xk2ma".parse().unwrap(), hash("old"), "acme");
        let only = KeyCheck::of(&record);
        record.rotate(hash("new"), UnixSeconds(10));
        let rotated = KeyCheck::of(&record);
        for (check, text, now, fits) in [
            (&only, "old", 0, true),
            (&only, "wrong", 0, false),
            (&rotated, "new", 0, true),
            (&rotated, "old", 9, true),
            (&rotated, "old", 10, false),
            (&rotated, "wrong", 0, false),
            (&KeyCheck::NONE, "old", 0, false),
        ] {
            let (text, now) = (hash(text), Duration::from_secs(now));
            assert_eq!(comparisons::count(|| check.fits(&text, now)), (fits, 2), "{check:?}");
        }
    }
}
