//! What is kept of a key: a keyed hash, compared in constant time.
//!
//! The hash is BLAKE3 in its keyed mode over the whole text of the key. The 130 random bits of a key of
//! ours cannot be guessed, so a slow hash would only cost time at each request; the pepper, which is kept
//! apart from the hashes, makes a stolen list useless also for keys that others chose.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;
use wellhead_telemetry::Secret;
use zeroize::Zeroizing;

use crate::key::KeyId;

/// Least length in bytes of a key that was not made here. Shorter ones are guessed.
pub const FOREIGN_KEY_BYTES_MIN: usize = 16;
/// Longest one. What is longer is refused unread.
pub const FOREIGN_KEY_BYTES_MAX: usize = 256;

/// The secret with which keys are hashed.
#[derive(Clone)]
pub struct Pepper {
    bytes: Zeroizing<[u8; 32]>,
    is_well_known: bool,
}

impl Pepper {
    /// A pepper that is public, for settings without one. Enough for keys of ours; foreign keys,
    /// whose texts may be guessed, need a secret one.
    pub fn well_known() -> Self {
        let bytes = blake3::derive_key("wellhead access 2026-11 well-known pepper", b"");
        Self { bytes: Zeroizing::new(bytes), is_well_known: true }
    }

    /// Reads 64 hex digits, blanks around them ignored.
    pub fn parse(text: &Secret) -> Result<Self, HashTextError> {
        let bytes = Zeroizing::new(digits(text.expose().trim())?);
        Ok(Self { bytes, is_well_known: false })
    }

    /// Whether it is the public one.
    pub fn is_well_known(&self) -> bool {
        self.is_well_known
    }

    /// The hash of the whole text of a key.
    pub fn hash(&self, key: &str) -> KeyHash {
        KeyHash(*blake3::keyed_hash(&self.bytes, key.as_bytes()).as_bytes())
    }

    /// The hash of a key that was not made here, and the id that is derived from it.
    pub fn hash_foreign(&self, key: &str) -> Result<(KeyId, KeyHash), ForeignKeyError> {
        check_foreign(key)?;
        let hash = self.hash(key);
        Ok((hash.id(), hash))
    }
}

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper(***)")
    }
}

/// Whether a text may be a key that was not made here.
pub(crate) fn check_foreign(key: &str) -> Result<(), ForeignKeyError> {
    if key.len() < FOREIGN_KEY_BYTES_MIN {
        return Err(ForeignKeyError::TooShort);
    }
    if key.len() > FOREIGN_KEY_BYTES_MAX {
        return Err(ForeignKeyError::TooLong);
    }
    let is_plain = key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_plain { Ok(()) } else { Err(ForeignKeyError::Character) }
}

/// Why a text cannot be a key that was not made here. Quotes nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForeignKeyError {
    /// Less than [`FOREIGN_KEY_BYTES_MIN`].
    #[error("a key has at least {FOREIGN_KEY_BYTES_MIN} characters: shorter ones are guessed")]
    TooShort,
    /// More than [`FOREIGN_KEY_BYTES_MAX`].
    #[error("a key has at most {FOREIGN_KEY_BYTES_MAX} characters")]
    TooLong,
    /// A blank, a control character, or what is not ASCII.
    #[error("a key has visible ASCII characters, and no blanks")]
    Character,
}

/// The keyed hash of a key. Comparing two takes equally long wherever they differ.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Fits no key: to compare with where there is no record.
    pub(crate) const NONE: Self = Self([0; 32]);

    /// 64 hex digits, as records have it.
    pub fn to_hex(self) -> String {
        const_hex::encode(self.0)
    }

    fn words(&self) -> [u64; 4] {
        let (words, _) = self.0.as_chunks::<8>();
        std::array::from_fn(|place| u64::from_ne_bytes(words[place]))
    }

    /// To be digested with what else is known of a key.
    pub(crate) fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The id of a key that was not made here.
    pub(crate) fn id(&self) -> KeyId {
        KeyId::of_hash(&self.0)
    }
}

impl PartialEq for KeyHash {
    fn eq(&self, other: &Self) -> bool {
        #[cfg(test)]
        comparisons::note();
        // By words, as `subtle` compares slices byte by byte.
        are_alike(self.words().into_iter().zip(other.words()))
    }
}

/// Whether the words of each pair are alike. Takes all pairs, and branches on none.
fn are_alike(pairs: impl Iterator<Item = (u64, u64)>) -> bool {
    let differing = pairs.fold(0, |bits, (one, other)| bits | (one ^ other));
    differing.ct_eq(&0).into()
}

/// How many hashes were compared: an answer that takes more comparisons than another one takes longer, and a test
/// that counts them is not disturbed by what else the machine does.
#[cfg(test)]
pub(crate) mod comparisons {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn note() {
        COUNT.set(COUNT.get() + 1);
    }

    /// Those that `act` makes.
    pub(crate) fn count<T>(act: impl FnOnce() -> T) -> (T, usize) {
        let before = COUNT.get();
        let done = act();
        (done, COUNT.get() - before)
    }
}

impl Eq for KeyHash {}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(***)")
    }
}

impl FromStr for KeyHash {
    type Err = HashTextError;

    fn from_str(text: &str) -> Result<Self, HashTextError> {
        Ok(Self(digits(text)?))
    }
}

impl TryFrom<Cow<'_, str>> for KeyHash {
    type Error = HashTextError;

    fn try_from(text: Cow<'_, str>) -> Result<Self, HashTextError> {
        text.parse()
    }
}

impl From<KeyHash> for String {
    fn from(hash: KeyHash) -> Self {
        hash.to_hex()
    }
}

/// A text that is not 32 bytes in hex. Quotes nothing of it: it may be a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not 64 hex digits: a hash or a pepper is 32 bytes in hex, without `0x`")]
pub struct HashTextError;

fn digits(text: &str) -> Result<[u8; 32], HashTextError> {
    let mut bytes = [0; 32];
    let has_length = text.len() == 64;
    let read = const_hex::decode_to_slice(text, &mut bytes);
    if has_length && read.is_ok() { Ok(bytes) } else { Err(HashTextError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: u64) -> String {
        format!("{seed:064x}")
    }

    fn pepper(seed: u64) -> Pepper {
        Pepper::parse(&Secret::new(text(seed))).unwrap()
    }

    #[test]
    fn a_hash_depends_on_key_and_pepper() {
        assert_eq!(pepper(1).hash("a"), pepper(1).hash("a"));
        assert_ne!(pepper(1).hash("a"), pepper(1).hash("b"));
        assert_ne!(pepper(1).hash("a"), pepper(2).hash("a"));
        assert_ne!(pepper(1).hash("a"), Pepper::well_known().hash("a"));
        let want = blake3::keyed_hash(&pepper(1).bytes, b"a").to_hex();
        assert_eq!(pepper(1).hash("a").to_hex(), want.as_str());
    }

    /// What is compared of two hashes does not depend on where they differ, nor on whether they do.
    #[test]
    fn every_word_is_compared() {
        let hash = pepper(1).hash("a");
        let places = (0..256).map(Some).chain([None]);
        for bit in places {
            let mut other = hash;
            if let Some(bit) = bit {
                other.0[bit / 8] ^= 1 << (bit % 8);
            }
            let mut taken = 0;
            let pairs = hash.words().into_iter().zip(other.words()).inspect(|_| taken += 1);
            assert_eq!((are_alike(pairs), taken), (bit.is_none(), 4), "{bit:?}");
            assert_eq!(hash == other, bit.is_none(), "{bit:?}");
        }
    }

    #[test]
    fn texts_are_read_back() {
        let hash = pepper(1).hash("a");
        assert_eq!(hash.to_hex().parse(), Ok(hash));
        let padded = Secret::new(format!("{}\n", text(1)));
        assert_eq!(Pepper::parse(&padded).unwrap().hash("a"), hash);
        assert!(!pepper(1).is_well_known() && Pepper::well_known().is_well_known());
    }

    #[test]
    fn what_is_no_hash_is_refused() {
        let zeros = "0".repeat(64);
        for text in [
            "",
            "0",
            &zeros[1..],
            &format!("{zeros}0"),
            &format!("0x{}", &zeros[2..]),
            &format!("0x{zeros}"),
            &zeros.replace("00", "é"),
        ] {
            assert_eq!(text.parse::<KeyHash>(), Err(HashTextError), "{text}");
        }
    }

    #[test]
    fn nothing_is_printed() {
        let hash = pepper(1).hash("a");
        assert_eq!(format!("{hash:?} {:?}", pepper(1)), "KeyHash(***) Pepper(***)");
    }

    #[test]
    fn foreign_keys_are_long_and_plain() {
        use ForeignKeyError::{Character, TooLong, TooShort};
        let check = |key: &str, want| {
            assert_eq!(pepper(1).hash_foreign(key).map(drop), want, "{key}");
        };
        check("0123456789abcdef", Ok(()));
        check("f47ac10b-58cc-4372-a567-0e02b2c3d479", Ok(()));
        check("0123456789abcde", Err(TooShort));
        check("", Err(TooShort));
        check("0123456789 abcdef", Err(Character));
        check("0123456789abcdef\n", Err(Character));
        check("0123456789abcdé0", Err(Character));
        check(&"k".repeat(256), Ok(()));
        check(&"k".repeat(257), Err(TooLong));
    }

    #[test]
    fn the_id_of_a_foreign_key_is_part_of_its_hash() {
        let (id, hash) = pepper(1).hash_foreign("0123456789abcdef").unwrap();
        assert_eq!(hash.id(), id);
        assert_eq!(id.as_str().parse(), Ok(id));
        let of = |bytes: [u8; 5]| {
            let mut hash = [0xff; 32];
            hash[..5].copy_from_slice(&bytes);
            KeyId::of_hash(&hash).to_string()
        };
        assert_eq!(of([0; 5]), "00000000");
        assert_eq!(of([0xff; 5]), "zzzzzzzz");
        assert_eq!(of([0x08, 0x42, 0x10, 0x84, 0x21]), "11111111");
    }
}
