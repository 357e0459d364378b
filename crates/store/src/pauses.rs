//! What replicas tell each other of upstreams: that one named a pause, as with `Retry-After`.
//!
//! Only the messages: what a key names and what is made of a message is for the caller. They are
//! published on `wh:{cluster}:pauses` and kept nowhere: a replica that is not connected at that
//! moment does not hear of them, and learns by itself as it would without. A message has the time that
//! is left, so that the clocks of replicas need not agree.

use std::fmt;
use std::time::Duration;

use rand::rngs::SmallRng;
use tokio::sync::mpsc;
use wellhead_telemetry::SecretUrl;

use crate::NotRedis;
use crate::broadcast::{BroadcastBounds, BroadcastStatus, ChannelForm, ReplicaChannel};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseNotice {
    /// Which upstream, as the caller names it: no secret. At most 200 bytes.
    pub key: String,
    /// The method whose calls it is about; all calls without one. At most 100 bytes, no blanks.
    pub method: Option<String>,
    /// For how long nothing is to be sent, in whole milliseconds. At most an hour.
    pub left: Duration,
}

/// Messages about longer pauses are dropped.
const LEFT_MAX: Duration = Duration::from_secs(60 * 60);

/// The longest key and name of a method, in bytes.
const KEY_MAX: usize = 200;
const METHOD_MAX: usize = 100;

/// The longest message, in bytes: a sender, a number, a method and a key.
const MESSAGE_MAX: usize = 512;

/// In the place of a method: all calls.
const ALL: &str = "*";

/// Publishes; clones share it. The task ends with the last one.
#[derive(Clone)]
pub struct PauseChannel(ReplicaChannel);

impl PauseChannel {
    /// Begins to listen, in a task of this runtime. What others publish comes out of the receiver.
    ///
    /// `rng` spreads the attempts of replicas and names this one.
    pub fn start(
        url: &SecretUrl,
        bounds: BroadcastBounds,
        rng: SmallRng,
    ) -> Result<(Self, mpsc::Receiver<PauseNotice>), NotRedis> {
        let read = |_sender, body: &str| read(body).filter(|notice| notice.left <= LEFT_MAX);
        let form = ChannelForm { name: "pauses", message_max: MESSAGE_MAX, read };
        let (channel, received) = ReplicaChannel::open(url, form, bounds, rng)?;
        Ok((Self(channel), received))
    }

    /// Tells the others, if it is connected. Never waits; a notice with a longer text is dropped.
    pub fn publish(&self, notice: &PauseNotice) {
        match notice.is_well_formed() {
            true => self.0.publish(write(notice)),
            false => self.0.note_dropped(),
        }
    }

    /// How it is.
    pub fn status(&self) -> BroadcastStatus {
        self.0.status()
    }
}

impl fmt::Debug for PauseChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseChannel").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl PauseNotice {
    fn is_well_formed(&self) -> bool {
        let is_method = |method: &String| {
            (1..=METHOD_MAX).contains(&method.len()) && method != ALL && !method.contains(' ')
        };
        (1..=KEY_MAX).contains(&self.key.len()) && self.method.as_ref().is_none_or(is_method)
    }
}

/// `LEFT_MS METHOD KEY`.
fn write(notice: &PauseNotice) -> String {
    let (left, method) = (notice.left.as_millis(), notice.method.as_deref().unwrap_or(ALL));
    format!("{left} {method} {}", notice.key)
}

fn read(body: &str) -> Option<PauseNotice> {
    let mut words = body.splitn(3, ' ');
    let left = Duration::from_millis(words.next()?.parse().ok()?);
    let method = words.next().filter(|method| !method.is_empty())?;
    let method = (method != ALL).then(|| method.to_owned());
    let notice = PauseNotice { key: words.next()?.to_owned(), method, left };
    notice.is_well_formed().then_some(notice)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender's name and a blank.
    const SENDER_BYTES: usize = 17;

    #[test]
    fn what_is_written_is_read() {
        for method in [None, Some("eth_getLogs".to_owned()), Some("m".repeat(METHOD_MAX))] {
            let left = Duration::from_millis(120_000);
            let notice = PauseNotice { key: "main alchemy".repeat(16), method, left };
            let text = write(&notice);
            assert!(SENDER_BYTES + text.len() <= MESSAGE_MAX);
            assert_eq!(read(&text), Some(notice), "{text}");
        }
    }

    #[test]
    fn what_is_none_of_ours_is_none() {
        let long_key = format!("1 * {}", "k".repeat(KEY_MAX + 1));
        let long_method = format!("1 {} k", "m".repeat(METHOD_MAX + 1));
        for text in ["", "1", "1 *", "1 * ", "1  k", "-1 * k", "x * k", &long_key, &long_method] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
