//! What has ended for good of the keys of clients, in the state file: an old copy of the keys that is put back while
//! wellhead is down would bring it back otherwise.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use wellhead_access::EndedKey;
use wellhead_front::{CallerControl, KeyOrigin};

/// One key of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndedRow {
    pub(super) source: KeyOrigin,
    pub(super) key: EndedKey,
}

impl EndedRow {
    pub(super) fn read(row: &Value) -> Option<Self> {
        let named = |source: &KeyOrigin| row["source"].as_str() == Some(source.word());
        let source = KeyOrigin::REMEMBERED.into_iter().find(named)?;
        let revoked_at = match &row["revoked_at"] {
            Value::Null => None,
            at => Some(wellhead_access::UnixSeconds(at.as_u64()?)),
        };
        let replaced = row["replaced"].as_array()?.iter();
        let replaced = replaced.map(|mark| mark.as_str()?.parse().ok()).collect::<Option<_>>()?;
        let id = row["id"].as_str()?.parse().ok()?;
        Some(Self { source, key: EndedKey { id, revoked_at, replaced } })
    }

    pub(super) fn write(&self) -> Value {
        let EndedKey { id, revoked_at, replaced } = &self.key;
        let replaced: Vec<_> = replaced.iter().map(ToString::to_string).collect();
        json!({
            "source": self.source.word(), "id": id.as_str(),
            "revoked_at": revoked_at.map(|at| at.0), "replaced": replaced,
        })
    }
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
