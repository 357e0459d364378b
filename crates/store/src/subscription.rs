//! A connection on which messages of one channel are pushed, beside the answers to commands.
//!
//! Both come over one connection in the order in which the server wrote them: a message that it
//! published before it answered is here before the answer is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::shared::link;

pub(crate) struct ChannelSubscription {
    pub(crate) connection: MultiplexedConnection,
    /// Ends when the connection does.
    pub(crate) messages: mpsc::Receiver<Vec<u8>>,
    /// A message was lost: too many waited.
    lost: Arc<AtomicBool>,
}

impl ChannelSubscription {
    /// Connects and subscribes. Messages beyond `messages_max` that wait are lost, and longer ones
    /// than `bytes_max`.
    pub(crate) async fn open(
        client: &Client,
        channel: &str,
        within: Duration,
        messages_max: usize,
        bytes_max: usize,
    ) -> Result<Self, &'static str> {
        let (sender, messages) = mpsc::channel(messages_max.max(1));
        let lost = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&lost);
        let push = move |info: PushInfo| {
            if let Some(message) = message(info)
                && (message.len() > bytes_max || sender.try_send(message).is_err())
            {
                flag.store(true, Relaxed);
            }
            Ok::<(), ()>(())
        };
        let config = AsyncConnectionConfig::new().set_push_sender(push);
        let mut connection = Box::pin(link::connect(client, &config, within)).await?;
        match timeout(within, connection.subscribe(channel)).await {
            Ok(Ok(())) => Ok(Self { connection, messages, lost }),
            Ok(Err(_)) => {
                Err("it takes no subscription: a Redis from 6 on, or a Valkey, is needed")
            }
            Err(_) => Err("it is slow or silent"),
        }
    }

    /// Whether a message was lost since the last time.
    pub(crate) fn take_lost(&self) -> bool {
        self.lost.swap(false, Relaxed)
    }
}

/// The body of a published message; pushes of other kinds have none.
fn message(info: PushInfo) -> Option<Vec<u8>> {
    match (info.kind, info.data.into_iter().nth(1)) {
        (PushKind::Message, Some(Value::BulkString(body))) => Some(body),
        _ => None,
    }
}
