//! Changes of single entries: each is read, and replaced if no other change of it came between.
//!
//! The server makes a change within the time in which it is waited for, by its own clock, or not at all. So
//! what was given up does not happen later. Only an answer that is lost on its way leaves it open what was done
//! ([`DirectoryError::Unanswered`]).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use tokio::time::timeout;

use super::DirectoryCore;
use super::entries::{bytes_of, text};

/// The longest id, in bytes.
pub(super) const ID_MAX: usize = 64;

/// Why a change was not made, or may not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryError {
    /// The store cannot be reached, or is too slow: nothing was changed.
    #[error("it cannot be reached, or is too slow")]
    Away,
    /// The change was sent, and its answer did not come: it may have been made, and is not made later.
    #[error("it did not answer in time")]
    Unanswered,
    /// The store has lost the entries that are known here. A change would make it the directory as it is.
    #[error("its data is gone")]
    Lost,
    /// There are as many entries as may be.
    #[error("it has as many entries as it may")]
    Full,
    /// The id is empty, longer than 64 bytes or not printable, or the value is too large.
    #[error("the id or the value is too large, or the id is not printable")]
    TooLarge,
    /// The store answers with an error, which says this.
    #[error("{0}")]
    Refused(&'static str),
}

/// An entry as it was read, to be replaced.
#[derive(Debug)]
pub struct DirectoryEntry {
    id: String,
    /// `None`: there is none of this id.
    pub value: Option<Bytes>,
    /// By the clock of the server, in microseconds.
    read_at: u64,
}

/// What became of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryWrite {
    /// It was made, as the change of this number: see [`KeySnapshot::version`](super::KeySnapshot::version).
    Made(u64),
    /// The entry is not as it was read.
    Changed,
}

/// Changes entries, on a connection of its own: changes are rare, and made by people.
pub struct DirectoryWriter {
    pub(super) connection: MultiplexedConnection,
    pub(super) core: Arc<DirectoryCore>,
    /// The least number that the last change has, unless the store has lost its data.
    pub(super) version_min: u64,
}

impl fmt::Debug for DirectoryWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryWriter").field("bounds", &self.core.bounds).finish_non_exhaustive()
    }
}

impl DirectoryWriter {
    /// The entry as it is in the store now.
    pub async fn read(&mut self, id: &str) -> Result<DirectoryEntry, DirectoryError> {
        let bounds = &self.core.bounds;
        let mut asks = Pipeline::with_capacity(3);
        asks.cmd("HGET").arg(bounds.hash()).arg(id);
        asks.cmd("GET").arg(bounds.version());
        asks.cmd("TIME");
        let asking = self.connection.send_packed_commands(&asks, 0, 3);
        let answers = match timeout(bounds.answer_within, asking).await {
            Ok(answers) => answers.map_err(|why| refused(&why))?,
            Err(_) => return Err(DirectoryError::Away),
        };
        let [value, version, time] = <[Value; 3]>::try_from(answers).map_err(|_| NO_ANSWER)?;
        let value = match value {
            Value::ServerError(why) => return Err(refusal_of(why.code())),
            Value::Nil => None,
            value => Some(bytes_of(value).ok_or(NO_ANSWER)?),
        };
        if number(&version).unwrap_or(0) < self.version_min {
            return Err(DirectoryError::Lost);
        }
        let read_at = microseconds(&time).ok_or(NO_ANSWER)?;
        Ok(DirectoryEntry { id: id.to_owned(), value, read_at })
    }

    /// Replaces the entry, or adds it, if it still is as it was read. Once this has returned, each connected
    /// replica hears of it.
    pub async fn replace(
        &mut self,
        entry: &DirectoryEntry,
        value: &[u8],
    ) -> Result<DirectoryWrite, DirectoryError> {
        let (bounds, id) = (&self.core.bounds, &entry.id);
        let is_id = (1..=ID_MAX).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        if !is_id || value.len() > bounds.value_bytes_max {
            return Err(DirectoryError::TooLarge);
        }
        let found = entry.value.as_ref().map(|value| [b"=", &**value].concat());
        let until = entry.read_at + bounds.answer_within.as_micros() as u64;
        let mut call = redis::cmd("EVAL");
        call.arg(include_str!("change.lua")).arg(2);
        call.arg(bounds.hash()).arg(bounds.version()).arg(bounds.channel());
        call.arg(id).arg(value).arg(found.unwrap_or_default());
        call.arg(until).arg(bounds.entries_max).arg(self.version_min);
        let answer = timeout(bounds.answer_within, self.connection.send_packed_command(&call));
        match answer.await {
            Ok(Ok(Value::ServerError(why))) => Err(refusal_of(why.code())),
            Ok(Ok(answer)) => {
                let outcome = outcome(&answer);
                if matches!(outcome, Ok(DirectoryWrite::Made(_))) {
                    self.core.was_changed.store(true, Relaxed);
                }
                outcome
            }
            Ok(Err(why)) if why.is_unrecoverable_error() => Err(DirectoryError::Unanswered),
            Ok(Err(why)) => Err(refused(&why)),
            Err(_) => Err(DirectoryError::Unanswered),
        }
    }
}

/// It is none of Redis.
const NO_ANSWER: DirectoryError = DirectoryError::Refused("its answer is none");

fn outcome(answer: &Value) -> Result<DirectoryWrite, DirectoryError> {
    if let Value::Int(version) = answer {
        return u64::try_from(*version).map(DirectoryWrite::Made).map_err(|_| NO_ANSWER);
    }
    match text(answer) {
        Some("changed") => Ok(DirectoryWrite::Changed),
        Some("late") => Err(DirectoryError::Away),
        Some("lost") => Err(DirectoryError::Lost),
        Some("full") => Err(DirectoryError::Full),
        Some(_) | None => Err(NO_ANSWER),
    }
}

fn refused(why: &RedisError) -> DirectoryError {
    match why.is_unrecoverable_error() {
        true => DirectoryError::Away,
        false => refusal_of(why.code().unwrap_or_default()),
    }
}

/// By the first word of the error. The rest is not quoted: it may hold the entry.
fn refusal_of(code: &str) -> DirectoryError {
    DirectoryError::Refused(match code {
        "OOM" => "its memory is full",
        "READONLY" => "it is a replica of another Redis, which cannot be written to",
        "NOPERM" => "its user has no permission to change the keys",
        "MISCONF" => "it cannot write to its disk",
        "NOREPLICAS" => "it has too few replicas of its own",
        "LOADING" => "it is loading its data",
        "BUSY" => "it is busy with a script",
        _ => "it answers with an error",
    })
}

fn number(value: &Value) -> Option<u64> {
    text(value)?.parse().ok()
}

fn microseconds(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let since = Duration::from_secs(number(seconds)?) + Duration::from_micros(number(micros)?);
    u64::try_from(since.as_micros()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &Value, want: Result<DirectoryWrite, DirectoryError>) {
        assert_eq!(outcome(answer), want, "{answer:?}");
    }

    #[test]
    fn answers_of_the_script() {
        let word = |word: &str| Value::BulkString(word.into());
        check(&Value::Int(7), Ok(DirectoryWrite::Made(7)));
        check(&word("changed"), Ok(DirectoryWrite::Changed));
        check(&word("late"), Err(DirectoryError::Away));
        check(&word("lost"), Err(DirectoryError::Lost));
        check(&word("full"), Err(DirectoryError::Full));
        for other in [Value::Nil, Value::Int(-1), word("OK")] {
            check(&other, Err(NO_ANSWER));
        }
    }

    #[test]
    fn the_clock_of_the_server() {
        let part = |text: &str| Value::BulkString(text.into());
        let time = |parts: &[&str]| Value::Array(parts.iter().map(|text| part(text)).collect());
        assert_eq!(microseconds(&time(&["1795000000", "000012"])), Some(1_795_000_000_000_012));
        assert_eq!(microseconds(&time(&["1795000000"])), None);
        assert_eq!(microseconds(&Value::Nil), None);
    }
}
