//! A search over many blocks, such as `eth_getLogs`, made in parts that upstreams accept.
//!
//! A search is tried whole wherever some upstream is not known to accept less. Where all
//! accept less, or one refuses it for its size, its parts are asked for side by side, each
//! like a call of its own with its own plan and attempts, and put together in their order.
//! How long parts are and when that is hopeless: [`crate::parts`]. All parts hold together
//! at most what one answer may hold, and the whole has the deadline of the call.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use wellhead_chain::View;
use wellhead_dispatch::{Failure, Job, Lane, Outcome, Served, Trail, now};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef};
use wellhead_route::{Ask, Fitness, assess};
use wellhead_transport::{Ceiling, FREE_BYTES, Pieces, Rest, Shortage};
use wellhead_upstream::{Learnt, Payload, Slot, VerdictClass};

use crate::answer::Refusal;
use crate::call::make_plan;
use crate::chain::ServedChain;
use crate::parts::{Parts, Stuck};

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

/// A list as it is sent on piece by piece, and the end of its envelope.
pub(crate) fn flowing(pieces: Vec<Bytes>) -> Box<dyn Rest> {
    Box::new(Pieces::joined(pieces.into_iter().chain([Bytes::from_static(b"}")])))
}

/// The same in one, counted below the ceiling on answers; `None` when there is no room for it.
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
    /// Pieces of one list; this upstream gave the last part.
    Found(Vec<Bytes>, Slot),
    /// An upstream's error about the search itself.
    Error(Bytes, Slot),
    /// A part could not be had.
    Failed(Failure),
    /// It cannot be made in parts.
    Refused(Refusal),
}

/// Searches `range` in parts of `span` blocks at first. Adds what was tried to `trail`.
pub(crate) async fn search(
    chain: &ServedChain,
    lane: &Lane,
    job: &Job<'_>,
    ask: &Ask<'_>,
    (range, span): (Range, u64),
    trail: &mut Trail,
) -> Searched {
    let range = chain.heads.look(|view| range.up_to_head(view));
    let bytes_max = chain.bounds.answer_bytes_max;
    let stuck = |why| Searched::Refused(Refusal::too_wide(range.len(), why, chain.search));
    let mut parts = match Parts::new(range.from, range.to, span, chain.search.calls_max, bytes_max)
    {
        Ok(parts) => parts,
        Err(why) => return stuck(why),
    };
    let mut running = FuturesUnordered::new();
    let mut last = None;
    loop {
        while running.len() < chain.search.parallel.max(1) {
            match parts.next() {
                Ok(Some((from, to))) => {
                    running.push(part(chain, lane, job, ask, Range { from, to }));
                }
                Ok(None) => break,
                Err(why) => return stuck(why),
            }
        }
        let Some((from, outcome)) = running.next().await else { break };
        trail.append(outcome.trail);
        let settled = match outcome.result {
            Ok(served) => match (served.class, served.payload) {
                (VerdictClass::RangeTooLarge, _) => parts.too_large(from, hint(served.learnt)),
                (_, Payload::Result(list)) => {
                    last = Some(served.slot);
                    parts.found(from, list)
                }
                (_, Payload::Error(error)) => return Searched::Error(error, served.slot),
                (class, Payload::None { .. }) => {
                    return Searched::Failed(Failure::Exhausted { class, retry_after: None });
                }
            },
            Err(Failure::Exhausted { class: VerdictClass::RangeTooLarge, .. }) => {
                parts.too_large(from, None)
            }
            Err(failure) => return Searched::Failed(failure),
        };
        if let Err(why) = settled {
            return stuck(why);
        }
    }
    debug_assert!(parts.is_complete(), "all parts were asked for and settled");
    match last {
        Some(slot) => Searched::Found(parts.pieces(), slot),
        None => Searched::Failed(Failure::NobodyToAsk),
    }
}

/// Asks for one part.
async fn part(
    chain: &ServedChain,
    lane: &Lane,
    job: &Job<'_>,
    ask: &Ask<'_>,
    range: Range,
) -> (u64, Outcome) {
    let (first, last) = (BlockNumber(range.from), BlockNumber(range.to));
    let params = job.params.and_then(|params| job.row.with_range(params, first, last));
    let ask = Ask { needed: Some(last), oldest: Some(first), span: range.len(), ..*ask };
    // What could be read as a range before can be written as one.
    let job = Job { params: params.as_deref().or(job.params), may_flow: false, ..*job };
    let block = BlockRef::Range { from: BlockPoint::Number(first), to: BlockPoint::Number(last) };
    let plan = make_plan(chain, lane, (&ask, &block), job.deadline, now()).await.plan;
    let outcome = wellhead_dispatch::run(&job, &plan, &chain.roster, lane, &chain.bounds).await;
    learn(chain, &ask, &outcome.trail);
    (range.from, outcome)
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
