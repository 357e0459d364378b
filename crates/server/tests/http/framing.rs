//! HTTP as it may arrive: in pieces, at once, wrong, or meant to deceive.

use std::sync::atomic::Ordering;

use crate::site::Site;
use wellhead_server::{HttpRefusal, Settings};

fn site() -> Site {
    Site::open(Settings::default())
}

#[tokio::test]
async fn a_call_comes_back_with_length_and_type() {
    let site = site();
    let mut wire = site.connect().await;
    let reply = wire.exchange("/", "", b"{\"id\":1}").await;
    assert_eq!((reply.status, reply.body.as_slice()), (200, &b"{\"id\":1}"[..]));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("content-length"), Some("8"));
    for name in ["x-wellhead-upstream", "x-wellhead-attempts", "x-wellhead-cache", "vary"] {
        assert_eq!(reply.header(name), None, "{name}");
    }
    assert_eq!(wire.exchange("/ethereum", "", b"{}").await.json(), "ethereum");
    assert_eq!(wire.exchange("/arbitrum%2Done/?x", "", b"{}").await.json(), "arbitrum-one");
}

#[tokio::test]
async fn a_call_may_arrive_byte_by_byte() {
    let site = site();
    let mut wire = site.connect().await;
    let call = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n{  }";
    for _ in 0..2 {
        for byte in call.as_bytes() {
            wire.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(wire.reply().await.body, b"{  }");
    }
}

#[tokio::test]
async fn a_chunked_call_is_put_together_and_the_connection_goes_on() {
    let site = site();
    let mut wire = site.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    for _ in 0..2 {
        for piece in [head, "1\r\n[\r\n", "3;x=y\r\n1,2\r\n", "1\r\n]\r\n", "0\r\n\r\n"] {
            wire.send(piece).await;
            tokio::task::yield_now().await;
        }
        let reply = wire.reply().await;
        assert_eq!(reply.body, b"[1,2]");
        assert_eq!(reply.header("connection"), None);
    }
    let at_once = format!("{head}2\r\n{{}}\r\n0\r\nx: y\r\n\r\n");
    wire.send(at_once.repeat(3)).await;
    for _ in 0..3 {
        assert_eq!(wire.reply().await.body, b"{}");
    }
}

#[tokio::test]
async fn chunks_that_make_no_sense_are_refused() {
    let site = site();
    for body in [
        "x\r\n",
        "1 \r\na\r\n0\r\n\r\n",
        "1\t;x\r\n",
        "1\na\n0\n\n",
        "3\r\nabcd\r\n",
        "11111111111111111\r\n",
    ] {
        let mut wire = site.connect().await;
        let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
        wire.ask(&format!("{head}{body}")).await.is_refusal(400, -32700);
        wire.is_closed().await;
    }
}

#[tokio::test]
async fn pipelined_calls_are_answered_in_order() {
    let site = site();
    let mut wire = site.connect().await;
    let calls: String = (0..40)
        .map(|n| format!("POST /c{n} HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{{}}"))
        .collect();
    wire.send(&calls).await;
    for n in 0..40 {
        assert_eq!(wire.reply().await.json(), format!("c{n}"));
    }
}

#[tokio::test]
async fn a_client_that_expects_100_gets_it_only_when_its_body_is_wanted() {
    let site = Site::open(Settings { body_bytes_max: 10, ..Settings::default() });
    let mut wire = site.connect().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: ";
    wire.send(format!("{head}2\r\n\r\n")).await;
    assert_eq!(wire.any_reply(false).await.unwrap().status, 100);
    wire.send("{}").await;
    assert_eq!(wire.reply().await.status, 200);
    wire.send(format!("{head}11\r\n\r\n")).await;
    wire.any_reply(false).await.unwrap().is_refusal(413, -32600);
    wire.is_closed().await;
}

#[tokio::test]
async fn an_http_1_0_client_is_served() {
    let site = site();
    let mut wire = site.connect().await;
    let reply = wire.ask("POST / HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!(reply.body, b"{}");
    wire.is_closed().await;
}

#[tokio::test]
async fn an_empty_answer_is_204() {
    let site = site();
    let mut wire = site.connect().await;
    let reply = wire.exchange("/empty", "", b"[]").await;
    assert_eq!((reply.status, reply.header("content-type")), (204, None));
    assert_eq!(wire.exchange("/", "", b"1").await.status, 200);
}

#[tokio::test]
async fn answers_carry_what_the_handler_says() {
    let site = site();
    let mut wire = site.connect().await;
    let reply = wire.exchange("/full", "", b"{}").await;
    assert_eq!(reply.status, 429);
    for (name, value) in [
        ("x-wellhead-upstream", Some("geth-a")),
        ("x-wellhead-attempts", Some("12")),
        ("x-wellhead-cache", Some("miss")),
        ("x-wellhead-warning", Some("logs-doubted")),
        ("retry-after", Some("2")),
        ("x-wellhead-trail", None),
        ("x-wellhead-block", None),
    ] {
        assert_eq!(reply.header(name), value, "{name}");
    }
    let reply = wire.exchange("/full", "x-wellhead-trail: 1\r\n", b"{}").await;
    assert_eq!(reply.header("x-wellhead-trail"), Some("geth-a: throttled"));
    for (known, told) in
        [("0", "1"), ("23000000", "23000001"), ("18446744073709551614", "18446744073709551615")]
    {
        let field = format!("x-wellhead-block: {known}\r\n");
        let reply = wire.exchange("/full", &field, b"{}").await;
        assert_eq!(reply.header("x-wellhead-block"), Some(told));
    }
    for bad in ["", "-1", "+1", "0x1", "1 2", "18446744073709551616"] {
        let reply = wire.exchange("/full", &format!("x-wellhead-block: {bad}\r\n"), b"{}").await;
        reply.is_refusal(400, -32600);
    }
}

#[tokio::test]
async fn no_value_breaks_out_of_its_header() {
    let site = site();
    let mut wire = site.connect().await;
    let reply = wire.exchange("/evil", "x-wellhead-trail: 1\r\n", b"{}").await;
    assert_eq!(reply.status, 500);
    assert_eq!(reply.header("set-cookie"), None);
    assert_eq!(reply.header("x-wellhead-upstream"), None);
    assert_eq!(reply.header("x-wellhead-cache"), None);
    assert_eq!(reply.header("x-wellhead-trail"), Some("c??set-cookie: c=1"));
}

#[tokio::test]
async fn refusals_are_json_rpc_shaped_and_leave_the_connection_usable() {
    let site = site();
    let mut wire = site.connect().await;
    wire.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.is_refusal(405, -32600);
    let reply = wire.ask("PUT /1 HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}").await;
    reply.is_refusal(405, -32600);
    assert_eq!(reply.header("allow"), Some("POST"));
    wire.exchange("/1/key", "", b"{}").await.is_refusal(404, -32600);
    let reply = wire.exchange("/", "content-encoding: br\r\n", b"{}").await;
    reply.is_refusal(415, -32600);
    assert_eq!(reply.header("accept-encoding"), Some("gzip"));
    let text =
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\n{}";
    wire.ask(text).await.is_refusal(415, -32600);
    wire.send("HEAD / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(wire.reply_to_head().await.status, 405);
    assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
    let counts = site.server.counts();
    let refused = |refusal| counts.refused(refusal);
    assert_eq!(refused(HttpRefusal::MethodNotAllowed), 3);
    assert_eq!(refused(HttpRefusal::NotFound), 1);
    assert_eq!(refused(HttpRefusal::NotJson), 1);
    assert_eq!(refused(HttpRefusal::UnsupportedEncoding), 1);
    assert_eq!(counts.accepted_total, 1);
}

#[tokio::test]
async fn a_panic_is_one_requests_misfortune() {
    let site = site();
    let mut wire = site.connect().await;
    wire.exchange("/panic", "", b"{}").await.is_refusal(500, -32603);
    assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
    site.until("the ticket is given back", |counts| counts.requests_open == 0).await;
}

/// What is not HTTP is answered 400 and reaches no handler.
#[tokio::test]
async fn what_is_not_http_ends_the_connection() {
    let site = site();
    for bad in [
        "hello\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{0}\u{5}\u{1}\u{0}\u{0}",
        "POST / HTTP/1.1\r\nbad header\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\n folded: x\r\n\r\n",
        "POST / HTTP/3.0\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost : a\r\n\r\n",
        "POST / HTTP/1.1\r\nx: a\0b\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a b\r\n\r\n",
        "POST / HTTP/1.1\nhost: a\n\n",
        "POST / HTTP/1.1\r\nhost: a\nx: y\r\n\r\n",
        "\nPOST / HTTP/1.1\r\nhost: a\r\n\r\n",
    ] {
        let mut wire = site.connect().await;
        wire.send(bad).await;
        wire.reply().await.is_refusal(400, -32600);
        wire.is_closed().await;
    }
    assert_eq!(site.handler.arrived.load(Ordering::Relaxed), 0);
    site.until("they are counted", |counts| counts.bad_http_total == 14).await;
}

/// Each has a second request hidden where a careless server would find one.
#[tokio::test]
async fn nothing_is_smuggled() {
    let site = site();
    let hidden = "POST /hidden HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}";
    let length = hidden.len() + 5;
    for head in [
        format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n\r\n0\r\n\r\n"),
        "content-length: 0\r\ncontent-length: 5\r\n\r\n".into(),
        "content-length: 0\r\ncontent-length: 0\r\n\r\n".into(),
        "content-length: 0, 5\r\n\r\n".into(),
        "content-length: +0\r\n\r\n".into(),
        "content-length: 00\r\n\r\n".into(),
        "content-length: 05\r\n\r\n".into(),
        "content-length: 0\n\r\n".into(),
        "content-length: 0\r\nhost: b\r\n\r\n".into(),
        "content-length: -1\r\n\r\n".into(),
        "content-length: 0x0\r\n\r\n".into(),
        "content-length: 99999999999999999999\r\n\r\n".into(),
        "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n".into(),
        "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n".into(),
        "transfer-encoding: identity\r\ncontent-length: 0\r\n\r\n".into(),
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n".into(),
    ] {
        let mut wire = site.connect().await;
        wire.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{head}{hidden}")).await;
        wire.reply().await.is_refusal(400, -32600);
        wire.is_closed().await;
        assert_eq!(site.handler.arrived.load(Ordering::Relaxed), 0, "{head:?}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let site = site();
    let mut wire = site.connect().await;
    wire.post("/wait", "", b"{}").await;
    site.until_arrived(1).await;
    drop(wire);
    site.until("the request is abandoned", |counts| counts.requests_open == 0).await;
    assert_eq!(site.handler.abandoned.load(Ordering::Relaxed), 1);
    site.until("the seat is free", |counts| counts.connections_open == 0).await;
}
