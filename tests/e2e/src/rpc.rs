//! A small JSON-RPC client over HTTP/1.1 that keeps its connections.
//!
//! Written by hand so that the tests decide every byte that goes out and see
//! every header that comes back. Does not retry and does not judge: a failed
//! exchange is an error with words.

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::client::conn::http2;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::secrets::look_for_secrets;

/// Longer than any total timeout of wellhead, so that its own answer is seen.
const EXCHANGE_MAX: Duration = Duration::from_secs(40);
/// Idle connections kept; more are closed.
const IDLE_MAX: usize = 128;

/// A whole HTTP response.
#[derive(Debug, Clone)]
pub struct HttpReply {
    /// The status.
    pub status: u16,
    /// Headers by lower-case name; the last wins.
    pub headers: HashMap<String, String>,
    /// The body, read to its end.
    pub body: Bytes,
}

impl HttpReply {
    /// A header's value, or nothing as an empty string.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, or the words why it is none.
    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body)
            .map_err(|why| format!("HTTP {}: {why}: {}", self.status, self.text()))
    }

    /// Reads a response to its end.
    async fn read(response: Response<Incoming>) -> Result<Self, String> {
        let status = response.status().as_u16();
        let headers = response.headers().iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        let headers: HashMap<_, _> = headers.collect();
        let body = response.into_body().collect().await.map_err(|why| why.to_string())?.to_bytes();
        look_for_secrets("the headers of an answer", format!("{headers:?}").as_bytes());
        look_for_secrets("an answer", &body);
        Ok(Self { status, headers, body })
    }
}

/// Calls one server; shared by reference among tasks.
pub struct Rpc {
    port: u16,
    path: String,
    /// Where its connections come from.
    source: Ipv4Addr,
    tls: Option<TlsConnector>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    next_id: AtomicU64,
}

impl fmt::Debug for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rpc").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Rpc {
    /// A client of the server at this port of the loopback, under this path.
    #[must_use]
    pub fn new(port: u16, path: &str) -> Self {
        Self::from_address(Ipv4Addr::LOCALHOST, port, path)
    }

    /// As [`Self::new`], with connections that come from this address of the loopback.
    #[must_use]
    pub fn from_address(source: Ipv4Addr, port: u16, path: &str) -> Self {
        let (idle, next_id) = (Mutex::default(), AtomicU64::new(1));
        Self { port, path: path.to_owned(), source, tls: None, idle, next_id }
    }

    /// As [`Self::new`], over TLS to a server that is called `localhost`.
    #[must_use]
    pub fn over_tls(client: Arc<ClientConfig>, port: u16, path: &str) -> Self {
        Self { tls: Some(client.into()), ..Self::new(port, path) }
    }

    /// One call; the whole reply, checked to carry the id of the call.
    pub async fn call(&self, method: &str, params: Value) -> Result<Value, String> {
        self.call_with_reply(method, params).await.map(|(value, _)| value)
    }

    /// One call, with the HTTP response it came in.
    pub async fn call_with_reply(
        &self,
        method: &str,
        params: Value,
    ) -> Result<(Value, HttpReply), String> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let reply = self.post(call.to_string()).await?;
        let value = reply.json()?;
        if value["id"] != json!(id) {
            return Err(format!("asked with id {id}, answered {value}"));
        }
        Ok((value, reply))
    }

    /// One call that must have a result.
    pub async fn result(&self, method: &str, params: Value) -> Result<Value, String> {
        let mut reply = self.call(method, params).await?;
        match reply.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(format!("{method}: {reply}")),
        }
    }

    /// Posts a body as JSON to the client's path.
    pub async fn post(&self, body: impl Into<Bytes>) -> Result<HttpReply, String> {
        let headers = [("content-type", "application/json")];
        self.send("POST", &self.path, &headers, body.into()).await
    }

    /// Gets another path of the same server.
    pub async fn get(&self, path: &str) -> Result<HttpReply, String> {
        self.send("GET", path, &[], Bytes::new()).await
    }

    /// Any request at all. Its headers may name another host; else it names the
    /// server's address.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<HttpReply, String> {
        let host = format!("127.0.0.1:{}", self.port);
        let names_host = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let own = [("host", host.as_str())].into_iter().filter(|_| !names_host);
        let headers: Vec<_> = own.chain(headers.iter().copied()).collect();
        let request = request(method, path, &headers, body)?;
        timeout(EXCHANGE_MAX, self.exchange(request))
            .await
            .map_err(|_| format!("no answer within {EXCHANGE_MAX:?}"))?
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<HttpReply, String> {
        let mut sender = self.connection().await?;
        let response = sender.send_request(request).await.map_err(|why| why.to_string())?;
        let reply = HttpReply::read(response).await?;
        let mut idle = self.idle.lock().expect("no holder of this lock panics");
        if idle.len() < IDLE_MAX {
            idle.push(sender);
        }
        Ok(reply)
    }

    /// The first kept connection that is still open, else a new one.
    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        loop {
            let kept = self.idle.lock().expect("no holder of this lock panics").pop();
            let Some(mut sender) = kept else { break };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = connect(self.source, self.port).await?;
        match &self.tls {
            None => open(stream).await,
            // A handshake holds much for a moment; tests hold many calls for long.
            Some(tls) => Box::pin(open_over_tls(tls, stream)).await,
        }
    }
}

async fn open_over_tls(
    tls: &TlsConnector,
    stream: TcpStream,
) -> Result<SendRequest<Full<Bytes>>, String> {
    let name = ServerName::try_from("localhost").map_err(|why| why.to_string())?;
    open(tls.connect(name, stream).await.map_err(|why| format!("TLS: {why}"))?).await
}

/// Opens HTTP/1.1 on a stream. The connection ends by itself when the sender is dropped or the peer closes.
async fn open(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<SendRequest<Full<Bytes>>, String> {
    let (sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|why| why.to_string())?;
    tokio::spawn(async move {
        let _closed = connection.await;
    });
    Ok(sender)
}

fn request(
    method: &str,
    uri: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body)).map_err(|why| why.to_string())
}

/// One request over HTTP/2 with prior knowledge, on a connection of its own.
pub async fn send_http2(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<HttpReply, String> {
    let request = request(method, &format!("http://127.0.0.1:{port}{path}"), headers, body)?;
    let exchange = async {
        let stream = connect(Ipv4Addr::LOCALHOST, port).await?;
        let made = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (mut sender, connection) = made.map_err(|why| why.to_string())?;
        tokio::spawn(async move {
            let _closed = connection.await;
        });
        let response = sender.send_request(request).await.map_err(|why| why.to_string())?;
        HttpReply::read(response).await
    };
    let reply = timeout(EXCHANGE_MAX, exchange).await;
    reply.map_err(|_| format!("no answer within {EXCHANGE_MAX:?}"))?
}

/// A connection from an address of the loopback to a port of it.
pub(crate) async fn connect(source: Ipv4Addr, port: u16) -> Result<TcpStream, String> {
    let socket = TcpSocket::new_v4().map_err(|why| format!("socket: {why}"))?;
    // Ports of the default address are given away by the system, when it connects.
    if source != Ipv4Addr::LOCALHOST {
        socket.bind((source, 0).into()).map_err(|why| format!("bind: {why}"))?;
    }
    let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await;
    let stream = stream.map_err(|why| format!("connect: {why}"))?;
    stream.set_nodelay(true).map_err(|why| why.to_string())?;
    Ok(stream)
}
