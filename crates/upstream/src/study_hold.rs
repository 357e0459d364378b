//! Clients' calls stay away for moments while wellhead measures where the limit of an upstream is.
//!
//! A call of a client would take a part of what is measured, and would meet a bucket that the study has emptied. So
//! such calls are held as by a pause: they go to other upstreams, or wait. A hold is short and is renewed while a
//! cell is played, so a study that dies holds no call for longer than [`HOLD_MAX`].
//!
//! For [`AFTERMATH`] after a hold the upstream may still refuse what it would serve at other times. Such a refusal
//! pauses, and no rate is learnt from it: it tells of the study.

use std::time::Duration;

use crate::stamp::{Stamp, StampCell};

/// No hold is longer.
const HOLD_MAX: Duration = Duration::from_secs(5);
/// After a hold, a bucket of a second is full again, and a window of ten seconds has passed.
const AFTERMATH: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct StudyHold {
    until: StampCell,
    /// Refusals teach rates again from here on.
    teaches_from: StampCell,
}

impl StudyHold {
    /// Holds calls for `time`, or for longer where they are held for longer already.
    pub(crate) fn hold(&self, time: Duration, now: Stamp) {
        let until = now.after(time.min(HOLD_MAX));
        self.until.advance(until);
        self.teaches_from.advance(until.after(AFTERMATH));
    }

    /// Ends a hold; whether there was one.
    pub(crate) fn release(&self, now: Stamp) -> bool {
        let held = self.until.get();
        self.until.clear();
        held > Some(now)
    }

    /// How long calls are held yet.
    pub(crate) fn left(&self, now: impl Fn() -> Duration) -> Option<Duration> {
        let left = self.until.get()?.since(Stamp::at(now()));
        (!left.is_zero()).then_some(left)
    }

    /// Whether a refusal may tell of the study.
    pub(crate) fn explains_refusals(&self, now: Stamp) -> bool {
        self.teaches_from.get() > Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stamp::tests::ms;

    #[test]
    fn a_hold_is_renewed_released_and_bounded() {
        let hold = StudyHold::default();
        let left = |at: u64| hold.left(|| Duration::from_millis(at)).map(|left| left.as_millis());
        assert_eq!((left(0), hold.explains_refusals(ms(1))), (None, false));
        hold.hold(Duration::from_secs(1), ms(1));
        hold.hold(Duration::from_millis(100), ms(501));
        assert_eq!((left(0), left(999), left(1_000)), (Some(1_000), Some(1), None));
        hold.hold(Duration::from_secs(3_600), ms(1_001));
        assert_eq!(left(1_000), Some(HOLD_MAX.as_millis()));
        assert!(hold.release(ms(2_001)) && !hold.release(ms(2_001)));
        assert_eq!(left(2_000), None);
        assert!(hold.explains_refusals(ms(15_000)) && !hold.explains_refusals(ms(16_001)));
    }
}
