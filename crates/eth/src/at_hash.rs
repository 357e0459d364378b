//! Writing a block's hash in the place of its height: a height may come to name another
//! block, a hash does not, so that the answer is known to be of that block.
//!
//! EIP-1898 lets the methods that read a state take an object with the hash. Not guaranteed:
//! that the upstream understands it.

use std::io::Write as _;

use wellhead_jsonrpc::raw;

use crate::block::BlockRef;
use crate::id::BlockHash;
use crate::method::MethodRow;
use crate::param::BlockParam;

/// Those of EIP-1898, and `eth_estimateGas`, which the clients that take the others by hash
/// take as well.
const BY_HASH: [&str; 7] = [
    "eth_call",
    "eth_estimateGas",
    "eth_getBalance",
    "eth_getCode",
    "eth_getProof",
    "eth_getStorageAt",
    "eth_getTransactionCount",
];

/// How many methods take a block by its hash: see [`MethodRow::by_hash`].
pub const BY_HASH_METHODS: usize = BY_HASH.len();

/// An object with a hash of 32 bytes in hex.
const WRITTEN: usize = r#"{"blockHash":"0x"}"#.len() + 64;

/// The place of a method among those that take a block by its hash.
pub(crate) fn place(name: &str) -> Option<usize> {
    BY_HASH.iter().position(|listed| *listed == name)
}

impl MethodRow {
    /// The parameters with the height of their block replaced by the hash of that block; one
    /// allocation. `None` where the method takes no hash, or the parameters name no height as
    /// a plain string.
    pub fn at_hash(&self, params: &[u8], hash: &BlockHash) -> Option<Vec<u8>> {
        self.by_hash?;
        let BlockParam::At { index, .. } = self.block else { return None };
        let BlockRef::Number(_) = self.block_ref(Some(params)) else { return None };
        let text = raw::trim(params);
        let value = raw::trim(raw::item(text, usize::from(index))?);
        if value.first() != Some(&b'"') {
            return None;
        }
        let start = (value.as_ptr() as usize).checked_sub(text.as_ptr() as usize)?;
        let mut out = Vec::with_capacity(text.len() - value.len() + WRITTEN);
        out.extend_from_slice(text.get(..start)?);
        out.extend_from_slice(br#"{"blockHash":""#);
        write!(out, "{hash}").ok()?;
        out.extend_from_slice(br#""}"#);
        out.extend_from_slice(text.get(start + value.len()..)?);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::MethodTable;

    const HASH: BlockHash = BlockHash([0xab; 32]);

    /// `'` stands for `"` and `HASH` for the object with the hash.
    #[track_caller]
    fn check(method: &str, params: &str, want: Option<&str>) {
        let params = params.replace('\'', "\"");
        let row = MethodTable::standard().row(method);
        let written = row.at_hash(params.as_bytes(), &HASH).map(|written| {
            assert_eq!(row.block_ref(Some(&written)), BlockRef::Hash(HASH), "{method} {params}");
            String::from_utf8(written).expect("it was text")
        });
        let object = format!("{{\"blockHash\":\"{HASH}\"}}");
        let want = want.map(|want| want.replace('\'', "\"").replace("HASH", &object));
        assert_eq!(written, want, "{method} {params}");
    }

    #[test]
    fn the_hash_stands_where_the_height_stood() {
        check("eth_getBalance", "['0xab','0x64']", Some("['0xab',HASH]"));
        check("eth_getBalance", " [ '0xab' , '0x64' ] ", Some("[ '0xab' , HASH ]"));
        check("eth_call", "[{'to':'0x1'},'0x64',{},{}]", Some("[{'to':'0x1'},HASH,{},{}]"));
        check("eth_getStorageAt", "['0x1','0x64','0x64']", Some("['0x1','0x64',HASH]"));
        check("eth_estimateGas", "[{},'0x64']", Some("[{},HASH]"));
    }

    #[test]
    fn what_names_no_height_in_that_way_stays() {
        check("eth_getBalance", "['0xab','latest']", None);
        check("eth_getBalance", "['0xab']", None);
        check("eth_getBalance", "['0xab',{'blockNumber':'0x64'}]", None);
        check("eth_getBalance", "{'address':'0xab'}", None);
        check("eth_getBlockByNumber", "['0x64',false]", None);
        check("debug_traceCall", "[{},'0x64']", None);
    }

    #[test]
    fn all_of_them_read_a_state_at_one_block() {
        for (place, name) in BY_HASH.iter().enumerate() {
            let row = MethodTable::standard().row(name);
            assert_eq!((row.name, row.by_hash), (*name, Some(place)));
            assert!(row.is_pinned() && matches!(row.block, BlockParam::At { .. }), "{name}");
        }
    }
}
