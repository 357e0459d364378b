//! What replicas tell each other of chains and upstreams, and that they are there.
//!
//! Only the messages, on `wh:{cluster}:replicas`: their text is the caller's, and so is what is made of
//! them. They are kept nowhere. A replica that is not connected at that moment does not hear of them.

use std::fmt;
use std::sync::Arc;

use rand::rngs::SmallRng;
use tokio::sync::{mpsc, oneshot};
use wellhead_telemetry::SecretUrl;

use crate::NotRedis;
use crate::broadcast::{Broadcast, BroadcastBounds, BroadcastStatus, ChannelForm, ReplicaId};

/// The longest message, in bytes, its sender's name included.
const MESSAGE_MAX: usize = 4096;

/// One message of another replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaMessage {
    /// The replica that says it.
    pub from: ReplicaId,
    /// What it says.
    pub text: Arc<str>,
}

/// Publishes; clones share it. The task ends with the last one.
#[derive(Clone)]
pub struct ReplicaChannel(Broadcast);

impl ReplicaChannel {
    /// Begins to listen, in a task of this runtime. What others publish comes out of the receiver.
    ///
    /// `rng` spreads the attempts of replicas and names this one.
    pub fn start(
        url: &SecretUrl,
        bounds: BroadcastBounds,
        rng: SmallRng,
    ) -> Result<(Self, mpsc::Receiver<ReplicaMessage>), NotRedis> {
        let read = |from, text: &str| Some(ReplicaMessage { from, text: text.into() });
        let form = ChannelForm { name: "replicas", message_max: MESSAGE_MAX, read };
        let (broadcast, received) = Broadcast::start(url, form, bounds, rng)?;
        Ok((Self(broadcast), received))
    }

    /// The name of this replica.
    pub fn id(&self) -> ReplicaId {
        self.0.id
    }

    /// Whether it is connected.
    pub fn is_here(&self) -> bool {
        self.0.is_here()
    }

    /// Resolves when it is connected.
    pub async fn until_here(&self) {
        self.0.until_here().await;
    }

    /// Tells the others, if it is connected. Never waits.
    pub fn publish(&self, text: String) {
        self.0.publish(text);
    }

    /// Tells the others; the receiver is told when the store has passed the message on, and fails where that is
    /// not known.
    pub fn publish_acked(&self, text: String) -> oneshot::Receiver<()> {
        self.0.publish_acked(text)
    }

    /// How it is.
    pub fn status(&self) -> BroadcastStatus {
        self.0.status()
    }
}

impl fmt::Debug for ReplicaChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaChannel").field("status", &self.status()).finish_non_exhaustive()
    }
}
