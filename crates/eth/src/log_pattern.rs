//! The addresses and topics of a filter for logs, as geth reads and matches them.
//!
//! Which blocks a filter speaks of is not decided here: `block_ref` reads that of a search, and
//! `subscribe` that of a subscription. What two readers could read differently (a member that is
//! there twice, or in other letters) is refused, where geth takes the last.

use wellhead_jsonrpc::raw;

use crate::bloom::{Bloom, BloomBits};
use crate::hex::{self, HexError};
use crate::member::find_members;

/// The 20 bytes of an address.
pub type AddressBytes = [u8; 20];
/// The 32 bytes of a topic.
pub type TopicBytes = [u8; 32];

/// Topics of a log: the virtual machine knows no more.
pub const TOPICS_MAX: usize = 4;

/// How much a filter may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPatternBounds {
    /// Addresses at most.
    pub addresses_max: usize,
    /// Places of topics at most.
    pub places_max: usize,
    /// Topics at one place at most.
    pub alternatives_max: usize,
}

impl LogPatternBounds {
    /// What geth accepts by default.
    pub const OF_GETH: Self =
        Self { addresses_max: 1000, places_max: TOPICS_MAX, alternatives_max: 1000 };
    /// For a filter that an upstream judges.
    pub const NONE: Self =
        Self { addresses_max: usize::MAX, places_max: usize::MAX, alternatives_max: usize::MAX };
}

/// Which addresses and topics a filter names.
///
/// Filters that match equal logs by the same rule are equal: the alternatives are sorted, and each
/// is there once. Places at the end that fit any topic count, as they do for geth: a log with
/// fewer topics does not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LogPattern {
    /// Sorted; empty for any.
    addresses: Vec<AddressBytes>,
    /// For each place the topics that fit, sorted; empty for any.
    topics: Vec<Vec<TopicBytes>>,
}

impl LogPattern {
    /// Reads `address` and `topics` of a filter object (raw JSON). A `null` is an absent member.
    pub fn read(object: &[u8], bounds: LogPatternBounds) -> Result<Self, LogPatternError> {
        let members = find_members(object, ["address", "topics"]);
        let [address, topics] = members.map_err(|_| LogPatternError::NotAnObject)?;
        let is_there = |value: &&[u8]| !raw::is_null(value);
        let addresses = match address.filter(is_there) {
            Some(value) => read_addresses(raw::trim(value), bounds.addresses_max)?,
            None => Vec::new(),
        };
        let topics = match topics.filter(is_there) {
            Some(value) => read_places(raw::trim(value), bounds)?,
            None => Vec::new(),
        };
        Ok(Self { addresses, topics })
    }

    /// Whether a log fits, by geth's rule.
    pub fn matches<'a>(
        &self,
        address: &AddressBytes,
        topics: impl ExactSizeIterator<Item = &'a TopicBytes>,
    ) -> bool {
        self.topics.len() <= topics.len() && self.matches_loosely(address, topics)
    }

    /// Whether a log fits if a place for any topic also fits a log that has no topic there. Nodes
    /// differ on that.
    pub fn matches_loosely<'a>(
        &self,
        address: &AddressBytes,
        mut topics: impl Iterator<Item = &'a TopicBytes>,
    ) -> bool {
        let fits_address =
            self.addresses.is_empty() || self.addresses.binary_search(address).is_ok();
        fits_address
            && self.topics.iter().all(|fitting| {
                let topic = topics.next();
                fitting.is_empty() || topic.is_some_and(|it| fitting.binary_search(it).is_ok())
            })
    }

    /// The addresses that fit, sorted; empty if any does.
    pub fn addresses(&self) -> &[AddressBytes] {
        &self.addresses
    }

    /// For each place the topics that fit, sorted; empty if any does.
    pub fn topics(&self) -> &[Vec<TopicBytes>] {
        &self.topics
    }

    /// The filter as blooms see it.
    pub fn bits(&self) -> PatternBits {
        let addresses = self.addresses.iter().map(|address| BloomBits::of(address)).collect();
        let topics = self.topics.iter();
        let topics = topics.map(|fitting| fitting.iter().map(|it| BloomBits::of(it)).collect());
        let places = std::iter::once(addresses).chain(topics);
        // An empty place fits everything.
        PatternBits(places.filter(|place: &Vec<BloomBits>| !place.is_empty()).collect())
    }

    /// Appends the members `"address"` and `"topics"` that name the filter's addresses and topics,
    /// without the braces of their object. Nothing if the filter names none.
    pub fn write_members(&self, out: &mut String) {
        let list = |out: &mut String, names: &mut dyn Iterator<Item = String>| {
            out.push('[');
            for (place, name) in names.enumerate() {
                out.push_str(if place == 0 { "\"" } else { ",\"" });
                out.push_str(&name);
                out.push('"');
            }
            out.push(']');
        };
        if !self.addresses.is_empty() {
            out.push_str("\"address\":");
            list(out, &mut self.addresses.iter().map(|it| hex::encode(it)));
        }
        if self.topics.is_empty() {
            return;
        }
        out.push_str(if self.addresses.is_empty() { "\"topics\":[" } else { ",\"topics\":[" });
        for (place, fitting) in self.topics.iter().enumerate() {
            if place > 0 {
                out.push(',');
            }
            match fitting.is_empty() {
                true => out.push_str("null"),
                false => list(out, &mut fitting.iter().map(|it| hex::encode(it))),
            }
        }
        out.push(']');
    }
}

/// A filter as blooms see it, hashed once for many of them: for each place that names something,
/// the alternatives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternBits(Vec<Vec<BloomBits>>);

impl PatternBits {
    /// Whether a block with this bloom may hold a log that fits. A filter that names nothing fits
    /// any log, and an empty bloom shows that there is none.
    pub fn may_match(&self, bloom: &Bloom) -> bool {
        match self.0.is_empty() {
            true => !bloom.is_empty(),
            false => self.0.iter().all(|place| place.iter().any(|bits| bloom.may_hold(*bits))),
        }
    }

    /// The places that name something, each with its alternatives.
    pub fn places(&self) -> &[Vec<BloomBits>] {
        &self.0
    }
}

/// Why a filter cannot be read. `Display` is what geth says of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogPatternError {
    /// The filter is no object, or has a member twice or in other letters.
    #[error("the filter is not an object with each member once")]
    NotAnObject,
    /// `address` is neither a string nor an array.
    #[error("invalid addresses in query")]
    Addresses,
    /// An item of `address` is no string.
    #[error("non-string address at index {index}")]
    NotAString {
        /// Its place in the array.
        index: usize,
    },
    /// An address is not 20 bytes in hex.
    #[error("invalid address{}: {}", at_index(.index), in_words_of_geth(.error, "address"))]
    Address {
        /// Its place in the array, if it is in one.
        index: Option<usize>,
        /// What is wrong with it.
        error: HexError,
    },
    /// `topics` is no array, or one of its places is not `null`, a string or an array of those.
    #[error("invalid topic(s)")]
    Topics,
    /// A topic is not 32 bytes in hex.
    #[error("{}", in_words_of_geth(.0, "topic"))]
    Topic(HexError),
    /// More places for topics than a log has.
    #[error("exceed max topics")]
    TooManyPlaces,
    /// More addresses, or topics at one place, than are accepted.
    #[error("exceed max addresses or topics per search position")]
    TooManyNames,
}

fn at_index(index: &Option<usize>) -> String {
    index.map_or_else(String::new, |index| format!(" at index {index}"))
}

fn in_words_of_geth(error: &HexError, what: &str) -> String {
    match error {
        HexError::NoPrefix => "hex string without 0x prefix".to_owned(),
        HexError::OddLength => "hex string of odd length".to_owned(),
        HexError::NotADigit { .. } => "invalid hex string".to_owned(),
        HexError::WrongLength { want, got } => {
            format!("hex has invalid length {got} after decoding; expected {want} for {what}")
        }
    }
}

fn read_addresses(value: &[u8], names_max: usize) -> Result<Vec<AddressBytes>, LogPatternError> {
    let read = |index, value| {
        let text = raw::string(value);
        let text = text.ok_or(match index {
            Some(index) => LogPatternError::NotAString { index },
            None => LogPatternError::Addresses,
        })?;
        hex::decode_array(&text).map_err(|error| LogPatternError::Address { index, error })
    };
    let mut addresses = match value.first() {
        Some(b'[') => {
            let items = raw::items(value).enumerate().take(names_max.saturating_add(1));
            items.map(|(index, item)| read(Some(index), item)).collect::<Result<Vec<_>, _>>()?
        }
        _ => vec![read(None, value)?],
    };
    if addresses.len() > names_max {
        return Err(LogPatternError::TooManyNames);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

fn read_places(
    value: &[u8],
    bounds: LogPatternBounds,
) -> Result<Vec<Vec<TopicBytes>>, LogPatternError> {
    if value.first() != Some(&b'[') {
        return Err(LogPatternError::Topics);
    }
    let mut places = Vec::new();
    for place in raw::items(value) {
        if places.len() == bounds.places_max {
            return Err(LogPatternError::TooManyPlaces);
        }
        places.push(read_place(raw::trim(place), bounds.alternatives_max)?);
    }
    Ok(places)
}

/// One topic, any of an array of them, or any at all for `null`, also inside an array.
fn read_place(value: &[u8], names_max: usize) -> Result<Vec<TopicBytes>, LogPatternError> {
    let read = |value| {
        let text = raw::string(value).ok_or(LogPatternError::Topics)?;
        hex::decode_array(&text).map_err(LogPatternError::Topic)
    };
    match value.first() {
        _ if raw::is_null(value) => return Ok(Vec::new()),
        Some(b'[') => {}
        _ => return Ok(vec![read(value)?]),
    }
    let (mut fits_any, mut fitting) = (false, Vec::new());
    for (index, item) in raw::items(value).enumerate() {
        if index == names_max {
            return Err(LogPatternError::TooManyNames);
        }
        match raw::is_null(item) {
            true => fits_any = true,
            false => fitting.push(read(item)?),
        }
    }
    if fits_any {
        fitting.clear();
    }
    fitting.sort_unstable();
    fitting.dedup();
    Ok(fitting)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `'` stands for `"`, `a1` for an address and `t1` for a topic of that byte.
    fn json(text: &str) -> String {
        let mut text = text.replace('\'', "\"");
        for byte in 0..=9_u8 {
            let digits = |count| format!("{byte:02x}").repeat(count);
            text = text.replace(&format!("a{byte}"), &format!("\"0x{}\"", digits(20)));
            text = text.replace(&format!("t{byte}"), &format!("\"0x{}\"", digits(32)));
        }
        // The word itself is not to be replaced.
        text
    }

    fn read(text: &str) -> Result<LogPattern, LogPatternError> {
        LogPattern::read(json(text).as_bytes(), LogPatternBounds::OF_GETH)
    }

    fn fits(filter: &str, address: u8, topics: &[u8]) -> bool {
        let topics: Vec<TopicBytes> = topics.iter().map(|byte| [*byte; 32]).collect();
        read(filter).expect(filter).matches(&[address; 20], topics.iter())
    }

    #[test]
    fn addresses() {
        for any in ["{}", "{'address':null}", "{'address':[]}", "{'topics':null}"] {
            assert!(fits(any, 1, &[]) && fits(any, 2, &[1, 2]), "{any}");
        }
        for one in ["{'address':a1}", "{'address':[a1]}", "{'address':[a1,a1]}"] {
            assert!(fits(one, 1, &[]) && !fits(one, 2, &[]), "{one}");
        }
        let two = "{'address':[a3,a1]}";
        assert!(fits(two, 1, &[]) && fits(two, 3, &[]) && !fits(two, 2, &[]));
    }

    #[test]
    fn topics() {
        let check = |topics: &str, log: &[u8], expected: bool| {
            let filter = format!("{{'topics':{topics}}}");
            assert_eq!(fits(&filter, 1, log), expected, "{topics} {log:?}");
        };
        check("[]", &[], true);
        check("[]", &[1, 2, 3, 4], true);
        check("[t1]", &[1], true);
        check("[t1]", &[1, 2, 3], true);
        check("[t1]", &[2, 1], false);
        check("[t1]", &[], false);
        check("[null,t2]", &[1, 2], true);
        check("[null,t2]", &[2, 1], false);
        check("[[t1,t2]]", &[2], true);
        check("[[t1,t2]]", &[3], false);
        check("[[],t2]", &[9, 2], true);
        check("[[null,t1],t2]", &[9, 2], true);
        check("[t1,[t3,t2]]", &[1, 3], true);
        check("[t1,[t3,t2]]", &[1], false);
        // geth: a filter with more places than the log has topics does not fit.
        check("[null]", &[], false);
        check("[null]", &[1], true);
        check("[t1,null]", &[1], false);
        check("[t1,null]", &[1, 7], true);
    }

    #[test]
    fn nodes_differ_on_places_for_any() {
        let filter = read("{'topics':[t1,null]}").expect("a filter");
        assert!(filter.matches_loosely(&[0; 20], [[1; 32]].iter()));
        assert!(!filter.matches_loosely(&[0; 20], [].iter()));
    }

    #[test]
    fn equal_filters_are_equal() {
        let same = |one: &str, other: &str| {
            assert_eq!(read(one).expect(one), read(other).expect(other), "{one} {other}");
        };
        same("{'address':[a2,a1,a2]}", "{'address':[a1,a2]}");
        same("{'address':a1}", "{'address':[a1],'topics':[]}");
        same("{'topics':[[t2,t1]]}", "{'topics':[[t1,t2,t2]]}");
        same("{'topics':[null]}", "{'topics':[[]]}");
        same("{'topics':[[null,t1]]}", "{'topics':[[]]}");
        let upper = json("{'address':a1}").replace("01", "aB");
        let lower = upper.to_ascii_lowercase();
        let read = |text: &str| LogPattern::read(text.as_bytes(), LogPatternBounds::OF_GETH);
        assert_eq!(read(&upper), read(&lower));
        assert_ne!(super::tests::read("{'topics':[]}"), super::tests::read("{'topics':[null]}"));
    }

    #[test]
    fn errors_are_worded_as_geth_words_them() {
        let check = |filter: &str, words: &str| {
            let error = read(filter).expect_err(filter).to_string();
            assert_eq!(error, words, "{filter}");
        };
        check("[]", "the filter is not an object with each member once");
        check("{'address':[],'address':[]}", "the filter is not an object with each member once");
        check("{'Address':[]}", "the filter is not an object with each member once");
        check("{'address':1}", "invalid addresses in query");
        check("{'address':{}}", "invalid addresses in query");
        check("{'address':[a1,1]}", "non-string address at index 1");
        check("{'address':[null]}", "non-string address at index 0");
        check("{'address':'12'}", "invalid address: hex string without 0x prefix");
        check("{'address':'0x1'}", "invalid address: hex string of odd length");
        check(
            "{'address':['0x12']}",
            "invalid address at index 0: hex has invalid length 1 after decoding; \
             expected 20 for address",
        );
        let digits = "g".repeat(40);
        check(&format!("{{'address':'0x{digits}'}}"), "invalid address: invalid hex string");
        check("{'topics':{}}", "invalid topic(s)");
        check("{'topics':[1]}", "invalid topic(s)");
        check("{'topics':[[1]]}", "invalid topic(s)");
        check("{'topics':[[[]]]}", "invalid topic(s)");
        check("{'topics':[a1]}", "hex has invalid length 20 after decoding; expected 32 for topic");
        check("{'topics':[null,null,null,null,null]}", "exceed max topics");
        let many = |name: &str, count| vec![name; count].join(",");
        let too_many = "exceed max addresses or topics per search position";
        check(&format!("{{'address':[{}]}}", many("a1", 1001)), too_many);
        check(&format!("{{'topics':[[{}]]}}", many("t1", 1001)), too_many);
        assert!(read(&format!("{{'address':[{}]}}", many("a1", 1000))).is_ok());
    }

    #[test]
    fn blooms_exclude_filters() {
        let bits = |filter: &str| read(filter).expect(filter).bits();
        let mut bloom = Bloom::EMPTY;
        assert!(!bits("{}").may_match(&bloom), "the block holds no log");
        bloom.add(BloomBits::of(&[1; 20]));
        bloom.add(BloomBits::of(&[2; 32]));
        for filter in ["{}", "{'address':a1}", "{'address':[a5,a1],'topics':[null,t2]}"] {
            assert!(bits(filter).may_match(&bloom), "{filter}");
        }
        for filter in ["{'address':a5}", "{'address':a1,'topics':[t2,t3]}"] {
            assert!(!bits(filter).may_match(&bloom), "{filter}");
        }
    }

    #[test]
    fn any_text_is_survived() {
        for text in ["", "{", "{\"address\":", "{\"topics\":[[", "{\"address\":\"\\ud800\"}"] {
            let _ = LogPattern::read(text.as_bytes(), LogPatternBounds::OF_GETH);
        }
    }

    fn filters() -> impl Strategy<Value = LogPattern> {
        let names = |most| prop::collection::vec(0..4_u8, 0..most);
        (names(4), prop::collection::vec(names(3), 0..4)).prop_map(|(addresses, topics)| {
            let sorted = |mut names: Vec<u8>| {
                names.sort_unstable();
                names.dedup();
                names
            };
            let topics = topics.into_iter().map(sorted);
            LogPattern {
                addresses: sorted(addresses).into_iter().map(|byte| [byte; 20]).collect(),
                topics: topics.map(|it| it.into_iter().map(|byte| [byte; 32]).collect()).collect(),
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(filter in filters()) {
            let mut text = "{".to_owned();
            filter.write_members(&mut text);
            text.push('}');
            let back = LogPattern::read(text.as_bytes(), LogPatternBounds::OF_GETH);
            prop_assert_eq!(back, Ok(filter), "{}", text);
        }

        #[test]
        fn a_bloom_with_the_log_never_excludes_it(
            filter in filters(),
            address in 0..4_u8,
            topics in prop::collection::vec(0..4_u8, 0..4),
        ) {
            let topics: Vec<TopicBytes> = topics.into_iter().map(|byte| [byte; 32]).collect();
            let mut bloom = Bloom::EMPTY;
            bloom.add(BloomBits::of(&[address; 20]));
            topics.iter().for_each(|topic| bloom.add(BloomBits::of(topic)));
            if filter.matches(&[address; 20], topics.iter()) {
                prop_assert!(filter.bits().may_match(&bloom));
                prop_assert!(filter.matches_loosely(&[address; 20], topics.iter()));
            }
        }
    }
}
