//! A canned upstream for benchmarks: as cheap as we can make it, and honest.
//!
//! HTTP/1.1 is parsed by hand (keep-alive, pipelining, `content-length` only),
//! HTTP/2 with prior knowledge goes to hyper, and a `GET` becomes a WebSocket, on
//! which the calls that are there together are answered together. Answers depend on the method
//! alone: about 100 bytes, a block of 300 KB, or a trace of 20 MB; heads advance
//! with time so that a proxy believes them. No batch is too clever, no request
//! is checked: for behaviour use [`crate::fake`].

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{FutureExt, SinkExt, StreamExt};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_tungstenite::accept_async_with_config;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use crate::fake::body::PartedBody;

/// Bytes of the large block.
pub const BLOCK_BYTES: usize = 300_000;
/// Bytes of the huge trace.
pub const TRACE_BYTES: usize = 20_000_000;
/// Largest request; a connection with a larger one is closed.
const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Free room before each read.
const READ_BYTES: usize = 16 * 1024;
/// Answers gathered before they are written, when requests are pipelined.
const GATHER_BYTES_MAX: usize = 64 * 1024;
/// The first head, and the time between heads.
const FIRST_HEAD: u64 = 21_000_000;
const BLOCK_TIME: Duration = Duration::from_secs(12);
/// Streams on one HTTP/2 connection.
const H2_STREAMS_MAX: u32 = 1000;

/// The answers, made once.
#[derive(Debug)]
pub struct Canned {
    started: Instant,
    started_unix: Duration,
    chain_id: u64,
    small: Bytes,
    block: Bytes,
    trace: Bytes,
    delay: Duration,
}

impl Canned {
    /// Makes the answers. `now_unix` dates the heads.
    pub fn new(now_unix: Duration, chain_id: u64) -> Arc<Self> {
        Self::delayed(now_unix, chain_id, Duration::ZERO)
    }

    /// Starts with a pause before each answer over HTTP, so that the latencies that two clients
    /// measure can be compared.
    pub fn delayed(now_unix: Duration, chain_id: u64, delay: Duration) -> Arc<Self> {
        let small = format!("\"0x{:064x}\"", 0x1234_5678u64);
        Arc::new(Self {
            started: Instant::now(),
            started_unix: now_unix,
            chain_id,
            small: small.into(),
            block: large_block().into(),
            trace: huge_trace().into(),
            delay,
        })
    }

    /// The result for a call with this body, in one or two parts.
    fn result(&self, method: &[u8], call: &[u8]) -> Bytes {
        match method {
            b"eth_chainId" => Bytes::from(format!("\"{:#x}\"", self.chain_id)),
            b"net_version" => Bytes::from(format!("\"{}\"", self.chain_id)),
            b"web3_clientVersion" => {
                Bytes::from_static(b"\"Geth/v1.16.5-canned/linux-amd64/go1.25.1\"")
            }
            b"eth_syncing" => Bytes::from_static(b"false"),
            b"eth_blockNumber" => Bytes::from(format!("\"{:#x}\"", self.head())),
            // By its height only this one: it tells a chain from another of the same id.
            b"eth_getBlockByNumber" if memmem::find(call, b"[\"0x1\",false]").is_some() => {
                Bytes::from(self.small_block(1))
            }
            b"eth_getBlockByNumber" if memmem::find(call, b"true").is_none() => {
                let behind =
                    [(&b"\"safe\""[..], 32), (b"\"finalized\"", 64), (b"\"earliest\"", u64::MAX)];
                let lag = behind.iter().find(|(tag, _)| memmem::find(call, tag).is_some());
                Bytes::from(
                    self.small_block(self.head().saturating_sub(lag.map_or(0, |(_, lag)| *lag))),
                )
            }
            b"eth_getBlockByNumber"
            | b"eth_getBlockByHash"
            | b"eth_getLogs"
            | b"eth_getBlockReceipts" => self.block.clone(),
            _ if method.starts_with(b"debug_") || method.starts_with(b"trace_") => {
                self.trace.clone()
            }
            _ => self.small.clone(),
        }
    }

    async fn pause(&self) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
    }

    fn head(&self) -> u64 {
        let elapsed = self.started.elapsed().as_secs() / BLOCK_TIME.as_secs();
        FIRST_HEAD + elapsed
    }

    fn small_block(&self, number: u64) -> String {
        let age = FIRST_HEAD.saturating_sub(number) * BLOCK_TIME.as_secs();
        let since = number.saturating_sub(FIRST_HEAD) * BLOCK_TIME.as_secs();
        let timestamp = self.started_unix.as_secs().saturating_sub(age) + since;
        let (hash, parent) = (block_hash(number), block_hash(number.saturating_sub(1)));
        let zero = "0".repeat(64);
        let bloom = "0".repeat(512);
        format!(
            "{{\"number\":\"{number:#x}\",\"hash\":\"{hash}\",\"parentHash\":\"{parent}\",\"timestamp\":\"{timestamp:#x}\",\
             \"gasLimit\":\"0x2255100\",\"gasUsed\":\"0x112a880\",\"baseFeePerGas\":\"0x2540be400\",\"miner\":\"0x{0:.40}\",\
             \"stateRoot\":\"0x{0}\",\"transactionsRoot\":\"0x{0}\",\"receiptsRoot\":\"0x{0}\",\"logsBloom\":\"0x{bloom}\",\
             \"extraData\":\"0x\",\"transactions\":[],\"uncles\":[],\"withdrawals\":[]}}",
            zero
        )
    }

    /// The whole answer to a body: a call or a batch.
    fn answer(&self, body: &[u8], out: &mut Vec<Bytes>) {
        let body = body.trim_ascii();
        if body.first() != Some(&b'[') {
            return self.answer_call(body, out);
        }
        out.push(Bytes::from_static(b"["));
        let calls: Vec<&RawValue> = serde_json::from_slice(body).unwrap_or_default();
        for (index, call) in calls.iter().enumerate() {
            if index > 0 {
                out.push(Bytes::from_static(b","));
            }
            self.answer_call(call.get().as_bytes(), out);
        }
        out.push(Bytes::from_static(b"]"));
    }

    fn answer_call(&self, call: &[u8], out: &mut Vec<Bytes>) {
        let id = member(call, b"\"id\"").unwrap_or(b"null");
        let method = member(call, b"\"method\"").unwrap_or_default();
        let method = method.strip_prefix(b"\"").unwrap_or(method);
        let method = method.strip_suffix(b"\"").unwrap_or(method);
        let mut start = BytesMut::with_capacity(128);
        start.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        start.extend_from_slice(id);
        start.extend_from_slice(b",\"result\":");
        let result = self.result(method, call);
        if result.len() <= 1024 {
            start.extend_from_slice(&result);
            start.extend_from_slice(b"}");
            out.push(start.freeze());
        } else {
            out.extend([start.freeze(), result, Bytes::from_static(b"}")]);
        }
    }
}

/// Serves every connection, for ever.
pub async fn serve(listener: TcpListener, canned: Arc<Canned>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let canned = Arc::clone(&canned);
        tokio::spawn(async move {
            if let Err(error) = connection(stream, &canned).await {
                tracing::debug!(%error, "connection to canned upstream broke");
            }
        });
    }
}

async fn connection(stream: TcpStream, canned: &Arc<Canned>) -> io::Result<()> {
    let mut first = [0u8; 3];
    // Waits for a byte without taking it; the preface of HTTP/2 starts as no method does.
    let seen = stream.peek(&mut first).await?;
    if first[..seen] == b"PRI"[..seen] && seen > 0 {
        return http2(stream, Arc::clone(canned)).await;
    }
    if first[..seen] == b"GET"[..seen] && seen > 0 {
        return websocket(stream, canned).await.map_err(io::Error::other);
    }
    http1(stream, canned).await
}

async fn websocket(stream: TcpStream, canned: &Canned) -> Result<(), tungstenite::Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(GATHER_BYTES_MAX)
        .max_message_size(Some(REQUEST_BYTES_MAX));
    let mut socket = accept_async_with_config(stream, Some(config)).await?;
    let mut parts = Vec::with_capacity(3);
    while let Some(first) = socket.next().await {
        let mut next = Some(first);
        while let Some(message) = next {
            match message? {
                call @ (Message::Text(_) | Message::Binary(_)) => {
                    parts.clear();
                    canned.answer(&call.into_data(), &mut parts);
                    let answer = match parts.as_slice() {
                        [whole] => whole.clone(),
                        parts => parts.concat().into(),
                    };
                    let text = Utf8Bytes::try_from(answer)
                        .map_err(|e| tungstenite::Error::Utf8(e.to_string()))?;
                    socket.feed(Message::Text(text)).await?;
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
                Message::Close(_) => return socket.flush().await,
            }
            next = socket.next().now_or_never().flatten();
        }
        socket.flush().await?;
    }
    Ok(())
}

async fn http2(stream: TcpStream, canned: Arc<Canned>) -> io::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let canned = Arc::clone(&canned);
        async move {
            let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
            let mut parts = Vec::with_capacity(3);
            canned.answer(&body, &mut parts);
            canned.pause().await;
            let mut response = Response::new(PartedBody::whole(gathered(parts)));
            let kind = HeaderValue::from_static("application/json");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            Ok::<_, io::Error>(response)
        }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .max_concurrent_streams(H2_STREAMS_MAX)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(io::Error::other)
}

/// Small parts that follow one another, as one: each part becomes a frame, and no
/// node sends a frame for each comma of a batch.
fn gathered(parts: Vec<Bytes>) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(3);
    let mut small = BytesMut::new();
    for part in parts {
        if part.len() <= GATHER_BYTES_MAX {
            small.extend_from_slice(&part);
            continue;
        }
        if !small.is_empty() {
            out.push(small.split().freeze());
        }
        out.push(part);
    }
    out.push(small.freeze());
    out
}

async fn http1(mut stream: TcpStream, canned: &Canned) -> io::Result<()> {
    let mut input = BytesMut::with_capacity(READ_BYTES);
    let mut gathered = Vec::with_capacity(READ_BYTES);
    let mut parts = Vec::with_capacity(3);
    loop {
        while let Some(request) = next_request(&input)? {
            let body = &input[request.head..request.head + request.body];
            parts.clear();
            canned.answer(body, &mut parts);
            input.advance(request.head + request.body);
            let length: usize = parts.iter().map(Bytes::len).sum();
            gathered.extend_from_slice(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ",
            );
            let mut digits = String::with_capacity(24);
            let _ = write!(digits, "{length}\r\n\r\n");
            gathered.extend_from_slice(digits.as_bytes());
            for part in &parts {
                if gathered.len() + part.len() > GATHER_BYTES_MAX {
                    stream.write_all(&gathered).await?;
                    gathered.clear();
                }
                if part.len() > GATHER_BYTES_MAX {
                    stream.write_all(part).await?;
                } else {
                    gathered.extend_from_slice(part);
                }
            }
            if request.close {
                stream.write_all(&gathered).await?;
                return stream.shutdown().await;
            }
        }
        if !gathered.is_empty() {
            canned.pause().await;
            stream.write_all(&gathered).await?;
            gathered.clear();
        }
        input.reserve(READ_BYTES);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// Lengths of a request that has arrived whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    pub(crate) head: usize,
    pub(crate) body: usize,
    pub(crate) close: bool,
}

/// The request that `input` begins with, when all of it is there.
pub(crate) fn next_request(input: &[u8]) -> io::Result<Option<Heading>> {
    let Some(end) = memmem::find(input, b"\r\n\r\n") else {
        return match input.len() > READ_BYTES {
            true => Err(io::ErrorKind::InvalidData.into()),
            false => Ok(None),
        };
    };
    let head = end + 4;
    let (mut body, mut close) = (0, false);
    for line in input[..end].split(|byte| *byte == b'\n').skip(1) {
        let Some(colon) = memchr::memchr(b':', line) else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            body = digits.ok_or(io::ErrorKind::InvalidData)?;
        } else if name.eq_ignore_ascii_case(b"connection") {
            close = value.eq_ignore_ascii_case(b"close");
        }
    }
    if body > REQUEST_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((input.len() >= head + body).then_some(Heading { head, body, close }))
}

/// The scalar after a quoted key, as written. The first such key counts: our
/// benchmarks never hide one inside the parameters.
fn member<'a>(call: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let after = &call[memmem::find(call, key)? + key.len()..];
    let value = after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let end = match value.first()? {
        b'"' => memchr::memchr(b'"', &value[1..])? + 2,
        _ => value.iter().position(|byte| matches!(byte, b',' | b'}' | b' ' | b'\n' | b'\r'))?,
    };
    Some(&value[..end])
}

fn block_hash(number: u64) -> String {
    format!("0x{:016x}{:048x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number)
}

/// Something shaped like a block with whole transactions.
fn large_block() -> String {
    let hash = block_hash(FIRST_HEAD);
    let start = format!("{{\"number\":\"{FIRST_HEAD:#x}\",\"hash\":\"{hash}\",\"transactions\":[");
    filled(BLOCK_BYTES, &start, "],\"pad\":\"", |index| {
        let hash = block_hash(index);
        format!(
            "{{\"hash\":\"{hash}\",\"transactionIndex\":\"{index:#x}\",\"from\":\"{0}\",\"to\":\"{0}\",\"nonce\":\"{index:#x}\",\
             \"gas\":\"0x5208\",\"value\":\"0xde0b6b3a7640000\",\"input\":\"0xa9059cbb{1}{1}\",\"type\":\"0x2\"}}",
            &hash[..42],
            &hash[2..]
        )
    })
}

/// Something shaped like a trace.
fn huge_trace() -> String {
    let start = "{\"gas\":21000,\"failed\":false,\"structLogs\":[";
    filled(TRACE_BYTES, start, "],\"returnValue\":\"", |index| {
        format!(
            "{{\"pc\":{index},\"op\":\"PUSH1\",\"gas\":{},\"gasCost\":3,\"depth\":1,\"stack\":[\"{index:#066x}\",\"{:#066x}\"]}}",
            30_000_000 - index % 1000,
            index * 7
        )
    })
}

/// An object of `bytes`: `start` opens a list, items follow, and `end` opens a last string,
/// which takes the rest.
fn filled(bytes: usize, start: &str, end: &str, item: impl Fn(u64) -> String) -> String {
    let mut out = String::with_capacity(bytes + 1024);
    out.push_str(start);
    let mut index = 0u64;
    while out.len() < bytes - 500 {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&item(index));
        index += 1;
    }
    out.push_str(end);
    let missing = bytes.saturating_sub(out.len() + 2);
    out.extend(std::iter::repeat_n('0', missing));
    out.push_str("\"}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_over_a_websocket_are_answered_in_their_order() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let canned = Canned::new(Duration::from_secs(1_790_000_000), 1);
        let server = tokio::spawn(serve(listener, canned));
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/");
        let (mut socket, _) = tokio_tungstenite::client_async(url, stream).await.unwrap();
        for id in 0..20 {
            let method = if id % 2 == 0 { "eth_chainId" } else { "eth_getBlockByHash" };
            let call = format!(r#"{{"id":{id},"method":"{method}"}}"#);
            socket.feed(Message::text(call)).await.unwrap();
        }
        socket.flush().await.unwrap();
        for id in 0..20 {
            let answer = socket.next().await.unwrap().unwrap().into_data();
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["id"], id);
            assert_eq!(answer["result"] == "0x1", id % 2 == 0);
        }
        server.abort();
    }

    #[test]
    fn requests_are_framed_by_their_length() {
        let check = |input: &str, expected: Option<Heading>| {
            assert_eq!(next_request(input.as_bytes()).unwrap(), expected, "{input}");
        };
        check("POST / HTTP/1.1\r\ncontent-le", None);
        check("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n{}", None);
        check(
            "POST / HTTP/1.1\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}POST",
            Some(Heading { head: 57, body: 2, close: true }),
        );
        assert!(next_request(b"POST / HTTP/1.1\r\ncontent-length: x\r\n\r\n").is_err());
    }

    #[test]
    fn answers_are_json_of_their_size_with_the_id_given() {
        let canned = Canned::new(Duration::from_secs(1_790_000_000), 1);
        let answer = |body: &str| {
            let mut parts = Vec::new();
            canned.answer(body.as_bytes(), &mut parts);
            let bytes = parts.concat();
            (serde_json::from_slice::<serde_json::Value>(&bytes).unwrap(), bytes.len())
        };
        let check = |body: &str, id: &str, low: usize, high: usize| {
            let (value, length) = answer(body);
            assert_eq!(value["id"].to_string(), id);
            assert!((low..=high).contains(&length), "{body}: {length}");
        };
        check(r#"{"id":7,"method":"eth_call","params":[{}]}"#, "7", 90, 120);
        check(
            r#"{"method": "eth_getBlockByNumber", "params": ["latest", true], "id": "a"}"#,
            "\"a\"",
            300_000,
            300_100,
        );
        check(r#"{"id":null,"method":"debug_traceTransaction"}"#, "null", 20_000_000, 20_000_100);
        let (head, _) =
            answer(r#"{"id":1,"method":"eth_getBlockByNumber","params":["latest",false]}"#);
        assert_eq!(head["result"]["number"], "0x1406f40");
        assert_eq!(head["result"]["timestamp"], format!("{:#x}", 1_790_000_000));
        let (older, _) =
            answer(r#"{"id":1,"method":"eth_getBlockByNumber","params":["safe",false]}"#);
        assert_eq!(older["result"]["number"], "0x1406f20");
        let (batch, _) =
            answer(r#"[{"id":1,"method":"eth_chainId"},{"id":2,"params":["}"],"method":"x"}]"#);
        assert_eq!(batch[0]["result"], "0x1");
        assert_eq!(batch[1]["id"], 2);
    }
}
