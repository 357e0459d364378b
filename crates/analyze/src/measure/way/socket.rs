//! One WebSocket connection to a target: whether calls go over it, and whether it tells of new
//! blocks.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use wellhead_net::{EndpointError, FeedSettings, TlsSetupError, WsClient, WsConnection};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::feed::Feed as _;
use wellhead_transport::{Sent, Timing, TransportError, TransportErrorKind, WireReply};
use wellhead_upstream::CALL_ID;

use super::{FinishedCall, Goal, PATIENCE, answered, failed};
use crate::record::CallRecord;
use crate::work::WorkCall;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The URL cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
    /// No server listens there, or it does not speak WebSocket.
    #[error("{}", .0.kind.word())]
    Transport(TransportError),
}

/// An open connection.
#[derive(Debug)]
pub struct WsSession(WsConnection);

impl WsSession {
    /// Opens one: at `url` where it is given, else where the target is, with `ws` for `http`.
    ///
    /// # Errors
    ///
    /// Where none can be opened.
    pub async fn open(goal: &Goal, url: Option<&SecretUrl>) -> Result<Self, SocketError> {
        let own = url.cloned().unwrap_or_else(|| over_websocket(&goal.url));
        let (tls, resolver) = (goal.access.tls()?, Arc::new(goal.access.resolver()));
        let endpoint = goal.access.endpoint(own);
        let client = WsClient::new(&endpoint, FeedSettings::default(), resolver, &tls)?;
        client.open().await.map(Self).map_err(SocketError::Transport)
    }

    /// The next message, which nothing was asked for; `None` when the connection has ended.
    pub async fn next_message(&mut self) -> Option<Bytes> {
        self.0.next().await?.ok()
    }

    /// One call. Which connection carried it is not told: it has no number in the run.
    pub async fn ask(&mut self, ask: &WorkCall) -> FinishedCall {
        let body = Bytes::from(ask.body(CALL_ID));
        let mut call = CallRecord {
            method: ask.method.to_owned(),
            bytes_out: body.len() as u64,
            protocol: Some("ws".to_owned()),
            ..CallRecord::default()
        };
        let begun = Instant::now();
        let reply = timeout(PATIENCE, self.0.call(body)).await;
        let ended = Instant::now();
        let reply = reply.unwrap_or_else(|_| {
            Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, ""))
        });
        let body = match reply {
            Ok(body) => {
                let reply = WireReply::whole(200, body, Timing::default());
                let body = answered(&mut call, ask.method, reply);
                // Those are HTTP's.
                (call.status, call.transfer) = (None, None);
                body
            }
            Err(error) => failed(&mut call, &error),
        };
        FinishedCall { call, begun, ended, body, under_way: 0, places: 1 }
    }
}

fn over_websocket(url: &SecretUrl) -> SecretUrl {
    let mut own = url.expose().clone();
    let scheme = if matches!(own.scheme(), "https" | "wss") { "wss" } else { "ws" };
    match own.set_scheme(scheme) {
        Ok(()) => SecretUrl::parse(own.as_str()).unwrap_or_else(|_| url.clone()),
        Err(()) => url.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_with_another_scheme() {
        for (http, ws) in [
            ("https://a.example/v2/KEY?x=1", "wss://a.example/v2/KEY?x=1"),
            ("http://127.0.0.1:8545", "ws://127.0.0.1:8545/"),
            ("wss://a.example/KEY", "wss://a.example/KEY"),
        ] {
            let url = SecretUrl::parse(http).expect("a URL");
            assert_eq!(over_websocket(&url).expose().as_str(), ws);
        }
    }
}
