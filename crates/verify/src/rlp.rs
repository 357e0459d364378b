//! RLP by items: reading without building, writing from parts.

use alloy_primitives::{B256, Bytes};
use alloy_rlp::{Encodable, Header};

/// One item of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RlpItem<'a> {
    /// With its header.
    pub(crate) whole: &'a [u8],
    /// Without.
    pub(crate) payload: &'a [u8],
    pub(crate) is_list: bool,
}

impl<'a> RlpItem<'a> {
    /// The first item of `bytes`, and what follows it.
    fn first(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let mut rest = bytes;
        let header = Header::decode(&mut rest).ok()?;
        let payload = rest.get(..header.payload_length)?;
        let after = &rest[header.payload_length..];
        let whole = &bytes[..bytes.len() - after.len()];
        Some((Self { whole, payload, is_list: header.list }, after))
    }

    /// The one item that `bytes` must be.
    pub(crate) fn only(bytes: &'a [u8]) -> Option<Self> {
        match Self::first(bytes)? {
            (item, []) => Some(item),
            _ => None,
        }
    }

    /// The items of a list of at most `N`, and how many there are.
    pub(crate) fn items<const N: usize>(self) -> Option<([Self; N], usize)> {
        if !self.is_list {
            return None;
        }
        let mut items = [Self { whole: &[], payload: &[], is_list: false }; N];
        let (mut count, mut rest) = (0, self.payload);
        while !rest.is_empty() {
            let (item, after) = Self::first(rest)?;
            *items.get_mut(count)? = item;
            (count, rest) = (count + 1, after);
        }
        Some((items, count))
    }

    /// A number below 2^64, without leading zeros.
    pub(crate) fn number(self) -> Option<u64> {
        if self.is_list || self.payload.len() > 8 || self.payload.first() == Some(&0) {
            return None;
        }
        Some(self.payload.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// The bytes of a number of up to 256 bits, padded.
    pub(crate) fn word(self) -> Option<B256> {
        if self.is_list || self.payload.len() > 32 || self.payload.first() == Some(&0) {
            return None;
        }
        Some(B256::left_padding_from(self.payload))
    }
}

/// A list in the making.
#[derive(Debug, Default)]
pub(crate) struct RlpList(Vec<u8>);

impl RlpList {
    pub(crate) fn add(&mut self, item: &impl Encodable) {
        item.encode(&mut self.0);
    }

    /// Bytes as a string; `Vec<u8>` would be a list of numbers.
    pub(crate) fn add_bytes(&mut self, bytes: Vec<u8>) {
        Bytes::from(bytes).encode(&mut self.0);
    }

    /// Adds items that are encoded already.
    pub(crate) fn add_encoded(&mut self, items: &[u8]) {
        self.0.extend_from_slice(items);
    }

    /// The list with its header, after `prefix`, which is the type byte of an envelope.
    pub(crate) fn close(&self, prefix: Option<u8>) -> Vec<u8> {
        let header = Header { list: true, payload_length: self.0.len() };
        let mut out = Vec::with_capacity(1 + header.length() + self.0.len());
        out.extend(prefix);
        header.encode(&mut out);
        out.extend_from_slice(&self.0);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut inner = RlpList::default();
        inner.add(&7u64);
        let mut list = RlpList::default();
        list.add(&436u64);
        list.add_bytes(vec![0; 60]);
        list.add_encoded(&inner.close(None));
        let encoded = list.close(Some(2));
        assert_eq!(encoded[0], 2);
        let (items, count) = RlpItem::only(&encoded[1..]).unwrap().items::<3>().unwrap();
        assert_eq!((count, items[0].number(), items[1].payload), (3, Some(436), &[0; 60][..]));
        assert_eq!((items[2].is_list, items[2].whole), (true, &[0xc1, 7][..]));
        assert_eq!(RlpItem::only(&encoded[1..]).unwrap().items::<2>(), None, "one too many");
    }

    #[test]
    fn broken_lists() {
        for broken in [&[][..], &[0xc1], &[0xc0, 0], &[0xf8, 1, 1], &[0xff; 9], &[0xc2, 0xc5, 1]] {
            let items = RlpItem::only(broken).and_then(RlpItem::items::<17>);
            assert_eq!(items, None, "{broken:?}");
        }
        let number = |bytes| RlpItem::only(bytes).and_then(RlpItem::number);
        assert_eq!(number(&[0x80]), Some(0));
        assert_eq!(number(&[0x82, 1, 0]), Some(256));
        assert_eq!(number(&[0x82, 0, 1]), None, "a leading zero");
        assert_eq!(number(&[0x89, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None, "beyond 64 bits");
    }
}
