//! WebSocket: whole text messages to and from one upstream.
//!
//! Over the same dialling and TLS as HTTP. Keeps the connection alive and
//! notices a peer that fell silent; it neither connects again nor knows what a
//! subscription is (that is the reader's: see `transport::feed`).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use wellhead_transport::feed::{BoxFuture, Feed, FeedConnector};
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::dial::{DialStep, Dialer, Resolver, Stream, TlsClient};
use crate::endpoint::{Endpoint, EndpointError, HttpVersion, Prepared, Purpose};

/// Read at a time; the library's default of 128 KiB per connection adds up.
const READ_BUFFER: usize = 16 << 10;
/// Unsent bytes kept while the peer reads slowly; requests are small.
const WRITE_BUFFER_MAX: usize = 4 << 20;

/// Bounds of one feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedSettings {
    /// Name look-up, TCP, TLS and the WebSocket handshake together.
    pub connect_timeout: Duration,
    /// Time between pings. A peer silent for two of them is taken for dead.
    pub ping_interval: Duration,
    /// Largest incoming message.
    pub message_bytes_max: usize,
    /// How long a message may take to be written to the socket.
    pub send_timeout: Duration,
}

impl Default for FeedSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(20),
            message_bytes_max: 16 << 20,
            send_timeout: Duration::from_secs(10),
        }
    }
}

/// Opens WebSocket connections to one upstream.
#[derive(Debug)]
pub struct WsClient {
    prepared: Prepared,
    dialer: Dialer,
    settings: FeedSettings,
}

impl WsClient {
    /// Checks `endpoint`, whose scheme must be `ws` or `wss`; opens nothing yet.
    pub fn new(
        endpoint: &Endpoint,
        settings: FeedSettings,
        resolver: Arc<Resolver>,
        tls: &TlsClient,
    ) -> Result<Self, EndpointError> {
        let mut prepared = Prepared::new(endpoint, Purpose::Feed)?;
        // The handshake is an HTTP/1.1 request, so nothing else may be agreed by ALPN.
        prepared.version = HttpVersion::H1;
        let dialer = Dialer::new(&prepared, resolver, tls, 0);
        Ok(Self { prepared, dialer, settings })
    }

    /// The host of the peer, for the log: without path and query.
    pub(crate) fn host(&self) -> &str {
        &self.prepared.host
    }

    /// Opens a connection.
    pub async fn open(&self) -> Result<WsConnection, TransportError> {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(0)
            .max_write_buffer_size(WRITE_BUFFER_MAX);
        Ok(WsConnection {
            stream: self.open_stream(config).await?,
            ping_timer: Box::pin(sleep(self.settings.ping_interval)),
            unanswered: false,
            close_code: None,
            settings: self.settings.clone(),
        })
    }

    /// Opens a connection that reads and writes as `config` says; how large a message may
    /// be is said by the settings.
    pub(crate) async fn open_stream(
        &self,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Stream>, TransportError> {
        let config = config
            .max_message_size(Some(self.settings.message_bytes_max))
            .max_frame_size(Some(self.settings.message_bytes_max));
        let deadline = Instant::now() + self.settings.connect_timeout;
        let mut step = DialStep::LookUp;
        match timeout_at(deadline, self.handshake(deadline, &mut step, config)).await {
            Ok(opened) => opened,
            Err(_) => Err(step.timed_out()),
        }
    }

    async fn handshake(
        &self,
        deadline: Instant,
        step: &mut DialStep,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Stream>, TransportError> {
        let (stream, _) = self.dialer.dial(deadline, step).await?;
        *step = DialStep::Http;
        let handshake = self.prepared.handshake.as_ref().expect("prepared for a feed");
        let mut request = handshake
            .uri
            .clone()
            .into_client_request()
            .map_err(|e| failure(&e, TransportErrorKind::Protocol, Sent::No))?;
        request.headers_mut().extend(handshake.headers.clone());
        let (stream, _) = client_async_with_config(request, stream, Some(config))
            .await
            .map_err(|e| failure(&e, TransportErrorKind::Connect, Sent::No))?;
        Ok(stream)
    }
}

impl FeedConnector for WsClient {
    fn connect(&self) -> BoxFuture<'_, Result<Box<dyn Feed>, TransportError>> {
        Box::pin(async { Ok(Box::new(self.open().await?) as Box<dyn Feed>) })
    }
}

/// One open WebSocket connection.
pub struct WsConnection {
    stream: WebSocketStream<Stream>,
    ping_timer: Pin<Box<Sleep>>,
    /// A ping was sent and nothing at all arrived since.
    unanswered: bool,
    close_code: Option<u16>,
    settings: FeedSettings,
}

impl WsConnection {
    /// Sends one text message.
    pub(crate) async fn send_text(&mut self, text: Bytes) -> Result<(), TransportError> {
        let text = Utf8Bytes::try_from(text).map_err(|_| {
            TransportError::new(TransportErrorKind::Protocol, Sent::No, "the message is not text")
        })?;
        self.put(Message::Text(text)).await
    }

    /// Sends `body` and returns the next message, whichever it is: for the first
    /// call on a fresh connection, when nothing else can arrive.
    pub async fn call(&mut self, body: Bytes) -> Result<Bytes, TransportError> {
        self.send_text(body).await?;
        self.next_text().await.unwrap_or_else(|| {
            let detail = "the peer closed the connection";
            Err(TransportError::new(TransportErrorKind::Closed, Sent::Maybe, detail))
        })
    }

    /// The next message; `None` once the peer closed in good order. Sends pings
    /// meanwhile. May be dropped and called again without losing a message.
    pub(crate) async fn next_text(&mut self) -> Option<Result<Bytes, TransportError>> {
        loop {
            // The socket first: data that arrived before this read shows that the peer is alive,
            // and must count before the timer.
            let arrived = tokio::select! {
                biased;
                arrived = self.stream.next() => arrived,
                () = self.ping_timer.as_mut() => {
                    if let Err(error) = self.on_ping_timer().await {
                        return Some(Err(error));
                    }
                    continue;
                }
            };
            self.unanswered = false;
            match arrived {
                Some(Ok(Message::Text(text))) => return Some(Ok(text.into())),
                Some(Ok(Message::Binary(data))) => return Some(Ok(data)),
                // The library answers pings by itself.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(farewell))) => {
                    self.close_code = farewell.map(|farewell| farewell.code.into());
                    return None;
                }
                Some(Err(WsError::ConnectionClosed)) | None => return None,
                Some(Err(error)) => {
                    return Some(Err(failure(&error, TransportErrorKind::Closed, Sent::Maybe)));
                }
            }
        }
    }

    async fn on_ping_timer(&mut self) -> Result<(), TransportError> {
        self.ping_timer.as_mut().reset(Instant::now() + self.settings.ping_interval);
        if self.unanswered {
            let detail = "the peer answered no ping";
            return Err(TransportError::new(TransportErrorKind::Closed, Sent::Maybe, detail));
        }
        self.unanswered = true;
        self.put(Message::Ping(Bytes::new())).await
    }

    async fn put(&mut self, message: Message) -> Result<(), TransportError> {
        match timeout(self.settings.send_timeout, self.stream.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(failure(&error, TransportErrorKind::Closed, Sent::Maybe)),
            Err(_) => {
                let detail = "the peer does not read";
                Err(TransportError::new(TransportErrorKind::Timeout, Sent::Maybe, detail))
            }
        }
    }
}

impl Feed for WsConnection {
    fn send(&mut self, text: Bytes) -> BoxFuture<'_, Result<(), TransportError>> {
        Box::pin(self.send_text(text))
    }

    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(self.next_text())
    }

    fn close_code(&self) -> Option<u16> {
        self.close_code
    }
}

impl fmt::Debug for WsConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WsConnection").field("unanswered", &self.unanswered).finish_non_exhaustive()
    }
}

/// Own words where the library would quote the URL or what the peer wrote.
pub(crate) fn failure(
    error: &WsError,
    otherwise: TransportErrorKind,
    sent: Sent,
) -> TransportError {
    let (kind, detail) = match error {
        WsError::ConnectionClosed | WsError::AlreadyClosed => {
            (TransportErrorKind::Closed, "the connection is closed".to_owned())
        }
        WsError::Io(io) => (otherwise, io.to_string()),
        WsError::Tls(_) => (TransportErrorKind::Tls, String::new()),
        WsError::Capacity(capacity) => (TransportErrorKind::TooLarge, capacity.to_string()),
        WsError::Protocol(
            ProtocolError::ResetWithoutClosingHandshake | ProtocolError::HandshakeIncomplete,
        ) => (otherwise, "the peer closed without a farewell".to_owned()),
        WsError::Protocol(_) => {
            (TransportErrorKind::Protocol, "the peer broke the WebSocket protocol".to_owned())
        }
        WsError::WriteBufferFull(_) => {
            (TransportErrorKind::TooLarge, "too much is waiting to be written".to_owned())
        }
        WsError::Utf8(_) => (TransportErrorKind::Protocol, "a message is not UTF-8".to_owned()),
        WsError::AttackAttempt => (TransportErrorKind::Protocol, "attack attempt".to_owned()),
        WsError::Url(_) => (TransportErrorKind::Protocol, "the URL cannot be used".to_owned()),
        WsError::Http(response) => (
            TransportErrorKind::Protocol,
            format!("the WebSocket handshake was answered with status {}", response.status()),
        ),
        WsError::HttpFormat(_) => {
            (TransportErrorKind::Protocol, "the handshake is not valid HTTP".to_owned())
        }
    };
    TransportError::new(kind, sent, detail)
}
