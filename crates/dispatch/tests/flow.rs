//! Large answers: which upstream is blamed when one is cut, and how many flow at a time.

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::{ScriptedTransport, Stage, ms, step, verified};
use wellhead_dispatch::{ClientId, WorkerUpstreams, now};
use wellhead_kit::{Act, Arrival};
use wellhead_route::Roster;
use wellhead_transport::{
    BoxFuture, MemoryBudget, Pieces, Rest, Sent, Shortage, Timing, Transport, TransportError,
    TransportErrorKind, WireReply,
};
use wellhead_upstream::{Budget, BudgetTerms, Condition, MethodRules, Slot};

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
struct Stalled;

impl Rest for Stalled {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, TransportError>>> {
        Box::pin(std::future::pending())
    }
}

impl Ending {
    /// An answer of which the beginning comes at once and the rest as it is read.
    fn reply(self) -> WireReply {
        let beginning = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{}"#, "x".repeat(99));
        let cut = TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, "cut");
        let rest: Box<dyn Rest> = match self {
            Self::Whole => Box::new(Pieces::of("yy\"}".into())),
            Self::Cut => Box::new(Pieces::of("yy".into()).then_fail(cut)),
            Self::NoBrace => Box::new(Pieces::of("yy".into())),
            Self::Stall => Box::new(Stalled),
        };
        flowing(beginning, rest)
    }
}

fn flowing(beginning: String, rest: Box<dyn Rest>) -> WireReply {
    WireReply { rest: Some(rest), ..WireReply::whole(200, beginning, Timing::default()) }
}

/// A transport whose answers are large.
fn large(ending: Ending) -> Arc<dyn Transport> {
    let act = move |_: &Arrival| Act::run(async move { Ok(ending.reply()) });
    Arc::new(ScriptedTransport::new(act))
}

/// A stage of one upstream whose answers all flow, two at a time.
fn stage(ending: Ending) -> Stage {
    let mut stage = Stage::new("ok");
    stage.may_flow = true;
    stage.worker = WorkerUpstreams::new(vec![large(ending)], 1).flowing([2]);
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
        assert_eq!(stage.upstream(0).condition(now()), Condition::BreakerOpen, "{ending:?}");
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
async fn no_upstream_is_blamed_for_a_client() {
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

/// Of the calls that an upstream may be sent at once a quarter may be answers that flow, and one that
/// its client takes at the moment is one of them.
#[tokio::test(start_paused = true)]
async fn a_quarter_of_the_calls_at_once_flows_whether_clients_read_or_not() {
    let mut stage = stage(Ending::Stall);
    let terms = BudgetTerms { in_flight: Some(8), ..BudgetTerms::default() };
    let upstream = verified(stage.upstream(0).identity().clone(), Slot(0));
    let upstream = Arc::new(upstream.within(Budget::new(None, &terms, 0)));
    stage.roster = Roster::new(vec![upstream], MethodRules::default(), Vec::new());
    stage.worker = WorkerUpstreams::new(vec![large(Ending::Stall)], 1).flowing([100]);
    let (mut first, mut second) = (flow(&stage).await, flow(&stage).await);
    let (mut reads_first, mut reads_second) = (first.next(), second.next());
    for reads in [&mut reads_first, &mut reads_second] {
        assert!(futures_util::FutureExt::now_or_never(reads.as_mut()).is_none());
    }
    assert_eq!((stage.upstream(0).in_flight(), stage.upstream(0).parked()), (2, 0));
    // It is read whole, which takes too long.
    assert!(stage.run("eth_getCode").await.result.is_err());
    drop((reads_first, reads_second));
    drop(first);
    let _third = flow(&stage).await;
    assert!(stage.run("eth_getCode").await.result.is_err());
}

/// The beginning of an answer of 60,003 bytes, which is all there was room for at first.
fn short() -> WireReply {
    let id_last = format!(r#"{{"jsonrpc":"2.0","result":"{}"#, "x".repeat(30_000));
    let rest = format!(r#"{}","id":1}}"#, "x".repeat(30_000));
    flowing(id_last, Box::new(Pieces::of(rest.into())))
}

/// A stage whose answers have to be read whole, within a memory budget.
fn stage_below(memory: &Arc<MemoryBudget>) -> Stage {
    let mut stage = Stage::new("ok | ok");
    stage.may_flow = true;
    let transport: Arc<dyn Transport> =
        Arc::new(ScriptedTransport::new(|_| Act::run(async { Ok(short()) })));
    let transports = vec![Arc::clone(&transport), transport];
    stage.worker = WorkerUpstreams::new(transports, 1).holding(Arc::clone(memory));
    stage
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_room_and_is_then_given_up_without_blame() {
    let memory = Arc::new(MemoryBudget::new(300_000));
    let stage = stage_below(&memory);
    let other = memory.try_hold(300_000).expect("room");
    let began = now();
    let outcome = stage.run("eth_getCode").await;
    // No other upstream is asked: the answer would be as large.
    assert_eq!(stage.tell(&outcome), "a=fault -> NoRoom");
    assert!((SECOND..SECOND * 2).contains(&(now() - began)), "{:?}", now() - began);
    assert_eq!(memory.shortages(Shortage::Refused), 1);
    assert_eq!(stage.upstream(0).totals().1, 0, "no failure of the upstream");

    // One that is written meanwhile makes room.
    let free = async {
        tokio::time::sleep(SECOND / 2).await;
        drop(other);
    };
    let (outcome, ()) = tokio::join!(stage.run("eth_getCode"), free);
    assert!(outcome.result.is_ok());
    assert_eq!(memory.shortages(Shortage::Waited), 1);
    assert!(memory.held() > 60_000, "{}", memory.held());
    drop(outcome);
    assert_eq!(memory.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_that_grow_within_a_small_budget_all_end() {
    let memory = Arc::new(MemoryBudget::new(600_000));
    let stage = stage_below(&memory);
    let began = now();
    let calls = (0..200).map(|_| async { stage.run("eth_getCode").await.result.is_ok() });
    let ended = futures_util::future::join_all(calls).await;
    let good = ended.iter().filter(|good| **good).count();
    // Each is dropped as soon as it ends, so that all that may wait have their turn.
    assert!(good >= 64, "{good}");
    assert!(now() - began <= SECOND * 3, "{:?}", now() - began);
    assert!(memory.peak() <= 600_000, "{}", memory.peak());
    assert_eq!(memory.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_while_it_waits_leaves_nothing() {
    let memory = Arc::new(MemoryBudget::new(300_000));
    let stage = stage_below(&memory);
    let other = memory.try_hold(300_000).expect("room");
    for _ in 0..1_000 {
        let mut waiting = Box::pin(stage.run("eth_getCode"));
        assert!(futures_util::FutureExt::now_or_never(waiting.as_mut()).is_none());
    }
    drop(other);
    assert_eq!(memory.held(), 0);
    assert!(stage.run("eth_getCode").await.result.is_ok());
}

/// Answers `eth_getCode` with more than is held, and all else with little, after 20 ms.
fn mixed(arrival: &Arrival) -> Act {
    if arrival.method() != "eth_getCode" {
        return step("20ms~ok").into();
    }
    Act::run(async {
        tokio::time::sleep(ms(20)).await;
        Ok(Ending::Whole.reply())
    })
}

/// Makes `calls` small calls, `parallel` of them at a time, and asserts that each is answered.
async fn small_calls(stage: &Stage, calls: usize, parallel: usize) {
    let lines = (0..parallel).map(|_| async {
        for _ in 0..calls / parallel {
            let outcome = stage.run("eth_call").await;
            assert!(outcome.result.is_ok(), "{}", stage.tell(&outcome));
        }
    });
    futures_util::future::join_all(lines).await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_wait_for_their_clients_leave_the_upstream_to_others() {
    let mut stage = Stage::new("ok");
    (stage.may_flow, stage.total) = (true, SECOND * 2);
    let transport: Arc<dyn Transport> = Arc::new(ScriptedTransport::new(mixed));
    stage.worker = WorkerUpstreams::new(vec![transport], 1).flowing([100]);
    small_calls(&stage, 400, 8).await;
    let mut slow = Vec::new();
    for _ in 0..70 {
        slow.push(flow(&stage).await);
    }
    assert_eq!(stage.upstream(0).in_flight(), 0, "all of them wait for their clients");
    let before = stage.upstream(0).spending(now()).limit;
    for _ in 0..10 {
        small_calls(&stage, 400, 16).await;
        for rest in &mut slow {
            // A client that is slow takes a piece now and then.
            let _ = tokio::time::timeout(SECOND, rest.next()).await;
        }
    }
    // The limit grows with use, and what a client does not read teaches nothing.
    assert!(stage.upstream(0).spending(now()).limit >= before, "{before:?}");
    drop(slow);
    assert_eq!(stage.upstream(0).in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_waits_for_room_teaches_no_delay() {
    let memory = Arc::new(MemoryBudget::new(300_000));
    let stage = stage_below(&memory);
    let quick = stage.upstream(0).latency(now());
    for _ in 0..9 {
        let other = memory.try_hold(300_000).expect("room");
        let free = async {
            tokio::time::sleep(SECOND / 2).await;
            drop(other);
        };
        let (outcome, ()) = tokio::join!(stage.run("eth_getCode"), free);
        assert!(outcome.result.is_ok());
    }
    assert!(stage.upstream(0).latency(now()) <= quick, "{:?}", stage.upstream(0).latency(now()));
}

#[tokio::test(start_paused = true)]
async fn the_client_that_holds_most_gives_way_to_another() {
    let mut stage = stage(Ending::Whole);
    let mut first = (flow(&stage).await, flow(&stage).await);
    stage.client = ClientId::V6(2);
    // None has waited for long: the answer is read whole.
    assert!(stage.run("eth_getCode").await.result.expect("an answer").rest.is_none());
    tokio::time::sleep(SECOND * 3).await;
    let second = flow(&stage).await;
    assert!(matches!(first.0.next().await, Some(Err(_))), "it was cut");
    assert!(matches!(first.1.next().await, Some(Ok(_))));
    assert!(read(second, Duration::ZERO).await);
    assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
    assert_eq!(stage.upstream(0).totals().1, 0, "no upstream is blamed");
}
