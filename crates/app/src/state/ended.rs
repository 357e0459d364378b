//! What has ended for good of the keys of clients, in the state file: an old copy of the keys that is put back while
//! wellhead is down would bring it back otherwise.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wellhead_access::EndedKey;
use wellhead_front::{CallerControl, KeyOrigin};

/// One key of one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EndedRow {
    #[serde(serialize_with = "write_source", deserialize_with = "read_source")]
    pub(super) source: KeyOrigin,
    #[serde(flatten)]
    pub(super) key: EndedKey,
}

fn write_source<S: Serializer>(source: &KeyOrigin, row: S) -> Result<S::Ok, S::Error> {
    source.word().serialize(row)
}

fn read_source<'de, D: Deserializer<'de>>(row: D) -> Result<KeyOrigin, D::Error> {
    let source = KeyOrigin::from_word(&String::deserialize(row)?);
    let named = source.filter(|source| KeyOrigin::REMEMBERED.contains(source));
    named.ok_or_else(|| D::Error::custom("of these keys nothing is remembered"))
}

/// Whose keys they are, and what the file held when it was last read.
#[derive(Debug, Default)]
pub(super) struct EndedKeys {
    /// `None` where callers are not told apart; what the file holds then stays in it.
    control: Option<Arc<CallerControl>>,
    read: Mutex<Vec<EndedRow>>,
}

impl EndedKeys {
    pub(super) fn of(control: Option<Arc<CallerControl>>) -> Self {
        Self { control, read: Mutex::default() }
    }

    pub(super) fn add(&self, rows: Vec<EndedRow>) {
        let Some(control) = &self.control else {
            *self.read.lock() = rows;
            return;
        };
        for source in KeyOrigin::REMEMBERED {
            let of_source = rows.iter().filter(|row| row.source == source);
            let ended: Vec<_> = of_source.map(|row| row.key.clone()).collect();
            if !ended.is_empty() {
                control.restore_ended_keys(source, ended);
            }
        }
    }

    /// In an order that stays: only what changed is written.
    pub(super) fn rows(&self) -> Vec<EndedRow> {
        let Some(control) = &self.control else { return self.read.lock().clone() };
        let of = |source| {
            let ended = control.ended_keys(source).into_iter();
            ended.map(move |key| EndedRow { source, key })
        };
        KeyOrigin::REMEMBERED.into_iter().flat_map(of).collect()
    }
}
