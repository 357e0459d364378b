//! An upstream's own secrets, taken out of what it says.
//!
//! Some quote the request, key included, in their errors: `cannot POST /v2/KEY`, or the whole
//! head with its `authorization`. Errors reach clients in the upstream's own words, and the status
//! page and the log in short; so the secrets that we know are starred out of every error, in
//! whatever case and in each form of [`HiddenSecrets`]. Results are passed on untouched, and secrets that are not
//! ours (a proxy quoting *its* upstream) are not known here.

mod secrets;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use bytes::Bytes;
use wellhead_jsonrpc::{raw, scan_error, write};

pub use self::secrets::HiddenSecrets;
use crate::judge::error_object;
use crate::verdict::{Payload, Verdict};

/// What stands in a secret's place.
const STARS: &str = "***";
/// JSON in a string in JSON, and so on: escapes are undone this many times to look beneath.
const ESCAPES_DEPTH_MAX: usize = 3;

/// Stars the secrets of one upstream out of what it says.
#[derive(Clone, Default)]
pub struct Redactor(Option<Arc<Finder>>);

struct Finder {
    automaton: AhoCorasick,
    /// What stands in the place of each pattern.
    instead: Vec<String>,
}

impl Redactor {
    /// Hides all of `secrets`; the longest wins where one is part of another.
    pub fn of(secrets: &HiddenSecrets) -> Self {
        let patterns = secrets.patterns();
        if patterns.is_empty() {
            return Self(None);
        }
        // A table of all states would be quicker and take ten times the memory, for each
        // upstream.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(patterns.iter().map(|pattern| pattern.text.as_bytes()))
            .expect("a settings file is too short to hold more than it can take");
        let instead = patterns.iter().map(|pattern| format!("{}{STARS}", pattern.shown)).collect();
        Self(Some(Arc::new(Finder { automaton, instead })))
    }

    /// Takes the secrets out of what `verdict` would pass on or tell.
    pub fn apply(&self, verdict: &mut Verdict) {
        let Some(finder) = &self.0 else { return };
        match &mut verdict.payload {
            Payload::Result(_) => {}
            Payload::Error(raw) => {
                if finder.reveals(raw) {
                    *raw = Bytes::from(finder.without_secrets(raw));
                }
            }
            Payload::None { detail } => *detail = self.hidden(std::mem::take(detail)),
        }
    }

    /// `text` without the secrets.
    pub fn hidden(&self, text: String) -> String {
        match &self.0 {
            Some(finder) if finder.reveals(text.as_bytes()) => finder.starred(&text),
            Some(_) | None => text,
        }
    }
}

impl Finder {
    /// Whether a secret shows in `text`, also behind JSON's escapes.
    fn reveals(&self, text: &[u8]) -> bool {
        if self.automaton.is_match(text) {
            return true;
        }
        let mut text = Cow::Borrowed(text);
        for _ in 0..ESCAPES_DEPTH_MAX {
            if !text.contains(&b'\\') {
                return false;
            }
            text = unescaped(&text).into();
            if self.automaton.is_match(&text[..]) {
                return true;
            }
        }
        false
    }

    /// `text` with stars; nothing else of it where a secret is escaped.
    fn starred(&self, text: &str) -> String {
        let starred = self.automaton.replace_all(text, &self.instead);
        if self.reveals(starred.as_bytes()) { STARS.to_owned() } else { starred }
    }

    /// The error `text` with stars, and still an error in JSON.
    fn without_secrets(&self, text: &[u8]) -> Vec<u8> {
        let starred = self.automaton.replace_all_bytes(text, &self.instead);
        let is_json = || raw::leading(&starred).is_some_and(|value| value == raw::trim(&starred));
        if is_json() && !self.reveals(&starred) {
            return starred;
        }
        // Stars in the place of a number, or a secret behind escapes: written anew.
        let Some(error) = scan_error(text) else { return quoted(STARS) };
        let data = error.data.and_then(|data| match raw::string(data) {
            Some(text) => Some(Cow::Owned(quoted(&self.starred(&text)))),
            None => (!self.reveals(data)).then_some(Cow::Borrowed(data)),
        });
        error_object(error.code, &self.starred(&error.message), data.as_deref())
    }
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write::string(&mut out, text);
    out
}

/// `text` with the escapes of JSON undone wherever they stand, to be searched and not to be read.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let Some((kind, after)) = rest.split_first() else { break };
        rest = after;
        let hex = (*kind == b'u').then(|| rest.get(..4)).flatten();
        let code = hex.and_then(|hex| u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match (kind, code) {
            (b'u', Some(code)) => {
                let letter = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[4..];
            }
            (b't', _) => out.push(b'\t'),
            (b'n', _) => out.push(b'\n'),
            (b'r', _) => out.push(b'\r'),
            (other, _) => out.push(*other),
        }
    }
    out
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Redactor(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VerdictClass;

    /// Hides these words.
    fn hiding(words: &str) -> Redactor {
        let mut secrets = HiddenSecrets::default();
        words.split_whitespace().for_each(|word| secrets.word(word));
        Redactor::of(&secrets)
    }

    fn check(secrets: &str, error: &str, expected: &str) {
        let redactor = hiding(secrets);
        let redacted = |payload| {
            let mut verdict = Verdict::new(VerdictClass::Unknown, "test", payload);
            redactor.apply(&mut verdict);
            verdict.payload
        };
        let error_of = |text: &str| Payload::Error(Bytes::from(format!("\"{text}\"")));
        let none_of = |text: &str| Payload::None { detail: text.to_owned() };
        assert_eq!(redacted(error_of(error)), error_of(expected));
        assert_eq!(redacted(none_of(error)), none_of(expected));
        assert_eq!(redactor.hidden(error.to_owned()), expected);
        let result = Payload::Result(Bytes::from(error.to_owned()));
        assert_eq!(redacted(result.clone()), result, "results are not ours to change");
        assert_eq!(format!("{redactor:?}"), "Redactor(***)");
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
    fn case_does_not_matter() {
        check("Key-12345", "no KEY-12345, key-12345", "no ***, ***");
    }

    #[test]
    fn every_form_in_which_a_server_quotes_a_word_is_hidden() {
        let word = "p@ss/Wörd+1";
        for form in [
            "p@ss/Wörd+1",
            "p%40ss%2FW%C3%B6rd%2B1",
            "p%40ss%2fw%c3%b6rd%2b1",
            "p@ss/W%C3%B6rd+1",
            "cEBzcy9Xw7ZyZCsx",
        ] {
            let told = hiding(word).hidden(format!("said {form} twice"));
            assert_eq!(told, "said *** twice", "{form}");
        }
        check("a%2Fb%2Fsecret", "a/b/secret A%2fB%2fSECRET", "*** ***");
        check("hexadecimal", "68657861646563696d616c", "***");
    }

    #[test]
    fn a_word_in_the_middle_of_a_text_in_base64_is_hidden() {
        use base64::Engine as _;
        use base64::engine::general_purpose::{STANDARD, URL_SAFE};
        let redactor = hiding("0123456789abcdef");
        for before in ["", "a", "ab", "POST /v2/", "POST / HTTP/1.1\r\nx-key: "] {
            for engine in [&STANDARD, &URL_SAFE] {
                let quoted = engine.encode(format!("{before}0123456789abcdef\r\nhost: a"));
                let told = redactor.hidden(quoted.clone());
                assert!(told.contains(STARS), "{before:?}: {quoted}");
                // What is left of the word is less than three bytes at each end.
                assert!(told.len() + 18 <= quoted.len() + STARS.len(), "{told}");
            }
        }
    }

    #[test]
    fn credentials_are_hidden_as_sent_and_in_parts() {
        let mut secrets = HiddenSecrets::default();
        secrets.header("authorization", "Basic YWxhZGRpbjpvcGVuc2VzYW1l");
        secrets.header("cookie", "session=0123456789; theme=light");
        let redactor = Redactor::of(&secrets);
        for (told, redacted) in [
            ("authorization: Basic YWxhZGRpbjpvcGVuc2VzYW1l", "authorization: ***"),
            ("authorization: basic ywxhzgrpbjpvcgvuc2vzyw1l", "authorization: ***"),
            ("bad YWxhZGRpbjpvcGVuc2VzYW1l", "bad ***"),
            ("user aladdin:opensesame", "user ***"),
            ("password opensesame is wrong", "password *** is wrong"),
            ("cookie session=0123456789", "cookie session=***"),
        ] {
            assert_eq!(redactor.hidden(told.to_owned()), redacted);
        }
        assert_eq!(format!("{secrets:?}"), "Secrets(***)");
    }

    #[test]
    fn a_short_value_is_hidden_beside_its_name() {
        let mut secrets = HiddenSecrets::default();
        secrets.header("X-Key", "abc");
        secrets.parameter("apikey", "de");
        let redactor = Redactor::of(&secrets);
        for (told, redacted) in [
            ("x-key: abc, abc of GET /?apikey=de", "X-Key: ***, abc of GET /?apikey=***"),
            (r#"{"x-key":"abc"}"#, r#"{"X-Key":"***"}"#),
        ] {
            assert_eq!(redactor.hidden(told.to_owned()), redacted);
        }
    }

    /// Redacts `error` and compares what is left, which has to be JSON still.
    fn check_json(secret: &str, error: &str, expected: &str) {
        let payload = Payload::Error(Bytes::from(error.to_owned()));
        let mut verdict = Verdict::new(VerdictClass::Unknown, "test", payload);
        hiding(secret).apply(&mut verdict);
        let Payload::Error(raw) = verdict.payload else { panic!("an error stays one") };
        assert_eq!(String::from_utf8_lossy(&raw), expected);
        serde_json::from_slice::<serde_json::Value>(&raw).expect("JSON");
    }

    #[test]
    fn an_error_without_its_secrets_is_json() {
        check_json("12345678", r#"{"code":1,"data":12345678}"#, r#"{"code":1,"message":""}"#);
        check_json(
            "12345678",
            r#"{"code":1,"message":"key 12345678","data":{"key":12345678}}"#,
            r#"{"code":1,"message":"key ***"}"#,
        );
    }

    #[test]
    fn escapes_hide_no_secret_from_the_search() {
        check_json(
            "a/b/c\"d<e",
            r#"{"code":1,"message":"no a\/b/c\"d\u003ce","data":"a/b/c\"d<e!"}"#,
            r#"{"code":1,"message":"no ***","data":"***!"}"#,
        );
        check_json(
            "a/b/c/d",
            r#"{"code":1,"message":"x","data":{"path":"a\/b\/c\/d"}}"#,
            r#"{"code":1,"message":"x"}"#,
        );
        check_json(
            "a/b/c/d",
            r#"{"code":1,"message":"{\"path\":\"a\\/b\\/c\\/d\"}"}"#,
            r#"{"code":1,"message":"***"}"#,
        );
    }

    #[test]
    fn short_words_are_left_alone() {
        check("a eth 1", "eth: a1", "eth: a1");
    }
}
