//! Writes the journal of one chain: what is agreed becomes what subscribers are told.
//!
//! A loop of the control plane. It runs while something subscribes, and for a while after that, as
//! clients come back. A header that an upstream pushed or told in a poll is used if its hash can be
//! recomputed; otherwise, and between two agreed heads, headers are fetched by hash like the reads of
//! clients: with retries, by the upstreams' condition and price. The view is stored before the
//! journal grows, and the journal before a client is told, so that a client that hears of block N
//! can read block N at once, over any connection.

mod receipts;
mod relays;
mod transactions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wellhead_chain::Observation;
use wellhead_dispatch::now;
use wellhead_eth::{BlockNumber, Bloom, MethodTable, NumberedBlock};
use wellhead_subscribe::{
    AddedBlock, BlockLogs, ChainJournal, HeadWalk, Header, LogsError, LogsReply, LogsScope,
    LogsState, PartState, Publication, WalkStep,
};
use wellhead_verify::{AnswerFinding, KnownFacts, Level, verify};

use crate::journey::ProxyWorker;
use crate::state::chain::ServedChain;
use crate::state::subscriptions::{PublicationReader, SubscriptionCounters};
use crate::syncing;

/// The methods that the logs of a block are read with.
const LOGS: &str = "eth_getLogs";
const RECEIPTS: &str = "eth_getBlockReceipts";

/// The journal is written for this long after the last subscriber has left.
const LINGER: Duration = Duration::from_secs(30);
/// How far below the newest block the journal begins. Each block costs a call. A deeper reorg just after
/// the first subscription closes the connections of subscribers.
const BEGIN_BELOW: usize = 4;
/// Headers that are fetched at one time where many are missing. With 50 ms for an answer, 300 blocks at once
/// are told after 1 s; one by one that would take 15 s, in which the chain goes on.
const HEADERS_AT_ONCE: usize = 16;
/// When the header that is needed next is there, the others of these are waited for as long again, and so long
/// at least; one that hangs is asked for again when its turn comes.
const HEADERS_WAIT_MIN: Duration = Duration::from_millis(100);
/// Blocks of which one part is read at one time, where many came at once: as headers. Each is told when those
/// before it are there.
const PARTS_AT_ONCE: usize = 16;
/// An agreed head that is below the journal for this long is believed: the chain was set back, and
/// subscribers are closed to begin anew. Until then it is taken for that of an upstream that lags.
const LOW_MAX: Duration = Duration::from_secs(30);
/// The first pause after a header could not be fetched; doubles.
const PAUSE: Duration = Duration::from_millis(100);
/// And its bound.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Bytes of a part of one block, as it is kept. More than a block can hold.
const PART_BYTES_MAX: usize = 32 << 20;

/// Logs that the bloom of their header excludes are read again at most this often. Then the chain is taken to add logs of
/// the system that are not in the bloom.
const FOREIGN_MAX: u32 = 3;

/// Why a part of a block was not had.
#[derive(Debug)]
struct PartUnread {
    why: String,
    /// The bloom of the header excludes some of its logs.
    is_foreign: bool,
}

impl PartUnread {
    fn because(why: String) -> Self {
        Self { why, is_foreign: false }
    }

    fn unanswered() -> Self {
        Self::because("no upstream answered".to_owned())
    }
}

impl From<LogsError> for PartUnread {
    fn from(error: LogsError) -> Self {
        Self { is_foreign: error == LogsError::Foreign, ..Self::because(error.to_string()) }
    }
}

/// How often a part of a block could not be had.
#[derive(Debug, Clone, Copy, Default)]
struct PartFailures {
    all: u32,
    /// As the logs were excluded by the bloom of the header.
    foreign: u32,
}

/// Announces the blocks of one chain.
#[derive(Debug)]
pub struct Announcer {
    /// As it was when the announcer was made. What is remembered of it is shared with those that take its place when
    /// the settings change.
    chain: Arc<ServedChain>,
    /// By which it reads.
    current: Arc<ArcSwap<ProxyWorker>>,
    /// Written here alone; its lock is held for a moment.
    journal: Mutex<ChainJournal>,
    /// The receipts of a block were found, are not needed, or cannot be had now.
    receipts_news: Notify,
    /// The events of the blocks whose receipts could not be had.
    receipts_failing: Mutex<BTreeSet<u64>>,
}

impl Announcer {
    /// One for each chain of `current`. Only once for a proxy.
    pub fn all(current: &Arc<ArcSwap<ProxyWorker>>) -> Vec<Self> {
        let now = current.load();
        now.proxy.chains().iter().filter_map(|chain| Self::of(chain, current)).collect()
    }

    /// One for this chain, which reads by what is `current` at that moment; `None` the second time.
    pub fn of(chain: &Arc<ServedChain>, current: &Arc<ArcSwap<ProxyWorker>>) -> Option<Self> {
        let journal = Mutex::new(chain.subscriptions.take_journal()?);
        let (chain, current) = (Arc::clone(chain), Arc::clone(current));
        let (receipts_news, receipts_failing) = (Notify::new(), Mutex::default());
        Some(Self { chain, current, journal, receipts_news, receipts_failing })
    }

    /// Announces for ever.
    pub async fn run(self) {
        let followed = syncing::follow(&self.chain);
        tokio::join!(self.announce_blocks(), followed, self.tend_relays());
    }

    async fn announce_blocks(&self) {
        loop {
            while !self.note_demand() {
                self.chain.subscriptions.news().await;
            }
            if !self.begin().await {
                continue;
            }
            // Heads never wait for logs.
            tokio::select! {
                biased;
                () = self.follow_heads() => {}
                () = self.follow_receipts() => {}
                () = self.follow_transactions() => {}
                () = self.follow_logs() => {}
            }
        }
    }

    /// Begins the journal at the agreed head, as soon as there is one; false when nothing waits for
    /// that any more.
    async fn begin(&self) -> bool {
        while self.note_demand() {
            if let Some((head, _)) = self.agreed().await {
                self.begin_at(head).await;
                self.chain.subscriptions.note_written();
                return true;
            }
            self.wait(PAUSE_MAX).await;
        }
        false
    }

    /// Whether something reads the journal, as upstreams' loops are told, too.
    fn note_demand(&self) -> bool {
        self.chain.note_demand(now());
        self.chain.subscriptions.count() > 0
    }

    /// Begins the journal anew, some blocks below this one.
    async fn begin_at(&self, head: NumberedBlock) {
        let (base, added) = self.headers_below(head).await;
        let mut journal = self.journal.lock();
        journal.begin(base);
        // They are linked: each was fetched as the parent of the one above it.
        let published = journal.publish(Publication { removed: 0, added });
        debug_assert_eq!(published, Ok(()));
        // Each subscription begins behind them.
        let written = self.chain.subscriptions.reader.load();
        for block in written.iter().filter_map(|(_, event)| event.added()) {
            journal.set_logs(block, LogsState::Unneeded);
            journal.set_receipts(block, PartState::Unneeded);
            journal.set_transactions(block, PartState::Unneeded);
        }
    }

    /// The headers of a block and of some below it, ascending, and the block that they stand on: a
    /// reorg of the newest blocks must not reach below the journal. Fewer where one cannot be had.
    async fn headers_below(&self, head: NumberedBlock) -> (NumberedBlock, Vec<Header>) {
        let (mut base, mut added) = (head, Vec::new());
        while added.len() < BEGIN_BELOW && base.number.0 > 0 {
            let told = self.told_header(base);
            let header = if told.is_some() { told } else { self.fetch_by_hash(base).await };
            let Some(header) = header else { break };
            base = header.parent_id();
            added.push(header);
        }
        added.reverse();
        (base, added)
    }

    /// Publishes what is agreed, until nothing has subscribed for a while.
    async fn follow_heads(&self) {
        let mut walk = HeadWalk::default();
        let mut low_since = None;
        let mut wanted_at = now();
        loop {
            let at = now();
            if self.note_demand() {
                wanted_at = at;
            }
            let rests_in = LINGER.saturating_sub(at.saturating_duration_since(wanted_at));
            if rests_in.is_zero() && self.chain.subscriptions.rest_if_unread() {
                return;
            }
            self.announce(&mut walk, &mut low_since, rests_in).await;
        }
    }

    /// Publishes what is agreed, or makes one step towards that, or waits for news, but not beyond
    /// the end of the linger. `low_since`: since when the head is below the journal.
    async fn announce(
        &self,
        walk: &mut HeadWalk,
        low_since: &mut Option<Instant>,
        rests_in: Duration,
    ) {
        if let Some((head, header)) = self.agreed().await {
            header.into_iter().for_each(|header| walk.supply(header));
            walk.agree(head);
            let base = self.journal.lock().base();
            // Also while the header of the next low head is fetched.
            *low_since = match base.is_some_and(|base| head.number < base.number) {
                true => low_since.or_else(|| Some(now())),
                false => None,
            };
        }
        let step = walk.step(&self.journal.lock());
        let is_doubted = low_since.is_some_and(|since| now().duration_since(since) < LOW_MAX);
        let pause = match step {
            WalkStep::Publish(publication) => return self.publish(publication).await,
            WalkStep::Resync(_) if is_doubted => rests_in.clamp(PAUSE, PAUSE_MAX),
            WalkStep::Resync(block) => return self.resync(block).await,
            WalkStep::Idle | WalkStep::Wait => rests_in.max(PAUSE),
            WalkStep::Fetch(block) => {
                if let Some(header) = self.told_header(block) {
                    return walk.supply(header);
                }
                match self.fetch_with_those_below(block, walk).await {
                    Some(header) => return walk.supply(header),
                    None => {
                        walk.fail(block.hash);
                        pause_after(walk.failures())
                    }
                }
            }
        };
        self.wait(pause).await;
    }

    /// The header of a block. Those of blocks below it, which will be needed, are fetched at the same time
    /// and supplied.
    async fn fetch_with_those_below(
        &self,
        block: NumberedBlock,
        walk: &mut HeadWalk,
    ) -> Option<Header> {
        let below = walk.next_heights(&self.journal.lock(), HEADERS_AT_ONCE - 1);
        let mut below: FuturesUnordered<_> =
            below.into_iter().map(|number| self.fetch_at(number)).collect();
        let began = now();
        let mut needed = std::pin::pin!(self.fetch_by_hash(block));
        let header = loop {
            tokio::select! {
                biased;
                header = &mut needed => break header,
                Some(found) = below.next() => {
                    found.into_iter().for_each(|header| walk.supply(header));
                }
            }
        };
        let until = now() + now().duration_since(began).max(HEADERS_WAIT_MIN);
        while let Ok(Some(found)) = tokio::time::timeout_at(until.into(), below.next()).await {
            found.into_iter().for_each(|header| walk.supply(header));
        }
        header
    }

    async fn publish(&self, publication: Publication) {
        let tip = publication.added.last().map(|header| header.id);
        let counts = &self.chain.subscriptions.counts;
        SubscriptionCounters::add(&counts.added, publication.added.len());
        SubscriptionCounters::add(&counts.removed, publication.removed);
        let published = self.journal.lock().publish(publication);
        match published {
            Ok(()) => self.chain.subscriptions.tell(),
            // The walk went down to this journal, which this loop alone extends.
            Err(error) => {
                tracing::error!(%error, "the journal of blocks cannot be continued; it begins anew");
                if let Some(tip) = tip {
                    self.resync(tip).await;
                }
            }
        }
    }

    async fn resync(&self, block: NumberedBlock) {
        let chain = &self.chain.name.name;
        tracing::warn!(%chain, %block, "subscribers have missed blocks; their connections are closed");
        self.begin_at(block).await;
        SubscriptionCounters::add(&self.chain.subscriptions.counts.resyncs, 1);
        self.chain.subscriptions.tell();
    }

    async fn wait(&self, most: Duration) {
        tokio::select! {
            // In this order, so that a simulated world has no chance but its own.
            biased;
            () = self.chain.subscriptions.news() => {}
            () = tokio::time::sleep(most) => {}
        }
    }

    /// The newest agreed block, and its header if it had to be fetched.
    async fn agreed(&self) -> Option<(NumberedBlock, Option<Header>)> {
        let (head, known) = self.chain.heads.look(|view| {
            let head = view.latest?;
            Some((head, head.hash.or_else(|| view.hash_at(head.number))))
        })?;
        if let Some(hash) = known {
            return Some((NumberedBlock { number: head.number, hash }, None));
        }
        // Heard of from an answer that named only a number.
        let header = self.fetch_at(head.number).await?;
        Some((header.id, Some(header)))
    }

    async fn fetch_at(&self, number: BlockNumber) -> Option<Header> {
        let params = format!(r#"["{}",false]"#, number.hex());
        self.fetch("eth_getBlockByNumber", &params).await
    }

    async fn fetch_by_hash(&self, block: NumberedBlock) -> Option<Header> {
        let params = format!(r#"["{}",false]"#, block.hash);
        let header = self.fetch("eth_getBlockByHash", &params).await;
        header.filter(|header| header.id == block)
    }

    /// What an upstream told of a block, if the hash of the header is that of the block, recomputed.
    fn told_header(&self, block: NumberedBlock) -> Option<Header> {
        let row = MethodTable::standard().row("eth_getHeaderByHash");
        let params = format!(r#"["{}"]"#, block.hash);
        let is_proven = |told: &Bytes| {
            let (params, known) = (Some(params.as_bytes()), KnownFacts::default());
            verify(Level::Full, row, params, told, &known) == AnswerFinding::Sound
        };
        let told = self.chain.pulse.told_headers(&block.hash);
        let header = Header::read(told.iter().find(|told| is_proven(told))?).ok();
        header.filter(|header| header.id == block).inspect(|header| self.learn(header))
    }

    /// A client that is told of the block may read it, and search it for logs, next.
    fn learn(&self, header: &Header) {
        let (id, parent) = (header.id, Some(header.parent_id().hash));
        let seen = Observation { hash: Some(id.hash), parent, ..Observation::of_number(id.number) };
        self.chain.heads.observe_header(&seen, now());
        self.chain.heads.observe_bloom(&seen, header.bloom.as_deref());
    }

    /// Asks for a block as clients do, and counts it for none of them.
    async fn fetch(&self, method: &'static str, params: &str) -> Option<Header> {
        let block = self.call(method, params).await;
        let header = block.and_then(|block| {
            Header::read(&block).inspect_err(|error| tracing::debug!(%error, "not a header")).ok()
        });
        if let Some(header) = &header {
            self.learn(header);
        }
        let counts = &self.chain.subscriptions.counts;
        let counter = if header.is_some() { &counts.headers } else { &counts.failed };
        SubscriptionCounters::add(counter, 1);
        header
    }

    async fn call(&self, method: &'static str, params: &str) -> Option<Bytes> {
        let ProxyWorker { proxy, chains } = &*self.current.load_full();
        proxy.own_call(chains, &self.chain.name.name, method, params.as_bytes()).await
    }

    /// Settles one part of each block, of the oldest ones first, for as long as it is polled. None is skipped: a
    /// block whose part cannot be had is tried again until it is there or taken back.
    async fn follow_part<F: Future<Output = Result<(), PartUnread>>>(
        &self,
        part: &str,
        is_settled: impl Fn(&AddedBlock) -> bool,
        settle: impl Fn(Arc<AddedBlock>, PartFailures) -> F,
    ) {
        let mut publications = self.chain.subscriptions.publications();
        let (mut begun, mut running) = (BTreeSet::new(), FuturesUnordered::new());
        loop {
            publications.mark_seen();
            while running.len() < PARTS_AT_ONCE {
                let lacks = |it: &AddedBlock| !is_settled(it) && !begun.contains(&it.sequence());
                let Some(block) = self.next_without(lacks) else { break };
                begun.insert(block.sequence());
                running.push(self.settle_part(part, block, &is_settled, &settle));
            }
            tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                Some(block) = running.next() => {
                    begun.remove(&block);
                }
                () = publications.changed() => {}
            }
        }
    }

    /// Settles one part of a block, by its event.
    async fn settle_part<F: Future<Output = Result<(), PartUnread>>>(
        &self,
        part: &str,
        block: Arc<AddedBlock>,
        is_settled: &impl Fn(&AddedBlock) -> bool,
        settle: &impl Fn(Arc<AddedBlock>, PartFailures) -> F,
    ) -> u64 {
        let mut publications = self.chain.subscriptions.publications();
        let mut failures = PartFailures::default();
        loop {
            let settled = tokio::select! {
                biased;
                // It was taken back, or came with another part.
                () = until_settled(|| is_settled(&block), &mut publications) => Ok(()),
                settled = settle(Arc::clone(&block), failures) => settled,
            };
            let Err(PartUnread { why, is_foreign }) = settled else { return block.sequence() };
            SubscriptionCounters::add(&self.chain.subscriptions.counts.failed, 1);
            let (chain, block) = (&self.chain.name.name, block.id());
            tracing::debug!(%chain, %block, part, why, "a part of a block cannot be had");
            failures.all += 1;
            failures.foreign += u32::from(is_foreign);
            tokio::time::sleep(pause_after(failures.all)).await;
        }
    }

    /// Finds the logs of each block.
    async fn follow_logs(&self) {
        let settle = |block: Arc<AddedBlock>, failures| async move {
            self.settle_logs(&block, failures).await
        };
        self.follow_part("logs", |block| block.logs().is_some(), settle).await;
    }

    /// The oldest block of the journal that lacks a part.
    fn next_without(&self, lacks: impl Fn(&AddedBlock) -> bool) -> Option<Arc<AddedBlock>> {
        let journal = self.chain.subscriptions.reader.load();
        let mut blocks = journal.iter().filter_map(|(_, event)| event.added());
        blocks.find(|block| lacks(block)).cloned()
    }

    /// Finds the logs of a block, if a subscription may match one.
    async fn settle_logs(
        &self,
        block: &AddedBlock,
        failures: PartFailures,
    ) -> Result<(), PartUnread> {
        let logs = self.logs_of(block, failures).await?;
        let subscriptions = &self.chain.subscriptions;
        // Where there is no subscription to logs nothing waits for them.
        if self.journal.lock().set_logs(block, logs) && subscriptions.has_filters() {
            subscriptions.tell();
        }
        Ok(())
    }

    async fn logs_of(
        &self,
        block: &AddedBlock,
        failures: PartFailures,
    ) -> Result<LogsState, PartUnread> {
        let (subscriptions, id) = (&self.chain.subscriptions, block.id());
        let bloom = block.telling_bloom();
        if !subscriptions.may_match(id.number, bloom) {
            if subscriptions.has_filters() {
                SubscriptionCounters::add(&subscriptions.counts.logs_avoided, 1);
            }
            return Ok(LogsState::Unneeded);
        }
        let removed = self.journal.lock().removed_logs(id);
        if let Some(logs) = removed {
            subscriptions.note_logs(block, &logs);
            return Ok(LogsState::Known(logs));
        }
        // Where receipts are wanted, too, they bring the logs, and this ends while it waits.
        self.receipts_settled(block).await;
        let logs = self.read_logs(id, logs_scope(bloom, failures)).await?;
        SubscriptionCounters::add(&subscriptions.counts.log_blocks, 1);
        subscriptions.note_logs(block, &logs);
        Ok(LogsState::Known(Arc::new(logs)))
    }

    /// All logs of a block by its hash, from the method that costs less, or else from the other.
    async fn read_logs(
        &self,
        id: NumberedBlock,
        scope: LogsScope<'_>,
    ) -> Result<BlockLogs, PartUnread> {
        let credits = |method| self.chain.least_credits(MethodTable::standard().row(method));
        let receipts_first = credits(RECEIPTS) < credits(LOGS);
        let mut unread = PartUnread::unanswered();
        for method in if receipts_first { [RECEIPTS, LOGS] } else { [LOGS, RECEIPTS] } {
            let params = match method {
                LOGS => format!(r#"[{{"blockHash":"{}"}}]"#, id.hash),
                _ => format!(r#"["{}"]"#, id.hash),
            };
            let Some(result) = self.call(method, &params).await else { continue };
            let reply = match method {
                LOGS => LogsReply::Logs(&result),
                _ => LogsReply::Receipts(&result),
            };
            match BlockLogs::read(id, reply, scope, PART_BYTES_MAX) {
                Ok(logs) => return Ok(logs),
                Err(why @ LogsError::Foreign) => unread = why.into(),
                Err(why) => unread = PartUnread::because(format!("{method}: {why}")),
            }
        }
        Err(unread)
    }
}

/// What the logs of a block have to match, after this many answers that did not match its bloom.
fn logs_scope(bloom: Option<&Bloom>, failures: PartFailures) -> LogsScope<'_> {
    match bloom {
        Some(bloom) if failures.foreign >= FOREIGN_MAX => LogsScope::WithSystemLogs(bloom),
        bloom => LogsScope::Whole(bloom),
    }
}

/// Failures after which an answer without a receipt or transaction is believed for a block that used gas and has
/// no logs: a node gives that answer for a block that it does not have yet, but on some chains transactions of
/// another kind use gas.
const EMPTY_AFTER: u32 = 3;

fn may_be_empty(block: &AddedBlock, failures: PartFailures) -> bool {
    failures.all >= EMPTY_AFTER || !block.has_used_gas()
}

/// Resolves when a part of a block is settled by others.
async fn until_settled(is_settled: impl Fn() -> bool, publications: &mut PublicationReader) {
    loop {
        publications.mark_seen();
        if is_settled() {
            return;
        }
        publications.changed().await;
    }
}

fn pause_after(failures: u32) -> Duration {
    (PAUSE * 2_u32.pow(failures.min(10))).min(PAUSE_MAX)
}
