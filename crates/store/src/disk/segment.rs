//! The files: a row of segments, written at its end and dropped at its beginning.
//!
//! Segment 17 is `17.values`, records of [`crate::record`] one after the other, each
//! beginning at a multiple of 16 bytes; and `17.places`, 16 bytes for each record,
//! which is all that is read when a store is opened:
//!
//! ```text
//! 0   fingerprint of the digest   u64, little-endian as all of them
//! 8   where the record begins     u32, in units of 16 bytes
//! 12  checksum                    u32, of the twelve bytes before and the segment's id
//! ```
//!
//! Both begin with 16 bytes that name the format. A record is written before its
//! place, so a place that can be read and lies within the file is there for a reason;
//! whether the record is whole is found when it is read. Nothing is forced to the
//! disk: what the machine had not written when it lost power is found missing.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

use super::index::{Fingerprint, Index, Inserted, RecordPlace};
use crate::Digest;
use crate::record::{self, FORMAT, HEADER, Unusable};

/// Where records begin: places count in these.
const UNIT: usize = 16;

/// The first bytes of each file.
const FILE_HEADER: usize = 16;

/// Bytes that a record takes in `.places`.
const PLACE: usize = 16;

/// How far apart the ids of living segments may be: they must differ modulo 256.
/// There are about [`SEGMENTS`] of them unless the bound was just raised.
const SEGMENTS_MAX: u64 = 192;

/// Parts of the whole that are given up at once.
pub(super) const SEGMENTS: u64 = 64;

/// What a first look at a record reads: nearly always all of it.
const FIRST_LOOK: usize = 4096;

/// The files that readers read, by segment id modulo 256.
pub(super) struct Files(RwLock<Vec<Option<Arc<File>>>>);

/// All segments that live, for the writer.
pub(super) struct Segments {
    directory: PathBuf,
    files: Arc<Files>,
    index: Arc<Index>,
    live: VecDeque<Segment>,
    bytes_max: u64,
    segment_bytes: u64,
    /// Records of the last segment that are not written yet, and their places.
    pending: Vec<u8>,
    pending_places: Vec<(Fingerprint, u32)>,
    tally: WriteStats,
}

/// What became of values.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct WriteStats {
    pub(super) written: u64,
    /// Not written, because of a failure.
    pub(super) lost: u64,
    /// Gave way to newer ones.
    pub(super) evicted: u64,
}

struct Segment {
    id: u64,
    values: Arc<File>,
    places: File,
    /// Where the next record begins.
    values_bytes: u64,
    places_bytes: u64,
}

/// What opening found besides whole segments.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Losses {
    /// Segments removed because they could not be read at all.
    pub(super) segments: u64,
    /// Places that were not as written, or beyond the end of the values.
    pub(super) places: u64,
}

impl Files {
    pub(super) fn new() -> Self {
        Self(RwLock::new(vec![None; 256]))
    }

    /// Reads what lies at `place`, which may be gone by now: `Other` or `Damaged`
    /// count only if the index still points there.
    pub(super) fn read(
        &self,
        place: RecordPlace,
        digest: &Digest,
        now: u64,
    ) -> io::Result<Result<Bytes, Unusable>> {
        let Some(file) = self.0.read()[usize::from(place.segment)].clone() else {
            return Ok(Err(Unusable::Other));
        };
        let offset = u64::from(place.unit) * UNIT as u64;
        let mut first = [0; FIRST_LOOK];
        let there = read_up_to(&file, &mut first, offset)?;
        let first = &first[..there];
        let Some(length) = record::value_bytes(first) else { return Ok(Err(Unusable::Damaged)) };
        let whole = HEADER + length;
        if whole <= there {
            let record = &first[..whole];
            return Ok(record::check(record, digest, now)
                .map(|()| Bytes::copy_from_slice(&record[HEADER..])));
        }
        // A damaged length must not cost memory.
        if offset + whole as u64 > file.metadata()?.len() {
            return Ok(Err(Unusable::Damaged));
        }
        let mut record = vec![0; whole];
        record[..there].copy_from_slice(first);
        file.read_exact_at(&mut record[there..], offset + there as u64)?;
        Ok(record::check(&record, digest, now).map(|()| Bytes::from(record).slice(HEADER..)))
    }

    fn set(&self, id: u64, file: Option<Arc<File>>) {
        self.0.write()[usize::from(short(id))] = file;
    }
}

impl Segments {
    /// Takes over what lies in `directory`, which belongs to us, and fills the index.
    pub(super) fn open(
        directory: &Path,
        bytes_max: u64,
        segment_bytes: u64,
        index: Arc<Index>,
    ) -> io::Result<(Self, Losses)> {
        let mut segments = Self {
            directory: directory.to_owned(),
            files: Arc::new(Files::new()),
            index,
            live: VecDeque::new(),
            bytes_max,
            segment_bytes,
            pending: Vec::new(),
            pending_places: Vec::new(),
            tally: WriteStats::default(),
        };
        let mut losses = Losses::default();
        for id in ids(directory)? {
            match open(directory, id) {
                Ok((segment, places)) => {
                    segments.drop_until_near(id)?;
                    losses.places += segments.take_over(segment, &places);
                }
                Err(_) => {
                    losses.segments += 1;
                    segments.remove_files(id)?;
                }
            }
        }
        while segments.bytes() > bytes_max && !segments.live.is_empty() {
            segments.drop_oldest()?;
        }
        Ok((segments, losses))
    }

    pub(super) fn files(&self) -> Arc<Files> {
        Arc::clone(&self.files)
    }

    /// Bytes of all files, what is pending included.
    pub(super) fn bytes(&self) -> u64 {
        let written: u64 = self.live.iter().map(|one| one.values_bytes + one.places_bytes).sum();
        written + self.pending.len() as u64 + (self.pending_places.len() * PLACE) as u64
    }

    /// Bytes that are waiting for [`Self::commit`].
    pub(super) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// What became of values since the last call.
    pub(super) fn take_tally(&mut self) -> WriteStats {
        std::mem::take(&mut self.tally)
    }

    /// Adds a value to those that [`Self::commit`] will write. Makes room first: the
    /// files stay within their bound whatever fails.
    pub(super) fn append(
        &mut self,
        digest: &Digest,
        value: &[u8],
        put: u64,
        expires: u64,
    ) -> io::Result<()> {
        let room = self.make_room((HEADER + value.len()).next_multiple_of(UNIT) as u64);
        let unit = room.inspect_err(|_| self.tally.lost += 1)?;
        record::append(&mut self.pending, digest, value, put, expires);
        self.pending.resize(self.pending.len().next_multiple_of(UNIT), 0);
        self.pending_places.push((Fingerprint::of(digest), unit));
        Ok(())
    }

    /// Sees to it that a record of so many bytes can be appended, and says where.
    fn make_room(&mut self, record: u64) -> io::Result<u32> {
        let fits = self.live.back().is_some_and(|last| {
            last.values_bytes + self.pending.len() as u64 + record <= self.segment_bytes
        });
        if !fits {
            self.commit()?;
            self.begin()?;
        }
        while self.bytes() + record + PLACE as u64 > self.bytes_max && self.live.len() > 1 {
            self.drop_oldest()?;
        }
        let Some(last) = self.live.back() else { return Err(io::ErrorKind::NotFound.into()) };
        let unit = (last.values_bytes + self.pending.len() as u64) / UNIT as u64;
        u32::try_from(unit).map_err(io::Error::other)
    }

    /// Writes what is pending and makes it known. After a failure that is gone, and
    /// the files are as before.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        let values = std::mem::take(&mut self.pending);
        let pending = std::mem::take(&mut self.pending_places);
        let Some(oldest) = self.live.front().map(|first| short(first.id)) else { return Ok(()) };
        let Some(last) = self.live.back_mut() else { return Ok(()) };
        let mut places = Vec::with_capacity(pending.len() * PLACE);
        for (fingerprint, unit) in &pending {
            places.extend_from_slice(&encoded(*fingerprint, *unit, last.id));
        }
        let written = last
            .values
            .write_all_at(&values, last.values_bytes)
            .and_then(|()| last.places.write_all_at(&places, last.places_bytes));
        if let Err(why) = written {
            // Whatever was written of it is overwritten next time; a disk that is
            // full should have it back at once.
            let _best_effort = last.values.set_len(last.values_bytes);
            let _best_effort = last.places.set_len(last.places_bytes);
            self.tally.lost += pending.len() as u64;
            return Err(why);
        }
        last.values_bytes += values.len() as u64;
        last.places_bytes += places.len() as u64;
        let segment = short(last.id);
        for (fingerprint, unit) in &pending {
            let place = RecordPlace { segment, unit: *unit };
            if self.index.insert(*fingerprint, place, oldest) == Inserted::Displacing {
                self.tally.evicted += 1;
            }
        }
        self.tally.written += pending.len() as u64;
        Ok(())
    }

    /// Drops the oldest segment, unless it is the only one.
    pub(super) fn shrink(&mut self) -> io::Result<()> {
        if self.live.len() > 1 { self.drop_oldest() } else { Ok(()) }
    }

    /// Begins a new segment; nothing may be pending.
    fn begin(&mut self) -> io::Result<()> {
        let id = self.live.back().map_or(0, |last| last.id + 1);
        let headers = 2 * FILE_HEADER as u64;
        self.drop_until_near(id)?;
        while self.bytes() + headers > self.bytes_max && !self.live.is_empty() {
            self.drop_oldest()?;
        }
        let segment = create(&self.directory, id).inspect_err(|_| {
            let _best_effort = self.remove_files(id);
        })?;
        self.files.set(id, Some(Arc::clone(&segment.values)));
        self.live.push_back(segment);
        Ok(())
    }

    /// Drops what is so much older than `id` that they would share a number.
    fn drop_until_near(&mut self, id: u64) -> io::Result<()> {
        while self.live.front().is_some_and(|first| id - first.id >= SEGMENTS_MAX) {
            self.drop_oldest()?;
        }
        Ok(())
    }

    fn drop_oldest(&mut self) -> io::Result<()> {
        let Some(first) = self.live.front() else { return Ok(()) };
        let id = first.id;
        // While it cannot be removed it counts, or the bound would not hold.
        self.remove_files(id)?;
        self.live.pop_front();
        self.tally.evicted += self.index.clear(short(id));
        self.files.set(id, None);
        Ok(())
    }

    fn remove_files(&self, id: u64) -> io::Result<()> {
        for kind in KINDS {
            match fs::remove_file(path(&self.directory, id, kind)) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Makes a segment the newest and fills the index from its places; returns how
    /// many of them were lost.
    fn take_over(&mut self, segment: Segment, places: &[u8]) -> u64 {
        let id = segment.id;
        let oldest = self.live.front().map_or(short(id), |first| short(first.id));
        let mut lost = u64::from(!places.len().is_multiple_of(PLACE));
        for entry in places.chunks_exact(PLACE) {
            let there = decoded(entry, id).filter(|(_, unit)| {
                u64::from(*unit) * UNIT as u64 + HEADER as u64 <= segment.values_bytes
            });
            let Some((fingerprint, unit)) = there else {
                lost += 1;
                continue;
            };
            self.index.insert(fingerprint, RecordPlace { segment: short(id), unit }, oldest);
        }
        self.files.set(id, Some(Arc::clone(&segment.values)));
        self.live.push_back(segment);
        lost
    }
}

const VALUES: &str = "values";
const PLACES: &str = "places";
const KINDS: [&str; 2] = [VALUES, PLACES];

/// Removes every segment of a store of another format.
pub(super) fn remove_all(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if id_of(&entry.file_name().to_string_lossy()).is_some() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The ids of all segments of which there is a file, the oldest first.
fn ids(directory: &Path) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(directory)? {
        ids.extend(id_of(&entry?.file_name().to_string_lossy()));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn id_of(name: &str) -> Option<u64> {
    let (id, kind) = name.split_once('.')?;
    let ours = KINDS.contains(&kind) && id.bytes().all(|byte| byte.is_ascii_digit());
    // The last id has no successor; no real store reaches it.
    id.parse().ok().filter(|id| ours && *id < u64::MAX)
}

fn path(directory: &Path, id: u64, kind: &str) -> PathBuf {
    directory.join(format!("{id}.{kind}"))
}

/// Opens a segment that is there; the second is what its places say.
fn open(directory: &Path, id: u64) -> io::Result<(Segment, Vec<u8>)> {
    let open = |kind| -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(path(directory, id, kind))?;
        let mut header = [0; FILE_HEADER];
        file.read_exact_at(&mut header, 0)?;
        if header == file_header(kind) { Ok(file) } else { Err(io::ErrorKind::InvalidData.into()) }
    };
    let (values, mut places) = (Arc::new(open(VALUES)?), open(PLACES)?);
    let values_bytes = values.metadata()?.len().next_multiple_of(UNIT as u64);
    let mut entries = Vec::new();
    places.seek(SeekFrom::Start(FILE_HEADER as u64))?;
    places.read_to_end(&mut entries)?;
    // A torn entry is overwritten by the next one.
    let places_bytes = (FILE_HEADER + entries.len() / PLACE * PLACE) as u64;
    Ok((Segment { id, values, places, values_bytes, places_bytes }, entries))
}

fn create(directory: &Path, id: u64) -> io::Result<Segment> {
    let create = |kind| -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(path(directory, id, kind))?;
        file.write_all_at(&file_header(kind), 0)?;
        Ok(file)
    };
    let (values, places) = (Arc::new(create(VALUES)?), create(PLACES)?);
    let bytes = FILE_HEADER as u64;
    Ok(Segment { id, values, places, values_bytes: bytes, places_bytes: bytes })
}

fn file_header(kind: &str) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..4].copy_from_slice(b"well");
    header[4..10].copy_from_slice(kind.as_bytes());
    header[12..].copy_from_slice(&FORMAT.to_le_bytes());
    header
}

fn short(id: u64) -> u8 {
    (id % 256) as u8
}

fn encoded(fingerprint: Fingerprint, unit: u32, id: u64) -> [u8; PLACE] {
    let mut entry = [0; PLACE];
    entry[..8].copy_from_slice(&fingerprint.0.to_le_bytes());
    entry[8..12].copy_from_slice(&unit.to_le_bytes());
    let sum = place_checksum(&entry, id);
    entry[12..].copy_from_slice(&sum);
    entry
}

fn decoded(entry: &[u8], id: u64) -> Option<(Fingerprint, u32)> {
    let whole = entry.get(12..PLACE)? == place_checksum(entry, id);
    let fingerprint = u64::from_le_bytes(entry[..8].try_into().ok()?);
    let unit = u32::from_le_bytes(entry[8..12].try_into().ok()?);
    (whole && unit > 0).then_some((Fingerprint(fingerprint), unit))
}

fn place_checksum(entry: &[u8], id: u64) -> [u8; 4] {
    let mut covered = [0; 20];
    covered[..12].copy_from_slice(&entry[..12]);
    covered[12..].copy_from_slice(&id.to_le_bytes());
    (xxh3_64(&covered) as u32).to_le_bytes()
}

/// Reads until the buffer or the file ends.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut there = 0;
    while there < buffer.len() {
        match file.read_at(&mut buffer[there..], offset + there as u64) {
            Ok(0) => break,
            Ok(more) => there += more,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(there)
}
