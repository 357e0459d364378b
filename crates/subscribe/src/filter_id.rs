//! The ids of filters that wellhead keeps.

use std::fmt;

use rand::Rng;

/// Bytes of an id: `0x` and 32 hex digits.
const ID_BYTES: usize = 34;
/// Digits of the tag.
const TAG_DIGITS: usize = 8;

/// The id of a filter: `0x`, eight digits that no upstream's tag may have, and 24 random ones.
///
/// The id of a filter that lives in an upstream begins with the tag of that upstream. A request
/// that names a filter is routed by these eight digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualFilterId([u8; ID_BYTES]);

impl VirtualFilterId {
    /// The tag: an upstream whose own tag is this number cannot have filters.
    pub(crate) const TAG: u32 = 0xf117_e200;

    /// Draws an id.
    pub fn draw(rng: &mut impl Rng) -> Self {
        let (high, low): (u64, u32) = (rng.random(), rng.random());
        let text = format!("0x{:08x}{high:016x}{low:08x}", Self::TAG);
        Self(text.as_bytes().try_into().expect("34 digits, by the format"))
    }

    /// Reads an id that a client sent; `None` if it is not one of these.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id: [u8; ID_BYTES] = text.as_bytes().try_into().ok()?;
        id[2..].make_ascii_lowercase();
        let digits = std::str::from_utf8(&id).ok()?.strip_prefix("0x")?;
        let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let tag = u32::from_str_radix(digits.get(..TAG_DIGITS)?, 16);
        (is_hex && tag == Ok(Self::TAG)).then_some(Self(id))
    }

    /// The text of the id, without quotes.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of hex digits")
    }
}

impl fmt::Display for VirtualFilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for VirtualFilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualFilterId({self})")
    }
}
