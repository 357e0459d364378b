//! What a call comes to, before it is written for its client.

use bytes::Bytes;
use wellhead_dispatch::{Failure, Trail};
use wellhead_eth::BlockNumber;
use wellhead_transport::Rest;
use wellhead_upstream::{Slot, UpstreamSet, VerdictClass};

use crate::answer::Refusal;
use crate::state::cache::SharedResult;
use crate::state::chain::ServedChain;
use crate::state::counts::{CacheResult, CallOutcome};

/// What there is to say.
pub(crate) enum CallResult {
    Result {
        result: Bytes,
        rest: Option<Box<dyn Rest>>,
        slot: Option<Slot>,
        trail: Trail,
        /// See [`crate::steps::empty_logs::SearchOutcome`].
        is_doubtful: bool,
    },
    Error {
        error: Bytes,
        slot: Slot,
        trail: Trail,
    },
    Refused {
        refusal: Refusal,
        outcome: CallOutcome,
        trail: Trail,
    },
}

impl CallResult {
    /// A result that was made here.
    pub(crate) fn local(result: String) -> Self {
        Self::whole(result.into(), None, Trail::default())
    }

    /// A result that is all there.
    pub(crate) fn result(result: Bytes, slot: Slot, trail: Trail) -> Self {
        Self::whole(result, Some(slot), trail)
    }

    /// A result that is all there and need not be an upstream's.
    pub(crate) fn whole(result: Bytes, slot: Option<Slot>, trail: Trail) -> Self {
        Self::Result { result, rest: None, slot, trail, is_doubtful: false }
    }

    pub(crate) fn trail(&self) -> &Trail {
        let (Self::Result { trail, .. } | Self::Error { trail, .. } | Self::Refused { trail, .. }) =
            self;
        trail
    }

    pub(crate) fn trail_mut(&mut self) -> &mut Trail {
        let (Self::Result { trail, .. } | Self::Error { trail, .. } | Self::Refused { trail, .. }) =
            self;
        trail
    }

    /// A call that no upstream is asked for.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::Refused { refusal, outcome: CallOutcome::Refused, trail: Trail::default() }
    }

    /// A call for which nothing could be passed on.
    pub(crate) fn failed(
        chain: &ServedChain,
        failure: Failure,
        trail: Trail,
        eligible: UpstreamSet,
    ) -> Self {
        let refusal = Refusal::failed(failure, &trail, &chain.roster, eligible);
        Self::Refused { refusal, outcome: CallOutcome::of(failure), trail }
    }

    /// A call whose last verdict holds nothing that could be passed on.
    pub(crate) fn exhausted(
        chain: &ServedChain,
        class: VerdictClass,
        trail: Trail,
        eligible: UpstreamSet,
    ) -> Self {
        let failure = Failure::Exhausted { class, retry_after: None };
        Self::failed(chain, failure, trail, eligible)
    }
}

impl From<SharedResult> for CallResult {
    fn from(landed: SharedResult) -> Self {
        let trail = Trail::default();
        match landed {
            SharedResult::Result(result, slot) => Self::whole(result, slot, trail),
            SharedResult::Error(error, slot) => Self::Error { error, slot, trail },
            SharedResult::Refused(refusal, outcome) => {
                Self::Refused { refusal: Refusal::clone(&refusal), outcome, trail }
            }
        }
    }
}

/// What is told of a call besides its answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Noted {
    /// The block that was written in the place of a tag.
    pub(crate) block: Option<BlockNumber>,
    /// What the cache had, if it was asked.
    pub(crate) found: Option<CacheResult>,
    /// See [`crate::steps::reasons::aside`]; only where the client asked for the trail.
    pub(crate) aside: Option<Box<str>>,
}
