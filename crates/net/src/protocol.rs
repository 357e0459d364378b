//! Words for connections that counters, journal and pool share: which protocol, and why it ended.

/// The protocol of a connection. Its words stand in metrics and the status page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    H1,
    /// HTTP/2, over TLS or in plain text.
    H2,
    /// WebSocket that carries calls. Feeds are not counted.
    Ws,
}

wellhead_word::words!(Protocol);

/// Why a connection ended. Its words stand in metrics and records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
#[repr(u8)]
pub enum CloseReason {
    /// The peer closed it, or it broke.
    Peer,
    /// Unused for too long.
    Idle,
    /// Reached its age, or the peer asked for a new one (GOAWAY, `connection: close`).
    Replaced,
    /// An exchange on it was abandoned (HTTP/1.1 only).
    Abandoned,
    /// It stayed busy after its answer was complete, or answered no ping.
    Stuck,
    /// The answer could not be understood or was too large.
    BadAnswer,
    /// The upstream was removed.
    Shutdown,
}

wellhead_word::words!(CloseReason);

impl CloseReason {
    pub(crate) fn from_index(index: u8) -> Self {
        Self::ALL.get(usize::from(index)).copied().unwrap_or(Self::Peer)
    }
}
