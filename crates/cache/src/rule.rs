//! Whether an answer is cached, and for how long: a plain function of the call, the answer,
//! the newest view and the settings.
//!
//! It trusts the upstream that gave the answer no more than necessary: an answer that depends
//! on a block that may be replaced is cached only if the answer, or the call by a hash, names
//! that block. The answer itself was judged before.

use std::time::Duration;

use wellhead_eth::{BlockHash, BlockNumber, BlockParam, CostClass, Finality, MethodRow};
use wellhead_jsonrpc::raw;

use crate::assurance::Assurance;
use crate::canon::{BlockId, BlockStatus, Canon};
use crate::entry::{Retention, Validity};
use crate::key::CacheRequest;
use crate::pin::{Pin, Point};
use crate::reason::Reason;

/// What else stands behind an answer is for the caller to say: see [`Retention::with`].
const WORD: Assurance = Assurance::WORD;

/// How long answers are cached that end by time, or by time at the latest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// For methods whose answer changes with the head; it ends with the next head, too. Zero
    /// caches none. Upstreams disagree about such answers (`eth_gasPrice`), so this is also how
    /// long all clients get one upstream's answer.
    pub head: Duration,
    /// For `null` where the table calls it an answer, beside its end with the next head:
    /// a receipt that is not there yet. Zero keeps none.
    pub null: Duration,
}

impl Default for Times {
    /// A second for the head, nothing for `null`: a client that has seen a transaction in a
    /// block elsewhere, and requests its receipt, must not get a stale `null`.
    fn default() -> Self {
        Self { head: Duration::from_secs(1), null: Duration::ZERO }
    }
}

/// What came back, as far as the rule cares.
#[derive(Debug, Clone, Copy)]
pub enum ReplyContent<'a> {
    /// A result, whole: raw JSON whose validity was proven.
    Result(&'a [u8]),
    /// An error of any kind.
    Error,
    /// A result of which only the beginning was looked at, or that was cut.
    Unfinished,
}

/// Whether any answer to such a call is kept: what can be told before it is made.
///
/// A balance at a height that may still get another block never is, since it does not tell
/// from which block it is. A call by the block's hash instead can be cached.
pub fn may_be_kept(row: &MethodRow, pin: Pin) -> Result<(), Reason> {
    // The pin was made by `Pin::of`, which refuses these; but what is kept by mistake is
    // served for long, so this is asked again.
    if row.finality == Finality::Live {
        return Err(Reason::Live);
    }
    match pin {
        Pin::Fixed | Pin::Inclusion | Pin::Head => Ok(()),
        Pin::Block(Point::Final(_) | Point::Hash(_)) => Ok(()),
        Pin::Block(Point::Height(_)) => match row.class {
            CostClass::State | CostClass::Call => Err(Reason::Unproven),
            CostClass::Light
            | CostClass::Block
            | CostClass::Logs
            | CostClass::Trace
            | CostClass::Write => Ok(()),
        },
        Pin::Block(Point::Tag(_)) => Err(Reason::Tag),
        Pin::Range { from, to } => match (from, to) {
            (Point::Final(_), Point::Final(_)) => Ok(()),
            (Point::Tag(_), _) | (_, Point::Tag(_)) => Err(Reason::Tag),
            // No answer over several blocks says which ones they were.
            _ => Err(Reason::Unproven),
        },
    }
}

/// From so many bytes on a reply may have been judged by its ends: half of what the judge of
/// upstreams reads through (`wellhead_upstream`), as that counts the envelope as well.
const LARGE_BYTES: usize = 32 * 1024;

/// Decides about one answer.
///
/// `canon` is the newest view, not the one that the request pinned: a block that was
/// orphaned while the answer was under way counts as orphaned. `now_ms` is the clock by
/// which entries expire.
pub fn rule(
    ask: &CacheRequest<'_>,
    answer: ReplyContent<'_>,
    canon: &(impl Canon + ?Sized),
    times: Times,
    now_ms: u64,
) -> Result<Retention, Reason> {
    let result = match answer {
        ReplyContent::Result(result) => result,
        ReplyContent::Error => return Err(Reason::Error),
        ReplyContent::Unfinished => return Err(Reason::Unfinished),
    };
    may_be_kept(ask.row, ask.pin)?;
    if raw::is_null(result) {
        if !ask.row.null_is_answer {
            return Err(Reason::NullAnswer);
        }
        return until_head(ask, canon, times.null, now_ms, Reason::Null).map_err(|reason| {
            match reason {
                Reason::Off => Reason::NullAnswer,
                other => other,
            }
        });
    }
    let for_ever =
        |reason| Ok(Retention { reason, hold: Validity::Final, expires_ms: None, assurance: WORD });
    let ruling = match ask.pin {
        Pin::Fixed => for_ever(Reason::Fixed),
        Pin::Head => until_head(ask, canon, times.head, now_ms, Reason::Head),
        Pin::Inclusion => in_block(source(result).ok_or(Reason::NamesNoBlock)?, canon),
        Pin::Block(Point::Final(number)) => match (source(result), canon.hash_at(number)) {
            // It says itself that it is of another branch than the final one.
            (Some((named, hash)), Some(known)) if named == number && hash != known => {
                Err(Reason::Unproven)
            }
            _ => for_ever(Reason::Final),
        },
        Pin::Block(Point::Hash(hash)) => by_hash(ask, hash, canon),
        Pin::Block(Point::Height(number)) => match source(result) {
            Some((named, hash)) if named == number => in_block((named, hash), canon),
            Some(_) | None => Err(Reason::Unproven),
        },
        Pin::Block(Point::Tag(_)) => Err(Reason::Tag),
        // Both ends are final, or none would be kept.
        Pin::Range { .. } => for_ever(Reason::Final),
    };
    // Of a large reply only the two ends were judged. That is enough for the one client that
    // reads it, but not for all later ones.
    match ruling {
        Ok(_) if result.len() >= LARGE_BYTES && !is_json(result) => Err(Reason::Unfinished),
        ruling => ruling,
    }
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(text).is_ok()
}

/// The answer is true of the head that the request saw, if of any.
fn until_head(
    ask: &CacheRequest<'_>,
    canon: &(impl Canon + ?Sized),
    time: Duration,
    now_ms: u64,
    reason: Reason,
) -> Result<Retention, Reason> {
    if time.is_zero() {
        return Err(Reason::Off);
    }
    let head = canon.head().ok_or(Reason::UnknownBlock)?;
    if ask.head != Some(head) {
        return Err(Reason::HeadMoved);
    }
    let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1);
    Ok(Retention {
        reason,
        hold: Validity::Head(head),
        expires_ms: Some(now_ms.saturating_add(time_ms)),
        assurance: WORD,
    })
}

/// The answer tells that it is from this block.
fn in_block(
    (number, hash): (BlockNumber, BlockHash),
    canon: &(impl Canon + ?Sized),
) -> Result<Retention, Reason> {
    let canonical = Validity::Canonical { number, hash };
    let (reason, hold) = match (BlockId { number: Some(number), hash }).standing(canon) {
        BlockStatus::Final => (Reason::Final, Validity::Final),
        BlockStatus::Canonical => (Reason::Canonical, canonical),
        BlockStatus::Orphaned => return Err(Reason::Orphaned),
        // Too old to be remembered. A height that is final names one block, as it does
        // when a call names it.
        BlockStatus::Unknown if canon.finalized().is_some_and(|finalized| number <= finalized) => {
            (Reason::Final, Validity::Final)
        }
        BlockStatus::Unknown => return Err(Reason::UnknownBlock),
    };
    Ok(Retention { reason, hold, expires_ms: None, assurance: WORD })
}

fn by_hash(
    ask: &CacheRequest<'_>,
    hash: BlockHash,
    canon: &(impl Canon + ?Sized),
) -> Result<Retention, Reason> {
    let number = canon.number_of(&hash);
    let canonical_only = requires_canonical(ask);
    let (reason, hold) = match (BlockId { number, hash }).standing(canon) {
        BlockStatus::Final => (Reason::Final, Validity::Final),
        BlockStatus::Orphaned => return Err(Reason::Orphaned),
        BlockStatus::Canonical => (Reason::Canonical, Validity::Named { number, hash }),
        BlockStatus::Unknown if canonical_only => return Err(Reason::UnknownBlock),
        BlockStatus::Unknown => (Reason::Named, Validity::Named { number, hash }),
    };
    let hold = match (hold, number) {
        (Validity::Named { .. }, Some(number)) if canonical_only => {
            Validity::Canonical { number, hash }
        }
        (hold, _) => hold,
    };
    Ok(Retention { reason, hold, expires_ms: None, assurance: WORD })
}

/// Whether the call is to fail once its block is no longer canonical (EIP-1898).
fn requires_canonical(ask: &CacheRequest<'_>) -> bool {
    let params = ask.params.unwrap_or_default();
    let holder = match ask.row.block {
        BlockParam::At { index, .. } => raw::item(params, usize::from(index)),
        BlockParam::AtField { index, field, .. } => {
            raw::item(params, usize::from(index)).and_then(|object| raw::field(object, field))
        }
        BlockParam::None
        | BlockParam::Hash { .. }
        | BlockParam::Filter { .. }
        | BlockParam::Range { .. } => None,
    };
    holder.and_then(|object| raw::field(object, "requireCanonical")).is_some_and(|value| {
        let value = raw::trim(value);
        value != b"false" && value != b"null"
    })
}

/// The block that an answer says it is from: a block or header itself, what was found in
/// one (`blockHash` and `blockNumber`), a user operation's answer with a `receipt`, or a
/// list of such from one block. `None` where it says nothing, or two things.
///
/// Only members that the upstream itself writes are looked at: nothing that a contract
/// can choose stands on these places.
fn source(result: &[u8]) -> Option<(BlockNumber, BlockHash)> {
    let result = raw::trim(result);
    match result.first()? {
        b'{' => source_of_object(result),
        b'[' => {
            let mut sources = raw::items(result).map(source_of_object);
            let first = sources.next()??;
            sources.all(|source| source == Some(first)).then_some(first)
        }
        _ => None,
    }
}

fn source_of_object(object: &[u8]) -> Option<(BlockNumber, BlockHash)> {
    /// The members that matter.
    const NAMES: [&str; 6] =
        ["blockHash", "blockNumber", "hash", "number", "parentHash", "receipt"];
    let mut found = [None; NAMES.len()];
    for (key, value) in raw::members(object) {
        if let Some(place) = NAMES.iter().position(|name| key == *name)
            && found[place].replace(value).is_some()
        {
            return None;
        }
    }
    let [block_hash, block_number, hash, number, parent, receipt] = found;
    match (block_hash, block_number, receipt) {
        (Some(hash), Some(number), _) => named(number, hash),
        (None, None, Some(receipt)) => source_of_object(receipt),
        (None, None, None) if parent.is_some() => named(number?, hash?),
        _ => None,
    }
}

fn named(number: &[u8], hash: &[u8]) -> Option<(BlockNumber, BlockHash)> {
    let hash = raw::string(hash)?.parse().ok()?;
    Some((BlockNumber(raw::quantity(number)?), hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canon::tests::{Chain, chain, fork, hash};
    use wellhead_eth::{ChainId, MethodTable};

    const TIMES: Times = Times { head: Duration::from_secs(1), null: Duration::from_millis(500) };
    const NOW_MS: u64 = 10_000;

    /// `H95` and `F95` in quotes stand for the hash of block 95 and of its rival.
    fn spelled(text: &str) -> String {
        let mut text = text.replace('\'', "\"");
        for number in [49, 80, 90, 95, 100, 101] {
            text = text.replace(&format!("H{number}\""), &format!("{}\"", hash(number)));
            text = text.replace(&format!("F{number}\""), &format!("{}\"", fork(number)));
        }
        text
    }

    fn decide(call: &str, result: &str, canon: Chain, times: Times) -> Result<Retention, Reason> {
        decide_after(call, result, canon, canon, times)
    }

    /// Asked under one view, answered under another.
    fn decide_after(
        call: &str,
        result: &str,
        pinned: Chain,
        canon: Chain,
        times: Times,
    ) -> Result<Retention, Reason> {
        let (method, params) = call.split_once(' ').expect("a method and parameters");
        let (params, result) = (spelled(params), spelled(result));
        let row = MethodTable::standard().row(method);
        let params = Some(params.as_bytes());
        let pin = Pin::of(row, row.block_ref(params), &pinned)?;
        let ask =
            CacheRequest { chain: ChainId(1), row, params, pin, head: pinned.head(), salt: b"" };
        let answer = match result.as_str() {
            "error" => ReplyContent::Error,
            "unfinished" => ReplyContent::Unfinished,
            result => ReplyContent::Result(result.as_bytes()),
        };
        rule(&ask, answer, &canon, times, NOW_MS)
    }

    #[track_caller]
    fn kept(call: &str, result: &str, reason: Reason, hold: Validity) {
        let got = decide(call, result, chain(), TIMES);
        let want = Retention { reason, hold, expires_ms: None, assurance: WORD };
        assert_eq!(got, Ok(want), "{call} -> {result}");
        assert!(reason.is_kept());
    }

    #[track_caller]
    fn refused(call: &str, result: &str, reason: Reason) {
        assert_eq!(decide(call, result, chain(), TIMES), Err(reason), "{call} -> {result}");
        assert!(!reason.is_kept());
    }

    #[test]
    fn a_final_height_is_not_kept_with_the_block_of_another_branch() {
        let call = "eth_getBlockByNumber ['0x5a',false]";
        let block = |hash: &str| format!("{{'number':'0x5a','hash':'{hash}','parentHash':'H80'}}");
        kept(call, &block("H90"), Reason::Final, Validity::Final);
        refused(call, &block("F90"), Reason::Unproven);
    }

    #[test]
    fn a_large_answer_is_kept_only_when_it_is_json_from_end_to_end() {
        let call = "eth_call [{},'0x1']";
        let large = |middle: &str| format!("['{}'{middle}'']", "0".repeat(LARGE_BYTES));
        kept(call, &large(","), Reason::Final, Validity::Final);
        refused(call, &large(""), Reason::Unfinished);
        refused(call, &large(",]["), Reason::Unfinished);
    }

    fn canonical(number: u64) -> Validity {
        Validity::Canonical { number: BlockNumber(number), hash: hash(number) }
    }

    fn named(number: u64) -> Validity {
        Validity::Named { number: Some(BlockNumber(number)), hash: hash(number) }
    }

    #[test]
    fn what_depends_on_no_block() {
        kept("web3_sha3 ['0x']", "'0x12'", Reason::Fixed, Validity::Final);
        refused("debug_preimage ['0x']", "null", Reason::NullAnswer);
        refused("eth_syncing []", "false", Reason::Live);
        refused("eth_whoKnows []", "1", Reason::Live);
    }

    #[test]
    fn final_heights() {
        kept("eth_getBalance ['0x','0x5a']", "'0x1'", Reason::Final, Validity::Final);
        kept("eth_call [{},'0x1']", "'0x'", Reason::Final, Validity::Final);
        kept(
            "eth_getLogs [{'fromBlock':'0x1','toBlock':'0x5a'}]",
            "[]",
            Reason::Final,
            Validity::Final,
        );
        refused("eth_getBlockByNumber ['0x1',true]", "null", Reason::NullAnswer);
    }

    #[test]
    fn heights_that_may_get_another_block() {
        let block = "{'hash':'H95','number':'0x5f','parentHash':'0x','transactions':[]}";
        kept("eth_getBlockByNumber ['0x5f',false]", block, Reason::Canonical, canonical(95));
        refused("eth_getBalance ['0x','0x5f']", "'0x1'", Reason::Unproven);
        refused("eth_getLogs [{'fromBlock':'0x1','toBlock':'0x5f'}]", "[]", Reason::Unproven);
        let fork = "{'hash':'F95','number':'0x5f','parentHash':'0x'}";
        refused("eth_getBlockByNumber ['0x5f',false]", fork, Reason::Orphaned);
        refused("eth_getBlockByNumber ['0x5e',false]", block, Reason::Unproven);
        let newer = "{'hash':'H101','number':'0x65','parentHash':'0x'}";
        refused("eth_getBlockByNumber ['0x65',false]", newer, Reason::UnknownBlock);
        let receipts =
            "[{'blockHash':'H95','blockNumber':'0x5f'},{'blockNumber':'0x5f','blockHash':'H95'}]";
        kept("eth_getBlockReceipts ['0x5f']", receipts, Reason::Canonical, canonical(95));
        refused("eth_getBlockReceipts ['0x5f']", "[]", Reason::Unproven);
        let mixed =
            "[{'blockHash':'H95','blockNumber':'0x5f'},{'blockNumber':'0x5f','blockHash':'F95'}]";
        refused("eth_getBlockReceipts ['0x5f']", mixed, Reason::Unproven);
    }

    #[test]
    fn tags_that_the_upstream_decides() {
        for tag in ["latest", "safe", "finalized", "earliest"] {
            refused(&format!("eth_getBalance ['0x','{tag}']"), "'0x1'", Reason::Tag);
        }
        refused("eth_getBalance ['0x']", "'0x1'", Reason::Tag);
        refused("eth_getBalance ['0x','pending']", "'0x1'", Reason::Pending);
        refused("eth_getLogs [{'fromBlock':'0x1'}]", "[]", Reason::Tag);
        refused("trace_filter [{'toBlock':'0x1'}]", "[]", Reason::Tag);
    }

    #[test]
    fn blocks_by_hash() {
        kept("eth_getBlockByHash ['H90',false]", "{}", Reason::Final, Validity::Final);
        kept("eth_getBlockByHash ['H95',false]", "{}", Reason::Canonical, named(95));
        refused("eth_getBlockByHash ['F95',false]", "{}", Reason::Orphaned);
        refused("eth_getBlockByHash ['H95',false]", "null", Reason::NullAnswer);
        let old = Validity::Named { number: None, hash: hash(49) };
        kept("eth_getLogs [{'blockHash':'H49'}]", "[]", Reason::Named, old);
        kept("eth_call [{},{'blockHash':'H95'}]", "'0x'", Reason::Canonical, named(95));
        kept(
            "eth_call [{},{'blockHash':'H49','requireCanonical':false}]",
            "'0x'",
            Reason::Named,
            old,
        );
    }

    #[test]
    fn a_call_that_requires_a_canonical_block_gets_no_other() {
        let call =
            |block| format!("eth_call [{{}},{{'blockHash':'{block}','requireCanonical':true}}]");
        kept(&call("H90"), "'0x'", Reason::Final, Validity::Final);
        kept(&call("H95"), "'0x'", Reason::Canonical, canonical(95));
        refused(&call("F95"), "'0x'", Reason::Orphaned);
        refused(&call("H49"), "'0x'", Reason::UnknownBlock);
        let many = |block| format!("eth_callMany [[],{{'blockNumber':{block}}}]");
        refused(&many("{'blockHash':'H49','requireCanonical':true}"), "'0x'", Reason::UnknownBlock);
    }

    #[test]
    fn what_is_found_by_hash() {
        let receipt = |block: &str, number: &str| {
            format!("{{'blockHash':{block},'blockNumber':{number},'hash':'H80'}}")
        };
        let call = "eth_getTransactionReceipt ['0x']";
        kept(call, &receipt("'H95'", "'0x5f'"), Reason::Canonical, canonical(95));
        kept(call, &receipt("'H90'", "'0x5a'"), Reason::Final, Validity::Final);
        kept(call, &receipt("'H49'", "'0x31'"), Reason::Final, Validity::Final);
        refused(call, &receipt("'F95'", "'0x5f'"), Reason::Orphaned);
        refused(call, &receipt("'H101'", "'0x65'"), Reason::UnknownBlock);
        // Pending.
        refused("eth_getTransactionByHash ['0x']", &receipt("null", "null"), Reason::NamesNoBlock);
        refused("eth_getTransactionByHash ['0x']", "null", Reason::NullAnswer);
        refused("eth_getRawTransactionByHash ['0x']", "'0x02f8'", Reason::NamesNoBlock);
        refused("debug_traceTransaction ['0x']", "{'type':'CALL'}", Reason::NamesNoBlock);
        let operation = format!("{{'success':true,'receipt':{}}}", receipt("'H95'", "'0x5f'"));
        kept("eth_getUserOperationReceipt ['0x']", &operation, Reason::Canonical, canonical(95));
        let traces = format!("[{0},{0}]", receipt("'H95'", "95"));
        kept("trace_transaction ['0x']", &traces, Reason::Canonical, canonical(95));
        refused("trace_transaction ['0x']", "[]", Reason::NamesNoBlock);
        let twice = "{'blockHash':'H95','blockNumber':'0x5f','blockHash':'H90'}";
        refused(call, twice, Reason::NamesNoBlock);
    }

    #[test]
    fn what_speaks_of_the_head() {
        let want = |reason, ms| {
            Ok(Retention {
                reason,
                hold: Validity::Head(BlockNumber(100)),
                expires_ms: Some(NOW_MS + ms),
                assurance: WORD,
            })
        };
        assert_eq!(decide("eth_gasPrice []", "'0x1'", chain(), TIMES), want(Reason::Head, 1000));
        let call = "eth_getTransactionReceipt ['0x']";
        assert_eq!(decide(call, "null", chain(), TIMES), want(Reason::Null, 500));
        let off = Times { head: Duration::ZERO, null: Duration::ZERO };
        assert_eq!(decide("eth_gasPrice []", "'0x1'", chain(), off), Err(Reason::Off));
        assert_eq!(decide(call, "null", chain(), off), Err(Reason::NullAnswer));
        // A head came while the answer was under way: it is about the one before.
        let later = Chain { head: 101, ..chain() };
        for (call, result) in [("eth_gasPrice []", "'0x1'"), (call, "null")] {
            assert_eq!(decide_after(call, result, chain(), later, TIMES), Err(Reason::HeadMoved));
        }
        assert_eq!(Times::default().null, Duration::ZERO, "polling for a receipt is not slowed");
    }

    #[test]
    fn what_is_no_answer() {
        refused("web3_sha3 ['0x']", "error", Reason::Error);
        refused("web3_sha3 ['0x']", "unfinished", Reason::Unfinished);
        refused("eth_sendRawTransaction ['0x']", "'0x'", Reason::NotARead);
    }

    #[test]
    fn nothing_is_final_where_finality_is_not_known() {
        struct Blind;
        impl Canon for Blind {
            fn head(&self) -> Option<BlockNumber> {
                None
            }
            fn finalized(&self) -> Option<BlockNumber> {
                None
            }
            fn hash_at(&self, _: BlockNumber) -> Option<BlockHash> {
                None
            }
            fn number_of(&self, _: &BlockHash) -> Option<BlockNumber> {
                None
            }
        }
        let row = MethodTable::standard().row("eth_getBalance");
        let params = Some(&b"[\"0x\",\"0x1\"]"[..]);
        let pin = Pin::of(row, row.block_ref(params), &Blind).unwrap();
        assert_eq!(pin, Pin::Block(Point::Height(BlockNumber(1))));
        let ask = CacheRequest { chain: ChainId(1), row, params, pin, head: None, salt: b"" };
        let got = rule(&ask, ReplyContent::Result(b"\"0x1\""), &Blind, TIMES, NOW_MS);
        assert_eq!(got, Err(Reason::Unproven));
    }
}
