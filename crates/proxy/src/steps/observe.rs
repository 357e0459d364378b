//! What answers to clients tell about their upstreams, for free: their heads, and how far they
//! reach.

use std::time::Instant;

use wellhead_chain::Observation;
use wellhead_dispatch::{Trail, now};
use wellhead_eth::{BlockNumber, BlockRef, BlockTag, MethodRow};
use wellhead_jsonrpc::raw;
use wellhead_route::PlanRequest;
use wellhead_upstream::{CallExtent, SearchSize, Slot, VerdictClass};

use crate::blocks::LOOK_INTO_MAX;
use crate::state::chain::ServedChain;

/// The methods whose answers show a head.
const TELLING: [&str; 3] = ["eth_blockNumber", "eth_getBlockByNumber", "eth_getBlockReceipts"];

/// Tells the chain what `result`, given by the upstream in `slot`, shows.
pub(crate) fn observe_head(
    chain: &ServedChain,
    slot: Slot,
    row: &MethodRow,
    block: &BlockRef,
    result: &[u8],
    now: Instant,
) {
    if !TELLING.contains(&row.name) {
        return;
    }
    let known = known(chain, slot);
    if let Some(seen) = shown(row, block, result, known) {
        chain.note_answered(slot, seen, now);
    }
}

/// Tells the chain that an answer by the upstream in `slot` was found in this block. Without
/// its hash nothing is told: a height alone would make one on another branch a good one again.
pub(crate) fn observe_block(chain: &ServedChain, slot: Slot, seen: Observation, now: Instant) {
    if seen.hash.is_some() && known(chain, slot).is_none_or(|known| seen.number > known) {
        chain.note_answered(slot, seen, now);
    }
}

fn known(chain: &ServedChain, slot: Slot) -> Option<BlockNumber> {
    chain.heads.look(|view| view.head(slot).map(|head| head.number))
}

/// Tells the upstreams what their answers to `ask` say of how far they reach.
pub(crate) fn observe_reach(chain: &ServedChain, ask: &PlanRequest<'_>, trail: &Trail) {
    for attempt in &trail.attempts {
        let upstream = chain.roster.upstream(attempt.slot);
        // An answer says something only where something was refused before.
        if attempt.class == VerdictClass::Answer && !upstream.has_refused_any(ask.row) {
            continue;
        }
        let head = chain.heads.look(|view| view.head(attempt.slot).map(|head| head.number));
        let size = SearchSize { blocks: ask.span, filter: ask.filter };
        let extent = CallExtent { oldest: ask.oldest, head, size };
        upstream.learn_reach(ask.row, attempt.class, attempt.learnt, &extent, now());
    }
}

/// The block that the answer shows to be there. Nothing when that is not above
/// `known`, which saves looking into it, or when the answer itself does not say so:
/// the number in the question is the client's word, and one that is far too high
/// would make every other upstream lag.
fn shown(
    row: &MethodRow,
    block: &BlockRef,
    result: &[u8],
    known: Option<BlockNumber>,
) -> Option<Observation> {
    if result.len() > LOOK_INTO_MAX {
        return None;
    }
    let is_news = |number: BlockNumber| known.is_none_or(|known| number > known);
    match (row.name, block) {
        ("eth_blockNumber", _) => raw::quantity(result)
            .map(BlockNumber)
            .filter(|number| is_news(*number))
            .map(Observation::of_number),
        ("eth_getBlockByNumber", BlockRef::Tag(BlockTag::Latest)) => Observation::of_block(result),
        ("eth_getBlockByNumber", BlockRef::Number(number)) if is_news(*number) => {
            Observation::of_block(result).filter(|seen| seen.number == *number)
        }
        ("eth_getBlockReceipts", BlockRef::Number(number)) if is_news(*number) => {
            let receipt = raw::item(result, 0)?;
            let told = raw::field(receipt, "blockNumber").and_then(raw::quantity);
            (told == Some(number.0)).then_some(Observation::of_number(*number))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    fn check(method: &str, params: &str, result: &str, known: Option<u64>, shows: Option<u64>) {
        let row = MethodTable::standard().row(method);
        let block = row.block_ref(Some(params.as_bytes()));
        assert!(shows.is_none() || TELLING.contains(&method), "{method}");
        let seen = shown(row, &block, result.as_bytes(), known.map(BlockNumber));
        let number = seen.map(|seen| seen.number.0);
        assert_eq!(number, shows, "{method}{params} {result} above {known:?}");
    }

    #[test]
    fn heads_are_learnt_from_what_upstreams_say() {
        check("eth_blockNumber", "[]", "\"0x64\"", None, Some(100));
        check("eth_blockNumber", "[]", "\"0x64\"", Some(99), Some(100));
        check("eth_blockNumber", "[]", "\"0x64\"", Some(100), None);
        let latest = r#"["latest",false]"#;
        check("eth_getBlockByNumber", latest, r#"{"number":"0x64"}"#, Some(3), Some(100));
        check("eth_getBlockByNumber", latest, "null", None, None);
        let number = r#"["0x64",false]"#;
        check("eth_getBlockByNumber", number, r#"{"number":"0x64"}"#, Some(3), Some(100));
        check("eth_getBlockByNumber", number, r#"{"number":"0x64"}"#, Some(100), None);
        check("eth_getBlockReceipts", number, r#"[{"blockNumber":"0x64"}]"#, None, Some(100));
        check("eth_getBalance", r#"["0xab","0x64"]"#, "\"0x64\"", None, None);
    }

    #[test]
    fn the_number_in_the_question_proves_nothing() {
        let far = r#"["0xffffffffffff",false]"#;
        for result in ["[]", "{}", "null", "true", r#"{"number":"0x64"}"#, r#"{"number":null}"#] {
            check("eth_getBlockByNumber", far, result, None, None);
        }
        for result in ["[]", "{}", "null", "[{}]", "[null]", r#"[{"blockNumber":"0x64"}]"#] {
            check("eth_getBlockReceipts", far, result, None, None);
        }
    }

    #[test]
    fn large_answers_are_not_looked_into() {
        let block = format!(r#"{{"number":"0x64","extraData":"{}"}}"#, "x".repeat(LOOK_INTO_MAX));
        check("eth_getBlockByNumber", r#"["latest",false]"#, &block, None, None);
    }
}
