//! Which questions the calls of one exchange are to answer about an upstream that rested.

use wellhead_eth::CostClass;

use crate::breaker::TrialClaim;

/// What the calls of one exchange are to find out: bits, one for each class that rested
/// and one for the upstream as a whole.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trials {
    pub(crate) ours: u8,
    is_second: bool,
}

impl Trials {
    /// The bit behind those of the classes.
    pub(crate) const WHOLE: u8 = 1 << CostClass::ALL.len();

    pub(crate) fn note(&mut self, place: u8, trial: TrialClaim) {
        match trial {
            TrialClaim::None => {}
            TrialClaim::Claimed => self.ours |= place,
            TrialClaim::Taken => self.is_second = true,
        }
    }

    /// Whether another call is finding out already what this one could.
    pub(crate) fn is_second(self) -> bool {
        self.is_second
    }
}
