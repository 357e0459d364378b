//! How a finding colours a card.

use crate::conclude::verdict::FindingBound::{Found, NotUpTo};
use crate::conclude::verdict::{AnswersDiffer, CapWay, Drift, Drifting, Finding};

/// Percent of failing calls from which on a target is unfit: at one in a hundred a page of a
/// hundred calls fails more often than not, and retries become a load of their own.
const UNFIT_PERCENT: f64 = 1.0;

/// What a finding means for the user of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// Nothing was concluded.
    Open,
    /// It limits nothing.
    Harmless,
    /// It limits what can be sent, or when.
    Limits,
    /// Calls fail or are answered wrongly, whatever is sent.
    Spoils,
}

/// How a finding weighs. A limit limits, whatever its figure is: it was found below what the run
/// offered, and what a run offers is what its user needs.
pub(super) fn weight(finding: &Finding) -> Weight {
    match finding {
        Finding::CannotTell { .. } => Weight::Open,
        Finding::Fails { low, .. } if *low > UNFIT_PERCENT => Weight::Spoils,
        // Most others have another answer; without a majority nothing shows which one is right.
        Finding::Answers(Found(AnswersDiffer { outvoted: 1.., .. })) => Weight::Spoils,
        Finding::Drift(Found(Drift { what: Drifting::Errors, to, .. }))
        | Finding::Step { what: Drifting::Errors, to, .. }
            if *to > UNFIT_PERCENT =>
        {
            Weight::Spoils
        }
        Finding::Drift(Found(Drift { what: Drifting::Throughput, from, to, .. }))
        | Finding::Step { what: Drifting::Throughput, from, to, .. } => limits_if(to < from),
        Finding::Drift(Found(Drift { from, to, .. })) | Finding::Step { from, to, .. } => {
            limits_if(to > from)
        }
        // What is announced is waited for by any client; other caps cost calls.
        Finding::StreamCap(Found(it)) => limits_if(it.way != CapWay::Announced),
        Finding::Recycle(Found(it)) => limits_if(!it.orderly),
        // Stale: half of the time a block or more behind.
        Finding::Lag(Found(it)) => limits_if(it.blocks > 0),
        Finding::Fails { .. }
        | Finding::Answers(Found(_))
        | Finding::Rate(Found(_))
        | Finding::InFlight { .. }
        | Finding::ConnectionCap { .. }
        | Finding::Bucket(Found(_))
        | Finding::Shaping(Found(_))
        | Finding::Capacity(Found(_))
        | Finding::Ended { .. } => Weight::Limits,
        Finding::Takes { .. }
        | Finding::StreamCap(NotUpTo(_))
        | Finding::Recycle(NotUpTo(_))
        | Finding::IdleClose(_)
        | Finding::Rate(NotUpTo(_))
        | Finding::Bucket(NotUpTo(_))
        | Finding::Shaping(NotUpTo(_))
        | Finding::Comparison(_)
        | Finding::BodyPace(_)
        | Finding::SmallWait(_)
        | Finding::Cost { .. }
        | Finding::Lag(NotUpTo(_))
        | Finding::Answers(NotUpTo(_))
        | Finding::Reach { .. }
        | Finding::Methods { .. }
        | Finding::WebSocket { .. }
        | Finding::Capacity(NotUpTo(_))
        | Finding::Users { .. }
        | Finding::Held { .. }
        | Finding::Adds { .. }
        | Finding::Drift(NotUpTo(_)) => Weight::Harmless,
    }
}

fn limits_if(is_worse: bool) -> Weight {
    if is_worse { Weight::Limits } else { Weight::Harmless }
}
