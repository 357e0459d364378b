//! The filter of a subscription to logs or of `eth_newFilter`, as geth reads it.
//!
//! | member | meaning |
//! |---|---|
//! | `address`, `topics` | see [`LogPattern`] |
//! | `fromBlock`, `toBlock` | gates for blocks to come: a log below or above is not told. No log of the past is told, whatever they say |
//! | `latest`, `safe`, `finalized` or none | no gate, as `fromBlock` and as `toBlock` |
//! | `earliest` | the block 0 |
//! | `pending` | refused, as geth does |
//! | `blockHash` | accepted and ignored, as geth does; with `fromBlock` or `toBlock` refused |
//!
//! geth refuses `safe` and `finalized` here by the way its range check is written, and a number
//! before such a tag. They are accepted, as a filter for `eth_getFilterLogs` may well name them.

use wellhead_eth::{
    BlockNumber, BlockTag, Bloom, LogPattern, LogPatternBounds, LogPatternError, PatternBits,
    find_members,
};
use wellhead_jsonrpc::raw;

use crate::logs::BlockLog;

/// The members that say which blocks are meant.
const FROM: &str = "fromBlock";
const TO: &str = "toBlock";
const HASH: &str = "blockHash";

/// Which logs are told. Equal criteria are equal values, however they are written, and share a
/// group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LogCriteria {
    pattern: LogPattern,
    from: Option<BlockNumber>,
    to: Option<BlockNumber>,
}

impl LogCriteria {
    /// Reads the filter object (raw JSON) of a call; `None` or `null` is a filter for all logs.
    pub fn read(object: Option<&[u8]>) -> Result<Self, LogCriteriaError> {
        let Some(object) = object.filter(|object| !raw::is_null(object)) else {
            return Ok(Self::default());
        };
        let pattern = LogPattern::read(object, LogPatternBounds::OF_GETH)?;
        let [from, to, hash] = [FROM, TO, HASH].map(|name| member(object, name));
        let (from, to, hash) = (from?, to?, hash?);
        if let Some(hash) = hash {
            if from.is_some() || to.is_some() {
                return Err(LogCriteriaError::HashAndRange);
            }
            let hash =
                raw::string(hash).and_then(|text| text.parse::<wellhead_eth::BlockHash>().ok());
            hash.ok_or(LogCriteriaError::Member(HASH))?;
        }
        let from = from.map_or(Ok(None), |value| gate(FROM, value))?;
        let to = to.map_or(Ok(None), |value| gate(TO, value))?;
        if let (Some(from), Some(to)) = (from, to)
            && from > to
        {
            return Err(LogCriteriaError::Range);
        }
        // A gate that is always open is none, so that equal criteria are equal.
        let from = from.filter(|from| from.0 > 0);
        Ok(Self { pattern, from, to })
    }

    /// The addresses and topics.
    pub fn pattern(&self) -> &LogPattern {
        &self.pattern
    }

    /// The lowest and the highest block of which logs are told.
    pub(crate) fn gates(&self) -> (BlockNumber, BlockNumber) {
        (self.from.unwrap_or(BlockNumber(0)), self.to.unwrap_or(BlockNumber(u64::MAX)))
    }

    /// Whether logs of blocks at this height are told.
    pub(crate) fn admits(&self, number: BlockNumber) -> bool {
        self.from.is_none_or(|from| number >= from) && self.to.is_none_or(|to| number <= to)
    }

    /// Whether a log of a block at this height is told.
    pub fn matches(&self, number: BlockNumber, log: &BlockLog) -> bool {
        self.admits(number) && log.fits(&self.pattern)
    }

    /// The criteria as blooms see them: computed once, for many headers.
    pub fn bits(&self) -> LogCriteriaBits {
        LogCriteriaBits { pattern: self.pattern.bits(), from: self.from, to: self.to }
    }

    /// About how many bytes it holds.
    pub fn bytes_held(&self) -> usize {
        let topics = self.pattern.topics().iter().map(|place| 24 + 32 * place.len());
        size_of::<Self>() + 20 * self.pattern.addresses().len() + topics.sum::<usize>()
    }
}

/// Criteria as blooms see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogCriteriaBits {
    pattern: PatternBits,
    from: Option<BlockNumber>,
    to: Option<BlockNumber>,
}

impl LogCriteriaBits {
    /// Whether the block may hold a log that is told; always where it has no valid bloom.
    pub fn may_match(&self, number: BlockNumber, bloom: Option<&Bloom>) -> bool {
        self.from.is_none_or(|from| number >= from)
            && self.to.is_none_or(|to| number <= to)
            && bloom.is_none_or(|bloom| self.pattern.may_match(bloom))
    }
}

/// Why a filter is refused. `Display` is what geth says of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogCriteriaError {
    /// Its addresses or topics.
    #[error(transparent)]
    Pattern(#[from] LogPatternError),
    /// `blockHash` beside `fromBlock` or `toBlock`.
    #[error("cannot specify both BlockHash and FromBlock/ToBlock, choose one or the other")]
    HashAndRange,
    /// `fromBlock` is above `toBlock`.
    #[error("invalid block range params")]
    Range,
    /// `pending` logs are asked for.
    #[error("pending logs are not supported")]
    Pending,
    /// A member that names a block cannot be read.
    #[error("`{0}` cannot be read")]
    Member(&'static str),
}

impl LogCriteriaError {
    /// The message for a client that wrote the filter as this argument of its call.
    pub fn message(&self, argument: usize) -> String {
        match self {
            // geth reads the arguments first, and looks at what they mean later.
            Self::Range | Self::Pending => self.to_string(),
            Self::Pattern(LogPatternError::TooManyPlaces | LogPatternError::TooManyNames) => {
                self.to_string()
            }
            Self::Pattern(_) | Self::HashAndRange | Self::Member(_) => {
                format!("invalid argument {argument}: {self}")
            }
        }
    }
}

/// The value of a member; `None` where it is absent or `null`, an error where it is there twice.
fn member<'a>(object: &'a [u8], name: &'static str) -> Result<Option<&'a [u8]>, LogCriteriaError> {
    let [value] = find_members(object, [name]).map_err(|_| LogCriteriaError::Member(name))?;
    Ok(value.filter(|value| !raw::is_null(value)))
}

fn gate(name: &'static str, value: &[u8]) -> Result<Option<BlockNumber>, LogCriteriaError> {
    let text = raw::string(value).ok_or(LogCriteriaError::Member(name))?;
    match BlockTag::from_word(&text) {
        Some(BlockTag::Latest | BlockTag::Safe | BlockTag::Finalized) => Ok(None),
        Some(BlockTag::Earliest) => Ok(Some(BlockNumber(0))),
        Some(BlockTag::Pending) => Err(LogCriteriaError::Pending),
        None => {
            let number = raw::quantity(value).map(BlockNumber);
            number.map(Some).ok_or(LogCriteriaError::Member(name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::tests::id;
    use crate::logs::tests::{bloom_of, read_all};

    fn read(text: &str) -> Result<LogCriteria, LogCriteriaError> {
        let address = format!("\"0x{}\"", "01".repeat(20));
        let topic = format!("\"0x{}\"", "02".repeat(32));
        let hash = format!("\"0x{}\"", "03".repeat(32));
        let text = text.replace('\'', "\"").replace("<a>", &address).replace("<t>", &topic);
        LogCriteria::read(Some(text.replace("<h>", &hash).as_bytes()))
    }

    #[test]
    fn gates() {
        let check = |filter: &str, admitted: &[u64]| {
            let criteria = read(filter).expect(filter);
            let found: Vec<_> = [0, 5, 6, 9, 10]
                .into_iter()
                .filter(|it| criteria.admits(BlockNumber(*it)))
                .collect();
            assert_eq!(found, admitted, "{filter}");
            let bits = criteria.bits();
            assert!(admitted.iter().all(|it| bits.may_match(BlockNumber(*it), None)), "{filter}");
        };
        check("{}", &[0, 5, 6, 9, 10]);
        check("{'fromBlock':'latest','toBlock':'latest'}", &[0, 5, 6, 9, 10]);
        check("{'fromBlock':'0x6'}", &[6, 9, 10]);
        check("{'fromBlock':'0x6','toBlock':'0x9','address':<a>}", &[6, 9]);
        check("{'toBlock':'0x5','topics':[<t>]}", &[0, 5]);
        check("{'fromBlock':'earliest','toBlock':'safe'}", &[0, 5, 6, 9, 10]);
        check("{'blockHash':<h>}", &[0, 5, 6, 9, 10]);
        check("{'fromBlock':null,'toBlock':'0x0'}", &[0]);
    }

    #[test]
    fn equal_criteria_are_one() {
        for [one, other] in [
            ["{'fromBlock':'0x0'}", "{'fromBlock':'latest'}"],
            ["{'fromBlock':'0x05'}", "{'fromBlock':'0x5'}"],
            ["{'address':[<a>,<a>]}", "{'address':<a>,'topics':[]}"],
        ] {
            assert_eq!(read(one), read(other), "{one} {other}");
        }
        assert_ne!(read("{'fromBlock':'0x1'}"), read("{}"));
        assert_eq!(LogCriteria::read(None), read("{}"));
        assert_eq!(LogCriteria::read(Some(b"null")), read("{}"));
    }

    #[test]
    fn errors_are_worded_as_geth_words_them() {
        let check = |filter: &str, words: &str| {
            let error = read(filter).expect_err(filter);
            assert_eq!(error.message(1), words, "{filter}");
        };
        check("{'fromBlock':'0x6','toBlock':'0x5'}", "invalid block range params");
        check("{'fromBlock':'pending'}", "pending logs are not supported");
        check("{'toBlock':'pending'}", "pending logs are not supported");
        check("{'topics':[null,null,null,null,null]}", "exceed max topics");
        check("{'address':1}", "invalid argument 1: invalid addresses in query");
        check(
            "{'blockHash':<h>,'toBlock':'latest'}",
            "invalid argument 1: cannot specify both BlockHash and FromBlock/ToBlock, choose one \
             or the other",
        );
        check("{'blockHash':'0x1'}", "invalid argument 1: `blockHash` cannot be read");
        check("{'fromBlock':'x'}", "invalid argument 1: `fromBlock` cannot be read");
        check("{'fromBlock':{}}", "invalid argument 1: `fromBlock` cannot be read");
        check("{'toBlock':'0x1','toBlock':'0x2'}", "invalid argument 1: `toBlock` cannot be read");
        check("{'ToBlock':'0x1'}", "invalid argument 1: `toBlock` cannot be read");
        check("[]", "invalid argument 1: the filter is not an object with each member once");
    }

    #[test]
    fn logs_and_blooms() {
        let logs = read_all(id(5, 0), &[(1, &[2]), (1, &[9]), (7, &[2])]);
        let bloom = bloom_of(&[(1, &[2, 9]), (7, &[])]);
        let check = |filter: &str, places: &[usize]| {
            let criteria = read(filter).expect(filter);
            let matched = (0..logs.logs().len())
                .filter(|place| criteria.matches(BlockNumber(5), &logs.logs()[*place]));
            assert_eq!(matched.collect::<Vec<_>>(), places, "{filter}");
            if !places.is_empty() {
                assert!(criteria.bits().may_match(BlockNumber(5), Some(&bloom)), "{filter}");
            }
        };
        check("{}", &[0, 1, 2]);
        check("{'address':<a>}", &[0, 1]);
        check("{'topics':[<t>]}", &[0, 2]);
        check("{'address':<a>,'topics':[<t>]}", &[0]);
        check("{'fromBlock':'0x6'}", &[]);
        let bits = read("{'address':<a>,'fromBlock':'0x6'}").expect("criteria").bits();
        assert!(!bits.may_match(BlockNumber(5), Some(&bloom)));
        assert!(bits.may_match(BlockNumber(6), Some(&bloom)));
        assert!(!bits.may_match(BlockNumber(6), Some(&Bloom::EMPTY)));
    }
}
