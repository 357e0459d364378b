//! Logs: what was asked for, what came, and whether nothing can be true.

use alloy_primitives::{Address, B256};
use wellhead_eth::{
    BlockPoint, BlockRef, Bloom, LogPattern, LogPatternBounds, MethodRow, PatternBits, TOPICS_MAX,
};
use wellhead_jsonrpc::raw;

use crate::audit::{Audit, BlockPosition, must, want};
use crate::finding::{Check, InvalidAnswer, Obstacle};
use crate::json::{Value, object};

object! {
    LogJson {
        address: "address",
        topics: "topics",
        data: "data",
        block_hash: "blockHash",
        block_number: "blockNumber",
        transaction: "transactionHash",
        transaction_index: "transactionIndex",
        index: "logIndex",
    }
}

/// Which logs a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    names: LogPattern,
    /// Heights, as far as the call names them and not tags.
    from: Option<u64>,
    to: Option<u64>,
    hash: Option<B256>,
}

impl Filter {
    /// The filter of a call such as `eth_getLogs`: the first parameter.
    ///
    /// `None` when it cannot be understood in exactly one way.
    pub fn read(row: &MethodRow, params: Option<&[u8]>) -> Option<Self> {
        let height = |point| match point {
            BlockPoint::Number(number) => Some(number.0),
            BlockPoint::Tag(_) => None,
        };
        let (hash, from, to) = match row.block_ref(params) {
            BlockRef::Hash(hash) => (Some(B256::new(hash.0)), None, None),
            BlockRef::Range { from, to } => (None, height(from), height(to)),
            BlockRef::None | BlockRef::Tag(_) | BlockRef::Number(_) | BlockRef::Unreadable => {
                return None;
            }
        };
        let object = raw::item(raw::trim(params?), 0)?;
        let names = LogPattern::read(object, LogPatternBounds::NONE).ok()?;
        Some(Self { names, from, to, hash })
    }

    fn fits(&self, address: Address, topics: &[B256]) -> bool {
        // Nodes differ on whether a log without a topic fits a place for any: both pass.
        self.names.matches_loosely(&address.0.0, topics.iter().map(|topic| &topic.0))
    }

    /// The filter as blooms see it. `None` when it names more than `names_max` addresses and
    /// topics: that many fit nearly any bloom.
    pub fn sieve(&self, names_max: usize) -> Option<Sieve> {
        let topics = self.names.topics().iter().map(Vec::len).sum::<usize>();
        let names = self.names.addresses().len() + topics;
        (names <= names_max).then(|| Sieve(self.names.bits()))
    }
}

/// A filter as blooms see it, hashed once for many of them.
#[derive(Debug)]
pub struct Sieve(PatternBits);

/// What one bloom says of a filter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sifted {
    /// The block may hold a log that fits; if not, it certainly holds none.
    pub may_fit: bool,
    /// How likely a bloom as full as this one says so of names that are in no log of it:
    /// from 0 to 1.
    pub chance: f64,
}

impl Sieve {
    /// Holds the filter against the bloom of one header, its 256 bytes as they are written.
    pub fn sift(&self, bloom: &[u8; 256]) -> Sifted {
        let bloom = Bloom(*bloom);
        let may_fit = self.0.may_match(&bloom);
        let by_chance = (f64::from(bloom.bits_set()) / 2048.0).powi(3);
        // Any log fits a filter that names nothing: a bloom that is not empty shows that there is
        // one.
        let mut chance = if self.0.places().is_empty() { 0.0 } else { 1.0 };
        for any in self.0.places() {
            let names = i32::try_from(any.len()).unwrap_or(i32::MAX);
            chance *= 1.0 - (1.0 - by_chance).powi(names);
        }
        Sifted { may_fit, chance }
    }
}

/// What the receipts of a block say of an answer with its logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogProof<'a> {
    /// They hold the same logs.
    Complete,
    /// They hold these, as they are written there, and the answer does not.
    Differs {
        /// All that the filter asks for, in their order.
        logs: Vec<&'a [u8]>,
    },
}

/// What a block commits to of a log, and its place.
#[derive(Debug, PartialEq, Eq)]
struct ProvenLog {
    index: u64,
    address: Address,
    topics: Vec<B256>,
    data: Vec<u8>,
}

impl ProvenLog {
    fn read(log: &[u8]) -> Option<Self> {
        let log: LogJson<'_> = Value::new(log)?.read().ok()?;
        let (all, count) = topics(&log).ok()?;
        Some(Self {
            index: log.index.and_then(Value::quantity)?,
            address: log.address.and_then(Value::address)?,
            topics: all[..count].to_vec(),
            data: log.data.and_then(Value::data)?,
        })
    }
}

/// Compares an answer with the logs of one block with the block's receipts, which were found
/// sound with their header. `None` where one of them cannot be read.
pub fn prove_logs<'a>(filter: &Filter, receipts: &'a [u8], answer: &[u8]) -> Option<LogProof<'a>> {
    let (mut asked, mut may_be_left_out, mut logs) = (Vec::new(), Vec::new(), Vec::new());
    for receipt in raw::items(receipts) {
        for text in raw::items(raw::field(receipt, "logs")?) {
            let log = ProvenLog::read(text)?;
            if !filter.fits(log.address, &log.topics) {
                continue;
            }
            // Nodes differ on whether a log without a topic fits a place for any.
            may_be_left_out.push(log.topics.len() < filter.names.topics().len());
            logs.push(text);
            asked.push(log);
        }
    }
    let mut answered = Vec::new();
    for text in raw::items(answer) {
        answered.push(ProvenLog::read(text)?);
    }
    let mut answered = answered.iter().peekable();
    for (log, may_be_left_out) in asked.iter().zip(may_be_left_out) {
        match answered.next_if(|found| *found == log) {
            Some(_) => {}
            None if may_be_left_out => {}
            None => return Some(LogProof::Differs { logs }),
        }
    }
    match answered.next() {
        None => Some(LogProof::Complete),
        Some(_) => Some(LogProof::Differs { logs }),
    }
}

/// The answer of `eth_getLogs`.
pub(crate) fn logs(
    audit: &mut Audit<'_>,
    filter: &Filter,
    answer: Value<'_>,
) -> Result<(), InvalidAnswer> {
    // Where the log before stands, and its index.
    let mut before: Option<BlockPosition> = None;
    let mut last_log = None;
    answer.each::<LogJson<'_>>(|_, log| {
        let place = BlockPosition {
            number: must(log.block_number, "blockNumber", Value::quantity)?,
            hash: must(log.block_hash, "blockHash", Value::hash)?,
        };
        in_range(audit, filter, place)?;
        match before.replace(place) {
            Some(before) if place.number < before.number => {
                let detail = format!("block {} after {}", place.number, before.number);
                audit.differs(Check::Order, detail)?;
            }
            Some(before) if place.number == before.number && place.hash != before.hash => {
                let detail =
                    format!("block {} is both {} and {}", place.number, before.hash, place.hash);
                return Err(InvalidAnswer::new(Check::OneBlock, detail));
            }
            Some(before) if place.number == before.number => {}
            Some(_) | None => last_log = None,
        }
        order(audit, &log, &mut last_log)?;
        let address = must(log.address, "address", Value::address)?;
        let Some((topics, count)) = audit.take(topics(&log))? else { return Ok(()) };
        if filter.fits(address, &topics[..count]) {
            return Ok(());
        }
        let detail = format!("a log of {address} in block {} was not requested", place.number);
        Err(InvalidAnswer::new(Check::Filter, detail))
    })
}

fn in_range(audit: &Audit<'_>, filter: &Filter, place: BlockPosition) -> Result<(), InvalidAnswer> {
    if let Some(hash) = filter.hash {
        if hash != place.hash {
            return Err(InvalidAnswer::new(
                Check::AskedHash,
                format!("block {}, not {hash}", place.hash),
            ));
        }
        // The call names the hash, what is pinned is its height.
        return match audit.known.number {
            Some(number) if number.0 != place.number => Err(InvalidAnswer::new(
                Check::Pinned,
                format!("block {}, not {number}", place.number),
            )),
            Some(_) | None => Ok(()),
        };
    }
    let too_low = filter.from.is_some_and(|from| place.number < from);
    let too_high = filter.to.is_some_and(|to| place.number > to);
    if too_low || too_high {
        return Err(InvalidAnswer::new(
            Check::Range,
            format!("block {} was not requested", place.number),
        ));
    }
    Ok(())
}

/// Logs of one block ascend, by Ethereum's rules: some chains count them anew in each transaction.
pub(crate) fn order(
    audit: &mut Audit<'_>,
    log: &LogJson<'_>,
    last: &mut Option<u64>,
) -> Result<(), InvalidAnswer> {
    let Some(index) = audit.take(want(log.index, "logIndex", Value::quantity))? else {
        return Ok(());
    };
    match last.replace(index) {
        Some(before) if index <= before => {
            audit.differs(Check::Order, format!("log {index} after log {before}"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The topics of a log, and how many there are.
pub(crate) fn topics(log: &LogJson<'_>) -> Result<([B256; TOPICS_MAX], usize), Obstacle> {
    let list = must(log.topics, "topics", Some)?;
    let mut topics = [B256::ZERO; TOPICS_MAX];
    let mut count = 0;
    list.each::<Value<'_>>(|place, value| {
        let topic = must(Some(value), "topics", Value::hash)?;
        let Some(slot) = topics.get_mut(place) else {
            return Err(InvalidAnswer::new(Check::Shape, "a log with more than four topics"));
        };
        (*slot, count) = (topic, place + 1);
        Ok(())
    })?;
    Ok((topics, count))
}

#[cfg(test)]
mod tests {
    use wellhead_eth::MethodTable;

    use super::*;

    const A: &str = "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "0xbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn log(index: u64, address: &str) -> String {
        let topic = format!("0x{:064x}", 7);
        format!(
            r#"{{"logIndex":"0x{index:x}","address":"{address}","topics":["{topic}"],"data":"0x01"}}"#
        )
    }

    /// The receipts of a block with four logs of two addresses.
    fn receipts() -> String {
        let two = |first, address| format!("{},{}", log(first, address), log(first + 1, A));
        format!(r#"[{{"logs":[{}]}},{{"logs":[]}},{{"logs":[{}]}}]"#, two(0, B), two(2, A))
    }

    /// What comes of an answer to a search for address `A`, or with these topics.
    fn check(topics: &str, answer: &[String], expected: Option<usize>) {
        let params = format!(r#"[{{"fromBlock":"0x5","toBlock":"0x5","address":"{A}"{topics}}}]"#);
        let row = MethodTable::standard().row("eth_getLogs");
        let filter = Filter::read(row, Some(params.as_bytes())).expect("a filter");
        let (receipts, answer) = (receipts(), format!("[{}]", answer.join(",")));
        let proof = prove_logs(&filter, receipts.as_bytes(), answer.as_bytes());
        let differs = match proof.expect("readable") {
            LogProof::Complete => None,
            LogProof::Differs { logs } => Some(logs.len()),
        };
        assert_eq!(differs, expected, "{topics} {answer}");
    }

    #[test]
    fn an_answer_has_all_logs_of_the_receipts_and_no_other() {
        let all = [log(1, A), log(2, A), log(3, A)];
        check("", &all, None);
        check("", &all[..2], Some(3));
        check("", &all[1..], Some(3));
        check("", &[], Some(3));
        check("", &[log(1, A), log(3, A)], Some(3));
        check("", &[log(1, A), log(2, A), log(3, A), log(4, A)], Some(3));
        check("", &[log(1, A), log(2, A), log(3, A).replace("0x01", "0x02")], Some(3));
        check("", &[log(0, B), log(1, A), log(2, A), log(3, A)], Some(3));
    }

    #[test]
    fn a_place_for_any_topic_may_leave_out_a_log_without_one() {
        check(r#","topics":[null,null]"#, &[], None);
        check(r#","topics":[null,null]"#, &[log(1, A), log(2, A), log(3, A)], None);
        check(r#","topics":[null]"#, &[], Some(3));
    }

    #[test]
    fn what_cannot_be_read_proves_nothing() {
        let row = MethodTable::standard().row("eth_getLogs");
        let filter = Filter::read(row, Some(b"[{}]")).expect("a filter");
        assert_eq!(prove_logs(&filter, b"[{}]", b"[]"), None);
        assert_eq!(prove_logs(&filter, b"[]", b"[{}]"), None);
        assert_eq!(prove_logs(&filter, b"[]", b"[]"), Some(LogProof::Complete));
    }
}
