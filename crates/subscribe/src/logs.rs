//! The logs of one block, read by hash, checked, and rendered once for all subscribers.
//!
//! The source is an answer of `eth_getLogs` with `blockHash` or of `eth_getBlockReceipts`. Logs are
//! asked for without a filter where that is cheap enough: one answer then serves each group, and
//! proves itself, as the blooms of all logs together are the bloom of the header. A filtered answer
//! proves only that nothing foreign is in it.
//!
//! A log's JSON is as the upstream wrote it, with `removed` as its last member. Taking a block back
//! repeats its logs with `"removed":true`: **blocks descending, the logs of a block ascending by
//! their index**. geth sends them in the order of blocks, in batches; no client was found to depend
//! on either.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use bytes::Bytes;
use wellhead_eth::{
    AddressBytes, BlockHash, BlockNumber, Bloom, BloomBits, LogPattern, NumberedBlock, TOPICS_MAX,
    TopicBytes, hex,
};
use wellhead_jsonrpc::{raw, write};

use crate::notification::Notification;

/// The members of a log that are looked at.
const MEMBERS: [&str; 6] =
    ["address", "topics", "blockHash", "blockNumber", "transactionIndex", "logIndex"];

const REMOVED_FALSE: &[u8] = br#""removed":false}"#;
const REMOVED_TRUE: &[u8] = br#""removed":true}"#;
/// Bytes by which a log that is taken back is shorter.
const SHORTER: usize = REMOVED_FALSE.len() - REMOVED_TRUE.len();

/// What an upstream answered (raw JSON of the result).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogsReply<'a> {
    /// To `eth_getLogs`: an array of logs.
    Logs(&'a [u8]),
    /// To `eth_getBlockReceipts`: an array of receipts, each with its logs.
    Receipts(&'a [u8]),
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogsScope<'a> {
    /// All logs. With the header's bloom it is proven that none is missing, as far as a bloom can;
    /// without it, nothing is: for a chain whose headers have no valid bloom.
    Whole(Option<&'a Bloom>),
    /// All logs, and others that the header's bloom does not have: some chains add logs of the system to a
    /// block. None that the bloom shows is missing.
    WithSystemLogs(&'a Bloom),
    /// The logs that a filter matches.
    Filtered,
}

/// One log of a block, and where it stands in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLog {
    /// The contract that wrote it.
    pub address: AddressBytes,
    topics: [TopicBytes; TOPICS_MAX],
    topics_len: u8,
    start: u32,
    end: u32,
}

impl BlockLog {
    /// Its topics.
    pub fn topics(&self) -> &[TopicBytes] {
        &self.topics[..usize::from(self.topics_len)]
    }

    /// Whether it fits.
    pub fn fits(&self, pattern: &LogPattern) -> bool {
        pattern.matches(&self.address, self.topics().iter())
    }

    fn add_to(&self, bloom: &mut Bloom) {
        bloom.add(BloomBits::of(&self.address));
        self.topics().iter().for_each(|topic| bloom.add(BloomBits::of(topic)));
    }
}

/// The logs of one block, ascending.
#[derive(Debug)]
pub struct BlockLogs {
    block: NumberedBlock,
    is_whole: bool,
    logs: Box<[BlockLog]>,
    /// What stands behind the id in each log's notification, one after the other.
    text: Bytes,
    /// The text of the logs that are taken back, made when it is first needed.
    removed: OnceLock<Bytes>,
}

impl BlockLogs {
    /// A block without logs.
    pub fn none(block: NumberedBlock) -> Self {
        let (logs, text) = (Box::default(), Bytes::new());
        Self { block, is_whole: true, logs, text, removed: OnceLock::new() }
    }

    /// Reads and checks an answer. `bytes_max` bounds the text that is kept.
    pub fn read(
        block: NumberedBlock,
        reply: LogsReply<'_>,
        scope: LogsScope<'_>,
        bytes_max: usize,
    ) -> Result<Self, LogsError> {
        let mut reader = Reader::new(block, bytes_max);
        match reply {
            LogsReply::Logs(list) => reader.read_list(list)?,
            LogsReply::Receipts(list) => {
                for receipt in items(list)? {
                    let logs = raw::field(receipt, "logs").ok_or(LogsError::Receipt)?;
                    // Where a receipt has none, some nodes write `null`.
                    if !raw::is_null(logs) {
                        reader.read_list(logs)?;
                    }
                }
            }
        }
        let is_whole = match scope {
            LogsScope::Whole(Some(bloom)) if reader.bloom != *bloom => {
                return Err(match reader.bloom.is_within(bloom) {
                    true => LogsError::Incomplete,
                    false => LogsError::Foreign,
                });
            }
            LogsScope::WithSystemLogs(bloom) if !bloom.is_within(&reader.bloom) => {
                return Err(LogsError::Incomplete);
            }
            LogsScope::Whole(_) | LogsScope::WithSystemLogs(_) => true,
            LogsScope::Filtered => false,
        };
        Ok(reader.finish(is_whole))
    }

    /// The block that the logs are of.
    pub fn block(&self) -> NumberedBlock {
        self.block
    }

    /// Whether these are all logs of the block.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The logs, ascending. The place of a log is what the other functions take.
    pub fn logs(&self) -> &[BlockLog] {
        &self.logs
    }

    /// The notification of a log.
    pub fn notification(&self, place: usize) -> Notification {
        let log = &self.logs[place];
        Notification::of_suffix(self.text.slice(log.start as usize..log.end as usize))
    }

    /// The notification that takes a log back.
    pub fn removed_notification(&self, place: usize) -> Notification {
        let (log, text) = (&self.logs[place], self.removed_text());
        let start = log.start as usize - place * SHORTER;
        let end = log.end as usize - (place + 1) * SHORTER;
        Notification::of_suffix(text.slice(start..end))
    }

    /// The JSON of a log, with `"removed":false`.
    pub fn json(&self, place: usize) -> Bytes {
        self.notification(place).result()
    }

    /// About how many bytes it holds, once a removal was told.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.logs) + 2 * self.text.len()
    }

    fn removed_text(&self) -> &Bytes {
        self.removed.get_or_init(|| {
            let mut text = Vec::with_capacity(self.text.len());
            for place in 0..self.logs.len() {
                let json = self.json(place);
                Notification::write_suffix(&mut text, |out| {
                    out.extend_from_slice(&taken_back(&json));
                });
            }
            text.into()
        })
    }
}

/// The JSON of a log with `"removed":true` instead of `false`; as it is if it does not end so.
pub(crate) fn taken_back(log: &[u8]) -> Vec<u8> {
    let Some(members) = log.strip_suffix(REMOVED_FALSE) else { return log.to_vec() };
    [members, REMOVED_TRUE].concat()
}

/// Reads the answer to a search over several blocks: the logs of each block
/// that has some, ascending. `hash_at` says which block is at a height, where that is known; at
/// other heights all logs have to name one block.
pub(crate) fn read_range(
    list: &[u8],
    blocks: &RangeInclusive<BlockNumber>,
    bytes_max: usize,
    hash_at: impl Fn(BlockNumber) -> Option<BlockHash>,
) -> Result<Vec<BlockLogs>, LogsError> {
    let mut readers: Vec<Reader> = Vec::new();
    let mut bytes = 0;
    for (place, log) in items(list)?.enumerate() {
        let malformed = |member| LogsError::Malformed { place, member };
        let number = raw::field(log, "blockNumber").and_then(raw::quantity).map(BlockNumber);
        let number = number.ok_or_else(|| malformed("blockNumber"))?;
        let last = readers.last().map(|reader| reader.block.number);
        if last.is_some_and(|last| number < last) {
            return Err(LogsError::Order { place });
        }
        if !blocks.contains(&number) {
            return Err(LogsError::OtherBlock { place });
        }
        if last != Some(number) {
            let named = raw::field(log, "blockHash").and_then(raw::string);
            let named = named.and_then(|text| text.parse().ok());
            let hash = hash_at(number).or(named).ok_or_else(|| malformed("blockHash"))?;
            readers.push(Reader::new(NumberedBlock { number, hash }, bytes_max));
        }
        if let Some(reader) = readers.last_mut() {
            let before = reader.text.len();
            reader.read_log(log)?;
            bytes += reader.text.len() - before;
        }
        if bytes > bytes_max {
            return Err(LogsError::TooLarge);
        }
    }
    Ok(readers.into_iter().map(|reader| reader.finish(false)).collect())
}

/// Why an answer is not believed. The next upstream is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogsError {
    /// It is no array: `null` for a block that the upstream does not have.
    #[error("the answer is not an array")]
    NotAnArray,
    /// A receipt has no logs, not even an empty list.
    #[error("a receipt has no `logs`")]
    Receipt,
    /// A log lacks a member, or has it twice or in a form that cannot be read.
    #[error("`{member}` of log {place} of the answer cannot be read")]
    Malformed {
        /// The place of the log in the answer.
        place: usize,
        /// The member.
        member: &'static str,
    },
    /// A log is of another block.
    #[error("log {place} of the answer is of another block")]
    OtherBlock {
        /// The place of the log in the answer.
        place: usize,
    },
    /// Logs do not ascend.
    #[error("log {place} of the answer is not above the one before it")]
    Order {
        /// The place of the log that is not above the one before it.
        place: usize,
    },
    /// The header's bloom has bits that no log sets: logs are missing.
    #[error("the bloom of the header shows logs that are missing")]
    Incomplete,
    /// A log sets bits that the header's bloom does not have: it is not of this block.
    #[error("the bloom of the header excludes a log of the answer")]
    Foreign,
    /// The logs have more bytes than may be kept.
    #[error("the logs have more bytes than may be kept")]
    TooLarge,
}

fn items(list: &[u8]) -> Result<impl Iterator<Item = &[u8]>, LogsError> {
    match raw::trim(list).first() {
        Some(b'[') => Ok(raw::items(list)),
        _ => Err(LogsError::NotAnArray),
    }
}

/// The logs read so far.
struct Reader {
    block: NumberedBlock,
    bytes_max: usize,
    logs: Vec<BlockLog>,
    text: Vec<u8>,
    bloom: Bloom,
    /// Transaction and index of the last log. Some chains count logs anew in each transaction.
    last: Option<(u64, u64)>,
}

impl Reader {
    fn new(block: NumberedBlock, bytes_max: usize) -> Self {
        // Places in the text have four bytes.
        let bytes_max = bytes_max.min(u32::MAX as usize);
        let (logs, text) = (Vec::new(), Vec::new());
        Self { block, bytes_max, logs, text, bloom: Bloom::EMPTY, last: None }
    }

    fn finish(self, is_whole: bool) -> BlockLogs {
        let Self { block, logs, mut text, .. } = self;
        text.shrink_to_fit();
        let (logs, text) = (logs.into(), text.into());
        BlockLogs { block, is_whole, logs, text, removed: OnceLock::new() }
    }

    fn read_list(&mut self, list: &[u8]) -> Result<(), LogsError> {
        items(list)?.try_for_each(|log| self.read_log(log))
    }

    fn read_log(&mut self, object: &[u8]) -> Result<(), LogsError> {
        let place = self.logs.len();
        let malformed = |member| LogsError::Malformed { place, member };
        let start = self.text.len();
        let (mut members, mut twice) = ([None; MEMBERS.len()], None);
        Notification::write_suffix(&mut self.text, |out| {
            out.push(b'{');
            for (name, value) in raw::members(object) {
                if name == "removed" {
                    continue;
                }
                if let Some(place) = MEMBERS.iter().position(|member| *member == name)
                    && members[place].replace(value).is_some()
                {
                    twice = Some(MEMBERS[place]);
                }
                write::string(out, &name);
                out.push(b':');
                out.extend_from_slice(raw::trim(value));
                out.push(b',');
            }
            out.extend_from_slice(REMOVED_FALSE);
        });
        if self.text.len() > self.bytes_max {
            return Err(LogsError::TooLarge);
        }
        if let Some(member) = twice {
            return Err(malformed(member));
        }
        let [address, topics, block_hash, block_number, transaction, index] = members;
        let text = |value: Option<&'_ [u8]>, member| {
            let text = value.and_then(raw::string);
            text.map(std::borrow::Cow::into_owned).ok_or_else(|| malformed(member))
        };
        let number = |value: Option<&[u8]>, member| {
            value.and_then(raw::quantity).ok_or_else(|| malformed(member))
        };
        let hash = text(block_hash, "blockHash")?.parse::<BlockHash>();
        let hash = hash.map_err(|_| malformed("blockHash"))?;
        let height = number(block_number, "blockNumber")?;
        if hash != self.block.hash || height != self.block.number.0 {
            return Err(LogsError::OtherBlock { place });
        }
        let index = number(index, "logIndex")?;
        let at = (number(transaction, "transactionIndex")?, index);
        if self.last.replace(at).is_some_and(|last| at <= last) {
            return Err(LogsError::Order { place });
        }
        let address = hex::decode_array(&text(address, "address")?);
        let address = address.map_err(|_| malformed("address"))?;
        let (topics, topics_len) =
            topics.and_then(read_topics).ok_or_else(|| malformed("topics"))?;
        let end = self.text.len();
        let (start, end) = (start as u32, end as u32);
        let log = BlockLog { address, topics, topics_len, start, end };
        log.add_to(&mut self.bloom);
        self.logs.push(log);
        Ok(())
    }
}

fn read_topics(list: &[u8]) -> Option<([TopicBytes; TOPICS_MAX], u8)> {
    let (mut topics, mut count) = ([[0; 32]; TOPICS_MAX], 0_u8);
    for topic in items(list).ok()? {
        let slot = topics.get_mut(usize::from(count))?;
        *slot = hex::decode_array(&raw::string(topic)?).ok()?;
        count += 1;
    }
    Some((topics, count))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::header::tests::id;

    /// A log of the contract with this byte, with topics of these.
    pub(crate) fn log(block: NumberedBlock, index: u64, address: u8, topics: &[u8]) -> Value {
        let topics: Vec<_> = topics.iter().map(|byte| hex::encode(&[*byte; 32])).collect();
        json!({
            "address": hex::encode(&[address; 20]), "topics": topics, "data": "0x01",
            "blockNumber": block.number.hex(), "blockHash": block.hash.to_string(),
            "transactionHash": hex::encode(&[7; 32]), "transactionIndex": "0x0",
            "logIndex": hex::quantity(index), "removed": false,
        })
    }

    pub(crate) fn bloom_of(logs: &[(u8, &[u8])]) -> Bloom {
        let mut bloom = Bloom::EMPTY;
        for (address, topics) in logs {
            bloom.add(BloomBits::of(&[*address; 20]));
            topics.iter().for_each(|topic| bloom.add(BloomBits::of(&[*topic; 32])));
        }
        bloom
    }

    pub(crate) fn read_all(block: NumberedBlock, logs: &[(u8, &[u8])]) -> BlockLogs {
        let list: Vec<_> = (0..)
            .zip(logs)
            .map(|(index, (address, topics))| log(block, index, *address, topics))
            .collect();
        let text = Value::Array(list).to_string();
        let bloom = bloom_of(logs);
        let scope = LogsScope::Whole(Some(&bloom));
        BlockLogs::read(block, LogsReply::Logs(text.as_bytes()), scope, 1 << 20).expect("logs")
    }

    fn read(list: &Value, scope: LogsScope<'_>) -> Result<BlockLogs, LogsError> {
        let text = list.to_string();
        BlockLogs::read(id(5, 0), LogsReply::Logs(text.as_bytes()), scope, 1 << 20)
    }

    #[test]
    fn logs_are_kept_as_they_are_written() {
        let block = id(5, 0);
        let logs = read_all(block, &[(1, &[2, 3]), (4, &[])]);
        assert!(logs.is_whole() && logs.block() == block);
        let topics: Vec<_> = logs.logs().iter().map(|log| log.topics().len()).collect();
        assert_eq!(topics, [2, 0]);
        for (place, expected) in
            [log(block, 0, 1, &[2, 3]), log(block, 1, 4, &[])].iter().enumerate()
        {
            let parse = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("JSON");
            assert_eq!(parse(&logs.json(place)), *expected);
            let mut removed = expected.clone();
            removed["removed"] = json!(true);
            assert_eq!(parse(&logs.removed_notification(place).result()), removed);
            assert!(logs.json(place).ends_with(br#""removed":false}"#));
            assert!(logs.removed_notification(place).result().ends_with(br#""removed":true}"#));
        }
    }

    #[test]
    fn the_text_is_made_once() {
        let logs = read_all(id(5, 0), &[(1, &[2]), (1, &[2])]);
        let at = |notification: &Notification| notification.suffix().as_ptr();
        for place in 0..2 {
            assert_eq!(at(&logs.notification(place)), at(&logs.notification(place)));
            assert_eq!(
                at(&logs.removed_notification(place)),
                at(&logs.removed_notification(place))
            );
        }
    }

    #[test]
    fn receipts_and_logs_are_one() {
        let block = id(5, 0);
        let all = [log(block, 0, 1, &[2]), log(block, 1, 1, &[3])];
        let receipts =
            json!([{"logs": [all[0]]}, {"logs": []}, {"logs": null}, {"logs": [all[1]]}]);
        let bloom = bloom_of(&[(1, &[2, 3])]);
        let (text, scope) = (receipts.to_string(), LogsScope::Whole(Some(&bloom)));
        let read = |text: &str| {
            BlockLogs::read(block, LogsReply::Receipts(text.as_bytes()), scope, 1 << 20)
        };
        let logs = read(&text).expect("logs");
        assert_eq!(logs.text, read_all(block, &[(1, &[2]), (1, &[3])]).text);
        assert_eq!(read("[{}]").map(|_| ()), Err(LogsError::Receipt));
    }

    #[test]
    fn what_cannot_be_the_logs_of_the_block_is_refused() {
        let block = id(5, 0);
        let all = || json!([log(block, 0, 1, &[2]), log(block, 1, 1, &[3])]);
        let bloom = bloom_of(&[(1, &[2, 3])]);
        let check = |change: &dyn Fn(&mut Value), expected: LogsError| {
            let mut list = all();
            change(&mut list);
            let read = read(&list, LogsScope::Whole(Some(&bloom)));
            assert_eq!(read.map(|_| ()), Err(expected), "{list}");
        };
        let malformed = |member| LogsError::Malformed { place: 1, member };
        check(&|list| *list = Value::Null, LogsError::NotAnArray);
        check(
            &|list| list[1]["blockHash"] = json!(id(5, 1).hash.to_string()),
            LogsError::OtherBlock { place: 1 },
        );
        check(&|list| list[0]["blockNumber"] = json!("0x6"), LogsError::OtherBlock { place: 0 });
        check(&|list| list[1]["logIndex"] = json!("0x0"), LogsError::Order { place: 1 });
        check(&|list| list[1]["address"] = json!("0x1"), malformed("address"));
        check(&|list| list[1]["topics"] = json!(["0x1"]), malformed("topics"));
        check(
            &|list| list[1]["topics"] = json!(vec![hex::encode(&[1; 32]); 5]),
            malformed("topics"),
        );
        check(&|list| list[1]["logIndex"] = Value::Null, malformed("logIndex"));
        check(&|list| list[1]["blockHash"] = Value::Null, malformed("blockHash"));
        check(&|list| drop(list.as_array_mut().map(Vec::pop)), LogsError::Incomplete);
        check(&|list| *list = json!([]), LogsError::Incomplete);
        check(&|list| list[1]["topics"] = json!([hex::encode(&[9; 32])]), LogsError::Foreign);
        let twice =
            all().to_string().replacen(r#"{"address""#, r#"{"logIndex":"0x0","address""#, 1);
        let reply = LogsReply::Logs(twice.as_bytes());
        let read = |reply, bytes_max| {
            BlockLogs::read(block, reply, LogsScope::Filtered, bytes_max)
                .map(|logs| logs.is_whole())
        };
        assert_eq!(
            read(reply, 1 << 20),
            Err(LogsError::Malformed { place: 0, member: "logIndex" })
        );
        let text = all().to_string();
        assert_eq!(read(LogsReply::Logs(text.as_bytes()), 400), Err(LogsError::TooLarge));
        assert_eq!(read(LogsReply::Logs(text.as_bytes()), 1 << 20), Ok(false));
    }

    #[test]
    fn some_chains_count_logs_anew_in_each_transaction() {
        let block = id(5, 0);
        let mut list = json!([log(block, 3, 1, &[]), log(block, 0, 1, &[])]);
        let order = LogsError::Order { place: 1 };
        assert_eq!(read(&list, LogsScope::Filtered).map(|_| ()), Err(order));
        list[1]["transactionIndex"] = json!("0x1");
        assert!(read(&list, LogsScope::Filtered).is_ok());
    }

    #[test]
    fn a_node_that_calls_new_logs_removed_is_corrected() {
        let block = id(5, 0);
        let mut one = log(block, 0, 1, &[]);
        one["removed"] = json!(true);
        let logs = read(&json!([one]), LogsScope::Filtered).expect("logs");
        assert!(logs.json(0).ends_with(br#""removed":false}"#));
        one.as_object_mut().expect("an object").remove("removed");
        let logs = read(&json!([one]), LogsScope::Filtered).expect("logs");
        assert!(logs.json(0).ends_with(br#","removed":false}"#));
    }

    #[test]
    fn a_block_without_logs_is_proven_by_its_bloom() {
        let none = json!([]);
        assert!(read(&none, LogsScope::Whole(Some(&Bloom::EMPTY))).is_ok());
        let bloom = bloom_of(&[(1, &[])]);
        let read_none = |scope| read(&none, scope).map(|logs| logs.logs().len());
        assert_eq!(read_none(LogsScope::Whole(Some(&bloom))), Err(LogsError::Incomplete));
        assert_eq!(read_none(LogsScope::Whole(None)), Ok(0), "a chain without blooms");
        let incomplete = read_none(LogsScope::WithSystemLogs(&bloom));
        assert_eq!(incomplete, Err(LogsError::Incomplete));
        let more = json!([log(id(5, 0), 0, 1, &[]), log(id(5, 0), 1, 9, &[8])]);
        assert!(
            read(&more, LogsScope::Whole(Some(&bloom))).is_err_and(|it| it == LogsError::Foreign)
        );
        let added = read(&more, LogsScope::WithSystemLogs(&bloom));
        assert!(added.is_ok_and(|logs| logs.is_whole() && logs.logs().len() == 2));
        assert!(BlockLogs::none(id(5, 0)).is_whole());
    }
}
