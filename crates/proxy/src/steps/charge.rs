//! What a caller pays: limits are checked and credits taken before a call is made, and corrected after it.
//!
//! A call that failed for reasons of the upstreams or of wellhead is free; one that was answered with an error
//! about itself, such as a revert, is not. An answer from the cache may cost less.

use wellhead_access::{CallCharge, MeteredCall, RequestPlace};
use wellhead_dispatch::now;
use wellhead_eth::MethodRow;

use crate::answer::Refusal;
use crate::request::context::RequestContext;
use crate::state::access::AccessTerms;
use crate::state::counts::{CacheResult, CallOutcome};

/// What a call has taken from the limits of its caller; nothing where it has none.
#[derive(Debug, Default)]
pub(crate) struct Charge<'a>(Option<(CallCharge<'a>, &'a AccessTerms)>);

/// Takes what a call costs from all limits of its caller, or refuses it.
pub(crate) fn charge<'a>(
    request: &RequestContext<'a>,
    row: &MethodRow,
    method: &str,
) -> Result<Charge<'a>, Refusal> {
    let Some((caller, terms)) = request.payer() else { return Ok(Charge::default()) };
    let mut meters = caller.meters().map(|meter| &**meter).peekable();
    if meters.peek().is_none() {
        return Ok(Charge::default());
    }
    let credits = terms.prices.credits(row, method);
    let call = MeteredCall { row, method, credits };
    match CallCharge::take(meters, call, terms.meter_time(now())) {
        Ok(charge) => Ok(Charge(Some((charge, terms)))),
        Err(denied) => Err(Refusal::over_limit(denied)),
    }
}

/// Takes the place of a request among those that its caller may have under way, or refuses it.
pub(crate) fn take_place<'a>(request: &RequestContext<'a>) -> Result<RequestPlace<'a>, Refusal> {
    let Some((caller, _)) = request.payer() else { return Ok(RequestPlace::default()) };
    RequestPlace::take(caller.meters().map(|meter| &**meter)).map_err(Refusal::over_limit)
}

impl Charge<'_> {
    /// Corrects the charge by what became of the call.
    pub(crate) fn settle(&mut self, outcome: CallOutcome, found: Option<CacheResult>) {
        let Some((charge, terms)) = &mut self.0 else { return };
        let credits = match outcome {
            CallOutcome::Failed | CallOutcome::Refused => 0,
            CallOutcome::Answered if found == Some(CacheResult::Hit) => {
                terms.cached_credits(charge.credits())
            }
            CallOutcome::Answered | CallOutcome::UpstreamError => return,
        };
        charge.settle(credits, terms.meter_time(now()));
    }
}
