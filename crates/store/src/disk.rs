//! The tier on disk: a log of values in segments, the oldest of which goes first.
//!
//! A `get` looks into the index, in memory, on the caller's thread: what is not
//! there costs nothing more. What may be there is read by one of a few threads of its
//! own. A `put` goes to a queue, and a thread of its own writes. No async worker
//! touches the disk. `index` says where values lie, `segment` keeps the files,
//! `queue` is what leads to the threads.
//!
//! Deliberately absent: compression (a caller that knows the values does it better),
//! forcing to disk (it is a cache: checksums find what a power cut took), deletion.

mod index;
mod queue;
mod segment;

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tracing::{info, warn};

use self::index::{Fingerprint, Index, RecordPlace};
use self::queue::Queue;
use self::segment::{Files, Losses, SEGMENTS, Segments, WriteStats};
use crate::record::{self, FORMAT, HEADER, Unusable};
use crate::stats::{Counters, Snapshot, State};
use crate::{Clock, Digest};

/// The file that says whose the directory is. It is locked while the store is open.
const MARKER: &str = "wellhead-store";

/// What the marker takes of `bytes_max`.
const MARKER_BYTES_MAX: u64 = 64;

/// Values that the writer takes from its queue at once.
const BATCH_ITEMS: usize = 256;

/// Bytes after which the writer writes what it has gathered.
const BATCH_BYTES: usize = 1 << 20;

/// Segments that `bytes_max` makes at least, so that giving one up is not giving up all.
const SEGMENTS_MIN: u64 = 4;

/// Segments hold at least this much, so that small stores are not all small files.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// What the disk tier may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskBounds {
    /// Bytes of all files together, 1 MiB at least. Never exceeded; the file system
    /// rounds each of about 130 files up to a block, and a segment (a 64th of this)
    /// that is being read when it is given up lives until that read ends.
    pub bytes_max: u64,
    /// Values that the index has room for, at 12 bytes of memory each. When more
    /// would fit on the disk, older ones are forgotten, a few of them well before.
    pub entries_max: usize,
    /// Bytes of a value; larger ones are refused. At most an eighth of `bytes_max`.
    pub value_bytes_max: usize,
    /// Bytes of values that wait to be written; what does not fit is dropped.
    pub queue_bytes_max: usize,
    /// Values that wait to be written; what does not fit is dropped.
    pub queue_items_max: usize,
    /// Threads that read.
    pub readers: usize,
    /// Gets that wait for a reader; a further one is a miss at once.
    pub reads_max: usize,
    /// How long a get may take; past it, it is a miss. Tokio's clock counts whole
    /// milliseconds, so it may be one longer.
    pub read_within: Duration,
}

impl Default for DiskBounds {
    fn default() -> Self {
        Self {
            bytes_max: 4 << 30,
            entries_max: 2_000_000,
            value_bytes_max: 1 << 20,
            queue_bytes_max: 16 << 20,
            queue_items_max: 4096,
            readers: 2,
            reads_max: 256,
            read_within: Duration::from_millis(20),
        }
    }
}

impl DiskBounds {
    fn segment_bytes(&self) -> u64 {
        let value = (self.value_bytes_max as u64).saturating_add(HEADER as u64).saturating_mul(2);
        let wanted = (self.bytes_max / SEGMENTS).max(value).max(SEGMENT_BYTES_MIN);
        // Places count in 32 bits of 16 bytes each.
        wanted.min(self.bytes_max / SEGMENTS_MIN).min(32 << 30)
    }

    fn value_bytes_max(&self) -> usize {
        let half = self.segment_bytes() / 2 - HEADER as u64;
        self.value_bytes_max.min(usize::try_from(half).unwrap_or(usize::MAX)).min(64 << 20)
    }
}

/// Why a store could not be opened. It is not touched then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or this one, has it open.
    #[error("the disk store is in use by another process")]
    InUse,
    /// The directory holds something else.
    #[error("the directory is neither empty nor a disk store of wellhead")]
    NotOurs,
    /// `bytes_max` is below 1 MiB.
    #[error("a disk store takes 1 MiB at least")]
    TooSmall,
    /// The directory or a thread could not be had.
    #[error("the disk store could not be opened: {0}")]
    Io(#[from] io::Error),
}

/// A handle on the store; clones share it. When the last one goes, what waits is
/// still written, in the background: see [`Disk::close`].
#[derive(Clone)]
pub struct Disk {
    inner: Arc<DiskCore>,
    _closer: Arc<WriterCloser>,
}

struct DiskCore {
    index: Arc<Index>,
    files: Arc<Files>,
    reads: Queue<Look>,
    writes: Queue<WriteJob>,
    counters: Counters,
    clock: Clock,
    bytes: AtomicU64,
    value_bytes_max: usize,
    read_within: Duration,
    /// Fails as soon as the writer has ended and the directory is free.
    ended: watch::Receiver<()>,
}

/// A value that a reader shall look for.
struct Look {
    digest: Digest,
    place: RecordPlace,
    answer: oneshot::Sender<io::Result<Option<Bytes>>>,
}

/// A value that the writer shall write.
struct WriteJob {
    digest: Digest,
    value: Bytes,
    put: u64,
    expires: u64,
}

/// Lets the threads end when the last handle goes.
struct WriterCloser(Arc<DiskCore>);

impl Drop for WriterCloser {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Disk {
    /// Opens the store in `directory`, or makes one there. Reads 16 bytes for each
    /// value, on this thread.
    ///
    /// Parts that are damaged or of another format are removed, with one line in the
    /// log; what is in them has to be fetched anew. `clock` tells seconds since 1970.
    pub fn open(directory: &Path, bounds: &DiskBounds, clock: Clock) -> Result<Self, OpenError> {
        if bounds.bytes_max < 1 << 20 {
            return Err(OpenError::TooSmall);
        }
        let marker = claim(directory)?;
        let index = Arc::new(Index::new(bounds.entries_max));
        let (segments, losses) = Segments::open(
            directory,
            bounds.bytes_max - MARKER_BYTES_MAX,
            bounds.segment_bytes(),
            Arc::clone(&index),
        )?;
        if losses != Losses::default() {
            let Losses { segments, places } = losses;
            warn!(
                directory = %directory.display(), segments, places,
                "parts of the disk store could not be read: they are forgotten"
            );
        }
        let (end, ended) = watch::channel(());
        let inner = Arc::new(DiskCore {
            index,
            files: segments.files(),
            reads: Queue::new(bounds.reads_max, usize::MAX),
            writes: Queue::new(bounds.queue_items_max, bounds.queue_bytes_max),
            counters: Counters::new(State::Up, clock()),
            clock,
            bytes: AtomicU64::new(segments.bytes()),
            value_bytes_max: bounds.value_bytes_max(),
            read_within: bounds.read_within,
            ended,
        });
        // From here on a failure lets the threads end that have begun.
        let closer = Arc::new(WriterCloser(Arc::clone(&inner)));
        let writer = Arc::clone(&inner);
        thread::Builder::new().name("store-write".to_owned()).spawn(move || {
            write(&writer, segments);
            // Closing is not enough while a process that was just forked has a copy.
            let _closing_frees_it_too = marker.unlock();
            drop((marker, end));
        })?;
        for _ in 0..bounds.readers.max(1) {
            let reader = Arc::clone(&inner);
            thread::Builder::new().name("store-read".to_owned()).spawn(move || read(&reader))?;
        }
        Ok(Self { inner, _closer: closer })
    }

    /// The value put under `digest`, when it is there, whole, and read in time.
    ///
    /// May be dropped at any moment. Needs tokio's timers.
    pub async fn get(&self, digest: &Digest) -> Option<Bytes> {
        let counters = &self.inner.counters;
        let Some(place) = self.inner.index.find(Fingerprint::of(digest)) else {
            counters.misses.add(1);
            return None;
        };
        let (answer, answered) = oneshot::channel();
        let look = Look { digest: *digest, place, answer };
        if self.inner.reads.push(look, 0).is_err() {
            counters.busy.add(1);
            return None;
        }
        let (counter, value) = match timeout(self.inner.read_within, answered).await {
            Ok(Ok(Ok(Some(value)))) => (&counters.hits, Some(value)),
            Ok(Ok(Ok(None))) => (&counters.misses, None),
            Ok(Ok(Err(_)) | Err(_)) => (&counters.errors, None),
            Err(_) => (&counters.late, None),
        };
        counter.add(1);
        value
    }

    /// Has the value written some time soon, unless it is too large or too many wait.
    /// Until then a `get` finds what was there before. Never waits.
    ///
    /// `ttl` is rounded up to whole seconds; [`Duration::MAX`] is for ever.
    pub fn put(&self, digest: Digest, value: Bytes, ttl: Duration) {
        if value.len() > self.inner.value_bytes_max || ttl.is_zero() {
            self.inner.counters.refused.add(1);
            return;
        }
        let put = (self.inner.clock)();
        let bytes = HEADER + value.len();
        let job = WriteJob { digest, value, put, expires: record::expiry(put, ttl) };
        if self.inner.writes.push(job, bytes).is_err() {
            self.inner.counters.dropped.add(1);
        }
    }

    /// Ends the store for all its handles: what waits is written, nothing more is
    /// taken, and the directory is free when this returns.
    pub async fn close(&self) {
        self.inner.close();
        let _ended = self.inner.ended.clone().changed().await;
    }

    /// What it did so far and how it is.
    pub fn stats(&self) -> Snapshot {
        let bytes = self.inner.bytes.load(Ordering::Relaxed);
        self.inner.counters.snapshot(Some(bytes), Some(self.inner.index.entries()))
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl DiskCore {
    fn close(&self) {
        self.reads.close();
        self.writes.close();
    }

    /// One look at the disk, on a reader's thread.
    fn look(&self, digest: &Digest, place: RecordPlace) -> io::Result<Option<Bytes>> {
        let found = self.files.read(place, digest, (self.clock)());
        let reason = match &found {
            Ok(Ok(_)) | Ok(Err(Unusable::Other)) => None,
            Ok(Err(Unusable::Expired)) => Some(&self.counters.expired),
            // What cannot be read once is not tried again and again.
            Ok(Err(Unusable::Damaged)) | Err(_) => Some(&self.counters.damaged),
        };
        // If the index points elsewhere by now, it was not damaged but replaced.
        if let Some(reason) = reason
            && self.index.remove(Fingerprint::of(digest), place)
        {
            reason.add(1);
        }
        found.map(Result::ok)
    }

    /// Takes note of how writing went.
    fn wrote(&self, segments: &mut Segments, result: io::Result<()>) {
        let WriteStats { written, lost, evicted } = segments.take_tally();
        self.counters.written.add(written);
        self.counters.dropped.add(lost);
        self.counters.evicted.add(evicted);
        match result {
            Ok(()) if written > 0 => {
                if self.counters.turn(State::Up, (self.clock)()) {
                    info!("the disk store takes values again");
                }
            }
            Ok(()) => {}
            Err(why) => {
                if self.counters.turn(State::Down, (self.clock)()) {
                    warn!(%why, "the disk store takes no values: answers are served without");
                }
                // Others filled the disk; what room we have is ours to give.
                if why.kind() == io::ErrorKind::StorageFull {
                    let _counted_as_evicted = segments.shrink();
                }
            }
        }
        self.bytes.store(segments.bytes(), Ordering::Relaxed);
    }
}

fn read(inner: &DiskCore) {
    while let Some(Look { digest, place, answer }) = inner.reads.take(1).pop() {
        // The request timed out or is gone.
        if answer.is_closed() {
            continue;
        }
        let _gone_meanwhile = answer.send(inner.look(&digest, place));
    }
}

fn write(inner: &DiskCore, mut segments: Segments) {
    loop {
        let jobs = inner.writes.take(BATCH_ITEMS);
        if jobs.is_empty() {
            return;
        }
        for WriteJob { digest, value, put, expires } in jobs {
            let mut result = segments.append(&digest, &value, put, expires);
            if result.is_ok() && segments.pending() >= BATCH_BYTES {
                result = segments.commit();
            }
            inner.wrote(&mut segments, result);
        }
        let result = segments.commit();
        inner.wrote(&mut segments, result);
    }
}

/// Makes the directory ours alone, and empty if it is of another format.
fn claim(directory: &Path) -> Result<File, OpenError> {
    fs::create_dir_all(directory)?;
    let path = directory.join(MARKER);
    if !path.exists() {
        for entry in fs::read_dir(directory)? {
            // File systems of their own begin with this one.
            if entry?.file_name() != "lost+found" {
                return Err(OpenError::NotOurs);
            }
        }
    }
    let mut options = OpenOptions::new();
    let mut marker = options.read(true).write(true).create(true).truncate(false).open(path)?;
    match marker.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(OpenError::InUse),
        Err(TryLockError::Error(why)) => return Err(why.into()),
    }
    let ours = format!("wellhead disk store, format {FORMAT}\n").into_bytes();
    let mut found = Vec::new();
    (&marker).take(ours.len() as u64 + 1).read_to_end(&mut found)?;
    if found != ours {
        if !found.is_empty() {
            warn!(
                directory = %directory.display(),
                "the disk store has another format; it starts empty, and its answers are fetched again"
            );
        }
        segment::remove_all(directory)?;
        marker.set_len(0)?;
        marker.rewind()?;
        marker.write_all(&ours)?;
    }
    Ok(marker)
}
