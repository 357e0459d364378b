//! Words for connections that counters, journal and pool share: which protocol, and why it ended.

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1.1.
    H1,
    /// HTTP/2, over TLS or in plain text.
    H2,
    /// WebSocket that carries calls. Feeds are not counted.
    Ws,
}

impl Protocol {
    /// All of them, for the metrics.
    pub const ALL: [Self; 3] = [Self::H1, Self::H2, Self::Ws];

    /// A stable word for metrics and the status page.
    pub fn word(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H2 => "h2",
            Self::Ws => "ws",
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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

impl CloseReason {
    /// All reasons, for the metrics.
    pub const ALL: [Self; 7] = [
        Self::Peer,
        Self::Idle,
        Self::Replaced,
        Self::Abandoned,
        Self::Stuck,
        Self::BadAnswer,
        Self::Shutdown,
    ];

    /// A stable word for metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Idle => "idle",
            Self::Replaced => "replaced",
            Self::Abandoned => "abandoned",
            Self::Stuck => "stuck",
            Self::BadAnswer => "bad_answer",
            Self::Shutdown => "shutdown",
        }
    }

    pub(crate) fn from_index(index: u8) -> Self {
        Self::ALL.get(usize::from(index)).copied().unwrap_or(Self::Peer)
    }
}
