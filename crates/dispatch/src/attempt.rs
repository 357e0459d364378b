//! One attempt: send, judge, settle, log what changed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wellhead_eth::MethodRow;
use wellhead_transport::{Exchange, Sent, Transport, TransportError, TransportErrorKind};
use wellhead_upstream::{Change, HealthEffect, Judge, Upstream, Verdict, VerdictClass};

use crate::now;

/// What an attempt brought, and whether the call may have been executed.
pub(crate) struct Settled {
    pub(crate) verdict: Verdict,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) sent: Sent,
}

/// How long one attempt may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// The attempt ends here.
    pub(crate) deadline: Instant,
    /// An upstream that had less time than this is not blamed for the silence: the
    /// request was late already, by somebody else's doing.
    pub(crate) blame_after: Duration,
}

/// Sends `body` to `upstream` and waits until the deadline at the latest.
pub(crate) async fn attempt(
    row: &MethodRow,
    body: Bytes,
    upstream: &Arc<Upstream>,
    transport: &dyn Transport,
    patience: Patience,
) -> Settled {
    let Patience { deadline, blame_after } = patience;
    let began = now();
    let was_unwell = upstream.probe_due(began).is_some();
    // Dropped with the future when the client goes away: the count stays true.
    let in_flight = upstream.begin(began);
    let mut unsettled = Unsettled { upstream, row, began, is_settled: false };
    let exchange = transport.exchange(Exchange { body, deadline, whole_max: usize::MAX });
    let reply = tokio::time::timeout_at(deadline.into(), exchange).await.unwrap_or_else(|_| {
        Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, String::new()))
    });
    let ended = now();
    let judge = Judge::standard();
    let (verdict, sent) = match &reply {
        Ok(reply) => {
            let verdict = judge.reply(row, reply);
            let sent = refused_unread(verdict.class);
            (verdict, sent)
        }
        Err(error) => (judge.transport(error), error.sent),
    };
    let had = deadline.saturating_duration_since(began);
    let change = if had < blame_after && ran_out_of_time(&reply) {
        Change::None
    } else {
        unsettled.is_settled = true;
        upstream.settle(row, &verdict, began, ended)
    };
    drop(unsettled);
    drop(in_flight);
    note(upstream, row, &verdict, change, was_unwell, ended);
    Settled { verdict, began, ended, sent }
}

/// An exchange without a verdict on its upstream: nobody waited for it, or not long
/// enough. Says on its way out how long it had lasted.
struct Unsettled<'a> {
    upstream: &'a Upstream,
    row: &'a MethodRow,
    began: Instant,
    is_settled: bool,
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        if !self.is_settled {
            let now = now();
            self.upstream.given_up(self.row, now.saturating_duration_since(self.began), now);
        }
    }
}

fn ran_out_of_time<T>(reply: &Result<T, TransportError>) -> bool {
    match reply {
        Ok(_) => false,
        Err(error) => match error.kind {
            TransportErrorKind::Timeout | TransportErrorKind::ConnectTimeout => true,
            TransportErrorKind::Dns
            | TransportErrorKind::Connect
            | TransportErrorKind::Tls
            | TransportErrorKind::Closed
            | TransportErrorKind::Truncated
            | TransportErrorKind::Protocol
            | TransportErrorKind::TooLarge
            | TransportErrorKind::PoolFull => false,
        },
    }
}

/// Whether a refusal means that the call was certainly not executed.
fn refused_unread(class: VerdictClass) -> Sent {
    match class {
        VerdictClass::Throttled
        | VerdictClass::Billing
        | VerdictClass::Auth
        | VerdictClass::Unsupported => Sent::No,
        VerdictClass::Answer
        | VerdictClass::Null
        | VerdictClass::Reverted
        | VerdictClass::CallerFault
        | VerdictClass::TransactionKnown
        | VerdictClass::TransactionRejected
        | VerdictClass::MissingData
        | VerdictClass::RangeTooLarge
        | VerdictClass::Fault
        | VerdictClass::Unknown => Sent::Maybe,
    }
}

/// Words for the upstream's status and, when something changed, for the log.
fn note(
    upstream: &Upstream,
    row: &MethodRow,
    verdict: &Verdict,
    change: Change,
    was_unwell: bool,
    now: Instant,
) {
    let id = &upstream.identity().id;
    if change == Change::Recovered {
        tracing::info!(upstream = %id, "upstream recovered");
    }
    match verdict.health {
        HealthEffect::Good | HealthEffect::Neutral => return,
        HealthEffect::Throttled
        | HealthEffect::Failed
        | HealthEffect::FailedAtOnce
        | HealthEffect::OutOfService => {}
    }
    let detail = verdict.detail();
    upstream.note_problem(format!("{}: {detail}", verdict.class.word()), now);
    let (method, rule) = (row.name, verdict.rule);
    match change {
        // It rested before and goes on: that was said when it began.
        Change::Rests if was_unwell => {
            tracing::debug!(upstream = %id, method, rule, %detail, "upstream failed again and rests longer");
        }
        Change::Rests => {
            tracing::warn!(upstream = %id, method, rule, %detail, "upstream failed and rests; calls go to others");
        }
        Change::WentOutOfService => {
            tracing::error!(upstream = %id, method, rule, %detail, "upstream refused our key or account; out of service until a probe succeeds");
        }
        Change::None | Change::Recovered => {
            tracing::debug!(upstream = %id, method, rule, %detail, "attempt failed");
        }
    }
}
