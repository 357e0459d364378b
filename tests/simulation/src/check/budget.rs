//! Upstreams are asked no more than is paid for: attempts per call, calls refused by a
//! meter, and calls made again.
//!
//! What a call may cost is promised in `wellhead_dispatch::decide`: asking an upstream the
//! first time is free for each call, also the first time since it came back from a rest, and
//! asking it again takes a token. Tokens come with
//! calls and with time, and are not saved beyond a bound. With few calls the bound and the
//! floor are most of them, so a factor on the number of calls would promise too much.

use std::collections::{BTreeMap, HashMap};

use wellhead_proxy::ByHashMode;

use crate::check::Violation;
use crate::check::wellness::Wellness;
use crate::evidence::{Ask, At, Caller, End, Evidence, Exchange, Item, Place, key};
use crate::upstream::LOGS;

/// What is allowed.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Of the exchanges that an upstream receives while another is well, this share may be
    /// refused by its meter. While no other one is, asking it is better than not asking. A
    /// batch counts once: each refusal pauses all calls, however many were in it.
    refused_share_max: f64,
    /// And so many beyond, since a meter shows itself by refusing.
    refused_floor: usize,
    /// What asking again may cost.
    again: Tokens,
}

/// How many tokens there are.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    /// For each call.
    share: f64,
    /// For each second.
    floor: f64,
    /// At the start. No more than that is saved, which cannot be seen from outside: a call
    /// that waits for its turn has paid long before an upstream receives it.
    burst: f64,
}

const BOUNDS: Bounds = Bounds {
    refused_share_max: 0.3,
    refused_floor: 20,
    again: Tokens { share: 0.2, floor: 10.0, burst: 100.0 },
};

/// Sums of tenths are a little less than their sum.
const ROUNDING: f64 = 1e-6;
/// A look-up of a transaction that may have been mined is a run of its own.
const RUNS_PER_TRANSACTION: u32 = 2;
/// And so is asking by the height what was refused by the hash: an attempt that refused it is made
/// up for, and all may have done that.
const RUNS_PER_STATE: u32 = 2;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = attempts(evidence);
    violations.extend(refusals(evidence, BOUNDS));
    violations.extend(again(evidence, BOUNDS.again));
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
            if item.ask == Ask::Filter {
                // One for each new block of which wellhead has not heard.
                runs += u32::try_from(evidence.blocks[request.chain].len()).unwrap_or(u32::MAX - 1);
            }
            if evidence
                .scenario
                .settings
                .cache
                .is_some_and(|cache| cache.by_hash != ByHashMode::Off)
                && item.keys_by_hash(&evidence.blocks[request.chain]).next().is_some()
            {
                runs = RUNS_PER_STATE;
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
        // Each of those that are heard may take one.
        let needs = |item: &Item| evidence.scenario.needs_quorum(request.chain, &item.method);
        let is_heard = request.items.iter().any(needs);
        let heard = evidence.scenario.settings.quorum.filter(|_| is_heard).unwrap_or_default();
        let at_once = at_once + heard;
        // What a search in parts may cost is looked at by `amplification`.
        let is_in_parts = request.items.iter().any(|item| evidence.is_in_parts(request, item));
        let is_bounded = !request.is_batch && !is_in_parts;
        if is_bounded && told as usize > bound * runs as usize + at_once {
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
        let clients = evidence.exchanges_of(place).filter(|exchange| !exchange.is_house());
        for exchange in clients.filter(|exchange| has_other(exchange)) {
            received += 1;
            if let End::Refused(_) = exchange.end {
                refused += 1;
            }
        }
        let allowed = received as f64 * bounds.refused_share_max + bounds.refused_floor as f64;
        if refused as f64 > allowed {
            let what = format!("{} refused {refused} of {received} exchanges", plan.name);
            let at = evidence.scenario.length;
            violations.push(Violation { checker: "budget", at, what });
        }
    }
    violations
}

/// What happens to a chain's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event<'a> {
    /// An upstream is back from a rest: what it was asked before counts as not asked.
    Back(Place),
    /// A call of a client, or one of our own for it.
    Call,
    /// An upstream receives something.
    Received(Place, &'a str),
}

/// What happens to the tokens of one chain.
struct TokenStory<'a> {
    /// How often each call may be received by each upstream for nothing.
    free: HashMap<String, u32>,
    /// In their order.
    events: Vec<(At, Event<'a>)>,
}

impl<'a> TokenStory<'a> {
    fn of(evidence: &'a Evidence, chain: usize) -> Self {
        let mut free: HashMap<String, u32> = HashMap::new();
        let mut events: Vec<(At, Event<'_>)> = Vec::new();
        for request in evidence.requests.iter().filter(|request| request.chain == chain) {
            for item in &request.items {
                events.push((request.at, Event::Call));
                // What a batch does not settle is run alone, as if it had not been in one.
                *free.entry(item.key()).or_default() += 1 + u32::from(request.is_batch);
                if let Ask::Transaction(hash) = item.ask {
                    events.push((request.at, Event::Call));
                    let look_up = key("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
                    *free.entry(look_up).or_default() += 1;
                }
            }
        }
        for exchange in evidence.exchanges.iter().filter(|it| it.place.chain == chain) {
            // Blocks that are announced are read for no call of a client.
            if exchange.caller != Caller::Client {
                continue;
            }
            if exchange.calls.len() > 1 {
                events.push((exchange.began, Event::Call));
            }
            for call in &exchange.calls {
                events.push((exchange.began, Event::Received(exchange.place, &call.key)));
            }
        }
        for place in evidence.places().into_iter().filter(|place| place.chain == chain) {
            events.extend(returns(evidence, place).map(|at| (at, Event::Back(place))));
        }
        events.sort();
        Self { free, events }
    }
}

/// Follows each chain's tokens: they may be used up, but no more than that.
fn again(evidence: &Evidence, tokens: Tokens) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (chain, plan) in evidence.scenario.chains.iter().enumerate() {
        let TokenStory { free, events } = TokenStory::of(evidence, chain);
        let mut level = tokens.burst;
        let mut last = At::ZERO;
        let mut received: BTreeMap<(Place, &str), u32> = BTreeMap::new();
        for (at, event) in events {
            let earned = (at - last).as_secs_f64() * tokens.floor;
            (level, last) = (level + earned, at);
            match event {
                Event::Back(back) => received.retain(|(place, _), _| *place != back),
                Event::Call => level += tokens.share,
                Event::Received(place, key) => {
                    // The ids of filters are rewritten on the way: nothing is known of them.
                    let Some(free) = free.get(key).filter(|_| !is_of_polls(evidence, key)) else {
                        continue;
                    };
                    let count = received.entry((place, key)).or_default();
                    *count += 1;
                    level -= if *count > *free { 1.0 } else { 0.0 };
                }
            }
            if level < -ROUNDING {
                let what = format!("{}: more calls were made again than were paid for", plan.name);
                violations.push(Violation { checker: "budget", at, what });
                break;
            }
        }
    }
    violations
}

/// The times of the answers that closed the breaker of an upstream.
fn returns(evidence: &Evidence, place: Place) -> impl Iterator<Item = At> {
    let failures_max = evidence.scenario.settings.breaker.failures_max;
    let mut ends: Vec<(At, bool)> = evidence
        .exchanges_of(place)
        .filter_map(|exchange| match exchange.end {
            End::Answered => Some((exchange.ended?, true)),
            End::Failed => Some((exchange.ended?, false)),
            End::Refused(_) | End::Abandoned | End::Open => None,
        })
        .collect();
    // Failures of one moment come before an answer of that moment.
    ends.sort_unstable();
    let mut failures = 0;
    ends.into_iter().filter_map(move |(at, is_answer)| {
        let is_back = is_answer && failures >= failures_max;
        failures = if is_answer { 0 } else { failures + 1 };
        is_back.then_some(at)
    })
}

/// Whether polls of filters may make this call, too: each reads what is new.
fn is_of_polls(evidence: &Evidence, key: &str) -> bool {
    !evidence.filters.is_empty() && (key.starts_with("eth_getBlockBy") || key.starts_with(LOGS))
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
        let bounds = Bounds { refused_share_max: 0.1, refused_floor: 2, ..BOUNDS };
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
    fn calls_made_again_are_paid_for() {
        let tokens = Tokens { share: 0.5, floor: 2.0, burst: 3.0 };
        // So many calls, and so many receptions, the last of them so much later.
        let check = |calls: usize, received: usize, later: u64, found: usize| {
            let mut requests: Vec<_> = (0..calls).map(|_| request(vec![read("1")])).collect();
            requests.iter_mut().for_each(|request| request.at = At::ZERO);
            let key = read("1").key();
            let mut exchanges: Vec<_> = (0..received).map(|_| exchange(&key, None)).collect();
            exchanges.iter_mut().for_each(|exchange| exchange.began = At::ZERO);
            if let Some(last) = exchanges.last_mut() {
                last.began += Duration::from_secs(later);
            }
            let found_now = super::again(&evidence(requests, exchanges), tokens).len();
            assert_eq!(found_now, found, "{calls} {received} {later}");
        };
        check(1, 1, 0, 0);
        // Three, and half a one for the call.
        check(1, 4, 0, 0);
        check(1, 5, 0, 1);
        check(2, 6, 0, 0);
        check(2, 7, 0, 1);
        check(1, 5, 1, 0);
        // Another upstream, or our own calls, take nothing.
        let mut elsewhere: Vec<_> = (0..9).map(|_| exchange(&read("1").key(), None)).collect();
        elsewhere.iter_mut().for_each(|it| it.began = At::ZERO);
        elsewhere.iter_mut().enumerate().for_each(|(slot, it)| it.place.slot = slot);
        assert_eq!(super::again(&evidence(vec![request(vec![read("1")])], elsewhere), tokens), []);
        let mut house: Vec<_> = (0..9).map(|_| exchange(&read("1").key(), None)).collect();
        house.iter_mut().for_each(|it| it.began = At::ZERO);
        house.iter_mut().for_each(|it| it.caller = Caller::House);
        assert_eq!(super::again(&evidence(vec![request(vec![read("1")])], house), tokens), []);
    }

    #[test]
    fn the_first_call_since_a_rest_is_free() {
        let tokens = Tokens { share: 0.5, floor: 2.0, burst: 3.0 };
        let after_rest = |rest: u32| {
            let mut exchanges: Vec<_> = (0..5).map(|_| exchange(&read("1").key(), None)).collect();
            exchanges.iter_mut().for_each(|it| (it.began, it.ended) = (At::ZERO, None));
            let mut house: Vec<_> = (0..=rest).map(|_| exchange("x", None)).collect();
            house.iter_mut().for_each(|it| it.caller = Caller::House);
            for failed in &mut house[..rest as usize] {
                (failed.ended, failed.end) = (Some(At::ZERO), End::Failed);
            }
            house[rest as usize].ended = Some(Duration::from_nanos(1));
            exchanges[4].began = Duration::from_nanos(1);
            exchanges.extend(house);
            let mut request = request(vec![read("1")]);
            request.at = At::ZERO;
            super::again(&evidence(vec![request], exchanges), tokens).len()
        };
        let rest = evidence(Vec::new(), Vec::new()).scenario.settings.breaker.failures_max;
        assert_eq!((after_rest(rest - 1), after_rest(rest)), (1, 0));
    }
}
