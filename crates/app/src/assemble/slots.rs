//! Which slot each upstream of a chain has: an upstream keeps its slot for as long as it is served.

use std::time::{Duration, Instant};

use wellhead_upstream::{Slot, UPSTREAMS_MAX, UpstreamSet};

/// The slot of an upstream that is gone is given to another one after this time. A call that began at the old one
/// has ended by then, so that what it learns is not noted for the new one.
const REUSED_AFTER: Duration = Duration::from_secs(120);

/// The slots of one chain.
#[derive(Debug, Clone, Default)]
pub(super) struct SlotBook {
    used: UpstreamSet,
    /// Those of upstreams that are gone, the longest gone first.
    vacated: Vec<VacatedSlot>,
}

#[derive(Debug, Clone, Copy)]
struct VacatedSlot {
    slot: Slot,
    at: Instant,
}

impl SlotBook {
    /// The slots after a change: of those in use, these are kept.
    pub(super) fn keeping(&self, kept: UpstreamSet, now: Instant) -> Self {
        let mut vacated = self.vacated.clone();
        let gone = self.used.without(kept);
        vacated.extend(gone.iter().map(|slot| VacatedSlot { slot, at: now }));
        Self { used: kept, vacated }
    }

    /// A slot for one more upstream. A chain has at most [`UPSTREAMS_MAX`], so there is one: if need be, that which is
    /// vacant for the longest time.
    pub(super) fn take(&mut self, now: Instant) -> Slot {
        let is_rested = |it: &VacatedSlot| now.saturating_duration_since(it.at) >= REUSED_AFTER;
        let rested = self.vacated.iter().position(is_rested);
        let slot = match rested {
            Some(place) => self.vacated.remove(place).slot,
            None => self.never_used().unwrap_or_else(|| match self.vacated.is_empty() {
                true => Slot(u8::MAX),
                false => self.vacated.remove(0).slot,
            }),
        };
        self.used.insert(slot);
        slot
    }

    fn never_used(&self) -> Option<Slot> {
        let is_vacated = |slot: &Slot| self.vacated.iter().any(|it| it.slot == *slot);
        let mut all = (0..UPSTREAMS_MAX).filter_map(|slot| u8::try_from(slot).ok().map(Slot));
        all.find(|slot| !self.used.contains(*slot) && !is_vacated(slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_given_to_another_one_when_its_calls_have_ended() {
        let now = wellhead_dispatch::now();
        let mut book = SlotBook::default();
        assert_eq!([(); 3].map(|()| book.take(now)), [Slot(0), Slot(1), Slot(2)]);
        let mut book = book.keeping([Slot(0), Slot(2)].into_iter().collect(), now);
        assert_eq!(book.take(now), Slot(3));
        assert_eq!(book.take(now + REUSED_AFTER), Slot(1));
        assert_eq!(book.take(now + REUSED_AFTER), Slot(4));
    }

    #[test]
    fn there_is_always_one_for_as_many_as_there_may_be() {
        let now = wellhead_dispatch::now();
        let mut book = SlotBook::default();
        for change in 0..5 {
            book = book.keeping(UpstreamSet::default(), now);
            let taken: UpstreamSet = (0..UPSTREAMS_MAX).map(|_| book.take(now)).collect();
            assert_eq!(taken.len(), UPSTREAMS_MAX, "change {change}");
        }
    }
}
