//! Every bound is an answer or an end, never a wait; slow clients are let go.

use std::time::Duration;

use crate::site::{ENDLESS_BYTES, SOON, Site};
use crate::wire::Wire;
use wellhead_server::{HttpRefusal, Settings};

#[tokio::test]
async fn an_announced_body_that_is_too_large_is_not_read() {
    let site = Site::open(Settings { body_bytes_max: 100, ..Settings::default() });
    let mut wire = site.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 101\r\n\r\n";
    let reply = wire.ask(head).await;
    reply.is_refusal(413, -32600);
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(reply.json()["error"]["message"].as_str().unwrap().contains("100 bytes"));
    wire.is_closed().await;
    let mut wire = site.connect().await;
    assert_eq!(wire.exchange("/", "", &[b' '; 100]).await.status, 200);
}

/// The client sends all of it before it reads: the refusal must not be lost in a reset.
#[tokio::test]
async fn a_client_that_sends_on_still_reads_its_refusal() {
    let site = Site::open(Settings { body_bytes_max: 100, ..Settings::default() });
    let mut wire = site.connect().await;
    wire.post("/", "", &vec![b' '; 8 * 1024 * 1024]).await;
    wire.reply().await.is_refusal(413, -32600);
}

/// Also of an answer that is compressed, whose bytes are others than the handler's.
#[tokio::test]
async fn what_a_handler_holds_is_dropped_when_its_answer_is_sent_or_its_client_is_gone() {
    let site = Site::open(Settings::default());
    let ask = async || {
        let mut wire = site.connect().await;
        wire.post("/endless", "", b"{}").await;
        wire.bytes(1).await;
        wire
    };
    let read = async |wire: &mut Wire| drop(wire.bytes(ENDLESS_BYTES).await);
    site.held_until_sent(ask, read).await;
    let mut wire = site.connect().await;
    wire.exchange("/big", "accept-encoding: gzip\r\n", b"{}").await;
    site.until_held(0).await;
}

#[tokio::test]
async fn a_chunked_body_is_counted_as_it_comes() {
    let site = Site::open(Settings { body_bytes_max: 100, ..Settings::default() });
    let mut wire = site.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await;
    wire.send(format!("33\r\n{0}\r\n33\r\n{0}\r\n", "x".repeat(0x33))).await;
    wire.reply().await.is_refusal(413, -32600);
    wire.is_closed().await;
    assert_eq!(site.server.counts().refused(HttpRefusal::BodyTooLarge), 1);
}

#[tokio::test]
async fn bodies_under_way_are_bounded_together() {
    let settings =
        Settings { body_bytes_max: 40_000, bodies_bytes_max: 50_000, ..Settings::default() };
    let site = Site::open(settings);
    let body = vec![b' '; 40_000];
    let mut first = site.connect().await;
    first.post("/wait", "", &body).await;
    site.until_arrived(1).await;
    assert_eq!(site.server.counts().bodies_bytes, 40_000);
    let mut second = site.connect().await;
    let reply = second.exchange("/", "", &body).await;
    reply.is_refusal(503, -32005);
    assert_eq!(reply.header("retry-after"), Some("1"));
    // Small bodies still pass.
    let mut third = site.connect().await;
    assert_eq!(third.exchange("/", "", b"{}").await.status, 200);
    site.handler.gate.add_permits(1);
    assert_eq!(first.reply().await.body.len(), 40_000);
    site.until("the bytes are given back", |counts| counts.bodies_bytes == 0).await;
    assert_eq!(third.exchange("/", "", &body).await.status, 200);
}

#[tokio::test]
async fn requests_under_way_are_bounded() {
    let site = Site::open(Settings { requests_max: 1, ..Settings::default() });
    let mut first = site.connect().await;
    first.post("/wait", "", b"{}").await;
    site.until_arrived(1).await;
    let mut second = site.connect().await;
    second.exchange("/", "", b"{}").await.is_refusal(503, -32005);
    site.handler.gate.add_permits(1);
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(second.exchange("/", "", b"{}").await.status, 200);
}

#[tokio::test]
async fn connections_of_one_address_are_bounded_and_others_have_their_own() {
    let site = Site::open(Settings { connections_per_peer_max: Some(1), ..Settings::default() });
    let first = site.connect().await;
    site.until("it has a seat", |counts| counts.connections_open == 1).await;
    let mut second = site.connect().await;
    second.post("/", "", b"{}").await;
    let reply = second.reply().await;
    reply.is_refusal(429, -32005);
    assert_eq!(reply.header("retry-after"), Some("1"));
    second.is_closed().await;
    let counts = site.server.counts();
    assert_eq!((counts.refused(HttpRefusal::PeerFull), counts.connections_open), (1, 1));
    // Another address of this machine is another peer.
    let mut other = site.connect_from([127, 0, 0, 2]).await;
    assert_eq!(other.exchange("/", "", b"{}").await.status, 200);
    drop(first);
    site.until("its seat is given back", |counts| counts.connections_open == 1).await;
    let mut third = site.connect().await;
    assert_eq!(third.exchange("/", "", b"{}").await.status, 200);
}

#[tokio::test]
async fn connections_are_bounded_with_an_answer() {
    let site = Site::open(Settings { connections_max: 2, shares: false, ..Settings::default() });
    let first = site.connect().await;
    let _second = site.connect().await;
    site.until("both have a seat", |counts| counts.connections_open == 2).await;
    let mut third = site.connect().await;
    third.post("/", "", b"{}").await;
    let reply = third.reply().await;
    reply.is_refusal(503, -32005);
    assert_eq!(reply.header("retry-after"), Some("1"));
    third.is_closed().await;
    assert_eq!(site.server.counts().refused(HttpRefusal::ConnectionsFull), 1);
    drop(first);
    site.until("a seat is free", |counts| counts.connections_open == 1).await;
    let mut fourth = site.connect().await;
    assert_eq!(fourth.exchange("/", "", b"{}").await.status, 200);
}

#[tokio::test]
async fn a_head_that_is_too_long_is_431() {
    let site = Site::open(Settings { head_bytes_max: 1024, ..Settings::default() });
    let many: String = (0..120).map(|n| format!("x{n}: y\r\n")).collect();
    for head in [
        format!("POST / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(1024)),
        format!("POST / HTTP/1.1\r\nhost: a\r\n{many}\r\n"),
        // Without an end: bounded by the buffer.
        format!("POST / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(200_000)),
    ] {
        let mut wire = site.connect().await;
        wire.send(&head).await;
        assert_eq!(wire.reply().await.status, 431);
        wire.is_closed().await;
    }
    let mut wire = site.connect().await;
    wire.send(format!("POST /{} HTTP/1.1\r\nhost: a\r\n\r\n", "a".repeat(500))).await;
    wire.reply().await.is_refusal(404, -32600);
}

#[tokio::test]
async fn a_slow_head_is_dropped_without_an_answer() {
    let site = Site::open(Settings { head_timeout: SOON, ..Settings::default() });
    for beginning in ["", "P", "POST / HTTP/1.1\r\nhost: a\r\n", "PRI * HTTP/2.0\r\n"] {
        let mut wire = site.connect().await;
        wire.send(beginning).await;
        wire.is_closed().await;
    }
    site.until("they are counted", |counts| counts.slow_head_total == 4).await;
}

#[tokio::test]
async fn a_slow_second_head_is_dropped_too() {
    let site = Site::open(Settings { head_timeout: SOON, ..Settings::default() });
    let mut wire = site.connect().await;
    assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
    wire.send("POST /").await;
    wire.is_closed().await;
    site.until("it is counted", |counts| counts.slow_head_total == 1).await;
}

#[tokio::test]
async fn a_slow_body_is_408() {
    let site = Site::open(Settings { body_timeout: SOON, ..Settings::default() });
    let mut wire = site.connect().await;
    wire.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{").await;
    let reply = wire.reply().await;
    reply.is_refusal(408, -32600);
    assert_eq!(reply.header("connection"), Some("close"));
    wire.is_closed().await;
    assert_eq!(site.server.counts().refused(HttpRefusal::BodySlow), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let site = Site::open(Settings { idle_timeout: SOON, ..Settings::default() });
    let mut wire = site.connect().await;
    assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
    wire.is_closed().await;
    site.until("it is counted", |counts| counts.idle_closed_total == 1).await;
    assert_eq!(site.server.counts().slow_head_total, 0);
}

#[tokio::test]
async fn a_long_answer_is_not_idleness() {
    let settings = Settings {
        idle_timeout: SOON,
        head_timeout: SOON,
        body_timeout: SOON,
        ..Settings::default()
    };
    let site = Site::open(settings);
    let mut wire = site.connect().await;
    wire.post("/wait", "", b"{}").await;
    site.until_arrived(1).await;
    // Proves that nothing happens: five times the timeout passes, and the answer still comes.
    tokio::time::sleep(SOON * 5).await;
    site.handler.gate.add_permits(1);
    assert_eq!(wire.reply().await.body, b"{}");
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let site = Site::open(Settings { write_timeout: SOON, ..Settings::default() });
    let mut wire = site.connect().await;
    wire.post("/endless", "", b"{}").await;
    site.until("it is dropped", |counts| counts.slow_reader_total == 1).await;
    site.until("nothing is left of it", |counts| counts.connections_open == 0).await;
    assert_eq!(site.server.counts().requests_open, 0);
}

#[tokio::test]
async fn a_client_that_reads_gets_all_of_a_large_answer() {
    let site =
        Site::open(Settings { write_timeout: Duration::from_secs(5), ..Settings::default() });
    let mut wire = site.connect().await;
    let reply = wire.exchange("/endless", "", b"{}").await;
    assert_eq!(reply.body.len(), 64 * 1024 * 1024);
    assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
}
