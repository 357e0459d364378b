//! Reads what a run wrote to its directory, and packs its records.
//!
//! A run writes `records.jsonl` as it is, so that one that is killed leaves lines that can be read.
//! It is packed to `records.jsonl.gz` when the run is over, and unpacked where a run goes on.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use crate::record::{FORMAT, FORMAT_MIN, ReadError, Record, RunRecord, read_all};

/// The records as a run writes them.
pub const RECORDS: &str = "records.jsonl";

/// The records when they are packed.
pub const PACKED_RECORDS: &str = "records.jsonl.gz";

/// The files of a report, beside the records.
pub const REPORT_FILES: [&str; 6] =
    ["report.html", "summary.csv", "summary.md", "verdicts.json", "profile.yaml", "README.md"];

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
    #[error("it has format {0}, and this wellhead reads {FORMAT_MIN} to {FORMAT}")]
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
        if !(FORMAT_MIN..=FORMAT).contains(&run.format) {
            return Err(StoredRunError::Format(run.format));
        }
        let (records, torn) = read_all(open(dir)?)?;
        Ok(Self { run, records, torn })
    }
}

/// The lines of the records, packed or not. Where both files are there the run was cut while one
/// took the place of the other, and the plain one is whole.
fn open(dir: &Path) -> io::Result<Box<dyn BufRead>> {
    match File::open(dir.join(RECORDS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let packed = File::open(dir.join(PACKED_RECORDS)).map_err(|_| error)?;
            Ok(Box::new(BufReader::new(MultiGzDecoder::new(packed))))
        }
        file => Ok(Box::new(BufReader::new(file?))),
    }
}

/// Packs the records of a run that is over.
///
/// # Errors
///
/// If a file cannot be read or written; the plain records are then still there.
pub fn pack(dir: &Path) -> io::Result<()> {
    let plain = dir.join(RECORDS);
    if !plain.exists() && dir.join(PACKED_RECORDS).exists() {
        return Ok(());
    }
    let mut from = File::open(&plain)?;
    replace(&dir.join(PACKED_RECORDS), |file| {
        let mut packed = GzEncoder::new(BufWriter::new(file), Compression::default());
        io::copy(&mut from, &mut packed)?;
        packed.finish()?.into_inner().map_err(io::IntoInnerError::into_error)
    })?;
    fs::remove_file(plain)
}

/// Unpacks the records of a run that goes on; nothing where they are plain.
///
/// # Errors
///
/// If a file cannot be read or written; the packed records are then still there.
pub fn unpack(dir: &Path) -> io::Result<()> {
    let (plain, packed) = (dir.join(RECORDS), dir.join(PACKED_RECORDS));
    if !packed.exists() {
        return Ok(());
    }
    if !plain.exists() {
        let mut from = MultiGzDecoder::new(File::open(&packed)?);
        replace(&plain, |file| {
            let mut to = BufWriter::new(file);
            io::copy(&mut from, &mut to)?;
            to.into_inner().map_err(io::IntoInnerError::into_error)
        })?;
    }
    fs::remove_file(packed)
}

/// Writes a file beside its place and puts it there when it is whole.
fn replace(path: &Path, fill: impl FnOnce(File) -> io::Result<File>) -> io::Result<()> {
    let mut new = PathBuf::from(path).into_os_string();
    new.push(".new");
    let mut file = fill(File::create(&new)?)?;
    file.flush()?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_records_are_read_and_unpacked() {
        let dir = tempfile::tempdir().expect("a directory");
        let run = RunRecord { format: FORMAT_MIN, ..RunRecord::default() };
        let text = serde_json::to_string(&run).expect("plain data");
        fs::write(dir.path().join("run.json"), text).expect("written");
        let line = "{\"kind\":\"cell\",\"experiment\":\"rate\",\"version\":1,\"cell\":0,\"repeat\":0,\
                    \"target\":0,\"factors\":{\"rate\":\"10\"},\"begun_at\":1,\"ended_at\":2,\"calls\":3,\
                    \"late_p99\":4,\"cpu\":0.9,\"saturated\":true}\n";
        let lines = line.repeat(100);
        fs::write(dir.path().join(RECORDS), &lines).expect("written");
        let files = || [RECORDS, PACKED_RECORDS].map(|name| dir.path().join(name).exists());
        let records = || StoredRun::read(dir.path()).expect("a run").records;
        let plain = records();
        for _ in 0..2 {
            pack(dir.path()).expect("packed");
            assert_eq!((files(), records()), ([false, true], plain.clone()));
        }
        assert!(dir.path().join(PACKED_RECORDS).metadata().expect("a file").len() < 500);
        for _ in 0..2 {
            unpack(dir.path()).expect("unpacked");
            assert_eq!(files(), [true, false]);
        }
        assert_eq!(fs::read_to_string(dir.path().join(RECORDS)).expect("text"), lines);
    }
}
