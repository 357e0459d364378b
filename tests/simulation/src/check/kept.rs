//! What is told from memory, with no upstream asked, is still true.
//!
//! - What belongs to a block that was replaced is not told once that was seen. It was seen
//!   for certain when as many as have to agree stood on the old head, were well, and then
//!   told by themselves or to the house of a block whose parent stands where that head was.
//!   A reorg that is only seen from further above may have been none.
//!   A client that names a block by its hash is told of it in any case: it stays what it is.
//! - What is kept of a final height is of the block that stayed there.
//! - A state is told of final heights, or as what was said of a block by its hash and is what the
//!   world computes for the call there, while that block is not replaced and, where the newest is asked for, not older than what the client
//!   was told before. What was found in a range is told of final heights only.
//! - What changes with the head, and a `null`, are told for as long as the settings say.
//! - An error is never told from memory.
//!
//! That it was said to the same call at all is for `content` to say. An item of a batch was
//! kept when no upstream said its answer while the batch lived.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy_primitives::B256;
use serde_json::Value;
use wellhead_proxy::CacheSettings;
use wellhead_sim::rpc::HashMeans;

use crate::check::content::{Received, Since, computed, cut};
use crate::check::wellness::Wellness;
use crate::check::{Violation, height, outcomes, replies};
use crate::evidence::{
    Answered, Ask, At, End, Evidence, Exchange, Flow, Head, Item, Place, Replaced, Request,
};

/// So many have to hold a block, or all where there are fewer: the default of `agreement`.
const AGREEMENT: usize = 2;
/// A reorg is seen some time after it happened.
const REORG_IS_SEEN: Duration = Duration::from_secs(60);
/// An upstream that was asked shortly before a reorg may have had trouble then.
const BEFORE: Duration = Duration::from_secs(1);

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let memory = Memory::of(evidence);
    let mut violations = misled(evidence);
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        if answered.flow == Flow::Cut {
            continue;
        }
        for (item, outcome) in outcomes(request, answered) {
            let told = Told { memory: &memory, request, answered, item };
            if let Some(what) = told.untrue(outcome) {
                let what = format!("#{number}: {}: {what}", item.key());
                violations.push(Violation { checker: "kept", at: answered.at, what });
            }
        }
    }
    violations
}

/// Clients' calls that went by the hash of a block to an upstream to which it means something else.
fn misled(evidence: &Evidence) -> Vec<Violation> {
    let upstream = |place: Place| &evidence.scenario.chains[place.chain].upstreams[place.slot];
    let is_wrong = |exchange: &&Exchange| {
        !exchange.is_house() && upstream(exchange.place).hash_means != HashMeans::Block
    };
    let mut violations = Vec::new();
    for exchange in evidence.exchanges.iter().filter(is_wrong) {
        let by_hash = exchange.calls.iter().find(|call| {
            let is_state = ["eth_getBalance", "eth_call"].iter().any(|it| call.key.starts_with(it));
            is_state && call.key.contains("blockHash")
        });
        if let Some(call) = by_hash {
            let what = format!("{} was asked {}", upstream(exchange.place).name, call.key);
            violations.push(Violation { checker: "kept", at: exchange.began, what });
        }
    }
    violations
}

/// A block that an upstream told as its newest, to the house or by itself.
#[derive(Debug, Clone, Copy)]
struct Word {
    began: At,
    ended: At,
    number: u64,
    hash: B256,
}

/// By upstream, in the order in which they were said.
type Words = BTreeMap<Place, Vec<Word>>;

fn words(evidence: &Evidence) -> Words {
    let mut words = Words::new();
    for told in &evidence.told_heads {
        let Head { place, at, number, hash } = *told;
        let word = Word { began: at, ended: at, number, hash };
        words.entry(place).or_default().push(word);
    }
    for exchange in &evidence.exchanges {
        let (Some(ended), [call], End::Answered) =
            (exchange.ended, exchange.calls.as_slice(), exchange.end)
        else {
            continue;
        };
        let is_head = call.key.starts_with("eth_getBlockByNumber[\"latest\"");
        let told = call.told.as_ref().filter(|told| told.is_honest);
        let Some(Ok(block)) = told.map(|told| &told.outcome) else { continue };
        if let Some((number, hash)) = block_of(block).filter(|_| exchange.is_house() && is_head) {
            let word = Word { began: exchange.began, ended, number, hash };
            words.entry(exchange.place).or_default().push(word);
        }
    }
    words.values_mut().for_each(|words| words.sort_by_key(|word| word.ended));
    words
}

/// The block that a result is, or was found in; of a list, that of its first member.
fn block_of(result: &str) -> Option<(u64, B256)> {
    let value: Value = serde_json::from_str(result).ok()?;
    let object = if value.is_array() { value.get(0)? } else { &value };
    let (number, hash) = match object.get("parentHash") {
        Some(_) => ("number", "hash"),
        None => ("blockNumber", "blockHash"),
    };
    Some((height(object.get(number)?.as_str()?)?, object.get(hash)?.as_str()?.parse().ok()?))
}

/// What is known of a scenario to judge what was told from memory.
pub(super) struct Memory<'a> {
    evidence: &'a Evidence,
    received: Received<'a>,
    words: Words,
    wellness: Wellness,
}

impl<'a> Memory<'a> {
    pub(super) fn of(evidence: &'a Evidence) -> Self {
        Self {
            evidence,
            received: Received::of(evidence),
            words: words(evidence),
            wellness: Wellness::of(evidence),
        }
    }

    /// The newest height of a chain that was final at a moment.
    fn finalized(&self, chain: usize, at: At) -> Option<u64> {
        let made = self.evidence.heights[chain].iter().filter(|(made, _)| *made <= at);
        let distance = self.evidence.scenario.chains[chain].world.finalized_distance;
        made.map(|(_, height)| *height).max()?.checked_sub(distance)
    }

    /// The block of this height that stayed, where it is final.
    fn stayed(&self, chain: usize, number: u64) -> Option<B256> {
        Some(self.evidence.worlds.get(chain)?.chain().canonical(number)?.hash)
    }

    /// Whether this block had been replaced and the proxy had to know that.
    fn is_known_orphan(&self, chain: usize, hash: B256, before: At) -> bool {
        let reorgs = self.evidence.reorgs[chain].iter();
        let mut reorgs = reorgs.filter(|reorg| reorg.dropped.contains(&hash));
        reorgs.any(|reorg| self.seen_at(chain, reorg).is_some_and(|seen| seen < before))
    }

    /// When a reorg had been seen for certain. Later words do not undo it.
    pub(super) fn seen_at(&self, chain: usize, reorg: &Replaced) -> Option<At> {
        let upstreams = self.evidence.scenario.chains[chain].upstreams.iter().enumerate();
        let places: Vec<Place> = upstreams
            .filter(|(_, upstream)| !upstream.is_elsewhere)
            .map(|(slot, _)| Place { chain, slot })
            .collect();
        let mut shown: Vec<At> =
            places.iter().filter_map(|place| self.shown_at(*place, reorg)).collect();
        shown.sort_unstable();
        shown.get(AGREEMENT.min(places.len()).checked_sub(1)?).copied()
    }

    /// When one that stood on the old head showed that another block is there now.
    fn shown_at(&self, place: Place, reorg: &Replaced) -> Option<At> {
        let words = self.words.get(&place)?;
        let stood = words.iter().rfind(|word| word.ended < reorg.at)?;
        let after = words.iter().find(|word| word.began > reorg.at)?;
        let shows = stood.hash == reorg.head.1 && after.number <= reorg.head.0 + 1;
        let since = reorg.at.saturating_sub(BEFORE);
        (shows && self.wellness.is_well(place, since, after.ended)).then_some(after.ended)
    }
}

/// One answer.
struct Told<'a> {
    memory: &'a Memory<'a>,
    request: &'a Request,
    answered: &'a Answered,
    item: &'a Item,
}

impl Told<'_> {
    /// What is wrong with it, if it was kept.
    fn untrue(&self, outcome: Result<&str, &str>) -> Option<String> {
        let is_hit = self.answered.cache == Some("hit");
        let Some(settings) = self.memory.evidence.scenario.settings.cache else {
            return is_hit.then(|| "was kept, where nothing is".to_owned());
        };
        match outcome {
            Err(error) => is_hit.then(|| format!("an error was kept: {}", cut(error))),
            Ok(result) if is_hit || self.must_be_kept(result) => self.outlived(result, settings),
            Ok(_) => None,
        }
    }

    /// Whether it is an item of a batch whose answer no upstream said while the batch lived.
    fn must_be_kept(&self, result: &str) -> bool {
        let is_read = matches!(self.item.ask, Ask::Read | Ask::Pinned(_));
        is_read && self.request.is_batch && self.said(Since::Shared, result, None).is_none()
    }

    /// What was kept for longer than it was true.
    fn outlived(&self, result: &str, settings: CacheSettings) -> Option<String> {
        let method = self.item.method.as_str();
        if method == "web3_sha3" {
            return None;
        }
        if method == "eth_gasPrice" {
            return self.aged(result, settings.head);
        }
        if result == "null" {
            return self.aged(result, settings.null);
        }
        match (method, block_of(result)) {
            ("eth_getBalance" | "eth_call", _) => {
                self.not_of_its_block(result).and_then(|why| self.not_final(result).map(|_| why))
            }
            ("eth_getLogs", _) | (_, None) => self.not_final(result),
            (_, Some(block)) => self.replaced(block, result),
        }
    }

    /// Is older than the settings let it be.
    fn aged(&self, result: &str, time: Duration) -> Option<String> {
        let said = self.said(Since::Ever, result, None)?;
        let age = self.request.at.saturating_sub(said);
        let is_over = time.is_zero() || age > time;
        is_over.then(|| format!("{} was kept for {age:?}, of {time:?}", cut(result)))
    }

    /// Was not said of a block by its hash that may still be told.
    fn not_of_its_block(&self, result: &str) -> Option<String> {
        let (chain, at) = (self.request.chain, self.request.at);
        let oldest = self.told_before();
        let mut why = format!("{} was kept, of no block that is known", cut(result));
        for (number, hash, key) in self.item.keys_by_hash(&self.memory.evidence.blocks[chain]) {
            let since = (Since::Ever, at);
            let mut told = self.memory.received.told(chain, &key, since, self.answered.at);
            if !told.any(|(_, said)| said == Ok(result)) {
                continue;
            }
            if let Some(truth) = self.other_truth(hash, result) {
                why = format!("{} was kept as of {hash}, where it is {truth}", cut(result));
                continue;
            }
            // A view that is a few seconds old may stand on it though the chain went on.
            if self.memory.is_known_orphan(chain, hash, at) {
                why = format!("block {number} {hash} was known to be replaced");
            } else if number < oldest {
                why = format!("{} is of block {number}, below {oldest}", cut(result));
            } else {
                return None;
            }
        }
        Some(why)
    }

    /// What the world says to the call, seen from this block, if that is something else.
    fn other_truth(&self, hash: B256, result: &str) -> Option<String> {
        let world = self.memory.evidence.worlds.get(self.request.chain)?;
        let truth = computed(world, hash, self.item);
        (truth != result).then(|| cut(&truth))
    }

    /// The height that this client was told last before it asked for the newest state, where no
    /// reorg may have lowered it since; else 0.
    fn told_before(&self) -> u64 {
        let evidence = self.memory.evidence;
        let (chain, client, at) = (self.request.chain, self.request.client, self.request.at);
        if matches!(self.item.ask, Ask::Pinned(_)) {
            return 0;
        }
        let of_client = evidence.requests.iter().filter(|it| {
            let is_alone = it.items.len() == 1 && it.items[0].ask == Ask::Height;
            (it.chain, it.client) == (chain, client) && is_alone
        });
        let told = of_client.filter_map(|it| {
            let answered = it.answered.as_ref().filter(|answered| answered.at < at)?;
            let replies = replies(&answered.body, it.is_batch).ok()?;
            Some((answered.at, it.at, height(replies.first()?.outcome().ok()?.trim_matches('"'))?))
        });
        let Some((_, asked, height)) = told.max_by_key(|(answered, ..)| *answered) else {
            return 0;
        };
        let since = asked.saturating_sub(REORG_IS_SEEN);
        let may_be_lower = evidence.reorgs[chain].iter().any(|reorg| reorg.at >= since);
        if may_be_lower { 0 } else { height }
    }

    /// Belongs to a height that is not final, or to another block than the one that stayed.
    fn not_final(&self, result: &str) -> Option<String> {
        let chain = self.request.chain;
        let finalized = self.memory.finalized(chain, self.answered.at);
        if self.said(Since::Ever, result, Some(finalized.unwrap_or_default())).is_none() {
            let what = cut(result);
            return Some(format!("{what} was kept, and only {finalized:?} is final"));
        }
        let Ask::Pinned(number) = self.item.ask else { return None };
        let world = self.memory.evidence.worlds.get(chain)?;
        let truth = computed(world, self.memory.stayed(chain, number)?, self.item);
        (truth != result).then(|| format!("{} was kept, and is {}", cut(result), cut(&truth)))
    }

    /// Belongs to a block that was replaced.
    fn replaced(&self, (number, hash): (u64, B256), result: &str) -> Option<String> {
        let (chain, at) = (self.request.chain, self.request.at);
        if self.item.method == "eth_getBlockByHash" {
            return None;
        }
        if self.memory.is_known_orphan(chain, hash, at) {
            return Some(format!("block {number} {hash} was known to be replaced"));
        }
        if let Some(truth) = self.other_truth(hash, result) {
            return Some(format!("{} was kept as of {hash}, where it is {truth}", cut(result)));
        }
        let is_final = self.memory.finalized(chain, at).is_some_and(|mark| number <= mark);
        let stayed = self.memory.stayed(chain, number).filter(|_| is_final);
        let is_other = stayed.is_some_and(|stayed| stayed != hash);
        is_other.then(|| format!("final block {number} was kept as {hash}"))
    }

    /// When this was last said to the call, at a height up to `highest` where that is given.
    fn said(&self, since: Since, result: &str, highest: Option<u64>) -> Option<At> {
        let chain = self.request.chain;
        let blocks = &self.memory.evidence.blocks[chain];
        let is_low = |key: &String| {
            highest.is_none_or(|highest| height_of(key).is_some_and(|named| named <= highest))
        };
        let keys = self.item.keys(blocks).into_iter().filter(is_low);
        let since = (since, self.request.at);
        keys.flat_map(|key| {
            let told = self.memory.received.told(chain, &key, since, self.answered.at);
            told.filter(|(_, said)| *said == Ok(result)).map(|(at, _)| at).collect::<Vec<At>>()
        })
        .max()
    }
}

/// The height that a call names, in its last parameter; the last one of a range.
fn height_of(key: &str) -> Option<u64> {
    let params: Value = serde_json::from_str(&key[key.find('[')?..]).ok()?;
    let last = params.as_array()?.last()?;
    height(last.get("toBlock").unwrap_or(last).as_str()?)
}

#[cfg(test)]
mod tests {
    use wellhead_sim::{World, WorldConfig};

    use wellhead_proxy::ByHashMode;

    use super::*;
    use crate::check::sample::verified_at_once;
    use crate::check::sample::{PLACE, answered, evidence, exchange, read, request};
    use crate::evidence::Caller;
    use crate::evidence::Told as Said;

    const SECOND: Duration = Duration::from_secs(1);
    const SETTINGS: CacheSettings =
        CacheSettings { bytes: 1 << 20, head: SECOND, null: SECOND, by_hash: ByHashMode::Auto };

    /// An answer from memory at 50 s, whose call an upstream answered at 40 s with `said`.
    fn told(method: &str, params: &str, said: &str) -> Evidence {
        let mut item = read("1");
        (item.method, item.params) = (method.to_owned(), params.to_owned());
        let outcome = Ok(said.to_owned());
        let mut first = exchange(&item.key(), Some(Said { is_honest: true, outcome }));
        (first.began, first.ended) = (SECOND * 40, Some(SECOND * 40));
        let mut request = request(vec![item]);
        let mut answer = answered(&format!(r#"{{"id":1,"result":{said}}}"#));
        answer.cache = Some("hit");
        request.answered = Some(answer);
        let mut evidence = evidence(vec![request], vec![verified_at_once(), first]);
        evidence.scenario.settings.cache = Some(SETTINGS);
        evidence.scenario.chains[0].world.finalized_distance = 6;
        evidence.heights[0].push((Duration::ZERO, 10));
        evidence
    }

    #[track_caller]
    fn check(evidence: &Evidence, found: usize) {
        let violations = super::check(evidence);
        assert_eq!(violations.len(), found, "{violations:?}");
    }

    #[test]
    fn nothing_is_kept_where_the_settings_say_so() {
        let mut evidence = told("web3_sha3", r#"["0x"]"#, "\"0x1\"");
        check(&evidence, 0);
        evidence.scenario.settings.cache = None;
        check(&evidence, 1);
    }

    #[test]
    fn no_error_is_kept() {
        let mut evidence = told("web3_sha3", r#"["0x"]"#, "\"0x1\"");
        let answer = evidence.requests[0].answered.as_mut().expect("it is answered");
        answer.body = r#"{"id":1,"error":{"code":3,"message":"execution reverted"}}"#.into();
        check(&evidence, 1);
    }

    #[test]
    fn what_changes_with_the_head_is_kept_for_its_time() {
        for (method, said) in [("eth_gasPrice", "\"0x1\""), ("eth_getTransactionByHash", "null")] {
            let mut evidence = told(method, "[]", said);
            check(&evidence, 1);
            evidence.exchanges[1].ended = Some(SECOND * 49);
            check(&evidence, 0);
            let zero = CacheSettings { head: Duration::ZERO, null: Duration::ZERO, ..SETTINGS };
            evidence.scenario.settings.cache = Some(zero);
            check(&evidence, 1);
        }
    }

    #[test]
    fn states_are_kept_of_final_heights_and_of_blocks_by_their_hash() {
        check(&told("eth_getBalance", r#"["0x00","0x4"]"#, "\"0x1\""), 0);
        check(&told("eth_getBalance", r#"["0x00","0x5"]"#, "\"0x1\""), 1);
        check(&told("eth_getBalance", r#"["0x00","latest"]"#, "\"0x1\""), 1);
        let hash = B256::repeat_byte(8);
        let by_hash = format!(r#"["0x00",{{"blockHash":"{hash}"}}]"#);
        let mut evidence = told("eth_getBalance", &by_hash, "\"0x1\"");
        evidence.blocks[0].insert(8, vec![hash]);
        for (params, found) in [("0x8", 0), ("latest", 0), ("0x7", 1)] {
            evidence.requests[0].items[0].params = format!(r#"["0x00","{params}"]"#);
            check(&evidence, found);
        }
        let logs = |to| format!(r#"[{{"fromBlock":"0x1","toBlock":"{to}"}}]"#);
        check(&told("eth_getLogs", &logs("0x4"), "[]"), 0);
        check(&told("eth_getLogs", &logs("0x5"), "[]"), 1);
    }

    #[test]
    fn an_item_of_a_batch_was_kept_when_no_upstream_said_it() {
        let mut evidence = told("eth_getBalance", r#"["0x00","0x5"]"#, "\"0x1\"");
        let request = &mut evidence.requests[0];
        request.is_batch = true;
        let answer = request.answered.as_mut().expect("it is answered");
        answer.cache = None;
        answer.body = format!("[{}]", String::from_utf8_lossy(&answer.body)).into();
        check(&evidence, 1);
        evidence.exchanges[1].ended = Some(evidence.requests[0].at);
        check(&evidence, 0);
    }

    #[test]
    fn what_stays_is_the_block_that_stayed() {
        let config =
            WorldConfig { history_blocks: 10, finalized_distance: 6, ..WorldConfig::seeded(7) };
        let world = World::new(config);
        let stayed = world.chain().canonical(4).expect("it was mined").hash;
        let item = Item {
            method: "eth_getBlockByNumber".into(),
            params: r#"["0x4",false]"#.into(),
            ..read("1")
        };
        let truth = computed(&world, stayed, &item);
        let other_hash = truth.replace(&stayed.to_string(), &B256::repeat_byte(1).to_string());
        // Of the right block, and yet not what the world says of it.
        let other_gas = truth.replace("\"gasUsed\":\"0x", "\"gasUsed\":\"0x1");
        for (block, found) in [(truth, 0), (other_hash, 1), (other_gas, 1)] {
            let mut evidence = told("eth_getBlockByNumber", r#"["0x4",false]"#, &block);
            evidence.worlds = vec![std::sync::Arc::clone(&world)];
            check(&evidence, found);
        }
        let account = world.wallets()[0].address();
        let mut evidence = told("eth_getBalance", &format!(r#"["{account}","0x4"]"#), "\"0x1\"");
        evidence.requests[0].items[0].ask = Ask::Pinned(4);
        evidence.worlds = vec![world];
        check(&evidence, 1);
    }

    #[test]
    fn an_orphan_is_not_told_once_it_was_seen() {
        let hash = B256::repeat_byte;
        let block = |number: u64, own: u8| {
            format!(r#"{{"number":"{number:#x}","hash":"{}","parentHash":"0x"}}"#, hash(own))
        };
        // Block 8 was replaced together with those up to 10, at 45 s.
        let mut evidence = told("eth_getBlockByNumber", r#"["0x8",false]"#, &block(8, 8));
        let dropped = vec![hash(8), hash(9), hash(10)];
        evidence.reorgs[0].push(Replaced { at: SECOND * 45, head: (10, hash(10)), dropped });
        let shown = |at: u32, number, own| {
            let outcome = Ok(block(number, own));
            let key = r#"eth_getBlockByNumber["latest",false]"#;
            let mut word = exchange(key, Some(Said { is_honest: true, outcome }));
            (word.began, word.ended) = (SECOND * at, Some(SECOND * at));
            word.caller = Caller::House;
            (word.place, word.end) = (PLACE, End::Answered);
            word
        };
        evidence.exchanges.push(shown(44, 10, 10));
        check(&evidence, 0);
        let mut seen = evidence;
        seen.exchanges.push(shown(46, 11, 111));
        check(&seen, 1);
        // A block later nothing shows that the others are gone.
        *seen.exchanges.last_mut().expect("just added") = shown(46, 12, 112);
        check(&seen, 0);
        *seen.exchanges.last_mut().expect("still there") = shown(51, 11, 111);
        check(&seen, 0);
    }
}
