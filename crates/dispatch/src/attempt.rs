//! One attempt: send, judge, have the answer looked at, settle, log what changed.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use wellhead_eth::MethodRow;
use wellhead_transport::{
    Exchange, ExchangeFuture, FREE_BYTES, MemoryBudget, Reservation, Rest, Sent, Shortage,
    TRUSTED_LENGTH_MAX, Transport, TransportError, TransportErrorKind, WireReply,
};
use wellhead_upstream::{Change, InFlight, Judge, Payload, Upstream, Verdict};

use crate::flow::Flowing;
use crate::flow_account::FlowAccount;
use crate::flows::{FlowPermit, MayFlow};
use crate::health_log::ExchangeRecord;
use crate::hedge_timer::{HedgeTimer, within};
use crate::inspect::{Inspect, inspected, subject};
use crate::now;
use crate::trace_seed::TracedOrigin;

/// What an attempt brought, and whether the call may have been executed.
pub(crate) struct AttemptResult {
    pub(crate) verdict: Verdict,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) sent: Sent,
    /// What follows the beginning of a large result.
    pub(crate) rest: Option<Box<dyn Rest>>,
    /// There was an answer, and no room for it.
    pub(crate) no_room: bool,
}

impl AttemptResult {
    /// One without anything that follows.
    pub(crate) fn whole(verdict: Verdict, began: Instant, ended: Instant, sent: Sent) -> Self {
        Self { verdict, began, ended, sent, rest: None, no_room: false }
    }
}

/// How long an answer waits for the memory of others: those are on their way to clients, most of
/// which read them within a second.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// How often it looks.
const ROOM_LOOK: Duration = Duration::from_millis(10);
/// Room that is asked for at first; then twice as much each time.
const ROOM_STEP: usize = 256 << 10;

/// How long one attempt may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptDeadline<'a> {
    /// The attempt ends here.
    pub(crate) deadline: Instant,
    /// An upstream that had less time than this is not blamed for the silence: the request was late
    /// already, for another reason.
    pub(crate) blame_after: Duration,
    /// Rings when it takes long.
    pub(crate) hedge_timer: Option<&'a HedgeTimer>,
}

/// The handling of an answer as it arrives: how much of it is buffered before it is streamed,
/// and the inspector that checks it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerLimits<'a> {
    /// A longer answer may be passed on as it arrives.
    pub(crate) whole_max: usize,
    /// One that has to be read whole may be this long.
    pub(crate) answer_max: usize,
    /// Where one may be passed on; all are read whole when no place is left or this is not there.
    pub(crate) flows: Option<MayFlow<'a>>,
    /// Where answers are counted; `None` for those that are small.
    pub(crate) answers: Option<&'a Arc<MemoryBudget>>,
    /// The inspector.
    pub(crate) inspect: Option<&'a dyn Inspect>,
}

/// One call as it goes to one upstream.
pub(crate) struct SingleCall<'a> {
    pub(crate) row: &'a MethodRow,
    pub(crate) body: Bytes,
    pub(crate) upstream: &'a Arc<Upstream>,
    pub(crate) transport: &'a dyn Transport,
    /// If it is traced.
    pub(crate) origin: Option<TracedOrigin<'a>>,
}

/// Sends `call` to its upstream, which let `in_flight` go just now, and waits until the
/// deadline at the latest.
pub(crate) async fn attempt(
    call: SingleCall<'_>,
    in_flight: InFlight,
    time_limit: AttemptDeadline<'_>,
    limits: AnswerLimits<'_>,
) -> AttemptResult {
    let SingleCall { row, body, upstream, transport, origin } = call;
    let began = in_flight.began();
    let trace = origin.and_then(|origin| origin.attempt(upstream.slot(), began, transport));
    let mut guarded = Guarded::begin(upstream, row, in_flight, time_limit);
    let (whole_max, bulky) = (limits.whole_max, row.class.is_heavy());
    let inspect = limits.inspect.filter(|inspect| inspect.is_asked(upstream, row));
    let inspect = inspect.map(|inspect| (inspect, body.clone()));
    let exchange = Exchange { body, deadline: time_limit.deadline, whole_max, bulky, trace };
    let exchange = transport.exchange(exchange);
    let judged = guarded.in_time(pin!(judged(row, exchange, limits))).await;
    let ended = now();
    let whole = |verdict, sent| AttemptResult::whole(verdict, began, ended, sent);
    let Judged { verdict, rest, waited } = match judged {
        Ok(judged) => judged,
        Err(error) => {
            let verdict = guarded.fail(&error, ended);
            let no_room = error.kind == TransportErrorKind::NoRoom;
            return AttemptResult { no_room, ..whole(verdict, error.sent) };
        }
    };
    let verdict = upstream.redacted(verdict);
    let sent = if verdict.class.is_refused_unread() { Sent::No } else { Sent::Maybe };
    // When the upstream's part was done, but for the time that the answer waited for room: that is
    // the clients' doing.
    let came = ended - waited;
    if let Some(rest) = rest {
        if let Some((inspect, _)) = inspect {
            inspect.flows(row);
        }
        let rest = guarded.flow(rest, &verdict, came, ended);
        return AttemptResult { rest: Some(rest), ..whole(verdict, sent) };
    }
    let verdict = match inspect {
        Some((inspect, body)) if subject(&verdict).is_some() => {
            guarded.hand_over(ended);
            let looked = inspected(inspect, upstream, (row, &body), verdict, time_limit.deadline);
            // Boxed, as no answer is inspected by default, and no call should carry its state.
            let verdict = Box::pin(looked).await;
            guarded.record.settle(&verdict, came, ended);
            verdict
        }
        Some(_) | None => {
            guarded.settle(&verdict, came, ended);
            verdict
        }
    };
    whole(verdict, sent)
}

/// A reply, judged.
struct Judged {
    verdict: Verdict,
    /// What follows the beginning of a large result.
    rest: Option<EnteredRest>,
    /// How long the answer waited for room.
    waited: Duration,
}

/// The rest of an answer, with its place among those that flow.
struct EnteredRest {
    rest: Box<dyn Rest>,
    entered: FlowPermit,
}

impl Judged {
    fn whole(verdict: Verdict) -> Self {
        Self { verdict, rest: None, waited: Duration::ZERO }
    }
}

/// Waits for the exchange and judges it. A large answer is judged by its beginning
/// where that says enough: our id first, then a result. Otherwise, and when enough of
/// them flow from this upstream already, it is read whole.
async fn judged(
    row: &MethodRow,
    exchange: ExchangeFuture<'_>,
    limits: AnswerLimits<'_>,
) -> Result<Judged, TransportError> {
    let reply = exchange.await?;
    if reply.rest.is_none() {
        return Ok(Judged::whole(Judge::standard().reply(row, &reply)));
    }
    // Boxed: nearly every answer is whole, and should not carry the state of those that are not.
    Box::pin(judged_in_part(row, reply, limits)).await
}

async fn judged_in_part(
    row: &MethodRow,
    mut reply: WireReply,
    limits: AnswerLimits<'_>,
) -> Result<Judged, TransportError> {
    let judge = Judge::standard();
    let Some(rest) = reply.rest.take() else {
        return Ok(Judged::whole(judge.reply(row, &reply)));
    };
    if let Some(verdict) = judge.beginning(&reply)
        && let Some(entered) = limits.flows.and_then(|flows| flows.enter(now()))
    {
        if reply.body.len() <= limits.whole_max
            && let Some(answers) = limits.answers
        {
            answers.note(Shortage::Flowed);
        }
        return Ok(Judged { rest: Some(EnteredRest { rest, entered }), ..Judged::whole(verdict) });
    }
    let first = std::mem::take(&mut reply.body);
    let mut waited = Duration::ZERO;
    let room = limits.answers.map(|memory| AnswerRoom { memory, may_overdraw: true });
    reply.body = whole(first, rest, limits.answer_max, room, &mut waited).await?;
    Ok(Judged { waited, ..Judged::whole(judge.reply(row, &reply)) })
}

/// Reads what is left, within the bound on answers that are held and that on all of them
/// together. An answer that finds no room waits only while it holds none, so answers never wait for
/// each other in a circle. The time of that wait is added to `waited`.
pub(crate) async fn whole(
    first: Bytes,
    mut rest: Box<dyn Rest>,
    answer_max: usize,
    room: Option<AnswerRoom<'_>>,
    waited: &mut Duration,
) -> Result<Bytes, TransportError> {
    let error = |kind, what: String| TransportError::new(kind, Sent::Maybe, what);
    let too_large = || error(TransportErrorKind::TooLarge, format!("over {answer_max} bytes"));
    let total = rest.announced().map(|left| first.len().saturating_add(left as usize));
    if total.is_some_and(|total| total > answer_max) {
        return Err(too_large());
    }
    let mut reservation = None;
    let mut body = Growing { first, joined: BytesMut::new() };
    loop {
        if body.len() > answer_max {
            return Err(too_large());
        }
        let Some(piece) = rest.next().await.transpose()? else { break };
        let len = body.len() + piece.len();
        if len > FREE_BYTES
            && len <= answer_max
            && let Some(room) = room
        {
            let step = room.step(len, total).min(answer_max);
            let fits = match &mut reservation {
                None => {
                    let began = now();
                    reservation = room.memory.try_hold_within(step);
                    if reservation.is_none() {
                        reservation = Box::pin(room.wait_for(room.needed(len, total))).await;
                    }
                    *waited += now().saturating_duration_since(began);
                    reservation.is_some()
                }
                Some(reservation) => {
                    len <= reservation.bytes()
                        || reservation.grow_within(step)
                        || room.grow(reservation, len)
                }
            };
            if !fits {
                room.memory.note(Shortage::Refused);
                return Err(error(TransportErrorKind::NoRoom, String::new()));
            }
        }
        let reserved = reservation.as_ref().map_or(0, Reservation::bytes);
        let trusted = reserved.max(TRUSTED_LENGTH_MAX).max(2 * len);
        body.add(&piece, total.map_or(2 * len, |total| total.min(trusted)));
    }
    let body = body.into_bytes();
    Ok(match room {
        Some(room) => room.memory.around(body, reservation),
        None => body,
    })
}

/// An answer that is put together: its beginning is copied once there is more.
struct Growing {
    first: Bytes,
    joined: BytesMut,
}

impl Growing {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// Adds a piece; memory that has to grow grows to `expected`, or to what is needed.
    fn add(&mut self, piece: &[u8], expected: usize) {
        let len = self.len() + piece.len();
        if len > self.joined.capacity() {
            self.joined.reserve(expected.max(len) - self.joined.len());
        }
        if !self.first.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(piece);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

/// Where an answer that is read whole is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerRoom<'a> {
    pub(crate) memory: &'a Arc<MemoryBudget>,
    /// Whether it may be the one answer that goes beyond a part. The answers to many calls are not one
    /// answer: they can be asked for one by one.
    pub(crate) may_overdraw: bool,
}

impl AnswerRoom<'_> {
    /// The room that an answer of `len` bytes so far asks for, of `total` in the end where that was
    /// announced.
    fn step(self, len: usize, total: Option<usize>) -> usize {
        match total {
            Some(total) if !self.may_overdraw => total.max(len),
            Some(_) | None => len.saturating_mul(2).max(ROOM_STEP),
        }
    }

    /// The room without which reading on is of no use. Exchanges of one batch run side by side: if each
    /// took room as it came, all would be read in part and none to its end.
    fn needed(self, len: usize, total: Option<usize>) -> usize {
        if self.may_overdraw { len } else { total.unwrap_or(len).max(len) }
    }

    fn hold(self, bytes: usize) -> Option<Reservation> {
        match self.may_overdraw {
            true => self.memory.try_hold(bytes),
            false => self.memory.try_hold_within(bytes),
        }
    }

    fn grow(self, reservation: &mut Reservation, bytes: usize) -> bool {
        match self.may_overdraw {
            true => reservation.grow(bytes),
            false => reservation.grow_within(bytes),
        }
    }

    /// Room for `bytes`, at once or within [`ROOM_WAIT`].
    async fn wait_for(self, bytes: usize) -> Option<Reservation> {
        if let Some(reservation) = self.hold(bytes) {
            return Some(reservation);
        }
        if !self.memory.is_worth_waiting(bytes) {
            return None;
        }
        let _place = self.memory.queue()?;
        let until = now() + ROOM_WAIT;
        while now() < until {
            tokio::time::sleep(ROOM_LOOK).await;
            if let Some(reservation) = self.hold(bytes) {
                self.memory.note(Shortage::Waited);
                return Some(reservation);
            }
        }
        None
    }
}

/// An exchange in progress: counted as in flight, and its duration is recorded even if it is
/// abandoned.
pub(crate) struct Guarded<'a> {
    record: ExchangeRecord<'a>,
    time_limit: AttemptDeadline<'a>,
    /// Dropped with the future when the client goes away: the count stays true.
    /// `None` once a verdict was settled.
    in_flight: Option<InFlight>,
}

impl<'a> Guarded<'a> {
    pub(crate) fn begin(
        upstream: &'a Upstream,
        row: &'a MethodRow,
        in_flight: InFlight,
        time_limit: AttemptDeadline<'a>,
    ) -> Self {
        let record = ExchangeRecord::new(upstream, row, in_flight.began());
        Self { record, time_limit, in_flight: Some(in_flight) }
    }

    /// Waits for `work` until the deadline.
    pub(crate) async fn in_time<T>(
        &self,
        work: Pin<&mut impl Future<Output = Result<T, TransportError>>>,
    ) -> Result<T, TransportError> {
        let late = || TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, String::new());
        let AttemptDeadline { deadline, hedge_timer, .. } = self.time_limit;
        within(work, self.record.began, deadline, hedge_timer).await.unwrap_or_else(|| Err(late()))
    }

    /// Whether the failure is the upstream's: one that ran out of time which was short
    /// from the start is not.
    fn is_to_blame(&self, error: &TransportError) -> bool {
        let had = self.time_limit.deadline.saturating_duration_since(self.record.began);
        had >= self.time_limit.blame_after || !ran_out_of_time(error)
    }

    /// Takes the verdict into account, as of `came`, and ends.
    pub(crate) fn settle(&mut self, verdict: &Verdict, came: Instant, ended: Instant) {
        let ExchangeRecord { upstream, row, began, .. } = self.record;
        let change = upstream.settle(row, verdict, began, came);
        drop(self.ended());
        self.record.tell(verdict, change, ended);
    }

    /// Takes a failure into account that is the upstream's, and ends without a verdict after any
    /// other.
    pub(crate) fn fail(mut self, error: &TransportError, ended: Instant) -> Verdict {
        let record = self.record;
        let verdict = record.upstream.redacted(Judge::standard().transport(error));
        if self.is_to_blame(error) {
            self.settle(&verdict, ended, ended);
        } else {
            self.give_up();
            record.tell(&verdict, Change::None, ended);
        }
        verdict
    }

    /// The upstream's part is done: no other call waits for a place there, or hears that it is
    /// silent, while its answer is looked at.
    pub(crate) fn hand_over(&mut self, ended: Instant) {
        drop(self.ended());
        self.record.upstream.heard(ended);
    }

    /// The answer began well, and the rest of it flows to the client.
    fn flow(
        &mut self,
        EnteredRest { rest, entered }: EnteredRest,
        verdict: &Verdict,
        came: Instant,
        ended: Instant,
    ) -> Box<dyn Rest> {
        let ExchangeRecord { upstream, row, began, .. } = self.record;
        upstream.began_well(row, began, came);
        let account = FlowAccount::new(self.ended(), row, entered.share);
        let piece_timeout = self.time_limit.deadline.saturating_duration_since(began);
        let beginning: &[u8] = match &verdict.payload {
            Payload::Result(beginning) => beginning,
            // What flows has a result.
            Payload::Error(_) | Payload::None { .. } => &[],
        };
        let place = entered.place;
        Box::new(Flowing::new(rest, beginning, piece_timeout, Some(account), place, ended))
    }

    /// Ends without a verdict.
    pub(crate) fn give_up(self) {
        drop(self);
    }

    /// Ends because the verdicts were settled elsewhere.
    pub(crate) fn ended(&mut self) -> InFlight {
        self.in_flight.take().expect("taken only here, and each caller ends the exchange")
    }
}

impl Drop for Guarded<'_> {
    fn drop(&mut self) {
        if self.in_flight.is_some() {
            let (now, ExchangeRecord { upstream, row, began, .. }) = (now(), self.record);
            upstream.given_up(row, now.saturating_duration_since(began), now);
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
        | TransportErrorKind::PoolFull
        | TransportErrorKind::NoRoom => false,
    }
}
