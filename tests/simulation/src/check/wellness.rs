//! Which upstreams are well, and when: judged from outside, by the weather and by what was received.
//!
//! An upstream is well from one moment to another when
//!
//! - it shows the right chain, and told its chain id to the control loop before;
//! - its settings bound nothing of what it may be asked for;
//! - no spell has a hand in that time, nor ended so shortly before that the proxy may
//!   still rightly rest it ([`Kind::settling`](crate::weather::Kind::settling));
//! - it refused nothing for its meter, and every pause that it asked for is over;
//! - whatever it was asked in that time, and shortly before, it answered whole and within
//!   [`PROMPT`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::evidence::{At, End, Evidence, Place};

/// A well upstream answers within this; one that queues calls in silence does not.
const PROMPT: Duration = Duration::from_millis(900);
/// A refusal without a pause in it is good for this one.
const PAUSE: Duration = Duration::from_secs(1);
/// The settings' longest rest, and so long until a probe has ended it.
const PROBE_AFTER: Duration = Duration::from_secs(6);

/// For each upstream, the times in which it is not well.
#[derive(Debug)]
pub(super) struct Wellness {
    unwell: BTreeMap<Place, Vec<(At, At)>>,
}

impl Wellness {
    pub(super) fn of(evidence: &Evidence) -> Self {
        let rest_max = evidence.scenario.settings.breaker.rest_max;
        let mut unwell: BTreeMap<Place, Vec<(At, At)>> = BTreeMap::new();
        for place in evidence.places() {
            let plan = &evidence.scenario.chains[place.chain].upstreams[place.slot];
            let spans = unwell.entry(place).or_default();
            // One whose settings bound it may be at a bound at any time.
            if plan.is_elsewhere || plan.budget.is_some() {
                spans.push((At::ZERO, At::MAX));
            }
            spans.push((At::ZERO, verified(evidence, place)));
            for spell in &plan.spells {
                spans.push((spell.from, spell.until + spell.kind.settling(rest_max)));
            }
        }
        for exchange in &evidence.exchanges {
            let ended = exchange.ended.unwrap_or(At::MAX);
            let took = ended.saturating_sub(exchange.began);
            let until = match exchange.end {
                End::Refused(pause) => ended + pause.unwrap_or(PAUSE).max(PAUSE),
                End::Answered | End::Abandoned if took <= PROMPT => continue,
                End::Answered | End::Abandoned | End::Failed | End::Open => {
                    ended.saturating_add(rest_max + PROBE_AFTER)
                }
            };
            unwell.entry(exchange.place).or_default().push((exchange.began, until));
        }
        Self { unwell }
    }

    /// Whether it is well all the time between two moments.
    pub(super) fn is_well(&self, place: Place, from: At, until: At) -> bool {
        let spans = self.unwell.get(&place).map_or(&[][..], Vec::as_slice);
        !spans.iter().any(|(begin, end)| *begin <= until && *end >= from)
    }
}

/// When it had told the control loop which chain it is on.
fn verified(evidence: &Evidence, place: Place) -> At {
    let told = |exchange: &&crate::evidence::Exchange| {
        exchange.is_house()
            && exchange.end == End::Answered
            && exchange.calls.iter().any(|call| call.key.starts_with("eth_chainId"))
    };
    evidence.exchanges_of(place).find(told).and_then(|it| it.ended).unwrap_or(At::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::sample::{PLACE, evidence, exchange, verified_at_once};
    use crate::evidence::Caller;
    use crate::weather::{Kind, Spell};

    const SECOND: Duration = Duration::from_secs(1);

    fn check(change: impl FnOnce(&mut Evidence), is_well: bool) {
        let mut evidence = evidence(Vec::new(), vec![verified_at_once()]);
        change(&mut evidence);
        let wellness = Wellness::of(&evidence);
        assert_eq!(wellness.is_well(PLACE, SECOND * 100, SECOND * 101), is_well);
    }

    /// An exchange from 99 s on that takes so long.
    fn ended(end: End, took: Duration) -> impl FnOnce(&mut Evidence) {
        move |evidence| {
            let mut one = exchange("x", None);
            (one.began, one.ended, one.end) = (SECOND * 99, Some(SECOND * 99 + took), end);
            evidence.exchanges.push(one);
        }
    }

    #[test]
    fn only_a_verified_upstream_can_be_well() {
        check(|_| {}, true);
        check(|evidence| evidence.exchanges.clear(), false);
        check(|evidence| evidence.exchanges[0].caller = Caller::Client, false);
        check(|evidence| evidence.scenario.chains[0].upstreams[0].is_elsewhere = true, false);
    }

    #[test]
    fn a_spell_counts_until_it_has_settled() {
        let spell = |from: u32, until: u32| {
            move |evidence: &mut Evidence| {
                let spell = Spell { from: SECOND * from, until: SECOND * until, kind: Kind::Crash };
                evidence.scenario.chains[0].upstreams[0].spells = vec![spell];
            }
        };
        check(spell(1, 2), true);
        check(spell(1, 99), false);
        check(spell(101, 110), false);
        check(spell(102, 110), true);
    }

    #[test]
    fn what_it_did_counts() {
        check(ended(End::Answered, PROMPT), true);
        check(ended(End::Answered, PROMPT * 2), false);
        check(ended(End::Failed, PROMPT), false);
        check(ended(End::Abandoned, PROMPT), true);
        check(ended(End::Abandoned, PROMPT * 2), false);
        check(ended(End::Refused(None), Duration::ZERO), false);
    }
}
