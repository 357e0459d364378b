//! What replicas tell each other of upstreams: that one asked for a pause, or which rate was learnt.
//!
//! Only the messages: what a key names and what is made of a message is for the caller. They are
//! published on `wh:{cluster}:pauses` and kept nowhere: a replica that is not connected at that
//! moment does not hear of them, and learns by itself as it would without.

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
use crate::{AbortOnDrop, Clock, NotRedis};

/// What it is about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PauseKind {
    /// Nothing is to be sent until then.
    Pause,
    /// So many credits a second were learnt; until then this is worth knowing.
    Rate(f64),
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct PauseNotice {
    /// What it is about.
    pub kind: PauseKind,
    /// Which upstream or account, as the caller names it: no secret. At most 200 bytes.
    pub key: String,
    /// Since 1970, in whole milliseconds. At most [`PauseBounds::ahead_max`] ahead.
    pub until: Duration,
}

/// What a channel may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseBounds {
    /// What the replicas have in common. No braces.
    pub cluster: String,
    /// Messages that wait to be published, and that wait to be taken; further ones are dropped.
    pub waiting_max: usize,
    /// Messages about a later time are dropped.
    pub ahead_max: Duration,
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
            ahead_max: Duration::from_secs(24 * 60 * 60),
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
    /// Messages that are none of ours, or about a time too far ahead.
    pub malformed: u64,
}

/// The longest key, in bytes.
const KEY_MAX: usize = 200;

/// The longest message, in bytes: a sender, a kind with two numbers, a key.
const MESSAGE_MAX: usize = 512;

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
    /// `unix` tells seconds since 1970; `rng` spreads the attempts of replicas and names this one.
    pub fn start(
        url: &SecretUrl,
        bounds: PauseBounds,
        unix: Clock,
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
            unix,
            rng,
            sender,
            to_publish,
            incoming,
        };
        let closer = Arc::new(AbortOnDrop(tokio::spawn(task.run()).abort_handle()));
        Ok((Self { core, outgoing, _closer: closer }, received))
    }

    /// Tells the others, if it is connected. Never waits; a key that is too long is dropped.
    pub fn publish(&self, notice: PauseNotice) {
        let is_taken = self.core.is_here.load(Relaxed)
            && notice.key.len() <= KEY_MAX
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
    unix: Clock,
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
        let latest = Duration::from_secs((self.unix)()).saturating_add(self.bounds.ahead_max);
        match read(message) {
            Some((sender, _)) if sender == self.sender => {}
            Some((_, notice)) if notice.until <= latest => {
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

/// `SENDER pause UNTIL_MS KEY` or `SENDER rate UNTIL_MS PER_SECOND KEY`.
fn write(sender: &str, notice: &PauseNotice) -> String {
    let (until, key) = (notice.until.as_millis(), &notice.key);
    match notice.kind {
        PauseKind::Pause => format!("{sender} pause {until} {key}"),
        PauseKind::Rate(rate) => format!("{sender} rate {until} {rate} {key}"),
    }
}

/// The sender and what it says.
fn read(message: &[u8]) -> Option<(&str, PauseNotice)> {
    let text = std::str::from_utf8(message).ok()?;
    let (sender, text) = text.split_once(' ')?;
    let (kind, text) = text.split_once(' ')?;
    let (until, mut key) = text.split_once(' ')?;
    let until = Duration::from_millis(until.parse().ok()?);
    let kind = match kind {
        "pause" => PauseKind::Pause,
        "rate" => {
            let (rate, rest) = key.split_once(' ')?;
            key = rest;
            PauseKind::Rate(rate.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0)?)
        }
        _ => return None,
    };
    let is_key = !key.is_empty() && key.len() <= KEY_MAX;
    is_key.then(|| (sender, PauseNotice { kind, key: key.to_owned(), until }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for kind in [PauseKind::Pause, PauseKind::Rate(12.5), PauseKind::Rate(1e9)] {
            let until = Duration::from_millis(1_800_000_000_123);
            let notice = PauseNotice { kind, key: "alchemy 7f 3a".to_owned(), until };
            let text = write("00ff", &notice);
            assert!(text.len() <= MESSAGE_MAX);
            assert_eq!(read(text.as_bytes()), Some(("00ff", notice)), "{text}");
        }
    }

    #[test]
    fn what_is_none_of_ours_is_none() {
        let long = format!("a pause 1 {}", "k".repeat(KEY_MAX + 1));
        for text in [
            "",
            "a",
            "a pause",
            "a pause 1",
            "a pause 1 ",
            "a pause -1 k",
            "a pause x k",
            "a rate 1 k",
            "a rate 1 NaN k",
            "a rate 1 -5 k",
            "a rate 1 inf k",
            "a other 1 k",
            &long,
        ] {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(b"\xff pause 1 k"), None);
    }
}
