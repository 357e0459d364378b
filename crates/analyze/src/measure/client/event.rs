//! What connections do, as records, and without the secrets of a URL.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use percent_encoding::percent_decode_str;
use tokio::time::Instant;
use wellhead_net::{JournalEntry, JournalEvent, SetUp};
use wellhead_telemetry::SecretUrl;

use super::{micros, word};
use crate::record::WireEvent;
use crate::text::is_bidi_control;

/// MAX_CONCURRENT_STREAMS (RFC 9113, section 6.5.2).
const MAX_STREAMS: u16 = 3;
/// The names of the settings of HTTP/2, from number 1 on.
const SETTINGS: [&str; 6] = [
    "header_table_size",
    "enable_push",
    "max_concurrent_streams",
    "initial_window_size",
    "max_frame_size",
    "max_header_list_size",
];
/// Settings of one frame that are kept.
const SETTINGS_MAX: usize = 16;
/// What stands for a text that holds a part of the URL.
const NOT_KEPT: &str = "(not kept: it may hold a key)";
/// This many letters in a row of a URL's secret parts give it away.
const TELLING: usize = 6;
/// Letters of what the other side says that are kept.
const LETTERS_MAX: usize = 100;
/// A longer word could be a key.
const WORD_LETTERS_MAX: usize = 20;

/// The parts of a URL that may be keys. Prints none of them.
pub(super) struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Secrets").field(&self.0.len()).finish()
    }
}

impl Secrets {
    pub(super) fn of(url: &SecretUrl) -> Self {
        let url = url.expose();
        let user = [url.username(), url.password().unwrap_or_default()];
        let path = url.path().split('/');
        let query = url.query().unwrap_or_default().split(['&', '=']);
        let parts = user.into_iter().chain(path).chain(query);
        // A server that reads the request may tell what it means, or the header that it came in.
        let header = BASE64.encode(user.map(meant).join(":"));
        let parts = parts.flat_map(|part| [part.to_owned(), meant(part)]).chain([header]);
        Self(parts.filter(|part| part.len() >= TELLING).map(|part| part.to_lowercase()).collect())
    }

    /// These as well.
    pub(super) fn and(mut self, values: &[String]) -> Self {
        let values = values.iter().filter(|value| value.len() >= TELLING);
        self.0.extend(values.map(|value| value.to_lowercase()));
        self
    }

    /// Whether a text from outside holds a part of the URL.
    pub(super) fn are_in(&self, text: &str) -> bool {
        let small = text.to_lowercase();
        let told = |part: &String| {
            part.as_bytes()
                .windows(TELLING)
                .any(|piece| std::str::from_utf8(piece).is_ok_and(|piece| small.contains(piece)))
        };
        self.0.iter().any(told)
    }

    /// The text, or that there was one that must not be told.
    pub(super) fn kept(&self, text: String) -> String {
        if self.are_in(&text) { NOT_KEPT.to_owned() } else { text }
    }

    /// The text, short and printable, or that there was one that must not be told.
    pub(super) fn short(&self, text: &str) -> String {
        let text = text.chars().filter(|letter| !letter.is_control() && !is_bidi_control(*letter));
        self.kept(text.take(LETTERS_MAX).collect())
    }

    /// Text that was not written for people, short and printable: a long word in it could be a key.
    fn without(&self, text: &str) -> String {
        let text = self.short(text);
        let ends = |letter: char| !letter.is_ascii_alphanumeric();
        let is_long = text.split(ends).any(|word| word.len() > WORD_LETTERS_MAX);
        if is_long { NOT_KEPT.to_owned() } else { text }
    }
}

/// What stands for itself where `%` begins no escape.
fn meant(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// The event of one entry, and when and where it was.
pub(super) fn told(entry: JournalEntry, secrets: &Secrets) -> (Instant, u64, WireEvent) {
    let what = match entry.what {
        JournalEvent::Opened { protocol, alpn, set_up: SetUp { dns, tcp, tls } } => {
            let some = |length: Duration| Some(micros(length)).filter(|us| *us > 0);
            WireEvent::Opened {
                protocol: word(protocol),
                alpn: alpn.map(word),
                dns: some(dns),
                tcp: some(tcp),
                tls: some(tls),
            }
        }
        JournalEvent::Settings(settings) => {
            let mut max_streams = None;
            let mut others = BTreeMap::new();
            for (id, value) in settings.into_iter().take(SETTINGS_MAX) {
                if id == MAX_STREAMS {
                    max_streams = Some(value);
                    continue;
                }
                let name = SETTINGS.get(usize::from(id).wrapping_sub(1));
                others.insert(name.map_or(id.to_string(), |name| (*name).to_owned()), value);
            }
            WireEvent::Settings { max_streams, others }
        }
        JournalEvent::Goaway { code, last_stream, debug } => {
            WireEvent::Goaway { code, last_stream, debug: secrets.without(&debug) }
        }
        JournalEvent::Reset { stream, code } => WireEvent::Reset { stream, code },
        JournalEvent::Closed { reason, requests, in_flight } => WireEvent::Closed {
            reason: reason.word().to_owned(),
            calls: requests,
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
        },
    };
    (entry.at, entry.connection, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let url = "https://user:PASSWORD@rpc.example/v2/PathKey_77-x?apikey=QUERYKEY&k=1";
        Secrets::of(&SecretUrl::parse(url).expect("a URL"))
    }

    #[test]
    fn what_quotes_the_url_is_not_kept() {
        let secrets = secrets();
        for text in [
            "bad path /v2/PathKey_77-x",
            "for pathkey_77",
            "PASSWORD",
            "key=queryk",
            "cut: PathKe",
            "Basic dXNlcjpQQVNTV09SRDEyMzQ1Njc4",
            // Too short to be taken for a key.
            "Basic dXNlcjpQQVNTV09SRA==",
        ] {
            assert!(secrets.without(text).starts_with("(not kept"), "{text}");
        }
        for text in ["", "too_many_internal_resets", "max requests reached", "v2"] {
            assert_eq!(secrets.without(text), text);
        }
        assert_eq!(secrets.without("a\u{1b}[2Jb\n"), "a[2Jb");
        assert_eq!(secrets.without(&"ab ".repeat(99)).len(), LETTERS_MAX);
        assert!(!format!("{secrets:?}").contains("PASS"));
    }

    #[test]
    fn what_is_meant_by_the_url_is_not_kept_either() {
        let url = "https://u:p%40ssword%21@rpc.example/v2/a%2Fbcdef%zz?k=%C3%A4%C3%B6%C3%BC";
        let secrets = Secrets::of(&SecretUrl::parse(url).expect("a URL"));
        for text in ["p@ssword!", "p%40ssw", "a/bcdef", "dTpwQHNzd29yZCE=", "\u{e4}\u{f6}\u{fc}"] {
            assert!(secrets.are_in(text), "{text}");
        }
        assert!(!secrets.are_in("50;w=1"));
    }

    #[test]
    fn what_a_client_calls_itself_cannot_move_a_cursor() {
        let secrets = secrets();
        assert_eq!(secrets.short("Geth/v1\u{1b}[2J\n\u{202e}x"), "Geth/v1[2Jx");
        assert_eq!(secrets.short(&"x".repeat(1_000)).len(), LETTERS_MAX);
        assert_eq!(secrets.short("Geth/PathKey_77-x"), NOT_KEPT);
    }

    #[test]
    fn settings_have_their_names() {
        let settings = vec![(1, 4096), (3, 128), (4, 65_535), (99, 7)];
        let entry = JournalEntry {
            at: Instant::now(),
            connection: 4,
            what: JournalEvent::Settings(settings),
        };
        let (_, connection, WireEvent::Settings { max_streams, others }) = told(entry, &secrets())
        else {
            panic!("settings stay settings");
        };
        assert_eq!((connection, max_streams), (4, Some(128)));
        let others: Vec<String> =
            others.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(others, ["99 7", "header_table_size 4096", "initial_window_size 65535"]);
    }
}
