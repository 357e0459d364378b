//! A client over WebSocket that keeps what it is told in the order in which it came.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::HttpReply;
use crate::rpc::connect;
use crate::secrets::look_for_secrets;

/// Far more than an answer or a block needs, for a machine that is busy.
const BOUND: Duration = Duration::from_secs(60);

/// One connection of a client.
#[derive(Debug)]
pub struct WsClient {
    stream: WebSocketStream<TcpStream>,
    next_id: u64,
    /// Notifications that came while an answer was awaited.
    told: VecDeque<Value>,
}

impl WsClient {
    /// Connects to this port of the loopback.
    pub async fn connect(port: u16) -> Self {
        let connected = Self::connect_to(port, "/", &[]).await;
        connected.unwrap_or_else(|reply| panic!("not upgraded: {reply:?}"))
    }

    /// Connects to a path of this port, with headers of its own, or returns the answer that was no upgrade. A
    /// client that offers subprotocols expects one of them in the answer, as browsers do.
    pub async fn connect_to(
        port: u16,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, HttpReply> {
        let socket = connect(Ipv4Addr::LOCALHOST, port).await.expect("a listener");
        let url = format!("ws://127.0.0.1:{port}{path}");
        let mut request = url.into_client_request().expect("a good URL");
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a good name");
            let value = HeaderValue::from_str(value).expect("a good value");
            request.headers_mut().insert(name, value);
        }
        let connected = timeout(BOUND, client_async(request, socket));
        match connected.await.expect("connected in time") {
            Ok((stream, _)) => Ok(Self { stream, next_id: 1, told: VecDeque::new() }),
            Err(Error::Http(response)) => {
                let headers = response.headers().iter().map(|(name, value)| {
                    (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
                });
                let (status, headers) = (response.status().as_u16(), headers.collect());
                let body: Bytes = response.into_body().unwrap_or_default().into();
                look_for_secrets("the refusal of an upgrade", &body);
                Err(HttpReply { status, headers, body })
            }
            Err(error) => panic!("neither upgraded nor refused: {error}"),
        }
    }

    /// Asks for the chain id, and says whether the answer came before a close.
    pub async fn ask_open(&mut self) -> bool {
        let call = json!({"jsonrpc": "2.0", "id": 0, "method": "eth_chainId", "params": []});
        let sent = timeout(BOUND, self.stream.send(Message::text(call.to_string())));
        if sent.await.expect("sent in time").is_err() {
            return false;
        }
        while let Ok(message) = self.read().await {
            if message["id"] == 0 {
                return true;
            }
        }
        false
    }

    /// Reads to the end, and returns the code of the close.
    pub async fn close_code(&mut self) -> Option<u16> {
        loop {
            if let Err(code) = self.read().await {
                return code;
            }
        }
    }

    /// The answer to one call: its result, or its error as text.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.next_id;
        self.next_id += 1;
        let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(Message::text(call.to_string())).await;
        loop {
            let mut message = self.read().await.unwrap_or_else(|code| panic!("closed: {code:?}"));
            if message["id"] == id {
                return match message.get("error") {
                    Some(error) => Err(error.to_string()),
                    None => Ok(message["result"].take()),
                };
            }
            assert_eq!(message["method"], "eth_subscription", "{message}");
            self.told.push_back(message["params"].take());
        }
    }

    /// Subscribes, and returns the id.
    pub async fn subscribe(&mut self, params: Value) -> String {
        let id = self.call("eth_subscribe", params).await.expect("subscribed");
        id.as_str().expect("an id is a string").to_owned()
    }

    /// The next notification: `{"subscription": …, "result": …}`.
    pub async fn told(&mut self) -> Value {
        self.told_or_closed().await.unwrap_or_else(|code| panic!("closed: {code:?}"))
    }

    /// The next notification, or the code of the close that came instead.
    pub async fn told_or_closed(&mut self) -> Result<Value, Option<u16>> {
        if let Some(told) = self.told.pop_front() {
            return Ok(told);
        }
        let mut message = self.read().await?;
        assert_eq!(message["method"], "eth_subscription", "{message}");
        Ok(message["params"].take())
    }

    /// Asserts that nothing came by now: an answer that was asked for later is the next message.
    pub async fn expect_silence(&mut self) {
        self.call("eth_chainId", json!([])).await.expect("answered");
        assert!(self.told.is_empty(), "{:?}", self.told);
    }

    async fn send(&mut self, message: Message) {
        timeout(BOUND, self.stream.send(message)).await.expect("sent in time").expect("sent");
    }

    async fn read(&mut self) -> Result<Value, Option<u16>> {
        // For all pings before the message together.
        let until = Instant::now() + BOUND;
        loop {
            let message = timeout_at(until, self.stream.next()).await.expect("a message in time");
            match message {
                Some(Ok(Message::Text(text))) => {
                    look_for_secrets("a message over WebSocket", text.as_bytes());
                    return Ok(serde_json::from_str(&text).expect("a message is JSON"));
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map(|frame| frame.code.into()));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                None | Some(Err(_)) => return Err(None),
                Some(Ok(other)) => panic!("neither text nor control: {other:?}"),
            }
        }
    }
}
