//! A search in parts under way: which parts are asked for now, and what came of them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use wellhead_dispatch::{
    Allowance, Failure, Job, Progress, Served, TraceSeed, Trail, WorkerUpstreams, now, run,
};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef, FilterShape, MethodRow, MethodTable};
use wellhead_route::PlanRequest;
use wellhead_transport::{FREE_BYTES, MemoryBudget, Shortage};
use wellhead_upstream::{Payload, Slot, UpstreamSet, VerdictClass};

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::request::pin::{BlockAsk, MethodCall};
use crate::state::chain::ServedChain;
use crate::state::parts::{Cut, PartBounds, Parts, Stuck, Tile};
use crate::steps::cached::{self, CacheWrite};
use crate::steps::empty_logs::{self, SearchOutcome};
use crate::steps::observe::observe_reach;
use crate::steps::planning::{Planned, make_plan};
use crate::steps::search::division::{Division, addresses_hint, hint, refusal};
use crate::steps::tiers;

/// Makes an answer of `bytes` bytes within the memory budget; `None` if there is no room for it.
pub(crate) fn hold(
    bytes: usize,
    answers: &Arc<MemoryBudget>,
    make: impl FnOnce() -> Bytes,
) -> Option<Bytes> {
    if bytes <= FREE_BYTES {
        return Some(make());
    }
    let Some(reservation) = answers.try_hold(bytes) else {
        answers.note(Shortage::Refused);
        return None;
    };
    Some(reservation.around(make()))
}

/// Why a search cannot go on.
#[derive(Debug)]
pub(crate) enum Ended {
    Error(Bytes, Slot),
    Failed(Failure),
    /// A filter that has no two addresses is refused for its size.
    Refused(Refusal),
    Stuck(Stuck),
}

/// What every part is asked with. Owned, as a search that flows outlives its request.
struct Errand {
    chain: Arc<ServedChain>,
    worker: Arc<WorkerUpstreams>,
    row: &'static MethodRow,
    method: Box<str>,
    params: Option<Box<[u8]>>,
    /// What is searched, if that is one block by its hash.
    hash: Option<BlockRef>,
    /// The block that an upstream has to hold for that.
    needed: Option<BlockNumber>,
    filter: FilterShape,
    /// Those of the filter, each once; none where it cannot be divided by them.
    addresses: Vec<Box<str>>,
    eligible: UpstreamSet,
    received_at: Instant,
    /// By what the client selects upstreams.
    selected: Box<str>,
    /// With the calls that all of it may make.
    progress: Progress,
    /// Where its answers are counted, in a batch.
    room: Option<Arc<MemoryBudget>>,
    /// The trace of its request, if that may have one.
    trace: Option<TraceSeed>,
}

impl Errand {
    fn answers(&self) -> &Arc<MemoryBudget> {
        self.room.as_ref().unwrap_or(self.worker.answers())
    }

    fn allowance(&self) -> &Allowance {
        self.progress.allowance()
    }

    /// The params of a part: its blocks and its addresses in the place of those of the whole.
    fn params_of(&self, tile: &Tile) -> Option<Cow<'_, [u8]>> {
        let mut params = Cow::Borrowed(self.params.as_deref()?);
        let (first, last) = (BlockNumber(tile.from), BlockNumber(tile.to));
        // What could be read as a range before can be written as one.
        if self.hash.is_none()
            && let Some(narrowed) = self.row.with_range(&params, first, last)
        {
            params = narrowed.into();
        }
        let group = self.group(tile);
        if group.len() < self.addresses.len()
            && let Some(grouped) = self.row.with_addresses(&params, group)
        {
            params = grouped.into();
        }
        Some(params)
    }

    /// The addresses of a part; none where the filter cannot be divided by them.
    fn group(&self, tile: &Tile) -> &[Box<str>] {
        &self.addresses[tile.addresses.clone()]
    }

    /// The blocks that a part searches.
    fn block_of(&self, tile: &Tile) -> BlockRef {
        let (first, last) = (BlockNumber(tile.from), BlockNumber(tile.to));
        let range =
            BlockRef::Range { from: BlockPoint::Number(first), to: BlockPoint::Number(last) };
        self.hash.unwrap_or(range)
    }

    /// What a part asks of upstreams.
    fn request_of(&self, tile: &Tile) -> PlanRequest<'static> {
        // The digest is that of the whole: where its results are too many, so are those of a group.
        let addresses = match self.group(tile).len() {
            0 => self.filter.addresses,
            len => len as u64,
        };
        let filter = FilterShape { addresses, ..self.filter };
        let (needed, oldest, span) = match self.hash {
            Some(_) => (self.needed, None, 0),
            None => {
                (Some(BlockNumber(tile.to)), Some(BlockNumber(tile.from)), tile.to - tile.from + 1)
            }
        };
        PlanRequest { needed, oldest, span, filter, ..PlanRequest::of(self.row, self.eligible) }
    }
}

/// What came of a part.
enum Got {
    /// It was kept.
    Kept(Bytes),
    Asked(SearchOutcome),
}

/// A search in parts under way.
pub(crate) struct Search {
    errand: Arc<Errand>,
    pub(crate) parts: Parts,
    running: FuturesUnordered<BoxFuture<'static, (u64, Got)>>,
    /// The upstream that gave a part last.
    pub(crate) last: Option<Slot>,
    /// Whether a part was empty and doubtful, and no other upstream could be heard.
    pub(crate) is_doubtful: bool,
    /// And the evidence was strong.
    pub(crate) warns: bool,
    /// What was tried so far.
    pub(crate) trail: Trail,
    /// How long one part may take; until it flows all have the deadline of the call.
    pub(crate) time: Duration,
    deadline: Option<Instant>,
    /// Those that may be asked for at a time.
    parallel: usize,
    /// Bytes that may wait behind the first part that is not there.
    behind_max: usize,
    /// Parts under way that have the deadline of a call that is answered by now.
    hurried: usize,
}

impl Search {
    /// A search that has asked for nothing yet.
    pub(crate) fn new(
        request: &RequestContext<'_>,
        job: &Job<'_>,
        BlockAsk { ask, block }: BlockAsk<'_>,
        Division { range, size }: Division,
        allowance: Allowance,
    ) -> Result<Self, Stuck> {
        let chain = request.chain;
        let cut = if chain.cache().is_some() { Cut::AtMultiples } else { Cut::Anywhere };
        let (calls_max, bytes_max) = (allowance.left() as usize, chain.bounds.answer_bytes_max);
        let addresses = job.row.filter_addresses(job.params).unwrap_or_default();
        let whole = Tile { from: range.from, to: range.to, addresses: 0..addresses.len() };
        let errand = Errand {
            chain: Arc::clone(chain),
            worker: Arc::clone(request.worker),
            // The same row, for as long as the search takes.
            row: &MethodTable::standard().rows()[job.row.index.get()],
            method: job.method.into(),
            params: job.params.map(Into::into),
            hash: range.is_hash.then_some(*block),
            needed: ask.needed,
            filter: ask.filter,
            addresses: addresses.into_iter().map(Into::into).collect(),
            eligible: ask.eligible,
            received_at: job.received_at,
            selected: request.selected().into(),
            progress: Progress::new(allowance).from_client(request.progress.client()),
            room: request.room.clone(),
            trace: job.trace.cloned(),
        };
        Ok(Self {
            errand: Arc::new(errand),
            parts: Parts::new(whole, size, PartBounds { calls_max, bytes_max, cut })?,
            running: FuturesUnordered::new(),
            last: None,
            is_doubtful: false,
            warns: false,
            trail: Trail::default(),
            time: job.deadline.saturating_duration_since(job.received_at),
            deadline: Some(job.deadline),
            parallel: chain.search.parallel.max(1),
            behind_max: usize::MAX,
            hurried: 0,
        })
    }

    /// From now on each part has as long as the whole had, and little waits for the first
    /// that is not there.
    pub(crate) fn flow(&mut self) {
        self.deadline = None;
        self.behind_max = self.errand.chain.bounds.whole_bytes_max;
        self.hurried = self.running.len();
    }

    /// What it may still cost.
    pub(crate) fn allowance(&self) -> &Allowance {
        self.errand.allowance()
    }

    pub(crate) fn chain(&self) -> &ServedChain {
        &self.errand.chain
    }

    /// Asks for what may be asked for now.
    pub(crate) fn launch(&mut self) -> Result<(), Ended> {
        let allowance = self.errand.progress.allowance();
        while self.running.len() < self.parallel {
            self.parts.afford(u64::from(allowance.left()));
            let next = self.parts.next(self.behind_max).map_err(Ended::Stuck)?;
            let Some((number, tile)) = next else { break };
            // Whatever else is asked for, this part can be.
            allowance.take(1);
            let deadline = self.deadline.unwrap_or_else(|| now() + self.time);
            let part = part(Arc::clone(&self.errand), (number, tile), deadline);
            self.running.push(Box::pin(part));
        }
        allowance.keep(u32::try_from(self.parts.needed()).unwrap_or(u32::MAX));
        Ok(())
    }

    /// Whether something is under way.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.running.is_empty()
    }

    /// Asks for more, and takes in the next part that is settled; false when there is nothing
    /// to wait for. Cancel-safe.
    pub(crate) async fn step(&mut self) -> Result<bool, Ended> {
        self.launch()?;
        let Some((number, got)) = self.running.next().await else { return Ok(false) };
        match got {
            Got::Kept(list) => self.found(number, list).map_err(Ended::Stuck)?,
            Got::Asked(SearchOutcome { outcome, is_doubtful, warns }) => {
                self.is_doubtful |= is_doubtful;
                self.warns |= warns;
                self.trail.append(outcome.trail);
                self.take_in(number, outcome.result)?;
            }
        }
        Ok(true)
    }

    fn found(&mut self, number: u64, list: Bytes) -> Result<(), Stuck> {
        let answers = self.errand.answers();
        self.parts.found(number, list, |list| hold(list.len(), answers, || list.into()))
    }

    fn take_in(&mut self, number: u64, result: Result<Served, Failure>) -> Result<(), Ended> {
        self.parts.afford(u64::from(self.errand.allowance().left()));
        let settled = match (refusal(&result), result) {
            (Some((VerdictClass::FilterTooLarge, learnt)), result) => {
                match self.parts.filter_too_large(number, addresses_hint(learnt)) {
                    Err(Stuck::OneAddress) if let Ok(served) = &result => {
                        let Errand { chain, filter, .. } = &*self.errand;
                        let refusal = Refusal::filter_too_large(chain, served, *filter);
                        return Err(Ended::Refused(refusal));
                    }
                    settled => settled,
                }
            }
            (Some((_, learnt)), _) => {
                let asked = self.parts.blocks(number).unwrap_or(1);
                let (shorter, at_most) = hint(learnt, asked);
                self.parts.too_large(number, shorter, at_most)
            }
            (None, Ok(served)) => match (served.class, served.payload) {
                (_, Payload::Result(list)) => {
                    self.last = Some(served.slot);
                    self.found(number, list)
                }
                (_, Payload::Error(error)) => return Err(Ended::Error(error, served.slot)),
                (class, Payload::None { .. }) => {
                    return Err(Ended::Failed(Failure::Exhausted { class, retry_after: None }));
                }
            },
            (None, Err(Failure::Deadline)) if self.hurried > 0 => {
                self.hurried -= 1;
                self.parts.again(number);
                Ok(())
            }
            // What flows gives room back as it goes: one by one they may fit.
            (None, Err(Failure::NoRoom)) if self.deadline.is_none() && self.parallel > 1 => {
                (self.parallel, self.behind_max) = (1, 0);
                self.parts.again(number);
                Ok(())
            }
            (None, Err(Failure::CallsSpent { .. }))
                if !self.errand.allowance().is_bound_by_whole() =>
            {
                Err(self.parts.too_many_calls())
            }
            (None, Err(failure)) => return Err(Ended::Failed(failure)),
        };
        settled.map_err(Ended::Stuck)
    }
}

/// Asks for one part, unless it was kept.
async fn part(errand: Arc<Errand>, (number, tile): (u64, Tile), deadline: Instant) -> (u64, Got) {
    let Errand { chain, worker, row, .. } = &*errand;
    let (row, block, params) = (*row, errand.block_of(&tile), errand.params_of(&tile));
    let params = params.as_deref();
    let ticket =
        cached::part(chain, MethodCall { row, params }, &block, errand.selected.as_bytes());
    if let Some(ticket) = &ticket
        && let Some(list) = tiers::part(chain, ticket).await
    {
        errand.allowance().give_back(1);
        return (number, Got::Kept(list));
    }
    let ask = errand.request_of(&tile);
    let subject = BlockAsk { ask: &ask, block: &block };
    let Planned { plan, ballot, .. } = make_plan(chain, worker, subject, deadline, now()).await;
    let job = Job {
        params,
        ballot,
        // Its own, as it may go on when its request has ended.
        progress: Some(&errand.progress),
        is_first_paid: true,
        room: errand.room.as_ref(),
        trace: errand.trace.as_ref(),
        ..Job::new(row, &errand.method, errand.received_at, deadline)
    };
    let outcome = run(&job, &plan, &chain.roster, worker, &chain.bounds).await;
    if outcome.trail.exchanges() == 0 {
        errand.allowance().give_back(1);
    }
    observe_reach(chain, &ask, &outcome.trail);
    let settled = empty_logs::settled(chain, worker, &job, subject, outcome).await;
    if let Some(ticket) = ticket
        && let Ok(Served { class: VerdictClass::Answer, payload: Payload::Result(list), .. }) =
            &settled.outcome.result
        && !settled.is_doubtful
    {
        let assurance = chain.assurance(row, &settled.outcome.trail);
        let write = CacheWrite { call: MethodCall { row, params }, at: now() };
        ticket.keep(chain, write, cached::ReplyContent::Result(list), assurance);
    }
    (number, Got::Asked(settled))
}
