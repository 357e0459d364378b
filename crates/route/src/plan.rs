//! The order in which candidates are tried.
//!
//! First the fit upstreams, tier by tier, the cheapest first; then those that are at a rate limit
//! or paused, so that traffic moves on before it waits; then, because a
//! late answer is better than none, the last resorts: lagging upstreams
//! before those with an open breaker. Cost is the expected latency times the calls that
//! would be in flight (peak EWMA, as in Finagle and linkerd).
//!
//! With four or more fit upstreams in a tier the first is the cheaper of two
//! drawn at random: always taking the cheapest would send every worker's
//! next call to one upstream. With fewer a full scan with a small random part in
//! the cost has that effect. The weight of an upstream divides its cost. Where each caller has its own
//! upstream ([`Balance::Rendezvous`](crate::Balance::Rendezvous)), its distance takes the place of the cost.

use std::cmp::Ordering;
use std::fmt;
use std::time::{Duration, Instant};

use rand::Rng;
use wellhead_chain::View;
use wellhead_eth::{BlockNumber, Data, FilterShape, MethodRow};
use wellhead_upstream::{
    Condition, Offer, SizeLimit, Slot, Tier, UPSTREAMS_MAX, Upstream, UpstreamSet,
};

use crate::roster::Roster;

/// A plan names at most so many candidates; attempts are bounded lower still.
pub const CANDIDATES_MAX: usize = 16;
/// Upstreams that a chain has at most, as a rule.
const FEW: usize = 8;
/// From so many equals on, two are drawn and the cheaper is taken.
const DRAW_FROM: usize = 4;
/// The rank of a fit upstream in the order of last resort.
const RANK_FIT: u8 = 0;
/// The rank of a healthy upstream that is at a rate limit for the moment.
const RANK_HELD: u8 = 1;
/// The rank of a healthy upstream that may not hold the block yet.
const RANK_BEHIND: u8 = 2;
/// The rank of an upstream whose breaker for the class is open; unhealthy upstreams come after it.
const RANK_CLASS_RESTS: u8 = 4;
/// The rank of an upstream that accepts fewer blocks or addresses in a search; unhealthy upstreams
/// come before it.
const RANK_TOO_WIDE: u8 = 98;
/// How much of a cost is chance, so that equals share.
const COST_CHANCE: f64 = 0.1;

/// An upstream that holds a call for less, by its rate or because it asked for a pause, is as
/// good as one that does not: the wait is no longer than a call to a worse one takes, and no
/// call waits while another upstream of the tier is free. Before a more expensive tier is used, the
/// dispatcher waits this long.
pub const HOLD_SHORT: Duration = Duration::from_millis(100);

/// What a request asks of the plan.
#[derive(Debug, Clone, Copy)]
pub struct PlanRequest<'a> {
    /// The row of its method.
    pub row: &'a MethodRow,
    /// The upstreams that may be used: from [`Roster::eligible`], or a single slot for sticky calls.
    pub eligible: UpstreamSet,
    /// The block that the upstream must hold, when the request names one by number.
    pub needed: Option<BlockNumber>,
    /// The oldest block that the upstream must still keep, when the request names one by number.
    pub oldest: Option<BlockNumber>,
    /// Over how many blocks the upstream has to search; zero where it need not search.
    pub span: u64,
    /// And for what.
    pub filter: FilterShape,
    /// The hash of the caller, where each has its own upstream: see [`crate::Balance::Rendezvous`].
    pub caller: Option<u64>,
}

impl<'a> PlanRequest<'a> {
    /// An ask that names no block.
    pub fn of(row: &'a MethodRow, eligible: UpstreamSet) -> Self {
        Self {
            row,
            eligible,
            needed: None,
            oldest: None,
            span: 0,
            filter: FilterShape::default(),
            caller: None,
        }
    }

    /// Whether both ask the same of an upstream: what [`assess`] says of one, seen from one view at
    /// one moment, holds for the other.
    pub fn is_alike(&self, other: &PlanRequest<'_>) -> bool {
        // Whose it is matters to the order, not to what an upstream can serve.
        let Self { row, eligible, needed, oldest, span, filter, caller: _ } = *self;
        row.index == other.row.index
            && (eligible, needed, oldest) == (other.eligible, other.needed, other.oldest)
            && (span, filter) == (other.span, other.filter)
    }
}

/// Whether one upstream can serve an ask, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// It can.
    Fit,
    /// It can, but its rate holds the call for long, or it asked for a pause.
    Held {
        /// For so long.
        wait: Duration,
    },
    /// It does not hold the block yet.
    Behind {
        /// The newest block that it holds.
        head: BlockNumber,
    },
    /// It searches over fewer blocks at once.
    TooWide {
        /// Over so many.
        max: u64,
    },
    /// It takes fewer addresses at once.
    TooManyAddresses {
        /// This number of them.
        max: u64,
    },
    /// It no longer keeps the block.
    Pruned {
        /// The oldest block that it keeps.
        oldest: BlockNumber,
    },
    /// It is on another branch than the others, or claims blocks that cannot be.
    Astray,
    /// It lags too far behind the agreed head.
    Lagging {
        /// By so many blocks.
        blocks: u64,
    },
    /// Calls of this class failed there too often lately; others do not.
    ClassRests,
    /// It is in this condition, which is not `Ready`.
    Unwell(Condition),
    /// It did not know this method lately.
    MethodUnknown,
    /// It does not offer this method.
    MethodLacking,
    /// The settings keep the method from it.
    NotEligible,
}

impl fmt::Display for Fitness {
    /// For people: why it would be asked, or would not.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fit => f.write_str("fit"),
            Self::Held { wait } => write!(f, "limited for {} ms", wait.as_millis()),
            Self::Behind { head } => write!(f, "at block {head}, below the required one"),
            Self::TooWide { max } => write!(f, "searches over {max} blocks at once"),
            Self::TooManyAddresses { max } => write!(f, "searches for {max} addresses at once"),
            Self::Pruned { oldest } => write!(f, "has blocks from {oldest} on"),
            Self::Astray => f.write_str("astray: on another branch, or too far ahead"),
            Self::Lagging { blocks } => write!(f, "lags by {blocks} blocks"),
            Self::ClassRests => f.write_str("too many failed calls of this class"),
            Self::Unwell(condition) => f.write_str(condition.word()),
            Self::MethodUnknown => f.write_str("refused the method recently"),
            Self::MethodLacking => f.write_str("does not offer the method"),
            Self::NotEligible => f.write_str("excluded by the settings"),
        }
    }
}

impl Fitness {
    /// The order of last resort; `None`: not even then.
    fn rank(self) -> Option<u8> {
        match self {
            Self::Fit => Some(RANK_FIT),
            Self::Held { .. } => Some(RANK_HELD),
            Self::Behind { .. } => Some(RANK_BEHIND),
            Self::Lagging { .. } | Self::Astray => Some(3),
            Self::ClassRests => Some(RANK_CLASS_RESTS),
            Self::Unwell(condition) if condition.is_last_resort() => {
                Some(RANK_CLASS_RESTS + 1 + condition as u8)
            }
            // What was learnt may be out of date.
            Self::TooWide { .. } | Self::TooManyAddresses { .. } => Some(RANK_TOO_WIDE),
            Self::Pruned { .. } => Some(99),
            Self::MethodUnknown => Some(100),
            Self::Unwell(_) | Self::MethodLacking | Self::NotEligible => None,
        }
    }
}

/// The candidates of one request, in the order in which to try them.
#[derive(Debug, Clone)]
pub struct Plan {
    candidates: [Slot; CANDIDATES_MAX],
    len: usize,
    fit: usize,
    holding: usize,
    well: usize,
    /// Where those begin that are not well, and were not looked at further.
    unwell: usize,
    /// And where they end.
    unwell_end: usize,
    is_unoffered: bool,
}

impl Plan {
    /// This plan with `those` behind all other upstreams that are fit.
    #[must_use]
    pub fn with_last(mut self, those: UpstreamSet) -> Self {
        self.candidates[..self.fit].sort_by_key(|slot| those.contains(*slot));
        self
    }

    /// Those of them that are in `those`, in the same order.
    #[must_use]
    pub fn only(&self, those: UpstreamSet) -> Self {
        let kept_of = |end: usize| {
            self.candidates[..end].iter().copied().filter(|slot| those.contains(*slot))
        };
        let count = |end| kept_of(end).count();
        let mut candidates = [Slot(0); CANDIDATES_MAX];
        candidates.iter_mut().zip(kept_of(self.len)).for_each(|(place, slot)| *place = slot);
        Self {
            candidates,
            len: count(self.len),
            fit: count(self.fit),
            holding: count(self.holding),
            well: count(self.well),
            unwell: count(self.unwell),
            unwell_end: count(self.unwell_end),
            is_unoffered: self.is_unoffered,
        }
    }

    /// Whether no upstream offers the method: no healthy one does, and none of the others was seen
    /// to.
    pub fn is_unoffered(&self) -> bool {
        self.is_unoffered
    }

    /// All candidates; the first is tried first.
    pub fn candidates(&self) -> &[Slot] {
        &self.candidates[..self.len]
    }

    /// How many of them, from the front, are fit; the others are last resorts.
    pub fn fit(&self) -> usize {
        self.fit
    }

    /// How many of them, from the front, are well and hold the block as far as is known: the
    /// fit ones, and those whose rate or pause holds the call for now.
    pub fn holding(&self) -> usize {
        self.holding
    }

    /// How many of them, from the front, are well: the fit ones, held or not, and those that did not
    /// hold the block when they were last heard of. That was a moment ago: a poll is
    /// slower than a block, so by now they may have it, and another's word that something
    /// is missing must not speak for them.
    pub fn well(&self) -> usize {
        self.well
    }

    /// How many of them, from the front, are up: the healthy ones, and those that lag, are astray or
    /// fail calls of this class more often than others.
    pub fn up(&self) -> usize {
        self.unwell
    }

    /// Those of them that were left out for their condition alone, as far as was looked. They
    /// may come back while the call is under way.
    pub fn unwell(&self) -> &[Slot] {
        &self.candidates[self.unwell..self.unwell_end]
    }
}

/// Says whether `upstream` can serve `ask`. The one place that decides it: the
/// plan and the explanation of a plan both ask here.
pub fn assess(ask: &PlanRequest<'_>, upstream: &Upstream, view: &View, now: Instant) -> Fitness {
    let slot = upstream.slot();
    if !ask.eligible.contains(slot) {
        return Fitness::NotEligible;
    }
    match upstream.condition(now) {
        // An upstream that asked for a pause is healthy, and worth waiting for.
        Condition::Ready | Condition::Throttled => {}
        // Without probes, a client's call has to detect its recovery.
        Condition::HalfOpen | Condition::OutOfService
            if ask.row.idempotent && upstream.takes_trial(now) => {}
        unwell => return Fitness::Unwell(unwell),
    }
    match upstream.offer(ask.row, now) {
        Offer::Open => {}
        Offer::Refused => return Fitness::MethodUnknown,
        Offer::Lacking => return Fitness::MethodLacking,
    }
    if view.is_lagging(slot, upstream.identity().lag_blocks_max) {
        return Fitness::Lagging { blocks: view.lag_blocks(slot).unwrap_or_default() };
    }
    if view.is_astray(slot) {
        return Fitness::Astray;
    }
    if upstream.class_rests(ask.row.class, now) {
        return Fitness::ClassRests;
    }
    // The newest block that an idle upstream holds is not known, and it is given a chance: its
    // head is asked for beside its first call. What it keeps is counted from the agreed head.
    let head = match view.is_idle(slot) {
        true => view.head(slot).and(view.latest).map(|head| head.number),
        false => view.tip(slot),
    };
    if let Some(data) = Data::of(ask.row.class) {
        if let Some(asked) = ask.oldest
            && let Some(oldest) = upstream.oldest(data, head, now)
            && asked < oldest
        {
            return Fitness::Pruned { oldest };
        }
        if ask.span > 1 || ask.filter.addresses > 1 {
            let limits = upstream.search_limits(data, ask.filter, now);
            let max = |limit: Option<SizeLimit>| limit.map_or(u64::MAX, |limit| limit.at_once);
            match (max(limits.blocks), max(limits.addresses)) {
                (max, _) if ask.span > max.max(1) => return Fitness::TooWide { max },
                (_, max) if ask.filter.addresses > max => {
                    return Fitness::TooManyAddresses { max };
                }
                _ => {}
            }
        }
    }
    match (ask.needed, view.tip(slot)) {
        (Some(needed), Some(head)) if head < needed => Fitness::Behind { head },
        _ => {
            let pause = upstream.paused_for(ask.row, now).map_or(Duration::ZERO, |held| held.wait);
            match upstream.rate_wait(ask.row, now).max(pause) {
                wait if wait >= HOLD_SHORT => Fitness::Held { wait },
                _ => Fitness::Fit,
            }
        }
    }
}

/// One upstream on its way into the plan.
#[derive(Clone, Copy)]
struct PlanEntry {
    rank: u8,
    tier: Tier,
    cost: f64,
    slot: Slot,
}

/// Orders the upstreams of `roster` for `ask`, seen from one pinned `view`.
///
/// An empty plan means that no upstream may be used: all are on another chain, not
/// yet verified or being removed.
pub fn plan(
    ask: &PlanRequest<'_>,
    view: &View,
    roster: &Roster,
    now: Instant,
    rng: &mut impl Rng,
) -> Plan {
    // Making room for as many as there may be costs more than all the rest for the usual few.
    match roster.upstreams().len() {
        0..=FEW => order::<FEW>(ask, view, roster, now, rng),
        _ => order::<UPSTREAMS_MAX>(ask, view, roster, now, rng),
    }
}

/// The plan for a roster of at most `MAX`.
fn order<const MAX: usize>(
    ask: &PlanRequest<'_>,
    view: &View,
    roster: &Roster,
    now: Instant,
    rng: &mut impl Rng,
) -> Plan {
    let blank = PlanEntry { rank: 0, tier: Tier::Primary, cost: 0.0, slot: Slot(0) };
    let mut entries = [blank; MAX];
    let mut len = 0;
    let (mut is_lacking, mut may_be_offered) = (false, false);
    for upstream in roster.upstreams().iter().take(MAX) {
        let fitness = assess(ask, upstream, view, now);
        is_lacking |= fitness == Fitness::MethodLacking;
        let Some(rank) = fitness.rank() else { continue };
        may_be_offered |= !matches!(fitness, Fitness::Unwell(_)) || upstream.has_offered(ask.row);
        let chance = 1.0 + COST_CHANCE * rng.random::<f64>();
        entries[len] = PlanEntry {
            rank,
            tier: upstream.identity().tier,
            cost: match ask.caller {
                Some(caller) => roster.distance(upstream, caller),
                // Unmeasured upstreams cost nothing; the added chance still shuffles them.
                None => {
                    let weight = f64::from(upstream.identity().weight.max(1));
                    (upstream.cost(ask.row.class, now) + 1.0) * chance / weight
                }
            },
            slot: upstream.slot(),
        };
        len += 1;
    }
    let is_unoffered = is_lacking && !may_be_offered;
    if is_unoffered {
        len = 0;
    }
    let entries = &mut entries[..len];
    entries.sort_unstable_by(|a, b| {
        (a.rank, a.tier)
            .cmp(&(b.rank, b.tier))
            .then(a.cost.partial_cmp(&b.cost).unwrap_or(Ordering::Equal))
    });
    if ask.caller.is_none() {
        draw_two(entries, rng);
    }

    let mut candidates = [Slot(0); CANDIDATES_MAX];
    let kept = len.min(CANDIDATES_MAX);
    for (place, entry) in candidates.iter_mut().zip(entries.iter()) {
        *place = entry.slot;
    }
    let up_to = |rank| entries.iter().take(kept).filter(|entry| entry.rank <= rank).count();
    let (fit, holding, well) = (up_to(RANK_FIT), up_to(RANK_HELD), up_to(RANK_BEHIND));
    let (unwell, unwell_end) = (up_to(RANK_CLASS_RESTS), up_to(RANK_TOO_WIDE - 1));
    Plan { candidates, len: kept, fit, holding, well, unwell, unwell_end, is_unoffered }
}

/// Moves the cheaper of two drawn from the leading group to the front.
fn draw_two(sorted: &mut [PlanEntry], rng: &mut impl Rng) {
    let Some(first) = sorted.first().copied() else { return };
    let equals = sorted
        .iter()
        .take_while(|entry| entry.rank == first.rank && entry.tier == first.tier)
        .count();
    if equals < DRAW_FROM {
        return;
    }
    let one = rng.random_range(0..equals);
    let other = rng.random_range(0..equals - 1);
    let other = if other >= one { other + 1 } else { other };
    // Sorted by cost: the lower place is the cheaper one.
    sorted[..=one.min(other)].rotate_right(1);
}

#[cfg(test)]
mod tests;
