//! Answers are checked before they are used.
//!
//! An [`Inspect`] runs between the judge, which reads the envelope, and all users of
//! the verdict: health, the loop over candidates, and all later steps. A
//! void result becomes a failure of its upstream ([`VerdictClass::Void`]), so
//! that the next candidate is tried within the usual bounds.
//!
//! A streamed answer is not checked: when its end is known the client
//! has it. An inspector that needs the whole answer requests it ([`Inspect::whole_bytes`]).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wellhead_eth::MethodRow;
use wellhead_jsonrpc::raw;
use wellhead_upstream::{Payload, Upstream, Verdict, VerdictClass};

/// A result, and what was asked for it.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The row of the method.
    pub row: &'a MethodRow,
    /// The params as they were sent, raw JSON.
    pub params: Option<&'a [u8]>,
    /// The raw result. What follows it in its envelope may stand behind it, where that is long.
    pub result: &'a Bytes,
}

/// The rule of a verdict on a result that was to be looked at more closely than time allowed.
pub const HURRIED: &str = "unchecked-busy";

/// What was found of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspection {
    /// Nothing: there is nothing to look at, or no way to.
    Unchecked,
    /// Nothing, as there was no time to look at it as closely as the settings ask for.
    Hurried,
    /// Nothing is wrong with it, by this rule.
    Sound {
        /// The name for the trail.
        rule: &'static str,
    },
    /// It cannot be true, or answers another call.
    Invalid {
        /// What is wrong, in one word.
        check: &'static str,
        /// And for people.
        detail: String,
    },
}

/// What was found of several results, in their order.
pub type Inspections<'a> = Pin<Box<dyn Future<Output = Vec<Inspection>> + Send + 'a>>;

/// Looks at answers.
pub trait Inspect: fmt::Debug + Send + Sync {
    /// Whether answers of this upstream to this method are looked at. Asked for each answer, so
    /// it must be cheap.
    fn is_asked(&self, upstream: &Upstream, row: &MethodRow) -> bool;

    /// An answer to this method up to this long is held whole to be looked at, though
    /// it might flow.
    fn whole_bytes(&self, upstream: &Upstream, row: &MethodRow) -> usize;

    /// Looks at the answers of one exchange, to methods for which [`Inspect::is_asked`] and
    /// others.
    ///
    /// Resolves with as many inspections as there are answers, soon after `until` at the latest.
    /// What takes long must not be done on the thread that polls.
    fn inspect<'a>(
        &'a self,
        upstream: &'a Arc<Upstream>,
        answers: Vec<Answered<'a>>,
        until: Instant,
    ) -> Inspections<'a>;

    /// Takes note of an answer that flows, to a method for which [`Inspect::is_asked`].
    fn flows(&self, row: &MethodRow);
}

/// The result of a verdict that may be inspected.
pub(crate) fn subject(verdict: &Verdict) -> Option<&Bytes> {
    match &verdict.payload {
        Payload::Result(result) if verdict.class == VerdictClass::Answer => Some(result),
        Payload::Result(_) | Payload::Error(_) | Payload::None { .. } => None,
    }
}

/// `verdict` as it is after its result was looked at.
pub(crate) fn with_inspection(
    upstream: &Upstream,
    mut verdict: Verdict,
    inspection: Inspection,
) -> Verdict {
    match inspection {
        Inspection::Unchecked => verdict,
        Inspection::Hurried => {
            verdict.rule = HURRIED;
            verdict
        }
        Inspection::Sound { rule } => {
            verdict.rule = rule;
            verdict
        }
        Inspection::Invalid { check, detail } => {
            let detail = format!("`{check}`: {detail}");
            let void = Verdict::new(VerdictClass::Void, check, Payload::None { detail });
            upstream.redacted(void)
        }
    }
}

/// Has the answer to a single call looked at; `body` is the call as it was sent.
pub(crate) async fn inspected(
    inspect: &dyn Inspect,
    upstream: &Arc<Upstream>,
    (row, body): (&MethodRow, &[u8]),
    verdict: Verdict,
    until: Instant,
) -> Verdict {
    let Some(result) = subject(&verdict) else { return verdict };
    let answered = Answered { row, params: raw::field(body, "params"), result };
    let mut inspections = inspect.inspect(upstream, vec![answered], until).await;
    match inspections.pop() {
        Some(inspection) => with_inspection(upstream, verdict, inspection),
        None => verdict,
    }
}
