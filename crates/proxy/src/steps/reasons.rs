//! Why a call is looked up or not, and why an upstream is asked or not, in words: for the trail of a
//! call and for `explain`.

use std::fmt::Write;

use wellhead_cache::Reason;
use wellhead_chain::View;
use wellhead_dispatch::now;
use wellhead_route::{Fitness, assess};
use wellhead_upstream::{Upstream, UpstreamSet};

use crate::request::context::RequestContext;
use crate::request::pin::{MethodCall, PinnedCall, PinnedParams};
use crate::steps::cached;

/// What is said of a call whose answer is looked up.
pub(crate) const LOOKED_UP: &str = "looked up";

/// At most this many upstreams that were not fit for the call are named in a trail.
const LEFT_OUT_MAX: usize = 8;
/// And so much is said of each.
const WHY_CHARS_MAX: usize = 100;

/// What the trail tells of a call beside its attempts, on the view by which it was planned: what
/// the cache says, and which upstreams are not fit and why, in the words of an explanation:
/// `cache=live left_out=[geth-b: lags by 9 blocks; reth-c: breaker_open]`.
pub(crate) fn aside(
    request: &RequestContext<'_>,
    call: MethodCall<'_>,
    PinnedCall { ask, pin }: &PinnedCall<'_>,
    view: &View,
) -> Box<str> {
    let (roster, at) = (&request.chain.roster, now());
    let mut text = format!("cache={}", cache_word(request, call, pin, view).replace(' ', "-"));
    let of_row = roster.eligible(call.row, call.row.name);
    // A method of no table is matched by its name, which `ask` is made from.
    let served = if call.row.is_unknown() { ask.eligible } else { of_row.unwrap_or_default() };
    let mut others = roster.upstreams().iter().filter_map(|upstream| {
        let fitness = assess(ask, upstream, view, at);
        (fitness != Fitness::Fit).then(|| (upstream, why(request, served, upstream, fitness)))
    });
    for (place, (upstream, why)) in others.by_ref().take(LEFT_OUT_MAX).enumerate() {
        let start = if place == 0 { " left_out=[" } else { "; " };
        let why: String = why.chars().take(WHY_CHARS_MAX).collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "{start}{}: {why}", upstream.identity().id);
    }
    match (text.contains('['), others.count()) {
        (false, _) => {}
        (true, 0) => text.push(']'),
        (true, more) => {
            let _ = write!(text, "; and {more} others]");
        }
    }
    text.into()
}

/// What the cache would say: [`LOOKED_UP`], or in one word why it is not asked.
pub(crate) fn cache_word(
    request: &RequestContext<'_>,
    call: MethodCall<'_>,
    pin: &PinnedParams,
    view: &View,
) -> &'static str {
    cached::kept_ticket(request, call, pin, view).map_or_else(Reason::word, |_| LOOKED_UP)
}

/// Why an upstream that may serve the method, or may not, stands where it does.
pub(crate) fn why(
    request: &RequestContext<'_>,
    served: UpstreamSet,
    upstream: &Upstream,
    fitness: Fitness,
) -> String {
    match fitness {
        Fitness::NotEligible if served.contains(upstream.slot()) => {
            format!("not among those that `{}` selects", request.selected())
        }
        fitness => fitness.to_string(),
    }
}
