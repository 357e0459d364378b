//! Connections that are upgraded to WebSocket. The client is tungstenite, a library that
//! shares no code with the server; where single bytes matter, the test writes them itself.

use std::sync::atomic::Ordering;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use wellhead_server::{Settings, WsEnd};

use crate::site::{ENDLESS_BYTES, GUARD, SOON, Site, big};
use crate::wire::Wire;

type Client = WebSocketStream<TcpStream>;

async fn upgraded(site: &Site, path: &str) -> Client {
    let stream = TcpStream::connect(site.address).await.unwrap();
    let request = format!("ws://{}{path}", site.address).into_client_request().unwrap();
    client_async(request, stream).await.expect("the upgrade is accepted").0
}

/// The next message; pings and pongs are passed over.
async fn next(client: &mut Client) -> Message {
    loop {
        let message = tokio::time::timeout(GUARD, client.next()).await.expect("a message in time");
        match message.expect("not the end").expect("no error") {
            Message::Ping(_) | Message::Pong(_) => {}
            message => return message,
        }
    }
}

async fn text(client: &mut Client) -> String {
    next(client).await.into_text().unwrap().to_string()
}

async fn closed(client: &mut Client) -> u16 {
    match next(client).await {
        Message::Close(Some(frame)) => frame.code.into(),
        other => panic!("not a close: {other:?}"),
    }
}

fn upgrade(target: &str, more: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nhost: test\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
    )
}

/// A masked frame of less than 126 bytes, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    [&[first, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

fn ended(site: &Site, end: WsEnd) -> u64 {
    site.server.counts().websocket_ended[end as usize]
}

#[tokio::test]
async fn messages_are_answered_in_text_whatever_they_are() {
    let site = Site::open(Settings::default());
    let mut client = upgraded(&site, "/").await;
    client.send(Message::text(r#"{"id":1}"#)).await.unwrap();
    assert_eq!(next(&mut client).await, Message::text(r#"{"id":1}"#));
    client.send(Message::binary(&b"[1,2]"[..])).await.unwrap();
    assert_eq!(next(&mut client).await, Message::text("[1,2]"));
    let counts = site.server.counts();
    assert_eq!((counts.http1_open, counts.websocket_open, counts.websocket_total), (0, 1, 1));
    assert_eq!((counts.answered(101), counts.answered(200)), (1, 2));
    client.close(None).await.unwrap();
    site.until("it is closed", |counts| counts.connections_open == 0).await;
    assert_eq!(ended(&site, WsEnd::Client), 1);
    assert_eq!(site.server.counts().websocket_open, 0);
}

#[tokio::test]
async fn answers_of_any_size_arrive_whole_and_an_empty_one_is_no_message() {
    let site = Site::open(Settings::default());
    let mut large = upgraded(&site, "/big").await;
    for _ in 0..3 {
        large.send(Message::text("{}")).await.unwrap();
    }
    let expected = String::from_utf8(big().concat()).unwrap();
    for _ in 0..3 {
        assert!(text(&mut large).await == expected);
    }
    let mut silent = upgraded(&site, "/empty").await;
    silent.send(Message::text("{}")).await.unwrap();
    site.until("it is counted", |counts| counts.answered(200) == 4).await;
    silent.send(Message::Ping("x".into())).await.unwrap();
    let message = silent.next().await.unwrap().unwrap();
    assert_eq!(message, Message::Pong("x".into()), "nothing came before it");
}

#[tokio::test]
async fn requests_run_at_once_up_to_the_bound() {
    let site = Site::open(Settings::default());
    let mut client = upgraded(&site, "/wait").await;
    for n in 0..300 {
        client.feed(Message::text(n.to_string())).await.unwrap();
    }
    client.flush().await.unwrap();
    site.until_arrived(256).await;
    // Pings behind the bound are not read either.
    assert_eq!(site.handler.arrived.load(Ordering::Relaxed), 256);
    assert_eq!(site.server.counts().requests_open, 256);
    site.handler.gate.add_permits(300);
    let mut answers = Vec::new();
    for _ in 0..300 {
        answers.push(text(&mut client).await.parse::<u32>().unwrap());
    }
    answers.sort_unstable();
    assert_eq!(answers, (0..300).collect::<Vec<_>>());
}

#[tokio::test]
async fn frames_may_follow_the_upgrade_at_once() {
    let site = Site::open(Settings::default());
    let mut wire = site.connect().await;
    wire.send([upgrade("/", "").into_bytes(), frame(0x81, b"{\"id\":1}")].concat()).await;
    let reply = wire.reply().await;
    assert_eq!(reply.status, 101);
    assert_eq!(reply.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(
        (reply.header("content-length"), reply.header("sec-websocket-extensions")),
        (None, None)
    );
    assert_eq!(wire.bytes(10).await, b"\x81\x08{\"id\":1}");
}

/// Offers these fields, and says which subprotocol was selected.
async fn selected(site: &Site, offers: &str) -> Option<String> {
    let mut wire = site.connect().await;
    wire.send(upgrade("/", offers)).await;
    let reply = wire.reply().await;
    assert_eq!(reply.status, 101, "{offers}");
    assert!(reply.headers("sec-websocket-protocol").count() <= 1, "{offers}");
    reply.header("sec-websocket-protocol").map(str::to_owned)
}

#[tokio::test]
async fn the_first_subprotocol_that_is_no_key_is_selected() {
    let site = Site::open(Settings::default());
    let long = "x".repeat(65);
    for (offered, expected) in [
        (&["wellhead, wellhead.key.K"][..], Some("wellhead")),
        (&["wellhead.key.K, wellhead"], Some("wellhead")),
        (&["wellhead.key.K", "wellhead"], Some("wellhead")),
        (&["wellhead.key.K,\t a , b"], Some("a")),
        (&["json-rpc"], Some("json-rpc")),
        // Nothing else may be selected, and a key is not sent back, even if it is written otherwise.
        (&["wellhead.key.K"], None),
        (&["wellhead.key.", "Wellhead.Key.K, WELLHEAD.KEY.K"], None),
        (&["wellhead.keys"], Some("wellhead.keys")),
        (&[""], None),
        (&[], None),
        // No names.
        (&["a b, c/d, \"e\", f"], Some("f")),
        (&[&long, "short"], Some("short")),
        (&[&long[1..]], Some(&long[1..])),
    ] {
        let fields: Vec<_> =
            offered.iter().map(|value| format!("Sec-WebSocket-Protocol: {value}\r\n")).collect();
        assert_eq!(selected(&site, &fields.concat()).await.as_deref(), expected, "{offered:?}");
    }
}

/// A library that fails as browsers do.
#[tokio::test]
async fn a_client_with_a_key_and_another_subprotocol_connects() {
    let site = Site::open(Settings::default());
    for (offered, connects) in [("wellhead, wellhead.key.K", true), ("wellhead.key.K", false)] {
        let stream = TcpStream::connect(site.address).await.unwrap();
        let mut request = format!("ws://{}/", site.address).into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", offered.parse().unwrap());
        let connected = client_async(request, stream).await;
        assert_eq!(connected.is_ok(), connects, "{offered}");
    }
}

#[tokio::test]
async fn upgrades_are_judged() {
    let site = Site::open(Settings {
        cors_origins: vec!["https://app.example".into()],
        ..Settings::default()
    });
    let base = upgrade("/", "");
    let cases = [
        (base.replace("version: 13", "version: 8"), 426),
        (base.replace("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""), 400),
        (base.replace("connection: Upgrade", "connection: keep-alive"), 400),
        (base.replace("HTTP/1.1", "HTTP/1.0"), 400),
        (upgrade("/", "origin: https://evil.example\r\n"), 403),
        (upgrade("/a/b", ""), 404),
        (upgrade("/", "origin: https://app.example\r\n"), 101),
        (upgrade("/1?archive=true", "sec-websocket-extensions: permessage-deflate\r\n"), 101),
    ];
    for (request, status) in cases {
        let mut wire = site.connect().await;
        let reply = wire.ask(&request).await;
        assert_eq!(reply.status, status, "{request}");
        if status != 101 {
            assert_eq!(reply.json()["error"]["code"], -32600);
        }
        assert_eq!(
            reply.header("sec-websocket-version"),
            (status == 426).then_some("13"),
            "{request}"
        );
    }
    // A field that asks for an upgrade makes no other request one.
    let mut wire = site.connect().await;
    let reply = wire.exchange("/", "upgrade: websocket\r\nconnection: upgrade\r\n", b"{}").await;
    assert_eq!((reply.status, &reply.body[..]), (200, &b"{}"[..]));
}

#[tokio::test]
async fn what_breaks_the_protocol_is_closed_with_its_code() {
    let site = Site::open(Settings { body_bytes_max: 1000, ..Settings::default() });
    for (bytes, code, end) in [
        (b"\x81\x01a".to_vec(), 1002_u16, WsEnd::Protocol),
        (frame(0xc1, b"a"), 1002, WsEnd::Protocol),
        (frame(0x81, b"\xff"), 1007, WsEnd::InvalidText),
        (b"\x81\xfe\x03\xe9\0\0\0\0".to_vec(), 1009, WsEnd::TooBig),
        (frame(0x88, b"\x03\xe8bye"), 1000, WsEnd::Client),
        (frame(0x88, b"\x03\xed"), 1002, WsEnd::Protocol),
    ] {
        let before = ended(&site, end);
        let mut wire = site.connect().await;
        wire.send(upgrade("/", "")).await;
        assert_eq!(wire.reply().await.status, 101);
        // A call under way is dropped with the connection.
        wire.send(&bytes).await;
        let head = wire.bytes(4).await;
        assert_eq!((head[0], u16::from_be_bytes([head[2], head[3]])), (0x88, code), "{bytes:?}");
        wire.bytes(usize::from(head[1]) - 2).await;
        wire.is_closed().await;
        assert_eq!(ended(&site, end), before + 1);
    }
}

#[tokio::test]
async fn a_handler_that_panics_costs_one_answer() {
    let site = Site::open(Settings::default());
    let mut client = upgraded(&site, "/panic").await;
    for _ in 0..2 {
        client.send(Message::text("{}")).await.unwrap();
        let answer: serde_json::Value = serde_json::from_str(&text(&mut client).await).unwrap();
        assert_eq!(answer["error"]["code"], -32603);
    }
    assert_eq!(site.server.counts().answered(500), 2);
}

#[tokio::test]
async fn a_pong_overtakes_answers_that_wait() {
    let site = Site::open(Settings::default());
    let mut client = upgraded(&site, "/wait").await;
    client.send(Message::text("{}")).await.unwrap();
    client.send(Message::Ping("now".into())).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("now".into()));
    site.handler.gate.add_permits(1);
    assert_eq!(text(&mut client).await, "{}");
}

#[tokio::test]
async fn a_silent_client_is_pinged_and_then_dropped() {
    let settings =
        Settings { silence_ping: SOON, silence_timeout: 4 * SOON, ..Settings::default() };
    let site = Site::open(settings);
    // Answers pings while it is polled.
    let mut client = upgraded(&site, "/").await;
    for _ in 0..8 {
        let message = tokio::time::timeout(GUARD, client.next()).await.expect("a ping");
        assert_eq!(message.unwrap().unwrap(), Message::Ping("".into()));
    }
    client.close(None).await.unwrap();
    site.until("it is closed", |counts| counts.connections_open == 0).await;
    assert_eq!(site.server.counts().idle_closed_total, 0);
    let mut mute = site.connect().await;
    mute.send(upgrade("/", "")).await;
    assert_eq!(mute.reply().await.status, 101);
    site.until("it is dropped", |counts| counts.connections_open == 0).await;
    assert_eq!(site.server.counts().idle_closed_total, 1);
}

#[tokio::test]
async fn the_drain_closes_after_the_answers_under_way() {
    let site = Site::open(Settings::default());
    let mut idle = upgraded(&site, "/").await;
    let mut busy = upgraded(&site, "/wait").await;
    busy.send(Message::text("{}")).await.unwrap();
    site.until_arrived(1).await;
    site.shutdown.begin();
    assert_eq!(closed(&mut idle).await, 1012);
    drop(idle);
    site.until("one is left", |counts| counts.connections_open == 1).await;
    site.handler.gate.add_permits(1);
    assert_eq!(text(&mut busy).await, "{}");
    assert_eq!(closed(&mut busy).await, 1012);
    drop(busy);
    let server = site.server.clone();
    assert_eq!(site.drained().await.dropped, 0);
    assert_eq!(server.counts().websocket_ended[WsEnd::Restart as usize], 2);
}

#[tokio::test]
async fn a_client_that_leaves_abandons_its_requests() {
    let site = Site::open(Settings::default());
    for leaves in ["cut", "close"] {
        let mut client = upgraded(&site, "/wait").await;
        let before = site.handler.abandoned.load(Ordering::Relaxed);
        client.send(Message::text("{}")).await.unwrap();
        site.until_arrived(before + 1).await;
        if leaves == "close" {
            let frame = CloseFrame { code: CloseCode::Away, reason: "".into() };
            client.close(Some(frame)).await.unwrap();
        } else {
            drop(client);
        }
        let abandoned = || site.handler.abandoned.load(Ordering::Relaxed);
        site.until("it is abandoned", |_| abandoned() == before + 1).await;
    }
    site.until("both are gone", |counts| counts.connections_open == 0).await;
    assert_eq!((ended(&site, WsEnd::Lost), ended(&site, WsEnd::Client)), (1, 1));
    assert_eq!(site.server.counts().answered(499), 2);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let site = Site::open(Settings { write_timeout: SOON, ..Settings::default() });
    let mut client = upgraded(&site, "/endless").await;
    client.send(Message::text("{}")).await.unwrap();
    site.until("it is dropped", |counts| counts.slow_reader_total == 1).await;
    site.until("it is gone", |counts| counts.connections_open == 0).await;
    let counts = site.server.counts();
    assert_eq!((counts.requests_open, counts.answers_waiting_bytes), (0, 0));
}

#[tokio::test]
async fn what_a_handler_holds_is_dropped_when_its_answer_is_sent_or_its_client_is_gone() {
    const HEAD_BYTES: usize = 10;
    let site = Site::open(Settings::default());
    let ask = async || {
        let mut wire = site.connect().await;
        wire.send([upgrade("/endless", "").as_bytes(), &frame(0x81, b"{}")].concat()).await;
        assert_eq!(wire.reply().await.status, 101);
        wire.bytes(HEAD_BYTES).await;
        wire
    };
    let read = async |wire: &mut Wire| drop(wire.bytes(ENDLESS_BYTES).await);
    site.held_until_sent(ask, read).await;
}

#[tokio::test]
async fn unfinished_messages_are_bounded_in_bytes_and_time() {
    let settings = Settings {
        body_bytes_max: 100_000,
        bodies_bytes_max: 100_000,
        shares: false,
        body_timeout: 10 * SOON,
        ..Settings::default()
    };
    let site = Site::open(settings);
    // The first 60,000 bytes of a message of 90,000.
    let begun = [&b"\x82\xff\0\0\0\0\0\x01\x5f\x90\0\0\0\0"[..], &[b' '; 60_000]].concat();
    let mut first = site.connect().await;
    first.send([upgrade("/", "").as_bytes(), &begun].concat()).await;
    assert_eq!(first.reply().await.status, 101);
    site.until("its bytes are counted", |counts| counts.bodies_bytes >= 60_000).await;
    let mut second = site.connect().await;
    second.send([upgrade("/", "").as_bytes(), &begun].concat()).await;
    assert_eq!(second.reply().await.status, 101);
    let head = second.bytes(4).await;
    assert_eq!((head[0], u16::from_be_bytes([head[2], head[3]])), (0x88, 1013));
    site.until("the first is too slow", |counts| counts.slow_head_total == 1).await;
    site.until("both are gone", |counts| counts.connections_open == 0).await;
    let counts = site.server.counts();
    assert_eq!((counts.bodies_bytes, counts.requests_open), (0, 0));
    assert_eq!(ended(&site, WsEnd::Overload), 1);
}

#[tokio::test]
async fn a_displaced_connection_is_told_so() {
    let site = Site::open(Settings { connections_max: 2, ..Settings::default() });
    let mut clients = Vec::new();
    for _ in 0..2 {
        clients.push(upgraded(&site, "/").await);
    }
    let mut other = site.connect_from([127, 0, 0, 2]).await;
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    assert_eq!(site.server.counts().displaced_total, 1);
    let closes = async {
        futures_util::future::select_all(clients.iter_mut().map(|client| Box::pin(closed(client))))
            .await
            .0
    };
    assert_eq!(closes.await, 1013);
}
