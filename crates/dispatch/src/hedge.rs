//! A second attempt beside one that takes long, and leaving an upstream that stalls.
//!
//! An attempt that its upstream has not answered after the time in which it answers
//! nineteen in twenty calls of this class is hedged: the same call goes to
//! another fit upstream. The first good verdict is served and the other attempt is dropped. Only
//! reads that the method table calls idempotent, never filters, only while the hedges
//! have budget ([`RetryBudget`](wellhead_limit::RetryBudget)).
//!
//! A hedge is a bet on a slow call. An upstream that accepts calls and answers none is
//! another matter: all of its calls must go elsewhere at once, and five in a hundred is not
//! all. So a call that waits too long is also noted with its upstream, and once that looks
//! stalled (`wellhead_upstream::Upstream::is_silent`) its calls go on to fit upstreams as
//! calls do whose attempt failed: free. When one of them is answered there, the stall
//! counts as a failure that rests it at once.
//!
//! A hedge stays among upstreams of the tier that was asked, or a cheaper one, unless the
//! settings say otherwise. Leaving one that stalls does not: that is failing over. Where too few
//! calls are under way for a stall to show, a call of which nothing was heard for
//! [`QUIET_MIN`], nor for four times as long as its hedge waits, may be hedged in any tier.
//!
//! The ordinary call pays nothing but a load: the timer of the attempt's deadline is set to
//! the moment of the hedge first.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use wellhead_eth::{CostClass, Effect, MethodRow};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};
use wellhead_upstream::{Condition, HealthEffect, InFlight, Judge, Slot, Upstream};

use crate::attempt::{AttemptResult, attempt};
use crate::attempts::Consequence;
use crate::context::RunContext;
use crate::decide::{AwaitedAttempt, SendStep, hedge};
use crate::health_log::ExchangeRecord;
use crate::hedge_timer::HedgeTimer;
use crate::now;
use crate::run::{Run, try_pay};

/// An upstream with an open breaker that has answered no call for this long answers no long search.
const HEAVY_QUIET: Duration = Duration::from_secs(1);

/// A plain call is hedged in a dearer tier only after its upstream has answered no call for at
/// least this time,
const QUIET_MIN: Duration = Duration::from_secs(1);
/// and for this many times the delay after which a call is hedged.
const QUIET_FACTOR: u32 = 4;

impl Run<'_> {
    /// Asks `slot`, which let the call go just now, and another one as well when that takes
    /// long.
    pub(crate) async fn ask(
        &mut self,
        context: RunContext<'_>,
        slot: Slot,
        in_flight: InFlight,
    ) -> Consequence {
        let RunContext { roster, bounds, .. } = context;
        let began = in_flight.began();
        let (row, upstream) = (self.job.row, roster.upstream(slot));
        let hedging = bounds.hedging.filter(|_| self.may_hedge());
        let hedge_timer =
            hedging.map(|hedging| HedgeTimer::new(hedging.delay(upstream, row.class)));
        let mut time_limit = self.time_limit(context, slot, began);
        time_limit.hedge_timer = hedge_timer.as_ref();
        let limits = context.answer_limits(self.job, true, slot);
        let call = self.single_call(context, slot);
        let first = pin!(attempt(call, in_flight, time_limit, limits));
        let Some(hedge_timer) = &hedge_timer else {
            let settled = first.await;
            return self.ended(context, slot, settled);
        };
        self.watched(context, OpenAttempt { slot, began }, first, hedge_timer).await
    }

    /// Waits for the open attempt, and asks another upstream when the timer rings.
    async fn watched(
        &mut self,
        context: RunContext<'_>,
        open: OpenAttempt,
        mut first: Pin<&mut (impl Future<Output = AttemptResult> + Send)>,
        hedge_timer: &HedgeTimer,
    ) -> Consequence {
        let OpenAttempt { slot, began } = open;
        let (row, upstream) = (self.job.row, context.roster.upstream(slot));
        let mut noted = None;
        loop {
            let settled = poll_fn(|cx| match first.as_mut().poll(cx) {
                Poll::Ready(settled) => Poll::Ready(Some(settled)),
                Poll::Pending if hedge_timer.take_ring() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            if let Some(settled) = settled.await {
                return self.ended(context, slot, settled);
            }
            let now = now();
            if !row.class.is_heavy() {
                if upstream.came_back_after(began) {
                    // Returning frees its connection for calls that wait for one.
                    return self.ended(context, slot, left_behind(began, now));
                }
                upstream.overdue(began, noted.replace(now), now);
            }
            if let Some(SendStep { slot: other, price, .. }) =
                self.hedge_step(context, open, hedge_timer, now)
                && try_pay(context, price, now)
                && let Some(in_flight) = self.admit(context, other, now)
            {
                let hedged = self.with_hedge(context, open, first.as_mut(), other, in_flight);
                if let Some(next) = hedged.await {
                    return next;
                }
            }
        }
    }

    /// The attempt to be made beside the open one.
    fn hedge_step(
        &self,
        context: RunContext<'_>,
        open: OpenAttempt,
        hedge_timer: &HedgeTimer,
        now: Instant,
    ) -> Option<SendStep> {
        let awaited = awaited(context, self.job.row, open, hedge_timer, now);
        let (terms, survey) = (self.terms(context, false), self.survey(context, now));
        hedge(&self.attempts, &survey, terms, &awaited, now)
    }

    /// Asks `other` as well, and takes the answer that comes first; `None` when `other` failed
    /// while the open attempt is still awaited.
    fn with_hedge<'b>(
        &'b mut self,
        context: RunContext<'b>,
        OpenAttempt { slot, began }: OpenAttempt,
        mut first: Pin<&'b mut (impl Future<Output = AttemptResult> + Send)>,
        other: Slot,
        in_flight: InFlight,
    ) -> Pin<Box<dyn Future<Output = Option<Consequence>> + Send + 'b>> {
        // Boxed, as few calls have any: its state would more than double what each carries
        // about. And it may be hedged again.
        Box::pin(async move {
            let RunContext { roster, .. } = context;
            let (row, upstream) = (self.job.row, roster.upstream(slot));
            let hedged_at = in_flight.began();
            let limits = context.answer_limits(self.job, true, other);
            let mut time_limit = self.time_limit(context, other, hedged_at);
            let hedging = context.bounds.hedging.unwrap_or_default();
            let hedge_timer = HedgeTimer::new(hedging.delay(roster.upstream(other), row.class));
            time_limit.hedge_timer = Some(&hedge_timer);
            let call = self.single_call(context, other);
            let mut second = pin!(attempt(call, in_flight, time_limit, limits));
            let (settled, is_first) = either(first.as_mut(), second.as_mut()).await;
            let (winner, loser, sent_at) =
                if is_first { (slot, other, hedged_at) } else { (other, slot, began) };
            match self.ended(context, winner, settled) {
                // The one that is left may hang as well, and is hedged like any other.
                Consequence::GoOn if is_first => {
                    let hedge = OpenAttempt { slot: other, began: hedged_at };
                    let left = self.watched(context, hedge, second, &hedge_timer);
                    Some(Box::pin(left).await)
                }
                Consequence::GoOn => None,
                end => {
                    self.attempts.abandon(self.job, loser, sent_at, now());
                    if !is_first {
                        lost(upstream, row, began, usual(upstream, row.class), now());
                    }
                    Some(end)
                }
            }
        })
    }

    /// Records the attempt, and tells the queue that its place at `slot` is free.
    fn ended(
        &mut self,
        context: RunContext<'_>,
        slot: Slot,
        settled: AttemptResult,
    ) -> Consequence {
        context.worker.wait_queue().freed(slot);
        self.end(context, slot, settled)
    }

    /// Whether this call may ever have two attempts at once.
    fn may_hedge(&self) -> bool {
        match self.job.row.effect {
            Effect::Read => self.job.row.idempotent,
            // Filters live at one upstream; the others change something.
            Effect::Write
            | Effect::Broadcast
            | Effect::Subscribe
            | Effect::Filter
            | Effect::Sticky
            | Effect::Local => false,
        }
    }
}

/// An attempt that has no answer yet.
#[derive(Debug, Clone, Copy)]
struct OpenAttempt {
    slot: Slot,
    began: Instant,
}

/// How the upstream of the open attempt stands.
fn awaited(
    context: RunContext<'_>,
    row: &MethodRow,
    OpenAttempt { slot, began }: OpenAttempt,
    hedge_timer: &HedgeTimer,
    now: Instant,
) -> AwaitedAttempt {
    let upstream = context.roster.upstream(slot);
    AwaitedAttempt {
        slot,
        tier: context.tier(slot),
        came_back: upstream.came_back_after(began),
        is_lost: is_lost(upstream, row, began, now),
        is_quiet: is_quiet(upstream, row, began, hedge_timer, now),
    }
}

/// Whether a call sent at `began` has to go on to another upstream, because this one stalls
/// or has been away since.
pub(crate) fn is_lost(upstream: &Upstream, row: &MethodRow, began: Instant, now: Instant) -> bool {
    let rests = upstream.condition(now) != Condition::Ready;
    upstream.came_back_after(began)
        || match row.class.is_heavy() {
            false => rests || upstream.is_silent(usual(upstream, row.class), now),
            true => rests && !upstream.was_heard_after(now - HEAVY_QUIET),
        }
}

/// Whether the upstream has answered no call since a plain call was sent to it at `began`, long
/// ago by [`QUIET_MIN`] and [`QUIET_FACTOR`].
fn is_quiet(
    upstream: &Upstream,
    row: &MethodRow,
    began: Instant,
    hedge_timer: &HedgeTimer,
    now: Instant,
) -> bool {
    !row.class.is_heavy()
        && now.saturating_duration_since(began) >= QUIET_MIN.max(hedge_timer.after() * QUIET_FACTOR)
        && !upstream.was_heard_after(began)
}

fn usual(upstream: &Upstream, class: CostClass) -> Duration {
    upstream.slow_after(class).unwrap_or_default()
}

/// The end of an attempt at an upstream that rested and came back since: what it did not
/// answer then it will not answer now.
fn left_behind(began: Instant, now: Instant) -> AttemptResult {
    let what = "it rested and came back since, and did not answer";
    let error = TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, what);
    AttemptResult::whole(Judge::standard().transport(&error), began, now, Sent::Maybe)
}

/// Another upstream answered while `upstream` answered no call: that is a failure, although the
/// attempt had time left.
fn lost(upstream: &Upstream, row: &MethodRow, began: Instant, usual: Duration, now: Instant) {
    if row.class.is_heavy() || !upstream.is_silent(usual, now) {
        return;
    }
    let what = "silent while another upstream answered the call";
    let error = TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, what);
    let mut verdict = Judge::standard().transport(&error);
    verdict.health = HealthEffect::FailedAtOnce;
    ExchangeRecord::new(upstream, row, began).settle(&verdict, now, now);
}

/// Whichever attempt ends first, and whether it was the first of them.
async fn either(
    mut first: Pin<&mut impl Future<Output = AttemptResult>>,
    mut second: Pin<&mut impl Future<Output = AttemptResult>>,
) -> (AttemptResult, bool) {
    poll_fn(|cx| {
        if let Poll::Ready(settled) = first.as_mut().poll(cx) {
            return Poll::Ready((settled, true));
        }
        second.as_mut().poll(cx).map(|settled| (settled, false))
    })
    .await
}
