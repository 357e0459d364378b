//! The entries of a directory, how they are read, and which changes were heard of.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::DirectoryBounds;

/// Entries asked for at once.
const ROWS: usize = 1000;

/// Changes that are fetched one by one; with more, all is read.
const CHANGES_MAX: usize = 1000;

/// The directory at one moment.
#[derive(Debug, Clone)]
pub struct KeySnapshot {
    pub(super) entries: Arc<HashMap<Arc<str>, Bytes>>,
    /// The number of the last change in it.
    pub(super) version: u64,
    /// When the store was last asked and had nothing newer: how old this is at most. By a clock that does not
    /// step, so that no wall clock that is set ends the use of these entries early, or lengthens it.
    pub read_at: Instant,
}

impl KeySnapshot {
    /// The number of the last change in it.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The value of this id.
    pub fn get(&self, id: &str) -> Option<&Bytes> {
        self.entries.get(id)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.entries.iter().map(|(id, value)| (&**id, value))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether both have the entries of one read or change: only the time of the look differs.
    pub fn has_entries_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entries, &other.entries)
    }
}

/// Why nothing was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryReadError {
    Away(&'static str),
    /// The store has no data any more.
    Lost,
    TooLarge,
}

/// A change as it was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryChange {
    pub(super) version: u64,
    pub(super) id: String,
}

impl EntryChange {
    fn read(message: &[u8]) -> Option<Self> {
        let (version, id) = std::str::from_utf8(message).ok()?.split_once(' ')?;
        Some(Self { version: version.parse().ok()?, id: id.to_owned() })
    }

    /// Those after `from`, if none is missing up to `to`.
    pub(super) fn successors(messages: &[Vec<u8>], from: u64, to: u64) -> Option<Vec<Self>> {
        let mut changes = Vec::new();
        let mut last = from;
        for message in messages {
            let change = Self::read(message)?;
            if change.version <= last {
                continue;
            }
            if change.version != last + 1 || changes.len() >= CHANGES_MAX {
                return None;
            }
            last = change.version;
            changes.push(change);
        }
        (last >= to).then_some(changes)
    }
}

/// Reads over one connection.
pub(super) struct DirectorySource<'a> {
    pub(super) connection: MultiplexedConnection,
    pub(super) bounds: &'a DirectoryBounds,
}

impl DirectorySource<'_> {
    async fn ask(&self, command: &Cmd) -> Result<Value, DirectoryReadError> {
        let mut connection = self.connection.clone();
        match timeout(self.bounds.answer_within, connection.send_packed_command(command)).await {
            Ok(Ok(Value::ServerError(_))) => {
                Err(DirectoryReadError::Away("it answers with errors"))
            }
            Ok(Ok(value)) => Ok(value),
            Ok(Err(why)) if why.is_unrecoverable_error() => {
                Err(DirectoryReadError::Away("the connection broke"))
            }
            Ok(Err(_)) => Err(DirectoryReadError::Away("it answers with errors")),
            Err(_) => Err(DirectoryReadError::Away("it is slow or silent")),
        }
    }

    /// The number of the last change; 0: there was none, or its number is gone.
    pub(super) async fn version(&self) -> Result<u64, DirectoryReadError> {
        match self.ask(redis::cmd("GET").arg(self.bounds.version())).await? {
            Value::Nil => Ok(0),
            value => text(&value).and_then(|text| text.parse().ok()).ok_or(WRONG),
        }
    }

    /// All entries, and how many were left out.
    pub(super) async fn read(
        &self,
    ) -> Result<(Arc<HashMap<Arc<str>, Bytes>>, u64), DirectoryReadError> {
        let (mut entries, mut left_out, mut bytes) = (HashMap::new(), 0, 0_usize);
        let mut cursor = "0".to_owned();
        // Each answer has about as many rows as were asked for; twice as many answers as that takes
        // are enough also while the hash is rearranged.
        for _ in 0..16 + 2 * self.bounds.entries_max / ROWS * 2 {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(self.bounds.hash()).arg(&cursor).arg("COUNT").arg(ROWS);
            let (next, rows) = scanned(self.ask(&scan).await?).ok_or(WRONG)?;
            let mut rows = rows.into_iter();
            while let (Some(id), Some(value)) = (rows.next(), rows.next()) {
                let (Some(id), Some(value)) = (text(&id).map(Arc::from), bytes_of(value)) else {
                    return Err(WRONG);
                };
                bytes += value.len();
                if bytes > self.bounds.bytes_max {
                    return Err(DirectoryReadError::TooLarge);
                }
                let is_over = value.len() > self.bounds.value_bytes_max
                    || (entries.len() >= self.bounds.entries_max && !entries.contains_key(&id));
                if is_over {
                    left_out += 1;
                } else {
                    entries.insert(id, value);
                }
            }
            if next == "0" {
                return Ok((Arc::new(entries), left_out));
            }
            cursor = next;
        }
        Err(DirectoryReadError::TooLarge)
    }

    /// Brings the entries of these changes up to date.
    pub(super) async fn fetch(
        &self,
        changes: &[EntryChange],
        snapshot: &mut KeySnapshot,
    ) -> Result<(), DirectoryReadError> {
        let mut fetch = redis::cmd("HMGET");
        fetch.arg(self.bounds.hash());
        changes.iter().for_each(|change| {
            fetch.arg(&change.id);
        });
        let Value::Array(values) = self.ask(&fetch).await? else { return Err(WRONG) };
        let entries = Arc::make_mut(&mut snapshot.entries);
        for (change, value) in changes.iter().zip(values) {
            let has_room = entries.len() < self.bounds.entries_max;
            match bytes_of(value).filter(|value| value.len() <= self.bounds.value_bytes_max) {
                Some(value) if has_room || entries.contains_key(change.id.as_str()) => {
                    entries.insert(change.id.as_str().into(), value);
                }
                Some(_) | None => {
                    entries.remove(change.id.as_str());
                }
            }
        }
        Ok(())
    }
}

const WRONG: DirectoryReadError = DirectoryReadError::Away("its answer is none");

pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(text) => std::str::from_utf8(text).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

pub(super) fn bytes_of(value: Value) -> Option<Bytes> {
    match value {
        Value::BulkString(bytes) => Some(Bytes::from(bytes)),
        _ => None,
    }
}

/// The next cursor, and ids and values in turn.
fn scanned(answer: Value) -> Option<(String, Vec<Value>)> {
    let Value::Array(parts) = answer else { return None };
    let [cursor, rows]: [Value; 2] = parts.try_into().ok()?;
    let Value::Array(rows) = rows else { return None };
    Some((text(&cursor)?.to_owned(), rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of the changes after `from`, or `all`.
    fn check(messages: &str, from: u64, to: u64, expected: &str) {
        let messages: Vec<Vec<u8>> =
            messages.split(',').filter(|m| !m.is_empty()).map(Into::into).collect();
        let found = EntryChange::successors(&messages, from, to);
        let ids = |changes: Vec<EntryChange>| {
            changes.into_iter().map(|change| change.id).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found.map_or("all".to_owned(), ids), expected, "{messages:?}");
    }

    #[test]
    fn changes_in_a_row_are_fetched() {
        check("8 a,9 b", 7, 9, "a b");
        check("6 x,7 y,8 a", 7, 8, "a");
        check("", 7, 7, "");
        check("8 a,9 b", 7, 8, "a b");
    }

    #[test]
    fn with_one_missing_all_is_read() {
        check("", 7, 8, "all");
        check("9 b", 7, 9, "all");
        check("8 a", 7, 9, "all");
        check("nonsense", 7, 7, "all");
    }
}
