//! The filter of a search for logs: how many addresses it names, which they are, and a search
//! for some of them.
//!
//! Only what can be read in one way is divided: a filter with an address that is not written
//! as 20 bytes in hex is left whole. Topics are never divided.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};

use wellhead_jsonrpc::raw;

use crate::member::find_members;
use crate::method::MethodRow;
use crate::param::BlockParam;

/// The method whose answers are ordered by block and place of the log, so that lists for
/// several addresses can be put together.
const LOGS: &str = "eth_getLogs";

/// `"0x` and 40 digits and `"`.
const ADDRESS_TEXT_BYTES: usize = 44;

/// How much of a filter goes into its digest. Longer filters that begin alike share one.
const DIGEST_BYTES_MAX: usize = 4096;

/// What a search asks for, whatever its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterShape {
    /// How many addresses are named; zero where all are meant, and where there is no filter.
    pub addresses: u64,
    /// Filters with this number name the same addresses and topics; zero is none.
    pub digest: u64,
}

impl MethodRow {
    /// What a search with these parameters (raw JSON) asks for. Counts addresses by their
    /// commas: a filter that is malformed is for an upstream to refuse.
    pub fn filter_shape(&self, params: Option<&[u8]>) -> FilterShape {
        let Some([address, topics]) = self.filter(params) else { return FilterShape::default() };
        let text = address.map(raw::trim).unwrap_or_default();
        let list = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
        let addresses = match list.map(raw::trim) {
            Some(b"") => 0,
            Some(list) => 1 + list.iter().filter(|byte| **byte == b',').count() as u64,
            None => u64::from(text.starts_with(b"\"")),
        };
        let mut hasher = DefaultHasher::new();
        hasher.write_usize(self.index.get());
        for value in [address, topics] {
            let value = value.unwrap_or_default();
            hasher.write_usize(value.len());
            hasher.write(&value[..value.len().min(DIGEST_BYTES_MAX)]);
        }
        FilterShape { addresses, digest: hasher.finish().max(1) }
    }

    /// The addresses that a search for logs names, as they are written, each once. `None`
    /// where the search cannot be divided by address.
    pub fn filter_addresses<'a>(&self, params: Option<&'a [u8]>) -> Option<Vec<&'a str>> {
        if self.name != LOGS {
            return None;
        }
        let [address, _] = self.filter(params)?;
        let list = raw::trim(address?);
        if list.first() != Some(&b'[') {
            return None;
        }
        let mut seen = BTreeSet::new();
        let mut addresses = Vec::new();
        for item in raw::items(list) {
            let text = plain_address(raw::trim(item))?;
            if seen.insert(text.to_ascii_lowercase()) {
                addresses.push(text);
            }
        }
        (addresses.len() > 1).then_some(addresses)
    }

    /// The parameters of a search for logs with these addresses, as they are written, in the
    /// place of its own.
    pub fn with_addresses(&self, params: &[u8], addresses: &[impl AsRef<str>]) -> Option<Vec<u8>> {
        let [address, _] = self.filter(Some(params))?;
        let value = raw::trim(address?);
        let start = (value.as_ptr() as usize).checked_sub(params.as_ptr() as usize)?;
        let (before, after) = (params.get(..start)?, params.get(start + value.len()..)?);
        let mut out = before.to_vec();
        for (place, address) in addresses.iter().enumerate() {
            out.push(if place == 0 { b'[' } else { b',' });
            out.extend_from_slice(address.as_ref().as_bytes());
        }
        out.push(b']');
        out.extend_from_slice(after);
        Some(out)
    }

    /// The addresses and topics of the filter, as they stand there.
    fn filter<'a>(&self, params: Option<&'a [u8]>) -> Option<[Option<&'a [u8]>; 2]> {
        let BlockParam::Filter { index, .. } = self.block else { return None };
        let object = raw::item(params?, usize::from(index))?;
        find_members(object, ["address", "topics"]).ok()
    }
}

fn plain_address(value: &[u8]) -> Option<&str> {
    let digits = value.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    let is_plain = value.len() == ADDRESS_TEXT_BYTES && digits.iter().all(u8::is_ascii_hexdigit);
    std::str::from_utf8(value).ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::MethodTable;

    fn address(byte: u8) -> String {
        format!("\"0x{}\"", format!("{byte:02x}").repeat(20))
    }

    /// `'` stands for `"`, and `a`, `b`, `B` for addresses, `B` for `b` in capitals.
    fn params(text: &str) -> String {
        let capitals = address(0xbb).to_ascii_uppercase().replace('X', "x");
        let text = text.replace("'a'", &address(0xaa)).replace("'b'", &address(0xbb));
        text.replace("'B'", &capitals).replace('\'', "\"")
    }

    #[track_caller]
    fn check(text: &str, addresses: u64, divisible: Option<&str>) {
        let (params, row) = (params(text), MethodTable::standard().row("eth_getLogs"));
        let shape = row.filter_shape(Some(params.as_bytes()));
        assert_eq!(shape.addresses, addresses, "{text}");
        let found = row.filter_addresses(Some(params.as_bytes()));
        let found = found.map(|found| found.join(",").replace(&address(0xaa), "a"));
        let found = found.map(|found| found.replace(&address(0xbb), "b"));
        assert_eq!(found.as_deref(), divisible, "{text}");
    }

    #[test]
    fn addresses_are_counted_and_told_apart() {
        check("[{'address':['a','b']}]", 2, Some("a,b"));
        check("[{'topics':[['0x1','0x2']],'address' : [ 'a' , 'b' ] }]", 2, Some("a,b"));
        check("[{'address':['a','b','B','a']}]", 4, Some("a,b"));
        check("[{'address':['b','B']}]", 2, None);
        check("[{'address':['a']}]", 1, None);
        check("[{'address':'a'}]", 1, None);
        check("[{'address':[]}]", 0, None);
        check("[{'address':null}]", 0, None);
        check("[{}]", 0, None);
        check("[]", 0, None);
        check("[{'address':['a','0x1']}]", 2, None);
        check("[{'address':['a','b'],'Address':'a'}]", 0, None);
    }

    #[test]
    fn only_logs_are_divided_by_address() {
        let params = params("[{'address':['a','b']}]");
        for method in ["trace_filter", "erigon_getLatestLogs", "eth_call"] {
            let row = MethodTable::standard().row(method);
            assert_eq!(row.filter_addresses(Some(params.as_bytes())), None, "{method}");
        }
    }

    #[test]
    fn a_part_has_some_of_the_addresses_and_all_else() {
        let row = MethodTable::standard().row("eth_getLogs");
        let whole = params("[ {'fromBlock':'0x1', 'address' : ['a','b','a'] ,'topics':[]} ]");
        let part = row.with_addresses(whole.as_bytes(), &[address(0xbb)]);
        let part = String::from_utf8(part.expect("a filter")).expect("text");
        assert_eq!(part, params("[ {'fromBlock':'0x1', 'address' : ['b'] ,'topics':[]} ]"));
    }

    #[test]
    fn the_digest_is_that_of_addresses_and_topics() {
        let row = MethodTable::standard().row("eth_getLogs");
        let digest = |text: &str| row.filter_shape(Some(params(text).as_bytes())).digest;
        let one = digest("[{'fromBlock':'0x1','address':'a','topics':['0x1']}]");
        assert_eq!(one, digest("[{'address':'a','topics':['0x1'],'toBlock':'0x9'}]"));
        assert_ne!(one, digest("[{'address':'b','topics':['0x1']}]"));
        assert_ne!(one, digest("[{'address':'a','topics':['0x2']}]"));
        assert_ne!(one, digest("[{'address':'a'}]"));
        let call = MethodTable::standard().row("eth_call").filter_shape(Some(b"[]"));
        assert_eq!(call, FilterShape::default());
    }
}
