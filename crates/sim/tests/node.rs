//! Envelopes, batches, faults, limits and the in-process transport.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use wellhead_sim::node::{LatencyDial, NodeReply, WireEnding};
use wellhead_sim::traffic::Traffic;
use wellhead_sim::{Fault, SimNode, SimTransport, World, WorldConfig};
use wellhead_transport::{Exchange, Sent, Transport, TransportErrorKind};

const BLOCK_NUMBER: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber"}"#;

fn node() -> Arc<SimNode> {
    SimNode::new("node", World::new(WorldConfig::seeded(7)))
}

fn text(reply: &NodeReply) -> &str {
    std::str::from_utf8(&reply.body).unwrap()
}

#[test]
fn envelopes() {
    let node = node();
    let check = |body: &str, expected: &str| {
        let reply = node.answer(body.as_bytes());
        assert_eq!((reply.status, text(&reply).trim_end()), (200, expected), "{body}");
    };
    let answered = |id: &str, params: &str| {
        check(
            &format!(r#"{{"id":{id},"method":"eth_blockNumber"{params}}}"#),
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x10"}}"#),
        );
    };
    answered("1", r#","jsonrpc":"2.0","params":[]"#);
    answered("12345678901234567890123", "");
    answered(r#""a\u0041""#, r#","params":null"#);
    answered("null", "");
    check(r#"{"method":"eth_blockNumber"}"#, "");
    let refused = |body: &str, id: &str, code: i64, message: &str| {
        let error = format!(r#"{{"code":{code},"message":"{message}"}}"#);
        check(body, &format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    };
    refused("5", "null", -32600, "invalid request");
    refused(r#"{"id":[1],"method":5}"#, "null", -32600, "invalid request");
    refused(r#"{"id":7}"#, "7", -32600, "invalid request");
    refused("{", "null", -32700, "parse error");
    refused("[]", "null", -32600, "empty batch");
    check(
        r#"[{"id":1,"method":"net_version"},{"method":"net_version"},7,{"id":"x","method":"no"}]"#,
        concat!(
            r#"[{"jsonrpc":"2.0","id":1,"result":"1337"},"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}},"#,
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"the method no does not exist/is not available"}}]"#
        ),
    );
    check(r#"[{"method":"net_version"}]"#, "");
    let many = format!("[{}]", vec![r#"{"id":1,"method":"net_version"}"#; 1001].join(","));
    refused(&many, "null", -32600, "batch too large");
}

#[test]
fn faults_look_as_they_do_in_life() {
    let node = node();
    let check = |fault: Fault, status: u16, ending: WireEnding, has: &str| {
        node.turn(|dials| dials.fault = Some(fault));
        let reply = node.answer(BLOCK_NUMBER);
        assert_eq!((reply.status, reply.ending), (status, ending), "{fault:?}");
        assert!(text(&reply).contains(has), "{fault:?}: {}", text(&reply));
    };
    check(Fault::Down, 0, WireEnding::Refused, "");
    check(Fault::Hang, 0, WireEnding::Silence, "");
    check(Fault::Reset, 0, WireEnding::Reset, "");
    check(Fault::Truncated, 200, WireEnding::Cut, "\"result\":\"0x10\"");
    check(Fault::Status(500), 500, WireEnding::Whole, "Internal Server Error");
    check(Fault::Html(502), 502, WireEnding::Whole, "<title>502 Bad Gateway</title>");
    check(Fault::TooMany { retry_after: None }, 429, WireEnding::Whole, "-32005");
    check(Fault::TooManyIn200, 200, WireEnding::Whole, "\"id\":1,\"error\":{\"code\":-32005");
    check(Fault::Internal, 200, WireEnding::Whole, "-32603");
    let patient = Fault::TooMany { retry_after: Some(Duration::from_secs(7)) };
    node.turn(|dials| dials.fault = Some(patient));
    assert_eq!(node.answer(BLOCK_NUMBER).retry_after(), Some(Duration::from_secs(7)));
    node.turn(|dials| dials.fault = None);
    assert!(text(&node.answer(BLOCK_NUMBER)).contains("0x10"));
}

#[test]
fn chance_follows_from_the_seed() {
    let play = |id: &str| -> Vec<(u16, Duration, WireEnding)> {
        let node = SimNode::new(id, World::new(WorldConfig::seeded(7)));
        node.turn(|dials| {
            dials.error_percent = 30.0;
            dials.latency = LatencyDial {
                base: Duration::from_millis(5),
                jitter: Duration::from_millis(10),
                tail_percent: 10.0,
                tail: Duration::from_secs(1),
            };
        });
        let replies = (0..200).map(|_| node.answer(BLOCK_NUMBER));
        replies.map(|reply| (reply.status, reply.delay, reply.ending)).collect()
    };
    let once = play("a");
    assert_eq!(once, play("a"));
    assert_ne!(once, play("b"));
    let wrong = once.iter().filter(|(status, ..)| *status != 200).count();
    let slow = once.iter().filter(|(_, delay, _)| *delay >= Duration::from_secs(1)).count();
    // A third of the faults is an internal error with status 200.
    assert!((20..70).contains(&wrong), "{wrong} of 200 went wrong");
    assert!((8..40).contains(&slow), "{slow} of 200 were slow");
}

#[test]
fn calls_are_counted() {
    let node = node();
    node.answer(BLOCK_NUMBER);
    let call = r#"{"id":1,"method":"eth_chainId"}"#;
    node.answer(format!("[{call},{call}]").as_bytes());
    assert_eq!(node.calls(), 3);
}

#[test]
fn traffic_is_seeded_and_almost_always_answered() {
    let world = World::new(WorldConfig { history_blocks: 80, ..WorldConfig::seeded(7) });
    let node = SimNode::new("node", Arc::clone(&world));
    let calls = |seed| Traffic::new(seed, world.known()).take(1000).collect::<Vec<_>>();
    assert_eq!(calls(1), calls(1));
    assert_ne!(calls(1), calls(2));
    let mut reverted = 0;
    for call in calls(3) {
        match node.ask(call.method, Some(&call.params)) {
            Ok(_) => {}
            Err(error) if error.code == 3 => reverted += 1,
            Err(error) => panic!("{call:?}: {error:?}"),
        }
    }
    assert!((1..100).contains(&reverted), "{reverted} of 1000 reverted");
    let methods: std::collections::BTreeSet<_> = calls(3).iter().map(|call| call.method).collect();
    assert!(methods.len() >= 16, "{methods:?}");
    let body: Value = serde_json::from_slice(&calls(1)[0].body(9)).unwrap();
    assert_eq!((&body["id"], &body["jsonrpc"]), (&json!(9), &json!("2.0")));
}

fn exchange() -> Exchange {
    let deadline = tokio::time::Instant::now().into_std() + Duration::from_secs(60);
    Exchange {
        body: Bytes::from_static(BLOCK_NUMBER),
        deadline,
        whole_max: usize::MAX,
        bulky: false,
        trace: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_transport_takes_the_simulated_time() {
    let node = node();
    let delay = Duration::from_millis(1500);
    node.turn(|dials| dials.latency = LatencyDial::even(delay, Duration::ZERO));
    let transport = SimTransport::new(Arc::clone(&node));
    let started = tokio::time::Instant::now();
    let reply = transport.exchange(exchange()).await.unwrap();
    assert_eq!(started.elapsed(), delay);
    assert_eq!(reply.timing.total, delay);
    assert_eq!(reply.status, 200);
    assert_eq!(&reply.body[..], b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"0x10\"}\n");
}

#[tokio::test(start_paused = true)]
async fn the_transport_fails_as_a_network_does() {
    let node = node();
    let transport = SimTransport::new(Arc::clone(&node));
    for (fault, kind, sent) in [
        (Fault::Down, TransportErrorKind::Connect, Sent::No),
        (Fault::Reset, TransportErrorKind::Closed, Sent::Maybe),
        (Fault::Truncated, TransportErrorKind::Truncated, Sent::Maybe),
    ] {
        node.turn(|dials| dials.fault = Some(fault));
        let error = transport.exchange(exchange()).await.unwrap_err();
        assert_eq!((error.kind, error.sent), (kind, sent), "{fault:?}");
    }
    node.turn(|dials| {
        dials.fault = Some(Fault::TooMany { retry_after: Some(Duration::from_secs(3)) });
    });
    let reply = transport.exchange(exchange()).await.unwrap();
    assert_eq!((reply.status, reply.retry_after), (429, Some(Duration::from_secs(3))));
    node.turn(|dials| dials.fault = Some(Fault::Hang));
    let hours = Duration::from_secs(10 * 3600);
    assert!(tokio::time::timeout(hours, transport.exchange(exchange())).await.is_err());
}
