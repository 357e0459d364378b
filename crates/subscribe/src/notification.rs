//! The bytes of one `eth_subscription` notification.
//!
//! All notifications of an event differ only in the subscription's id. Its length is fixed, so the
//! bytes before and behind it are shared by all subscribers, and a notification is written as
//! three slices without a copy.

use bytes::Bytes;

use crate::id::ID_BYTES;

/// What stands before the id.
const PREFIX: &[u8] = br#"{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":""#;
/// What stands between the id and the result.
const BETWEEN: &[u8] = br#"","result":"#;
/// What stands behind the result.
const END: &[u8] = b"}}";

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
    #[expect(
        clippy::len_without_is_empty,
        reason = "there is always what stands around the result"
    )]
    pub fn len(&self) -> usize {
        PREFIX.len() + ID_BYTES + self.suffix.len()
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
    use super::*;
    use crate::id::SubscriptionId;

    #[test]
    fn a_notification_is_what_geth_writes() {
        let id = SubscriptionId::parse("0x1234567890abcdef1234567890abcdef").expect("an id");
        let notification = Notification::new(br#"{"number":"0x1"}"#);
        let text = [PREFIX, id.to_string().as_bytes(), &notification.suffix()[..]].concat();
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
}
