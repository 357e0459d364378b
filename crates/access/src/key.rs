//! The text of a key: `wh_<env>_<id>_<secret>_<check>`.
//!
//! ```text
//! wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey
//! │  │    │        │                          └ 6: CRC-32 of all before it, its lower 30 bits
//! │  │    │        └ 26: the secret, 130 random bits
//! │  │    └ 8: the public id, for logs, metrics and the look-up
//! │  └ 1 to 8: where it is for, such as `live` or `test`
//! └ what scanners of published code look for
//! ```
//!
//! The last three are base32 in Crockford's alphabet, in lower case: no letter in it is taken for another
//! by eye, and a double click selects the whole key. A key has one text: capitals, and `o` for `0`, are
//! refused, because two texts of one key would have two hashes. The check sum tells what was typed or
//! cut wrong from a key that is unknown; it keeps nothing secret.
//!
//! What is kept of a key is its hash (`key_hash`), in a record (`key_record`).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use wellhead_telemetry::Secret;
use zeroize::Zeroizing;

/// How every key of ours begins. No chain may have a name that does.
pub const KEY_PREFIX: &str = "wh_";
/// Longest word behind the prefix.
pub const KEY_ENV_BYTES_MAX: usize = 8;
/// Crockford's base32, in lower case: without `i`, `l`, `o` and `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ID_BYTES: usize = 8;
/// 5 bits each: 130.
const SECRET_BYTES: usize = 26;
const CHECK_BYTES: usize = 6;
/// From the end: the check sum, the secret, the id, each with the `_` before it.
const TAIL_BYTES: usize = 1 + ID_BYTES + 1 + SECRET_BYTES + 1 + CHECK_BYTES;
/// Least length in bytes of a run of letters, digits and `_` behind the prefix that [`mask_keys`] masks:
/// a key that lost its end is still a secret.
const MASKED_BYTES_MIN: usize = 16;

/// A key as it came, whose check sum fits. Borrows from where it stands; prints its id alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ApiKey<'a> {
    text: &'a str,
    id: KeyId,
}

impl<'a> ApiKey<'a> {
    /// Reads a key. Says nothing of whether it exists.
    pub fn parse(text: &'a str) -> Result<Self, KeyTextError> {
        let behind = text.strip_prefix(KEY_PREFIX).ok_or(KeyTextError::NoPrefix)?.as_bytes();
        if behind.len() > KEY_ENV_BYTES_MAX + TAIL_BYTES {
            return Err(KeyTextError::Length);
        }
        let env_bytes = behind.iter().position(|byte| *byte == b'_').ok_or(KeyTextError::Length)?;
        let (env, tail) = behind.split_at(env_bytes);
        check_env(env)?;
        let (id, tail) = field(tail, ID_BYTES)?;
        let (_, tail) = field(tail, SECRET_BYTES)?;
        let (check, tail) = field(tail, CHECK_BYTES)?;
        if !tail.is_empty() {
            return Err(KeyTextError::Length);
        }
        let summed = &text.as_bytes()[..text.len() - CHECK_BYTES];
        if check != check_sum(summed) {
            return Err(KeyTextError::CheckSum);
        }
        Ok(Self { text, id: KeyId::of(id)? })
    }

    /// The id that a text has if it is a key; `None` if it cannot be one. A text with an id need not be a key:
    /// [`Self::parse`] says that, which takes longer.
    pub(crate) fn id_in(text: &str) -> Option<KeyId> {
        let behind = text.strip_prefix(KEY_PREFIX)?.as_bytes();
        let tail = behind.last_chunk::<TAIL_BYTES>()?;
        let env_bytes = behind.len() - TAIL_BYTES;
        let is_key = (1..=KEY_ENV_BYTES_MAX).contains(&env_bytes) && tail[0] == b'_';
        KeyId::of(&tail[1..=ID_BYTES]).ok().filter(|_| is_key)
    }

    /// A new key of 130 random bits, with a random id.
    ///
    /// Two of 100,000 keys have one id with a probability of 0.5 %: the caller compares it with those that
    /// exist, and generates another.
    pub fn generate(env: &str, rng: &mut impl CryptoRng) -> Result<NewKey, KeyTextError> {
        let mut id = KeyId([0; ID_BYTES]);
        fill_digits(&mut id.0, rng);
        Self::generate_for(id, env, rng)
    }

    /// A new key with the id of one that exists, whose place it takes.
    pub fn generate_for(
        id: KeyId,
        env: &str,
        rng: &mut impl CryptoRng,
    ) -> Result<NewKey, KeyTextError> {
        check_env(env.as_bytes())?;
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        fill_digits(secret.as_mut_slice(), rng);
        // Reserved as a whole, so that growing leaves no copy of a part behind.
        let mut text = String::with_capacity(KEY_PREFIX.len() + env.len() + TAIL_BYTES);
        text.push_str(KEY_PREFIX);
        text.push_str(env);
        for part in [&id.0[..], &secret[..]] {
            text.push('_');
            text.extend(part.iter().map(|byte| char::from(*byte)));
        }
        text.push('_');
        let check = check_sum(text.as_bytes());
        text.extend(check.map(char::from));
        Ok(NewKey { id, text: Secret::new(text) })
    }

    /// The public id.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The whole text, which is what is hashed.
    pub fn expose(&self) -> &'a str {
        self.text
    }
}

impl fmt::Debug for ApiKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}, ***)", self.id)
    }
}

/// A key that was just made: the only time at which its text is known here.
#[derive(Debug)]
pub struct NewKey {
    /// The public id.
    pub id: KeyId,
    /// The whole text, to be shown once.
    pub text: Secret,
}

/// The public id of a key, 8 characters of Crockford's base32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct KeyId([u8; ID_BYTES]);

impl KeyId {
    fn of(text: &[u8]) -> Result<Self, KeyTextError> {
        let id = <[u8; ID_BYTES]>::try_from(text).map_err(|_| KeyTextError::Length)?;
        if id.iter().all(is_digit) { Ok(Self(id)) } else { Err(KeyTextError::Character) }
    }

    /// The id of a key that was not made here: the first 40 bits of its hash.
    pub(crate) fn of_hash(hash: &[u8; 32]) -> Self {
        let mut bits = [0; 8];
        bits[3..].copy_from_slice(&hash[..5]);
        Self(base32(u64::from_be_bytes(bits)))
    }

    /// One of many that differ.
    #[cfg(test)]
    pub(crate) fn of_number(number: u64) -> Self {
        Self(base32(number))
    }

    /// Its text as one number.
    pub(crate) fn bits(self) -> u64 {
        u64::from_le_bytes(self.0)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of the alphabet, which is ASCII")
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for KeyId {
    type Err = KeyTextError;

    fn from_str(text: &str) -> Result<Self, KeyTextError> {
        Self::of(text.as_bytes())
    }
}

impl TryFrom<Cow<'_, str>> for KeyId {
    type Error = &'static str;

    // Does not quote the text: a whole key may have been pasted.
    fn try_from(text: Cow<'_, str>) -> Result<Self, &'static str> {
        text.parse().map_err(
            |_| "the id of a key is 8 characters of `0-9a-z` without `i`, `l`, `o` and `u`",
        )
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.as_str().to_owned()
    }
}

/// Why a text is no key. Quotes nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyTextError {
    /// It does not begin with [`KEY_PREFIX`].
    #[error("a key begins with `wh_`")]
    NoPrefix,
    /// Too short or too long.
    #[error("a key has 47 to 54 characters: some are missing, or there are too many")]
    Length,
    /// The word behind the prefix is empty, too long, or not of small letters and digits.
    #[error("the word behind `wh_` has 1 to 8 small letters and digits, and begins with a letter")]
    Env,
    /// No `_` where one should be.
    #[error("the parts of a key are divided by `_`: `wh_<env>_<id:8>_<secret:26>_<check:6>`")]
    Layout,
    /// A character that no key has, such as `o` for `0`.
    #[error("a key has the characters `0-9a-z` without `i`, `l`, `o` and `u`")]
    Character,
    /// A character is wrong, or two are exchanged.
    #[error("the check sum of the key does not fit: a character is wrong")]
    CheckSum,
}

/// Whether a text begins as a key does, in whatever case: in capitals it is not valid, and just as secret.
pub(crate) fn begins_like_key(text: &str) -> bool {
    text.get(..KEY_PREFIX.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(KEY_PREFIX))
}

/// Where the first text begins that [`begins_like_key`].
fn find_prefix(text: &str) -> Option<usize> {
    let windows = text.as_bytes().windows(KEY_PREFIX.len());
    windows.into_iter().position(|window| window.eq_ignore_ascii_case(KEY_PREFIX.as_bytes()))
}

/// `text` with every key of ours in it, also one that lost its end, in stars. For messages of others that
/// may quote what they read.
pub fn mask_keys(text: &str) -> Cow<'_, str> {
    let mut masked = String::new();
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = find_prefix(&rest[from..]).map(|at| from + at + KEY_PREFIX.len()) {
        let bytes = rest.as_bytes()[at..].iter();
        let run = bytes.take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        if run < MASKED_BYTES_MIN {
            from = at;
            continue;
        }
        masked.push_str(&rest[..at]);
        masked.push_str("***");
        (rest, from) = (&rest[at + run..], 0);
    }
    if masked.is_empty() {
        return Cow::Borrowed(text);
    }
    masked.push_str(rest);
    Cow::Owned(masked)
}

fn check_env(env: &[u8]) -> Result<(), KeyTextError> {
    let is_word = env.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let begins_well = env.first().is_some_and(u8::is_ascii_lowercase);
    let is_good = is_word && begins_well && env.len() <= KEY_ENV_BYTES_MAX;
    if is_good { Ok(()) } else { Err(KeyTextError::Env) }
}

/// `_` and this many characters of the alphabet, and what follows.
fn field(text: &[u8], bytes: usize) -> Result<(&[u8], &[u8]), KeyTextError> {
    let text = text.strip_prefix(b"_").ok_or(KeyTextError::Layout)?;
    let (field, rest) = text.split_at_checked(bytes).ok_or(KeyTextError::Length)?;
    if field.contains(&b'_') {
        return Err(KeyTextError::Layout);
    }
    if field.iter().all(is_digit) { Ok((field, rest)) } else { Err(KeyTextError::Character) }
}

fn fill_digits(digits: &mut [u8], rng: &mut impl CryptoRng) {
    rng.fill_bytes(digits);
    for digit in digits {
        *digit = ALPHABET[usize::from(*digit & 31)];
    }
}

fn is_digit(byte: &u8) -> bool {
    const IS_DIGIT: [bool; 256] = {
        let mut table = [false; 256];
        let mut digit = 0;
        while digit < ALPHABET.len() {
            table[ALPHABET[digit] as usize] = true;
            digit += 1;
        }
        table
    };
    IS_DIGIT[usize::from(*byte)]
}

fn check_sum(text: &[u8]) -> [u8; CHECK_BYTES] {
    base32(u64::from(crc32fast::hash(text)))
}

/// The lower 5·N bits of a number, the highest first.
fn base32<const N: usize>(mut number: u64) -> [u8; N] {
    let mut text = [0; N];
    for place in text.iter_mut().rev() {
        *place = ALPHABET[(number & 31) as usize];
        number >>= 5;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    const GOOD: &str = "wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_";

    fn with_check(text: &str) -> String {
        let check = check_sum(text.as_bytes()).map(char::from);
        text.chars().chain(check).collect()
    }

    #[track_caller]
    fn check(text: &str, want: Result<&str, KeyTextError>) {
        let got = ApiKey::parse(text);
        let id = got.as_ref().map(|key| key.id.as_str()).map_err(|error| *error);
        assert_eq!(id, want, "{text}");
    }

    #[test]
    fn a_key_is_its_parts() {
        check(&with_check(GOOD), Ok("7c9xk2ma"));
        check(&with_check("wh_t_00000000_zzzzzzzzzzzzzzzzzzzzzzzzzz_"), Ok("00000000"));
        check(&with_check("wh_staging1_7c9xk2ma_0123456789abcdefghjkmnpqrs_"), Ok("7c9xk2ma"));
        // Written by hand, so that a change of alphabet or check sum does not go unseen.
        check("wh_live_7c9xk2ma_0123456789abcdefghjkmnpqrs_6axtey", Ok("7c9xk2ma"));
    }

    #[test]
    fn what_is_no_key_says_why() {
        use KeyTextError::{Character, CheckSum, Env, Layout, Length, NoPrefix};
        check("", Err(NoPrefix));
        check("ethereum", Err(NoPrefix));
        check("WH_live", Err(NoPrefix));
        check("wh_", Err(Length));
        check(GOOD, Err(Length));
        check(&format!("{GOOD}00000"), Err(Length));
        check(&format!("{}0", with_check(GOOD)), Err(Length));
        check(&format!("{}_", with_check(GOOD)), Err(Length));
        check(&format!("{GOOD}000000"), Err(CheckSum));
        check(&with_check(&GOOD.replace("live", "")), Err(Env));
        check(&with_check(&GOOD.replace("live", "Live")), Err(Env));
        check(&with_check(&GOOD.replace("live", "1ive")), Err(Env));
        check(&with_check(&GOOD.replace("live", "li_e")), Err(Layout));
        check(&with_check(&GOOD.replace("live", "ninechars")), Err(Length));
        check(&with_check(&GOOD.replace("7c9xk2ma_", "7c9xk2ma0")), Err(Layout));
        check(&with_check(&GOOD.replace("7c9xk2ma", "7c9xk_ma")), Err(Layout));
        check(&with_check(&GOOD.replace("7c9xk2ma", "7c9xk2mA")), Err(Character));
        check(&with_check(&GOOD.replace("7c9xk2ma", "7c9xk2mo")), Err(Character));
        check(&with_check(&GOOD.replace("0123", "é23")), Err(Character));
        check(&with_check(&GOOD.replace("0123", "01 3")), Err(Character));
    }

    #[test]
    fn a_generated_key_is_read_back_and_not_printed() {
        let mut rng = StdRng::seed_from_u64(1);
        let (one, other) = (
            ApiKey::generate("live", &mut rng).unwrap(),
            ApiKey::generate("live", &mut rng).unwrap(),
        );
        assert_ne!(one.text, other.text);
        let read = ApiKey::parse(one.text.expose()).unwrap();
        assert_eq!((read.id(), read.expose()), (one.id, one.text.expose()));
        let secret = &one.text.expose()[17..43];
        for shown in [format!("{one:?}"), format!("{read:?}"), format!("{}", one.text)] {
            assert!(!shown.contains(secret), "{shown}");
        }
        assert!(format!("{read:?}").contains(one.id.as_str()));
        assert_eq!(ApiKey::generate("Live", &mut rng).unwrap_err(), KeyTextError::Env);
        let next = ApiKey::generate_for(one.id, "live", &mut rng).unwrap();
        let read = ApiKey::parse(next.text.expose()).unwrap();
        assert_eq!((next.id, read.id()), (one.id, one.id));
        assert_ne!(next.text, one.text);
    }

    #[test]
    fn every_character_of_the_alphabet_is_as_likely() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut seen = [0_u32; 128];
        for _ in 0..1000 {
            let key = ApiKey::generate("t", &mut rng).unwrap();
            key.text.expose()[14..40].bytes().for_each(|byte| seen[usize::from(byte)] += 1);
        }
        // 26,000 characters, 812 of each expected with a deviation of 28.
        let counts = ALPHABET.map(|byte| seen[usize::from(byte)]);
        assert!(counts.iter().all(|count| (650..975).contains(count)), "{counts:?}");
    }

    #[test]
    fn keys_in_a_message_are_masked() {
        let key = with_check(GOOD);
        for (text, want) in [
            ("no key here", "no key here"),
            ("wh_ and wh_short stay", "wh_ and wh_short stay"),
            (&format!("unknown field `{key}`"), "unknown field `wh_***`"),
            (&format!("{key} {key}!"), "wh_*** wh_***!"),
            (&key[..30], "wh_***"),
            (&format!("é{key}é"), "éwh_***é"),
            (&format!("chain {}", key.to_ascii_uppercase()), "chain WH_***"),
        ] {
            assert_eq!(mask_keys(text), want);
        }
    }

    proptest! {
        #[test]
        fn one_wrong_character_is_noticed(seed: u64, at in 0_usize..50, byte in 0_usize..32) {
            let key = ApiKey::generate("live", &mut StdRng::seed_from_u64(seed)).unwrap();
            let mut text = key.text.expose().as_bytes().to_vec();
            let before = text[at];
            text[at] = ALPHABET[byte];
            let text = String::from_utf8(text).unwrap();
            let read = ApiKey::parse(&text).ok().map(|key| key.id());
            prop_assert_eq!(read.is_some(), before == ALPHABET[byte]);
            // A key has its id at a glance, too; what is none may have one.
            prop_assert!(read.is_none() || ApiKey::id_in(&text) == read);
        }

        #[test]
        fn any_text_is_survived(text: String, cut in 0_usize..51) {
            let _ = ApiKey::parse(&text);
            let _ = ApiKey::id_in(&text);
            let _ = mask_keys(&text);
            let key = with_check(GOOD);
            let _ = ApiKey::parse(&format!("{}{text}", &key[..cut]));
        }
    }
}
