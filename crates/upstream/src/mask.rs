//! An upstream's own secrets, taken out of what it says.
//!
//! Some quote the URL they were called by, key included, in their errors: `cannot POST
//! /v2/KEY`. Errors reach clients in the upstream's own words, and the status page and
//! the log in short; so the secrets that we know are starred out of every error, byte
//! for byte. Results are passed on untouched, and secrets that are not ours (a proxy
//! quoting *its* upstream) are not known here.

use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use bytes::Bytes;

use crate::upstream::Upstream;
use crate::verdict::{Payload, Verdict};

/// What stands in a secret's place.
const STARS: &str = "***";
/// Shorter words are not masked: each error would be full of stars, which tells
/// more of such a secret than it hides.
const SECRET_BYTES_MIN: usize = 6;

/// The secrets of one upstream.
#[derive(Clone, Default)]
pub struct Mask(Option<AhoCorasick>);

impl Mask {
    /// Hides each of `secrets`; the longest wins where one is part of another.
    pub fn new<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        let secrets: Vec<S> = secrets
            .into_iter()
            .filter(|secret| secret.as_ref().len() >= SECRET_BYTES_MIN)
            .collect();
        if secrets.is_empty() {
            return Self(None);
        }
        let words = secrets.iter().map(AsRef::as_ref);
        let finder = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(words);
        Self(Some(finder.expect("a settings file is too short to hold more than it can take")))
    }

    /// Takes the secrets out of what `verdict` would pass on or tell.
    pub fn apply(&self, verdict: &mut Verdict) {
        let Some(finder) = &self.0 else { return };
        match &mut verdict.payload {
            Payload::Result(_) => {}
            Payload::Error(raw) => {
                if finder.is_match(&raw[..]) {
                    *raw = Bytes::from(finder.replace_all_bytes(raw, &self.stars()));
                }
            }
            Payload::None { detail } => *detail = self.hidden(std::mem::take(detail)),
        }
    }

    /// `text` without the secrets.
    pub fn hidden(&self, text: String) -> String {
        match &self.0 {
            Some(finder) if finder.is_match(text.as_str()) => {
                finder.replace_all(&text, &self.stars())
            }
            Some(_) | None => text,
        }
    }

    fn stars(&self) -> Vec<&'static str> {
        vec![STARS; self.0.as_ref().map_or(0, AhoCorasick::patterns_len)]
    }
}

impl Upstream {
    /// `verdict` on what it said, without its secrets. To be called on each verdict before
    /// anybody reads it.
    pub fn masked(&self, mut verdict: Verdict) -> Verdict {
        self.mask.apply(&mut verdict);
        verdict
    }

    /// `text`, some of which it may have written, without its secrets.
    pub fn hidden(&self, text: String) -> String {
        self.mask.hidden(text)
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VerdictClass;

    fn check(secrets: &str, error: &str, expected: &str) {
        let mask = Mask::new(secrets.split_whitespace());
        let masked = |payload| {
            let mut verdict = Verdict::new(VerdictClass::Unknown, "test", payload);
            mask.apply(&mut verdict);
            verdict.payload
        };
        let error_of = |text: &str| Payload::Error(Bytes::from(text.to_owned()));
        let none_of = |text: &str| Payload::None { detail: text.to_owned() };
        assert_eq!(masked(error_of(error)), error_of(expected));
        assert_eq!(masked(none_of(error)), none_of(expected));
        assert_eq!(mask.hidden(error.to_owned()), expected);
        let result = Payload::Result(Bytes::from(error.to_owned()));
        assert_eq!(masked(result.clone()), result, "results are not ours to change");
        assert_eq!(format!("{mask:?}"), "Mask(***)");
    }

    #[test]
    fn secrets_become_stars() {
        check("KEY12345", "POST /v2/KEY12345?k=KEY12345 failed", "POST /v2/***?k=*** failed");
        check("KEY12345 TOKEN-9", "TOKEN-9 KEY12345", "*** ***");
        check("KEY123 KEY12345", "KEY12345", "***");
        check("KEY12345", "no luck", "no luck");
        check("", "no luck", "no luck");
    }

    #[test]
    fn short_words_are_left_alone() {
        check("a eth 1", "eth: a1", "eth: a1");
    }
}
