//! The ids of subscriptions, and of the filters that wellhead keeps: `0x` and 32 hex digits.

use std::fmt;

use rand::Rng;

/// Bytes of an id.
pub(crate) const ID_BYTES: usize = 34;
/// Bits of the last digits of an id, behind the first one and behind the tag.
const BEHIND_FIRST_DIGIT: u32 = 124;
const BEHIND_TAG: u32 = 96;

/// The id of a subscription, of which the first digit is not 0.
///
/// A leading zero would make it no quantity, which some clients parse it as; a fixed length lets a
/// notification be framed without measuring it anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId(u128);

impl SubscriptionId {
    /// Draws an id. It can be guessed only by chance.
    pub fn draw(rng: &mut impl Rng) -> Self {
        Self(rng.random_range(1 << BEHIND_FIRST_DIGIT..=u128::MAX))
    }

    /// Reads an id that a client sent; `None` where no subscription can have it. Digits may be
    /// upper case.
    pub fn parse(text: &str) -> Option<Self> {
        number_of(text).filter(|number| number >> BEHIND_FIRST_DIGIT > 0).map(Self)
    }
}

/// The id of a filter: eight digits that no upstream's tag may have, and 24 random ones.
///
/// The id of a filter that lives in an upstream begins with the tag of that upstream. A request
/// that names a filter is routed by these eight digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VirtualFilterId(u128);

impl VirtualFilterId {
    /// The tag: an upstream whose own tag is this number cannot have filters.
    const TAG: u128 = 0xf117_e200;

    /// Draws an id.
    pub fn draw(rng: &mut impl Rng) -> Self {
        Self(Self::TAG << BEHIND_TAG | rng.random_range(0..1 << BEHIND_TAG))
    }

    /// Reads an id that a client sent; `None` if it is not one of these. Digits may be upper case.
    pub fn parse(text: &str) -> Option<Self> {
        number_of(text).filter(|number| number >> BEHIND_TAG == Self::TAG).map(Self)
    }
}

fn number_of(id: &str) -> Option<u128> {
    let digits = id.strip_prefix("0x")?;
    // A number would be read with a sign, too.
    let are_digits = id.len() == ID_BYTES && digits.bytes().all(|it| it.is_ascii_hexdigit());
    u128::from_str_radix(digits, 16).ok().filter(|_| are_digits)
}

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#034x}", self.0)
    }
}

impl fmt::Display for VirtualFilterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#034x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn ids_are_long_and_do_not_begin_with_zero() {
        let mut rng = SmallRng::seed_from_u64(1);
        let ids: Vec<_> = (0..1000).map(|_| SubscriptionId::draw(&mut rng)).collect();
        for id in &ids {
            let text = id.to_string();
            assert_eq!((text.len(), &text[..2]), (ID_BYTES, "0x"));
            assert_ne!(&text[2..3], "0");
            assert_eq!(SubscriptionId::parse(&text), Some(*id));
        }
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 1000);
    }

    #[test]
    fn what_cannot_be_an_id_is_none() {
        let digits = "1".repeat(32);
        assert!(SubscriptionId::parse(&format!("0x{digits}")).is_some());
        assert_eq!(
            SubscriptionId::parse(&format!("0x{}", "aB".repeat(16))),
            SubscriptionId::parse(&format!("0x{}", "ab".repeat(16)))
        );
        for text in ["", "0x", "0x1", &digits, &format!("0x0{}", "1".repeat(31))] {
            assert_eq!(SubscriptionId::parse(text), None, "{text}");
        }
        assert_eq!(SubscriptionId::parse(&format!("0x{digits}1")), None);
        assert_eq!(SubscriptionId::parse(&format!("0X{digits}")), None);
        assert_eq!(SubscriptionId::parse(&format!("0x{}g", "1".repeat(31))), None);
    }
}
