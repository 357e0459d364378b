//! One body for `newHeads`, whichever node wrote the block and however it was heard of.
//!
//! Nodes send a header or a whole block, with members in any order, with `null` for what they do
//! not know. Here every source becomes the header in one order of members: equal blocks have equal
//! bytes, so a client cannot tell which upstream spoke. Values are as the upstream wrote them; if
//! two upstreams write one value differently (upper case, leading zeros), the bytes differ.
//!
//! Members with unknown names stay: chains above Ethereum have header fields of their own
//! (`l1BlockNumber`, `sendRoot`). They follow the known ones, sorted by name.

use std::sync::Arc;

use bytes::Bytes;
use wellhead_eth::{BlockHash, BlockNumber, Bloom, NumberedBlock};
use wellhead_jsonrpc::{raw, write};

use crate::notification::Notification;

/// A header longer than this is refused. Clique and bor put their validators into `extraData`,
/// which comes to some ten kilobytes.
const HEADER_BYTES_MAX: usize = 256 * 1024;

/// The members in the order in which go-ethereum writes them, and whether its client refuses a
/// header without them.
const MEMBERS: [(&str, bool); 22] = [
    ("parentHash", true),
    ("sha3Uncles", true),
    ("miner", false),
    ("stateRoot", true),
    ("transactionsRoot", true),
    ("receiptsRoot", true),
    ("logsBloom", true),
    ("difficulty", true),
    ("number", true),
    ("gasLimit", true),
    ("gasUsed", true),
    ("timestamp", true),
    ("extraData", true),
    ("mixHash", false),
    ("nonce", false),
    ("baseFeePerGas", false),
    ("withdrawalsRoot", false),
    ("blobGasUsed", false),
    ("excessBlobGas", false),
    ("parentBeaconBlockRoot", false),
    ("requestsHash", false),
    // Not of go-ethereum's header, but without it nothing can be linked.
    ("hash", true),
];

/// Members of a block that are not of its header.
const DROPPED: [&str; 5] = ["transactions", "uncles", "withdrawals", "size", "totalDifficulty"];

/// A header as subscribers to `newHeads` receive it. Cheap to clone.
///
/// What it says was not checked: its hash is the one that the upstream named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its number and hash.
    pub id: NumberedBlock,
    /// The hash of the block before it.
    pub parent: BlockHash,
    /// Which names its logs may have; `None` where the upstream wrote no valid bloom, so that any
    /// log may be there.
    pub bloom: Option<Arc<Bloom>>,
    notification: Notification,
}

impl Header {
    /// Reads the raw JSON of a header or block object.
    pub fn read(object: &[u8]) -> Result<Self, HeaderError> {
        let mut known = [None; MEMBERS.len()];
        let mut others = Vec::new();
        if raw::trim(object).first() != Some(&b'{') {
            return Err(HeaderError::NotAnObject);
        }
        for (name, value) in raw::members(object) {
            if raw::is_null(value) || DROPPED.contains(&&*name) {
                continue;
            }
            match MEMBERS.iter().position(|(known, _)| *known == name) {
                None => others.push((name, value)),
                Some(place) => {
                    if known[place].replace(raw::trim(value)).is_some() {
                        return Err(HeaderError::Duplicate(MEMBERS[place].0.to_owned()));
                    }
                }
            }
        }
        others.sort_by(|(one, _), (other, _)| one.cmp(other));
        if let Some(pair) = others.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(HeaderError::Duplicate(pair[0].0.clone().into_owned()));
        }
        let required = MEMBERS.iter().zip(known).filter(|((_, is_required), _)| *is_required);
        for ((name, _), value) in required {
            value.ok_or(HeaderError::Missing(name))?;
        }
        let known = || MEMBERS.iter().map(|(name, _)| *name).zip(known);
        let value = |name: &'static str| {
            let found = known().find(|(known, _)| *known == name).and_then(|(_, value)| value);
            found.ok_or(HeaderError::Missing(name))
        };
        let hash = |name| {
            let hash = raw::string(value(name)?).and_then(|text| text.parse().ok());
            hash.ok_or(HeaderError::Malformed(name))
        };
        let number = raw::quantity(value("number")?).ok_or(HeaderError::Malformed("number"))?;
        let id = NumberedBlock { number: BlockNumber(number), hash: hash("hash")? };
        let parent = hash("parentHash")?;
        let bloom = Bloom::of_value(value("logsBloom")?).map(Arc::new);
        let members = known().filter_map(|(name, value)| Some((name, value?)));
        let members = members.chain(others.iter().map(|(name, value)| (&**name, *value)));
        Ok(Self { id, parent, bloom, notification: notification(members)? })
    }

    /// The header's JSON.
    pub fn json(&self) -> Bytes {
        self.notification.result()
    }

    /// The notification for subscribers to `newHeads`.
    pub fn notification(&self) -> &Notification {
        &self.notification
    }

    /// About how many bytes it holds.
    pub fn bytes_held(&self) -> usize {
        size_of::<Self>() + size_of::<Bloom>() + self.notification.suffix().len()
    }

    /// The block below it. Of genesis: itself.
    pub fn parent_id(&self) -> NumberedBlock {
        NumberedBlock { number: BlockNumber(self.id.number.0.saturating_sub(1)), hash: self.parent }
    }
}

fn notification<'a>(
    members: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Notification, HeaderError> {
    let mut suffix = Vec::with_capacity(2048);
    Notification::write_suffix(&mut suffix, |out| {
        out.push(b'{');
        for (place, (name, value)) in members.enumerate() {
            if place > 0 {
                out.push(b',');
            }
            write::string(out, name);
            out.push(b':');
            out.extend_from_slice(value);
        }
        out.push(b'}');
    });
    if suffix.len() > HEADER_BYTES_MAX {
        return Err(HeaderError::TooLarge);
    }
    suffix.shrink_to_fit();
    Ok(Notification::of_suffix(suffix.into()))
}

/// Why an object is no header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It is no object: `null` for a block that the upstream does not have.
    #[error("the header is not an object")]
    NotAnObject,
    /// A member that clients need is absent or `null`.
    #[error("the header has no `{0}`")]
    Missing(&'static str),
    /// A member does not hold what it should.
    #[error("the header's `{0}` cannot be read")]
    Malformed(&'static str),
    /// A member is there twice.
    #[error("the header has `{0}` twice")]
    Duplicate(String),
    /// It is longer than any header.
    #[error("the header has more than {HEADER_BYTES_MAX} bytes")]
    TooLarge,
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    /// The hash of the block at this height of a branch.
    pub(crate) fn hash(number: u64, branch: u8) -> BlockHash {
        let mut bytes = [branch; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        BlockHash(bytes)
    }

    pub(crate) fn id(number: u64, branch: u8) -> NumberedBlock {
        NumberedBlock { number: BlockNumber(number), hash: hash(number, branch) }
    }

    /// A header above `parent`, with an empty bloom.
    pub(crate) fn header(id: NumberedBlock, parent: BlockHash) -> Header {
        let (zero, bloom) = (format!("0x{}", "0".repeat(64)), "0".repeat(512));
        let text = format!(
            r#"{{"parentHash":"{parent}","sha3Uncles":"{zero}","stateRoot":"{zero}",
            "transactionsRoot":"{zero}","receiptsRoot":"{zero}","logsBloom":"0x{bloom}",
            "difficulty":"0x0","number":"{}","gasLimit":"0x1","gasUsed":"0x0","timestamp":"0x1",
            "extraData":"0x","hash":"{}"}}"#,
            id.number.hex(),
            id.hash
        );
        Header::read(text.as_bytes()).expect("a header")
    }

    /// The headers of a branch from `from` to `to`, the first above `parent`.
    pub(crate) fn branch(parent: BlockHash, from: u64, to: u64, branch: u8) -> Vec<Header> {
        let parent_of = |number| if number == from { parent } else { hash(number - 1, branch) };
        (from..=to).map(|number| header(id(number, branch), parent_of(number))).collect()
    }

    fn hex(byte: u8, bytes: usize) -> String {
        format!("0x{}", format!("{byte:02x}").repeat(bytes))
    }

    fn header_json() -> Value {
        json!({
            "parentHash": hex(1, 32), "sha3Uncles": hex(2, 32), "miner": hex(3, 20),
            "stateRoot": hex(4, 32), "transactionsRoot": hex(5, 32), "receiptsRoot": hex(6, 32),
            "logsBloom": hex(0, 256), "difficulty": "0x0", "number": "0x10",
            "gasLimit": "0x1c9c380", "gasUsed": "0x0", "timestamp": "0x65", "extraData": "0x",
            "mixHash": hex(7, 32), "nonce": "0x0000000000000000", "baseFeePerGas": "0x7",
            "withdrawalsRoot": hex(8, 32), "hash": hex(9, 32),
        })
    }

    fn read(value: &Value) -> Result<Header, HeaderError> {
        Header::read(value.to_string().as_bytes())
    }

    #[test]
    fn a_header_and_a_block_become_one_body() {
        let header = read(&header_json()).expect("a header");
        assert_eq!(header.id.number, BlockNumber(16));
        assert_eq!((header.id.hash.0, header.parent.0), ([9; 32], [1; 32]));
        assert_eq!(header.parent_id().number, BlockNumber(15));
        assert_eq!(header.bloom.as_deref(), Some(&Bloom::EMPTY));
        let mut block = header_json();
        for (name, value) in [
            ("transactions", json!([hex(1, 32)])),
            ("uncles", json!([])),
            ("withdrawals", json!([{"index": "0x1"}])),
            ("size", json!("0x220")),
            ("totalDifficulty", json!("0x1")),
            ("blobGasUsed", Value::Null),
            ("author", Value::Null),
        ] {
            block[name] = value;
        }
        assert_eq!(read(&block).as_ref(), Ok(&header));
        assert!(header.json().starts_with(br#"{"parentHash":"0x01"#));
        let back: Value = serde_json::from_slice(&header.json()).expect("JSON");
        assert_eq!(back, header_json());
    }

    #[test]
    fn fields_of_other_chains_stay() {
        let mut block = header_json();
        block["sendRoot"] = json!(hex(1, 32));
        block["l1BlockNumber"] = json!("0x5");
        block["odd \"name\""] = json!({"a": [1, null]});
        let header = read(&block).expect("a header");
        let text = String::from_utf8(header.json().to_vec()).expect("text");
        let at = |name: &str| text.find(name).expect(name);
        assert!(at("l1BlockNumber") < at("odd") && at("odd") < at("sendRoot"), "{text}");
        assert!(text.contains(r#""odd \"name\"":{"a":[1,null]}"#), "{text}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |change: &dyn Fn(&mut Map<String, Value>), error: HeaderError| {
            let mut block = header_json();
            change(block.as_object_mut().expect("an object"));
            assert_eq!(read(&block), Err(error));
        };
        for (name, _) in MEMBERS.iter().filter(|(_, is_required)| *is_required) {
            check(&|block| drop(block.remove(*name)), HeaderError::Missing(name));
            check(&|block| block[*name] = Value::Null, HeaderError::Missing(name));
        }
        check(&|it| it["number"] = json!("latest"), HeaderError::Malformed("number"));
        check(&|it| it["hash"] = json!("0x1"), HeaderError::Malformed("hash"));
        check(&|it| it["parentHash"] = json!(1), HeaderError::Malformed("parentHash"));
        let long = format!("0x{}", "0".repeat(HEADER_BYTES_MAX));
        check(&|it| it["extraData"] = json!(long), HeaderError::TooLarge);
        for optional in ["miner", "mixHash", "nonce", "baseFeePerGas", "withdrawalsRoot"] {
            let mut block = header_json();
            block.as_object_mut().expect("an object").remove(optional);
            assert!(read(&block).is_ok(), "{optional}");
        }
        for text in ["null", "[]", "", "1"] {
            assert_eq!(Header::read(text.as_bytes()), Err(HeaderError::NotAnObject), "{text}");
        }
        for (name, text) in [("nonce", "'nonce':'0x1',"), ("x", "'x':1,'x':1,")] {
            let text = header_json().to_string().replacen('{', &format!("{{{text}"), 1);
            let error = Header::read(text.replace('\'', "\"").as_bytes());
            assert_eq!(error, Err(HeaderError::Duplicate(name.to_owned())));
        }
    }

    #[test]
    fn a_bloom_that_cannot_be_read_excludes_nothing() {
        let mut block = header_json();
        block["logsBloom"] = json!("0x");
        assert_eq!(read(&block).expect("a header").bloom, None);
    }

    proptest! {
        #[test]
        fn the_order_of_members_does_not_matter(
            order in Just((0..18_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let members: Vec<_> = match header_json() {
                Value::Object(members) => members.into_iter().collect(),
                _ => unreachable!("an object"),
            };
            let text: Vec<_> = order.iter().map(|place| &members[*place])
                .map(|(name, value)| format!(" \"{name}\" : {value} ")).collect();
            let text = format!(" {{{}}}", text.join(","));
            prop_assert_eq!(Header::read(text.as_bytes()), read(&header_json()));
        }

        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = Header::read(&bytes);
        }
    }
}
