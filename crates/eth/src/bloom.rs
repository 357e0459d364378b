//! The logs bloom of a header: 2,048 bits, of which each address and topic of a log sets three.
//!
//! A bloom shows that a name is in no log of the block. It never shows that one is: other names
//! may have set the three bits.

use wellhead_jsonrpc::raw;

use crate::hex;
use crate::transaction::keccak256;

/// Bytes of a bloom.
const BYTES: usize = 256;

/// The logs bloom of one header: 2,048 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bloom(pub [u8; BYTES]);

impl Bloom {
    /// A bloom in which no bit is set: the block holds no log.
    pub const EMPTY: Self = Self([0; BYTES]);

    /// Reads the raw JSON of a block or header object; `None` where it tells none.
    pub fn of_block(block: &[u8]) -> Option<Self> {
        Self::of_value(raw::field(block, "logsBloom")?)
    }

    /// Reads the raw JSON string of a `logsBloom`; `None` where it is not 256 bytes in hex.
    pub fn of_value(value: &[u8]) -> Option<Self> {
        let text = raw::string(value)?;
        // Nodes write `0x`; another prefix is not a bloom that we know.
        if !text.starts_with("0x") {
            return None;
        }
        hex::decode_array(&text).ok().map(Self)
    }

    /// Sets the bits of a name.
    pub fn add(&mut self, bits: BloomBits) {
        for bit in bits.0 {
            self.0[byte_of(bit)] |= 1 << (bit % 8);
        }
    }

    /// Sets the bits of another bloom.
    pub fn add_all(&mut self, other: &Self) {
        for (byte, more) in self.0.iter_mut().zip(other.0) {
            *byte |= more;
        }
    }

    /// Whether all bits of a name are set: a log of the block may have it.
    pub fn may_hold(&self, bits: BloomBits) -> bool {
        bits.0.iter().all(|bit| self.0[byte_of(*bit)] >> (bit % 8) & 1 == 1)
    }

    /// Whether each bit of this bloom is set in the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }

    /// Whether no bit is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many bits are set.
    pub fn bits_set(&self) -> u32 {
        self.0.iter().map(|byte| byte.count_ones()).sum()
    }
}

/// The lowest bit is the last byte's.
fn byte_of(bit: u16) -> usize {
    BYTES - 1 - usize::from(bit / 8)
}

/// The three bits that an address or topic sets in a bloom, hashed once for all headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BloomBits([u16; 3]);

impl BloomBits {
    /// The bits of the 20 bytes of an address or the 32 of a topic.
    pub fn of(name: &[u8]) -> Self {
        let hash = keccak256(name);
        Self([0, 2, 4].map(|at| u16::from_be_bytes([hash[at], hash[at + 1]]) % 2048))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_tells_its_bloom() {
        let check = |bloom: &str, first: Option<u8>| {
            let block = format!(r#"{{"number":"0x1","logsBloom":"{bloom}"}}"#);
            assert_eq!(Bloom::of_block(block.as_bytes()).map(|it| it.0[0]), first, "{bloom}");
        };
        check(&format!("0xaB{}", "0".repeat(510)), Some(0xab));
        check(&format!("0xaB{}", "0".repeat(508)), None);
        check(&format!("0xaB{}", "0".repeat(512)), None);
        check(&format!("ab{}", "0".repeat(512)), None);
        check(&format!("0xxy{}", "0".repeat(510)), None);
        assert_eq!(Bloom::of_block(br#"{"number":"0x1"}"#), None);
        assert_eq!(Bloom::of_block(br#"{"logsBloom":null}"#), None);
    }

    #[test]
    fn names_set_three_bits_at_the_places_that_ethereum_says() {
        // The bloom of a log of one address without topics, as `alloy-primitives` computes it.
        let address = [0x11; 20];
        let mut bloom = Bloom::EMPTY;
        assert!(!bloom.may_hold(BloomBits::of(&address)) && bloom.is_empty());
        bloom.add(BloomBits::of(&address));
        let reference =
            alloy_primitives::Bloom::from_iter([&alloy_primitives::Log::new_unchecked(
                address.into(),
                Vec::new(),
                Default::default(),
            )]);
        assert_eq!(bloom.0, reference.0.0);
        assert!(bloom.may_hold(BloomBits::of(&address)));
        assert!(!bloom.may_hold(BloomBits::of(&[0x12; 20])));
        assert!(bloom.bits_set() <= 3 && bloom.bits_set() > 0);
    }

    #[test]
    fn blooms_add_up() {
        let (mut both, mut one, mut other) = (Bloom::EMPTY, Bloom::EMPTY, Bloom::EMPTY);
        one.add(BloomBits::of(b"one"));
        other.add(BloomBits::of(b"other"));
        both.add_all(&one);
        both.add_all(&other);
        assert!(one.is_within(&both) && other.is_within(&both) && !both.is_within(&one));
        assert!(Bloom::EMPTY.is_within(&Bloom::EMPTY));
    }
}
