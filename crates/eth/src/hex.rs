//! Hexadecimal as JSON-RPC writes it: always behind `0x`.
//!
//! Quantities (`0x1b4`, no leading zeros) and data (`0x00ff`, two digits a
//! byte) are different things; [`quantity`] writes the former, [`encode`] the
//! latter. Looking into JSON is done in `wellhead_jsonrpc::raw`.

use alloy_primitives::hex::{self, FromHexError};

/// Why a string is not hexadecimal data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HexError {
    /// It does not begin with `0x`.
    #[error("hex data must begin with `0x`")]
    NoPrefix,
    /// An odd number of digits cannot be whole bytes.
    #[error("hex data needs two digits a byte, the last has one")]
    OddLength,
    /// The byte at this offset is not a hexadecimal digit.
    #[error("not a hex digit at offset {at}")]
    NotADigit {
        /// Offset into the string, the prefix included.
        at: usize,
    },
    /// The data has another length than asked for.
    #[error("expected {want} bytes, found {got}")]
    WrongLength {
        /// Bytes asked for.
        want: usize,
        /// Bytes found.
        got: usize,
    },
}

/// `0x` and two lower-case digits a byte.
pub fn encode(bytes: &[u8]) -> String {
    hex::encode_prefixed(bytes)
}

/// A number as a JSON-RPC quantity: `0x0`, `0x1b4`.
pub fn quantity(number: u64) -> String {
    format!("{number:#x}")
}

/// The bytes of `0x`-prefixed data; upper and lower case are the same.
pub fn decode(text: &str) -> Result<Vec<u8>, HexError> {
    let digits = digits(text)?;
    let mut bytes = vec![0; digits.len() / 2];
    fill(digits, &mut bytes)?;
    Ok(bytes)
}

/// Like [`decode`], for data whose length is known; nothing is allocated.
pub fn decode_array<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    let digits = digits(text)?;
    if digits.len() != N * 2 {
        return Err(HexError::WrongLength { want: N, got: digits.len() / 2 });
    }
    let mut bytes = [0; N];
    fill(digits, &mut bytes)?;
    Ok(bytes)
}

/// What follows the prefix. `0X` is accepted, as geth does.
pub(crate) fn strip_prefix(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

fn digits(text: &str) -> Result<&[u8], HexError> {
    let digits = strip_prefix(text).ok_or(HexError::NoPrefix)?.as_bytes();
    if digits.len().is_multiple_of(2) { Ok(digits) } else { Err(HexError::OddLength) }
}

fn fill(digits: &[u8], bytes: &mut [u8]) -> Result<(), HexError> {
    match hex::decode_to_slice(digits, bytes) {
        // The decoder passes over another prefix.
        _ if matches!(digits, [b'0', b'x' | b'X', ..]) => Err(HexError::NotADigit { at: 3 }),
        Ok(()) => Ok(()),
        Err(FromHexError::InvalidHexCharacter { index, .. }) => {
            Err(HexError::NotADigit { at: 2 + index })
        }
        // The lengths were compared before.
        Err(FromHexError::OddLength | FromHexError::InvalidStringLength) => {
            Err(HexError::OddLength)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn refused(text: &str, error: HexError) {
        assert_eq!(decode(text), Err(error), "{text:?}");
    }

    #[test]
    fn data_is_read() {
        assert_eq!(decode("0x"), Ok(vec![]));
        assert_eq!(decode("0x00fF"), Ok(vec![0, 255]));
        assert_eq!(decode("0X10"), Ok(vec![16]));
        assert_eq!(decode_array("0x0102"), Ok([1, 2]));
    }

    #[test]
    fn bad_data_is_refused() {
        refused("", HexError::NoPrefix);
        refused("00", HexError::NoPrefix);
        refused("0x0", HexError::OddLength);
        refused("0x0g", HexError::NotADigit { at: 3 });
        refused("0xg0", HexError::NotADigit { at: 2 });
        refused("0xéé", HexError::NotADigit { at: 2 });
        refused("0x0x12", HexError::NotADigit { at: 3 });
        refused("0x0X12", HexError::NotADigit { at: 3 });
        assert_eq!(decode_array::<2>("0x01"), Err(HexError::WrongLength { want: 2, got: 1 }));
    }

    #[test]
    fn quantities_have_no_leading_zeros() {
        for (number, text) in [(0, "0x0"), (436, "0x1b4"), (u64::MAX, "0xffffffffffffffff")] {
            assert_eq!(quantity(number), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_survived(text: String) {
            let _ = decode_array::<4>(&text);
            if let Ok(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes)[2..].to_owned(), text[2..].to_ascii_lowercase());
            }
        }
    }
}
