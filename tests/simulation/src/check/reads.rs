//! While one upstream is well for as long as a call lives, no read fails.
//!
//! A read fails when its reply is an error that no well upstream would give, when it is
//! `null` for a block that is there, or when a large answer is cut while its upstream is
//! well. What "well" means is said in `wellness`.
//!
//! The limits of the promise:
//!
//! - the settings must make it possible: attempts enough to pass all that are not well,
//!   and time enough if each of them hangs, for each item of a batch that waits its turn;
//! - what several must answer alike, only while so many are well and at most one is not, where one
//!   with a rate of its own, given or learnt from its refusals, does not count as well: the others
//!   are waited for two seconds, which may be less than it holds a call;
//! - no other upstream is asked about the second half of an answer: one that was cut by its
//!   upstream's doing cannot be healed any more.

use std::time::Duration;

use crate::check::content::Since;
use crate::check::wellness::Wellness;
use crate::check::{Violation, code, outcomes};
use crate::evidence::{Answered, Ask, At, Evidence, Flow, Item, Place, Request};
use crate::weather::Kind;

/// Logs and traces may take so many times longer than a plain call.
const HEAVY_FACTOR: u32 = 4;
/// What a good answer takes at most, and the pauses before it.
const GOOD_ANSWER: Duration = Duration::from_secs(2);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let wellness = Wellness::of(evidence);
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        // One that is rude may be refused, and left without the rest of what it does not read.
        if evidence.is_rude(request)
            || !an_upstream_is_well(evidence, &wellness, request, answered.at)
        {
            continue;
        }
        let mut say = |what: String| {
            let what = format!("#{number}: {what}");
            violations.push(Violation { checker: "reads", at: answered.at, what });
        };
        if answered.flow == Flow::Cut {
            if server_is_well(evidence, &wellness, request, answered) {
                say("the answer of a well upstream was cut".to_owned());
            }
            continue;
        }
        for (item, outcome) in outcomes(request, answered) {
            if evidence.scenario.needs_quorum(request.chain, &item.method)
                && !are_enough_well(evidence, &wellness, request, answered.at)
            {
                continue;
            }
            if let Some(what) = failure(evidence, request, answered, item, outcome) {
                say(what);
            }
        }
    }
    violations
}

/// Requests that were judged: those during which an upstream was well.
pub(super) fn judged(evidence: &Evidence) -> usize {
    let wellness = Wellness::of(evidence);
    let requests = evidence.requests.iter().filter(|request| {
        let until = request.answered.as_ref().map(|answered| answered.at);
        until.is_some_and(|until| an_upstream_is_well(evidence, &wellness, request, until))
    });
    requests.count()
}

/// How a read failed, if it did.
fn failure(
    evidence: &Evidence,
    request: &Request,
    answered: &Answered,
    item: &Item,
    outcome: Result<&str, &str>,
) -> Option<String> {
    if !item.ask.is_read() {
        return None;
    }
    match outcome {
        Ok("null") if matches!(item.ask, Ask::Pinned(_)) => {
            Some(format!("null for {}", item.key()))
        }
        Ok(_) => None,
        Err(error) => {
            let key = item.key();
            let keys = item.keys(&evidence.blocks[request.chain]);
            // A client that shares a call hears what is said to the one that made it.
            let is_own = Since::of(evidence, request, answered, item) == Since::Asked;
            let is_true = evidence.exchanges.iter().any(|exchange| {
                let heard_at = if is_own { Some(exchange.began) } else { exchange.ended };
                exchange.place.chain == request.chain
                    && heard_at.is_some_and(|at| at >= request.at)
                    && exchange.ended.is_some_and(|ended| ended <= answered.at)
                    && exchange.calls.iter().any(|call| {
                        let told = call.told.as_ref().filter(|told| told.is_honest);
                        keys.contains(&call.key)
                            && told.is_some_and(|told| {
                                told.outcome.as_ref().is_err_and(|it| code(it) == code(error))
                            })
                    })
            });
            (!is_true).then(|| format!("{key} failed: {error}"))
        }
    }
}

/// Whether so many are well that they agree, and so few are not that they cannot keep them from
/// being heard.
fn are_enough_well(evidence: &Evidence, wellness: &Wellness, request: &Request, until: At) -> bool {
    let agree = evidence.scenario.settings.quorum.unwrap_or(1);
    let count = evidence.scenario.chains[request.chain].upstreams.len();
    let places = (0..count).map(|slot| Place { chain: request.chain, slot });
    let well = places.filter(|place| wellness.is_well(*place, request.at, until));
    // An upstream that is slow to take calls may hold one for longer than the others are waited for; so may one
    // that refused calls before, at the rate that was learnt from that.
    let is_free = |place: &Place| {
        let plan = &evidence.scenario.chains[request.chain].upstreams[place.slot];
        let mut spells = plan.spells.iter();
        let has_refused =
            spells.any(|spell| matches!(spell.kind, Kind::Throttle(_)) && spell.from <= until);
        plan.meter.is_none() && plan.shaped.is_none() && !has_refused
    };
    let well = well.filter(is_free).count();
    // Without agreement on what is the newest each speaks of its own.
    evidence.scenario.settings.pins && well >= agree && count - well <= 1
}

fn an_upstream_is_well(
    evidence: &Evidence,
    wellness: &Wellness,
    request: &Request,
    until: At,
) -> bool {
    if evidence.scenario.is_relay {
        return true;
    }
    let settings = &evidence.scenario.settings;
    let count = evidence.scenario.chains[request.chain].upstreams.len();
    let places = (0..count).map(|slot| Place { chain: request.chain, slot });
    let well = places.filter(|place| wellness.is_well(*place, request.at, until)).count();
    let others = count - well;
    let is_heavy = request.items.iter().any(|item| item.method == "eth_getLogs");
    let attempt = settings.attempt * if is_heavy { HEAVY_FACTOR } else { 1 };
    // What goes together in a batch is tried once more alone.
    let tries = others + usize::from(request.is_batch);
    let turns = request.items.len().div_ceil(settings.batch_parallel.max(1));
    let tries = u32::try_from(tries * turns).unwrap_or(u32::MAX);
    let is_possible = others < settings.attempts_max
        && attempt.saturating_mul(tries) + GOOD_ANSWER <= settings.total;
    well > 0 && is_possible
}

fn server_is_well(
    evidence: &Evidence,
    wellness: &Wellness,
    request: &Request,
    answered: &Answered,
) -> bool {
    let upstreams = &evidence.scenario.chains[request.chain].upstreams;
    let slot = upstreams.iter().position(|it| Some(&it.name) == answered.upstream.as_ref());
    slot.is_some_and(|slot| {
        wellness.is_well(Place { chain: request.chain, slot }, request.at, answered.at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{answered, evidence, exchange, read, request, verified_at_once};
    use crate::evidence::Told;
    use crate::weather::Spell;
    use crate::words::Dialect;

    const ERROR: &str = r#"{"code":-32002,"message":"no upstream could answer"}"#;

    /// A read whose reply has this member.
    fn check(ask: Ask, member: &str, change: impl FnOnce(&mut Evidence), found: usize) {
        let mut request = request(vec![read("1")]);
        request.items[0].ask = ask;
        request.answered = Some(answered(&format!(r#"{{"id":1,{member}}}"#)));
        let mut evidence = evidence(vec![request], vec![verified_at_once()]);
        change(&mut evidence);
        let violations = super::check(&evidence);
        assert_eq!(violations.len(), found, "{member}: {violations:?}");
    }

    #[test]
    fn a_failed_read_is_seen_while_an_upstream_is_well() {
        let failed = format!(r#""error":{ERROR}"#);
        check(Ask::Read, r#""result":"0x1""#, |_| {}, 0);
        check(Ask::Read, &failed, |_| {}, 1);
        check(Ask::Write, &failed, |_| {}, 0);
        check(Ask::Read, r#""result":null"#, |_| {}, 0);
        check(Ask::Pinned(3), r#""result":null"#, |_| {}, 1);
    }

    #[test]
    fn without_a_well_upstream_nothing_is_promised() {
        let unwell = |evidence: &mut Evidence| {
            let spell = Spell { from: At::ZERO, until: At::MAX / 2, kind: Kind::Crash };
            evidence.scenario.chains[0].upstreams[0].spells = vec![spell];
        };
        check(Ask::Read, &format!(r#""error":{ERROR}"#), unwell, 0);
    }

    #[test]
    fn one_that_refused_before_may_hold_its_word_for_too_long() {
        let spell =
            |from: At| Spell { from, until: from, kind: Kind::Throttle(Dialect::Plain(None)) };
        let quorum = |spells: Vec<Spell>| {
            move |evidence: &mut Evidence| {
                evidence.requests[0].items[0].method = "eth_call".to_owned();
                let settings = &mut evidence.scenario.settings;
                (settings.quorum, settings.pins) = (Some(1), true);
                evidence.scenario.chains[0].upstreams[0].spells = spells;
                evidence.requests[0].at += SETTLED;
                let answered = evidence.requests[0].answered.as_mut().expect("it is answered");
                answered.at += SETTLED;
            }
        };
        let failed = format!(r#""error":{ERROR}"#);
        check(Ask::Read, &failed, quorum(Vec::new()), 1);
        check(Ask::Read, &failed, quorum(vec![spell(At::ZERO)]), 0);
        check(Ask::Read, &failed, quorum(vec![spell(SETTLED * 3)]), 1);
    }

    /// After this nothing rests any more for a spell that began and ended at once.
    const SETTLED: Duration = Duration::from_secs(600);

    #[test]
    fn a_true_error_is_an_answer() {
        let reverts = |evidence: &mut Evidence| {
            let key = evidence.requests[0].items[0].key();
            let outcome = Err(r#"{"code":3,"message":"execution reverted"}"#.to_owned());
            let told = Told { is_honest: true, outcome };
            evidence.exchanges.push(exchange(&key, Some(told)));
        };
        check(Ask::Read, r#""error":{"code":3,"message":"execution reverted"}"#, reverts, 0);
        check(Ask::Read, r#""error":{"code":3,"message":"execution reverted"}"#, |_| {}, 1);
        let shared = |cache: &'static str| {
            move |evidence: &mut Evidence| {
                reverts(evidence);
                let other = evidence.exchanges.last_mut().expect("just added");
                other.began -= Duration::from_millis(1);
                let answered = evidence.requests[0].answered.as_mut().expect("it is answered");
                answered.cache = Some(cache);
            }
        };
        let error = r#""error":{"code":3,"message":"execution reverted"}"#;
        check(Ask::Read, error, shared("joined"), 0);
        check(Ask::Read, error, shared("miss"), 1);
    }

    #[test]
    fn an_answer_that_was_cut_is_its_upstreams_doing() {
        let cut = |by: &'static str| {
            move |evidence: &mut Evidence| {
                let answered = evidence.requests[0].answered.as_mut().expect("it is answered");
                answered.flow = Flow::Cut;
                answered.upstream = Some(by.to_owned());
            }
        };
        check(Ask::Read, r#""result":"0x"#, cut("up-0a"), 1);
        check(Ask::Read, r#""result":"0x"#, cut("another one"), 0);
    }
}
