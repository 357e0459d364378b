//! What several upstreams must answer alike was answered alike by as many.
//!
//! Judged by what upstreams said to the same call while the call lived, or ever before where
//! the answer may have been kept. That no lie reaches a client is for `content` to say: one
//! upstream may lie, and two must agree.

use std::collections::BTreeSet;

use crate::check::content::Since;
use crate::check::{Violation, outcomes};
use crate::evidence::{Answered, At, Evidence, Exchange, Item, Request};

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut violations = Vec::new();
    let Some(agree) = evidence.scenario.settings.quorum else { return violations };
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        for (item, outcome) in outcomes(request, answered) {
            let Ok(result) = outcome else { continue };
            if !evidence.scenario.needs_quorum(request.chain, &item.method) {
                continue;
            }
            let voices = voices(evidence, request, answered, item, result);
            if voices < agree {
                let what = format!("#{number}: {}: {voices} said so", item.key());
                violations.push(Violation { checker: "quorum", at: answered.at, what });
            }
        }
    }
    violations
}

/// How many upstreams said this.
fn voices(
    evidence: &Evidence,
    request: &Request,
    answered: &Answered,
    item: &Item,
    result: &str,
) -> usize {
    let keys = item.keys(&evidence.blocks[request.chain]);
    let since = Since::of(evidence, request, answered, item);
    let is_in_time = |exchange: &Exchange, ended: At| {
        ended <= answered.at
            && match since {
                Since::Asked => exchange.began >= request.at,
                // One that joins late was not there when the first of them spoke.
                Since::Shared | Since::Ever => true,
            }
    };
    let says_so = |exchange: &&Exchange| {
        exchange.place.chain == request.chain
            && exchange.ended.is_some_and(|ended| is_in_time(exchange, ended))
            && exchange.calls.iter().any(|call| {
                let told = call.told.as_ref().map(|told| &told.outcome);
                keys.contains(&call.key) && told.is_some_and(|it| it.as_deref() == Ok(result))
            })
    };
    let slots: BTreeSet<usize> =
        evidence.exchanges.iter().filter(says_so).map(|exchange| exchange.place.slot).collect();
    slots.len()
}

#[cfg(test)]
mod tests {
    use crate::check::sample::{answered, evidence, exchange, read, request};
    use crate::evidence::{Place, Told};
    use crate::scenario::QUORUM_METHODS;

    /// An answer of `0x1`, and what each upstream said, by slot.
    fn check(said: &[(usize, &str)], found: usize) {
        let mut item = read("1");
        item.method = QUORUM_METHODS[0].to_owned();
        let exchanges = said.iter().map(|(slot, result)| {
            let outcome = Ok(format!("\"{result}\""));
            let told = Told { is_honest: true, outcome };
            let mut one = exchange(&item.key(), Some(told));
            one.place = Place { chain: 0, slot: *slot };
            one
        });
        let exchanges = exchanges.collect();
        let mut request = request(vec![item.clone()]);
        request.answered = Some(answered(r#"{"id":1,"result":"0x1"}"#));
        let mut evidence = evidence(vec![request], exchanges);
        evidence.scenario.settings.quorum = Some(2);
        let upstreams = &mut evidence.scenario.chains[0].upstreams;
        upstreams.push(upstreams[0].clone());
        assert_eq!(super::check(&evidence).len(), found, "{said:?}");
    }

    #[test]
    fn one_voice_is_too_few() {
        check(&[(0, "0x1"), (1, "0x1")], 0);
        check(&[(0, "0x1"), (1, "0x2")], 1);
        check(&[(0, "0x1"), (0, "0x1")], 1);
        check(&[(0, "0x1")], 1);
    }
}
