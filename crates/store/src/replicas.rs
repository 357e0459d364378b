//! What replicas tell each other of chains and upstreams, and that they are there.
//!
//! Only the messages, on `wh:{cluster}:replicas`: their text is the caller's, and so is what is made of
//! them. They are kept nowhere. A replica that is not connected at that moment does not hear of them.

use std::sync::Arc;

use rand::rngs::SmallRng;
use tokio::sync::mpsc;
use wellhead_telemetry::SecretUrl;

use crate::NotRedis;
use crate::broadcast::{BroadcastBounds, ChannelForm, ReplicaChannel, ReplicaId};

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
        Self::open(
            url,
            ChannelForm { name: "replicas", message_max: MESSAGE_MAX, read },
            bounds,
            rng,
        )
    }
}
