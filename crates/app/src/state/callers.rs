//! What tenants and keys with a cap have spent, in the state file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wellhead_access::{MeterBook, MeterTime, SubjectKind};
use wellhead_telemetry::clock;
use wellhead_upstream::Pages;

use super::{PagesRow, since};

/// What one tenant or key spent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CallerRow {
    #[serde(serialize_with = "write_kind", deserialize_with = "read_kind")]
    pub(super) kind: SubjectKind,
    /// No secret: of a key its public id.
    pub(super) name: String,
    #[serde(flatten, with = "PagesRow")]
    pub(super) pages: Pages,
}

fn write_kind<S: Serializer>(kind: &SubjectKind, row: S) -> Result<S::Ok, S::Error> {
    kind.word().serialize(row)
}

fn read_kind<'de, D: Deserializer<'de>>(row: D) -> Result<SubjectKind, D::Error> {
    let kind = SubjectKind::from_word(&String::deserialize(row)?);
    let named = kind.filter(|kind| *kind != SubjectKind::Address);
    named.ok_or_else(|| D::Error::custom("neither a key nor a tenant"))
}

/// The book that the rows come from, and what the file held when it was last added to it.
#[derive(Debug, Default)]
pub(super) struct CallerSpending {
    /// `None` where callers are not told apart; what the file holds then stays in it.
    book: Option<Arc<MeterBook>>,
    added: Mutex<Vec<CallerRow>>,
}

impl CallerSpending {
    pub(super) fn of(book: Option<Arc<MeterBook>>) -> Self {
        Self { book, added: Mutex::default() }
    }

    /// Adds what the file says beyond what it said before.
    pub(super) fn add(&self, rows: Vec<CallerRow>) {
        let mut added = self.added.lock();
        if let Some(book) = &self.book {
            let at = now();
            let before: HashMap<_, _> =
                added.iter().map(|row| ((row.kind, &row.name), row.pages)).collect();
            for row in &rows {
                let pages = since(row.pages, before.get(&(row.kind, &row.name)).copied());
                book.restore(row.kind, &row.name.as_str().into(), pages, at);
            }
        }
        *added = rows;
    }

    /// In an order that stays: only what changed is written.
    pub(super) fn rows(&self) -> Vec<CallerRow> {
        let Some(book) = &self.book else { return self.added.lock().clone() };
        let pages = book.pages(now()).into_iter();
        let row = |(kind, name, pages): (_, Arc<str>, _)| CallerRow {
            kind,
            name: name.to_string(),
            pages,
        };
        let mut rows: Vec<_> = pages.map(row).collect();
        rows.sort_unstable_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        rows
    }
}

fn now() -> MeterTime {
    MeterTime { elapsed: Duration::ZERO, unix_seconds: clock::unix_seconds() }
}
