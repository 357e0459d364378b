//! What crosses one WebSocket connection of a subscriber, as the client reads it.
//!
//! It is read when it crosses, by a reader of its own: what is not written as a notification has to be is
//! [`Notice::Malformed`], and `protocol` says so.

use std::time::Duration;

use alloy_primitives::B256;
use serde::Deserialize;
use serde_json::value::RawValue;

/// One connection, in the order of what crossed it.
#[derive(Debug, Clone)]
pub struct Session {
    /// Whose.
    pub subscriber: usize,
    /// To which chain.
    pub chain: usize,
    /// When it was opened.
    pub opened: Duration,
    /// When it ended, and how.
    pub closed: Option<(Duration, SessionEnd)>,
    /// What crossed it.
    pub crossed: Vec<(Duration, Crossing)>,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionEnd {
    /// The client left.
    Left,
    /// Closed with 1008: the client is too slow.
    TooSlow,
    /// Closed with 1013: blocks were missed.
    Resync,
}

/// Something that crossed a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crossing {
    /// The client sent a call under this id.
    Asked(u64, SessionCall),
    /// It was answered.
    Answered(u64, Result<String, String>),
    /// A notification came.
    Told(Notice),
    /// The client reads nothing from now on.
    Stalled,
    /// It reads again.
    Resumed,
}

/// What a subscriber calls for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionCall {
    /// A subscription to `newHeads`.
    Heads,
    /// A subscription to the logs that match this filter object.
    Logs(String),
    /// A subscription to the transactions that enter pools.
    Pending(PendingForm),
    /// The end of a subscription.
    Unsubscribe(String),
    /// Something that has to do with a filter: the method and the params.
    Filter(&'static str, String),
}

/// How pending transactions are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingForm {
    /// Their hashes.
    Hashes,
    /// All of each.
    Whole,
}

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A block is the newest.
    Head(String, HeadNotice),
    /// A log is there, or no longer.
    Log(String, LogNotice),
    /// A transaction of this hash waits for a block.
    Pending(String, B256),
    /// Anything else.
    Malformed(String),
}

/// A head as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadNotice {
    /// Its height.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// The hash of the block before it.
    pub parent: B256,
    /// All of it.
    pub body: String,
}

/// A log as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogNotice {
    /// The height of its block.
    pub number: u64,
    /// The hash of its block.
    pub hash: B256,
    /// Its place in the block.
    pub index: u64,
    /// It is taken back.
    pub is_removed: bool,
    /// All of it.
    pub body: String,
}

impl Notice {
    /// Reads a message that is no answer.
    pub fn read(message: &[u8]) -> Self {
        let malformed = || Self::Malformed(String::from_utf8_lossy(message).into_owned());
        let Ok(notification) = serde_json::from_slice::<Notification<'_>>(message) else {
            return malformed();
        };
        if notification.jsonrpc != "2.0" || notification.method != "eth_subscription" {
            return malformed();
        }
        let NotificationParams { subscription, result } = notification.params;
        let body = result.get().to_owned();
        let of = match serde_json::from_str::<Told>(result.get()) {
            Ok(Told::Head { number, hash, parent_hash }) => {
                let head = quantity(&number).map(|number| HeadNotice {
                    number,
                    hash,
                    parent: parent_hash,
                    body,
                });
                head.map(|head| Self::Head(subscription, head))
            }
            Ok(Told::Log(log)) => log.notice(body).map(|log| Self::Log(subscription, log)),
            Ok(Told::Hash(hash) | Told::Transaction { hash }) => {
                Some(Self::Pending(subscription, hash))
            }
            Err(_) => None,
        };
        of.unwrap_or_else(malformed)
    }

    /// The subscription that it is for.
    pub fn subscription(&self) -> Option<&str> {
        match self {
            Self::Head(subscription, _)
            | Self::Log(subscription, _)
            | Self::Pending(subscription, _) => Some(subscription),
            Self::Malformed(_) => None,
        }
    }
}

/// A notification has these members and no other one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Notification<'a> {
    jsonrpc: String,
    method: String,
    #[serde(borrow)]
    params: NotificationParams<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotificationParams<'a> {
    subscription: String,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// What tells a head from a log, and both from a transaction.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Told {
    Log(ToldLog),
    #[serde(rename_all = "camelCase")]
    Head {
        number: String,
        hash: B256,
        parent_hash: B256,
    },
    Hash(B256),
    Transaction {
        hash: B256,
    },
}

/// The place of a log, and whether it is taken back.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToldLog {
    block_number: String,
    block_hash: B256,
    log_index: String,
    removed: bool,
}

impl ToldLog {
    fn notice(self, body: String) -> Option<LogNotice> {
        let (number, index) = quantity(&self.block_number).zip(quantity(&self.log_index))?;
        let (hash, is_removed) = (self.block_hash, self.removed);
        Some(LogNotice { number, hash, index, is_removed, body })
    }
}

impl LogNotice {
    /// Reads a log; `None` for anything else.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str::<ToldLog>(text).ok()?.notice(text.to_owned())
    }
}

fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = r#"{"number":"0x1f","hash":"0x0101010101010101010101010101010101010101010101010101010101010101","parentHash":"0x0202020202020202020202020202020202020202020202020202020202020202"}"#;
    const LOG: &str = r#"{"blockNumber":"0x1f","blockHash":"0x0101010101010101010101010101010101010101010101010101010101010101","logIndex":"0x2","removed":true}"#;

    fn told(result: &str) -> String {
        let params = format!(r#"{{"subscription":"0x9","result":{result}}}"#);
        format!(r#"{{"jsonrpc":"2.0","method":"eth_subscription","params":{params}}}"#)
    }

    #[test]
    fn notifications_are_read() {
        let head = Notice::read(told(HEAD).as_bytes());
        let Notice::Head(id, head) = head else { panic!("{head:?}") };
        assert_eq!((id.as_str(), head.number, head.hash), ("0x9", 31, B256::repeat_byte(1)));
        assert_eq!((head.parent, head.body.as_str()), (B256::repeat_byte(2), HEAD));
        let log = Notice::read(told(LOG).as_bytes());
        let Notice::Log(_, log) = log else { panic!("{log:?}") };
        assert_eq!((log.number, log.index, log.is_removed), (31, 2, true));
        let hash = B256::repeat_byte(3);
        for pending in [format!("\"{hash}\""), format!(r#"{{"hash":"{hash}","nonce":"0x1"}}"#)] {
            let told = Notice::read(told(&pending).as_bytes());
            assert_eq!(told, Notice::Pending("0x9".to_owned(), hash));
        }
    }

    #[test]
    fn what_is_no_notification_is_malformed() {
        let with_id = told(HEAD).replacen('{', r#"{"id":1,"#, 1);
        let other = told(HEAD).replace("eth_subscription", "eth_subscribe");
        for message in [with_id, other, told("{}"), "{}".to_owned(), String::new()] {
            assert!(matches!(Notice::read(message.as_bytes()), Notice::Malformed(_)), "{message}");
        }
    }
}
