//! How a search is divided: by what upstreams are known to accept, and by what one refused.

use std::sync::Arc;
use std::time::Instant;

use wellhead_chain::View;
use wellhead_dispatch::{Failure, Job, Served};
use wellhead_eth::{BlockRef, Data, FilterShape};
use wellhead_jsonrpc::raw;
use wellhead_route::{Fitness, PlanRequest, assess};
use wellhead_upstream::{Learnt, Payload, SizeLimit, Upstream, VerdictClass};

use crate::answer::Refusal;
use crate::state::chain::{SearchBounds, ServedChain};
use crate::state::parts::{PartSize, Stuck};

/// A refusal for the results that suggests a length is believed for the blocks around: a search
/// that would need more calls even with parts this many times as long is refused at once.
const DENSE_GROWTH_MAX: u64 = 8;

/// The blocks that a search goes over, both ends included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// It is one block that the call names by its hash.
    pub(crate) is_hash: bool,
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
            BlockRef::Hash(_) => Self { from: 0, to: 0, is_hash: true },
            block => {
                let (from, to) = block.heights().filter(|(from, to)| from <= to)?;
                Self { from: from.0, to: to.0, is_hash: false }
            }
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
    pub(crate) fn up_to_head(self, view: &View) -> Self {
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
    pub(crate) range: Range,
    pub(crate) size: PartSize,
}

/// How to divide a search when no upstream that could serve `ask` is known to accept all of it;
/// by what the one accepts that needs the fewest calls.
pub(crate) fn widest(
    chain: &ServedChain,
    job: &Job<'_>,
    ask: &PlanRequest<'_>,
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
pub(crate) fn hint(learnt: Option<Learnt>, asked: u64) -> (Option<u64>, Option<u64>) {
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
pub(crate) fn addresses_hint(learnt: Option<Learnt>) -> Option<u64> {
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
pub(crate) fn refusal(result: &Result<Served, Failure>) -> Option<(VerdictClass, Option<Learnt>)> {
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
    ask: &PlanRequest<'_>,
    result: &Result<Served, Failure>,
) -> Option<Refusal> {
    let (VerdictClass::FilterTooLarge, _) = refusal(result)? else { return None };
    let Ok(served) = result else { return None };
    Some(Refusal::filter_too_large(chain, served, ask.filter))
}

impl Refusal {
    /// A search that cannot be divided into calls that upstreams accept.
    pub(crate) fn too_wide(blocks: u64, why: Stuck, bounds: SearchBounds) -> Self {
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
    pub(crate) fn filter_too_large(
        chain: &ServedChain,
        served: &Served,
        filter: FilterShape,
    ) -> Self {
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
