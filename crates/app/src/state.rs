//! What was spent in the day and the month, kept in a file over a restart.
//!
//! Budgets are for money, so a restart must not begin at zero. The file is written beside
//! the old one, synced and renamed over it, every [`WRITE_EVERY`] when something was spent
//! and once at the end; a crash forgets what was spent since, at most. No request waits for
//! it, and nothing that may be wrong with it keeps wellhead from serving: what cannot be
//! read is told once and begins anew.
//!
//! ```text
//! wellhead state 1 5f3a09c1
//! [{"chain":"ethereum","upstream":"alchemy","day":20777,"day_credits":1200, ...}]
//! ```
//!
//! The first line says the version and a CRC-32 of what follows. Days and months are counted
//! from 1970, as in `limit::Ledger`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::MissedTickBehavior;
use wellhead_proxy::Proxy;
use wellhead_upstream::{Pages, Upstream};

/// A crash forgets what was spent in so long: little of a day, and one write in so long is
/// nothing to any disk.
const WRITE_EVERY: Duration = Duration::from_secs(10);
/// A file is never this long: a thousand chains of a hundred upstreams are 15 MB.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// How long the end waits for the last write; a disk that hangs must not.
const LAST_WRITE_TIME: Duration = Duration::from_secs(2);

const MAGIC: &str = "wellhead state 1";

/// What was spent at one upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    chain: String,
    upstream: String,
    pages: Pages,
}

/// Why a file cannot be used.
#[derive(Debug)]
enum Unreadable {
    /// There is none, as at the first start.
    Missing,
    File(io::Error),
    Damaged(&'static str),
}

/// The file, and how writing it goes.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    proxy: Arc<Proxy>,
    /// Rows of upstreams that the settings do not name any more: they may come back.
    others: Vec<Row>,
    written: AtomicU64,
    failed: AtomicU64,
}

impl State {
    /// Reads `path` and gives the upstreams of `proxy` what they had spent.
    pub(crate) fn restore(path: &Path, proxy: &Arc<Proxy>, now: Instant) -> Arc<Self> {
        let rows = match read(path) {
            Ok(rows) => rows,
            Err(why) => {
                tell(path, &why);
                Vec::new()
            }
        };
        let mut others = Vec::new();
        for row in rows {
            match upstreams(proxy).find(|(chain, it)| *chain == row.chain && id(it) == row.upstream)
            {
                Some((_, upstream)) => upstream.restore(row.pages, now),
                None => others.push(row),
            }
        }
        let (written, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { path: path.to_owned(), proxy: Arc::clone(proxy), others, written, failed })
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
        loop {
            // The first comes at once, so that a path that is no good is told at the start.
            turns.tick().await;
            let rows = self.rows();
            if last.as_ref() == Some(&rows) {
                continue;
            }
            let is_written = self.write_aside(rows.clone()).await;
            last = is_written.then_some(rows);
        }
    }

    /// Writes for the last time.
    pub(crate) async fn end(self: Arc<Self>) {
        let rows = self.rows();
        if tokio::time::timeout(LAST_WRITE_TIME, self.write_aside(rows)).await.is_err() {
            let path = self.path.display();
            tracing::error!(%path, "the state file could not be written in time");
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(chain, upstream): (&str, &Arc<Upstream>)| {
            let pages = upstream.pages()?;
            Some(Row { chain: chain.to_owned(), upstream: id(upstream).to_owned(), pages })
        };
        upstreams(&self.proxy).filter_map(row).chain(self.others.iter().cloned()).collect()
    }

    /// On a thread of its own, as a disk may hang: nothing waits for one that does.
    async fn write_aside(&self, rows: Vec<Row>) -> bool {
        let (path, (done, written)) = (self.path.clone(), tokio::sync::oneshot::channel());
        let write = move || {
            // Nobody may listen any more.
            let _ = done.send(write(&path, &rows));
        };
        let spawned = std::thread::Builder::new().name("wellhead-state".to_owned()).spawn(write);
        let result = match spawned {
            Ok(_) => written.await.unwrap_or_else(|_| Err(io::Error::other("it panicked"))),
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => {
                self.written.fetch_add(1, Relaxed);
                true
            }
            Err(error) => {
                // Once: it is tried again and again.
                if self.failed.fetch_add(1, Relaxed) == 0 {
                    let path = self.path.display();
                    tracing::error!(%path, %error, "the state file cannot be written; what is spent is forgotten at a restart");
                }
                false
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
            tracing::info!(%path, "no state file yet: what was spent begins at zero");
        }
        Unreadable::File(error) => {
            tracing::warn!(%path, %error, "the state file cannot be read: what was spent begins at zero");
        }
        Unreadable::Damaged(what) => {
            tracing::warn!(%path, what, "the state file is damaged: what was spent begins at zero");
        }
    }
}

fn read(path: &Path) -> Result<Vec<Row>, Unreadable> {
    let mut text = Vec::new();
    let opened = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
    match opened {
        Ok(_) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Unreadable::Missing),
        Err(error) => Err(Unreadable::File(error)),
    }
}

fn parse(text: &[u8]) -> Result<Vec<Row>, Unreadable> {
    let damaged = Unreadable::Damaged;
    let end = text.iter().position(|byte| *byte == b'\n').ok_or(damaged("it is cut"))?;
    let (head, body) = (&text[..end], &text[end + 1..]);
    let head = std::str::from_utf8(head).map_err(|_| damaged("its first line is no text"))?;
    let sum = head.strip_prefix(MAGIC).ok_or(damaged("it is of another kind or version"))?;
    if sum.trim() != checksum(body) {
        return Err(damaged("its checksum does not fit"));
    }
    let rows: Vec<Value> =
        serde_json::from_slice(body).map_err(|_| damaged("what it holds is no list"))?;
    rows.iter().map(|row| row_of(row).ok_or(damaged("a row is incomplete"))).collect()
}

fn row_of(row: &Value) -> Option<Row> {
    let text = |key: &str| row[key].as_str().map(str::to_owned);
    let small = |key: &str| row[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let pages = Pages {
        day: small("day")?,
        day_credits: row["day_credits"].as_u64()?,
        month: small("month")?,
        month_credits: row["month_credits"].as_u64()?,
    };
    Some(Row { chain: text("chain")?, upstream: text("upstream")?, pages })
}

fn render(rows: &[Row]) -> Vec<u8> {
    let row = |Row { chain, upstream, pages }: &Row| {
        let Pages { day, day_credits, month, month_credits } = pages;
        json!({
            "chain": chain, "upstream": upstream,
            "day": day, "day_credits": day_credits,
            "month": month, "month_credits": month_credits,
        })
    };
    let body = Value::from_iter(rows.iter().map(row)).to_string();
    format!("{MAGIC} {}\n{body}", checksum(body.as_bytes())).into_bytes()
}

fn checksum(body: &[u8]) -> String {
    format!("{:08x}", crc32fast::hash(body))
}

/// At no moment is there half a file under `path`, whatever stops us.
fn write(path: &Path, rows: &[Row]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let mut file = File::create(&beside)?;
    file.write_all(&render(rows))?;
    file.sync_all()?;
    drop(file);
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    // That the name is new is known to the folder alone.
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::Parts;
    use crate::config::{self, Overrides};
    use wellhead_dispatch::now;

    fn proxy() -> Arc<Proxy> {
        let source = r#"
chains:
  ethereum:
    id: 1
    upstreams:
      - { id: a, url: "http://a", budget: { credits_per_month: 1000 } }
      - { id: b, url: "http://b", budget: { credits_per_day: 100 } }
      - { id: free, url: "http://c" }
"#;
        let loaded = config::parse("test", source, &|_| None, Overrides::default());
        let settings = loaded.expect("a good config").settings;
        Parts::new(&settings, now()).expect("parts").proxy
    }

    /// Makes so many calls at the upstream at `place`.
    fn spend(proxy: &Proxy, place: usize, calls: usize) {
        let (_, upstream) = upstreams(proxy).nth(place).expect("an upstream");
        let row = wellhead_eth::MethodTable::standard().row("eth_call");
        for _ in 0..calls {
            drop(upstream.begin_call(row, now()));
        }
    }

    /// Credits of the day and the month, of each.
    fn spent(proxy: &Proxy) -> Vec<(Option<u64>, Option<u64>)> {
        let of = |(_, upstream): (&str, &Arc<Upstream>)| {
            let spending = upstream.spending(now());
            (spending.day, spending.month)
        };
        upstreams(proxy).map(of).collect()
    }

    #[tokio::test]
    async fn what_was_spent_survives_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let before = proxy();
        let state = State::restore(&path, &before, now());
        spend(&before, 0, 7);
        spend(&before, 1, 3);
        spend(&before, 2, 5);
        Arc::clone(&state).end().await;
        assert_eq!(state.writes(), (1, 0));
        let after = proxy();
        let state = State::restore(&path, &after, now());
        assert_eq!(spent(&after), [(Some(7), Some(7)), (Some(3), Some(3)), (None, None)]);
        spend(&after, 0, 1);
        state.end().await;
        let last = proxy();
        State::restore(&path, &last, now());
        assert_eq!(spent(&last)[0], (Some(8), Some(8)));
        let left: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert_eq!(left.len(), 1, "nothing is left beside it");
    }

    #[tokio::test]
    async fn an_upstream_that_is_gone_for_a_while_is_remembered() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let pages = Pages { day: 1, day_credits: 2, month: 3, month_credits: 4 };
        let gone = Row { chain: "base".to_owned(), upstream: "z".to_owned(), pages };
        write(&path, std::slice::from_ref(&gone)).expect("written");
        State::restore(&path, &proxy(), now()).end().await;
        assert!(read(&path).expect("good").contains(&gone));
    }

    #[test]
    fn every_damage_is_noticed_and_none_stops_us() {
        let pages = Pages { day: 20_777, day_credits: 5, month: 682, month_credits: 9 };
        let row = Row { chain: "ethereum".to_owned(), upstream: "a".to_owned(), pages };
        let good = render(std::slice::from_ref(&row));
        assert_eq!(parse(&good).expect("good"), [row]);
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "cut at {cut}");
        }
        for place in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[place] ^= 1 << bit;
                // Only blanks before the checksum may differ and mean the same.
                assert!(
                    parse(&bad).is_err() || bad[place].is_ascii_whitespace(),
                    "bit {bit} of byte {place}"
                );
            }
        }
        let sealed = |body: &str| format!("{MAGIC} {}\n{body}", checksum(body.as_bytes()));
        for body in ["", "{}", "[1]", r#"[{"chain":"a"}]"#, "[\u{0}]"] {
            assert!(parse(sealed(body).as_bytes()).is_err(), "{body}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        for bytes in [&b""[..], b"\xff\xff", b"wellhead state 2 00000000\n[]", &good[..40]] {
            fs::write(&path, bytes).expect("written");
            let proxy = proxy();
            State::restore(&path, &proxy, now());
            assert_eq!(spent(&proxy)[0], (Some(0), Some(0)));
        }
        // What is no file at all.
        State::restore(folder.path(), &proxy(), now());
    }

    #[tokio::test]
    async fn a_path_that_cannot_be_written_is_counted_and_harms_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = State::restore(&folder.path().join("no/such/folder"), &proxy(), now());
        for _ in 0..2 {
            Arc::clone(&state).end().await;
        }
        assert_eq!(state.writes(), (0, 2));
    }
}
