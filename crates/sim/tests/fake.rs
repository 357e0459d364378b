//! The fake upstream and the canned one over real sockets.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use wellhead_sim::fast::{self, Canned};
use wellhead_sim::node::LatencyDial;
use wellhead_sim::{FakeUpstream, Fault, SimNode, World, WorldConfig};

const BLOCK_NUMBER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;
const ANSWER: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0x10\"}\n";
/// Nothing here takes long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

type Client = hyper::client::conn::http1::SendRequest<Full<Bytes>>;
type Client2 = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

fn upstream() -> FakeUpstream {
    let world = World::new(WorldConfig::seeded(7));
    FakeUpstream::start(SimNode::new("fake", world)).unwrap()
}

fn request(addr: SocketAddr, body: &str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{addr}/"))
        .header("host", addr.to_string())
        .header("content-type", "application/json")
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap()
}

async fn h1(addr: SocketAddr) -> io::Result<Client> {
    let stream = TcpStream::connect(addr).await?;
    let (client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn h2(addr: SocketAddr) -> io::Result<Client2> {
    let stream = TcpStream::connect(addr).await?;
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn text(response: Response<hyper::body::Incoming>) -> Result<String, hyper::Error> {
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

async fn post(client: &mut Client, addr: SocketAddr, body: &str) -> Result<String, hyper::Error> {
    client.ready().await?;
    text(client.send_request(request(addr, body)).await?).await
}

/// Waits until the connection has ended, and the port takes no other.
async fn gone(client: &mut Client, addr: SocketAddr) {
    within(async {
        while client.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
        while TcpStream::connect(addr).await.is_ok() {}
    })
    .await;
}

/// The canned upstream, and where it listens.
async fn canned() -> (SocketAddr, tokio::task::JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (addr, tokio::spawn(fast::serve(listener, Canned::new(Duration::from_secs(1), 1))))
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("took far too long")
}

#[tokio::test]
async fn calls_share_a_connection_over_http1() {
    let upstream = upstream();
    let mut client = h1(upstream.addr()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(within(post(&mut client, upstream.addr(), BLOCK_NUMBER)).await.unwrap(), ANSWER);
    }
    let batch = format!("[{BLOCK_NUMBER},{BLOCK_NUMBER}]");
    let answer: Value =
        serde_json::from_str(&within(post(&mut client, upstream.addr(), &batch)).await.unwrap())
            .unwrap();
    assert_eq!(answer.as_array().unwrap().len(), 2);
    assert_eq!(upstream.node().calls(), 5);
}

#[tokio::test]
async fn a_slow_call_does_not_hold_up_others_over_h2c() {
    let upstream = upstream();
    let addr = upstream.addr();
    let mut client = h2(addr).await.unwrap();
    let slow = LatencyDial::even(Duration::from_secs(3600), Duration::ZERO);
    upstream.node().turn(|dials| dials.latency = slow);
    let waiting = tokio::spawn(client.clone().send_request(request(addr, BLOCK_NUMBER)));
    within(async {
        while upstream.node().calls() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    upstream.node().turn(|dials| dials.latency = LatencyDial::NONE);
    for _ in 0..20 {
        let answer = within(client.send_request(request(addr, BLOCK_NUMBER))).await.unwrap();
        assert_eq!(within(text(answer)).await.unwrap(), ANSWER);
    }
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test]
async fn http_is_spoken_as_geth_does() {
    let upstream = upstream();
    let addr = upstream.addr();
    let mut client = h1(addr).await.unwrap();
    let get = Request::get("/").header("host", "x").body(Full::default()).unwrap();
    assert_eq!(within(client.send_request(get)).await.unwrap().status(), StatusCode::OK);
    client.ready().await.unwrap();
    let put = Request::put("/").header("host", "x").body(Full::default()).unwrap();
    let refused = within(client.send_request(put)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::METHOD_NOT_ALLOWED);
    client.ready().await.unwrap();
    let mut untyped = request(addr, BLOCK_NUMBER);
    untyped.headers_mut().remove("content-type");
    let refused = within(client.send_request(untyped)).await.unwrap();
    assert_eq!(refused.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    client.ready().await.unwrap();
    upstream.node().turn(|dials| {
        dials.fault = Some(Fault::TooMany { retry_after: Some(Duration::from_secs(2)) });
    });
    let refused = within(client.send_request(request(addr, BLOCK_NUMBER))).await.unwrap();
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()["retry-after"], "2");
    assert_eq!(refused.headers()["content-type"], "application/json");
}

#[tokio::test]
async fn faults_reach_the_socket() {
    let upstream = upstream();
    let addr = upstream.addr();
    let node = upstream.node();

    node.turn(|dials| dials.fault = Some(Fault::Reset));
    let mut client = h1(addr).await.unwrap();
    assert!(within(client.send_request(request(addr, BLOCK_NUMBER))).await.is_err());
    let mut client = h2(addr).await.unwrap();
    assert!(within(client.send_request(request(addr, BLOCK_NUMBER))).await.is_err());

    node.turn(|dials| dials.fault = Some(Fault::Truncated));
    let mut client = h1(addr).await.unwrap();
    let response = within(client.send_request(request(addr, BLOCK_NUMBER))).await.unwrap();
    assert_eq!(response.headers()["content-length"], ANSWER.len().to_string().as_str());
    assert!(within(text(response)).await.is_err());

    node.turn(|dials| dials.fault = Some(Fault::Hang));
    let mut client = h1(addr).await.unwrap();
    let waited = tokio::time::timeout(
        Duration::from_millis(100),
        client.send_request(request(addr, BLOCK_NUMBER)),
    );
    assert!(waited.await.is_err(), "answered while hanging");

    node.turn(|dials| dials.fault = None);
    let mut client = h1(addr).await.unwrap();
    assert_eq!(within(post(&mut client, addr, BLOCK_NUMBER)).await.unwrap(), ANSWER);
}

#[tokio::test]
async fn a_truncated_answer_brings_half_of_its_bytes() {
    let upstream = upstream();
    let addr = upstream.addr();
    upstream.node().turn(|dials| dials.fault = Some(Fault::Truncated));
    let seen = within(tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        let length = BLOCK_NUMBER.len();
        write!(
            stream,
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{BLOCK_NUMBER}"
        )
        .unwrap();
        let mut seen = Vec::new();
        // Ends with a reset or with the end, as the kernel's timing has it.
        let _ = stream.read_to_end(&mut seen);
        String::from_utf8(seen).unwrap()
    }))
    .await
    .unwrap();
    let (head, body) = seen.split_once("\r\n\r\n").expect("a whole head");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(body, &ANSWER[..ANSWER.len() / 2]);
}

#[tokio::test]
async fn a_down_upstream_refuses_connections_and_comes_back_on_its_port() {
    let upstream = upstream();
    let addr = upstream.addr();
    let mut client = h1(addr).await.unwrap();
    within(post(&mut client, addr, BLOCK_NUMBER)).await.unwrap();
    for _ in 0..3 {
        upstream.node().turn(|dials| dials.fault = Some(Fault::Down));
        // The open connection breaks as well.
        gone(&mut client, addr).await;
        upstream.node().turn(|dials| dials.fault = None);
        client = within(async {
            loop {
                if let Ok(client) = h1(addr).await {
                    return client;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(within(post(&mut client, addr, BLOCK_NUMBER)).await.unwrap(), ANSWER);
    }
}

#[tokio::test]
async fn dropping_the_upstream_closes_everything() {
    let upstream = upstream();
    let addr = upstream.addr();
    let mut client = h1(addr).await.unwrap();
    within(post(&mut client, addr, BLOCK_NUMBER)).await.unwrap();
    drop(upstream);
    gone(&mut client, addr).await;
    assert!(TcpStream::connect(addr).await.is_err());
}

type Socket = tokio_tungstenite::WebSocketStream<TcpStream>;

async fn websocket(upstream: &FakeUpstream) -> Socket {
    let stream = TcpStream::connect(upstream.addr()).await.unwrap();
    tokio_tungstenite::client_async(upstream.ws_url(), stream).await.unwrap().0
}

async fn hear(socket: &mut Socket) -> Value {
    loop {
        let message = within(socket.next()).await.expect("the socket ended").unwrap();
        if let Message::Text(text) = message {
            return serde_json::from_str(&text).unwrap();
        }
    }
}

async fn say(socket: &mut Socket, id: u64, method: &str, params: Value) -> Value {
    let call = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    socket.send(Message::text(call.to_string())).await.unwrap();
    let answer = hear(socket).await;
    assert_eq!(answer["id"], id);
    answer
}

#[tokio::test]
async fn heads_and_logs_are_announced_over_websocket() {
    let upstream = upstream();
    let world = Arc::clone(upstream.node().world());
    let mut socket = websocket(&upstream).await;
    assert_eq!(say(&mut socket, 1, "eth_blockNumber", json!([])).await["result"], "0x10");
    let heads = say(&mut socket, 2, "eth_subscribe", json!(["newHeads"])).await["result"].clone();
    assert!(heads.as_str().unwrap().starts_with("0x"));

    let mined = world.mine();
    let event = hear(&mut socket).await;
    assert_eq!(event["method"], "eth_subscription");
    assert_eq!(event["params"]["subscription"], heads);
    assert_eq!(event["params"]["result"]["hash"], json!(mined.hash));
    assert_eq!(event["params"]["result"]["number"], "0x11");

    let reorg = world.reorg(1).unwrap();
    for hash in &reorg.adopted {
        assert_eq!(hear(&mut socket).await["params"]["result"]["hash"], json!(hash));
    }

    // A lag that is lifted announces what was hidden.
    upstream.node().freeze();
    let hidden = world.mine();
    assert_eq!(say(&mut socket, 3, "eth_blockNumber", json!([])).await["result"], "0x12");
    upstream.node().turn(|dials| dials.stuck_at = None);
    assert_eq!(hear(&mut socket).await["params"]["result"]["hash"], json!(hidden.hash));

    assert_eq!(say(&mut socket, 4, "eth_unsubscribe", json!([heads])).await["result"], true);
    let again = say(&mut socket, 5, "eth_unsubscribe", json!([heads])).await;
    assert_eq!(again["error"]["message"], "subscription not found");
    let logs = say(&mut socket, 6, "eth_subscribe", json!(["logs", {}])).await["result"].clone();
    let block = world.mine();
    let body = block.body.as_ref().unwrap();
    let count: usize = body.receipts.iter().map(|receipt| receipt.envelope.logs().len()).sum();
    assert!(count > 0);
    for index in 0..count {
        let event = hear(&mut socket).await;
        assert_eq!(event["params"]["subscription"], logs);
        assert_eq!(event["params"]["result"]["logIndex"], format!("{index:#x}"));
    }
    let unknown = say(&mut socket, 7, "eth_subscribe", json!(["sync"])).await;
    assert_eq!(unknown["error"]["message"], "no \"sync\" subscription in eth namespace");
}

#[tokio::test]
async fn a_websocket_ends_with_a_fault() {
    let upstream = upstream();
    let mut socket = websocket(&upstream).await;
    say(&mut socket, 1, "eth_chainId", json!([])).await;
    upstream.node().turn(|dials| dials.fault = Some(Fault::Status(503)));
    socket.send(Message::text(BLOCK_NUMBER)).await.unwrap();
    let ended = within(async {
        loop {
            match socket.next().await {
                None | Some(Err(_)) => return true,
                Some(Ok(_)) => {}
            }
        }
    })
    .await;
    assert!(ended);
}

#[tokio::test]
async fn the_canned_upstream_answers_over_both_protocols() {
    let (addr, server) = canned().await;
    let mut client = h1(addr).await.unwrap();
    let small = within(post(&mut client, addr, r#"{"id":5,"method":"eth_call","params":[]}"#))
        .await
        .unwrap();
    assert!(small.starts_with(r#"{"jsonrpc":"2.0","id":5,"result":"0x"#), "{small}");
    let whole = r#"{"id":6,"method":"eth_getBlockByNumber","params":["latest",true]}"#;
    let large = within(post(&mut client, addr, whole)).await.unwrap();
    assert!((300_000..300_100).contains(&large.len()));
    let mut client = h2(addr).await.unwrap();
    let answer = within(client.send_request(request(addr, whole))).await.unwrap();
    assert_eq!(within(text(answer)).await.unwrap(), large);
    server.abort();
}

#[tokio::test]
async fn the_canned_upstream_takes_pipelined_and_split_requests() {
    let (addr, server) = canned().await;
    let seen = within(tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        let one = |close: &str| {
            let length = BLOCK_NUMBER.len();
            format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n{close}\r\n{BLOCK_NUMBER}")
        };
        let all = format!("{}{}{}", one(""), one(""), one("Connection: close\r\n"));
        for chunk in all.as_bytes().chunks(97) {
            stream.write_all(chunk).unwrap();
        }
        let mut seen = String::new();
        stream.read_to_string(&mut seen).unwrap();
        seen
    }))
    .await
    .unwrap();
    assert_eq!(seen.matches("HTTP/1.1 200 OK").count(), 3);
    assert_eq!(seen.matches("\"result\":\"0x1406f40\"}").count(), 3);
    server.abort();
}
