//! The words that must not be shown, and each form in which an upstream may write them.
//!
//! A server that quotes a request writes it as it came, or as its own code treats text: decoded
//! or encoded for a URL, in base64 (a header alone, or in the middle of a whole request), in
//! hexadecimal, in lower case. The forms are made once; upper and lower case are left to the
//! search.

use std::collections::BTreeSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter words are not redacted alone: each error would be full of stars, which tells more of
/// such a secret than it hides. They are redacted beside the name of their header or parameter.
const WORD_BYTES_MIN: usize = 6;
/// The parts of a header's value are secrets of their own from this length on.
const PART_BYTES_MIN: usize = 8;
/// What is left of a word in the middle of a text in base64 has to be this long to be told from
/// other text.
const BASE64_CORE_BYTES_MIN: usize = 8;

/// What an upstream must not be quoted with.
#[derive(Default, Clone)]
pub struct HiddenSecrets {
    words: BTreeSet<String>,
    /// Texts of which only the end is hidden: what is shown, and the whole.
    pairs: BTreeSet<Pair>,
}

/// A short value with what stands before it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    shown: String,
    value: String,
}

impl HiddenSecrets {
    /// Adds a word, which is redacted in every form if it is long enough.
    pub fn word(&mut self, word: &str) {
        let word = word.trim();
        if word.len() >= WORD_BYTES_MIN {
            self.words.insert(word.to_owned());
        }
    }

    /// Adds the value of a header as it is sent, and what it is made of: the credentials behind
    /// their scheme, user and password in them, the values in a cookie.
    pub fn header(&mut self, name: &str, value: &str) {
        let value = value.trim();
        self.word(value);
        if value.len() < WORD_BYTES_MIN && !value.is_empty() {
            for between in [": ", ":", "=", "\":\"", "\": \"", "\", \"", "\",\""] {
                self.pair(&format!("{name}{between}"), value);
            }
        }
        let parts = value.split([' ', '\t', ',', ';', '=', '"']);
        parts.filter(|part| part.len() >= PART_BYTES_MIN).for_each(|part| self.word(part));
        let mut words = value.split_whitespace();
        if let (Some(scheme), Some(credentials), None) = (words.next(), words.next(), words.next())
        {
            self.word(credentials);
            if scheme.eq_ignore_ascii_case("basic")
                && let Ok(plain) = STANDARD.decode(credentials)
                && let Ok(plain) = std::str::from_utf8(&plain)
            {
                self.word(plain);
                let (user, password) = plain.split_once(':').unwrap_or((plain, ""));
                self.word(password);
                // Some providers take the key as the name of the user.
                if user.len() >= PART_BYTES_MIN {
                    self.word(user);
                }
            }
        }
    }

    /// Adds user and password, and the header in which they are sent.
    pub fn basic(&mut self, user: &str, password: &str) {
        let credentials = STANDARD.encode(format!("{user}:{password}"));
        self.header("authorization", &format!("Basic {credentials}"));
    }

    /// Adds the value of a parameter of a URL that is too short to be redacted wherever it stands.
    pub fn parameter(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.pair(&format!("{name}="), value);
        }
    }

    fn pair(&mut self, shown: &str, value: &str) {
        self.pairs.insert(Pair { shown: shown.to_owned(), value: value.to_owned() });
    }

    /// Every text to look for, with what takes its place.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        let mut texts = BTreeSet::new();
        self.words.iter().for_each(|word| forms(word, &mut texts));
        let words = texts.into_iter().map(|text| Pattern { text, shown: String::new() });
        let pairs = self.pairs.iter().map(|pair| Pattern {
            text: format!("{}{}", pair.shown, pair.value),
            shown: pair.shown.clone(),
        });
        words.chain(pairs).collect()
    }
}

impl fmt::Debug for HiddenSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(***)")
    }
}

/// A text to look for; of it, `shown` stays.
pub(super) struct Pattern {
    pub(super) text: String,
    pub(super) shown: String,
}

/// Adds each form of `word`.
fn forms(word: &str, into: &mut BTreeSet<String>) {
    let plain = decoded(word);
    let mut meanings = vec![word];
    if let Some(plain) = plain.as_deref().filter(|plain| plain.len() >= WORD_BYTES_MIN) {
        meanings.push(plain);
    }
    for word in meanings {
        into.insert(word.to_owned());
        // As a component, as a path, and as a form is encoded.
        into.insert(encoded(word, b"-_.~"));
        into.insert(encoded(word, b"-_.!~*'()"));
        into.insert(encoded(word, b"-_.~!$&'()*+,;=:@/"));
        into.insert(encoded(word, b"-_.* ").replace(' ', "+"));
        into.insert(word.bytes().map(|byte| format!("{byte:02x}")).collect());
        into.insert(STANDARD.encode(word));
        into.insert(STANDARD_NO_PAD.encode(word));
        into.insert(URL_SAFE_NO_PAD.encode(word));
        for before in 0..3 {
            into.extend(base64_cores(word, before));
        }
    }
}

/// `word` with `%` before everything but letters, digits and `plain`.
fn encoded(word: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(word.len());
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// `word` without its `%`; `None` where it has none.
fn decoded(word: &str) -> Option<String> {
    if !word.contains('%') {
        return None;
    }
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok()
}

/// The characters that base64 has for `word` alone where `before` bytes, counted in threes, stand
/// before it, in both alphabets.
fn base64_cores(word: &str, before: usize) -> Vec<String> {
    let mut bytes = vec![0; before];
    bytes.extend_from_slice(word.as_bytes());
    // Of these characters each bit is one of the word.
    let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    if end.saturating_sub(first) < BASE64_CORE_BYTES_MIN {
        return Vec::new();
    }
    let core = |text: String| text[first..end].to_owned();
    vec![core(STANDARD_NO_PAD.encode(&bytes)), core(URL_SAFE_NO_PAD.encode(&bytes))]
}
