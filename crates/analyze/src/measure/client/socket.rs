//! One WebSocket connection to a target: whether calls go over it, and whether it tells of new
//! blocks.

use std::sync::Arc;

use bytes::Bytes;
use wellhead_net::{FeedSettings, WsClient, WsConnection};
use wellhead_telemetry::SecretUrl;
use wellhead_transport::feed::Feed as _;
use wellhead_transport::{Timing, WireReply};
use wellhead_upstream::CALL_ID;

use super::{FinishedCall, TargetEndpoint, finished, over_websocket};
use crate::work::WorkCall;

/// An open connection.
#[derive(Debug)]
pub struct WsSession(WsConnection);

impl WsSession {
    /// Opens one: at `url` where it is given, else where the target is, with `ws` for `http`. `None`
    /// where none can be opened.
    pub async fn open(endpoint: &TargetEndpoint, url: Option<&SecretUrl>) -> Option<Self> {
        let own = url.cloned().unwrap_or_else(|| websocket_of(&endpoint.url));
        let (tls, resolver) = (endpoint.access.tls().ok()?, Arc::new(endpoint.access.resolver()));
        let endpoint = endpoint.access.endpoint(own);
        let client = WsClient::new(&endpoint, FeedSettings::default(), resolver, &tls).ok()?;
        client.open().await.ok().map(Self)
    }

    /// The next message, which nothing was asked for; `None` when the connection has ended.
    pub async fn next_message(&mut self) -> Option<Bytes> {
        self.0.next().await?.ok()
    }

    /// One call. Which connection carried it is not told: it has no number in the run.
    pub async fn ask(&mut self, ask: &WorkCall) -> FinishedCall {
        let body = Bytes::from(ask.body(CALL_ID));
        let bytes_out = body.len();
        let reply =
            async { Ok(WireReply::whole(200, self.0.call(body).await?, Timing::default())) };
        let mut done = finished(ask.method, bytes_out, reply).await;
        over_websocket(&mut done.call);
        // How long it waited is not told.
        (done.call.queue, done.call.first_byte) = (None, None);
        FinishedCall { places: 1, ..done }
    }
}

fn websocket_of(url: &SecretUrl) -> SecretUrl {
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
            assert_eq!(websocket_of(&url).expose().as_str(), ws);
        }
    }
}
