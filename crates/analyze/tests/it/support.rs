//! What several of these tests do: the terms of a run, and the reading of what it wrote.

use std::path::Path;

use wellhead_analyze::record::{Machine, Record, RunRecord};
use wellhead_analyze::run::RunTerms;
use wellhead_analyze::stored::StoredRun;

pub(crate) fn terms() -> RunTerms {
    let (wellhead, machine) = ("test".to_owned(), Machine::default());
    RunTerms { seed: 7, started_unix: 1, wellhead, machine }
}

/// A run without a torn line.
pub(crate) fn read(dir: &Path) -> (RunRecord, Vec<Record>) {
    let StoredRun { run, records, torn } = StoredRun::read(dir).expect("a run");
    assert_eq!(torn, None);
    (run, records)
}
