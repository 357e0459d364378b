//! The names of things on a chain: numbers and hashes that cannot be mixed up.
//!
//! People write numbers in decimal, JSON-RPC in hexadecimal: `Display` is for
//! people, [`BlockNumber::hex`] for the wire, and `FromStr` reads both.

use std::fmt;
use std::str::FromStr;

use crate::hex::{self, HexError};

/// Why a text is no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither a decimal nor a `0x` hex number below 2^64")]
pub struct NumberError {
    text: String,
}

fn number(text: &str) -> Result<u64, NumberError> {
    match hex::strip_prefix(text) {
        Some(digits) => hex_number(digits),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
    .ok_or_else(|| NumberError { text: text.chars().take(80).collect() })
}

/// A number in hex digits without prefix. Leading zeros are accepted: some
/// upstreams take them, and those that do not will say so themselves.
pub(crate) fn hex_number(digits: &str) -> Option<u64> {
    // `from_str_radix` would take a sign.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Which chain: 1 is Ethereum's main chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChainId(pub u64);

/// The height of a block. Two blocks may share it until one is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockNumber(pub u64);

/// A block's place and name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NumberedBlock {
    /// Its height.
    pub number: BlockNumber,
    /// Its hash.
    pub hash: BlockHash,
}

impl fmt::Display for NumberedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.hash)
    }
}

impl ChainId {
    /// The network id, which `net_version` tells: nearly always the same number.
    pub fn network_id(self) -> u64 {
        let other = NETWORK_IDS.iter().find(|(chain, _)| *chain == self.0);
        other.map_or(self.0, |(_, network)| *network)
    }
}

/// The chains whose network id is another number: chain id, network id.
const NETWORK_IDS: [(u64, u64); 2] = [
    // Ethereum Classic kept the network id when it got a chain id of its own.
    (61, 1),
    // Its test chain, Mordor.
    (63, 7),
];

macro_rules! number_text {
    ($name:ident) => {
        impl $name {
            /// As a JSON-RPC quantity: `0x1b4`.
            pub fn hex(self) -> String {
                hex::quantity(self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = NumberError;

            fn from_str(text: &str) -> Result<Self, NumberError> {
                number(text).map(Self)
            }
        }
    };
}

number_text!(ChainId);
number_text!(BlockNumber);

/// The hash that names one block for ever, canonical or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub [u8; 32]);

/// The hash that names one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionHash(pub [u8; 32]);

macro_rules! hash_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex::encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = HexError;

            fn from_str(text: &str) -> Result<Self, HexError> {
                hex::decode_array(text).map(Self)
            }
        }
    };
}

hash_text!(BlockHash);
hash_text!(TransactionHash);

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn reads(text: &str, want: Option<u64>) {
        assert_eq!(text.parse::<BlockNumber>().ok(), want.map(BlockNumber), "{text:?}");
        assert_eq!(text.parse::<ChainId>().ok(), want.map(ChainId), "{text:?}");
    }

    #[test]
    fn decimal_and_hex_are_read() {
        reads("0", Some(0));
        reads("20000000", Some(20_000_000));
        reads("0x1b4", Some(436));
        reads("0X1B4", Some(436));
        reads("0x0001", Some(1));
        reads("18446744073709551615", Some(u64::MAX));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "0x", "-1", "+1", "0x+1", "1e3", " 1", "0xg", "18446744073709551616"] {
            reads(text, None);
        }
    }

    #[test]
    fn a_refusal_quotes_little() {
        let error = "9".repeat(500).parse::<ChainId>().unwrap_err().to_string();
        assert!(error.len() < 160, "{error}");
    }

    #[test]
    fn people_read_decimal_and_the_wire_hex() {
        assert_eq!(BlockNumber(436).to_string(), "436");
        assert_eq!(BlockNumber(436).hex(), "0x1b4");
        assert_eq!(ChainId(1).hex(), "0x1");
    }

    #[test]
    fn hashes_are_read_and_written() {
        let text = format!("0x{}", "0aB1".repeat(16));
        let hash: BlockHash = text.parse().unwrap();
        assert_eq!(hash.to_string(), text.to_ascii_lowercase());
        assert_eq!("0x12".parse::<BlockHash>(), Err(HexError::WrongLength { want: 32, got: 1 }));
        assert!(format!("{hash:?}").starts_with("BlockHash(0x0ab1"));
    }
}
