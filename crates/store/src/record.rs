//! A value as both tiers keep it: a header that says what it is, then its bytes.
//!
//! ```text
//! 0   length of the value    u32, little-endian as all of them
//! 4   format                 u32
//! 8   when it was put        u64, seconds since 1970
//! 16  when it expires        u64, seconds since 1970; `NEVER`
//! 24  checksum               u64, xxh3 over the digest, bytes 0 to 24 and the value
//! 32  digest
//! 64  the value
//! ```
//!
//! The checksum finds damage, torn writes and replies to another question. It is
//! no protection from an attacker who can write to the store.

use xxhash_rust::xxh3::Xxh3;

use crate::Digest;

/// Bytes in front of each value.
pub(crate) const HEADER: usize = 64;

/// Of the record, and of every file and key that holds ones. A store of another
/// format is not read.
pub(crate) const FORMAT: u32 = 1;

/// The expiry of what does not expire.
const NEVER: u64 = u64::MAX;

/// Why a record is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is whole, and past its time.
    Expired,
    /// It is whole, and about another digest.
    Other,
    /// It is not what was written.
    Damaged,
}

/// Appends the record of `value`, which fits.
pub(crate) fn append(to: &mut Vec<u8>, digest: &Digest, value: &[u8], put: u64, expires: u64) {
    let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
    let start = to.len();
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(&FORMAT.to_le_bytes());
    to.extend_from_slice(&put.to_le_bytes());
    to.extend_from_slice(&expires.to_le_bytes());
    let sum = checksum(&digest.0, &to[start..start + 24], value);
    to.extend_from_slice(&sum.to_le_bytes());
    to.extend_from_slice(&digest.0);
    to.extend_from_slice(value);
}

/// When something put `now` for `ttl` expires: rounded up to whole seconds.
pub(crate) fn expiry(now: u64, ttl: std::time::Duration) -> u64 {
    let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    now.checked_add(seconds).unwrap_or(NEVER)
}

/// How long the value of the record that begins like this says it is.
pub(crate) fn value_bytes(record: &[u8]) -> Option<usize> {
    let length = record.get(..4)?.try_into().ok()?;
    usize::try_from(u32::from_le_bytes(length)).ok()
}

/// Whether `record`, of which nothing is missing or added, answers `digest` now.
/// Its value is then what follows the header.
pub(crate) fn check(record: &[u8], digest: &Digest, now: u64) -> Result<(), Unusable> {
    if record.len() < HEADER || value_bytes(record) != Some(record.len() - HEADER) {
        return Err(Unusable::Damaged);
    }
    let (head, value) = record.split_at(HEADER);
    let sum = checksum(&head[32..64], &head[..24], value);
    if head[24..32] != sum.to_le_bytes() || head[4..8] != FORMAT.to_le_bytes() {
        return Err(Unusable::Damaged);
    }
    if head[32..64] != digest.0 {
        return Err(Unusable::Other);
    }
    let mut expires = [0; 8];
    expires.copy_from_slice(&head[16..24]);
    if u64::from_le_bytes(expires) <= now {
        return Err(Unusable::Expired);
    }
    Ok(())
}

fn checksum(digest: &[u8], head: &[u8], value: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(digest);
    hash.update(head);
    hash.update(value);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINE: Digest = Digest([7; 32]);

    fn record(value: &[u8], expires: u64) -> Vec<u8> {
        let mut record = Vec::new();
        append(&mut record, &MINE, value, 100, expires);
        record
    }

    #[test]
    fn whole_record_answers_until_it_expires() {
        let record = record(b"value", 200);
        assert_eq!(check(&record, &MINE, 199), Ok(()));
        assert_eq!(&record[HEADER..], b"value");
        assert_eq!(check(&record, &MINE, 200), Err(Unusable::Expired));
    }
    #[test]
    fn record_of_another_digest_is_no_answer() {
        assert_eq!(check(&record(b"", 200), &Digest([8; 32]), 100), Err(Unusable::Other));
    }
    #[test]
    fn any_flipped_bit_is_damage() {
        let whole = record(b"some value", 200);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check(&damaged, &MINE, 100), Err(Unusable::Damaged), "bit {bit}");
        }
    }
    #[test]
    fn any_missing_or_added_byte_is_damage() {
        let whole = record(b"some value", 200);
        for kept in 0..whole.len() {
            assert_eq!(check(&whole[..kept], &MINE, 100), Err(Unusable::Damaged), "{kept} bytes");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(check(&longer, &MINE, 100), Err(Unusable::Damaged));
    }
    #[test]
    fn expiry_is_rounded_up_and_ends_at_never() {
        assert_eq!(expiry(100, Duration::from_secs(5)), 105);
        assert_eq!(expiry(100, Duration::from_millis(1)), 101);
        assert_eq!(expiry(100, Duration::ZERO), 100);
        assert_eq!(expiry(100, Duration::MAX), NEVER);
    }
}
