//! Events on the wire, for measurements: the events of connections ([`Journal`]), and the
//! phases of one exchange ([`ExchangeTimeline`]).
//!
//! The cost without measurements: a connection has an empty pointer instead of a journal, which
//! is checked a few times per exchange. Nothing is allocated, locked or timed for
//! it. With one, each connection has a box of its own, and each event takes the journal's lock.
//!
//! Of headers only those that tell of limits are kept, and of them only what cannot be a key.
//! The text of a GOAWAY is passed on unchanged, within a bound: its writer has to remove
//! secrets from it.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::protocol::{CloseReason, Protocol};

/// Events that are stored until they are taken; further ones are only counted.
const EVENTS_MAX: usize = 100_000;
/// Bytes of what a GOAWAY says.
const DEBUG_BYTES_MAX: usize = 200;
/// Headers of one answer.
const LIMITS_MAX: usize = 12;
/// Letters of such a header's name, and of its value.
const LIMIT_LETTERS_MAX: usize = 64;
/// A longer word with letters and digits could be a key.
const WORD_LETTERS_MAX: usize = 15;

/// How long a connection took to come about. Zero where a step was not needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetUp {
    /// Looking up the name, or remembering it.
    pub dns: Duration,
    /// Connecting.
    pub tcp: Duration,
    /// Shaking hands.
    pub tls: Duration,
}

impl SetUp {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.dns + self.tcp + self.tls
    }
}

/// What can happen to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalEvent {
    /// It is open.
    Opened {
        /// What it speaks.
        protocol: Protocol,
        /// What ALPN agreed on; `None` without TLS, or where the peer chose nothing.
        alpn: Option<Protocol>,
        /// How long that took.
        set_up: SetUp,
    },
    /// The peer announced settings of HTTP/2 (RFC 9113, section 6.5.2), by their numbers.
    Settings(Vec<(u16, u32)>),
    /// The peer goes away. One that does so gently says it twice, first with the largest number
    /// that there is.
    Goaway {
        /// The error code (RFC 9113, section 7).
        code: u32,
        /// The last stream that it may have acted on.
        last_stream: u32,
        /// What it says. From outside, and not free of secrets: it may quote a path.
        debug: String,
    },
    /// The peer ended one stream.
    Reset {
        /// The stream.
        stream: u32,
        /// The error code.
        code: u32,
    },
    /// It is closed.
    Closed {
        /// Why.
        reason: CloseReason,
        /// Requests that it carried.
        requests: u64,
        /// Of these, those without a whole answer.
        in_flight: usize,
    },
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalEntry {
    /// When.
    pub at: Instant,
    /// The connection, as in [`ExchangeTimeline::connection`].
    pub connection: u64,
    /// What happened.
    pub what: JournalEvent,
}

/// Notes what connections do, and numbers them. See [`crate::ConnectionStats::with_journal`].
#[derive(Debug, Default)]
pub struct Journal {
    numbers: Arc<AtomicU64>,
    events: Mutex<Vec<JournalEntry>>,
    lost: AtomicU64,
}

impl Journal {
    /// An empty one. `numbers` is the next connection's number, common to all journals that share
    /// it.
    pub fn new(numbers: Arc<AtomicU64>) -> Self {
        Self { numbers, ..Self::default() }
    }

    /// What happened since the last time, in the order in which it was noted.
    pub fn take(&self) -> Vec<JournalEntry> {
        mem::take(&mut self.events.lock())
    }

    /// Events that found no place, since the start.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    fn note(&self, connection: u64, what: JournalEvent, at: Instant) {
        let mut events = self.events.lock();
        if events.len() < EVENTS_MAX {
            events.push(JournalEntry { at, connection, what });
        } else {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// What one exchange met, as far as it came. See [`crate::HttpTransport::exchange_told`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExchangeTimeline {
    /// Which connection carried it. `None` without a journal, and where it waited in vain.
    pub connection: Option<u64>,
    /// Which stream of it, over HTTP/2.
    pub stream: Option<u32>,
    /// What was spoken.
    pub protocol: Option<Protocol>,
    /// How the connection came about, where it is the first exchange on it and waited for it.
    pub set_up: Option<SetUp>,
    /// Waiting for a connection or for room on one, without `set_up`.
    pub queued: Duration,
    /// From then on until the socket had all of the request.
    pub write: Option<Duration>,
    /// From then on until the answer began.
    pub first_byte: Option<Duration>,
    /// What the answer's headers tell of limits, by name: numbers and short words.
    pub limits: Vec<(String, String)>,
}

/// What the journal notes of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionLog {
    journal: Arc<Journal>,
    pub(crate) number: u64,
    /// Until an exchange has told it.
    pub(crate) set_up: Option<SetUp>,
    /// Requests that were begun.
    pub(crate) requests: u64,
    /// When the socket had all of the request under way; HTTP/1.1 only.
    pub(crate) written: Option<Instant>,
    /// What the head under way tells of limits; HTTP/1.1 only.
    pub(crate) limits: Vec<(String, String)>,
}

impl ConnectionLog {
    /// Notes that a connection was opened.
    pub(crate) fn open(
        journal: &Arc<Journal>,
        protocol: Protocol,
        alpn: Option<Protocol>,
        set_up: SetUp,
    ) -> Box<Self> {
        let number = journal.numbers.fetch_add(1, Relaxed) + 1;
        journal.note(number, JournalEvent::Opened { protocol, alpn, set_up }, Instant::now());
        let journal = Arc::clone(journal);
        let (requests, written, limits) = (0, None, Vec::new());
        Box::new(Self { journal, number, set_up: Some(set_up), requests, written, limits })
    }

    pub(crate) fn note(&self, what: JournalEvent, at: Instant) {
        self.journal.note(self.number, what, at);
    }

    pub(crate) fn closed(&self, reason: CloseReason, in_flight: usize) {
        let requests = self.requests;
        self.note(JournalEvent::Closed { reason, requests, in_flight }, Instant::now());
    }
}

impl ExchangeTimeline {
    /// An exchange that waited for `waited` goes over this connection.
    pub(crate) fn board(
        &mut self,
        number: u64,
        protocol: Protocol,
        set_up: Option<SetUp>,
        waited: Duration,
    ) {
        // A connection that was opened for another call may be older than the wait.
        let set_up = set_up.filter(|set_up| !waited.is_zero() && set_up.total() <= waited);
        self.connection = Some(number);
        self.protocol = Some(protocol);
        self.queued = waited - set_up.map_or(Duration::ZERO, |set_up| set_up.total());
        self.set_up = set_up;
    }

    /// Its answer began at `answered`.
    pub(crate) fn arrive(&mut self, sent: Instant, written: Option<Instant>, answered: Instant) {
        // An answer may begin before the request is out.
        let written = written.map(|written| written.clamp(sent, answered.max(sent)));
        self.write = written.map(|written| written - sent);
        self.first_byte = Some(answered.saturating_duration_since(written.unwrap_or(sent)));
    }
}

/// What a GOAWAY says, within its bound.
pub(crate) fn debug_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(DEBUG_BYTES_MAX)]).into_owned()
}

/// Keeps a header that tells of limits, and nothing that could be a key.
pub(crate) fn keep_limit(limits: &mut Vec<(String, String)>, name: &[u8], value: &[u8]) {
    if limits.len() >= LIMITS_MAX || !tells_limit(name) {
        return;
    }
    let (Ok(name), Ok(value)) = (std::str::from_utf8(name), std::str::from_utf8(value)) else {
        return;
    };
    let name = name.to_ascii_lowercase();
    if is_harmless(&name) && is_harmless(value) {
        limits.push((name, value.trim().to_owned()));
    }
}

/// Whether a header of this name tells of limits, as providers and the drafts of the IETF
/// ("RateLimit header fields for HTTP") call them.
pub(crate) fn tells_limit(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 4] = [b"retry-after", b"ratelimit", b"x-ratelimit", b"x-rate-limit"];
    let begins = |wanted: &&[u8]| {
        name.get(..wanted.len()).is_some_and(|front| front.eq_ignore_ascii_case(wanted))
    };
    NAMES.iter().any(begins)
}

/// Printable, short, and without a word that could be a key.
fn is_harmless(text: &str) -> bool {
    let printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    // What partitions a quota may be the caller's key.
    printable && text.len() <= LIMIT_LETTERS_MAX && !text.contains("pk=") && !has_key(text)
}

/// Whether a word is so long, and so mixed, that it could be a key.
fn has_key(text: &str) -> bool {
    let ends = |letter: char| !letter.is_ascii_alphanumeric();
    text.split(ends).any(|word| {
        let number = word.bytes().all(|byte| byte.is_ascii_digit());
        word.len() > WORD_LETTERS_MAX && !(number && word.len() <= 2 * WORD_LETTERS_MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str, value: &str) -> Option<String> {
        let mut limits = Vec::new();
        keep_limit(&mut limits, name.as_bytes(), value.as_bytes());
        limits.pop().map(|(name, value)| format!("{name}={value}"))
    }

    #[test]
    fn limits_are_kept_by_their_usual_names() {
        for (name, value) in [
            ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT"),
            ("x-ratelimit-remaining", "41"),
            ("x-rate-limit-reset", "1795306500"),
            ("ratelimit", "\"default\";r=50;t=30"),
            ("ratelimit-policy", "100;w=1, 5000;w=60"),
        ] {
            assert_eq!(kept(name, value), Some(format!("{name}={value}")));
            let loud = name.to_ascii_uppercase();
            assert_eq!(kept(&loud, value), Some(format!("{name}={value}")));
        }
        for name in ["server", "x-request-id", "set-cookie", "x-rate", "retry", ""] {
            assert_eq!(kept(name, "1"), None, "{name}");
        }
    }

    #[test]
    fn what_could_be_a_key_is_not_kept() {
        for (name, value) in [
            ("x-ratelimit-key", "AbCdEf0123456789AbCdEf"),
            ("x-ratelimit-key-abcdef0123456789abcdef", "1"),
            ("ratelimit", "\"default\";r=50;pk=:c2hvcnQ=:"),
            ("x-ratelimit-limit", "1\u{1b}[2J"),
            ("x-ratelimit-limit", &"1 ".repeat(40)),
        ] {
            assert_eq!(kept(name, value), None, "{name}: {value}");
        }
    }

    #[test]
    fn headers_are_bounded_in_number() {
        let mut limits = Vec::new();
        for n in 0..100 {
            keep_limit(&mut limits, format!("x-ratelimit-{n}").as_bytes(), b"1");
        }
        assert_eq!(limits.len(), LIMITS_MAX);
    }

    #[test]
    fn events_are_bounded_in_number() {
        let journal = Arc::new(Journal::default());
        let page = ConnectionLog::open(&journal, Protocol::H2, None, SetUp::default());
        for _ in 0..EVENTS_MAX {
            page.note(JournalEvent::Reset { stream: 1, code: 7 }, Instant::now());
        }
        assert_eq!((journal.lost(), journal.take().len()), (1, EVENTS_MAX));
        assert!(journal.take().is_empty());
    }

    #[test]
    fn a_wait_is_set_up_and_queue() {
        let ms = Duration::from_millis;
        let set_up = SetUp { dns: ms(1), tcp: ms(20), tls: ms(40) };
        let boarded = |waited| {
            let mut passage = ExchangeTimeline::default();
            passage.board(3, Protocol::H2, Some(set_up), ms(waited));
            (passage.set_up, passage.queued)
        };
        assert_eq!(boarded(70), (Some(set_up), ms(9)));
        // It was begun before this exchange came.
        assert_eq!(boarded(50), (None, ms(50)));
    }
}
