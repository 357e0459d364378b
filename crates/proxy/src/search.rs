//! A search over many blocks or for many addresses, such as `eth_getLogs`, made in parts that
//! upstreams accept.
//!
//! A search is tried whole wherever some upstream is not known to accept less. Where all
//! accept less, or one refuses it for its size or its number of addresses, its parts are asked
//! for side by side, each like a call of its own with its own plan and attempts, and put together
//! in their order. How large parts are and when that is hopeless: [`crate::parts`]. All parts hold together
//! at most what one answer may hold, and the whole has the deadline of the call, unless it
//! is large and flows: [`crate::stream`]. Where answers are kept, so are parts that are final.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use wellhead_chain::View;
use wellhead_dispatch::{Allowance, Failure, Job, Lane, Progress, Served, Trail, now};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef, Data, FilterShape, MethodRow, MethodTable};
use wellhead_jsonrpc::raw;
use wellhead_route::{Ask, Fitness, assess};
use wellhead_transport::{Ceiling, FREE_BYTES, Rest, Shortage};
use wellhead_upstream::{
    CallExtent, Learnt, Payload, SearchSize, SizeLimit, Slot, Upstream, UpstreamSet, VerdictClass,
};

use crate::answer::Refusal;
use crate::call::{Planned, Said, failed, make_plan};
use crate::chain::ServedChain;
use crate::doubt::{self, Settled};
use crate::hopeless::Subject;
use crate::journey::Trip;
use crate::metrics::CallOutcome;
use crate::parts::{Cut, PartBounds, PartSize, Parts, Stuck, Tile};
use crate::{kept, stream, tiers};

/// How far searches may be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchBounds {
    /// Calls that one search may be made of, with those that were refused, retries and second
    /// opinions; with one it is never divided.
    pub calls_max: usize,
    /// Those under way at a time, at least one.
    pub parallel: usize,
}

impl Default for SearchBounds {
    fn default() -> Self {
        Self { calls_max: 100, parallel: 4 }
    }
}

/// A refusal for the results that suggests a length is believed for the blocks around: a search
/// that would need more calls even with parts this many times as long is refused at once.
const DENSE_GROWTH_MAX: u64 = 8;

/// The blocks that a search goes over, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    from: u64,
    to: u64,
    /// It is one block that the call names by its hash.
    is_hash: bool,
}

impl Range {
    /// Those of a call that may be divided, by blocks or by addresses.
    pub(crate) fn of(
        chain: &ServedChain,
        job: &Job<'_>,
        block: &BlockRef,
        filter: FilterShape,
    ) -> Option<Self> {
        let range = match block {
            BlockRef::Range { from: BlockPoint::Number(from), to: BlockPoint::Number(to) }
                if from <= to =>
            {
                Self { from: from.0, to: to.0, is_hash: false }
            }
            BlockRef::Hash(_) => Self { from: 0, to: 0, is_hash: true },
            BlockRef::Range { .. }
            | BlockRef::None
            | BlockRef::Number(_)
            | BlockRef::Tag(_)
            | BlockRef::Unreadable => return None,
        };
        let is_large = range.len() > 1 || filter.addresses > 1;
        let may_divide = is_large && chain.search.calls_max > 1 && job.row.is_divisible(job.params);
        may_divide.then_some(range)
    }

    /// How many there are.
    pub(crate) fn len(self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }

    /// Without what is above every head: there is nothing to be found yet.
    fn up_to_head(self, view: &View) -> Self {
        if self.is_hash {
            return self;
        }
        let head = view.best.map_or(self.to, |best| best.number.0);
        Self { to: self.to.min(head).max(self.from), ..self }
    }
}

/// How a search is divided at first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Division {
    range: Range,
    size: PartSize,
}

/// How to divide a search when no upstream that could serve `ask` is known to accept all of it;
/// by what the one accepts that needs the fewest calls.
pub(crate) fn widest(
    chain: &ServedChain,
    job: &Job<'_>,
    ask: &Ask<'_>,
    range: Range,
    now: Instant,
) -> Option<Division> {
    let data = Data::of(ask.row.class)?;
    let addresses = addresses(job);
    let whole = SizeLimit { at_once: range.len(), at_most: range.len() };
    let accepted = |upstream: &Arc<Upstream>| {
        let limits = upstream.search_limits(data, ask.filter, now);
        let blocks = limits.blocks.map_or(whole, |blocks| SizeLimit {
            at_once: blocks.at_once.min(range.len()),
            at_most: blocks.at_most.min(range.len()),
        });
        let most = limits.addresses.map_or(u64::MAX, |limit| limit.at_once);
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(addresses.max(1));
        let is_divided = range.len() > blocks.at_once || addresses > most;
        is_divided.then_some(PartSize { blocks, addresses: most })
    };
    let calls = |size: &PartSize| {
        let groups = addresses.div_ceil(size.addresses.max(1)).max(1) as u64;
        range.len().div_ceil(size.blocks.at_once.max(1)).saturating_mul(groups)
    };
    chain.heads.look(|view| {
        let each = chain.roster.upstreams().iter();
        let sizes = each.filter_map(|upstream| match assess(ask, upstream, view, now) {
            Fitness::TooWide { .. } | Fitness::TooManyAddresses { .. } => accepted(upstream),
            Fitness::Fit
            | Fitness::Held { .. }
            | Fitness::Behind { .. }
            | Fitness::Pruned { .. }
            | Fitness::Astray
            | Fitness::Lagging { .. }
            | Fitness::ClassRests
            | Fitness::Unwell(_)
            | Fitness::MethodUnknown
            | Fitness::MethodLacking
            | Fitness::NotEligible => None,
        });
        sizes.min_by_key(calls).map(|size| Division { range, size })
    })
}

/// How many addresses a search may be divided by; zero where it cannot.
fn addresses(job: &Job<'_>) -> usize {
    job.row.filter_addresses(job.params).map_or(0, |addresses| addresses.len())
}

/// The number of blocks that would be answered, by a refusal's own words, and the number above
/// which none would.
fn hint(learnt: Option<Learnt>, asked: u64) -> (Option<u64>, Option<u64>) {
    match learnt {
        Some(Learnt::RangeHint { from, to }) => (Some((to - from).saturating_add(1)), None),
        Some(Learnt::RangeMax { blocks }) => (Some(blocks), Some(blocks)),
        Some(Learnt::RangeRefused) => (None, Some(asked - 1)),
        Some(
            Learnt::AddressesMax { .. }
            | Learnt::PrunedBelow { .. }
            | Learnt::NoHistory
            | Learnt::MethodOffered
            | Learnt::MaybeMined,
        )
        | None => (None, None),
    }
}

/// The number of addresses that would be taken, by a refusal's own words.
fn addresses_hint(learnt: Option<Learnt>) -> Option<u64> {
    match learnt {
        Some(Learnt::AddressesMax { addresses }) => Some(addresses),
        Some(
            Learnt::RangeHint { .. }
            | Learnt::RangeMax { .. }
            | Learnt::RangeRefused
            | Learnt::PrunedBelow { .. }
            | Learnt::NoHistory
            | Learnt::MethodOffered
            | Learnt::MaybeMined,
        )
        | None => None,
    }
}

/// The class of a refusal for size, and what was learnt of it.
fn refusal(result: &Result<Served, Failure>) -> Option<(VerdictClass, Option<Learnt>)> {
    let (class, learnt) = match result {
        Ok(served) => (served.class, served.learnt),
        Err(Failure::Exhausted { class, .. }) => (*class, None),
        Err(_) => return None,
    };
    let is_size = matches!(class, VerdictClass::RangeTooLarge | VerdictClass::FilterTooLarge);
    is_size.then_some((class, learnt))
}

/// How to divide a search that was refused for its size; `None` where it was not, and where it
/// cannot be divided.
pub(crate) fn after_refusal(
    job: &Job<'_>,
    result: &Result<Served, Failure>,
    range: Range,
) -> Option<Division> {
    let (class, learnt) = refusal(result)?;
    let len = range.len();
    let whole = SizeLimit { at_once: len, at_most: len };
    let size = if class == VerdictClass::FilterTooLarge {
        let addresses = addresses(job);
        let hint = addresses_hint(learnt).and_then(|hint| usize::try_from(hint).ok());
        let fewer = hint.filter(|hint| (1..addresses).contains(hint)).unwrap_or(addresses / 2);
        PartSize { blocks: whole, addresses: (fewer > 0).then_some(fewer)? }
    } else if len > 1 {
        let (shorter, at_most) = hint(learnt, len);
        let shorter = shorter.filter(|shorter| (1..len).contains(shorter));
        let at_most = at_most.or(shorter.map(|it| it.saturating_mul(DENSE_GROWTH_MAX)));
        let at_once = shorter.unwrap_or(len / 2);
        let at_most = at_most.unwrap_or(len).clamp(at_once, len);
        PartSize { blocks: SizeLimit { at_once, at_most }, addresses: usize::MAX }
    } else {
        let addresses = addresses(job);
        PartSize { blocks: whole, addresses: (addresses > 1).then(|| addresses.div_ceil(2))? }
    };
    Some(Division { range, size })
}

/// What the client is told when an upstream refuses a filter that cannot be divided by its
/// addresses; `None` where that is not what happened.
pub(crate) fn filter_refused(
    chain: &ServedChain,
    ask: &Ask<'_>,
    result: &Result<Served, Failure>,
) -> Option<Refusal> {
    let (VerdictClass::FilterTooLarge, _) = refusal(result)? else { return None };
    let Ok(served) = result else { return None };
    Some(Refusal::filter_too_large(chain, served, ask.filter))
}

/// A list in one piece, counted below the ceiling on answers; `None` when there is no room for it.
/// What the parts hold is given back when the caller drops them.
pub(crate) fn whole(pieces: &[Bytes], answers: &Arc<Ceiling>) -> Option<Bytes> {
    let bytes = pieces.iter().map(Bytes::len).sum();
    if bytes <= FREE_BYTES {
        return Some(pieces.concat().into());
    }
    let Some(share) = answers.try_hold(bytes) else {
        answers.note(Shortage::Refused);
        return None;
    };
    Some(share.around(pieces.concat().into()))
}

/// What was put together of several lists, counted below the ceiling as well.
fn hold(list: Vec<u8>, answers: &Arc<Ceiling>) -> Option<Bytes> {
    if list.len() <= FREE_BYTES {
        return Some(list.into());
    }
    let Some(share) = answers.try_hold(list.len()) else {
        answers.note(Shortage::Refused);
        return None;
    };
    Some(share.around(list.into()))
}

/// A search in parts, and what it comes to.
pub(crate) async fn in_parts(
    trip: &Trip<'_>,
    job: &Job<'_>,
    subject: (&Ask<'_>, &BlockRef),
    division: Division,
    mut trail: Trail,
) -> Said {
    match search(trip, job, subject, division, &mut trail).await {
        Searched::Found { list, slot, is_doubtful, warns } => {
            if warns {
                trip.warn_of_logs();
            }
            Said::Result { result: list, rest: None, slot, trail, is_doubtful }
        }
        Searched::Flows(rest, slot) => {
            let (result, rest) = (Bytes::new(), Some(rest));
            Said::Result { result, rest, slot, trail, is_doubtful: false }
        }
        Searched::Error(error, slot) => Said::Error { error, slot, trail },
        Searched::Failed(failure) => failed(trip.chain, failure, trail, subject.0.eligible),
        Searched::Refused(refusal) => {
            Said::Refused { refusal, outcome: CallOutcome::Refused, trail }
        }
    }
}

/// How a search in parts ended.
enum Searched {
    /// The list; this upstream gave the last part, if one was asked.
    Found {
        list: Bytes,
        slot: Option<Slot>,
        /// See [`doubt::Settled`]; of any part.
        is_doubtful: bool,
        warns: bool,
    },
    /// The list as it is found, and the end of its envelope.
    Flows(Box<dyn Rest>, Option<Slot>),
    /// An upstream's error about the search itself.
    Error(Bytes, Slot),
    /// A part could not be had.
    Failed(Failure),
    /// It cannot be made in parts.
    Refused(Refusal),
}

/// Searches in parts that are divided like this at first. Adds what was tried to `trail`.
async fn search(
    trip: &Trip<'_>,
    job: &Job<'_>,
    (ask, block): (&Ask<'_>, &BlockRef),
    Division { range, size }: Division,
    trail: &mut Trail,
) -> Searched {
    let range = trip.chain.heads.look(|view| range.up_to_head(view));
    let calls_max = u32::try_from(trip.chain.search.calls_max).unwrap_or(u32::MAX);
    let made = u32::try_from(trail.exchanges()).unwrap_or(u32::MAX);
    let allowance = trip.allowance().part(calls_max, made);
    let what = Subject {
        digest: if range.is_hash { 0 } else { ask.filter.digest },
        from: range.from,
        to: range.to,
        eligible: ask.eligible,
    };
    let stuck = |why, is_of_request| match (why, is_of_request) {
        (Stuck::TooManyCalls { .. }, true) => {
            Searched::Failed(Failure::CallsSpent { max: trip.allowance().max() })
        }
        (why, _) => Searched::Refused(Refusal::too_wide(range.len(), why, trip.chain.search)),
    };
    if let Some(why) = trip.chain.hopeless.find(&what, now()) {
        return stuck(why, false);
    }
    let is_of_request = allowance.is_bound_by_whole();
    let mut search = match Search::new(trip, job, (ask, block), range, size, allowance) {
        Ok(search) => search,
        Err(why) => return stuck(why, is_of_request),
    };
    let whole_max = trip.chain.bounds.whole_bytes_max;
    let ended = loop {
        let is_long = search.parts.held() > whole_max && search.parts.is_begun();
        if let Some(client) = job.flows_to.filter(|_| is_long)
            // Where no place is left it is held, as long as it may be.
            && let Some(place) = trip.lane.search_flows().enter(client, now())
        {
            trail.append(std::mem::take(&mut search.trail));
            let last = search.last;
            return Searched::Flows(stream::flowing(search, place), last);
        }
        match search.step().await {
            Ok(true) => {}
            Ok(false) => break None,
            Err(ended) => break Some(ended),
        }
    };
    trail.append(std::mem::take(&mut search.trail));
    match ended {
        None => {
            debug_assert!(search.parts.is_complete(), "all parts were asked for and settled");
            match whole(&search.parts.take(), trip.answers()) {
                Some(list) => {
                    let Search { last: slot, is_doubtful, warns, .. } = search;
                    Searched::Found { list, slot, is_doubtful, warns }
                }
                None => Searched::Failed(Failure::NoRoom),
            }
        }
        Some(Ended::Error(error, slot)) => Searched::Error(error, slot),
        Some(Ended::Failed(failure)) => Searched::Failed(failure),
        Some(Ended::Filter(refusal)) => Searched::Refused(refusal),
        Some(Ended::Stuck(Stuck::NoRoom)) => Searched::Failed(Failure::NoRoom),
        Some(Ended::Stuck(why)) => {
            let is_of_request = search.errand.allowance().is_bound_by_whole();
            if matches!(why, Stuck::TooManyCalls { .. })
                && search.parts.was_refused()
                && !is_of_request
            {
                trip.chain.hopeless.note(what, why, now());
            }
            stuck(why, is_of_request)
        }
    }
}

/// Why a search cannot go on.
#[derive(Debug)]
pub(crate) enum Ended {
    Error(Bytes, Slot),
    Failed(Failure),
    /// A filter that has no two addresses is refused for its size.
    Filter(Refusal),
    Stuck(Stuck),
}

/// What every part is asked with. Owned, as a search that flows outlives its request.
struct Errand {
    chain: Arc<ServedChain>,
    lane: Arc<Lane>,
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
    room: Option<Arc<Ceiling>>,
}

impl Errand {
    fn answers(&self) -> &Arc<Ceiling> {
        self.room.as_ref().unwrap_or(self.lane.answers())
    }

    fn allowance(&self) -> &Allowance {
        self.progress.allowance()
    }
}

/// What came of a part.
enum Got {
    /// It was kept.
    Kept(Bytes),
    Asked(Settled),
}

/// A search in parts under way.
pub(crate) struct Search {
    errand: Arc<Errand>,
    pub(crate) parts: Parts,
    running: FuturesUnordered<BoxFuture<'static, (u64, Got)>>,
    /// The upstream that gave a part last.
    last: Option<Slot>,
    /// Whether a part was empty and doubtful, and no other upstream could be heard.
    is_doubtful: bool,
    /// And the evidence was strong.
    warns: bool,
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
    fn new(
        trip: &Trip<'_>,
        job: &Job<'_>,
        (ask, block): (&Ask<'_>, &BlockRef),
        range: Range,
        size: PartSize,
        allowance: Allowance,
    ) -> Result<Self, Stuck> {
        let chain = trip.chain;
        let cut = if chain.cache().is_some() { Cut::AtMultiples } else { Cut::Anywhere };
        let (calls_max, bytes_max) = (allowance.left() as usize, chain.bounds.answer_bytes_max);
        let addresses = job.row.filter_addresses(job.params).unwrap_or_default();
        let whole = Tile { from: range.from, to: range.to, addresses: 0..addresses.len() };
        let errand = Errand {
            chain: Arc::clone(chain),
            lane: Arc::clone(trip.lane),
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
            selected: trip.selected().into(),
            progress: Progress::new(allowance).from_client(trip.progress.client()),
            room: trip.room.clone(),
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
            Got::Asked(Settled { outcome, is_doubtful, warns }) => {
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
        self.parts.found(number, list, |list| hold(list, answers))
    }

    fn take_in(&mut self, number: u64, result: Result<Served, Failure>) -> Result<(), Ended> {
        self.parts.afford(u64::from(self.errand.allowance().left()));
        let settled = match (refusal(&result), result) {
            (Some((VerdictClass::FilterTooLarge, learnt)), result) => {
                match self.parts.filter_too_large(number, addresses_hint(learnt)) {
                    Err(Stuck::OneAddress) if let Ok(served) = &result => {
                        let Errand { chain, filter, .. } = &*self.errand;
                        let refusal = Refusal::filter_too_large(chain, served, *filter);
                        return Err(Ended::Filter(refusal));
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
    let Errand { chain, lane, .. } = &*errand;
    let row = errand.row;
    let (first, last) = (BlockNumber(tile.from), BlockNumber(tile.to));
    let params = errand.params.as_deref();
    let narrowed = match errand.hash {
        Some(_) => None,
        None => params.and_then(|params| row.with_range(params, first, last)),
    };
    // What could be read as a range before can be written as one.
    let params = narrowed.as_deref().or(params);
    let group = &errand.addresses[tile.addresses.clone()];
    let grouped = match group.len() < errand.addresses.len() {
        true => params.and_then(|params| row.with_addresses(params, group)),
        false => None,
    };
    let params = grouped.as_deref().or(params);
    let range = BlockRef::Range { from: BlockPoint::Number(first), to: BlockPoint::Number(last) };
    let block = errand.hash.unwrap_or(range);
    let asked = kept::part(chain, (row, params), &block, errand.selected.as_bytes());
    if let Some(asked) = &asked
        && let Some(list) = tiers::part(chain, asked).await
    {
        errand.allowance().give_back(1);
        return (number, Got::Kept(list));
    }
    // The digest is that of the whole: where its results are too many, so are those of a group.
    let addresses = match group.len() {
        0 => errand.filter.addresses,
        len => len as u64,
    };
    let filter = FilterShape { addresses, ..errand.filter };
    let (needed, oldest, span) = match errand.hash {
        Some(_) => (errand.needed, None, 0),
        None => (Some(last), Some(first), last.0 - first.0 + 1),
    };
    let ask = Ask { needed, oldest, span, filter, ..Ask::of(row, errand.eligible) };
    let Planned { plan, ballot, .. } =
        make_plan(chain, lane, (&ask, &block), deadline, now()).await;
    let job = Job {
        row,
        method: &errand.method,
        params,
        received_at: errand.received_at,
        deadline,
        at_hash: None,
        null_is_final: false,
        is_there: false,
        flows_to: None,
        ballot,
        // Its own, as it may go on when its request has ended.
        progress: Some(&errand.progress),
        is_first_paid: true,
        room: errand.room.as_ref(),
    };
    let outcome = wellhead_dispatch::run(&job, &plan, &chain.roster, lane, &chain.bounds).await;
    if outcome.trail.exchanges() == 0 {
        errand.allowance().give_back(1);
    }
    learn(chain, &ask, &outcome.trail);
    let settled = doubt::settled(chain, lane, &job, (&ask, &block), outcome).await;
    if let Some(asked) = asked
        && let Ok(Served { class: VerdictClass::Answer, payload: Payload::Result(list), .. }) =
            &settled.outcome.result
        && !settled.is_doubtful
    {
        let assurance = chain.assurance(row, &settled.outcome.trail);
        asked.keep(chain, (row, params, now()), kept::Answer::Result(list), assurance);
    }
    (number, Got::Asked(settled))
}

/// Tells the upstreams what their answers to `ask` say of how far they reach.
pub(crate) fn learn(chain: &ServedChain, ask: &Ask<'_>, trail: &Trail) {
    for attempt in &trail.attempts {
        let upstream = chain.roster.upstream(attempt.slot);
        // An answer says something only where something was refused before.
        if attempt.class == VerdictClass::Answer && !upstream.has_refused_any(ask.row) {
            continue;
        }
        let head = chain.heads.look(|view| view.head(attempt.slot).map(|head| head.number));
        let size = SearchSize { blocks: ask.span, filter: ask.filter };
        let extent = CallExtent { oldest: ask.oldest, head, size };
        upstream.learn_reach(ask.row, attempt.class, attempt.learnt, &extent, now());
    }
}

impl Refusal {
    /// A search that cannot be divided into calls that upstreams accept.
    fn too_wide(blocks: u64, why: Stuck, bounds: SearchBounds) -> Self {
        let message = match why {
            Stuck::TooManyCalls { span, addresses } => format!(
                "{blocks} blocks are too many: upstreams accept about {span} {}at once here, and \
                 a search is made of at most {} calls; ask for fewer",
                match addresses {
                    usize::MAX | 0..=1 => String::new(),
                    addresses => format!("and {addresses} addresses "),
                },
                bounds.calls_max
            ),
            Stuck::OneBlock => {
                "a single block holds more than upstreams answer with; narrow the filter".to_owned()
            }
            Stuck::TooManyBytes => {
                format!("what {blocks} blocks hold is more than may be answered; ask for fewer")
            }
            Stuck::OneAddress => {
                "the filter names more than upstreams accept; ask for fewer topics".to_owned()
            }
            Stuck::NoRoom => "there is no room to put the parts together".to_owned(),
            Stuck::NoList => "an upstream answered a search with no list".to_owned(),
            Stuck::NoLogs => {
                "an upstream answered a search with something other than logs".to_owned()
            }
        };
        Self::range_too_large(message)
    }

    /// An upstream refused the size of a filter that cannot be divided.
    fn filter_too_large(chain: &ServedChain, served: &Served, filter: FilterShape) -> Self {
        let id = &chain.roster.upstream(served.slot).identity().id;
        let words = match &served.payload {
            Payload::Error(error) => raw::scan_error(error).map(|error| error.message),
            Payload::Result(_) | Payload::None { .. } => None,
        };
        let words = words.unwrap_or_else(|| served.class.about().into());
        let what = match filter.addresses {
            0 => "no address".to_owned(),
            1 => "one address".to_owned(),
            addresses => format!("{addresses} addresses"),
        };
        Self::range_too_large(format!(
            "upstream `{id}` refused the filter: {words}; it names {what}, and a search is \
             divided by plain addresses alone: ask for fewer topics"
        ))
    }
}
