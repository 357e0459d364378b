//! What `reach` says where refusals come and go: accounts that are spent, firewalls, and nodes that
//! take turns behind one URL.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use wellhead_analyze::way::{Goal, Socket};
use wellhead_analyze::work::Ask;
use wellhead_sim::node::{Fault, SimNode};
use wellhead_sim::{FakeUpstream, World, WorldConfig};
use wellhead_telemetry::SecretUrl;

#[tokio::test(start_paused = true)]
async fn calls_over_websocket_are_recorded() {
    let node = SimNode::new("node", World::new(WorldConfig::default()));
    let upstream = FakeUpstream::start(node).unwrap();
    let goal = Goal::new("a".to_owned(), SecretUrl::parse(&upstream.url()).unwrap());
    let mut socket = Socket::open(&goal, None).await.unwrap();
    let done = socket.ask(&Ask::bare("eth_blockNumber")).await;
    let call = &done.call;
    assert_eq!((call.method.as_str(), call.class.as_str()), ("eth_blockNumber", "answer"));
    assert_eq!((call.protocol.as_deref(), call.status), (Some("ws"), None));
    assert!(call.bytes_out > 0 && call.bytes_in > 0 && done.begun <= done.ended);
    upstream.node().turn(|dials| dials.fault = Some(Fault::Down));
    let done = socket.ask(&Ask::bare("eth_blockNumber")).await;
    assert!(done.call.error.is_some() && done.call.class == "fault", "{:?}", done.call);
}
