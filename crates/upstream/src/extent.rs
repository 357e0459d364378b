//! What one upstream answers of the past and of searches, and what each answer teaches of that.
//!
//! The settings' word (`ReachSettings`) and what was learnt (`reach`, `search_limit`) meet here.

use std::time::Instant;

use wellhead_eth::{BlockNumber, Data, FilterShape, MethodRow};

use crate::search_limit::{Excess, SearchLimits, SearchSize, SizeLimit, both};
use crate::upstream::Upstream;
use crate::verdict::{Learnt, VerdictClass};

/// What a call asked for, as far as it teaches something.
#[derive(Debug, Clone, Copy)]
pub struct CallExtent {
    /// The oldest block that it needs.
    pub oldest: Option<BlockNumber>,
    /// The upstream's own head.
    pub head: Option<BlockNumber>,
    /// How much is searched.
    pub size: SearchSize,
}

impl Upstream {
    /// The oldest block of which it keeps this, as far as is known; `head` is its own.
    pub fn oldest(
        &self,
        data: Data,
        head: Option<BlockNumber>,
        now: Instant,
    ) -> Option<BlockNumber> {
        self.state.reach.oldest(data, self.history.kept(data), head, self.stamp(now))
    }

    /// Over how many blocks it searches at once, as far as is known: the settings' word
    /// counts, else its own.
    pub fn range_max(&self, data: Data, now: Instant) -> Option<u64> {
        self.history.range_max.or_else(|| self.state.reach.range_max(data, self.stamp(now)))
    }

    /// Whether a block was missing lately of what calls of `row` read, or a search was too large,
    /// so that an answer is worth a [`Upstream::learn_reach`].
    pub fn has_refused_any(&self, row: &MethodRow) -> bool {
        let data = Data::of(row.class);
        data.is_some_and(|data| self.state.reach.is_anything_missing(data))
            || (data.is_some() && self.state.reach.limits.has_refused_any())
    }

    /// Takes in what its words about a call say of how far it reaches. See
    /// [`Upstream::settle`] for the rest.
    pub fn learn_reach(
        &self,
        row: &MethodRow,
        class: VerdictClass,
        learnt: Option<Learnt>,
        asked: &CallExtent,
        now: Instant,
    ) {
        let Some(data) = Data::of(row.class) else { return };
        let now = self.stamp(now);
        let limits = &self.state.reach.limits;
        let refused = |excess| limits.refused(data, asked.size, excess, now);
        match (learnt, class) {
            (Some(Learnt::PrunedBelow { number }), _) => {
                self.state.reach.pruned_below(data, number, now);
            }
            (Some(Learnt::NoHistory), _) => self.state.reach.no_history(data, asked.head, now),
            (Some(Learnt::RangeMax { blocks }), _) => {
                self.state.reach.range_at_most(data, blocks, now);
            }
            (Some(Learnt::RangeRefused), _) => refused(Excess::Range),
            (Some(Learnt::AddressesMax { addresses }), _) => {
                refused(Excess::Addresses { suggested: Some(addresses) });
            }
            (_, VerdictClass::FilterTooLarge) => refused(Excess::Addresses { suggested: None }),
            (Some(Learnt::RangeHint { from, to }), _) => {
                let suggested = Some((to - from).saturating_add(1));
                refused(Excess::Results { suggested });
            }
            (_, VerdictClass::RangeTooLarge) => refused(Excess::Results { suggested: None }),
            (_, VerdictClass::MissingData) => {
                if let (Some(oldest), Some(head)) = (asked.oldest, asked.head) {
                    self.state.reach.missed(data, oldest, head, now);
                }
            }
            (_, VerdictClass::Answer) => {
                if let Some(oldest) = asked.oldest {
                    self.state.reach.had(data, oldest, now);
                }
                limits.answered(data, asked.size, now);
            }
            _ => {}
        }
    }

    /// How much of a search for `filter` it answers at once, as far as is known.
    pub fn search_limits(&self, data: Data, filter: FilterShape, now: Instant) -> SearchLimits {
        let learnt = self.state.reach.limits.read(data, filter, self.stamp(now));
        let named = self.range_max(data, now).map(SizeLimit::named);
        SearchLimits { blocks: both(named, learnt.blocks), ..learnt }
    }
}
