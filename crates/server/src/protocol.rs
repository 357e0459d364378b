//! The protocols that a client can speak.

/// The protocol that a client speaks. Its words stand in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
pub enum ClientProtocol {
    /// HTTP/1.0 or HTTP/1.1.
    #[strum(serialize = "http/1")]
    Http1,
    /// HTTP/2: with prior knowledge (h2c), or as agreed under TLS.
    #[strum(serialize = "http/2")]
    Http2,
    /// WebSocket, after an upgrade of HTTP/1.1.
    #[strum(serialize = "websocket")]
    WebSocket,
}

wellhead_word::words!(ClientProtocol);
