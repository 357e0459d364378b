//! Conditions for CI: what a run must not be, whether it is, and the same for machines.
//!
//! A [`GateCondition`] is read from text (`condition`), decided from records and verdicts
//! ([`evaluate`]), and told as one JSON document ([`document`]) or as JUnit XML ([`junit`]). What a
//! figure needs and the run did not measure makes a condition inconclusive, never passed.
//! Which exit code follows is decided here too ([`GateOutcome`]); the process ends elsewhere.

mod condition;
mod document;
mod evaluate;
mod junit;
mod measure;

pub use condition::{ConditionError, GateCondition};
pub use document::{BaselineReport, DOCUMENT_SCHEMA, RunDocument, document};
pub use evaluate::{ConditionOutcome, ConditionResult, GateOutcome, decide, evaluate};
pub use junit::junit;
pub use measure::{Measure, MeasuredRun};
