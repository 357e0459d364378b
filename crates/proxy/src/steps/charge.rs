//! What a caller may do, and what it pays.
//!
//! Rights and limits are checked, and credits taken, before a call is made; what is charged is corrected after
//! it, and usage counted. A call that failed for reasons of the upstreams or of wellhead is free; one that was
//! answered with an error about itself, such as a revert, is not. An answer from the cache may cost less.

use std::time::{Duration, Instant};

use tokio::time::sleep;
use wellhead_access::usage::{MilliCredits, UsageAmounts, UsageOutcome, UsageRecord, UsageSource};
use wellhead_access::{
    CallCharge, Caller, HeldPlace, InFlightPlace, LimitDenied, MeteredCall, RightDenied,
    SendingPlaces,
};
use wellhead_chain::{Tag, View};
use wellhead_dispatch::{Trail, now};
use wellhead_eth::{BlockPoint, BlockRef, BlockTag, CostClass, Effect, MethodRow, MethodTable};
use wellhead_jsonrpc::Call;
use wellhead_upstream::Slot;

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::state::access::AccessTerms;
use crate::state::chain::ServedChain;
use crate::state::counts::{CacheResult, CallOutcome};

/// Limits that replicas share may have no answer yet for a call that comes after a pause: it is tried again
/// after each of these. A store that is well answers within the first; after both of them together, which are
/// longer than `limit::lease::ANSWER_WITHIN`, the limit goes by its share, and says yes or no.
const ANSWER_WAITS: [Duration; 2] = [Duration::from_millis(7), Duration::from_millis(20)];

/// How often a call waits so: a silent store leaves one limit after the other to its share, and a key and its
/// tenant have four each. A store that comes back meanwhile has its time anew.
const ANSWER_ROUNDS: usize = 8;

/// What a call has taken from the limits of its caller; nothing where calls are not charged. Boxed, so that
/// calls that are not charged do not carry the room for it.
#[derive(Debug, Default)]
pub(crate) struct ChargedCall<'a>(Option<Box<PaidCall<'a>>>);

#[derive(Debug)]
struct PaidCall<'a> {
    payer: Payer<'a>,
    row: &'static MethodRow,
    bytes_in: usize,
    taken: CallCharge<'a>,
    is_settled: bool,
}

/// What pays, and by which terms.
#[derive(Debug, Clone, Copy)]
struct Payer<'a> {
    caller: &'a Caller,
    terms: &'a AccessTerms,
    chain: &'a ServedChain,
    received_at: Instant,
}

/// What became of a call, as far as its price goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallEnd {
    pub(crate) outcome: CallOutcome,
    pub(crate) found: Option<CacheResult>,
    /// The upstream that answered.
    pub(crate) slot: Option<Slot>,
    /// What upstreams charge for it.
    pub(crate) credits_out: u64,
    pub(crate) bytes_out: usize,
}

impl CallEnd {
    fn source(self) -> UsageSource {
        match (self.found, self.slot, self.outcome) {
            (Some(CacheResult::Hit | CacheResult::Joined), ..) => UsageSource::Cache,
            (_, Some(_), _) => UsageSource::Upstream,
            (_, None, CallOutcome::Answered) => UsageSource::View,
            (_, None, CallOutcome::Refused) => UsageSource::Refused,
            (_, None, CallOutcome::Failed | CallOutcome::UpstreamError) => UsageSource::Upstream,
        }
    }
}

/// What upstreams charge for what was tried.
pub(crate) fn credits_out(chain: &ServedChain, row: &MethodRow, trail: &Trail) -> u64 {
    let price = |slot| chain.roster.upstream(slot).price(row);
    trail.attempts.iter().map(|attempt| price(attempt.slot)).sum()
}

/// Checks that the caller may make a call, and takes what it costs from all limits; or refuses it. Waits only
/// for a shared limit that has no answer yet, some milliseconds.
pub(crate) async fn charge<'a>(
    request: &RequestContext<'a>,
    row: &'static MethodRow,
    call: &Call,
) -> Result<ChargedCall<'a>, Refusal> {
    let Some(payer) = payer(request) else { return Ok(ChargedCall::default()) };
    let bytes_in = call.method().len() + call.params().map_or(0, <[u8]>::len);
    let credits = payer.terms.prices.credits(row, call.method());
    let metered = MeteredCall { row, method: call.method(), credits };
    let taken = match check_rights(request, payer.caller, row, call) {
        Ok(()) => {
            let taken = match payer.take(metered) {
                // Boxed, as it is seldom.
                Err(denied) if denied.is_unanswered => {
                    Box::pin(take_later(denied, || payer.take(metered))).await
                }
                taken => taken,
            };
            taken.map_err(|denied| (payer.terms.refuse(denied), UsageOutcome::Limited))
        }
        Err(denied) => Err((Refusal::denied(&denied), UsageOutcome::Refused)),
    };
    match taken {
        Ok(taken) => {
            let paid = PaidCall { payer, row, bytes_in, taken, is_settled: false };
            Ok(ChargedCall(Some(Box::new(paid))))
        }
        Err((refusal, outcome)) => {
            let amounts =
                UsageAmounts { calls: 1, bytes_in: bytes_in as u64, ..UsageAmounts::default() };
            payer.record(row, UsageSource::Refused, outcome, amounts);
            Err(refusal)
        }
    }
}

fn payer<'a>(request: &RequestContext<'a>) -> Option<Payer<'a>> {
    let (caller, terms) = request.payer()?;
    Some(Payer { caller, terms, chain: request.chain, received_at: request.ctx.received_at })
}

/// Whether the caller may make this call at all.
fn check_rights(
    request: &RequestContext<'_>,
    caller: &Caller,
    row: &MethodRow,
    call: &Call,
) -> Result<(), RightDenied> {
    let rights = &caller.grant.rights;
    if rights.limits_calls() {
        rights.check_method(row, call.method())?;
        rights.check_params(row, call.params())?;
    }
    if rights.limits_logs_range() && row.class.is_heavy() {
        let block = row.block_ref(call.params());
        // What is searched is in no range of blocks; a filter's range is checked when its logs are read.
        let is_boundless =
            block == BlockRef::None && row.class == CostClass::Logs && row.effect == Effect::Read;
        let blocks = if is_boundless { u64::MAX } else { blocks(request, &block) };
        rights.check_logs_range(blocks)?;
    }
    Ok(())
}

/// Whether the caller may have the logs of the filter that these params (raw JSON) of `eth_getLogs` hold.
pub(crate) fn check_filter(request: &RequestContext<'_>, params: &str) -> Result<(), Refusal> {
    let Some((caller, _)) = request.payer() else { return Ok(()) };
    let rights = &caller.grant.rights;
    if !rights.limits_logs_range() {
        return Ok(());
    }
    let block = MethodTable::standard().row("eth_getLogs").block_ref(Some(params.as_bytes()));
    rights.check_logs_range(blocks(request, &block)).map_err(|denied| Refusal::denied(&denied))
}

/// Over how many blocks a call searches. Of a range that cannot be read, or ends at a block that is not known
/// yet, as if it were endless: a bound that is not checked is none.
fn blocks(request: &RequestContext<'_>, block: &BlockRef) -> u64 {
    request.look(|view| blocks_by(view, block))
}

fn blocks_by(view: &View, block: &BlockRef) -> u64 {
    let mark = |tag| view.mark(tag).map(|mark| mark.number.0);
    let number = |point: BlockPoint| match point {
        BlockPoint::Number(number) => Some(number.0),
        BlockPoint::Tag(BlockTag::Earliest) => Some(0),
        BlockPoint::Tag(BlockTag::Latest | BlockTag::Pending) => {
            view.latest.map(|head| head.number.0)
        }
        BlockPoint::Tag(BlockTag::Safe) => mark(Tag::Safe),
        BlockPoint::Tag(BlockTag::Finalized) => mark(Tag::Finalized),
    };
    match block {
        BlockRef::Range { from, to } => match (number(*from), number(*to)) {
            (Some(from), Some(to)) => to.saturating_sub(from).saturating_add(1),
            (None, _) | (_, None) => u64::MAX,
        },
        BlockRef::Unreadable => u64::MAX,
        BlockRef::None | BlockRef::Number(_) | BlockRef::Tag(_) | BlockRef::Hash(_) => 1,
    }
}

/// Whether the caller may send a batch of this many calls.
pub(crate) fn check_batch(request: &RequestContext<'_>, items: usize) -> Result<(), Refusal> {
    let Some((caller, _)) = request.payer() else { return Ok(()) };
    caller.grant.rights.check_batch(items as u64).map_err(|denied| Refusal::denied(&denied))
}

/// Takes the place of a subscription among those that the caller may have, or refuses it.
pub(crate) fn hold_subscription(request: &RequestContext<'_>) -> Result<HeldPlace, Refusal> {
    let Some((caller, terms)) = request.payer() else { return Ok(HeldPlace::default()) };
    HeldPlace::subscription(caller.meters().cloned()).map_err(|denied| terms.refuse(denied))
}

/// Takes the place of a request among those that its caller may have under way, or refuses it. `None` where
/// nothing bounds them. Waits only for a shared limit that has no answer yet, some milliseconds.
pub(crate) async fn take_place<'a>(
    request: &RequestContext<'a>,
) -> Result<Option<Box<InFlightPlace<'a>>>, Refusal> {
    let Some((caller, terms)) = request.payer() else { return Ok(None) };
    if caller.meters().next().is_none() {
        return Ok(None);
    }
    let take = || {
        let meters = caller.meters().map(|meter| &**meter);
        InFlightPlace::take(meters, terms.meter_time(now()))
    };
    let place = match take() {
        Err(denied) if denied.is_unanswered => Box::pin(take_later(denied, take)).await,
        taken => taken,
    };
    place.map(|place| Some(Box::new(place))).map_err(|denied| terms.refuse(denied))
}

/// The places of a request, to be held until its answer is sent: it is under way until then.
pub(crate) fn hold_until_sent(
    request: &RequestContext<'_>,
    place: Option<Box<InFlightPlace<'_>>>,
    held: &mut SendingPlaces,
) {
    if let (Some((caller, _)), Some(place)) = (request.payer(), place) {
        place.hold_until_sent(caller.meters(), held);
    }
}

/// Tries again what had no answer, as `denied` says.
async fn take_later<T>(
    mut denied: LimitDenied,
    take: impl Fn() -> Result<T, LimitDenied>,
) -> Result<T, LimitDenied> {
    for wait in [ANSWER_WAITS; ANSWER_ROUNDS].into_iter().flatten() {
        sleep(wait).await;
        match take() {
            Err(still) if still.is_unanswered => denied = still,
            taken => return taken,
        }
    }
    Err(denied)
}

impl ChargedCall<'_> {
    /// Moves the places of the call's groups to what holds them until its answer is sent.
    pub(crate) fn hold_until_sent(&mut self, held: &mut SendingPlaces) {
        if let Some(paid) = &mut self.0 {
            paid.taken.hold_until_sent(paid.payer.caller.meters(), held);
        }
    }

    /// Corrects the charge by what became of the call, and counts it.
    pub(crate) fn settle(&mut self, end: CallEnd) {
        let Some(paid) = &mut self.0 else { return };
        paid.is_settled = true;
        let PaidCall { payer, row, bytes_in, taken, .. } = &mut **paid;
        let charged = taken.credits();
        let credits = match end.outcome {
            CallOutcome::Failed | CallOutcome::Refused => 0,
            CallOutcome::Answered if end.found == Some(CacheResult::Hit) => {
                payer.terms.cached_credits(charged)
            }
            CallOutcome::Answered | CallOutcome::UpstreamError => charged,
        };
        if credits != charged {
            taken.settle(credits, payer.terms.meter_time(now()));
        }
        let outcome = match end.outcome {
            CallOutcome::Answered => UsageOutcome::Answered,
            CallOutcome::UpstreamError => UsageOutcome::UpstreamError,
            CallOutcome::Failed => UsageOutcome::Failed,
            CallOutcome::Refused => UsageOutcome::Refused,
        };
        let amounts = UsageAmounts {
            calls: 1,
            credits_in: MilliCredits::whole(credits.into()),
            credits_out: MilliCredits::whole(end.credits_out),
            bytes_in: *bytes_in as u64,
            bytes_out: end.bytes_out as u64,
            time_us: payer.time_us(),
        };
        payer.record(row, end.source(), outcome, amounts);
    }
}

impl Drop for PaidCall<'_> {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let amounts = UsageAmounts {
            calls: 1,
            credits_in: MilliCredits::whole(self.taken.credits().into()),
            bytes_in: self.bytes_in as u64,
            time_us: self.payer.time_us(),
            ..UsageAmounts::default()
        };
        let (source, outcome) = (UsageSource::Upstream, UsageOutcome::Abandoned);
        self.payer.record(self.row, source, outcome, amounts);
    }
}

impl<'a> Payer<'a> {
    fn take(&self, call: MeteredCall<'_>) -> Result<CallCharge<'a>, LimitDenied> {
        let meters = self.caller.meters().map(|meter| &**meter);
        CallCharge::take(meters, call, self.terms.meter_time(now()))
    }
}

impl Payer<'_> {
    /// Since the request was received.
    fn time_us(&self) -> u64 {
        let took = now().saturating_duration_since(self.received_at);
        u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
    }

    fn record(
        &self,
        row: &'static MethodRow,
        source: UsageSource,
        outcome: UsageOutcome,
        amounts: UsageAmounts,
    ) {
        let Some(usage) = &self.terms.usage else { return };
        let (grant, chain, method) = (&*self.caller.grant, &self.chain.name.name, row.name);
        let record = UsageRecord { grant, chain, method, source, outcome, amounts };
        usage.record(&record, self.terms.minute());
    }
}
