//! One request costs upstreams a bounded number of calls, whatever is in it.
//!
//! Judged in the stories of a crowd (`--crowd`), over all requests together, as an upstream does not see
//! of which request a call is: all calls that upstreams received, but for wellhead's own, are at most
//! what the requests may cost. That is `limits.upstream_calls` for each, and for one without a search
//! no more than twice its attempts for each of its calls.

use crate::check::Violation;
use crate::evidence::{At, Evidence, Request};

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    if !evidence.scenario.is_crowd {
        return Vec::new();
    }
    let clients = evidence.exchanges.iter().filter(|exchange| !exchange.is_house());
    let received: usize = clients.map(|exchange| exchange.calls.len()).sum();
    let allowed: usize = evidence.requests.iter().map(|request| may_cost(evidence, request)).sum();
    let what = || format!("upstreams received {received} calls, of {allowed} allowed");
    let found = (received > allowed).then(|| Violation {
        checker: "amplification",
        at: At::ZERO,
        what: what(),
    });
    found.into_iter().collect()
}

fn may_cost(evidence: &Evidence, request: &Request) -> usize {
    let settings = &evidence.scenario.settings;
    let bound = settings.upstream_calls as usize;
    let is_search = request.items.iter().any(|item| item.method == "eth_getLogs");
    // Once together, and then alone.
    let each = settings.attempts_max + usize::from(request.is_batch);
    if is_search { bound } else { bound.min(request.items.len() * 2 * each) }
}

#[cfg(test)]
mod tests {
    use crate::check::sample::{evidence, exchange, read, request};
    use crate::evidence::Caller;

    fn check(method: &str, calls: usize, caller: Caller, found: usize) {
        let mut item = read("1");
        item.method = method.to_owned();
        let mut exchanges = vec![exchange("x", None); calls];
        exchanges.iter_mut().for_each(|one| one.caller = caller);
        let mut evidence = evidence(vec![request(vec![item])], exchanges);
        evidence.scenario.is_crowd = true;
        (evidence.scenario.settings.upstream_calls, evidence.scenario.settings.attempts_max) =
            (20, 4);
        assert_eq!(super::check(&evidence).len(), found, "{calls} calls for {method}");
    }

    #[test]
    fn what_is_too_dear_is_seen() {
        check("eth_call", 8, Caller::Client, 0);
        check("eth_call", 9, Caller::Client, 1);
        check("eth_getLogs", 20, Caller::Client, 0);
        check("eth_getLogs", 21, Caller::Client, 1);
        check("eth_getLogs", 21, Caller::House, 0);
    }
}
