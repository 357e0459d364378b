//! Writing numbers in the place of tags, so that all upstreams answer the same question.
//!
//! Only the bytes of the reference change; everything else stays as the client wrote it.
//! What is not understood in exactly one way is left alone: an upstream says best what is
//! wrong with it. No table of numbers here: the caller knows what `latest` is today.

use std::ops::Range;

use wellhead_jsonrpc::raw;

use crate::block::{BlockPoint, BlockRef, BlockTag};
use crate::id::BlockNumber;
use crate::member::find_members;
use crate::method::{Effect, Finality, MethodRow};
use crate::param::BlockParam;

/// The longest number with its quotes, and the name of a member before it.
const WRITTEN_MAX: usize = 40;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Parameters that name blocks by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pinned {
    /// The new parameters, raw JSON.
    pub params: Vec<u8>,
    /// What they speak of.
    pub block: BlockRef,
}

impl MethodRow {
    /// Whether a tag in its parameters may be replaced by a number: the answer depends on
    /// the block alone. What depends on the upstream or the time is asked as it came.
    pub fn is_pinned(&self) -> bool {
        self.effect == Effect::Read && self.finality == Finality::Block
    }

    /// Replaces tags by the numbers that `number_of` knows for them; one allocation, and
    /// none where there is nothing to replace. An absent reference is written down where
    /// that is safe: all clients take it behind the last parameter of the `eth_` methods,
    /// and as members of a filter.
    ///
    /// `None` when all stays as it is: also where a range would end before it starts.
    pub fn pin(
        &self,
        params: Option<&[u8]>,
        number_of: impl Fn(BlockTag) -> Option<BlockNumber>,
    ) -> Option<Pinned> {
        if !self.is_pinned() {
            return None;
        }
        let written = params.map_or(&b"[]"[..], raw::trim);
        let mut cuts = Cuts { text: written, cuts: [const { None }; 2] };
        // Most calls: what the rest does as well, with one walk over the parameters.
        if let BlockParam::At { index, .. } = self.block
            && let Some(value) = raw::item(written, usize::from(index))
            && let Some(tag) = plain_tag(value)
        {
            let number = number_of(tag)?;
            cuts.replace(value, number);
            return Some(Pinned { params: cuts.write()?, block: BlockRef::Number(number) });
        }
        let block = self.cut(&mut cuts, self.block_ref(params), number_of)?;
        Some(Pinned { params: cuts.write()?, block })
    }

    /// Adds a cut for each tag of `block` that has a number, and returns the block that the new
    /// parameters name.
    fn cut(
        &self,
        cuts: &mut Cuts<'_>,
        block: BlockRef,
        number_of: impl Fn(BlockTag) -> Option<BlockNumber>,
    ) -> Option<BlockRef> {
        let number = |point: BlockPoint| match point {
            BlockPoint::Tag(tag) => number_of(tag),
            BlockPoint::Number(_) => None,
        };
        let written = cuts.text;
        Some(match (self.block, block) {
            (BlockParam::At { index, .. }, BlockRef::Tag(tag)) => {
                let number = number_of(tag)?;
                match raw::item(written, usize::from(index)) {
                    Some(value) if raw::trim(value).first() == Some(&b'{') => {
                        let [value] = find_members(value, ["blockNumber"]).ok()?;
                        cuts.replace(value?, number);
                    }
                    Some(value) => cuts.replace(value, number),
                    None => cuts.append(usize::from(index), self.name, number)?,
                }
                BlockRef::Number(number)
            }
            (BlockParam::AtField { index, field, .. }, BlockRef::Tag(tag)) => {
                let number = number_of(tag)?;
                let object = raw::item(written, usize::from(index))?;
                let [value] = find_members(object, [field]).ok()?;
                cuts.replace(value?, number);
                BlockRef::Number(number)
            }
            (BlockParam::Filter { index, .. }, BlockRef::Range { from, to }) => {
                cuts.ends(usize::from(index), [number(from), number(to)])?;
                range(from, to, number)?
            }
            (BlockParam::Range { from: first, to: last }, BlockRef::Range { from, to }) => {
                for (index, point) in [(first, from), (last, to)] {
                    // An absent end is the start.
                    if let (Some(number), Some(value)) =
                        (number(point), raw::item(written, usize::from(index)))
                        && !(index == last && raw::is_null(value))
                    {
                        cuts.replace(value, number);
                    }
                }
                range(from, to, number)?
            }
            (
                BlockParam::None
                | BlockParam::At { .. }
                | BlockParam::AtField { .. }
                | BlockParam::Hash { .. }
                | BlockParam::Filter { .. }
                | BlockParam::Range { .. },
                _,
            ) => return None,
        })
    }

    /// The parameters of a search with the range of its filter replaced by `from` to `to`,
    /// both included. `None` where there is no filter with a range that can be read.
    pub fn with_range(&self, params: &[u8], from: BlockNumber, to: BlockNumber) -> Option<Vec<u8>> {
        let (BlockParam::Filter { index, .. }, BlockRef::Range { .. }) =
            (self.block, self.block_ref(Some(params)))
        else {
            return None;
        };
        let mut cuts = Cuts { text: raw::trim(params), cuts: [const { None }; 2] };
        cuts.ends(usize::from(index), [Some(from), Some(to)])?;
        cuts.write()
    }
}

/// The tag of a JSON string without escapes.
fn plain_tag(value: &[u8]) -> Option<BlockTag> {
    let word = raw::trim(value).strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    BlockTag::from_word(std::str::from_utf8(word).ok()?)
}

/// The range with its ends as numbers; `None` when it would end before it starts, which
/// upstreams call invalid.
fn range(
    from: BlockPoint,
    to: BlockPoint,
    number: impl Fn(BlockPoint) -> Option<BlockNumber>,
) -> Option<BlockRef> {
    let pinned = |point| number(point).map_or(point, BlockPoint::Number);
    let (from, to) = (pinned(from), pinned(to));
    match (from, to) {
        (BlockPoint::Number(first), BlockPoint::Number(last)) if first > last => None,
        _ => Some(BlockRef::Range { from, to }),
    }
}

/// One place to be written anew.
#[derive(Debug, Clone)]
struct ParamEdit {
    at: Range<usize>,
    before: &'static str,
    name: Option<&'static str>,
    number: BlockNumber,
    after: &'static str,
}

/// The places of a text that are written anew, in their order; a reference has two at most.
struct Cuts<'a> {
    text: &'a [u8],
    cuts: [Option<ParamEdit>; 2],
}

impl Cuts<'_> {
    fn add(&mut self, cut: ParamEdit) {
        if let Some(free) = self.cuts.iter_mut().find(|it| it.is_none()) {
            *free = Some(cut);
        }
    }

    /// The number in the place of `value`, which is a part of the text.
    fn replace(&mut self, value: &[u8], number: BlockNumber) {
        let value = raw::trim(value);
        let start = self.place_of(value);
        let at = start..start + value.len();
        self.add(ParamEdit { at, before: "", name: None, number, after: "" });
    }

    /// The ends of the filter at `index`, each where it stands or as a new member.
    fn ends(&mut self, index: usize, numbers: [Option<BlockNumber>; 2]) -> Option<()> {
        let object = raw::trim(raw::item(self.text, index)?);
        let names = ["fromBlock", "toBlock"];
        let values = find_members(object, names).ok()?;
        for ((name, value), number) in names.into_iter().zip(values).zip(numbers) {
            match (number, value) {
                (Some(number), Some(value)) => self.replace(value, number),
                (Some(number), None) => self.insert(object, name, number),
                (None, _) => {}
            }
        }
        Some(())
    }

    /// A new first member of an object.
    fn insert(&mut self, object: &[u8], name: &'static str, number: BlockNumber) {
        let start = self.place_of(object) + 1;
        let is_empty = raw::members(object).next().is_none()
            && self.cuts.iter().flatten().all(|cut| cut.name.is_none());
        let after = if is_empty { "" } else { "," };
        self.add(ParamEdit { at: start..start, before: "", name: Some(name), number, after });
    }

    /// A new last parameter, when those before it are all there.
    fn append(&mut self, index: usize, method: &str, number: BlockNumber) -> Option<()> {
        let is_next = raw::items(self.text).count() == index;
        if !is_next || !method.starts_with("eth_") {
            return None;
        }
        let end = self.text.len().checked_sub(1)?;
        let before = if index == 0 { "" } else { "," };
        self.add(ParamEdit { at: end..end, before, name: None, number, after: "" });
        Some(())
    }

    fn place_of(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }

    /// The text with its new parts; `None` when there are none.
    fn write(mut self) -> Option<Vec<u8>> {
        if let [Some(first), Some(second)] = &self.cuts
            && (second.at.start < first.at.start
                || (second.at == first.at && first.after.is_empty()))
        {
            self.cuts.swap(0, 1);
        }
        let cuts = self.cuts.iter().flatten();
        let mut out = Vec::with_capacity(self.text.len() + WRITTEN_MAX * cuts.clone().count());
        let mut done = 0;
        for ParamEdit { at, before, name, number, after } in cuts {
            out.extend_from_slice(self.text.get(done..at.start)?);
            out.extend_from_slice(before.as_bytes());
            if let Some(name) = name {
                out.extend_from_slice(b"\"");
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(b"\":");
            }
            write_number(&mut out, *number);
            out.extend_from_slice(after.as_bytes());
            done = at.end;
        }
        if done == 0 {
            return None;
        }
        out.extend_from_slice(self.text.get(done..)?);
        Some(out)
    }
}

/// As JSON: `"0x1b4"`. By hand, as it is done for each call.
fn write_number(out: &mut Vec<u8>, BlockNumber(number): BlockNumber) {
    out.extend_from_slice(b"\"0x");
    let digits = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| HEX_DIGITS[(number >> (4 * place)) as usize & 15]));
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::table::MethodTable;

    fn number_of(tag: BlockTag) -> Option<BlockNumber> {
        match tag {
            BlockTag::Latest => Some(BlockNumber(0x64)),
            BlockTag::Safe => Some(BlockNumber(0x50)),
            BlockTag::Finalized => Some(BlockNumber(0x40)),
            BlockTag::Earliest | BlockTag::Pending => None,
        }
    }

    /// `'` stands for `"`; the answer is the new params and what they speak of, or `-`.
    #[track_caller]
    fn check(method: &str, params: &str, want: &str) {
        let params = params.replace('\'', "\"");
        let pinned = MethodTable::standard().row(method).pin(Some(params.as_bytes()), number_of);
        let got = pinned.map_or("-".to_owned(), |pinned| {
            let text = String::from_utf8(pinned.params).expect("it was text");
            let row = MethodTable::standard().row(method);
            assert_eq!(row.block_ref(Some(text.as_bytes())), pinned.block, "{text}");
            text.replace('"', "'")
        });
        assert_eq!(got, want, "{method} {params}");
    }

    #[test]
    fn tags_become_numbers_and_all_else_stays() {
        check("eth_getBalance", "['0xAb','latest']", "['0xAb','0x64']");
        check("eth_getBalance", " [ '0xAb' , 'safe' ] ", "[ '0xAb' , '0x50' ]");
        check("eth_getBlockByNumber", "['finalized', true]", "['0x40', true]");
        check("eth_getBlockByNumber", "['l\\u0061test',true]", "['0x64',true]");
        check("eth_feeHistory", "['0x4','latest',[25,75]]", "['0x4','0x64',[25,75]]");
        check(
            "eth_call",
            "[{'to':'0x1','data':'latest'},'latest',{}]",
            "[{'to':'0x1','data':'latest'},'0x64',{}]",
        );
        check("eth_call", "[{},{'blockNumber': 'latest' }]", "[{},{'blockNumber': '0x64' }]");
        check("eth_callMany", "[[],{'blockNumber':'latest'}]", "[[],{'blockNumber':'0x64'}]");
    }

    #[test]
    fn what_names_its_block_is_left_alone() {
        for params in ["['0x1','0x5']", "['0x1',5]", "['0x1','earliest']", "['0x1','pending']"] {
            check("eth_getBalance", params, "-");
        }
        check("eth_getLogs", "[{'fromBlock':'0x1','toBlock':'0x2'}]", "-");
    }

    #[test]
    fn an_absent_reference_is_written_down() {
        check("eth_getBalance", "['0xab']", "['0xab','0x64']");
        check("eth_getBalance", "['0xab',null]", "['0xab','0x64']");
        check("eth_getProof", "['0xab',[]]", "['0xab',[],'0x64']");
        check("eth_call", "[{}]", "[{},'0x64']");
        // Something before it is missing, or it is no method of the table.
        check("eth_getProof", "['0xab']", "-");
        check("alchemy_simulateAssetChanges", "[{}]", "-");
        check("eth_getBlockByNumber", "[]", "-");
        check("eth_callMany", "[[]]", "-");
        check("eth_callMany", "[[],{}]", "-");
        assert_eq!(MethodTable::standard().row("eth_call").pin(None, number_of), None);
    }

    #[test]
    fn filters_and_ranges() {
        let check = |params, want| check("eth_getLogs", params, want);
        check("[{}]", "[{'toBlock':'0x64','fromBlock':'0x64'}]");
        check("[{'address':'0x1'}]", "[{'fromBlock':'0x64','toBlock':'0x64','address':'0x1'}]");
        check("[{'fromBlock':'0x1'}]", "[{'toBlock':'0x64','fromBlock':'0x1'}]");
        check("[{'fromBlock':'0x1','toBlock':'latest'}]", "[{'fromBlock':'0x1','toBlock':'0x64'}]");
        check(
            "[{'toBlock':'latest','fromBlock':'safe'}]",
            "[{'toBlock':'0x64','fromBlock':'0x50'}]",
        );
        check("[{'fromBlock':'earliest'}]", "[{'toBlock':'0x64','fromBlock':'earliest'}]");
        check(
            "[{'fromBlock':null,'toBlock':'pending'}]",
            "[{'fromBlock':'0x64','toBlock':'pending'}]",
        );
        // It would end before it starts: the upstream may know more by now.
        check("[{'fromBlock':'0x65'}]", "-");
        check("[{'fromBlock':'latest','toBlock':'safe'}]", "-");
    }

    /// The range of a filter becomes blocks 10 to 20.
    #[track_caller]
    fn check_range(params: &str, want: Option<&str>) {
        let row = MethodTable::standard().row("eth_getLogs");
        let params = params.replace('\'', "\"");
        let got = row.with_range(params.as_bytes(), BlockNumber(10), BlockNumber(20));
        let got = got.map(|got| String::from_utf8(got).expect("it was text"));
        assert_eq!(got, want.map(|want| want.replace('\'', "\"")), "{params}");
        let Some(got) = got else { return };
        assert_eq!(row.block_ref(Some(got.as_bytes())).to_string(), "10..20", "{got}");
    }

    #[test]
    fn a_range_is_replaced_and_the_rest_is_kept() {
        check_range(
            "[ {'fromBlock':'0x1', 'toBlock' : 'latest','topics':[[]]} , 7]",
            Some("[ {'fromBlock':'0xa', 'toBlock' : '0x14','topics':[[]]} , 7]"),
        );
        check_range(
            "[{'address':'0x','toBlock':null,'x':{'fromBlock':1},'fromBlock':5}]",
            Some("[{'address':'0x','toBlock':'0x14','x':{'fromBlock':1},'fromBlock':'0xa'}]"),
        );
        check_range("[{}]", Some("[{'toBlock':'0x14','fromBlock':'0xa'}]"));
        check_range("[{ }]", Some("[{'toBlock':'0x14','fromBlock':'0xa' }]"));
        check_range(
            "[{'address':'0x'}]",
            Some("[{'fromBlock':'0xa','toBlock':'0x14','address':'0x'}]"),
        );
        check_range("[{'toBlock':'0x2'}]", Some("[{'fromBlock':'0xa','toBlock':'0x14'}]"));
        check_range("[{'fromBlock':'0x2'}]", Some("[{'toBlock':'0x14','fromBlock':'0xa'}]"));
    }

    #[test]
    fn what_has_no_range_of_its_own_is_left_alone() {
        for params in
            ["[]", "{}", "['latest']", "[{'blockHash':'0x1'}]", "[{'fromBlock':1,'fromBlock':2}]"]
        {
            check_range(params, None);
        }
    }

    #[test]
    fn two_ends_of_a_range() {
        let check = |params, want| check("bor_getRootHash", params, want);
        check("['0x1','latest']", "['0x1','0x64']");
        check("['safe','latest']", "['0x50','0x64']");
        check("['latest']", "['0x64']");
    }

    #[test]
    fn what_depends_on_more_than_the_block_is_left_alone() {
        for (method, params) in [
            ("eth_newFilter", "[{}]"),
            ("erigon_blockNumber", "['latest']"),
            ("debug_getAccessibleState", "['0x1','latest']"),
            ("acme_getBalance", "['0xab','latest']"),
            ("eth_getBalance", "{'block':'latest'}"),
            ("eth_getBalance", "['0xab','Latest']"),
            ("eth_call", "[{},{'blockNumber':'latest','blockNumber':'0x1'}]"),
            ("eth_getLogs", "[{'toBlock':'latest','TOBLOCK':'0x1'}]"),
        ] {
            check(method, params, "-");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            for row in MethodTable::standard().rows() {
                let _ = row.pin(Some(&bytes), number_of);
            }
        }

        #[test]
        fn good_json_stays_good(text in r#"\[(\{\}|"0x1"|null)(,(\{"(fromBlock|toBlock|blockNumber)": ?"(latest|0x1|safe)"\}|"latest"|null))?\]"#) {
            for row in MethodTable::standard().rows() {
                if let Some(pinned) = row.pin(Some(text.as_bytes()), number_of) {
                    prop_assert!(
                        serde_json::from_slice::<serde_json::Value>(&pinned.params).is_ok(),
                        "{} {}", row.name, String::from_utf8_lossy(&pinned.params)
                    );
                    prop_assert_eq!(row.block_ref(Some(&pinned.params)), pinned.block);
                }
            }
        }
    }
}
