//! Empty and cut off answers to log searches, compared with headers.
//!
//! A node that has a block but does not have its logs yet, or has lost them, returns an empty list,
//! and an indexer continues without them. So an empty answer is **doubtful** if the bloom of a
//! known canonical block in its range may contain a match, or if the upstream is not known to hold
//! the last block. Then one more upstream is called: if it finds logs, these are the answer, and
//! the first upstream is counted and logged; if it finds none, the empty list is accepted. A more
//! expensive tier is used only if there is hardly any doubt left ([`CHANCE_ALONE_MAX`]): then the
//! first attempt failed, and the call continues as after any failure.
//!
//! If no other upstream is fit and untried, and the probability of a false positive is at most
//! [`CHANCE_ALONE_MAX`], the call waits for at most [`HEAD_WAIT`]: for a healthy upstream that did
//! not hold the block when it last showed its head, or else until the upstream itself shows a new
//! block, when late logs are there. Then the one or the other is called. If the list is empty again, or there
//! was no second opinion, the empty answer is served with a warning: a header (`x-wellhead-warning:
//! logs-doubted`) and a count.
//!
//! An upstream that is not known to hold the last block may also return the logs up to its own head, and no
//! error. It is called only where no other upstream can be, so such an answer, unless it has a log of the last
//! block or blooms exclude more logs, is served at once with the same warning. It is not kept, and a filter does
//! not go on from it.
//!
//! The cost is bounded: no second call is made if a false positive is more likely than not
//! ([`CHANCE_MAX`]), as with many full blocks, nor beyond `attempts.max` or the bound of the
//! search, and the second call is limited to [`WAIT`]. Without a known bloom nothing changes.
//!
//! Not guaranteed: that logs are found if two upstreams lack them, nor that answers which lack only
//! some logs are detected otherwise.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use wellhead_chain::View;
use wellhead_dispatch::{
    Bounds, Job, Outcome, Served, TierScope, Trail, WorkerUpstreams, now, run,
};
use wellhead_eth::{BlockNumber, BlockRef};
use wellhead_jsonrpc::raw;
use wellhead_route::{Plan, PlanRequest, plan};
use wellhead_upstream::{Payload, Slot, UpstreamSet, VerdictClass};
use wellhead_verify::{Filter, Sieve};

use crate::request::context::RequestContext;
use crate::request::pin::{BlockAsk, MethodCall};
use crate::state::chain::ServedChain;
use crate::steps::observe::observe_reach;
use crate::steps::proven::proven;

/// The method whose answers are held against blooms.
const LOGS: &str = "eth_getLogs";

/// Blooms that fit are evidence while chance explains them less often than this.
const CHANCE_MAX: f64 = 0.5;
/// And they are strong evidence up to here: a dearer tier may be asked, an upstream that is alone is
/// asked again, which makes the call wait, and the client is warned.
const CHANCE_ALONE_MAX: f64 = 0.05;
/// An upstream that is asked again is given this long to show a new block.
const HEAD_WAIT: Duration = Duration::from_secs(2);
/// Its head is looked at this often meanwhile.
const HEAD_LOOK: Duration = Duration::from_millis(100);
/// A filter with more names fits nearly every bloom, and takes long to look for.
const NAMES_MAX: usize = 256;
/// For this long the answer waits for a second one.
const WAIT: Duration = Duration::from_secs(5);

/// The end of a search, or of a part of one.
pub(crate) struct SearchOutcome {
    pub(crate) outcome: Outcome,
    /// It found nothing, or nothing in the newest blocks, that is doubtful, and no other upstream could be heard.
    /// Not to be kept.
    pub(crate) is_doubtful: bool,
    /// And the evidence is strong: the client is to be warned.
    pub(crate) warns: bool,
}

impl SearchOutcome {
    pub(crate) fn certain(outcome: Outcome) -> Self {
        Self { outcome, is_doubtful: false, warns: false }
    }

    /// An answer that is served for want of a better one.
    fn unconfirmed(chain: &ServedChain, outcome: Outcome, doubt: Doubt) -> Self {
        let warns = doubt.is_strong();
        if warns {
            chain.counts().unconfirmed();
        }
        Self { outcome, is_doubtful: true, warns }
    }
}

/// Why an answer is doubtful.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// The upstream that gave it.
    slot: Slot,
    /// How often chance alone would explain the blooms; zero where the upstream is seen not to
    /// hold the block.
    chance: f64,
    /// It is not empty: logs of the newest blocks may be missing.
    is_partial: bool,
}

impl Doubt {
    fn is_strong(self) -> bool {
        self.chance <= CHANCE_ALONE_MAX
    }
}

/// Whether the call is a search, whose empty answer may be doubtful.
pub(crate) fn is_search(job: &Job<'_>) -> bool {
    job.row.name == LOGS
}

/// The outcome of a search for logs, [`settled`] and [`proven()`]. The client is warned here.
pub(crate) async fn looked_into(
    request: &RequestContext<'_>,
    job: &Job<'_>,
    subject: BlockAsk<'_>,
    outcome: Outcome,
) -> SearchOutcome {
    let (chain, worker) = (request.chain, request.worker);
    let found = settled(chain, worker, job, subject, outcome).await;
    if found.warns {
        request.warn_of_logs();
    }
    SearchOutcome {
        outcome: proven(chain, worker, job, subject.block, found.outcome).await,
        ..found
    }
}

/// The outcome of a search over `block`, or of a part of one; after a second opinion, where
/// it found nothing and that is doubtful.
///
/// Costs a comparison for all other calls. Cancel-safe.
pub(crate) async fn settled(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    job: &Job<'_>,
    subject: BlockAsk<'_>,
    outcome: Outcome,
) -> SearchOutcome {
    let Some(doubt) = doubtful(chain, job, subject.block, &outcome) else {
        return SearchOutcome::certain(outcome);
    };
    chain.counts().doubted();
    match doubt.is_partial {
        false => Box::pin(second(chain, worker, job, subject.ask, doubt, outcome)).await,
        true => SearchOutcome::unconfirmed(chain, outcome, doubt),
    }
}

/// What speaks against an answer.
fn doubtful(
    chain: &ServedChain,
    job: &Job<'_>,
    block: &BlockRef,
    outcome: &Outcome,
) -> Option<Doubt> {
    // What several agreed on was heard often enough.
    if !is_search(job) || job.ballot.is_some() {
        return None;
    }
    let Ok(Served { slot, payload: Payload::Result(result), rest: None, .. }) = &outcome.result
    else {
        return None;
    };
    let is_partial = !is_empty(result);
    let chance = chain.heads.look(|view| {
        let (first, last) = ends(block, view)?;
        match (is_held(view, *slot, last), is_partial) {
            (true, true) => None,
            (true, false) => may_hold(chain, view, MethodCall::of(job), first..=last),
            (false, true) if is_complete(chain, view, job, result, last) => None,
            (false, _) => Some(0.0),
        }
    });
    chance.map(|chance| Doubt { slot: *slot, chance, is_partial })
}

/// Whether a list that is not empty has logs of the last block, or the blooms of all blocks above its last log
/// exclude others. An upstream may have shown an older block after a newer one.
fn is_complete(
    chain: &ServedChain,
    view: &View,
    job: &Job<'_>,
    list: &[u8],
    last: BlockNumber,
) -> bool {
    let number = raw::items(list).last().and_then(|log| raw::field(log, "blockNumber"));
    let Some(found) = number.and_then(raw::quantity) else { return false };
    if found >= last.0 {
        return true;
    }
    let MethodCall { row, params } = MethodCall::of(job);
    let sieve = Filter::read(row, params).and_then(|it| it.sieve(NAMES_MAX));
    let (mut excluded, above) = (0, BlockNumber(found + 1)..=last);
    chain.heads.blooms(view, above, |_, bloom| {
        let is_excluded = |it: &Sieve| !it.sift(&bloom.0).may_fit;
        excluded += u64::from(bloom.is_empty() || sieve.as_ref().is_some_and(is_excluded));
    });
    excluded == last.0 - found
}

/// Whether a list has nothing in it.
fn is_empty(list: &[u8]) -> bool {
    let inner = raw::trim(list).strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    inner.is_some_and(|inner| raw::trim(inner).is_empty())
}

/// The heights that are searched, as far as they are known.
fn ends(block: &BlockRef, view: &View) -> Option<(BlockNumber, BlockNumber)> {
    match block {
        BlockRef::Hash(hash) => view.height_of(hash).map(|height| (height, height)),
        block => block.heights(),
    }
}

/// Whether the upstream may be at `last` or above, on the agreed branch. No upstream counts as
/// holding a block that is not agreed, and a view that is not fresh says nothing about heads.
fn is_held(view: &View, slot: Slot, last: BlockNumber) -> bool {
    let is_agreed = view.latest.is_some_and(|latest| last <= latest.number);
    if !is_agreed || !view.is_fresh(now()) {
        return true;
    }
    !view.is_astray(slot) && view.head(slot).is_none_or(|head| head.number >= last)
}

/// How often chance alone would explain that blooms speak for logs, if they do and it would do so
/// less often than not.
fn may_hold(
    chain: &ServedChain,
    view: &View,
    MethodCall { row, params }: MethodCall<'_>,
    blocks: RangeInclusive<BlockNumber>,
) -> Option<f64> {
    let sieve = Filter::read(row, params).and_then(|it| it.sieve(NAMES_MAX))?;
    let (mut may_fit, mut by_no_chance) = (false, 1.0);
    chain.heads.blooms(view, blocks, |_, bloom| {
        let sifted = sieve.sift(&bloom.0);
        may_fit |= sifted.may_fit;
        by_no_chance *= 1.0 - sifted.chance;
    });
    let chance = 1.0 - by_no_chance;
    (may_fit && chance <= CHANCE_MAX).then_some(chance)
}

/// Asks one of the others that are fit. What `first` said stands, unless that one finds logs.
async fn second(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    job: &Job<'_>,
    ask: &PlanRequest<'_>,
    doubt: Doubt,
    mut first: Outcome,
) -> SearchOutcome {
    let Some(opinion) = plan_second(chain, worker, job, ask, doubt, &first.trail).await else {
        return SearchOutcome::unconfirmed(chain, first, doubt);
    };
    let SecondOpinion { ask, plan, bounds } = opinion;
    let began = now();
    if plan.fit() == 0 || began >= job.deadline {
        return SearchOutcome::unconfirmed(chain, first, doubt);
    }
    let deadline = job.deadline.min(began + WAIT);
    let job = Job { deadline, is_first_paid: false, ..*job };
    let second = run(&job, &plan, &chain.roster, worker, &bounds).await;
    observe_reach(chain, &ask, &second.trail);
    first.trail.append(second.trail);
    let is_fit = |slot| plan.candidates()[..plan.fit()].contains(&slot);
    let heard = second
        .result
        .ok()
        .filter(|served| served.class == VerdictClass::Answer && is_fit(served.slot));
    match heard {
        Some(found)
            if let Payload::Result(list) = &found.payload
                && !is_empty(list) =>
        {
            note(chain, doubt.slot, found.slot);
            first.result = Ok(found);
            SearchOutcome::certain(first)
        }
        // One that says nothing twice is still one.
        Some(Served { slot, payload: Payload::Result(_), .. }) if slot != doubt.slot => {
            SearchOutcome::certain(first)
        }
        Some(_) | None => SearchOutcome::unconfirmed(chain, first, doubt),
    }
}

/// Which upstreams may give a second opinion, and within which bounds.
struct SecondOpinion<'a> {
    ask: PlanRequest<'a>,
    plan: Plan,
    bounds: Bounds,
}

/// Plans a second opinion: of the others, or where none is fit and the evidence is strong, of the
/// upstream itself once it has shown a new block. `None` where the call may ask for no more.
async fn plan_second<'a>(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    job: &Job<'_>,
    ask: &PlanRequest<'a>,
    doubt: Doubt,
    trail: &Trail,
) -> Option<SecondOpinion<'a>> {
    let began = now();
    // An upstream that this call asked already would repeat its answer, and attempts are bounded.
    let attempts = trail.attempts.iter().map(|attempt| attempt.slot);
    let abandoned = trail.abandoned.iter().map(|attempt| attempt.slot);
    let asked: UpstreamSet = attempts.chain(abandoned).collect();
    let attempts_max = chain.bounds.attempts_max.saturating_sub(trail.exchanges());
    let bounds = Bounds { attempts_max, ..chain.bounds };
    let tier = |slot: Slot| chain.roster.upstream(slot).identity().tier;
    let may_cross = doubt.is_strong() || chain.bounds.extra_tiers == TierScope::All;
    let slots = chain.roster.upstreams().iter().map(|upstream| upstream.slot());
    let in_scope = slots.filter(|slot| may_cross || tier(*slot) <= tier(doubt.slot));
    let eligible = ask.eligible.without(asked).and(in_scope.collect());
    let others = PlanRequest { eligible, ..*ask };
    let plan = plan_now(chain, worker, &others);
    let is_paid = job.allowance().is_none_or(|allowance| allowance.to_spare() > 0);
    if attempts_max == 0 || began >= job.deadline || !is_paid {
        return None;
    }
    if plan.fit() > 0 {
        return Some(SecondOpinion { ask: others, plan, bounds });
    }
    if !doubt.is_strong() {
        return None;
    }
    if let Some(plan) = wait_for_another(chain, worker, &others, doubt.slot, job.deadline).await {
        return Some(SecondOpinion { ask: others, plan, bounds });
    }
    let itself = [doubt.slot].into_iter().collect::<UpstreamSet>().and(ask.eligible);
    let itself = PlanRequest { eligible: itself, ..*ask };
    let plan = plan_now(chain, worker, &itself);
    Some(SecondOpinion { ask: itself, plan, bounds })
}

fn plan_now(chain: &ServedChain, worker: &WorkerUpstreams, ask: &PlanRequest<'_>) -> Plan {
    chain.heads.look(|view| worker.with_rng(|rng| plan(ask, view, &chain.roster, now(), rng)))
}

/// Waits until one of `others` is fit. `None` once `slot` shows a higher block and none of the
/// others is well, and after [`HEAD_WAIT`] at most. Half of the time up to `deadline` is left for
/// the call that follows.
async fn wait_for_another(
    chain: &ServedChain,
    worker: &WorkerUpstreams,
    others: &PlanRequest<'_>,
    slot: Slot,
    deadline: Instant,
) -> Option<Plan> {
    let head = || chain.heads.look(|view| view.head(slot).map(|head| head.number));
    let (began, before) = (now(), head());
    let until = began + HEAD_WAIT.min(deadline.saturating_duration_since(began) / 2);
    loop {
        let plan = plan_now(chain, worker, others);
        if plan.fit() > 0 {
            return Some(plan);
        }
        if now() >= until || plan.well() == 0 && head() > before {
            return None;
        }
        tokio::time::sleep(HEAD_LOOK.min(until.saturating_duration_since(now()))).await;
    }
}

/// Counts an upstream that missed logs, and tells of it the first time.
fn note(chain: &ServedChain, missed: Slot, found: Slot) {
    let id = |slot| &chain.roster.upstream(slot).identity().id;
    let (upstream, other) = (id(missed), id(found));
    if missed == found {
        chain.counts().missed_logs(missed);
        tracing::debug!(%upstream, "upstream had no logs at first, and some when it was asked again");
    } else if chain.counts().missed_logs(missed) == 0 {
        tracing::warn!(
            %upstream, %other,
            "upstream answered that there are no logs where another found some; the other's \
             answer was served. Further ones are counted in `wellhead_upstream_missed_logs`"
        );
    } else {
        tracing::debug!(%upstream, %other, "upstream missed logs again");
    }
}
