//! The protocols that a client can speak.

/// The protocol that a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ClientProtocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2: with prior knowledge (h2c), or as agreed under TLS.
    Http2,
    /// WebSocket, after an upgrade of HTTP/1.1.
    WebSocket,
}

impl ClientProtocol {
    /// How it is called in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Http1 => "http/1",
            Self::Http2 => "http/2",
            Self::WebSocket => "websocket",
        }
    }
}
