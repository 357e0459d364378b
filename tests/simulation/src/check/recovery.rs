//! While all upstreams of a chain are down its clients hear so, and from which upstreams; and when one
//! of them is back it serves within a second.
//!
//! An outage is a time in which every upstream of a chain is down at once: it takes no
//! calls, is silent, or fails all of them. It ends with the first that comes back. From a
//! second after that on, reads that live while this one stays well do not fail, however long
//! it was to rest, if there are attempts enough to pass the others; and they are answered
//! soon, and by the first attempt, once the outage was long enough, and clients called often
//! enough, for all upstreams to be known to be down.

use std::time::Duration;

use crate::check::{Violation, code, replies};
use crate::evidence::{At, End, Evidence, Item, Place, Request};
use crate::weather::{Kind, Spell};

/// From its return until it serves.
const BACK_AFTER: Duration = Duration::from_secs(1);
/// What an answer may take then: its own time, and no other's.
const PROMPT: Duration = Duration::from_secs(1);
/// So long before its end all upstreams were down, and were called at least once a second, if
/// all are known to be down.
const KNOWN_AFTER: Duration = Duration::from_secs(8);
/// A silence of clients that is not longer leaves no upstream unprobed.
const QUIET_MAX: Duration = Duration::from_secs(2);
/// The code of "no upstream could answer".
const NO_UPSTREAM: i64 = -32002;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    for chain in 0..evidence.scenario.chains.len() {
        let returns = returns(evidence, chain);
        for (number, request) in evidence.requests.iter().enumerate() {
            if request.chain != chain {
                continue;
            }
            for what in failures(evidence, request, &returns) {
                let at = request.answered.as_ref().map_or(request.at, |answered| answered.at);
                let what = format!("#{number}: {what}");
                violations.push(Violation { checker: "recovery", at, what });
            }
        }
    }
    violations
}

/// The end of an outage.
#[derive(Debug, Clone, Copy)]
struct Return {
    place: Place,
    at: At,
    /// Until its next trouble.
    until: At,
    /// All had to be known to be down.
    is_known: bool,
}

/// Outages of a chain that ended, by the upstream that ended them.
fn returns(evidence: &Evidence, chain: usize) -> Vec<Return> {
    let upstreams = &evidence.scenario.chains[chain].upstreams;
    let down_since = |slot: usize, at: At| {
        let mut spells = upstreams[slot].spells.iter();
        let spell = spells.rfind(|it| is_down(it.kind) && it.from < at && it.until >= at);
        spell.map(|spell| spell.from)
    };
    let mut returns = Vec::new();
    for (slot, upstream) in upstreams.iter().enumerate() {
        let place = Place { chain, slot };
        let is_plain = upstream.meter.is_none()
            && upstream.shaped.is_none()
            && upstream.budget.is_none()
            && !upstream.is_elsewhere;
        for spell in upstream.spells.iter().filter(|it| is_plain && is_down(it.kind)) {
            let at = spell.until;
            let others = (0..upstreams.len()).map(|other| match other == slot {
                true => Some(spell.from),
                false => down_since(other, at),
            });
            let Some(since) = others.collect::<Option<Vec<At>>>() else { continue };
            let since = since.into_iter().max().unwrap_or_default();
            if !was_verified(evidence, place, since) {
                continue;
            }
            let until = trouble(evidence, place, &upstream.spells, at);
            let is_known = since + KNOWN_AFTER <= at && is_called(evidence, chain, since, at);
            returns.push(Return { place, at, until, is_known });
        }
    }
    returns
}

/// Whether it answers no call, and any call shows that: a probe too.
fn is_down(kind: Kind) -> bool {
    matches!(kind, Kind::Crash | Kind::Hang | Kind::Page(500..))
}

/// Whether it had told which chain it is on, and nothing before this outage is remembered.
fn was_verified(evidence: &Evidence, place: Place, before: At) -> bool {
    let plan = &evidence.scenario.chains[place.chain].upstreams[place.slot];
    let is_fresh = plan.spells.iter().all(|spell| spell.until >= before || is_down(spell.kind));
    is_fresh
        && evidence.exchanges_of(place).any(|exchange| {
            exchange.is_house()
                && exchange.end == End::Answered
                && exchange.ended.is_some_and(|ended| ended < before)
                && exchange.calls.iter().any(|call| call.key.starts_with("eth_chainId"))
        })
}

/// When it next fails, is slow, or has a spell of any kind.
fn trouble(evidence: &Evidence, place: Place, spells: &[Spell], after: At) -> At {
    let spell = spells.iter().map(|spell| spell.from).filter(|from| *from >= after).min();
    let bad = evidence.exchanges_of(place).filter(|exchange| {
        let took = exchange.ended.map(|ended| ended - exchange.began);
        let is_good = matches!(exchange.end, End::Answered | End::Abandoned)
            && took.is_some_and(|took| took < PROMPT / 2);
        exchange.began >= after && !is_good
    });
    let bad = bad.map(|exchange| exchange.began).min();
    spell.into_iter().chain(bad).min().unwrap_or(At::MAX)
}

/// Whether clients called all the time, but for short pauses.
fn is_called(evidence: &Evidence, chain: usize, from: At, until: At) -> bool {
    let requests = evidence.requests.iter().filter(|it| it.chain == chain).map(|it| it.at);
    let mut last = from;
    for at in requests.filter(|at| (from..until).contains(at)).chain([until]) {
        if at - last > QUIET_MAX {
            return false;
        }
        last = at;
    }
    true
}

fn failures(evidence: &Evidence, request: &Request, returns: &[Return]) -> Vec<String> {
    let Some(answered) = &request.answered else { return Vec::new() };
    let Ok(replies) = replies(&answered.body, request.is_batch) else { return Vec::new() };
    let back = returns.iter().find(|back| {
        request.at >= back.at + BACK_AFTER
            && answered.at < back.until
            && answered.at < tail(evidence, back)
    });
    // Those that are not known to be down are asked first, and take as many attempts.
    let others = evidence.scenario.chains[request.chain].upstreams.len() - 1;
    let has_attempts = others < evidence.scenario.settings.attempts_max;
    let mut failures = Vec::new();
    let items = request.items.iter().filter(|item| item.id.is_some());
    for (item, reply) in items.zip(&replies) {
        let Err(error) = reply.outcome() else { continue };
        if code(error) != Some(NO_UPSTREAM) {
            continue;
        }
        let upstreams = &evidence.scenario.chains[request.chain].upstreams;
        for upstream in upstreams.iter().filter(|it| !error.contains(&it.name)) {
            failures.push(format!("{} is not named in: {error}", upstream.name));
        }
        // One is not enough where several have to agree.
        let needs_one = !evidence.scenario.needs_quorum(request.chain, &item.method);
        if let Some(back) =
            back.filter(|back| item.ask.is_read() && needs_one && (back.is_known || has_attempts))
        {
            let name = &upstreams[back.place.slot].name;
            failures.push(format!("{name} is back since {:?}: {error}", back.at));
        }
    }
    let needs_one = |item: &Item| !evidence.scenario.needs_quorum(request.chain, &item.method);
    let is_alone =
        !request.is_batch && request.items.iter().all(|item| item.ask.is_read() && needs_one(item));
    if let Some(back) = back.filter(|back| back.is_known && is_alone)
        && answered.at - request.at > PROMPT
    {
        let took = answered.at - request.at;
        failures.push(format!("took {took:?} after the return at {:?}", back.at));
    }
    failures
}

/// When another one comes back as well, what is promised is what `reads` promises.
fn tail(evidence: &Evidence, back: &Return) -> At {
    let upstreams = evidence.scenario.chains[back.place.chain].upstreams.iter().enumerate();
    let others = upstreams.filter(|(slot, _)| *slot != back.place.slot);
    let spells = others.flat_map(|(_, upstream)| &upstream.spells);
    spells.map(|spell| spell.until).filter(|until| *until > back.at).min().unwrap_or(At::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{answered, evidence, read, request, verified_at_once};

    const SECOND: Duration = Duration::from_secs(1);
    const ERROR: &str = r#"{"code":-32002,"message":"no upstream could answer: up-0a rests"}"#;

    /// A read at 50 s with this reply and so long until it came; the only upstream was down
    /// until `back`.
    fn check(member: &str, back_ms: u64, took: Duration, found: usize) {
        let mut request = request(vec![read("1")]);
        let mut answered = answered(&format!(r#"{{"id":1,{member}}}"#));
        answered.at = request.at + took;
        request.answered = Some(answered);
        // Others, so that all are known to be down.
        let mut requests: Vec<Request> = (0..50).map(|_| self::request(vec![])).collect();
        requests.iter_mut().zip(0..).for_each(|(it, second)| it.at = SECOND * second);
        requests.push(request);
        let mut evidence = evidence(requests, vec![verified_at_once()]);
        let until = Duration::from_millis(back_ms);
        let spell = Spell { from: SECOND * 10, until, kind: Kind::Crash };
        evidence.scenario.chains[0].upstreams[0].spells = vec![spell];
        let violations = super::check(&evidence);
        assert_eq!(violations.len(), found, "{member} {back_ms}: {violations:?}");
    }

    #[test]
    fn a_second_after_its_return_it_serves() {
        let (failed, good) = (format!(r#""error":{ERROR}"#), r#""result":"0x1""#);
        check(&failed, 49_000, Duration::ZERO, 1);
        check(&failed, 49_100, Duration::ZERO, 0);
        check(&failed, 60_000, Duration::ZERO, 0);
        check(good, 49_000, PROMPT, 0);
        check(good, 49_000, PROMPT * 2, 1);
        check(good, 49_100, PROMPT * 2, 0);
    }

    #[test]
    fn all_upstreams_are_named() {
        check(r#""error":{"code":-32002,"message":"no luck"}"#, 60_000, Duration::ZERO, 1);
        check(r#""error":{"code":-32000,"message":"no luck"}"#, 60_000, Duration::ZERO, 0);
    }
}
