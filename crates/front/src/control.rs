//! Keys from several sources, as one table that requests are looked up in.
//!
//! When one of the sources changes, a new table is made and swapped in as a whole ([`KeyOrigin`]). What was used of the
//! limits is in the book, which all tables share.
//!
//! Each source is *stale* by itself: when it was not heard of for too long, or not yet. Its keys are then left
//! out, and those of the others stay valid. While a source is stale, a key that is not known is not called
//! wrong: it may be one of that source (503, not 401).

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::MissedTickBehavior;
use wellhead_access::{
    AccessPolicy, AccessTable, BadKeyReason, BuiltAccess, Caller, CertificateName, ClientFacts,
    Denied, EndedKey, IdentifiedClient, KeyHistory, KeyRecord, LastingHead, MeterBook, MeterTime,
};
use wellhead_server::{ClientHead, HttpRefusal, Identified, SessionClose};
use wellhead_telemetry::clock;

use crate::origin::KeyOrigin;
use crate::returned::{self, ReturnedCounts};
use crate::sessions::SessionBook;

/// So late may a connection be woken.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// All that decides on callers. Shared by all workers.
#[derive(Debug)]
pub struct CallerControl {
    table: ArcSwap<AccessTable>,
    policy: ArcSwap<AccessPolicy>,
    book: Arc<MeterBook>,
    epoch: Instant,
    /// In the order in which the first record of an id counts.
    sources: Mutex<[SourceKeys; KeyOrigin::COUNT]>,
    /// Held while the file of keys is read or written, and its keys are taken.
    file_turn: Mutex<()>,
    /// Whether a source is stale.
    is_stale: AtomicBool,
    returned: ReturnedCounts,
    sessions: SessionBook,
    /// Counts the tables.
    edition: AtomicU64,
}

/// What a source of keys said last.
#[derive(Debug, Default)]
struct SourceKeys {
    records: Vec<KeyRecord>,
    is_stale: bool,
    /// What it said before.
    history: KeyHistory,
}

impl SourceKeys {
    /// Takes the keys that it says now, as far as they are none of an earlier time.
    fn follow(&mut self, origin: KeyOrigin, keys: Vec<KeyRecord>, counts: &ReturnedCounts) {
        self.is_stale = false;
        self.records = match origin {
            // Written by hand, and read when that is asked for.
            KeyOrigin::Settings => keys,
            KeyOrigin::File | KeyOrigin::Redis => {
                let followed = self.history.follow(&self.records, keys);
                returned::tell(origin, &followed, counts);
                followed.records
            }
        };
    }
}

impl CallerControl {
    /// Callers by this policy, without a key. What they use is noted in `book`, whose times are since `epoch`.
    pub fn new(policy: Arc<AccessPolicy>, book: Arc<MeterBook>, epoch: Instant) -> Self {
        let BuiltAccess { table, .. } = AccessTable::build(Arc::clone(&policy), &[]);
        Self {
            table: ArcSwap::from_pointee(table),
            policy: ArcSwap::new(policy),
            book,
            epoch,
            sources: Mutex::default(),
            file_turn: Mutex::default(),
            is_stale: AtomicBool::new(false),
            returned: ReturnedCounts::default(),
            sessions: SessionBook::default(),
            edition: AtomicU64::new(0),
        }
    }

    /// Forgets the meters that have nothing to remember.
    pub fn sweep(&self, now: Instant) {
        let at = MeterTime { elapsed: self.elapsed(now), unix_seconds: clock::unix_seconds() };
        self.book.sweep(at);
    }

    /// What is used of the limits.
    pub fn book(&self) -> &Arc<MeterBook> {
        &self.book
    }

    /// The keys in use.
    pub fn table(&self) -> Arc<AccessTable> {
        self.table.load_full()
    }

    /// Since the epoch of the meters.
    pub fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.epoch)
    }

    /// Takes the keys of one source in the place of those that it had. Returns what is wrong with some of
    /// them; those are left out. Keys that it brings back from an earlier time are told.
    pub fn take_keys(&self, source: KeyOrigin, keys: Vec<KeyRecord>) -> Vec<String> {
        let mut sources = self.sources.lock();
        sources[source as usize].follow(source, keys, &self.returned);
        let problems = self.rebuild(&sources);
        self.is_stale.store(sources.iter().any(|source| source.is_stale), Relaxed);
        problems
    }

    /// Takes one key of a source in the place of the one of its id, beside those that the source said last. Whether
    /// the source is stale stays as it is.
    pub fn take_key(&self, source: KeyOrigin, key: KeyRecord) {
        let mut sources = self.sources.lock();
        let own = &mut sources[source as usize];
        let (mut keys, was_stale) = (own.records.clone(), own.is_stale);
        match keys.iter_mut().find(|known| known.id == key.id) {
            Some(known) => *known = key,
            None => keys.push(key),
        }
        own.follow(source, keys, &self.returned);
        own.is_stale = was_stale;
        self.rebuild(&sources);
    }

    /// What has ended for good of the keys of a source.
    pub fn ended_keys(&self, source: KeyOrigin) -> Vec<EndedKey> {
        self.sources.lock()[source as usize].history.ended()
    }

    /// Adds what had ended for good of the keys of a source before this process started, or has to another one, and
    /// judges the keys in use by it.
    pub fn restore_ended_keys(&self, source: KeyOrigin, ended: Vec<EndedKey>) {
        let mut sources = self.sources.lock();
        let keys = &mut sources[source as usize];
        keys.history.restore(ended);
        let used = std::mem::take(&mut keys.records);
        if used.is_empty() {
            return;
        }
        let followed = keys.history.follow(&[], used);
        returned::tell(source, &followed, &self.returned);
        keys.records = followed.records;
        self.rebuild(&sources);
    }

    /// Says whether a source was not heard of for too long, or not yet: then its keys are not used.
    pub fn set_stale(&self, source: KeyOrigin, is_stale: bool) {
        let mut sources = self.sources.lock();
        if std::mem::replace(&mut sources[source as usize].is_stale, is_stale) == is_stale {
            return;
        }
        let any = sources.iter().any(|source| source.is_stale);
        // At no moment is a key of a stale source called wrong.
        self.is_stale.fetch_or(any, Relaxed);
        self.rebuild(&sources);
        self.is_stale.store(any, Relaxed);
    }

    /// Whether a source was not heard of for too long, or not yet.
    pub fn is_stale(&self, source: KeyOrigin) -> bool {
        self.sources.lock()[source as usize].is_stale
    }

    /// Whether some keys may be valid that are not known here.
    pub fn has_stale_source(&self) -> bool {
        self.is_stale.load(Relaxed)
    }

    /// Under the lock of the sources: a table of older keys must not take the place of a newer one.
    fn rebuild(&self, sources: &[SourceKeys; KeyOrigin::COUNT]) -> Vec<String> {
        let fresh = sources.iter().filter(|source| !source.is_stale);
        let all: Vec<KeyRecord> = fresh.flat_map(|source| &source.records).cloned().collect();
        let BuiltAccess { table, key_problems } = AccessTable::build(self.policy(), &all);
        self.table.store(Arc::new(table));
        // Behind it: what is judged by an edition has seen its table.
        self.edition.fetch_add(1, Release);
        key_problems
    }

    /// The keys that are wanted, each with its source, in the order in which the first of an id counts. Looks
    /// at all of them.
    pub fn records(&self, is_wanted: impl Fn(&KeyRecord) -> bool) -> Vec<(KeyOrigin, KeyRecord)> {
        let sources = self.sources.lock();
        let of = |origin: KeyOrigin| {
            let wanted = sources[origin as usize].records.iter().filter(|record| is_wanted(record));
            wanted.map(move |record| (origin, record.clone()))
        };
        KeyOrigin::ALL.into_iter().flat_map(of).collect()
    }

    /// Keys that a source brought back.
    pub fn returned(&self) -> &ReturnedCounts {
        &self.returned
    }

    /// The turn to read or write the file of keys. Waits while another has it: not for a worker.
    pub fn file_turn(&self) -> MutexGuard<'_, ()> {
        self.file_turn.lock()
    }

    /// What the settings say of callers.
    pub fn policy(&self) -> Arc<AccessPolicy> {
        self.policy.load_full()
    }

    /// Goes by other settings from now on, with these keys of the settings. Keys from elsewhere stay.
    pub fn change(&self, policy: Arc<AccessPolicy>, listed: Vec<KeyRecord>) {
        self.policy.store(policy);
        for problem in self.take_keys(KeyOrigin::Settings, listed) {
            tracing::warn!(problem, "a key does not fit the settings any more: it is left out");
        }
    }

    /// Connections that outlive the heads that they began with.
    pub fn sessions(&self) -> &SessionBook {
        &self.sessions
    }

    /// Changes with the keys and the settings of callers.
    pub fn edition(&self) -> u64 {
        self.edition.load(Acquire)
    }

    /// The caller as the keys are now, for a connection that outlives its head. `Err` when it would be turned
    /// away at `unix`, the time since 1970, or be another one.
    pub fn renewed(
        &self,
        caller: &Caller,
        head: &LastingHead,
        now: Instant,
        unix: Duration,
    ) -> Result<Caller, SessionClose> {
        let renewed = self.table.load().renewed(caller, head, unix);
        let grant = renewed.map_err(|denied| {
            let (key, peer) = (&caller.grant.id, caller.address);
            tracing::debug!(?denied, %key, %peer, "a connection is closed: its caller may not go on");
            match denied {
                // It may be a key of the source that was not heard of.
                Denied::BadKey(BadKeyReason::Unknown) if self.has_stale_source() => {
                    SessionClose::KeysUnknown
                }
                _ => SessionClose::KeyEnded,
            }
        })?;
        Ok(Caller::new(grant, caller.address, &self.book, self.elapsed(now)))
    }

    /// What a request comes from, at this moment.
    pub fn identify(
        &self,
        head: &ClientHead<'_>,
        now: Instant,
    ) -> Result<Identified<Option<Caller>>, HttpRefusal> {
        let certificate: Vec<_> = head.names().iter().map(certificate_name).collect();
        let facts = ClientFacts {
            peer: head.peer().ip(),
            path: head.path(),
            query: head.query(),
            certificate: &certificate,
            now: Duration::from_secs(clock::unix_seconds()),
            elapsed: self.elapsed(now),
            keys_are_stale: self.has_stale_source(),
        };
        let table = self.table.load();
        let IdentifiedClient { caller, target } =
            table.identify(&facts, head.fields()).map_err(|denied| {
                tracing::debug!(?denied, peer = %head.peer(), "a request was turned away");
                refusal(denied)
            })?;
        let path = target.path.map(Cow::into_owned);
        Ok(Identified { caller: Some(caller), path, query: target.query })
    }
}

/// Wakes connections until it is dropped.
pub async fn watch_sessions(control: Arc<CallerControl>) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = control.edition();
    loop {
        looks.tick().await;
        let edition = control.edition();
        let unix = Duration::from_secs(clock::unix_seconds());
        control.sessions().wake(edition != known, unix);
        known = edition;
    }
}

/// A name of a client's certificate, as callers are named by it.
pub(crate) fn certificate_name(name: &wellhead_server::ClientName) -> CertificateName {
    match name {
        wellhead_server::ClientName::Uri(text) => CertificateName::Uri(text.clone()),
        wellhead_server::ClientName::Dns(text) => CertificateName::dns(text),
        wellhead_server::ClientName::Common(text) => CertificateName::CommonName(text.clone()),
    }
}

/// What a client is told. The reason is for the log: it would tell which keys exist.
fn refusal(denied: Denied) -> HttpRefusal {
    match denied {
        Denied::NoKey => HttpRefusal::NoKey,
        Denied::BadKey(_) => HttpRefusal::BadKey,
        Denied::ManyKeys => HttpRefusal::ManyKeys,
        Denied::CallerDenied(_) => HttpRefusal::CallerDenied,
        Denied::KeysUnknown => HttpRefusal::KeysUnknown,
    }
}
