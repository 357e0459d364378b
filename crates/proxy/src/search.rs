//! A search over many blocks, such as `eth_getLogs`, made in parts that upstreams accept.
//!
//! A search is tried whole wherever some upstream is not known to accept less. Where all
//! accept less, or one refuses it for its size, its parts are asked for side by side, each
//! like a call of its own with its own plan and attempts, and put together in their order.
//! How long parts are and when that is hopeless: [`crate::parts`]. All parts hold together
//! at most what one answer may hold, and the whole has the deadline of the call, unless it
//! is large and flows: [`crate::stream`]. Where answers are kept, so are parts that are final.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use wellhead_chain::View;
use wellhead_dispatch::{Failure, Job, Lane, Outcome, Served, Trail, now};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef, MethodRow, MethodTable};
use wellhead_route::{Ask, Fitness, assess};
use wellhead_transport::{Ceiling, FREE_BYTES, Rest, Shortage};
use wellhead_upstream::{Learnt, Payload, Slot, UpstreamSet, VerdictClass};

use crate::answer::Refusal;
use crate::call::{Planned, make_plan};
use crate::chain::ServedChain;
use crate::doubt::{self, Settled};
use crate::journey::Trip;
use crate::parts::{Cut, Parts, Stuck};
use crate::{kept, stream, tiers};

/// How far searches may be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchBounds {
    /// Calls that one search may be made of; with one it is never divided.
    pub calls_max: usize,
    /// Those under way at a time, at least one.
    pub parallel: usize,
}

impl Default for SearchBounds {
    fn default() -> Self {
        Self { calls_max: 100, parallel: 4 }
    }
}

/// The blocks that a search goes over, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    from: u64,
    to: u64,
}

impl Range {
    /// Those of a call that may be divided.
    pub(crate) fn of(chain: &ServedChain, job: &Job<'_>, block: &BlockRef) -> Option<Self> {
        let BlockRef::Range { from: BlockPoint::Number(from), to: BlockPoint::Number(to) } = block
        else {
            return None;
        };
        let may_divide = chain.search.calls_max > 1 && job.row.is_divisible(job.params);
        (may_divide && from < to).then_some(Self { from: from.0, to: to.0 })
    }

    /// How many there are.
    pub(crate) fn len(self) -> u64 {
        (self.to - self.from).saturating_add(1)
    }

    /// Without what is above every head: there is nothing to be found yet.
    fn up_to_head(self, view: &View) -> Self {
        let head = view.best.map_or(self.to, |best| best.number.0);
        Self { to: self.to.min(head).max(self.from), ..self }
    }
}

/// So many blocks are asked for at once, when nobody who could serve `ask` accepts all.
pub(crate) fn widest(chain: &ServedChain, ask: &Ask<'_>, now: Instant) -> Option<u64> {
    chain.heads.look(|view| {
        let each = chain.roster.upstreams().iter();
        let accepts = each.filter_map(|upstream| match assess(ask, upstream, view, now) {
            Fitness::TooWide { max } => Some(max),
            _ => None,
        });
        accepts.max()
    })
}

/// So many blocks would be answered, by a refusal's own words.
pub(crate) fn hint(learnt: Option<Learnt>) -> Option<u64> {
    match learnt {
        Some(Learnt::RangeHint { from, to }) => Some((to - from).saturating_add(1)),
        Some(Learnt::RangeMax { blocks }) => Some(blocks),
        _ => None,
    }
}

/// So many blocks to ask for at once, when a search of `range` was refused for its size.
pub(crate) fn refused_for_size(result: &Result<Served, Failure>, range: Range) -> Option<u64> {
    let learnt = match result {
        Ok(served) if served.class == VerdictClass::RangeTooLarge => served.learnt,
        Err(Failure::Exhausted { class: VerdictClass::RangeTooLarge, .. }) => None,
        Ok(_) | Err(_) => return None,
    };
    let shorter = hint(learnt).filter(|hint| (1..range.len()).contains(hint));
    Some(shorter.unwrap_or(range.len() / 2))
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

/// How a search in parts ended.
pub(crate) enum Searched {
    /// The list; this upstream gave the last part, if one was asked.
    Found(Bytes, Option<Slot>),
    /// The list as it is found, and the end of its envelope.
    Flows(Box<dyn Rest>, Option<Slot>),
    /// An upstream's error about the search itself.
    Error(Bytes, Slot),
    /// A part could not be had.
    Failed(Failure),
    /// It cannot be made in parts.
    Refused(Refusal),
}

/// Searches `range` in parts of `span` blocks at first. Adds what was tried to `trail`.
pub(crate) async fn search(
    trip: &Trip<'_>,
    job: &Job<'_>,
    ask: &Ask<'_>,
    (range, span): (Range, u64),
    trail: &mut Trail,
) -> Searched {
    let range = trip.chain.heads.look(|view| range.up_to_head(view));
    let stuck = |why| Searched::Refused(Refusal::too_wide(range.len(), why, trip.chain.search));
    let mut search = match Search::new(trip, job, ask, range, span) {
        Ok(search) => search,
        Err(why) => return stuck(why),
    };
    let whole_max = trip.chain.bounds.whole_bytes_max;
    let ended = loop {
        if job.may_flow && search.parts.held() > whole_max && search.parts.is_begun() {
            trail.append(std::mem::take(&mut search.trail));
            let last = search.last;
            return Searched::Flows(stream::flowing(search), last);
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
            match whole(&search.parts.take(), trip.lane.answers()) {
                Some(list) => Searched::Found(list, search.last),
                None => Searched::Failed(Failure::NoRoom),
            }
        }
        Some(Ended::Error(error, slot)) => Searched::Error(error, slot),
        Some(Ended::Failed(failure)) => Searched::Failed(failure),
        Some(Ended::Stuck(why)) => stuck(why),
    }
}

/// Why a search cannot go on.
#[derive(Debug)]
pub(crate) enum Ended {
    Error(Bytes, Slot),
    Failed(Failure),
    Stuck(Stuck),
}

/// What every part is asked with. Owned, as a search that flows outlives its request.
struct Errand {
    chain: Arc<ServedChain>,
    lane: Arc<Lane>,
    row: &'static MethodRow,
    method: Box<str>,
    params: Option<Box<[u8]>>,
    eligible: UpstreamSet,
    received_at: Instant,
    /// By what the client selects upstreams.
    selected: Box<str>,
}

/// What came of a part.
enum Got {
    /// It was kept.
    Kept(Bytes),
    Asked(Outcome),
}

/// A search in parts under way.
pub(crate) struct Search {
    errand: Arc<Errand>,
    pub(crate) parts: Parts,
    running: FuturesUnordered<BoxFuture<'static, (u64, Got)>>,
    /// Who gave a part last.
    last: Option<Slot>,
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
        ask: &Ask<'_>,
        range: Range,
        span: u64,
    ) -> Result<Self, Stuck> {
        let chain = trip.chain;
        let cut = if chain.cache().is_some() { Cut::AtMultiples } else { Cut::Anywhere };
        let (calls_max, bytes_max) = (chain.search.calls_max, chain.bounds.answer_bytes_max);
        let errand = Errand {
            chain: Arc::clone(chain),
            lane: Arc::clone(trip.lane),
            // The same row, for as long as the search takes.
            row: &MethodTable::standard().rows()[job.row.index.get()],
            method: job.method.into(),
            params: job.params.map(Into::into),
            eligible: ask.eligible,
            received_at: job.received_at,
            selected: trip.selected().into(),
        };
        Ok(Self {
            errand: Arc::new(errand),
            parts: Parts::new(range.from, range.to, span, calls_max, bytes_max, cut)?,
            running: FuturesUnordered::new(),
            last: None,
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
        while self.running.len() < self.parallel
            && let Some((from, to)) = self.parts.next(self.behind_max).map_err(Ended::Stuck)?
        {
            let deadline = self.deadline.unwrap_or_else(|| now() + self.time);
            let part = part(Arc::clone(&self.errand), Range { from, to }, deadline);
            self.running.push(Box::pin(part));
        }
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
        let Some((from, got)) = self.running.next().await else { return Ok(false) };
        match got {
            Got::Kept(list) => self.parts.found(from, list).map_err(Ended::Stuck)?,
            Got::Asked(outcome) => {
                self.trail.append(outcome.trail);
                self.take_in(from, outcome.result)?;
            }
        }
        Ok(true)
    }

    fn take_in(&mut self, from: u64, result: Result<Served, Failure>) -> Result<(), Ended> {
        let settled = match result {
            Ok(served) => match (served.class, served.payload) {
                (VerdictClass::RangeTooLarge, _) => self.parts.too_large(from, hint(served.learnt)),
                (_, Payload::Result(list)) => {
                    self.last = Some(served.slot);
                    self.parts.found(from, list)
                }
                (_, Payload::Error(error)) => return Err(Ended::Error(error, served.slot)),
                (class, Payload::None { .. }) => {
                    return Err(Ended::Failed(Failure::Exhausted { class, retry_after: None }));
                }
            },
            Err(Failure::Exhausted { class: VerdictClass::RangeTooLarge, .. }) => {
                self.parts.too_large(from, None)
            }
            Err(Failure::Deadline) if self.hurried > 0 => {
                self.hurried -= 1;
                self.parts.again(from);
                Ok(())
            }
            // What flows gives room back as it goes: one by one they may fit.
            Err(Failure::NoRoom) if self.deadline.is_none() && self.parallel > 1 => {
                (self.parallel, self.behind_max) = (1, 0);
                self.parts.again(from);
                Ok(())
            }
            Err(failure) => return Err(Ended::Failed(failure)),
        };
        settled.map_err(Ended::Stuck)
    }
}

/// Asks for one part, unless it was kept.
async fn part(errand: Arc<Errand>, range: Range, deadline: Instant) -> (u64, Got) {
    let Errand { chain, lane, .. } = &*errand;
    let row = errand.row;
    let (first, last) = (BlockNumber(range.from), BlockNumber(range.to));
    let params = errand.params.as_deref();
    let narrowed = params.and_then(|params| row.with_range(params, first, last));
    // What could be read as a range before can be written as one.
    let params = narrowed.as_deref().or(params);
    let block = BlockRef::Range { from: BlockPoint::Number(first), to: BlockPoint::Number(last) };
    let asked = kept::part(chain, (row, params), &block, errand.selected.as_bytes());
    if let Some(asked) = &asked
        && let Some(list) = tiers::part(chain, asked).await
    {
        return (range.from, Got::Kept(list));
    }
    let ask = Ask {
        needed: Some(last),
        oldest: Some(first),
        span: range.len(),
        ..Ask::of(row, errand.eligible)
    };
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
        may_flow: false,
        ballot,
        // It may go on when its request has ended.
        progress: None,
    };
    let outcome = wellhead_dispatch::run(&job, &plan, &chain.roster, lane, &chain.bounds).await;
    learn(chain, &ask, &outcome.trail);
    let Settled { outcome, is_doubtful } =
        doubt::settled(chain, lane, &job, (&ask, &block), outcome).await;
    if let Some(asked) = asked
        && let Ok(Served { class: VerdictClass::Answer, payload: Payload::Result(list), .. }) =
            &outcome.result
        && !is_doubtful
    {
        let assurance = chain.assurance(row, &outcome.trail);
        asked.keep(chain, (row, params, now()), kept::Answer::Result(list), assurance);
    }
    (range.from, Got::Asked(outcome))
}

/// Tells the upstreams what their answers to `ask` say of how far they reach.
pub(crate) fn learn(chain: &ServedChain, ask: &Ask<'_>, trail: &Trail) {
    for attempt in &trail.attempts {
        let upstream = chain.roster.upstream(attempt.slot);
        // An answer says something only where a block was missing before.
        if attempt.class == VerdictClass::Answer && !upstream.is_anything_missing(ask.row) {
            continue;
        }
        let head = chain.heads.look(|view| view.head(attempt.slot).map(|head| head.number));
        upstream.learn_reach(ask.row, attempt.class, attempt.learnt, ask.oldest, head, now());
    }
}

impl Refusal {
    /// A search that cannot be divided into calls that upstreams accept.
    fn too_wide(blocks: u64, why: Stuck, bounds: SearchBounds) -> Self {
        let message = match why {
            Stuck::TooManyCalls { span } => format!(
                "{blocks} blocks are too many: upstreams accept about {span} at once here, and a \
                 search is made of at most {} calls; ask for fewer",
                bounds.calls_max
            ),
            Stuck::OneBlock => {
                "a single block holds more than upstreams answer with; narrow the filter".to_owned()
            }
            Stuck::TooManyBytes => {
                format!("what {blocks} blocks hold is more than may be answered; ask for fewer")
            }
            Stuck::NoList => "an upstream answered a search with no list".to_owned(),
        };
        Self::range_too_large(message)
    }
}
