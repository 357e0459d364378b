//! What tenants and keys with a cap have spent, in the state file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use wellhead_access::{MeterBook, MeterTime, SubjectKind};
use wellhead_telemetry::clock;
use wellhead_upstream::Pages;

use super::{pages_of, since};

/// What one tenant or key spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallerRow {
    pub(super) kind: SubjectKind,
    /// No secret: of a key its public id.
    pub(super) name: Arc<str>,
    pub(super) pages: Pages,
}

impl CallerRow {
    pub(super) fn read(row: &Value) -> Option<Self> {
        let named = |kind: &SubjectKind| row["kind"].as_str() == Some(kind.word());
        let kind = [SubjectKind::Key, SubjectKind::Tenant].into_iter().find(named)?;
        Some(Self { kind, name: row["name"].as_str()?.into(), pages: pages_of(row)? })
    }

    pub(super) fn write(&self) -> Value {
        let Pages { day, day_credits, month, month_credits } = self.pages;
        json!({
            "kind": self.kind.word(), "name": &*self.name,
            "day": day, "day_credits": day_credits,
            "month": month, "month_credits": month_credits,
        })
    }
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
                added.iter().map(|row| ((row.kind, &*row.name), row.pages)).collect();
            for row in &rows {
                let pages = since(row.pages, before.get(&(row.kind, &*row.name)).copied());
                book.restore(row.kind, &row.name, pages, at);
            }
        }
        *added = rows;
    }

    /// In an order that stays: only what changed is written.
    pub(super) fn rows(&self) -> Vec<CallerRow> {
        let Some(book) = &self.book else { return self.added.lock().clone() };
        let pages = book.pages(now()).into_iter();
        let mut rows: Vec<_> =
            pages.map(|(kind, name, pages)| CallerRow { kind, name, pages }).collect();
        rows.sort_unstable_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
        rows
    }
}

fn now() -> MeterTime {
    MeterTime { elapsed: Duration::ZERO, unix_seconds: clock::unix_seconds() }
}
