//! The checkers: each looks at the evidence of one scenario and says what is wrong.
//!
//! They share nothing with the proxy, not even its parser, and each has a test that feeds
//! it a violation.

mod amplification;
mod answers;
mod budget;
mod content;
mod deadline;
mod kept;
mod latest;
mod leaks;
mod limits;
mod logs;
mod quorum;
mod reads;
mod recovery;
#[cfg(test)]
mod sample;
mod secrets;
mod share;
mod subscription;
mod void;
mod wellness;
mod writes;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::evidence::{Answered, At, Evidence, Item, Request};

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The check that noticed.
    pub checker: &'static str,
    /// When it happened.
    pub at: At,
    /// What.
    pub what: String,
}

/// Something that must not be, and when it happened.
type Finding = (At, String);

/// A checker.
type Check = fn(&Evidence) -> Vec<Violation>;

/// All of them.
const CHECKERS: [Check; 18] = [
    answers::check,
    deadline::check,
    reads::check,
    recovery::check,
    limits::check,
    writes::check,
    budget::check,
    content::check,
    logs::check,
    kept::check,
    secrets::check,
    leaks::check,
    latest::check,
    quorum::check,
    void::check,
    share::check,
    amplification::check,
    subscription::check,
];

/// What all checkers have to say.
pub fn all(evidence: &Evidence) -> Vec<Violation> {
    CHECKERS.iter().flat_map(|check| check(evidence)).collect()
}

/// Requests of which it was checked that no read failed: an upstream was well all the time.
pub fn judged(evidence: &Evidence) -> usize {
    reads::judged(evidence)
}

/// Lies that upstreams told clients.
pub fn lies(evidence: &Evidence) -> usize {
    void::lies(evidence).count()
}

/// Calls that the cache was asked for, and those of them that reached no upstream.
pub fn found(evidence: &Evidence) -> (usize, usize) {
    let answers = evidence.requests.iter().filter_map(|request| request.answered.as_ref());
    let words: Vec<&str> = answers.filter_map(|answered| answered.cache).collect();
    (words.len(), words.iter().filter(|word| matches!(**word, "hit" | "joined")).count())
}

/// Searches of which an upstream hid what there is to find.
pub fn hidden(evidence: &Evidence) -> usize {
    logs::hidden(evidence)
}

/// A raw result, or a raw error.
type Outcome<'a> = Result<&'a str, &'a str>;

/// One reply as a strict client reads it: a key that occurs twice is an error.
#[derive(Debug, Deserialize)]
struct Reply<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

/// `Some` for a `null` too: only what is missing is `None`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Reply<'a> {
    fn outcome(&self) -> Outcome<'a> {
        match (self.result, self.error) {
            (Some(result), _) => Ok(result.get()),
            (None, Some(error)) => Err(error.get()),
            (None, None) => Err(""),
        }
    }
}

/// The replies in a body, in their order; `Err` says why it cannot be read.
fn replies(body: &[u8], is_batch: bool) -> Result<Vec<Reply<'_>>, String> {
    let read = match is_batch {
        // A refusal of the whole batch is one object.
        true if body.trim_ascii_start().starts_with(b"[") => serde_json::from_slice(body),
        true | false => serde_json::from_slice(body).map(|reply| vec![reply]),
    };
    read.map_err(|error| error.to_string())
}

/// What each item of a request that has an id was told; nothing where the answer cannot be read, which is for
/// `answers` to tell.
fn outcomes<'a>(request: &'a Request, answered: &'a Answered) -> Vec<(&'a Item, Outcome<'a>)> {
    let replies = replies(&answered.body, request.is_batch).unwrap_or_default();
    let items = request.items.iter().filter(|item| item.id.is_some());
    items.zip(replies.iter().map(Reply::outcome)).collect()
}

/// The height in a raw result.
fn height(result: &str) -> Option<u64> {
    u64::from_str_radix(result.trim_matches('"').strip_prefix("0x")?, 16).ok()
}

/// The code of a raw error object.
fn code(error: &str) -> Option<i64> {
    serde_json::from_str::<serde_json::Value>(error).ok()?.get("code")?.as_i64()
}
