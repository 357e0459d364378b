//! Files of usage, one or more for each day of UTC.
//!
//! `usage-2026-11-25.csv`, then `usage-2026-11-25.1.csv` and so on when it is full. The day is that of
//! the rows. Each file that is written is locked; where another process holds the lock, this one takes
//! the next number, so that several may share a folder.
//!
//! Rows of a take are written at once and synced to the disk (`fdatasync`) before they leave memory:
//! when the machine dies, at most what waits in memory is lost. A write that fails is taken back, so
//! that a file has whole lines; so is half a line that a crash left, when the file is opened again.
//!
//! A disk that is full, gone or hanging is told once; rows wait in the backlog and are tried again each
//! [`RETRY`]. Writing has a thread of its own: nothing waits for a disk that hangs.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use wellhead_access::usage::{CSV_HEADER, UsageRow, write_csv, write_jsonl};

use super::backlog::OutletBacklog;
use super::counts::UsageCounts;
use crate::config::{UsageFileConfig, UsageFormat};
use crate::runtime::aside;

/// A disk that took nothing is tried again after so long.
const RETRY: Duration = Duration::from_secs(10);
/// Files of one day. Beyond it the last one grows over its bound.
const PARTS_MAX: u32 = 10_000;
/// Half a line is never this long.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// Writes what is in the backlog until `closing` says so and nothing is left.
pub(super) async fn run(
    backlog: Arc<OutletBacklog<Arc<[UsageRow]>>>,
    mut writer: FileWriter,
    counts: Arc<UsageCounts>,
    mut closing: watch::Receiver<bool>,
) {
    while let Some(rows) = backlog.next(&mut closing).await {
        loop {
            let (back, result) = write_aside(writer, Arc::clone(&rows)).await;
            writer = back;
            match result {
                Ok(()) => break counts.written(rows.len()),
                Err(error) => {
                    if counts.write_failed() {
                        let folder = writer.settings.folder.display();
                        tracing::warn!(%folder, %error, "usage cannot be written: rows wait, and are dropped when they are too many");
                    }
                }
            }
            if *closing.borrow_and_update() {
                // There is no time for another attempt, and the disk took none.
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                _ = closing.changed() => {}
            }
        }
    }
}

async fn write_aside(
    mut writer: FileWriter,
    rows: Arc<[UsageRow]>,
) -> (FileWriter, io::Result<()>) {
    let spare = FileWriter::new(writer.settings.clone(), &writer.replica);
    let write = move || {
        let result = writer.write(&rows);
        (writer, result)
    };
    aside("wellhead-usage", write).await.unwrap_or_else(|error| (spare, Err(error)))
}

/// Appends rows to the file of their day.
#[derive(Debug)]
pub(super) struct FileWriter {
    settings: UsageFileConfig,
    replica: Box<str>,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    day: u32,
    part: u32,
    path: PathBuf,
    /// Holds the lock of the file.
    file: File,
    bytes: u64,
}

impl FileWriter {
    /// Opens nothing yet.
    pub(super) fn new(settings: UsageFileConfig, replica: &str) -> Self {
        Self { settings, replica: replica.into(), open: None }
    }

    /// Appends rows, each to the file of its day, and syncs.
    ///
    /// # Errors
    ///
    /// As the disk says. Then no row of the last day is in its file; those of days before it are, and
    /// are written again with the rest: their ids tell.
    fn write(&mut self, rows: &[UsageRow]) -> io::Result<()> {
        for rows in rows.chunk_by(|a, b| a.minute.day() == b.minute.day()) {
            let Some(first) = rows.first() else { continue };
            let mut text = Vec::with_capacity(rows.len() * 300);
            match self.settings.format {
                UsageFormat::Csv => write_csv(&mut text, &self.replica, rows),
                UsageFormat::Jsonl => write_jsonl(&mut text, &self.replica, rows),
            }
            self.append(first.minute.day(), &text)?;
        }
        Ok(())
    }

    fn append(&mut self, day: u32, text: &[u8]) -> io::Result<()> {
        // Where this fails nothing stays open: the disk may be another one when it works again.
        let mut open = match self.open.take() {
            Some(open) if open.day == day && open.path.exists() => open,
            Some(_) | None => self.open_from(day, 0)?,
        };
        let bytes_max = self.settings.bytes.0;
        while open.bytes > self.header().len() as u64
            && open.bytes + text.len() as u64 > bytes_max
            && open.part + 1 < PARTS_MAX
        {
            open = self.open_from(day, open.part + 1)?;
        }
        let OpenFile { file, bytes, .. } = &mut open;
        if let Err(error) = file.write_all(text).and_then(|()| file.sync_data()) {
            // As if it had not been tried: it is tried again.
            let _ = file.set_len(*bytes);
            return Err(error);
        }
        *bytes += text.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    fn header(&self) -> &'static str {
        match self.settings.format {
            UsageFormat::Csv => CSV_HEADER,
            UsageFormat::Jsonl => "",
        }
    }

    fn end(&self) -> &'static str {
        match self.settings.format {
            UsageFormat::Csv => "csv",
            UsageFormat::Jsonl => "jsonl",
        }
    }

    /// Opens the first file of a day, from the number `part` on, that no other process writes and that
    /// has our header.
    fn open_from(&self, day: u32, part: u32) -> io::Result<OpenFile> {
        fs::create_dir_all(&self.settings.folder)?;
        for part in part..PARTS_MAX {
            let name = FileName { day: wellhead_limit::civil(day), part, end: self.end() };
            let path = self.settings.folder.join(name.to_string());
            let is_new = !path.exists();
            let file = File::options().create(true).read(true).append(true).open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let mut open = OpenFile { day, part, path, file, bytes: 0 };
            if !open.mend(self.header())? {
                continue;
            }
            if is_new {
                // That the name is new is known to the folder alone.
                File::open(&self.settings.folder)?.sync_all()?;
                remove_oldest(&self.settings, &open.path);
            }
            return Ok(open);
        }
        Err(io::Error::other("other processes write all files of the day"))
    }
}

impl OpenFile {
    /// Cuts off half a line, and writes the header of a file that has none yet. `false`: its header is
    /// another one, of another version.
    fn mend(&mut self, header: &str) -> io::Result<bool> {
        let len = self.file.metadata()?.len();
        let tail_begin = len.saturating_sub(LINE_BYTES_MAX);
        let mut tail = Vec::new();
        self.file.seek(SeekFrom::Start(tail_begin))?;
        (&self.file).take(LINE_BYTES_MAX).read_to_end(&mut tail)?;
        let whole = match tail.iter().rposition(|byte| *byte == b'\n') {
            Some(place) => tail_begin + place as u64 + 1,
            None => tail_begin,
        };
        if whole < len {
            self.file.set_len(whole)?;
        }
        self.bytes = whole;
        if whole == 0 {
            if let Err(error) = self.file.write_all(header.as_bytes()) {
                let _ = self.file.set_len(0);
                return Err(error);
            }
            self.bytes = header.len() as u64;
            return Ok(true);
        }
        let mut begin = vec![0; header.len()];
        self.file.seek(SeekFrom::Start(0))?;
        let has_header = self.file.read_exact(&mut begin).is_ok() && begin == header.as_bytes();
        Ok(has_header)
    }
}

/// `usage-{date}.{end}`, or with a number before the end. In the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FileName<'a> {
    day: (u32, u32, u32),
    part: u32,
    end: &'a str,
}

impl std::fmt::Display for FileName<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { day: (year, month, day), part, end } = self;
        write!(f, "usage-{year:04}-{month:02}-{day:02}")?;
        if *part > 0 {
            write!(f, ".{part}")?;
        }
        write!(f, ".{end}")
    }
}

impl<'a> FileName<'a> {
    /// Only of names that we write, to the letter: no other file is ours to remove.
    fn parse(name: &'a str) -> Option<Self> {
        let (date, rest) = name.strip_prefix("usage-")?.split_once('.')?;
        let (part, end) = rest.split_once('.').unwrap_or(("0", rest));
        let mut numbers = date.split('-').map(|number| number.parse().ok());
        let mut next = || numbers.next().flatten();
        let day = (next()?, next()?, next()?);
        let parsed = Self { day, part: part.parse().ok()?, end };
        (matches!(end, "csv" | "jsonl") && parsed.to_string() == name).then_some(parsed)
    }
}

/// Keeps the newest files. That one cannot be removed is told, and harms nothing.
fn remove_oldest(settings: &UsageFileConfig, open: &Path) {
    let Ok(entries) = fs::read_dir(&settings.folder) else { return };
    let names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    let mut files: Vec<FileName<'_>> =
        names.iter().filter_map(|name| FileName::parse(name)).collect();
    files.sort();
    let surplus = files.len().saturating_sub(settings.files.max(1));
    for name in files.into_iter().take(surplus) {
        let path = settings.folder.join(name.to_string());
        if path == open {
            continue;
        }
        if let Err(error) = fs::remove_file(&path) {
            let path = path.display();
            tracing::warn!(%path, %error, "an old file of usage cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests;
