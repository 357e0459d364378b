//! Methods that no upstream offers, alone and in batches.

mod support;

use std::time::Duration;

use support::{Stage, elapsed, error, text};
use wellhead_dispatch::now;

const METHOD: &str = "eth_protocolVersion";
const CALL: &str = r#"{"id":1,"method":"eth_protocolVersion","params":[]}"#;

/// Upstreams that refuse the method each time.
fn stage(upstreams: usize) -> Stage {
    let stage = Stage::upstreams(upstreams);
    for place in 0..upstreams {
        for _ in 0..9 {
            let words = "the method eth_protocolVersion does not exist/is not available";
            stage.peer(place).next(METHOD, error(-32601, words));
        }
    }
    stage
}

/// How often each upstream was asked for the method, alone or in a batch.
fn asked(stage: &Stage) -> Vec<usize> {
    let count = |body: &String| body.matches(METHOD).count();
    stage.peers[0].iter().map(|peer| peer.seen().iter().map(count).sum()).collect()
}

#[tokio::test(start_paused = true)]
async fn it_is_told_as_a_node_tells_it_and_no_upstream_is_asked_twice() {
    let stage = stage(3);
    let began = now();
    let answer = stage.send(None, CALL).await;
    assert_eq!(answer.status, 200);
    assert!(
        text(&answer)
            .contains(r#""code":-32601,"message":"the method eth_protocolVersion does not"#)
    );
    assert_eq!(asked(&stage), [1, 1, 1]);
    for _ in 0..5 {
        let answer = stage.send(None, CALL).await;
        let told = text(&answer);
        assert_eq!((answer.status, answer.attempts, answer.retry_after), (200, 0, None), "{told}");
        assert!(told.contains(r#""code":-32601,"message":"the method does not exist/is not "#));
        let left_out = "left_out=[a: does not offer the method; b: does not offer the method; ";
        assert!(answer.trail.expect("asked for").contains(left_out));
    }
    assert_eq!((asked(&stage), elapsed(began)), (vec![1, 1, 1], Duration::ZERO));
    // After a while it is asked for again.
    tokio::time::sleep(Duration::from_secs(300)).await;
    stage.send(None, CALL).await;
    assert_eq!(asked(&stage), [2, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn in_a_batch_it_is_told_as_soon() {
    for upstreams in [1, 2, 4] {
        let stage = stage(upstreams);
        let began = now();
        let item = |id: u64, method: &str| format!(r#"{{"id":{id},"method":"{method}"}}"#);
        for round in 0..3 {
            let methods = [METHOD, "eth_gasPrice", METHOD, "eth_syncing", METHOD];
            let items: Vec<_> = (1..).zip(methods).map(|(id, it)| item(id, it)).collect();
            let told = stage.ask(&format!("[{}]", items.join(","))).await;
            assert_eq!(told.matches(r#""code":-32601"#).count(), 3, "{told}");
            assert_eq!(told.matches(r#""result""#).count(), 2, "{told}");
            if round == 0 {
                let most = asked(&stage).into_iter().max();
                assert!(most <= Some(3), "{upstreams}: {:?}", asked(&stage));
            }
        }
        let before = asked(&stage);
        let told = stage.ask(&format!("[{0},{0}]", item(1, METHOD))).await;
        assert_eq!(told.matches(r#""code":-32601"#).count(), 2, "{told}");
        assert_eq!((asked(&stage), elapsed(began)), (before, Duration::ZERO), "{upstreams}");
    }
}
