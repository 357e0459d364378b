//! Messages among replicas: what one publishes, the others that are connected at that moment receive.
//!
//! Nothing is kept in the store. A message has the name of its sender before it, so that a replica does not
//! receive its own. What a message means is for the opener of the channel: [`crate::PauseChannel`],
//! [`crate::ReplicaMessage`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use redis::{Client, Pipeline, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, interval, timeout};
use tracing::{info, warn};
use wellhead_telemetry::SecretUrl;

use crate::reconnect::{self, KeptConnection, LinkEnd, Reconnect};
use crate::shared::link;
use crate::subscription::ChannelSubscription;
use crate::{AbortOnDrop, NotRedis};

/// Messages that are published in one exchange with the store, at most.
const PUBLISHED_AT_ONCE: usize = 64;

/// The name of a sender, and a blank.
const SENDER_BYTES: usize = 17;

/// What a channel may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BroadcastBounds {
    /// What the replicas have in common. No braces.
    pub cluster: String,
    /// Messages that wait to be published, and that wait to be taken; further ones are dropped.
    pub waiting_max: usize,
    /// How long connecting and each answer may take.
    pub answer_within: Duration,
    /// How often the connection is looked at.
    pub ping_every: Duration,
    /// The pause after the first failure to connect; it doubles with each.
    pub pause_min: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for BroadcastBounds {
    fn default() -> Self {
        Self {
            cluster: "wellhead".to_owned(),
            waiting_max: 1024,
            answer_within: Duration::from_secs(1),
            ping_every: Duration::from_secs(1),
            pause_min: Duration::from_millis(100),
            // While the store is away each replica polls for itself, which costs more than an attempt.
            pause_max: Duration::from_secs(2),
        }
    }
}

/// What a channel did so far and how it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BroadcastStatus {
    /// Connected and subscribed.
    pub is_here: bool,
    /// Messages published.
    pub published: u64,
    /// Messages of other replicas that were handed on.
    pub received: u64,
    /// Messages lost: not connected, too many waited, or taken too slowly.
    pub dropped: u64,
    /// Messages of another form, or that say what is not believed.
    pub malformed: u64,
}

/// A replica's name on one channel. Drawn anew at each start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u64);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What all messages of a channel have in common.
pub(crate) struct ChannelForm<T> {
    /// A part of the channel's name in the store.
    pub(crate) name: &'static str,
    /// Longer messages are lost, in bytes, the sender's name included.
    pub(crate) message_max: usize,
    /// Reads a message; `None`: it is malformed.
    pub(crate) read: fn(ReplicaId, &str) -> Option<T>,
}

/// Publishes; clones share it. The task ends with the last one.
#[derive(Clone)]
pub struct ReplicaChannel {
    core: Arc<BroadcastCore>,
    outgoing: mpsc::Sender<OutgoingMessage>,
    id: ReplicaId,
    /// Longer bodies are not sent.
    body_max: usize,
    _closer: Arc<AbortOnDrop>,
}

#[derive(Default)]
struct BroadcastCore {
    is_here: watch::Sender<bool>,
    published: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
    malformed: AtomicU64,
}

struct OutgoingMessage {
    body: String,
    /// Is told when the store has passed it on, and dropped where that is not known.
    done: Option<oneshot::Sender<()>>,
}

impl ReplicaChannel {
    /// Begins to listen, in a task of this runtime. What others publish comes out of the receiver.
    ///
    /// `rng` spreads the attempts of replicas and names this one.
    pub(crate) fn open<T: Send + 'static>(
        url: &SecretUrl,
        form: ChannelForm<T>,
        bounds: BroadcastBounds,
        mut rng: SmallRng,
    ) -> Result<(Self, mpsc::Receiver<T>), NotRedis> {
        let client = link::subscriber(url).map_err(|_| NotRedis)?;
        let (outgoing, to_publish) = mpsc::channel(bounds.waiting_max.max(1));
        let (incoming, received) = mpsc::channel(bounds.waiting_max.max(1));
        let body_max = form.message_max.saturating_sub(SENDER_BYTES);
        let core = Arc::new(BroadcastCore::default());
        let id = ReplicaId(rng.random());
        let place = url.clone();
        let reconnect = Reconnect::new(bounds.pause_min, bounds.pause_max);
        let task = BroadcastTask {
            core: Arc::clone(&core),
            client,
            place,
            form,
            bounds,
            id,
            to_publish,
            incoming,
        };
        let closer = reconnect::keep(task, reconnect, rng);
        Ok((Self { core, outgoing, id, body_max, _closer: closer }, received))
    }

    /// The name of this replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Tells the others, if it is connected. Never waits.
    pub fn publish(&self, body: String) {
        self.send(body, None);
    }

    /// Tells the others; the receiver is told when the store has passed the message on, and fails where that is
    /// not known.
    pub fn publish_acked(&self, body: String) -> oneshot::Receiver<()> {
        let (done, acked) = oneshot::channel();
        self.send(body, Some(done));
        acked
    }

    fn send(&self, body: String, done: Option<oneshot::Sender<()>>) {
        let is_taken = self.is_here()
            && body.len() <= self.body_max
            && self.outgoing.try_send(OutgoingMessage { body, done }).is_ok();
        if !is_taken {
            self.note_dropped();
        }
    }

    /// Counts a message that was not sent.
    pub(crate) fn note_dropped(&self) {
        self.core.dropped.fetch_add(1, Relaxed);
    }

    /// Whether it is connected.
    pub fn is_here(&self) -> bool {
        *self.core.is_here.borrow()
    }

    /// Resolves when it is connected.
    pub async fn until_here(&self) {
        let mut here = self.core.is_here.subscribe();
        // The sender is ours.
        let _connected = here.wait_for(|is_here| *is_here).await;
    }

    /// How it is.
    pub fn status(&self) -> BroadcastStatus {
        let core = &self.core;
        BroadcastStatus {
            is_here: *core.is_here.borrow(),
            published: core.published.load(Relaxed),
            received: core.received.load(Relaxed),
            dropped: core.dropped.load(Relaxed),
            malformed: core.malformed.load(Relaxed),
        }
    }
}

impl fmt::Debug for ReplicaChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaChannel").field("status", &self.status()).finish_non_exhaustive()
    }
}

struct BroadcastTask<T> {
    core: Arc<BroadcastCore>,
    client: Client,
    /// Prints without its secrets.
    place: SecretUrl,
    form: ChannelForm<T>,
    bounds: BroadcastBounds,
    id: ReplicaId,
    to_publish: mpsc::Receiver<OutgoingMessage>,
    incoming: mpsc::Sender<T>,
}

impl<T: Send + 'static> KeptConnection for BroadcastTask<T> {
    async fn serve(&mut self) -> Result<LinkEnd, &'static str> {
        let (name, channel) = (self.form.name, self.channel());
        let BroadcastBounds { answer_within, waiting_max, .. } = self.bounds;
        let mut subscription = ChannelSubscription::open(
            &self.client,
            &channel,
            answer_within,
            waiting_max,
            self.form.message_max,
        )
        .await?;
        self.core.is_here.send_replace(true);
        info!(redis = %self.place, channel = name, "replicas hear each other");
        let since = Instant::now();
        let reason = self.exchange(&mut subscription, &channel).await;
        self.core.is_here.send_replace(false);
        self.drop_waiting();
        Ok(LinkEnd { since, reason })
    }

    fn log_away(&self, reason: &'static str) {
        warn!(redis = %self.place, channel = self.form.name, reason, "replicas do not hear each other: each learns by itself");
    }
}

impl<T> BroadcastTask<T> {
    /// What waited for a connection that is over would be old for the next one.
    fn drop_waiting(&mut self) {
        while self.to_publish.try_recv().is_ok() {
            self.core.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Until the connection is over; returns why.
    async fn exchange(
        &mut self,
        subscription: &mut ChannelSubscription,
        channel: &str,
    ) -> &'static str {
        let mut pings = interval(self.bounds.ping_every);
        let mut outgoing = Vec::with_capacity(PUBLISHED_AT_ONCE);
        loop {
            let mut commands = redis::pipe();
            tokio::select! {
                message = subscription.messages.recv() => {
                    let Some(message) = message else { return "the connection broke" };
                    self.hand_on(&message);
                    continue;
                }
                taken = self.to_publish.recv_many(&mut outgoing, PUBLISHED_AT_ONCE) => {
                    if taken == 0 {
                        return "it is not used any more";
                    }
                    self.write(&mut commands, &outgoing, channel);
                }
                _ = pings.tick() => {
                    if subscription.take_lost() {
                        self.core.dropped.fetch_add(1, Relaxed);
                    }
                    commands.cmd("PING");
                }
            }
            let count = outgoing.len().max(1);
            let sent = subscription.connection.send_packed_commands(&commands, 0, count);
            match timeout(self.bounds.answer_within, sent).await {
                Ok(Ok(answers)) => self.note_published(&mut outgoing, &answers),
                Ok(Err(_)) => return "it answers with errors",
                Err(_) => return "it is slow or silent",
            }
        }
    }

    fn write(&self, commands: &mut Pipeline, outgoing: &[OutgoingMessage], channel: &str) {
        for message in outgoing {
            commands.cmd("PUBLISH").arg(channel).arg(format!("{} {}", self.id, message.body));
        }
    }

    fn note_published(&self, outgoing: &mut Vec<OutgoingMessage>, answers: &[Value]) {
        for (message, answer) in outgoing.drain(..).zip(answers) {
            let is_published = matches!(answer, Value::Int(_));
            let count = if is_published { &self.core.published } else { &self.core.dropped };
            count.fetch_add(1, Relaxed);
            if let Some(done) = message.done.filter(|_| is_published) {
                let _gone_meanwhile = done.send(());
            }
        }
    }

    fn hand_on(&self, message: &[u8]) {
        let Some((sender, body)) = split(message) else {
            self.core.malformed.fetch_add(1, Relaxed);
            return;
        };
        if sender == self.id {
            return;
        }
        let taken = (self.form.read)(sender, body).map(|read| self.incoming.try_send(read).is_ok());
        let count = match taken {
            Some(true) => &self.core.received,
            Some(false) => &self.core.dropped,
            None => &self.core.malformed,
        };
        count.fetch_add(1, Relaxed);
    }

    fn channel(&self) -> String {
        format!("wh:{{{}}}:{}", self.bounds.cluster, self.form.name)
    }
}

/// The sender, in 16 hexadecimal digits, and what it says.
fn split(message: &[u8]) -> Option<(ReplicaId, &str)> {
    let (sender, body) = std::str::from_utf8(message).ok()?.split_once(' ')?;
    let is_id = sender.len() == 16 && sender.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = u64::from_str_radix(sender, 16).ok().filter(|_| is_id)?;
    Some((ReplicaId(id), body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_sender_before_it() {
        let id = ReplicaId(0xff00);
        let message = format!("{id} 1 * main:alchemy of a team");
        assert_eq!(message.find('1'), Some(SENDER_BYTES));
        assert_eq!(split(message.as_bytes()), Some((id, "1 * main:alchemy of a team")));
        for message in ["", "a", "ff b", "+0ff00ff00ff00ff b", "00ff00ff00ff00ff"] {
            assert_eq!(split(message.as_bytes()), None, "{message}");
        }
        assert_eq!(split(b"00ff00ff00ff00ff \xff"), None);
    }
}
