//! Upstreams are asked no more than is paid for: attempts per call, calls refused by a
//! meter, and calls beyond those that clients made.

use std::collections::HashMap;

use crate::check::Violation;
use crate::check::wellness::Wellness;
use crate::evidence::{Ask, End, Evidence, Exchange};

/// What is allowed. Each bound is that of what the proxy does today, and goes down with
/// limits that are kept before they are met and a budget for retries. Today a burst that
/// goes to a metered upstream of the first tier is refused as a whole, once a pause.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Of the calls that an upstream receives while another is well, this share may be
    /// refused by its meter. While nobody else is, asking it is better than not asking.
    refused_share_max: f64,
    /// And so many beyond, since a meter shows itself by refusing.
    refused_floor: usize,
    /// Calls received for each call that clients made, on one chain.
    received_per_call_max: f64,
}

const BOUNDS: Bounds =
    Bounds { refused_share_max: 0.95, refused_floor: 20, received_per_call_max: 3.0 };

/// A look-up of a transaction that may have been mined is a run of its own.
const RUNS_PER_TRANSACTION: u32 = 2;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = attempts(evidence);
    violations.extend(refusals(evidence, BOUNDS));
    violations.extend(amplification(evidence, BOUNDS));
    violations
}

/// By what answers say, and by how often a call that occurs once was received.
fn attempts(evidence: &Evidence) -> Vec<Violation> {
    let bound = evidence.scenario.settings.attempts_max;
    let mut received: HashMap<&str, usize> = HashMap::new();
    for call in evidence.exchanges.iter().flat_map(|exchange| &exchange.calls) {
        *received.entry(&call.key).or_default() += 1;
    }
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let mut say = |at, what| violations.push(Violation { checker: "budget", at, what });
        let mut runs = 1;
        for item in &request.items {
            if let Ask::Transaction(_) = item.ask {
                runs = RUNS_PER_TRANSACTION;
            }
            // Items of a batch that it does not settle are run alone.
            let bound = bound + usize::from(request.is_batch);
            let key = item.key();
            let count = received.get(key.as_str()).copied().unwrap_or_default();
            if item.method == "web3_sha3" && count > bound {
                say(request.at, format!("#{number}: received {count} times: {key}"));
            }
        }
        let Some(answered) = &request.answered else { continue };
        let told = answered.attempts;
        let at_once = if runs > 1 { evidence.scenario.settings.broadcast_max } else { 0 };
        if !request.is_batch && told as usize > bound * runs as usize + at_once {
            say(answered.at, format!("#{number}: {told} attempts"));
        }
    }
    violations
}

fn refusals(evidence: &Evidence, bounds: Bounds) -> Vec<Violation> {
    let wellness = Wellness::of(evidence);
    let mut violations = Vec::new();
    for place in evidence.places() {
        let plan = &evidence.scenario.chains[place.chain].upstreams[place.slot];
        if plan.meter.is_none() {
            continue;
        }
        let (mut received, mut refused) = (0, 0);
        let others = evidence.places();
        let has_other = |exchange: &Exchange| {
            let until = exchange.ended.unwrap_or(exchange.began);
            others.iter().any(|other| {
                other.chain == place.chain
                    && *other != place
                    && wellness.is_well(*other, exchange.began, until)
            })
        };
        let clients = evidence.exchanges_of(place).filter(|exchange| !exchange.is_house);
        for exchange in clients.filter(|exchange| has_other(exchange)) {
            received += exchange.calls.len();
            if let End::Refused(_) = exchange.end {
                refused += exchange.calls.len();
            }
        }
        let allowed = received as f64 * bounds.refused_share_max + bounds.refused_floor as f64;
        if refused as f64 > allowed {
            let what = format!("{} refused {refused} of {received} calls", plan.name);
            let at = evidence.scenario.length;
            violations.push(Violation { checker: "budget", at, what });
        }
    }
    violations
}

fn amplification(evidence: &Evidence, bounds: Bounds) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (chain, plan) in evidence.scenario.chains.iter().enumerate() {
        let requests = evidence.requests.iter().filter(|request| request.chain == chain);
        let made: usize = requests.map(|request| request.items.len()).sum();
        let exchanges = evidence.exchanges.iter();
        let received: usize = exchanges
            .filter(|exchange| exchange.place.chain == chain && !exchange.is_house)
            .map(|exchange| exchange.calls.len())
            .sum();
        if received as f64 > made as f64 * bounds.received_per_call_max {
            let what = format!("{}: {made} calls became {received}", plan.name);
            let at = evidence.scenario.length;
            violations.push(Violation { checker: "budget", at, what });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::check::sample::{answered, evidence, exchange, read, request, verified_at_once};
    use crate::meter::Limit;
    use crate::words::Dialect;

    #[test]
    fn attempts_are_counted_by_the_answer_and_by_the_upstreams() {
        let bound = evidence(Vec::new(), Vec::new()).scenario.settings.attempts_max;
        let check = |told: usize, received: usize, found: usize| {
            let mut request = request(vec![read("1")]);
            request.items[0].method = "web3_sha3".to_owned();
            let key = request.items[0].key();
            let mut answer = answered("{}");
            answer.attempts = u32::try_from(told).unwrap();
            request.answered = Some(answer);
            let exchanges = (0..received).map(|_| exchange(&key, None)).collect();
            assert_eq!(super::attempts(&evidence(vec![request], exchanges)).len(), found);
        };
        check(bound, bound, 0);
        check(bound + 1, bound, 1);
        check(bound, bound + 1, 1);
    }

    #[test]
    fn refusals_are_bounded() {
        let bounds =
            Bounds { refused_share_max: 0.1, refused_floor: 2, received_per_call_max: 9.0 };
        let check = |refused: usize, is_another_well: bool, found: usize| {
            let exchanges = (0..20).map(|number| {
                let mut exchange = exchange("x", None);
                exchange.end = if number < refused { End::Refused(None) } else { End::Answered };
                exchange
            });
            let mut evidence = evidence(Vec::new(), exchanges.collect());
            let limit = Limit::Fixed { window: Duration::from_secs(1), calls: 1 };
            let upstreams = &mut evidence.scenario.chains[0].upstreams;
            upstreams.push(upstreams[0].clone());
            upstreams[0].meter = Some((limit, Dialect::Html));
            if is_another_well {
                let mut verified = verified_at_once();
                verified.place.slot = 1;
                evidence.exchanges.push(verified);
            }
            assert_eq!(super::refusals(&evidence, bounds).len(), found, "{refused}");
        };
        check(4, true, 0);
        check(5, true, 1);
        check(20, false, 0);
    }

    #[test]
    fn calls_are_not_multiplied() {
        let bounds =
            Bounds { refused_share_max: 1.0, refused_floor: 0, received_per_call_max: 2.0 };
        let check = |received: usize, found: usize| {
            let exchanges = (0..received).map(|_| exchange("x", None)).collect();
            let evidence = evidence(vec![request(vec![read("1")])], exchanges);
            assert_eq!(super::amplification(&evidence, bounds).len(), found, "{received}");
        };
        check(2, 0);
        check(3, 1);
    }
}
