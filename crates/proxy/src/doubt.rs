//! Empty answers to searches for logs, held against what headers say.
//!
//! A node that has a block and not yet its logs, or lost them, says that there are none, and
//! an indexer goes on without them. So an empty answer is **doubtful** where the bloom of a
//! known canonical block of its range may hold what was asked for, or where whoever gave it
//! is not seen to hold the last block. Then one more upstream is asked: what it finds is the
//! answer, and the first is counted and named in the log; when it finds nothing either, that
//! is believed.
//!
//! What it costs is bounded: nobody is asked where chance alone would explain a bloom that
//! fits more often than not ([`CHANCE_MAX`]), as with many full blocks, nor where nobody else
//! is fit who was not asked yet, nor beyond `attempts.max`, and the second one has [`WAIT`]. Where no bloom is known nothing changes.
//!
//! Not promised: that logs are there when two upstreams miss the same, nor anything of
//! answers that miss only some.

use std::time::Duration;

use wellhead_chain::View;
use wellhead_dispatch::{Bounds, Job, Lane, Outcome, Served, now};
use wellhead_eth::{BlockNumber, BlockPoint, BlockRef, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_route::{Ask, plan};
use wellhead_upstream::{Payload, Slot, UpstreamSet, VerdictClass};
use wellhead_verify::Filter;

use crate::chain::ServedChain;
use crate::search::learn;

/// The method whose answers are held against blooms.
const LOGS: &str = "eth_getLogs";

/// Blooms that fit are evidence while chance explains them less often than this.
const CHANCE_MAX: f64 = 0.5;
/// A filter with more names fits nearly every bloom, and takes long to look for.
const NAMES_MAX: usize = 256;
/// For so long the answer waits for a second one.
const WAIT: Duration = Duration::from_secs(5);

/// The end of a search, or of a part of one.
pub(crate) struct Settled {
    pub(crate) outcome: Outcome,
    /// It found nothing, that is doubtful, and nobody else could be heard. Not to be kept.
    pub(crate) is_doubtful: bool,
}

/// The outcome of a search over `block`, or of a part of one; after a second opinion, where
/// it found nothing and that is doubtful.
///
/// Costs a comparison for all other calls. Cancel-safe.
pub(crate) async fn settled(
    chain: &ServedChain,
    lane: &Lane,
    job: &Job<'_>,
    (ask, block): (&Ask<'_>, &BlockRef),
    outcome: Outcome,
) -> Settled {
    match doubtful(chain, job, block, &outcome) {
        Some(slot) => {
            chain.counts().doubted();
            Box::pin(second(chain, lane, job, ask, slot, outcome)).await
        }
        None => Settled { outcome, is_doubtful: false },
    }
}

/// Who gave an empty answer, if that is doubtful.
fn doubtful(
    chain: &ServedChain,
    job: &Job<'_>,
    block: &BlockRef,
    outcome: &Outcome,
) -> Option<Slot> {
    // What several agreed on was heard often enough.
    if job.row.name != LOGS || job.ballot.is_some() {
        return None;
    }
    let Ok(Served { slot, payload: Payload::Result(result), rest: None, .. }) = &outcome.result
    else {
        return None;
    };
    if !is_empty(result) {
        return None;
    }
    let is_doubtful = chain.heads.look(|view| {
        let Some((first, last)) = ends(block, view) else { return false };
        !is_held(view, *slot, last) || may_hold(chain, view, (job.row, job.params), (first, last))
    });
    is_doubtful.then_some(*slot)
}

/// Whether a list has nothing in it.
fn is_empty(list: &[u8]) -> bool {
    let inner = raw::trim(list).strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    inner.is_some_and(|inner| raw::trim(inner).is_empty())
}

/// The heights that are searched, as far as they are known.
fn ends(block: &BlockRef, view: &View) -> Option<(BlockNumber, BlockNumber)> {
    match block {
        BlockRef::Range { from: BlockPoint::Number(from), to: BlockPoint::Number(to) } => {
            Some((*from, *to))
        }
        BlockRef::Hash(hash) => view.height_of(hash).map(|height| (height, height)),
        BlockRef::Range { .. }
        | BlockRef::None
        | BlockRef::Number(_)
        | BlockRef::Tag(_)
        | BlockRef::Unreadable => None,
    }
}

/// Whether nothing speaks against the upstream standing at `last` or above, on the agreed
/// branch. Blocks that are not agreed on are nobody's to hold, and while the view is not fresh
/// it says nothing of heads.
fn is_held(view: &View, slot: Slot, last: BlockNumber) -> bool {
    let is_agreed = view.latest.is_some_and(|latest| last <= latest.number);
    if !is_agreed || !view.is_fresh(now()) {
        return true;
    }
    !view.is_astray(slot) && view.head(slot).is_none_or(|head| head.number >= last)
}

/// Whether blooms speak for logs, and more so than by chance.
fn may_hold(
    chain: &ServedChain,
    view: &View,
    (row, params): (&MethodRow, Option<&[u8]>),
    range: (BlockNumber, BlockNumber),
) -> bool {
    let Some(sieve) = Filter::read(row, params).and_then(|it| it.sieve(NAMES_MAX)) else {
        return false;
    };
    let (mut may_fit, mut by_no_chance) = (false, 1.0);
    chain.heads.blooms(view, range, |_, bloom| {
        let sifted = sieve.sift(&bloom.0);
        may_fit |= sifted.may_fit;
        by_no_chance *= 1.0 - sifted.chance;
    });
    may_fit && 1.0 - by_no_chance <= CHANCE_MAX
}

/// Asks one of the others who are fit. What `first` said stands, unless that one finds logs.
async fn second(
    chain: &ServedChain,
    lane: &Lane,
    job: &Job<'_>,
    ask: &Ask<'_>,
    doubted: Slot,
    mut first: Outcome,
) -> Settled {
    let began = now();
    // Who was asked already has said what it has to say, and a call has so many attempts.
    let attempts = first.trail.attempts.iter().map(|attempt| attempt.slot);
    let abandoned = first.trail.abandoned.iter().map(|attempt| attempt.slot);
    let asked: UpstreamSet = attempts.chain(abandoned).collect();
    let attempts_max = chain.bounds.attempts_max.saturating_sub(first.trail.exchanges());
    let ask = Ask { eligible: ask.eligible.without(asked), ..*ask };
    let plan =
        chain.heads.look(|view| lane.with_rng(|rng| plan(&ask, view, &chain.roster, began, rng)));
    if plan.fit() == 0 || attempts_max == 0 || began >= job.deadline {
        return Settled { outcome: first, is_doubtful: true };
    }
    let job = Job { deadline: job.deadline.min(began + WAIT), ..*job };
    let bounds = Bounds { attempts_max, ..chain.bounds };
    let second = wellhead_dispatch::run(&job, &plan, &chain.roster, lane, &bounds).await;
    learn(chain, &ask, &second.trail);
    first.trail.append(second.trail);
    let is_fit = |slot| plan.candidates()[..plan.fit()].contains(&slot);
    let heard = second
        .result
        .ok()
        .filter(|served| served.class == VerdictClass::Answer && is_fit(served.slot));
    let is_doubtful = match heard {
        Some(Served { payload: Payload::Result(ref result), .. }) if is_empty(result) => false,
        Some(found @ Served { payload: Payload::Result(_), .. }) => {
            note(chain, doubted, found.slot);
            first.result = Ok(found);
            false
        }
        Some(_) | None => true,
    };
    Settled { outcome: first, is_doubtful }
}

/// Counts an upstream that missed logs, and tells of it the first time.
fn note(chain: &ServedChain, missed: Slot, found: Slot) {
    let id = |slot| &chain.roster.upstream(slot).identity().id;
    let (upstream, other) = (id(missed), id(found));
    if chain.counts().missed_logs(missed) == 0 {
        tracing::warn!(
            %upstream, %other,
            "upstream answered that there are no logs where another found some; the other's \
             answer was served. Further ones are counted in `wellhead_upstream_missed_logs`"
        );
    } else {
        tracing::debug!(%upstream, %other, "upstream missed logs again");
    }
}
