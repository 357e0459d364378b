//! How a call ends.

use std::time::Duration;

use wellhead_transport::Rest;
use wellhead_upstream::{Bound, Learnt, Payload, Slot, Verdict, VerdictClass};

use crate::trail::Trail;

/// What an upstream said, to be passed on.
#[derive(Debug)]
pub struct Served {
    /// The upstream that answered.
    pub slot: Slot,
    /// What it was judged to be: an answer, or a refusal that no other upstream would lift.
    pub class: VerdictClass,
    /// What its words give away.
    pub learnt: Option<Learnt>,
    /// The raw result or the raw error object.
    pub payload: Payload,
    /// When present, `payload` is a result of which only the beginning has arrived;
    /// what follows is the remainder of the result and the end of the envelope.
    pub rest: Option<Box<dyn Rest>>,
}

impl Served {
    pub(crate) fn new(slot: Slot, verdict: Verdict, rest: Option<Box<dyn Rest>>) -> Self {
        let Verdict { class, learnt, payload, .. } = verdict;
        Self { slot, class, learnt, payload, rest }
    }
}

/// Why there is nothing to pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The plan was empty.
    EmptyPlan,
    /// No upstream that is well offers the method, as each said lately, so that none was asked.
    NotOffered,
    /// The time was over.
    Deadline,
    /// All candidates failed; `class` describes their failures best.
    Exhausted {
        /// The most specific verdict.
        class: VerdictClass,
        /// The shortest pause that any of them asked for.
        retry_after: Option<Duration>,
    },
    /// There was an answer, and our memory for answers is full.
    NoRoom,
    /// The request has made this many upstream calls, and may make no more.
    CallsSpent {
        /// The most that it may make.
        max: u32,
    },
    /// No upstream was called: all are at a limit, until after the deadline.
    Held {
        /// The bound that ends first.
        bound: Bound,
        /// When that may be.
        retry_after: Duration,
    },
    /// The upstreams of a quorum contradict each other.
    Disputed {
        /// The most upstreams with one answer.
        agreed: usize,
        /// Upstreams that answered.
        heard: usize,
        /// Upstreams that had to agree.
        agree: usize,
    },
    /// Fewer were heard than had to agree.
    TooFew {
        /// So many were heard.
        heard: usize,
        /// So many had to agree.
        agree: usize,
    },
}

/// The end of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What to pass on, or why there is nothing.
    pub result: Result<Served, Failure>,
    /// What was tried.
    pub trail: Trail,
}
