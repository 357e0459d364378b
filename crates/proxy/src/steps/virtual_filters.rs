//! `eth_newFilter`, `eth_newBlockFilter` and what polls them, answered by reads.
//!
//! A filter is kept here and lives in no upstream, so none can take it along when it fails. While no client
//! polls it, it costs nothing; a poll costs nothing while there is no new block. Then a filter for logs costs
//! one search up to the agreed head, unless the blooms of all new blocks say that there are none, and a filter
//! for blocks one call for each new block that the view does not know.
//!
//! A search that finds nothing against the evidence of the blooms ends the poll with an empty list, and the
//! next poll searches the blocks again, for at most a minute. So does a head below all blocks that the filter
//! remembers, as an upstream that lags shows it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use wellhead_chain::{Canonical, View};
use wellhead_dispatch::{Job, Trail, now};
use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock};
use wellhead_jsonrpc::raw;
use wellhead_subscribe::{
    BlockLogs, FilterQuery, FilterRefusal, FilterStamp, FilterStep, LogCriteria, OpenPoll,
    PartState, VirtualFilterId, VirtualFilterKind,
};
use wellhead_upstream::{Slot, VerdictClass};

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::result::CallResult;
use crate::state::filter_store::{FilterAbsence, PollRefusal};
use crate::steps::charge;
use crate::steps::search::hold;

/// The answer to a poll that moves nothing.
const NOTHING_YET: Bytes = Bytes::from_static(b"[]");
/// Ancestors of its first block that a filter remembers: so deep a reorg may replace that block.
const ANCESTORS_MAX: u64 = 8;
/// A poll that another one of the filter overtook begins again; at most this many are begun.
const POLLS_MAX: usize = 3;
/// Logs that contradict the agreed chain are read again, as another upstream may be asked; they are
/// read at most this many times.
const READS_MAX: usize = 3;

/// Makes the reads that a filter is answered by: each is a call of its client, with all that belongs to one.
pub(crate) trait ReadForClient: Sync {
    /// What the read comes to. Its result is all there.
    fn read(&self, method: &'static str, params: String) -> BoxFuture<'_, CallResult>;
}

/// The filter that a call names by an id of ours.
pub(crate) fn named(job: &Job<'_>) -> Option<VirtualFilterId> {
    let id = job.params.and_then(|params| raw::item(params, 0)).and_then(raw::string)?;
    VirtualFilterId::parse(&id)
}

/// Makes the filter that the call asks for.
pub(crate) async fn make(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    client: &dyn ReadForClient,
) -> CallResult {
    let kind = match kind_of(job) {
        Ok(kind) => kind,
        Err(refusal) => return CallResult::refused(refusal),
    };
    let mut reads = FilterReads::new(request, client);
    let tip = match reads.newest().await {
        Ok(tip) => tip,
        Err(call_result) => return call_result,
    };
    let mut blocks: Vec<_> = ancestors(&reads.view, tip).collect();
    blocks.reverse();
    blocks.push(tip);
    let id = request.worker.with_rng(VirtualFilterId::draw);
    let owner = request.ctx.client();
    match request.chain.filters.create(id, kind, &blocks, owner, now()) {
        Some(Ok(())) => {
            request.chain.filters.share_made(id, stamp(request)).await;
            CallResult::whole(format!("\"{id}\"").into(), reads.last, reads.trail)
        }
        Some(Err(why)) => CallResult::refused(Refusal::no_more_filters(match why {
            FilterRefusal::TooManyOfClient => "of this client",
            FilterRefusal::TooMany => "of all clients",
        })),
        None => CallResult::refused(Refusal::no_head_yet()),
    }
}

/// A stamp for a state of a filter.
fn stamp(request: &RequestContext<'_>) -> FilterStamp {
    FilterStamp(request.worker.with_rng(rand::Rng::random))
}

fn absent(absence: FilterAbsence) -> CallResult {
    CallResult::refused(match absence {
        FilterAbsence::Unknown => Refusal::filter_not_found(),
        FilterAbsence::StoreAway => Refusal::filters_away(),
        FilterAbsence::NoRoom => Refusal::no_more_filters("of all clients"),
    })
}

fn kind_of(job: &Job<'_>) -> Result<VirtualFilterKind, Refusal> {
    if job.row.name == "eth_newBlockFilter" {
        return Ok(VirtualFilterKind::Blocks);
    }
    let object = job.params.and_then(|params| raw::item(params, 0));
    let object = object.ok_or_else(Refusal::missing_argument)?;
    let filter = FilterQuery::read(Some(object));
    let filter = filter.map_err(|error| Refusal::invalid_params(&error.message(0)))?;
    Ok(VirtualFilterKind::Logs(Arc::new(filter)))
}

/// The blocks below this one, as far as the view knows them, descending.
fn ancestors(view: &View, block: NumberedBlock) -> impl Iterator<Item = NumberedBlock> + '_ {
    let is_known = view.hash_at(block.number) == Some(block.hash);
    let numbers = (1..=ANCESTORS_MAX).map_while(move |below| block.number.0.checked_sub(below));
    let known = numbers.map_while(|number| {
        let number = BlockNumber(number);
        view.hash_at(number).map(|hash| NumberedBlock { number, hash })
    });
    known.take_while(move |_| is_known)
}

/// Answers a call that names a filter of ours.
pub(crate) async fn answer(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    id: VirtualFilterId,
    client: &dyn ReadForClient,
) -> CallResult {
    let filters = &request.chain.filters;
    match job.row.name {
        "eth_uninstallFilter" => match filters.remove(id).await {
            Ok(is_removed) => CallResult::local(is_removed.to_string()),
            Err(absence) => absent(absence),
        },
        "eth_getFilterLogs" => match criteria(request, id).await {
            Ok(filter) => {
                let params = format!("[{}]", filter.object());
                match charge::check_filter(request, &params) {
                    Ok(()) => client.read("eth_getLogs", params).await,
                    Err(refusal) => CallResult::refused(refusal),
                }
            }
            Err(absence) => absent(absence),
        },
        _ => {
            let mut reads = FilterReads::new(request, client);
            for _ in 0..POLLS_MAX {
                match changes(request, &mut reads, id).await {
                    Ok(Some(answer)) => return CallResult::whole(answer, reads.last, reads.trail),
                    Ok(None) => {}
                    Err(call_result) => return call_result,
                }
            }
            CallResult::refused(Refusal::filter_is_polled())
        }
    }
}

/// The criteria of a filter for logs.
async fn criteria(
    request: &RequestContext<'_>,
    id: VirtualFilterId,
) -> Result<Arc<FilterQuery>, FilterAbsence> {
    let filters = &request.chain.filters;
    let refreshed = filters.refresh(id, now).await;
    match (refreshed, filters.kind(id, now())) {
        // The criteria of a filter stay, so any copy has them.
        (Ok(()) | Err(FilterAbsence::StoreAway), Some(VirtualFilterKind::Logs(filter))) => {
            Ok(filter)
        }
        (Err(absence), _) => Err(absence),
        // geth says so of a filter for blocks, too.
        (Ok(()), Some(VirtualFilterKind::Blocks) | None) => Err(FilterAbsence::Unknown),
    }
}

/// What changed since the filter was last polled; `None` when another poll of it ended first.
async fn changes(
    request: &RequestContext<'_>,
    reads: &mut FilterReads<'_>,
    id: VirtualFilterId,
) -> Result<Option<Bytes>, CallResult> {
    let filters = &request.chain.filters;
    let not_found = || absent(FilterAbsence::Unknown);
    // Before anything is read for it.
    filters.refresh(id, now).await.map_err(absent)?;
    filters.kind(id, now()).ok_or_else(not_found)?;
    reads.are_doubted = false;
    let tip = reads.newest().await?;
    let mut open = filters.begin_poll(id, tip, now()).ok_or_else(not_found)?;
    loop {
        match open.poll.step() {
            FilterStep::IsCanonical(block) => {
                let is_canonical = reads.ask_canonical(block, tip).await?;
                open.poll.supply_canonical(is_canonical);
            }
            FilterStep::ParentOf(block) => {
                open.poll.supply_parent(reads.parent_of(block).await?);
            }
            FilterStep::LogsOf(block) => {
                reads.logs(&mut open, tip, (block.number, block.number)).await?;
            }
            FilterStep::LogsIn(from, to) => reads.logs(&mut open, tip, (from, to)).await?,
            FilterStep::Gone if open.poll.is_set_back() && filters.put_off(&open, now()) => {
                return Ok(Some(NOTHING_YET));
            }
            FilterStep::Gone => {
                filters.drop_gone(id).await;
                return Err(not_found());
            }
            FilterStep::Done => break,
        }
    }
    // Nothing now, and all of it later, is better than a log that is never told.
    if reads.are_doubted && filters.put_off(&open, now()) {
        return Ok(Some(NOTHING_YET));
    }
    let complete = open.complete().ok_or_else(not_found)?;
    let answer = match filters.finish(id, complete, stamp(request), now).await {
        Ok(answer) => answer,
        Err(PollRefusal::Superseded) => return Ok(None),
        Err(PollRefusal::Absent(absence)) => return Err(absent(absence)),
    };
    request.show(tip.number);
    hold(answer.len(), request.answers(), || answer)
        .map(Some)
        .ok_or_else(|| CallResult::refused(Refusal::no_room()))
}

/// The reads of one call.
struct FilterReads<'a> {
    request: &'a RequestContext<'a>,
    client: &'a dyn ReadForClient,
    view: Arc<View>,
    trail: Trail,
    /// The upstream that was read last.
    last: Option<Slot>,
    /// Logs were not found that the bloom of a block speaks for, or by an upstream that is not known to
    /// hold the block; see [`crate::steps::empty_logs`].
    are_doubted: bool,
}

impl<'a> FilterReads<'a> {
    fn new(request: &'a RequestContext<'a>, client: &'a dyn ReadForClient) -> Self {
        let view = request.view.clone().unwrap_or_else(|| request.chain.heads.view());
        Self { request, client, view, trail: Trail::default(), last: None, are_doubted: false }
    }

    /// The result of a read; what else came of it is what the call comes to.
    async fn result(&mut self, method: &'static str, params: String) -> Result<Bytes, CallResult> {
        match self.client.read(method, params).await {
            CallResult::Result { result, rest: None, slot, trail, is_doubtful } => {
                self.trail.append(trail);
                self.last = slot.or(self.last);
                self.are_doubted |= is_doubtful && self.request.warning().is_some();
                Ok(result)
            }
            CallResult::Result { rest: Some(_), .. } => {
                Err(CallResult::refused(Refusal::no_room()))
            }
            failed @ (CallResult::Error { .. } | CallResult::Refused { .. }) => Err(failed),
        }
    }

    /// The member of a block that holds a hash.
    async fn hash_in_block(
        &mut self,
        method: &'static str,
        block: String,
        member: &str,
    ) -> Result<Option<(BlockNumber, BlockHash)>, CallResult> {
        let block = self.result(method, format!("[{block},false]")).await?;
        let number = raw::field(&block, "number").and_then(raw::quantity).map(BlockNumber);
        let hash = raw::field(&block, member).and_then(raw::string);
        Ok(number.zip(hash.and_then(|text| text.parse().ok())))
    }

    /// The newest agreed block; asked for where no upstream told of one lately.
    async fn newest(&mut self) -> Result<NumberedBlock, CallResult> {
        self.view = self.request.view.clone().unwrap_or_else(|| self.request.chain.heads.view());
        let view = &self.view;
        let known = view.latest.filter(|_| view.is_fresh(now())).and_then(|head| {
            let hash = head.hash.or_else(|| view.hash_at(head.number))?;
            Some(NumberedBlock { number: head.number, hash })
        });
        if let Some(known) = known {
            return Ok(known);
        }
        let found = self.hash_in_block("eth_getBlockByNumber", "\"latest\"".to_owned(), "hash");
        let Some((number, hash)) = found.await? else {
            return Err(CallResult::refused(Refusal::no_head_yet()));
        };
        if self.request.view.is_none() {
            // The answer may have told it on which blocks this one stands.
            self.view = self.request.chain.heads.view();
        }
        Ok(NumberedBlock { number, hash })
    }

    /// The view, if it knows that `tip` is on the agreed chain. Otherwise what it knows of other
    /// blocks may be of a branch that `tip` is not on: it was read because the view is old.
    fn view_of(&self, tip: NumberedBlock) -> Option<&View> {
        Some(&*self.view).filter(|view| view.hash_at(tip.number) == Some(tip.hash))
    }

    /// Whether a block is on the chain of `tip`. One above it is, unless it is known to be replaced.
    async fn ask_canonical(
        &mut self,
        block: NumberedBlock,
        tip: NumberedBlock,
    ) -> Result<bool, CallResult> {
        let view = self.view_of(tip);
        // A block that a lower head took back may be there again; only another one in its place is not.
        let is_replaced = view.is_some_and(|view| view.hash_at(block.number).is_some());
        match view.map(|view| view.canonical(block.number, &block.hash)) {
            Some(Canonical::Yes) => return Ok(true),
            Some(Canonical::No) if is_replaced || block.number > tip.number => return Ok(false),
            Some(Canonical::Unknown) | None if block.number > tip.number => return Ok(true),
            Some(Canonical::No | Canonical::Unknown) | None => {}
        }
        if block.number == tip.number {
            return Ok(block.hash == tip.hash);
        }
        let number = format!("\"{}\"", block.number.hex());
        let found = self.hash_in_block("eth_getBlockByNumber", number, "hash").await?;
        let (_, hash) = found.ok_or_else(|| self.unusable(VerdictClass::MissingData))?;
        Ok(hash == block.hash)
    }

    async fn parent_of(&mut self, block: NumberedBlock) -> Result<BlockHash, CallResult> {
        let below = BlockNumber(block.number.0.saturating_sub(1));
        let is_known = self.view.hash_at(block.number) == Some(block.hash);
        if let Some(parent) = self.view.hash_at(below).filter(|_| is_known) {
            return Ok(parent);
        }
        let hash = format!("\"{}\"", block.hash);
        let found = self.hash_in_block("eth_getBlockByHash", hash, "parentHash").await?;
        let found = found.filter(|(number, _)| *number == block.number);
        found.map(|(_, parent)| parent).ok_or_else(|| self.unusable(VerdictClass::MissingData))
    }

    /// No upstream gives what the filter needs, as it contradicts the agreed chain or is missing.
    fn unusable(&mut self, class: VerdictClass) -> CallResult {
        let chain = self.request.chain;
        let all = chain.roster.upstreams().iter().map(|upstream| upstream.slot()).collect();
        CallResult::exhausted(chain, class, std::mem::take(&mut self.trail), all)
    }

    /// Supplies the logs that a poll needs.
    async fn logs(
        &mut self,
        open: &mut OpenPoll,
        tip: NumberedBlock,
        (from, to): (BlockNumber, BlockNumber),
    ) -> Result<(), CallResult> {
        let view = self.view_of(tip).map(|_| Arc::clone(&self.view));
        let hash_at = |number| view.as_ref().and_then(|view| view.hash_at(number));
        let mut list = Bytes::from_static(b"[]");
        let known = view.as_ref().and_then(|_| {
            let hash = |number| if number == tip.number { Some(tip.hash) } else { hash_at(number) };
            self.known_logs(open, from..=to, hash)
        });
        if let Some(known) = known {
            open.poll.supply_known(known);
            return Ok(());
        }
        let are_excluded = view.is_some() && self.are_excluded(open, from, to);
        for _ in 0..READS_MAX {
            if !are_excluded && let Some(params) = open.poll.search() {
                list = self.result("eth_getLogs", params).await?;
            }
            match open.poll.supply_logs(&list, hash_at) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    let chain = &self.request.chain.name.name;
                    tracing::debug!(%chain, %error, "the logs for a filter contradict the agreed chain");
                }
            }
        }
        Err(self.unusable(VerdictClass::Fault))
    }

    /// The logs of these blocks, where subscribers were told those of each, or the blooms of the others say
    /// that they have none for the filter.
    fn known_logs(
        &self,
        open: &OpenPoll,
        blocks: RangeInclusive<BlockNumber>,
        hash_at: impl Fn(BlockNumber) -> Option<BlockHash>,
    ) -> Option<Vec<Arc<BlockLogs>>> {
        let bits = open.poll.criteria().map(LogCriteria::bits)?;
        let journal = self.request.chain.subscriptions.reader.load();
        let mut known = BTreeMap::new();
        for block in journal.iter().filter_map(|(_, event)| event.added()) {
            let id = block.id();
            if !blocks.contains(&id.number) || hash_at(id.number) != Some(id.hash) {
                continue;
            }
            let logs = block.logs().and_then(PartState::known).filter(|logs| logs.is_whole());
            let bloom = block.telling_bloom();
            let is_excluded = bloom.is_some() && !bits.may_match(id.number, bloom);
            let none = || is_excluded.then(|| Arc::new(BlockLogs::none(id)));
            if let Some(logs) = logs.map(Arc::clone).or_else(none) {
                known.insert(id.number, logs);
            }
        }
        let count = blocks.end().0.checked_sub(blocks.start().0)? + 1;
        (known.len() as u64 == count).then(|| known.into_values().collect())
    }

    /// Whether the blooms of all these blocks say that they have no log for the filter. Some chains leave
    /// blooms empty; those say nothing.
    fn are_excluded(&self, open: &OpenPoll, from: BlockNumber, to: BlockNumber) -> bool {
        let Some(bits) = open.poll.criteria().map(LogCriteria::bits) else { return false };
        let mut excluded = 0_u64;
        self.request.chain.heads.blooms(&self.view, from..=to, |number, bloom| {
            let is_excluded = !bloom.is_empty() && !bits.may_match(number, Some(bloom));
            excluded += u64::from(is_excluded);
        });
        excluded == to.0 - from.0 + 1
    }
}
