//! The bytes of one `eth_subscription` notification.
//!
//! All notifications of an event differ only in the subscription's id. Its length is fixed, so the
//! bytes before and behind it are shared by all subscribers, and a notification is written as
//! three slices without a copy.

use std::fmt;

use bytes::Bytes;
use rand::Rng;

/// What stands before the id.
const PREFIX: &[u8] = br#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":""#;
/// What stands between the id and the result.
const BETWEEN: &[u8] = br#"","result":"#;
/// What stands behind the result.
const END: &[u8] = b"}}";

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Bytes of an id: `0x` and 32 hex digits.
const ID_BYTES: usize = 34;

/// The id of a subscription: `0x` and 32 hex digits, of which the first is not 0.
///
/// A leading zero would make it no quantity, which some clients parse it as; a fixed length lets a
/// notification be framed without measuring it anew.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId([u8; ID_BYTES]);

impl SubscriptionId {
    /// Draws an id. It can be guessed only by chance: 124 random bits.
    pub fn draw(rng: &mut impl Rng) -> Self {
        let random: [u8; 16] = rng.random();
        let mut text = *b"0x00000000000000000000000000000000";
        for (pair, byte) in text[2..].chunks_exact_mut(2).zip(random) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        text[2] = DIGITS[usize::from(rng.random_range(1..16_u8))];
        Self(text)
    }

    /// Reads an id that a client sent; `None` where no subscription can have it. Digits may be
    /// upper case.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id: [u8; ID_BYTES] = text.as_bytes().try_into().ok()?;
        id[2..].make_ascii_lowercase();
        let is_id = id.starts_with(b"0x")
            && id[2] != b'0'
            && id[2..].iter().all(|digit| DIGITS.contains(digit));
        is_id.then_some(Self(id))
    }

    /// The text of the id, without quotes.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("an id is made of hex digits")
    }
}

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SubscriptionId({self})")
    }
}

/// One notification for any number of subscribers. Clones share their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// From the quote behind the id to the end.
    suffix: Bytes,
}

impl Notification {
    /// A notification with this result (raw JSON).
    pub fn new(result: &[u8]) -> Self {
        let mut suffix = Vec::with_capacity(BETWEEN.len() + result.len() + END.len());
        Self::write_suffix(&mut suffix, |out| out.extend_from_slice(result));
        Self { suffix: suffix.into() }
    }

    /// Appends what stands behind the id, with the result that `result` writes, so that many
    /// notifications can share one buffer. [`Notification::of_suffix`] takes it.
    pub(crate) fn write_suffix(out: &mut Vec<u8>, result: impl FnOnce(&mut Vec<u8>)) {
        out.extend_from_slice(BETWEEN);
        result(out);
        out.extend_from_slice(END);
    }

    /// The notification that has this behind its id.
    pub(crate) fn of_suffix(suffix: Bytes) -> Self {
        debug_assert!(suffix.starts_with(BETWEEN) && suffix.ends_with(END));
        Self { suffix }
    }

    /// How many bytes a notification has, whatever the id.
    pub fn len(&self) -> usize {
        PREFIX.len() + ID_BYTES + self.suffix.len()
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The part before the id, the same for all notifications.
    pub fn prefix() -> &'static [u8] {
        PREFIX
    }

    /// The part behind the id, shared by all subscribers.
    pub fn suffix(&self) -> &Bytes {
        &self.suffix
    }

    /// The result (raw JSON), sharing the notification's bytes.
    pub fn result(&self) -> Bytes {
        self.suffix.slice(BETWEEN.len()..self.suffix.len() - END.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn a_notification_is_what_geth_writes() {
        let id = SubscriptionId::parse("0x1234567890abcdef1234567890abcdef").expect("an id");
        let notification = Notification::new(br#"{"number":"0x1"}"#);
        let text = [PREFIX, &id.0, &notification.suffix()[..]].concat();
        assert_eq!(
            std::str::from_utf8(&text),
            Ok(concat!(
                r#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"#,
                r#""0x1234567890abcdef1234567890abcdef","result":{"number":"0x1"}}}"#,
            ))
        );
        assert_eq!(notification.len(), text.len());
        assert_eq!(notification.result(), br#"{"number":"0x1"}"#.as_slice());
        serde_json::from_slice::<serde_json::Value>(&text).expect("JSON");
    }

    #[test]
    fn ids_are_long_and_do_not_begin_with_zero() {
        let mut rng = SmallRng::seed_from_u64(1);
        let ids: Vec<_> = (0..1000).map(|_| SubscriptionId::draw(&mut rng)).collect();
        for id in &ids {
            assert_eq!((id.as_str().len(), &id.as_str()[..2]), (34, "0x"));
            assert_ne!(&id.as_str()[2..3], "0");
            assert_eq!(SubscriptionId::parse(id.as_str()), Some(*id));
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
