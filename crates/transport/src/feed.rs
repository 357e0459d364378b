//! A two-way text connection to one upstream, as a trait: no sockets here.
//!
//! `net` implements it over WebSocket and `sim` without a network. What is said
//! over it (`eth_subscribe`, which ids, when to reconnect) is decided by the
//! reader: a feed neither looks inside a message nor connects again by itself.

use std::fmt::Debug;

use bytes::Bytes;

pub use crate::BoxFuture;
use crate::TransportError;

/// A way to open feeds to one upstream.
pub trait FeedConnector: Send + Sync + Debug {
    /// Opens a new connection; bounded by the connector's own connect timeout.
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Feed>, TransportError>>;
}

/// One open connection, carrying whole text messages both ways.
///
/// Promises: [`Feed::next`] may be dropped and called again without losing a
/// message; messages keep their order; a message is bounded in size.
/// Keep-alive happens inside [`Feed::next`], so a reader should always be
/// waiting in it when it has nothing to send.
pub trait Feed: Send {
    /// Sends one text message. After an error the feed is of no more use.
    fn send(&mut self, text: Bytes) -> BoxFuture<'_, Result<(), TransportError>>;

    /// The next message; `None` once the peer closed in good order. After `None`
    /// or an error the feed is of no more use.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>>;

    /// The code with which the peer closed, if it told one; known once [`Feed::next`] told the end.
    fn close_code(&self) -> Option<u16> {
        None
    }
}
