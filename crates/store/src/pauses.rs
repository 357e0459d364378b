//! What replicas tell each other of upstreams: that one named a pause, as with `Retry-After`.
//!
//! Only the messages: what a key names and what is made of a message is for the caller. They are
//! published on `wh:{cluster}:pauses` and kept nowhere: a replica that is not connected at that
//! moment does not hear of them, and learns by itself as it would without. A message has the time that
//! is left, so that the clocks of replicas need not agree.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use redis::{Client, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};
use tracing::{info, warn};
use wellhead_telemetry::SecretUrl;

use crate::reconnect::Reconnect;
use crate::shared::link;
use crate::subscription::ChannelSubscription;
use crate::{AbortOnDrop, NotRedis};

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseNotice {
    /// Which upstream, as the caller names it: no secret. At most 200 bytes.
    pub key: String,
    /// The method whose calls it is about; all calls without one. At most 100 bytes, no blanks.
    pub method: Option<String>,
    /// For how long nothing is to be sent, in whole milliseconds. At most [`PauseBounds::left_max`].
    pub left: Duration,
}

/// What a channel may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseBounds {
    /// What the replicas have in common. No braces.
    pub cluster: String,
    /// Messages that wait to be published, and that wait to be taken; further ones are dropped.
    pub waiting_max: usize,
    /// Messages about longer pauses are dropped.
    pub left_max: Duration,
    /// How long connecting and each answer may take.
    pub answer_within: Duration,
    /// How often the connection is looked at.
    pub ping_every: Duration,
    /// The pause after the first failure to connect; it doubles with each.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for PauseBounds {
    fn default() -> Self {
        Self {
            cluster: "wellhead".to_owned(),
            waiting_max: 1024,
            left_max: Duration::from_secs(60 * 60),
            answer_within: Duration::from_secs(1),
            ping_every: Duration::from_secs(1),
            pause_min: Duration::from_millis(100),
            pause_max: Duration::from_secs(10),
        }
    }
}

/// What a channel did so far and how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PauseStatus {
    /// Connected and subscribed.
    pub is_here: bool,
    /// Messages published.
    pub published: u64,
    /// Messages of other replicas that were handed on.
    pub received: u64,
    /// Messages lost: not connected, too many waited, or taken too slowly.
    pub dropped: u64,
    /// Messages of another form, or about a pause that is too long.
    pub malformed: u64,
}

/// The longest key and name of a method, in bytes.
const KEY_MAX: usize = 200;
const METHOD_MAX: usize = 100;

/// The longest message, in bytes: a sender, a number, a method and a key.
const MESSAGE_MAX: usize = 512;

/// In the place of a method: all calls.
const ALL: &str = "*";

/// Publishes; clones share it. The task ends with the last one.
#[derive(Clone)]
pub struct PauseChannel {
    core: Arc<PauseCore>,
    outgoing: mpsc::Sender<PauseNotice>,
    _closer: Arc<AbortOnDrop>,
}

#[derive(Default)]
struct PauseCore {
    is_here: AtomicBool,
    published: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    malformed: AtomicU64,
}

impl PauseChannel {
    /// Begins to listen, in a task of this runtime. What others publish comes out of the receiver.
    ///
    /// `rng` spreads the attempts of replicas and names this one.
    pub fn start(
        url: &SecretUrl,
        bounds: PauseBounds,
        mut rng: SmallRng,
    ) -> Result<(Self, mpsc::Receiver<PauseNotice>), NotRedis> {
        let client = link::subscriber(url).map_err(|_| NotRedis)?;
        let (outgoing, to_publish) = mpsc::channel(bounds.waiting_max.max(1));
        let (incoming, received) = mpsc::channel(bounds.waiting_max.max(1));
        let core = Arc::new(PauseCore::default());
        let sender = format!("{:016x}", rng.random::<u64>());
        let place = url.clone();
        let task = PauseTask {
            core: Arc::clone(&core),
            client,
            place,
            bounds,
            rng,
            sender,
            to_publish,
            incoming,
        };
        let closer = Arc::new(AbortOnDrop(tokio::spawn(task.run()).abort_handle()));
        Ok((Self { core, outgoing, _closer: closer }, received))
    }

    /// Tells the others, if it is connected. Never waits; a notice with a longer text is dropped.
    pub fn publish(&self, notice: PauseNotice) {
        let is_taken = self.core.is_here.load(Relaxed)
            && notice.is_well_formed()
            && self.outgoing.try_send(notice).is_ok();
        if !is_taken {
            self.core.dropped.fetch_add(1, Relaxed);
        }
    }

    /// How it is.
    pub fn status(&self) -> PauseStatus {
        let core = &self.core;
        PauseStatus {
            is_here: core.is_here.load(Relaxed),
            published: core.published.load(Relaxed),
            received: core.received.load(Relaxed),
            dropped: core.dropped.load(Relaxed),
            malformed: core.malformed.load(Relaxed),
        }
    }
}

impl fmt::Debug for PauseChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PauseChannel").field("status", &self.status()).finish_non_exhaustive()
    }
}

struct PauseTask {
    core: Arc<PauseCore>,
    client: Client,
    /// Prints without its secrets.
    place: SecretUrl,
    bounds: PauseBounds,
    rng: SmallRng,
    sender: String,
    to_publish: mpsc::Receiver<PauseNotice>,
    incoming: mpsc::Sender<PauseNotice>,
}

impl PauseTask {
    async fn run(mut self) {
        let mut reconnect = Reconnect::new(self.bounds.pause_min, self.bounds.pause_max);
        loop {
            let within = self.bounds.answer_within;
            let waiting_max = self.bounds.waiting_max;
            let channel = self.channel();
            let opened =
                ChannelSubscription::open(&self.client, &channel, within, waiting_max, MESSAGE_MAX);
            let reason = match opened.await {
                Ok(mut subscription) => {
                    self.core.is_here.store(true, Relaxed);
                    info!(redis = %self.place, "pauses of upstreams are shared");
                    let since = Instant::now();
                    let reason = self.serve(&mut subscription).await;
                    reconnect.note_end(since);
                    self.core.is_here.store(false, Relaxed);
                    reason
                }
                Err(reason) => reason,
            };
            if reconnect.take_log() {
                warn!(redis = %self.place, reason, "pauses of upstreams are not shared: each replica learns its own");
            }
            reconnect.pause(&mut self.rng).await;
        }
    }

    /// Until the connection is over; returns why.
    async fn serve(&mut self, subscription: &mut ChannelSubscription) -> &'static str {
        let mut pings = interval(self.bounds.ping_every);
        loop {
            let command = tokio::select! {
                message = subscription.messages.recv() => {
                    let Some(message) = message else { return "the connection broke" };
                    self.hand_on(&message);
                    continue;
                }
                notice = self.to_publish.recv() => {
                    let Some(notice) = notice else { return "it is not used any more" };
                    let mut publish = redis::cmd("PUBLISH");
                    publish.arg(self.channel()).arg(write(&self.sender, &notice));
                    publish
                }
                _ = pings.tick() => {
                    if subscription.take_lost() {
                        self.core.dropped.fetch_add(1, Relaxed);
                    }
                    redis::cmd("PING")
                }
            };
            let sent = subscription.connection.send_packed_command(&command);
            match timeout(self.bounds.answer_within, sent).await {
                Ok(Ok(Value::Int(_))) => {
                    self.core.published.fetch_add(1, Relaxed);
                }
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return "it answers with errors",
                Err(_) => return "it is slow or silent",
            }
        }
    }

    fn hand_on(&self, message: &[u8]) {
        match read(message) {
            Some((sender, _)) if sender == self.sender => {}
            Some((_, notice)) if notice.left <= self.bounds.left_max => {
                let taken = self.incoming.try_send(notice).is_ok();
                let count = if taken { &self.core.received } else { &self.core.dropped };
                count.fetch_add(1, Relaxed);
            }
            _ => {
                self.core.malformed.fetch_add(1, Relaxed);
            }
        }
    }

    fn channel(&self) -> String {
        format!("wh:{{{}}}:pauses", self.bounds.cluster)
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

/// `SENDER LEFT_MS METHOD KEY`.
fn write(sender: &str, notice: &PauseNotice) -> String {
    let (left, method) = (notice.left.as_millis(), notice.method.as_deref().unwrap_or(ALL));
    format!("{sender} {left} {method} {}", notice.key)
}

/// The sender and what it says.
fn read(message: &[u8]) -> Option<(&str, PauseNotice)> {
    let text = std::str::from_utf8(message).ok()?;
    let mut words = text.splitn(4, ' ');
    let (sender, left) = (words.next()?, words.next()?);
    let left = Duration::from_millis(left.parse().ok()?);
    let method = words.next().filter(|method| !method.is_empty())?;
    let method = (method != ALL).then(|| method.to_owned());
    let notice = PauseNotice { key: words.next()?.to_owned(), method, left };
    notice.is_well_formed().then_some((sender, notice))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for method in [None, Some("eth_getLogs".to_owned()), Some("m".repeat(METHOD_MAX))] {
            let left = Duration::from_millis(120_000);
            let notice = PauseNotice { key: "main alchemy".repeat(16), method, left };
            let text = write("00ff00ff00ff00ff", &notice);
            assert!(text.len() <= MESSAGE_MAX);
            assert_eq!(read(text.as_bytes()), Some(("00ff00ff00ff00ff", notice)), "{text}");
        }
    }

    #[test]
    fn what_is_none_of_ours_is_none() {
        let long_key = format!("a 1 * {}", "k".repeat(KEY_MAX + 1));
        let long_method = format!("a 1 {} k", "m".repeat(METHOD_MAX + 1));
        for text in [
            "",
            "a",
            "a 1",
            "a 1 *",
            "a 1 * ",
            "a 1  k",
            "a -1 * k",
            "a x * k",
            &long_key,
            &long_method,
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"\xff 1 * k"), None);
    }
}
