//! What was spent in the day and the month, at upstreams and by tenants and keys, which keys were revoked or
//! replaced, and the filters of clients, kept in a file over a restart.
//!
//! Budgets are for money, so a restart must not begin at zero. The file is written beside
//! the old one, synced and renamed over it, every [`WRITE_EVERY`] when something was spent
//! and once at the end; a crash forgets what was spent since, at most. No request waits for
//! it, and nothing that may be wrong with it keeps wellhead from serving: what cannot be
//! read is told once and begins anew. A file that cannot be read, or is of a version that this program does not know, is
//! kept as `PATH.unreadable`, since it may be what a newer wellhead wrote before it was rolled back.
//!
//! One process at a time writes the file: the one that holds the lock on `PATH.lock`, which the
//! system frees when that process ends, however it ends. Another one reads the file at its
//! start, writes nothing, and takes the lock over when it is free; what both spent is then added.
//!
//! Filters are written at the end only: one that was polled since it was written would tell its client what it
//! told before. The first write after a start leaves them out, so that a crash ends them.
//!
//! ```text
//! wellhead state 2 5f3a09c1
//! {"spending":[{"chain":"ethereum","upstream":"alchemy","day":20777,"day_credits":1200, ...}],
//!  "callers":[{"kind":"tenant","name":"acme","day":20777,"day_credits":40, ...}],
//!  "keys":[{"source":"file","id":"7c9xk2ma","revoked_at":1795000000,"replaced":[]}],
//!  "filters":[{"chain":"ethereum","filters":[{"id":"0xf117e200...", ...}]}]}
//! ```
//!
//! The first line says the version and a CRC-32 of what follows. Days and months are counted
//! from 1970, as in `limit::Ledger`. A file of version 1 is the list of spending alone; one of version 2 may
//! have no `callers` and no `keys`. What tenants and keys spent of limits that several wellheads share is known to their
//! store; the file then says what this one spent of it.

mod callers;
mod ended;

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use wellhead_front::CallerControl;
use wellhead_proxy::{Proxy, ServedChain};
use wellhead_upstream::{Pages, Upstream};

use self::callers::{CallerRow, CallerSpending};
use self::ended::{EndedKeys, EndedRow};
use crate::config::file::read_regular;
use crate::runtime::aside;

/// A crash forgets what was spent in so long: little of a day, and one write in so long is
/// nothing to any disk.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// While another process has the file it is looked at so often: a process that hands over ends soon.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A file is never this long: a thousand chains of a hundred upstreams are 15 MB, ten thousand filters 10 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// How long the end waits for the last write; a disk that hangs must not.
const LAST_WRITE_TIME: Duration = Duration::from_secs(2);

/// The file's name where the settings do not name one.
const DEFAULT_NAME: &str = "wellhead.state";

const MAGIC: &str = "wellhead state 2";
/// Of files that hold no filters.
const MAGIC_OF_SPENDING: &str = "wellhead state 1";

/// What was spent at one upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SpendingRow {
    chain: String,
    upstream: String,
    #[serde(flatten, with = "PagesRow")]
    pages: Pages,
}

/// How the file holds pages.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Pages")]
struct PagesRow {
    day: u32,
    day_credits: u64,
    month: u32,
    month_credits: u64,
}

/// The filters of one chain, each as it was saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FilterRow {
    chain: String,
    filters: Vec<Value>,
}

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StateContent {
    spending: Vec<SpendingRow>,
    #[serde(default)]
    callers: Vec<CallerRow>,
    #[serde(default, rename = "keys")]
    ended: Vec<EndedRow>,
    filters: Vec<FilterRow>,
}

/// Why a file cannot be used.
#[derive(Debug)]
enum Unreadable {
    /// There is none, as at the first start.
    Missing,
    File(io::Error),
    Damaged(&'static str),
}

/// What came of an attempt to write.
#[derive(Debug)]
enum Turnout {
    Written,
    /// Another process holds the lock.
    Taken,
    /// The lock was free, and is ours from now on: what the file holds, to be added first.
    TookOver(Result<StateContent, Unreadable>),
}

/// Where the state is kept when the settings do not say so: in the folder that systemd made for
/// the service (`StateDirectory=`), else in that of the user. `None` without a home.
pub(crate) fn default_path(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = environment(name)?;
        // systemd lists several with colons between them.
        let first = value.split(':').next().map(PathBuf::from)?;
        Some(first).filter(|folder| folder.is_absolute())
    };
    if let Some(own) = folder("STATE_DIRECTORY") {
        return Some(own.join(DEFAULT_NAME));
    }
    let of_user = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
    Some(of_user?.join("wellhead").join(DEFAULT_NAME))
}

/// Makes the folder of a default path, and sees that the file can be kept there.
pub(crate) fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // Another process may hold it, which is told later.
    claim(path).map(drop)
}

/// Takes the lock of the file at `path`, unless another process holds it.
fn claim(path: &Path) -> io::Result<Option<File>> {
    let lock = File::options().create(true).append(true).open(beside(path, ".lock"))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(end);
    path.with_file_name(name)
}

/// The file, and how writing it goes.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    proxy: Arc<ArcSwap<Proxy>>,
    /// Held while this process is the one that writes.
    lock: Arc<Mutex<Option<File>>>,
    /// What the file held when it was last read and added to what is spent.
    added: Mutex<Vec<SpendingRow>>,
    /// Rows of upstreams that the settings do not name any more: they may come back.
    others: Mutex<Vec<SpendingRow>>,
    callers: CallerSpending,
    ended: EndedKeys,
    written: AtomicU64,
    failed: AtomicU64,
}

impl State {
    /// Reads `path` and gives the upstreams of `proxy`, and the callers, where they are told apart, what they had spent.
    /// To be called before keys are read: those that were revoked are then never valid.
    pub(crate) fn restore(
        path: &Path,
        proxy: &Arc<ArcSwap<Proxy>>,
        callers: Option<Arc<CallerControl>>,
        now: Instant,
    ) -> Arc<Self> {
        // What is wrong with the folder is told when the file is written.
        let claimed = claim(path).unwrap_or(None);
        let state = Arc::new(Self {
            path: path.to_owned(),
            proxy: Arc::clone(proxy),
            lock: Arc::new(Mutex::new(claimed)),
            added: Mutex::default(),
            others: Mutex::default(),
            callers: CallerSpending::of(callers.as_ref().map(|it| Arc::clone(it.book()))),
            ended: EndedKeys::of(callers),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        state.add(read(path), now);
        state
    }

    /// Gives the upstreams what the file says that they spent, less what it said before, and takes in the filters.
    fn add(&self, read: Result<StateContent, Unreadable>, now: Instant) {
        let StateContent { spending: rows, callers, ended, filters } = match read {
            Ok(content) => content,
            Err(why) => {
                tell(&self.path, &why);
                if self.lock.lock().is_some() {
                    set_aside(&self.path);
                }
                StateContent::default()
            }
        };
        let proxy = self.proxy.load();
        for row in &filters {
            let chain = proxy.chains().iter().find(|chain| *chain.name.name == *row.chain);
            let saved: Vec<_> = row.filters.iter().map(Value::to_string).collect();
            let restored = chain.map_or(0, |chain| chain.restore_filters(&saved, now));
            tracing::info!(chain = row.chain, restored, "filters of clients go on");
        }
        self.callers.add(callers);
        self.ended.add(ended);
        let (mut added, mut others) = (self.added.lock(), self.others.lock());
        for row in &rows {
            let is_same = |it: &&SpendingRow| it.chain == row.chain && it.upstream == row.upstream;
            let before = added.iter().find(is_same).map(|it| it.pages);
            let own =
                upstreams(&proxy).find(|(chain, it)| *chain == row.chain && id(it) == row.upstream);
            let spent = since(row.pages, before);
            match own {
                Some((_, upstream)) => upstream.restore(spent, now),
                None => match others.iter_mut().find(|it| is_same(&&**it)) {
                    // It may be one that a reload removed, whose spending here is in no file.
                    Some(known) => known.pages = known.pages.plus(spent),
                    None => others.push(row.clone()),
                },
            }
        }
        *added = rows;
    }

    /// Whether this process writes the file.
    pub(crate) fn is_owner(&self) -> bool {
        // While it is locked here, it is being written.
        self.lock.try_lock().is_none_or(|lock| lock.is_some())
    }

    /// Times that the file was written, and times that it could not be.
    pub(crate) fn writes(&self) -> (u64, u64) {
        (self.written.load(Relaxed), self.failed.load(Relaxed))
    }

    /// Writes now and then until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut turns = tokio::time::interval(WRITE_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        let mut was_taken = false;
        loop {
            // The first comes at once, so that a path that is no good is told at the start.
            turns.tick().await;
            let content = self.content(false);
            if last.as_ref() == Some(&content) {
                continue;
            }
            let is_written = match self.write_aside(content.clone()).await {
                Some(Turnout::Written) => true,
                Some(Turnout::Taken) => {
                    self.tell_taken(&mut was_taken);
                    turns.reset_after(LOOK_EVERY);
                    false
                }
                Some(Turnout::TookOver(read)) => {
                    self.take_over(read);
                    was_taken = false;
                    turns.reset_immediately();
                    false
                }
                None => false,
            };
            last = is_written.then_some(content);
        }
    }

    fn tell_taken(&self, was_told: &mut bool) {
        if !std::mem::replace(was_told, true) {
            let path = self.path.display();
            tracing::warn!(%path, "another process writes this state file: the spending of this process is added when that one ends, and lost if this one ends first; give each process its own `state`");
        }
    }

    fn take_over(&self, read: Result<StateContent, Unreadable>) {
        self.add(read, wellhead_dispatch::now());
        let path = self.path.display();
        tracing::info!(%path, "the state file is free: this process writes it from now on");
    }

    /// Writes for the last time, and lets another process have the file.
    pub(crate) async fn end(self: Arc<Self>) {
        let last = async {
            let turnout = self.write_aside(self.content(true)).await;
            if let Some(Turnout::TookOver(read)) = turnout {
                self.take_over(read);
                return self.write_aside(self.content(true)).await;
            }
            turnout
        };
        let path = self.path.display();
        match tokio::time::timeout(LAST_WRITE_TIME, last).await {
            Err(_elapsed) => tracing::error!(%path, "the state file could not be written in time"),
            Ok(Some(Turnout::Taken)) => {
                tracing::warn!(%path, "another process writes the state file: the spending of this process is lost");
            }
            Ok(Some(Turnout::Written | Turnout::TookOver(_)) | None) => {}
        }
        // A write that hangs holds it until the process ends.
        if let Some(mut lock) = self.lock.try_lock() {
            *lock = None;
        }
    }

    fn content(&self, with_filters: bool) -> StateContent {
        let filters_of = |chain: &Arc<ServedChain>| {
            let saved = chain.saved_filters();
            // Each was written as JSON by its filter.
            let filters = saved.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
            let chain = chain.name.name.to_string();
            (!saved.is_empty()).then_some(FilterRow { chain, filters })
        };
        let proxy = self.proxy.load();
        let chains = proxy.chains().iter().filter(|_| with_filters);
        StateContent {
            spending: self.rows(),
            callers: self.callers.rows(),
            ended: self.ended.rows(),
            filters: chains.filter_map(filters_of).collect(),
        }
    }

    fn rows(&self) -> Vec<SpendingRow> {
        let row = |(chain, upstream): (&str, &Arc<Upstream>)| {
            let pages = upstream.pages()?;
            Some(SpendingRow { chain: chain.to_owned(), upstream: id(upstream).to_owned(), pages })
        };
        let (proxy, others) = (self.proxy.load(), self.others.lock());
        upstreams(&proxy).filter_map(row).chain(others.iter().cloned()).collect()
    }

    /// Keeps what upstreams of `old` have spent that are gone, and gives those that are back what they had spent. To
    /// be called when the proxy was replaced.
    pub(crate) fn note_change(&self, old: &Proxy, now: Instant) {
        let (proxy, mut others) = (self.proxy.load(), self.others.lock());
        let is_of = |row: &SpendingRow, chain: &str, upstream: &Upstream| {
            row.chain == chain && row.upstream == id(upstream)
        };
        others.retain(|row| {
            let own = upstreams(&proxy).find(|(chain, upstream)| is_of(row, chain, upstream));
            if let Some((_, upstream)) = own {
                upstream.restore(row.pages, now);
            }
            own.is_none()
        });
        for (chain, upstream) in upstreams(old) {
            let is_here =
                |(name, it): (&str, &Arc<Upstream>)| name == chain && id(it) == id(upstream);
            if let Some(pages) = upstream.pages()
                && !upstreams(&proxy).any(is_here)
            {
                let (chain, upstream) = (chain.to_owned(), id(upstream).to_owned());
                others.push(SpendingRow { chain, upstream, pages });
            }
        }
    }

    /// `None`: it could not be written, which was told.
    async fn write_aside(&self, content: StateContent) -> Option<Turnout> {
        let (path, lock) = (self.path.clone(), Arc::clone(&self.lock));
        let write = move || write_if_ours(&path, &lock, &content);
        match aside("wellhead-state", write).await.flatten() {
            Ok(turnout) => {
                let is_written = matches!(turnout, Turnout::Written);
                self.written.fetch_add(u64::from(is_written), Relaxed);
                Some(turnout)
            }
            Err(error) => {
                // Once: it is tried again and again.
                if self.failed.fetch_add(1, Relaxed) == 0 {
                    let path = self.path.display();
                    tracing::error!(%path, %error, "the state file cannot be written; spending is lost at a restart");
                }
                None
            }
        }
    }
}

fn upstreams(proxy: &Proxy) -> impl Iterator<Item = (&str, &Arc<Upstream>)> {
    proxy.chains().iter().flat_map(|chain| {
        chain.roster.upstreams().iter().map(|upstream| (&*chain.name.name, upstream))
    })
}

fn id(upstream: &Upstream) -> &str {
    upstream.identity().id.as_str()
}

fn tell(path: &Path, why: &Unreadable) {
    let path = path.display();
    match why {
        Unreadable::Missing => {
            tracing::info!(%path, "no state file yet: spending starts at zero");
        }
        Unreadable::File(error) => {
            tracing::warn!(%path, %error, "the state file cannot be read: spending starts at zero");
        }
        Unreadable::Damaged(what) => {
            tracing::warn!(%path, what, "the state file is damaged: spending starts at zero");
        }
    }
}

/// Moves a file that cannot be used out of the way of the next write. One that an earlier call moved is replaced; what
/// is no file stays.
fn set_aside(path: &Path) {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if !is_file {
        return;
    }
    let kept = beside(path, ".unreadable");
    let renamed = fs::rename(path, &kept);
    let path = path.display();
    match renamed {
        Ok(()) => {
            let kept = kept.display();
            tracing::warn!(%path, %kept, "the state file that cannot be used is kept under another name");
        }
        Err(error) => {
            tracing::warn!(%path, %error, "the state file that cannot be used cannot be kept");
        }
    }
}

fn read(path: &Path) -> Result<StateContent, Unreadable> {
    match read_regular(path, FILE_BYTES_MAX) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unreadable::Missing),
        Err(error) => Err(Unreadable::File(error)),
    }
}

fn parse(text: &[u8]) -> Result<StateContent, Unreadable> {
    let damaged = Unreadable::Damaged;
    let end = text.iter().position(|byte| *byte == b'\n').ok_or(damaged("it is cut"))?;
    let (head, body) = (&text[..end], &text[end + 1..]);
    let head = std::str::from_utf8(head).map_err(|_| damaged("its first line is no text"))?;
    let with_filters = head.strip_prefix(MAGIC);
    let sum = with_filters.or_else(|| head.strip_prefix(MAGIC_OF_SPENDING));
    let sum = sum.ok_or(damaged("it is of another kind or version"))?;
    if sum.trim() != checksum(body) {
        return Err(damaged("its checksum does not fit"));
    }
    let body: Value = serde_json::from_slice(body).map_err(|_| damaged("it holds no JSON"))?;
    let body = match with_filters {
        Some(_) => body,
        None => json!({ "spending": body, "filters": [] }),
    };
    let lists = [("spending", true), ("filters", true), ("callers", false), ("keys", false)];
    let is_list =
        |(key, is_due): (&str, bool)| body[key].is_array() || (body[key].is_null() && !is_due);
    if !lists.into_iter().all(is_list) {
        return Err(damaged("it holds no list"));
    }
    serde_json::from_value(body).map_err(|_| damaged("a row is incomplete"))
}

fn render(content: &StateContent) -> io::Result<Vec<u8>> {
    let body = serde_json::to_string(content)?;
    Ok(format!("{MAGIC} {}\n{body}", checksum(body.as_bytes())).into_bytes())
}

fn checksum(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}

/// Writes where this process holds the lock, and tries to take it where it does not.
fn write_if_ours(
    path: &Path,
    lock: &Mutex<Option<File>>,
    content: &StateContent,
) -> io::Result<Turnout> {
    let mut lock = lock.lock();
    if lock.is_some() {
        return write(path, content).map(|()| Turnout::Written);
    }
    *lock = claim(path)?;
    Ok(match *lock {
        Some(_) => Turnout::TookOver(read(path)),
        None => Turnout::Taken,
    })
}

/// What was spent by `pages` beyond what was known of them before.
fn since(pages: Pages, before: Option<Pages>) -> Pages {
    let Some(before) = before else { return pages };
    let day = if before.day == pages.day { before.day_credits } else { 0 };
    let month = if before.month == pages.month { before.month_credits } else { 0 };
    Pages {
        day_credits: pages.day_credits.saturating_sub(day),
        month_credits: pages.month_credits.saturating_sub(month),
        ..pages
    }
}

/// At no moment is there half a file under `path`, whatever stops us.
fn write(path: &Path, content: &StateContent) -> io::Result<()> {
    let beside = beside(path, ".new");
    let mut file = File::create(&beside)?;
    file.write_all(&render(content)?)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // That the name is new is known to the folder alone.
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests;
