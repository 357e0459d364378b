//! One HTTP request to a fake upstream, answered as geth's HTTP server would.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, UPGRADE,
};
use hyper::{Method, Request, Response, StatusCode};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_util::sync::CancellationToken;

use super::body::PartedBody;
use super::feed;
use super::socket::ResetFlag;
use crate::node::{Fault, SimNode, WireEnding};

/// Largest request taken, as geth's default.
const REQUEST_BYTES_MAX: usize = 5 * 1024 * 1024;
/// A hanging exchange ends at last, so that a forgotten one does not live for ever.
const HANG_MAX: Duration = Duration::from_secs(3600);

/// What serves the requests of one connection.
#[derive(Debug, Clone)]
pub(super) struct HttpDesk {
    pub(super) node: Arc<SimNode>,
    pub(super) reset: ResetFlag,
    /// Ends when the upstream goes down.
    pub(super) open: CancellationToken,
}

impl HttpDesk {
    /// Answers one request. An error breaks the connection.
    pub(super) async fn serve(
        self,
        request: Request<Incoming>,
    ) -> io::Result<Response<PartedBody>> {
        if wants_websocket(request.headers()) {
            return self.upgrade(request).await;
        }
        match *request.method() {
            Method::POST => {}
            // geth tells health checks that it is there.
            Method::GET => return Ok(plain(StatusCode::OK, "")),
            _ => {
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                return Ok(response);
            }
        }
        if !is_json(request.headers()) {
            return Ok(plain(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "invalid content type, only application/json is supported\n",
            ));
        }
        let body = match Limited::new(request.into_body(), REQUEST_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => {
                return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "content length too large\n"));
            }
        };
        self.answer(&body).await
    }

    async fn answer(self, body: &[u8]) -> io::Result<Response<PartedBody>> {
        let reply = self.node.answer(body);
        if reply.ending == WireEnding::Silence {
            tokio::time::sleep(HANG_MAX).await;
        }
        if !reply.delay.is_zero() {
            tokio::time::sleep(reply.delay).await;
        }
        let body = match reply.ending {
            WireEnding::Whole => PartedBody::whole([reply.body.clone()]),
            WireEnding::Cut => {
                self.reset.store(true, Ordering::Relaxed);
                PartedBody::broken_after(reply.body.slice(..reply.body.len() / 2))
            }
            // Asked while it was going down.
            WireEnding::Reset | WireEnding::Refused | WireEnding::Silence => {
                self.reset.store(true, Ordering::Relaxed);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(reply.status).map_err(io::Error::other)?;
        let headers = response.headers_mut();
        for (name, value) in reply.headers {
            let value = HeaderValue::from_str(&value).map_err(io::Error::other)?;
            headers.insert(HeaderName::from_static(name), value);
        }
        // A cut body still promises its whole length.
        headers.insert(CONTENT_LENGTH, HeaderValue::from(reply.body.len()));
        Ok(response)
    }

    async fn upgrade(self, mut request: Request<Incoming>) -> io::Result<Response<PartedBody>> {
        if self.node.dials().fault == Some(Fault::Hang) {
            tokio::time::sleep(HANG_MAX).await;
        }
        let Some(key) = request.headers().get(SEC_WEBSOCKET_KEY).cloned() else {
            return Ok(plain(StatusCode::BAD_REQUEST, "Bad Request\n"));
        };
        let upgraded = hyper::upgrade::on(&mut request);
        let Self { node, open, .. } = self;
        tokio::spawn(async move {
            match upgraded.await {
                Ok(stream) => feed::serve(stream, node, open).await,
                Err(error) => tracing::debug!(%error, "WebSocket upgrade failed"),
            }
        });
        let mut response = plain(StatusCode::SWITCHING_PROTOCOLS, "");
        let accept = derive_accept_key(key.as_bytes());
        let headers = response.headers_mut();
        headers.remove(CONTENT_TYPE);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(
            SEC_WEBSOCKET_ACCEPT,
            HeaderValue::from_str(&accept).map_err(io::Error::other)?,
        );
        Ok(response)
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<PartedBody> {
    let mut response = Response::new(PartedBody::whole([Bytes::from_static(text.as_bytes())]));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    ["application/json", "application/json-rpc", "application/jsonrequest"]
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known))
}

fn wants_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
}
