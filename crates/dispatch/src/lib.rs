//! Runs a plan: one attempt after another until an upstream answered, within
//! the bounds and before the deadline.
//!
//! `decide` says what a call does next, as a plain function of what happened so far (`attempts`)
//! and of how the candidates stand (`candidate`); `run` does it and asks again.
//!
//! Each attempt is sent, judged and settled with its upstream; the verdict alone
//! says whether another upstream may heal it. A call that must not run twice is
//! repeated only when it certainly never ran. What was tried is returned as a
//! [`Trail`]; nothing is written back into an earlier stage.
//!
//! A read that takes long gets a second attempt at another upstream (`hedge`), a raw
//! transaction goes to several at once (`broadcast`), and what all that may cost is bounded
//! ([`RetryBudget`](wellhead_limit::RetryBudget)).
//!
//! Each answer may be looked at before it is believed ([`Inspect`]); one found void is a
//! failure of its upstream.
//!
//! [`run_batch`] sends several reads in one exchange; a large result may flow to the
//! client as it arrives ([`Served::rest`]).
//!
//! Where several upstreams must answer alike, [`Quorum`] says how many; `quorum` asks them.

mod allowance;
mod attempt;
mod attempts;
mod ballot;
mod batch;
mod bounds;
mod broadcast;
mod candidate;
mod client_id;
mod context;
mod decide;
mod flow;
mod flow_account;
mod flows;
mod health_log;
mod hedge;
mod hedge_timer;
mod inspect;
mod job;
mod outcome;
mod preview;
mod progress;
mod quorum;
mod run;
mod trace_seed;
mod trail;
mod wait_queue;
mod worker_upstreams;

pub use allowance::Allowance;
pub use ballot::{Ballot, Otherwise, Quorum};
pub use batch::{BATCH_ITEMS_MAX, BatchContext, BatchItem, BatchOutcome, run_batch};
pub use bounds::{Bounds, Hedging, TierScope};
pub use client_id::ClientId;
pub use flow::paced;
pub use flows::{FlowPlace, Flows};
pub use inspect::{Answered, HURRIED, Inspect, Inspection, Inspections};
pub use job::{AtHash, Job};
pub use outcome::{Failure, Outcome, Served};
pub use preview::{PreviewStep, preview};
pub use progress::Progress;
pub use run::run;
pub use trace_seed::TraceSeed;
pub use trail::{Abandoned, Attempt, Heard, Hold, Trail, attempt_context};
pub use wait_queue::PLACES_MAX;
pub use worker_upstreams::WorkerUpstreams;

use std::time::Instant;

/// Now, by tokio's clock, which tests pause.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
