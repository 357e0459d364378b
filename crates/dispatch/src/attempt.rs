//! One attempt: send, judge, settle, log what changed.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use wellhead_eth::MethodRow;
use wellhead_transport::{Exchange, Sent, Transport, TransportError, TransportErrorKind};
use wellhead_upstream::{Change, Judge, Upstream, Verdict, VerdictClass};

use crate::now;

/// What an attempt brought, and whether the call may have been executed.
pub(crate) struct Settled {
    pub(crate) verdict: Verdict,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) sent: Sent,
}

/// Sends `body` to `upstream` and waits until `deadline` at the latest.
pub(crate) async fn attempt(
    row: &MethodRow,
    body: Bytes,
    upstream: &Arc<Upstream>,
    transport: &dyn Transport,
    deadline: Instant,
) -> Settled {
    let began = now();
    // Dropped with the future when the client goes away: the count stays true.
    let in_flight = upstream.begin(began);
    let exchange = transport.exchange(Exchange { body, deadline });
    let reply = match tokio::time::timeout_at(deadline.into(), exchange).await {
        Ok(reply) => reply,
        Err(_elapsed) => {
            Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, String::new()))
        }
    };
    let judge = Judge::standard();
    let (verdict, sent) = match &reply {
        Ok(reply) => {
            let verdict = judge.reply(row, reply);
            let sent = refused_unread(verdict.class);
            (verdict, sent)
        }
        Err(error) => (judge.transport(error), error.sent),
    };
    let ended = now();
    let change = upstream.settle(row, &verdict, began, ended);
    drop(in_flight);
    if !verdict.class.is_answer() {
        note(upstream, row, &verdict, change, ended);
    } else if change == Change::Recovered {
        tracing::info!(upstream = %upstream.identity().id, "upstream recovered");
    }
    Settled { verdict, began, ended, sent }
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
fn note(upstream: &Upstream, row: &MethodRow, verdict: &Verdict, change: Change, now: Instant) {
    let blamed = match verdict.health {
        wellhead_upstream::HealthEffect::Good | wellhead_upstream::HealthEffect::Neutral => false,
        wellhead_upstream::HealthEffect::Throttled
        | wellhead_upstream::HealthEffect::Failed
        | wellhead_upstream::HealthEffect::FailedAtOnce
        | wellhead_upstream::HealthEffect::OutOfService => true,
    };
    if !blamed {
        return;
    }
    let detail = verdict.detail();
    upstream.note_problem(format!("{}: {detail}", verdict.class.word()), now);
    let id = &upstream.identity().id;
    let (method, rule) = (row.name, verdict.rule);
    match change {
        Change::Rests => {
            tracing::warn!(upstream = %id, method, rule, %detail, "upstream failed and rests; calls go to others");
        }
        Change::WentOutOfService => {
            tracing::error!(upstream = %id, method, rule, %detail, "upstream refused our key or account; out of service until a probe succeeds");
        }
        Change::Recovered => tracing::info!(upstream = %id, "upstream recovered"),
        Change::None => {
            tracing::debug!(upstream = %id, method, rule, %detail, "attempt failed");
        }
    }
}
