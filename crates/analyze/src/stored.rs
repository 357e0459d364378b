//! Reads what a run wrote to its directory.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use crate::record::{FORMAT, ReadError, Record, RunRecord, read_all};

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoredRunError {
    /// A file is missing, or cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// `run.json` is not what a run writes.
    #[error("{0}")]
    Run(#[from] serde_json::Error),
    /// `records.jsonl` is not what a run writes.
    #[error("{0}")]
    Records(#[from] ReadError),
    /// Another version of wellhead wrote it, in this format.
    #[error("it has format {0}, and this wellhead reads {FORMAT}")]
    Format(u32),
}

/// A run as its directory holds it.
#[derive(Debug)]
pub struct StoredRun {
    /// Of `run.json`.
    pub run: RunRecord,
    /// Of `records.jsonl`, without a torn last line.
    pub records: Vec<Record>,
    /// The number of the last line if it is torn.
    pub torn: Option<u64>,
}

impl StoredRun {
    /// Reads the files of `dir`.
    ///
    /// # Errors
    ///
    /// If `dir` holds no run, or one of another format.
    pub fn read(dir: &Path) -> Result<Self, StoredRunError> {
        let run: RunRecord = serde_json::from_str(&fs::read_to_string(dir.join("run.json"))?)?;
        if run.format != FORMAT {
            return Err(StoredRunError::Format(run.format));
        }
        let (records, torn) = read_all(BufReader::new(File::open(dir.join("records.jsonl"))?))?;
        Ok(Self { run, records, torn })
    }
}
