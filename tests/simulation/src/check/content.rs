//! What a client gets is true, and an answer to what it asked.
//!
//! A result must be, byte for byte, what some upstream said to the same call while the
//! call lived, when no fault had a hand in it: so it belongs to no other call, and not garbled. An
//! answer that was kept may have been said before the call came, and one that was shared to
//! a call that was there earlier; whether it is still true is for `kept` to say. For
//! blocks and states at a height it is computed anew from the world besides; a hash of data
//! that only one call carries, likewise.

use std::collections::HashMap;
use std::time::Duration;

use alloy_primitives::B256;
use serde_json::Value;
use wellhead_sim::rpc::{CallContext, Filters};
use wellhead_sim::world::Standpoint;
use wellhead_sim::{Dials, World, rpc};

use crate::ask::sha3_of;
use crate::check::{Violation, code, outcomes};
use crate::evidence::{Answered, Ask, At, Evidence, Exchange, Flow, Item, Request, key};
use crate::upstream::LOGS;

/// The code of a revert: a verdict of a contract, and as true as a result.
const REVERTED: i64 = 3;
/// The code of what is not a call.
const INVALID_REQUEST: i64 = -32600;

pub(super) fn check(evidence: &Evidence) -> Vec<Violation> {
    let received = Received::of(evidence);
    let mut violations = Vec::new();
    for (number, request) in evidence.requests.iter().enumerate() {
        let Some(answered) = &request.answered else { continue };
        if answered.flow == Flow::Cut {
            continue;
        }
        for (item, outcome) in outcomes(request, answered) {
            // No upstream was asked for all of it at once.
            if evidence.is_in_parts(request, item) {
                continue;
            }
            let told = Heard {
                received: &received,
                request,
                until: answered.at,
                since: Since::of(evidence, request, answered, item),
            };
            if let Err(what) = told.check(item, outcome) {
                let what = format!("#{number}: {}: {what}", item.key());
                violations.push(Violation { checker: "content", at: answered.at, what });
            }
        }
    }
    violations
}

/// The call whose answer is held while a better one is looked for: see `wellhead_proxy`'s `floor`.
const NEWEST_BLOCK: &str = r#"eth_getBlockByNumber["latest""#;
/// Clients that share such a call may come this long after the answer.
const SHARED_FOR: Duration = Duration::from_secs(5);

/// What upstreams received.
pub(super) struct Received<'a> {
    evidence: &'a Evidence,
    /// Exchanges and places in them, by method and params.
    places: HashMap<&'a str, Vec<(usize, usize)>>,
}

/// Since when an answer may have been said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    /// An upstream was asked for this call.
    Asked,
    /// An equal call was under way for another client.
    Shared,
    /// It was kept, from whenever.
    Ever,
}

impl Since {
    /// By what the answer says of the cache; of the items of a batch nothing is said.
    pub(super) fn of(
        evidence: &Evidence,
        request: &Request,
        answered: &Answered,
        item: &Item,
    ) -> Self {
        let settings = &evidence.scenario.settings;
        let may_be_other = request.is_batch && item.ask != Ask::Write;
        match answered.cache {
            Some("hit") => Self::Ever,
            Some("joined") => Self::Shared,
            None if may_be_other && settings.cache.is_some() => Self::Ever,
            None if may_be_other && settings.coalesces => Self::Shared,
            Some(_) | None => Self::Asked,
        }
    }
}

/// Something that was honestly said, and when.
pub(super) type Word<'a> = (At, Result<&'a str, &'a str>);

impl<'a> Received<'a> {
    pub(super) fn of(evidence: &'a Evidence) -> Self {
        let mut places: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
        for (number, exchange) in evidence.exchanges.iter().enumerate() {
            for (place, call) in exchange.calls.iter().enumerate() {
                places.entry(&call.key).or_default().push((number, place));
            }
        }
        Self { evidence, places }
    }

    /// What was honestly said on a chain to this call, up to a moment.
    pub(super) fn told(
        &self,
        chain: usize,
        key: &str,
        since: (Since, At),
        until: At,
    ) -> impl Iterator<Item = Word<'a>> {
        let evidence = self.evidence;
        let places = self.places.get(key).map_or(&[][..], Vec::as_slice);
        let (since, at) = since;
        // They are in the order in which they began.
        let first = match since {
            Since::Asked => {
                places.partition_point(|(number, _)| evidence.exchanges[*number].began < at)
            }
            Since::Shared | Since::Ever => 0,
        };
        places[first..].iter().filter_map(move |(number, place)| {
            let exchange: &Exchange = &evidence.exchanges[*number];
            let ended = exchange.ended.filter(|ended| *ended <= until)?;
            let lasts = if key.starts_with(NEWEST_BLOCK) { SHARED_FOR } else { Duration::ZERO };
            let in_time = since != Since::Shared || ended + lasts >= at;
            let told = exchange.calls[*place].told.as_ref()?;
            let is_ours = exchange.place.chain == chain;
            (in_time && is_ours && told.is_honest && !is_elsewhere(evidence, exchange))
                .then(|| (ended, told.outcome.as_deref().map_err(String::as_str)))
        })
    }
}

fn is_elsewhere(evidence: &Evidence, exchange: &Exchange) -> bool {
    let chain = &evidence.scenario.chains[exchange.place.chain];
    chain.upstreams[exchange.place.slot].is_elsewhere
}

/// What upstreams said that may be the answer to one request.
struct Heard<'a> {
    received: &'a Received<'a>,
    request: &'a Request,
    until: At,
    since: Since,
}

impl Heard<'_> {
    fn check(&self, item: &Item, outcome: Result<&str, &str>) -> Result<(), String> {
        match (&item.ask, outcome) {
            (Ask::Malformed, outcome) => {
                let is_refused = outcome.err().and_then(code) == Some(INVALID_REQUEST);
                if is_refused { Ok(()) } else { Err("not a call, and answered".to_owned()) }
            }
            (Ask::Refused(expected), outcome) => {
                let is_refused = outcome.err().and_then(code) == Some(*expected);
                if is_refused { Ok(()) } else { Err("should be refused".to_owned()) }
            }
            (Ask::Local(expected), Ok(result)) => same(result, expected),
            (Ask::Transaction(hash), Ok(result)) => {
                same(result, &format!("\"{hash}\""))?;
                let is_taken = self.told(&item.key()).any(|told| match told {
                    Ok(_) => true,
                    Err(error) => {
                        error.contains("already known") || error.contains("nonce too low")
                    }
                });
                // After an answer was lost it is looked up.
                let look_up = key("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
                let is_there = is_taken
                    || self.told(&look_up).any(|told| told.is_ok_and(|found| found != "null"));
                if is_there { Ok(()) } else { Err("no upstream took the transaction".to_owned()) }
            }
            (Ask::Filter, _) => Ok(()),
            (Ask::Height, Ok(result)) => self.height(item, result),
            // Where an upstream hides logs, whether that may be told is for `logs` to say.
            (Ask::Read, Ok("[]")) if item.method == LOGS && self.is_anything_hidden() => Ok(()),
            (Ask::Read | Ask::Pinned(_) | Ask::Write, Ok(result)) => {
                if !self.told_any(item, Ok(result)) {
                    return Err(format!("no upstream said {}", cut(result)));
                }
                self.recomputed(item, result)
            }
            (Ask::Read | Ask::Pinned(_), Err(error)) if code(error) == Some(REVERTED) => {
                let is_said = self.told_any(item, Err(error));
                if is_said { Ok(()) } else { Err(format!("no upstream said {}", cut(error))) }
            }
            // That reads do not fail is for `reads` to say.
            (
                Ask::Read
                | Ask::Pinned(_)
                | Ask::Height
                | Ask::Write
                | Ask::Transaction(_)
                | Ask::Local(_),
                Err(_),
            ) => Ok(()),
        }
    }

    fn is_anything_hidden(&self) -> bool {
        self.received.evidence.scenario.hides_logs()
    }

    /// Whether this was said to the call as it was made, or at the number of a block in the
    /// place of `latest`.
    fn told_any(&self, item: &Item, outcome: Result<&str, &str>) -> bool {
        let keys = item.keys(&self.received.evidence.blocks[self.request.chain]);
        keys.iter().any(|key| self.told(key).any(|told| told == outcome))
    }

    /// A height is that of a block that was made, whichever upstream showed it, and when.
    fn height(&self, item: &Item, result: &str) -> Result<(), String> {
        let is_said = self.told(&item.key()).any(|told| told == Ok(result));
        let blocks = &self.received.evidence.blocks[self.request.chain];
        let height = super::height(result).filter(|height| blocks.contains_key(height));
        match is_said || height.is_some() {
            true => Ok(()),
            false => Err(format!("no block was made at {}", cut(result))),
        }
    }

    /// What was honestly said to this call, when it may be the answer.
    fn told(&self, key: &str) -> impl Iterator<Item = Result<&str, &str>> {
        let since = (self.since, self.request.at);
        self.received.told(self.request.chain, key, since, self.until).map(|(_, said)| said)
    }

    /// Compares with what the world says today.
    fn recomputed(&self, item: &Item, result: &str) -> Result<(), String> {
        if item.method == "web3_sha3" {
            let hash = sha3_of(&item.params).map(|hash| format!("\"{hash}\""));
            return same(result, hash.as_deref().unwrap_or("an error"));
        }
        let (Ask::Pinned(height), Some(world)) =
            (&item.ask, self.received.evidence.worlds.get(self.request.chain))
        else {
            return Ok(());
        };
        // Not there yet at the upstream that was asked; whether it should have been is for `reads`.
        if result == "null" {
            return Ok(());
        }
        let blocks = self.received.evidence.blocks[self.request.chain].get(height);
        let truths = blocks.into_iter().flatten().map(|hash| computed(world, *hash, item));
        let truths: Vec<String> = truths.collect();
        if truths.iter().any(|truth| truth == result) {
            return Ok(());
        }
        Err(format!("the world says {}, not {}", cut(&truths.join(" or ")), cut(result)))
    }
}

/// What the world says to a call, seen from a block.
pub(super) fn computed(world: &World, block: B256, item: &Item) -> String {
    let dials = Dials::healthy(world.config().chain_id);
    let params: Option<Value> = serde_json::from_str(&item.params).ok();
    let chain = world.chain();
    let mut filters = Filters::new(0);
    let mut asked = CallContext {
        world,
        view: chain.view(Standpoint::At(block)),
        facts: &dials.facts,
        filters: &mut filters,
    };
    let said = rpc::answer(&mut asked, &item.method, params.as_ref());
    said.map_or_else(|error| format!("{error:?}"), |value| value.to_string())
}

fn same(said: &str, expected: &str) -> Result<(), String> {
    if said == expected { Ok(()) } else { Err(format!("{}, not {expected}", cut(said))) }
}

pub(super) fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wellhead_sim::WorldConfig;

    use super::*;
    use crate::check::sample::{answered, evidence, exchange, read, request};
    use crate::evidence::Told;

    const TRUE: &str = "\"0x1\"";

    fn told(outcome: Result<&str, &str>) -> Told {
        let owned = |text: &str| text.to_owned();
        Told { is_honest: true, outcome: outcome.map(owned).map_err(owned) }
    }

    /// A read that got `result` while an upstream said [`TRUE`], but for `change`.
    fn check(ask: Ask, result: &str, change: impl FnOnce(&mut Evidence), found: usize) {
        let mut item = read("1");
        item.ask = ask;
        let said = exchange(&item.key(), Some(told(Ok(TRUE))));
        let mut request = request(vec![item]);
        request.answered = Some(answered(&format!(r#"{{"id":1,"result":{result}}}"#)));
        let mut evidence = evidence(vec![request], vec![said]);
        change(&mut evidence);
        let violations = super::check(&evidence);
        assert_eq!(violations.len(), found, "{result}: {violations:?}");
    }

    #[test]
    fn only_what_was_said_may_be_told() {
        check(Ask::Read, TRUE, |_| {}, 0);
        check(Ask::Read, "\"0x2\"", |_| {}, 1);
        check(Ask::Read, TRUE, |it| it.exchanges[0].calls[0].key = "another".into(), 1);
        check(Ask::Read, TRUE, |it| it.exchanges.clear(), 1);
        let spoilt = |it: &mut Evidence| {
            it.exchanges[0].calls[0].told.as_mut().expect("it was said").is_honest = false;
        };
        check(Ask::Read, TRUE, spoilt, 1);
        let before = |it: &mut Evidence| it.requests[0].at = Duration::from_secs(99);
        check(Ask::Read, TRUE, before, 1);
        let elsewhere = |it: &mut Evidence| it.scenario.chains[0].upstreams[0].is_elsewhere = true;
        check(Ask::Read, TRUE, elsewhere, 1);
    }

    #[test]
    fn what_was_kept_or_shared_was_said_before() {
        let ms = Duration::from_millis;
        // Said in the first ten milliseconds; asked for so late.
        let late = |at: u64, cache: Option<&'static str>| {
            move |it: &mut Evidence| {
                (it.exchanges[0].began, it.exchanges[0].ended) = (ms(0), Some(ms(10)));
                let request = &mut it.requests[0];
                request.at = ms(at);
                let answer = request.answered.as_mut().expect("it is answered");
                (answer.at, answer.cache) = (ms(at + 20), cache);
            }
        };
        check(Ask::Read, TRUE, late(5, Some("miss")), 1);
        check(Ask::Read, TRUE, late(5, Some("joined")), 0);
        check(Ask::Read, TRUE, late(15, Some("joined")), 1);
        // The call that made it may still look for a better block.
        let newest = |at: u64| {
            move |it: &mut Evidence| {
                let item = &mut it.requests[0].items[0];
                item.method = "eth_getBlockByNumber".to_owned();
                item.params = r#"["latest",false]"#.to_owned();
                it.exchanges[0].calls[0].key = item.key();
                late(at, Some("joined"))(it);
            }
        };
        check(Ask::Read, TRUE, newest(15), 0);
        check(Ask::Read, TRUE, newest(6_000), 1);
        check(Ask::Read, TRUE, late(15, Some("hit")), 0);
        check(Ask::Read, "\"0x2\"", late(15, Some("hit")), 1);
        let another = |it: &mut Evidence| {
            late(15, Some("hit"))(it);
            it.exchanges[0].calls[0].key = "another".into();
        };
        check(Ask::Read, TRUE, another, 1);
    }

    #[test]
    fn what_can_be_computed_is() {
        let hash = alloy_primitives::keccak256([7]);
        let sha3 = |said: String| {
            move |it: &mut Evidence| {
                let item = &mut it.requests[0].items[0];
                (item.method, item.params) = ("web3_sha3".into(), r#"["0x07"]"#.into());
                let key = item.key();
                it.exchanges = vec![exchange(&key, Some(told(Ok(&said))))];
                let body = format!(r#"{{"id":1,"result":{said}}}"#);
                it.requests[0].answered = Some(answered(&body));
            }
        };
        check(Ask::Read, "", sha3(format!("\"{hash}\"")), 0);
        check(Ask::Read, "", sha3(format!("\"{}\"", alloy_primitives::B256::ZERO)), 1);
    }

    #[test]
    fn a_height_is_compared_with_the_world() {
        let config = WorldConfig {
            history_blocks: 2,
            wallets: 1,
            bots: 1,
            txs_per_block: 0,
            ..WorldConfig::seeded(7)
        };
        let world = World::new(config);
        let key = world.wallets()[0].address();
        let balance = {
            let chain = world.chain();
            let block = chain.canonical(1).expect("it was mined");
            block.state.as_ref().expect("it is new").balance(key)
        };
        let pinned = |said: String| {
            let world = std::sync::Arc::clone(&world);
            move |it: &mut Evidence| {
                let item = &mut it.requests[0].items[0];
                item.method = "eth_getBalance".into();
                item.params = format!(r#"["{key}","0x1"]"#);
                let key = item.key();
                it.exchanges = vec![exchange(&key, Some(told(Ok(&said))))];
                let body = format!(r#"{{"id":1,"result":{said}}}"#);
                it.requests[0].answered = Some(answered(&body));
                let hash = world.chain().canonical(1).expect("it was mined").hash;
                it.blocks[0].insert(1, vec![hash]);
                it.worlds = vec![world];
            }
        };
        check(Ask::Pinned(1), "", pinned(format!("\"{balance:#x}\"")), 0);
        check(Ask::Pinned(1), "", pinned("\"0x1\"".to_owned()), 1);
        check(Ask::Pinned(1), "", pinned("null".to_owned()), 0);
    }

    #[test]
    fn what_is_no_call_is_refused() {
        check(Ask::Malformed, TRUE, |_| {}, 1);
        check(Ask::Refused(-32601), TRUE, |_| {}, 1);
        check(Ask::Local("\"0x539\"".into()), "\"0x539\"", |_| {}, 0);
        check(Ask::Local("\"0x539\"".into()), "\"0x1\"", |_| {}, 1);
    }

    #[test]
    fn a_hash_is_told_for_what_was_taken() {
        let hash = alloy_primitives::B256::ZERO;
        let ask = || Ask::Transaction(hash);
        let said = format!("\"{hash}\"");
        check(ask(), &said, |_| {}, 0);
        check(ask(), TRUE, |_| {}, 1);
        let refused = |it: &mut Evidence| {
            let refusal = Err(r#"{"code":-32000,"message":"txpool is full"}"#);
            it.exchanges[0].calls[0].told = Some(told(refusal));
        };
        check(ask(), &said, refused, 1);
        let looked_up = |found: &'static str| {
            move |it: &mut Evidence| {
                let key = key("eth_getTransactionByHash", &format!("[\"{hash}\"]"));
                it.exchanges = vec![exchange(&key, Some(told(Ok(found))))];
            }
        };
        check(ask(), &said, looked_up("{}"), 0);
        check(ask(), &said, looked_up("null"), 1);
    }
}
