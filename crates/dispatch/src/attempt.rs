//! One attempt: send, judge, settle, log what changed.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use wellhead_eth::MethodRow;
use wellhead_transport::{
    Exchange, ExchangeFuture, Rest, Sent, Transport, TransportError, TransportErrorKind, WireReply,
};
use wellhead_upstream::{
    Change, HealthEffect, InFlight, Judge, Payload, Upstream, Verdict, VerdictClass,
};

use crate::flow::{Account, Flowing};
use crate::hedge::{Alarm, within};
use crate::lane::{Gate, Place};
use crate::now;

/// What an attempt brought, and whether the call may have been executed.
pub(crate) struct Settled {
    pub(crate) verdict: Verdict,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) sent: Sent,
    /// What follows the beginning of a large result.
    pub(crate) rest: Option<Box<dyn Rest>>,
}

/// How long one attempt may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience<'a> {
    /// The attempt ends here.
    pub(crate) deadline: Instant,
    /// An upstream that had less time than this is not blamed for the silence: the
    /// request was late already, by somebody else's doing.
    pub(crate) blame_after: Duration,
    /// Rings when it takes long.
    pub(crate) alarm: Option<&'a Alarm>,
}

/// How much of an answer is held before it is passed on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room<'a> {
    /// A longer answer may be passed on as it arrives.
    pub(crate) whole_max: usize,
    /// One that has to be read whole may be this long.
    pub(crate) answer_max: usize,
    /// Who may pass one on; all are read whole when it is full or not there.
    pub(crate) flows: Option<&'a Gate>,
}

/// Sends `body` to the upstream that let `in_flight` go just now, and waits until the
/// deadline at the latest.
pub(crate) async fn attempt(
    row: &MethodRow,
    body: Bytes,
    upstream: &Arc<Upstream>,
    transport: &dyn Transport,
    in_flight: InFlight,
    patience: Patience<'_>,
    room: Room<'_>,
) -> Settled {
    let began = in_flight.began();
    let was_unwell = upstream.probe_due(began).is_some();
    let guarded = Guarded::begin(upstream, row, in_flight, patience);
    let whole_max = room.whole_max;
    let exchange = transport.exchange(Exchange { body, deadline: patience.deadline, whole_max });
    let judged = guarded.in_time(pin!(judged(row, exchange, room))).await;
    let ended = now();
    let (verdict, sent, rest) = match judged {
        Ok((verdict, rest)) => {
            let verdict = upstream.masked(verdict);
            let sent = refused_unread(verdict.class);
            (verdict, sent, rest)
        }
        Err(error) => {
            let verdict = Judge::standard().transport(&error);
            if !guarded.is_to_blame(&error) {
                guarded.give_up();
                note(upstream, row, &verdict, Change::None, was_unwell, ended);
                return Settled { verdict, began, ended, sent: error.sent, rest: None };
            }
            (verdict, error.sent, None)
        }
    };
    if let Some((rest, place)) = rest {
        let mut guarded = guarded;
        upstream.began_well(row, began, ended);
        let account = Account::new(guarded.ended(), row, place);
        let piece_timeout = patience.deadline.saturating_duration_since(began);
        let beginning: &[u8] = match &verdict.payload {
            Payload::Result(beginning) => beginning,
            // What flows has a result.
            Payload::Error(_) | Payload::None { .. } => &[],
        };
        let rest = Box::new(Flowing::new(rest, beginning, piece_timeout, Some(account), ended));
        return Settled { verdict, began, ended, sent, rest: Some(rest) };
    }
    let (change, _) = guarded.settle(&verdict, ended);
    note(upstream, row, &verdict, change, was_unwell, ended);
    Settled { verdict, began, ended, sent, rest: None }
}

/// Waits for the exchange and judges it. A large answer is judged by its beginning
/// where that says enough: our id first, then a result. Otherwise, and when enough of
/// them flow from this upstream already, it is read whole.
async fn judged(
    row: &MethodRow,
    exchange: ExchangeFuture<'_>,
    room: Room<'_>,
) -> Result<(Verdict, Option<(Box<dyn Rest>, Place)>), TransportError> {
    let reply = exchange.await?;
    if reply.rest.is_none() {
        return Ok((Judge::standard().reply(row, &reply), None));
    }
    // Boxed: nearly every answer is whole, and should not carry the state of those that are not.
    Box::pin(judged_in_part(row, reply, room)).await
}

async fn judged_in_part(
    row: &MethodRow,
    mut reply: WireReply,
    room: Room<'_>,
) -> Result<(Verdict, Option<(Box<dyn Rest>, Place)>), TransportError> {
    let judge = Judge::standard();
    let Some(rest) = reply.rest.take() else { return Ok((judge.reply(row, &reply), None)) };
    if let Some(verdict) = judge.beginning(&reply)
        && let Some(place) = room.flows.and_then(Gate::enter)
    {
        return Ok((verdict, Some((rest, place))));
    }
    reply.body = whole(std::mem::take(&mut reply.body), rest, room.answer_max).await?;
    Ok((judge.reply(row, &reply), None))
}

/// Reads what is left, within the bound on answers that are held.
async fn whole(
    first: Bytes,
    mut rest: Box<dyn Rest>,
    answer_max: usize,
) -> Result<Bytes, TransportError> {
    let mut body = BytesMut::from(first);
    while let Some(piece) = rest.next().await {
        let piece = piece?;
        if body.len() + piece.len() > answer_max {
            let kind = TransportErrorKind::TooLarge;
            return Err(TransportError::new(kind, Sent::Maybe, format!("over {answer_max} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body.freeze())
}

/// An exchange under way: counted as in flight, and never without a word on how long
/// it lasted, even when nobody waits for its end.
pub(crate) struct Guarded<'a> {
    upstream: &'a Arc<Upstream>,
    row: &'a MethodRow,
    began: Instant,
    patience: Patience<'a>,
    /// Dropped with the future when the client goes away: the count stays true.
    /// `None` once a verdict was settled.
    in_flight: Option<InFlight>,
}

impl<'a> Guarded<'a> {
    pub(crate) fn begin(
        upstream: &'a Arc<Upstream>,
        row: &'a MethodRow,
        in_flight: InFlight,
        patience: Patience<'a>,
    ) -> Self {
        let began = in_flight.began();
        Self { upstream, row, began, patience, in_flight: Some(in_flight) }
    }

    /// Waits for `work` until the deadline.
    pub(crate) async fn in_time<T>(
        &self,
        work: Pin<&mut impl Future<Output = Result<T, TransportError>>>,
    ) -> Result<T, TransportError> {
        let late = || TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, String::new());
        let Patience { deadline, alarm, .. } = self.patience;
        within(work, self.began, deadline, alarm).await.unwrap_or_else(|| Err(late()))
    }

    /// Whether the failure is the upstream's: one that ran out of time which was short
    /// from the start is not.
    pub(crate) fn is_to_blame(&self, error: &TransportError) -> bool {
        let had = self.patience.deadline.saturating_duration_since(self.began);
        had >= self.patience.blame_after || !ran_out_of_time(error)
    }

    /// Takes the verdict into account; the count goes on in what is returned.
    pub(crate) fn settle(mut self, verdict: &Verdict, ended: Instant) -> (Change, InFlight) {
        let change = self.upstream.settle(self.row, verdict, self.began, ended);
        (change, self.ended())
    }

    /// Ends without a verdict.
    pub(crate) fn give_up(self) {
        drop(self);
    }

    /// Ends because somebody else settled the verdicts.
    pub(crate) fn ended(&mut self) -> InFlight {
        self.in_flight.take().expect("taken only here, and each caller ends the exchange")
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            let now = now();
            self.upstream.given_up(self.row, now.saturating_duration_since(self.began), now);
        }
    }
}

fn ran_out_of_time(error: &TransportError) -> bool {
    match error.kind {
        TransportErrorKind::Timeout | TransportErrorKind::ConnectTimeout => true,
        TransportErrorKind::Dns
        | TransportErrorKind::Connect
        | TransportErrorKind::Tls
        | TransportErrorKind::Closed
        | TransportErrorKind::Truncated
        | TransportErrorKind::Protocol
        | TransportErrorKind::TooLarge
        | TransportErrorKind::PoolFull => false,
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
pub(crate) fn note(
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
    upstream.note_failure(verdict.class, format!("{}: {detail}", verdict.class.word()), now);
    let (method, rule) = (row.name, verdict.rule);
    match change {
        // It rested before and goes on: that was said when it began.
        Change::Rests if was_unwell => {
            tracing::debug!(upstream = %id, method, rule, %detail, "upstream failed again and rests longer");
        }
        Change::Rests => {
            tracing::warn!(upstream = %id, method, rule, %detail, "upstream failed and rests; calls go to others");
        }
        Change::ClassRests => {
            let class = row.class.word();
            tracing::warn!(upstream = %id, class, method, rule, %detail, "upstream fails calls of this class; they go to others");
        }
        Change::WentOutOfService => {
            tracing::error!(upstream = %id, method, rule, %detail, "upstream refused our key or account; out of service until a probe succeeds");
        }
        Change::None | Change::Recovered => {
            tracing::debug!(upstream = %id, method, rule, %detail, "attempt failed");
        }
    }
}
