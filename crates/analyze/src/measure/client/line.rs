//! One line of a client: HTTP, or WebSocket where the URL says so.

use wellhead_net::{
    ClientSettings, Endpoint, EndpointError, ExchangeTimeline, HttpTransport, Protocol,
    TransportResources, WsTransport,
};
use wellhead_transport::{Exchange, Transport as _, TransportError, WireReply};

#[derive(Debug)]
pub(super) enum LineTransport {
    Http(HttpTransport),
    Ws(WsTransport),
}

impl LineTransport {
    pub(super) fn new(
        endpoint: &Endpoint,
        is_socket: bool,
        settings: ClientSettings,
        shared: TransportResources,
        seed: u64,
    ) -> Result<Self, EndpointError> {
        if is_socket {
            let settings = ClientSettings {
                ws_connections_max: settings.connections_max,
                ws_calls_max: settings.h2_streams_max,
                ..settings
            };
            return WsTransport::alone(endpoint, settings, shared, seed).map(Self::Ws);
        }
        HttpTransport::new(endpoint, settings, shared, seed).map(Self::Http)
    }

    /// What it speaks, where that is known.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        match self {
            Self::Http(http) => http.protocol(),
            Self::Ws(_) => Some(Protocol::Ws),
        }
    }

    /// Streams that the other side allows on a connection.
    pub(super) fn announced_streams(&self) -> Option<u64> {
        match self {
            Self::Http(http) => http.stats().announced_streams(),
            Self::Ws(_) => None,
        }
    }

    pub(super) async fn exchange(
        &self,
        exchange: Exchange,
        passage: &mut ExchangeTimeline,
    ) -> Result<WireReply, TransportError> {
        match self {
            Self::Http(http) => http.exchange_told(exchange, passage).await,
            Self::Ws(ws) => ws.exchange(exchange).await,
        }
    }
}
