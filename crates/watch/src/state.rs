//! What a loop remembers of its upstream from one question to the next.

use std::time::{Duration, Instant};

/// One that does not know a tag is left alone for this long in the end; after its first refusal,
/// which may be a fault, it is asked again at the usual time, and then each time twice as late.
const FINALITY_REFUSED: Duration = Duration::from_secs(600);
/// What it last said of itself.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) asked: Option<Instant>,
    pub(crate) syncing: bool,
    pub(crate) isolated: bool,
    pub(crate) finality: FinalityQuestions,
    pub(crate) origin_due: Option<Instant>,
    pub(crate) block_hash: HashProbe,
}

/// When it was asked for safe and final blocks, and which of the two it refuses.
#[derive(Debug, Default)]
pub(crate) struct FinalityQuestions {
    pub(crate) asked: Option<Instant>,
    pub(crate) finalized: TagRefusal,
    pub(crate) safe: TagRefusal,
}

/// How long a tag that was refused is not asked for.
#[derive(Debug, Default)]
pub(crate) struct TagRefusal {
    pause: Duration,
    until: Option<Instant>,
}

impl TagRefusal {
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Notes whether the tag was known, where it is asked for each `every`.
    pub(crate) fn note(&mut self, was_known: bool, every: Duration, now: Instant) {
        *self = match was_known {
            true => Self::default(),
            false => {
                let pause = (self.pause * 2).clamp(every, FINALITY_REFUSED);
                Self { pause, until: Some(now + pause) }
            }
        };
    }
}

/// What was found out of one upstream.
#[derive(Debug, Default)]
pub(crate) struct HashProbe {
    pub(crate) due: Option<Instant>,
    /// The name and version that it last gave itself.
    pub(crate) version: Option<String>,
    /// Whether it is known whether it honours hashes.
    pub(crate) is_known: bool,
    /// The pause before the next question, while it is not.
    pub(crate) pause: Duration,
}
