//! Large answers: who is blamed when one is cut, and how many flow at a time.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::Stage;
use wellhead_dispatch::{Lane, now};
use wellhead_transport::{
    BoxFuture, Exchange, ExchangeFuture, Pieces, Rest, Sent, Timing, Transport, TransportError,
    TransportErrorKind, WireReply,
};
use wellhead_upstream::Condition;

const SECOND: Duration = Duration::from_secs(1);

/// How an answer goes on after its beginning.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Whole,
    Cut,
    Stall,
    NoBrace,
}

#[derive(Debug)]
struct Large(Ending);

#[derive(Debug)]
struct Stalled;

impl Rest for Stalled {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(std::future::pending())
    }
}

impl Transport for Large {
    fn exchange(&self, _: Exchange) -> ExchangeFuture<'_> {
        let ending = self.0;
        Box::pin(async move {
            let beginning = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"#, "x".repeat(99));
            let cut = TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, "cut");
            let rest: Box<dyn Rest> = match ending {
                Ending::Whole => Box::new(Pieces::of("yy\"}".into())),
                Ending::Cut => Box::new(Pieces::of("yy".into()).then_fail(cut)),
                Ending::NoBrace => Box::new(Pieces::of("yy".into())),
                Ending::Stall => Box::new(Stalled),
            };
            let reply = WireReply::whole(200, beginning, Timing::default());
            Ok(WireReply { rest: Some(rest), ..reply })
        })
    }
}

/// A stage of one upstream whose answers all flow, two at a time.
fn stage(ending: Ending) -> Stage {
    let mut stage = Stage::new("ok");
    stage.may_flow = true;
    let transport: Arc<dyn Transport> = Arc::new(Large(ending));
    stage.lane = Lane::new(vec![transport], 1).flowing([2]);
    stage
}

async fn flow(stage: &Stage) -> Box<dyn Rest> {
    stage.run("eth_getCode").await.result.expect("a beginning").rest.expect("it flows")
}

/// Reads to the end; whether that was good.
async fn read(mut rest: Box<dyn Rest>, pause: Duration) -> bool {
    loop {
        match rest.next().await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(_)) => tokio::time::sleep(pause).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_cut_or_stalls_is_a_failure_of_its_upstream() {
    for ending in [Ending::Cut, Ending::Stall, Ending::NoBrace] {
        let stage = stage(ending);
        for told in 0..3 {
            assert_eq!(stage.upstream(0).condition(now()), Condition::Ready, "{ending:?} {told}");
            assert!(!read(flow(&stage).await, Duration::ZERO).await);
        }
        // Three beginnings were good, and are no reason to go on with it.
        assert_eq!(stage.upstream(0).condition(now()), Condition::Resting, "{ending:?}");
        assert_eq!(stage.upstream(0).totals(), (3, 3), "{ending:?}");
        assert!(stage.upstream(0).last_problem().is_some());
        assert_eq!(stage.upstream(0).in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_to_its_end_is_a_success() {
    let stage = stage(Ending::Whole);
    for _ in 0..9 {
        assert!(read(flow(&stage).await, Duration::ZERO).await);
    }
    assert_eq!(stage.upstream(0).totals(), (9, 0));
    assert_eq!(stage.upstream(0).in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_blames_an_upstream_for_a_client() {
    let stage = stage(Ending::Cut);
    for _ in 0..4 {
        // It went away.
        drop(flow(&stage).await);
        // It took so long that the upstream hung up.
        assert!(!read(flow(&stage).await, SECOND * 6).await);
    }
    assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
    assert_eq!(stage.upstream(0).totals(), (8, 0));
}

#[tokio::test(start_paused = true)]
async fn so_many_flow_at_a_time_and_the_others_are_read_whole() {
    let stage = stage(Ending::Whole);
    let (first, second) = (flow(&stage).await, flow(&stage).await);
    let served = stage.run("eth_getCode").await.result.expect("an answer");
    assert!(served.rest.is_none(), "read whole");
    let wellhead_upstream::Payload::Result(result) = served.payload else { panic!("a result") };
    assert_eq!(result, format!("\"{}yy\"", "x".repeat(99)));
    drop(first);
    let third = flow(&stage).await;
    drop((second, third));
    // Whole, but within the bound on what is held.
    let mut stage = stage;
    stage.bounds.answer_bytes_max = 101;
    let held = (flow(&stage).await, flow(&stage).await);
    assert!(stage.run("eth_getCode").await.result.is_err());
    drop(held);
}
