//! What connections do, as records, and without the secrets of a URL.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wellhead_net::{Event, Happening, SetUp};
use wellhead_telemetry::SecretUrl;

use super::{micros, word};
use crate::record::WireEvent;

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
/// So many letters in a row of a URL's secret parts give it away.
const TELLING: usize = 6;
/// Letters of what a GOAWAY says that are kept.
const DEBUG_LETTERS_MAX: usize = 100;
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
        Self(parts.filter(|part| part.len() >= TELLING).map(str::to_lowercase).collect())
    }

    /// The text, short and printable, or that there was one that must not be told.
    fn without(&self, text: &str) -> String {
        let text: String =
            text.chars().filter(|letter| !letter.is_control()).take(DEBUG_LETTERS_MAX).collect();
        let small = text.to_lowercase();
        let told = |part: &String| {
            part.as_bytes()
                .windows(TELLING)
                .any(|piece| std::str::from_utf8(piece).is_ok_and(|piece| small.contains(piece)))
        };
        let ends = |letter: char| !letter.is_ascii_alphanumeric();
        let is_long = text.split(ends).any(|word| word.len() > WORD_LETTERS_MAX);
        if is_long || self.0.iter().any(told) {
            return "(not kept: it may hold a key)".to_owned();
        }
        text
    }
}

/// One event, and when and where it was.
pub(super) fn told(event: Event, secrets: &Secrets) -> (Instant, u64, WireEvent) {
    let what = match event.what {
        Happening::Opened { protocol, alpn, set_up: SetUp { dns, tcp, tls } } => {
            let some = |length: Duration| Some(micros(length)).filter(|us| *us > 0);
            WireEvent::Opened {
                protocol: word(protocol).unwrap_or_default(),
                alpn: alpn.and_then(word),
                dns: some(dns),
                tcp: some(tcp),
                tls: some(tls),
            }
        }
        Happening::Settings(settings) => {
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
        Happening::Goaway { code, last_stream, debug } => {
            WireEvent::Goaway { code, last_stream, debug: secrets.without(&debug) }
        }
        Happening::Reset { stream, code } => WireEvent::Reset { stream, code },
        Happening::Closed { reason, requests, in_flight } => WireEvent::Closed {
            reason: reason.word().to_owned(),
            calls: requests,
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
        },
    };
    (event.at, event.connection, what)
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
        ] {
            assert!(secrets.without(text).starts_with("(not kept"), "{text}");
        }
        for text in ["", "too_many_internal_resets", "max requests reached", "v2"] {
            assert_eq!(secrets.without(text), text);
        }
        assert_eq!(secrets.without("a\u{1b}[2Jb\n"), "a[2Jb");
        assert_eq!(secrets.without(&"ab ".repeat(99)).len(), DEBUG_LETTERS_MAX);
        assert!(!format!("{secrets:?}").contains("PASS"));
    }

    #[test]
    fn settings_have_their_names() {
        let settings = vec![(1, 4096), (3, 128), (4, 65_535), (99, 7)];
        let event =
            Event { at: Instant::now(), connection: 4, what: Happening::Settings(settings) };
        let (_, connection, WireEvent::Settings { max_streams, others }) = told(event, &secrets())
        else {
            panic!("settings stay settings");
        };
        assert_eq!((connection, max_streams), (4, Some(128)));
        let others: Vec<String> =
            others.iter().map(|(name, value)| format!("{name} {value}")).collect();
        assert_eq!(others, ["99 7", "header_table_size 4096", "initial_window_size 65535"]);
    }
}
