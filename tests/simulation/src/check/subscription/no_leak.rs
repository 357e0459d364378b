//! What serves subscribers ends when the last one has left: no block is announced to none, and no feed of an
//! upstream stays open.

use std::time::Duration;

use super::Heard;
use crate::check::Finding;
use crate::evidence::Caller;

/// The journal is written for half a minute more; a call may be under way then.
const ANNOUNCED_FOR: Duration = Duration::from_secs(45);
/// So long the chain counts as in use; half a minute after that the feeds are closed.
const FED_FOR: Duration = Duration::from_secs(95);

pub(super) fn check(heard: &Heard<'_>) -> Vec<Finding> {
    let Some(left_at) = heard.evidence.left_at else { return Vec::new() };
    let mut findings = Vec::new();
    let announcer = heard.evidence.exchanges.iter();
    let late =
        announcer.filter(|it| it.caller == Caller::Announcer && it.began > left_at + ANNOUNCED_FOR);
    for exchange in late {
        let keys: Vec<&str> = exchange.calls.iter().map(|call| &*call.key).collect();
        findings.push((exchange.began, format!("announced to none: {}", keys.join(" "))));
    }
    for feed in &heard.evidence.feeds {
        if feed.closed.is_none_or(|closed| closed > left_at + FED_FOR) {
            let place = feed.place;
            let name = &heard.evidence.scenario.chains[place.chain].upstreams[place.slot].name;
            findings.push((left_at + FED_FOR, format!("the feed of {name} is still open")));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::sample::{LEFT, evidence, heads};
    use super::*;
    use crate::check::sample::{PLACE, exchange};
    use crate::evidence::{At, OpenedFeed};

    fn check(asked: Duration, closed: Option<Duration>, found: usize) {
        let mut evidence = evidence(vec![heads("7a")]);
        evidence.left_at = Some(LEFT);
        let mut exchange = exchange("x", None);
        (exchange.caller, exchange.began) = (Caller::Announcer, LEFT + asked);
        evidence.exchanges.push(exchange);
        let closed = closed.map(|after| LEFT + after);
        evidence.feeds =
            vec![OpenedFeed { place: PLACE, opened: At::ZERO, closed, is_of_pool: false }];
        assert_eq!(super::check(&Heard::of(&evidence)).len(), found, "{asked:?} {closed:?}");
    }

    #[test]
    fn what_goes_on_for_none_is_seen() {
        let second = Duration::from_secs;
        check(second(30), Some(second(90)), 0);
        check(second(60), Some(second(90)), 1);
        check(second(30), Some(second(100)), 1);
        check(second(30), None, 1);
    }
}
