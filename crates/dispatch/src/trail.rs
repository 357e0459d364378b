//! What was tried for one request, in order.

use std::fmt::Write;
use std::time::Duration;

use wellhead_route::Roster;
use wellhead_transport::TraceContext;
use wellhead_upstream::{Bound, Learnt, LimitedBy, Slot, VerdictClass};

/// One exchange with one upstream.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The upstream.
    pub slot: Slot,
    /// How long after the request began it was sent.
    pub after: Duration,
    /// How long it took.
    pub took: Duration,
    /// How it was judged.
    pub class: VerdictClass,
    /// By which rule.
    pub rule: &'static str,
    /// What its words give away.
    pub learnt: Option<Learnt>,
    /// What a person should know, without secrets; empty for an answer.
    pub detail: String,
}

/// The span of an exchange with `slot` that began `after` its request, below the span of the request. Computed when
/// the exchange begins, for its upstream, and again from the trail when the request has ended. Two exchanges of one
/// request share it if they begin with one upstream in one nanosecond.
pub fn attempt_context(request: &TraceContext, slot: Slot, after: Duration) -> TraceContext {
    // Eight bits for the slot, and fifty-six for the time, which is two years.
    let after = after.as_nanos() as u64 & ((1 << 56) - 1);
    request.child((slot.index() as u64) << 56 | after)
}

/// An abandoned exchange: another upstream had answered.
#[derive(Debug, Clone)]
pub struct Abandoned {
    /// The upstream.
    pub slot: Slot,
    /// How long after the request began it was sent.
    pub after: Duration,
    /// How long it was waited for.
    pub took: Duration,
}

/// An upstream that was not asked because it is at a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The upstream.
    pub slot: Slot,
    /// The limit that delays its calls.
    pub bound: Bound,
    /// For about how long.
    pub wait: Duration,
}

/// How many were heard where several must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard {
    /// So many said what was served, or what most of them said.
    pub agreed: usize,
    /// So many said anything.
    pub heard: usize,
}

/// All attempts of one request.
#[derive(Debug, Clone, Default)]
pub struct Trail {
    /// Those that ended, in the order in which they did.
    pub attempts: Vec<Attempt>,
    /// Those that were left: a second attempt was quicker, or a transaction was taken
    /// elsewhere.
    pub abandoned: Vec<Abandoned>,
    /// The upstreams that were skipped, and why; each once, with the last reason.
    pub holds: Vec<Hold>,
    /// With a quorum: how many upstreams agreed, of those that answered.
    pub heard: Option<Heard>,
}

impl Trail {
    pub(crate) fn hold(&mut self, slot: Slot, held: LimitedBy) {
        self.note(Hold { slot, bound: held.bound, wait: held.wait });
    }

    /// Adds what was tried for a part of the same request. Allocates nothing where nothing was
    /// tried before.
    pub fn append(&mut self, other: Self) {
        if self.exchanges() == 0 && self.holds.is_empty() && self.heard.is_none() {
            *self = other;
            return;
        }
        self.attempts.extend(other.attempts);
        self.abandoned.extend(other.abandoned);
        other.holds.into_iter().for_each(|hold| self.note(hold));
        // Of several parts the one on which fewest agreed.
        let least = self.heard.into_iter().chain(other.heard).min_by_key(|heard| heard.agreed);
        self.heard = least;
    }

    fn note(&mut self, hold: Hold) {
        self.holds.retain(|known| known.slot != hold.slot);
        self.holds.push(hold);
    }

    /// How many exchanges there were.
    pub fn exchanges(&self) -> usize {
        self.attempts.len() + self.abandoned.len()
    }

    /// From the arrival of the request to the end of the last attempt.
    pub fn lasted(&self) -> Duration {
        self.attempts.last().map_or(Duration::ZERO, |last| last.after + last.took)
    }

    /// One line: `geth-a=fault/connect:3ms reth-b=answer/result:12ms`.
    pub fn line(&self, roster: &Roster) -> String {
        let mut line = String::new();
        for attempt in &self.attempts {
            if !line.is_empty() {
                line.push(' ');
            }
            let id = &roster.upstream(attempt.slot).identity().id;
            let (class, rule) = (attempt.class.word(), attempt.rule);
            // Writing to a String cannot fail.
            let _ = write!(line, "{id}={class}/{rule}:{}ms", attempt.took.as_millis());
        }
        for left in &self.abandoned {
            let id = &roster.upstream(left.slot).identity().id;
            let _ = write!(line, " {id}=abandoned:{}ms", left.took.as_millis());
        }
        for hold in &self.holds {
            if !line.is_empty() {
                line.push(' ');
            }
            let id = &roster.upstream(hold.slot).identity().id;
            let _ = write!(line, "{id}=held/{}:{}ms", hold.bound.word(), hold.wait.as_millis());
        }
        if let Some(Heard { agreed, heard }) = self.heard {
            let _ = write!(line, " agreed={agreed}/{heard}");
        }
        line
    }
}
