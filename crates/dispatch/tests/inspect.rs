//! Answers are looked at before they are believed.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::{ScriptedTransport, Stage, Step, ballot, dynamic};
use wellhead_dispatch::{
    Answered, BatchItem, Heard, Inspect, Inspection, Inspections, WorkerUpstreams, now,
};
use wellhead_eth::{MethodRow, MethodTable};
use wellhead_upstream::{Condition, Upstream, VerdictClass};

const SEND: &str = "eth_sendRawTransaction";

/// Finds every answer of some upstreams void, after a while.
#[derive(Debug, Default)]
struct Suspicious {
    /// Whose answers: by name, or by name and result.
    lies: BTreeSet<String>,
    takes: Duration,
    whole: usize,
    seen: AtomicUsize,
    flowed: AtomicUsize,
}

impl Inspect for Suspicious {
    fn is_asked(&self, _: &Upstream, row: &MethodRow) -> bool {
        row.name != "eth_gasPrice"
    }

    fn whole_bytes(&self, _: &Upstream, _: &MethodRow) -> usize {
        self.whole
    }

    fn inspect<'a>(
        &'a self,
        upstream: &'a Arc<Upstream>,
        answers: Vec<Answered<'a>>,
        until: Instant,
    ) -> Inspections<'a> {
        let id = upstream.identity().id.to_string();
        Box::pin(async move {
            tokio::time::sleep_until((now() + self.takes).min(until).into()).await;
            self.seen.fetch_add(answers.len(), Ordering::Relaxed);
            let inspection = |answered: &Answered<'_>| {
                assert!(answered.params.is_some_and(|params| params.starts_with(b"[")));
                let result = format!("{id} {}", String::from_utf8_lossy(answered.result));
                match self.lies.contains(&id) || self.lies.contains(&result) {
                    true => Inspection::Invalid { check: "order", detail: "2 before 1".to_owned() },
                    false => Inspection::Sound { rule: "sound-full" },
                }
            };
            answers.iter().map(inspection).collect()
        })
    }

    fn flows(&self, _: &MethodRow) {
        self.flowed.fetch_add(1, Ordering::Relaxed);
    }
}

fn suspicious(lies: &str) -> Suspicious {
    let lies = lies.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    Suspicious { lies, ..Suspicious::default() }
}

fn stage(scripts: &str, inspect: Suspicious) -> (Stage, Arc<Suspicious>) {
    let stage = Stage::new(scripts);
    let transports = stage.transports.clone();
    inspecting(stage, &transports, inspect)
}

/// The stage over these transports, whose answers `inspect` looks at.
fn inspecting(
    mut stage: Stage,
    transports: &[Arc<ScriptedTransport>],
    inspect: Suspicious,
) -> (Stage, Arc<Suspicious>) {
    let inspect = Arc::new(inspect);
    let shared: Arc<dyn Inspect> = Arc::<Suspicious>::clone(&inspect);
    stage.worker = WorkerUpstreams::new(dynamic(transports), 1).inspecting(Some(shared));
    (stage, inspect)
}

/// Runs `method` where the answers of `lies` are void.
async fn check(method: &str, scripts: &str, lies: &str, expected: &str) {
    let (stage, _) = stage(scripts, suspicious(lies));
    assert_eq!(stage.tell(&stage.run(method).await), expected, "{method} over {scripts}");
}

#[tokio::test(start_paused = true)]
async fn the_next_one_is_asked() {
    check("eth_call", "ok | ok", "", r#"a=answer -> a "0x1""#).await;
    check("eth_call", "ok | ok", "a", r#"a=void b=answer -> b "0x1""#).await;
    check("eth_call", "ok | ok | ok", "a,b", r#"a=void b=void c=answer -> c "0x1""#).await;
    // What is not looked at is believed, and so is an error.
    check("eth_gasPrice", "ok | ok", "a", r#"a=answer -> a "0x1""#).await;
    let revert = r#"a=reverted -> a {"code":3,"message":"execution reverted"}"#;
    check("eth_call", "revert | ok", "a", revert).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_sound_answer_there_is_none() {
    let failed = "Exhausted { class: Void, retry_after: None }";
    check("eth_call", "ok", "a", &format!("a=void -> {failed}")).await;
    check("eth_call", "ok | ok", "a,b", &format!("a=void b=void -> {failed}")).await;
    let (stage, _) = stage("ok", suspicious("a"));
    let outcome = stage.run("eth_call").await;
    let attempt = &outcome.trail.attempts[0];
    assert_eq!((attempt.rule, attempt.detail.as_str()), ("order", "`order`: 2 before 1"));
    // What another upstream says of the call is preferred.
    check(
        "eth_call",
        "ok | caller",
        "a",
        r#"a=void b=caller_fault -> b {"code":-32602,"message":"missing value for required argument 1"}"#,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_gives_void_answers_rests() {
    let (stage, _) = stage("ok", suspicious("a"));
    for _ in 0..3 {
        assert_eq!(stage.upstream(0).condition(now()), Condition::Ready);
        stage.run("eth_call").await;
    }
    // The third call waited for its return in vain.
    assert_eq!(stage.upstream(0).condition(now()), Condition::HalfOpen);
    let problem = stage.upstream(0).last_problem().expect("it failed");
    assert_eq!(problem.text, "void: `order`: 2 before 1");
    assert_eq!(stage.upstream(0).in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_sound_says_so_in_the_trail() {
    let (stage, inspect) = stage("ok", suspicious(""));
    let outcome = stage.run("eth_call").await;
    assert_eq!(outcome.trail.line(&stage.roster), "a=answer/sound-full:0ms");
    assert_eq!(inspect.seen.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn looking_takes_no_place_at_the_upstream_and_is_not_its_delay() {
    let takes = Duration::from_secs(2);
    let (stage, inspect) = stage("20ms~ok | ok", Suspicious { takes, ..suspicious("") });
    let looking = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(stage.upstream(0).in_flight(), 0);
        assert!(stage.upstream(0).was_heard_after(now() - Duration::from_millis(490)));
    };
    let (outcome, ()) = tokio::join!(stage.run("eth_call"), looking);
    assert_eq!(stage.tell(&outcome), r#"a=answer -> a "0x1""#);
    assert_eq!(outcome.trail.attempts[0].took, Duration::from_millis(20));
    assert_eq!(outcome.trail.exchanges(), 1, "no other upstream was asked meanwhile");
    assert_eq!(inspect.seen.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_is_looked_at_as_well() {
    check("eth_call", "900ms~ok | ok", "b", r#"b=void a=answer -> a "0x1""#).await;
    check("eth_call", "300ms~ok | 100ms~ok", "a", r#"a=void b=answer -> b "0x1""#).await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_taken_by_an_upstream_that_answers_soundly() {
    let scripts = "10ms~ok | 20ms~ok | 30ms~ok";
    check(SEND, scripts, "a", r#"a=void b=answer -> b "0x1""#).await;
    check(SEND, scripts, "a,b", r#"a=void b=void c=answer -> c "0x1""#).await;
    let (stage, inspect) = stage(scripts, suspicious(""));
    assert_eq!(stage.tell(&stage.run(SEND).await), r#"a=answer -> a "0x1""#);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(inspect.seen.load(Ordering::Relaxed), 3, "also those that no client waits for");
}

#[tokio::test(start_paused = true)]
async fn a_void_answer_has_no_voice_in_a_quorum() {
    let (mut stage, _) = stage("ok | 5ms~ok | 9ms~ok", suspicious("a"));
    stage.ballot = Some(ballot());
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"a=void b=answer c=answer -> b "0x1""#);
    assert_eq!(outcome.trail.heard, Some(Heard { agreed: 2, heard: 2 }));
}

#[tokio::test(start_paused = true)]
async fn what_flows_is_noted_unless_it_is_wanted_whole() {
    for (whole, seen, flowed) in [(0, 0, 1), (1_000, 1, 0)] {
        let (mut stage, inspect) = stage("ok", Suspicious { whole, ..suspicious("") });
        // The result begins just before.
        (stage.may_flow, stage.bounds.whole_bytes_max) = (true, 36);
        let served = stage.run("eth_call").await.result.expect("it is answered");
        assert_eq!(served.rest.is_some(), flowed == 1);
        let counted =
            (inspect.seen.load(Ordering::Relaxed), inspect.flowed.load(Ordering::Relaxed));
        assert_eq!(counted, (seen, flowed));
    }
}

#[tokio::test(start_paused = true)]
async fn the_items_of_a_batch_are_looked_at_one_by_one() {
    let stage = Stage::new("ok");
    let inspect = suspicious("a 1,a 3");
    // Each item is answered with its id, which is its place.
    let places = ScriptedTransport::of_calls(|call| {
        Step::Result(String::from_utf8_lossy(call.id()).into_owned())
    });
    let (stage, inspect) = inspecting(stage, &[Arc::new(places)], inspect);
    let item = |method: &'static str| BatchItem {
        row: MethodTable::standard().row(method),
        method,
        params: Some(b"[]"),
    };
    let items = ["eth_call", "eth_call", "eth_gasPrice", "eth_gasPrice", "eth_call"].map(item);
    let outcome = stage.run_batch(&items).await;
    let told: Vec<_> = outcome.verdicts.iter().map(|it| (it.class, it.rule)).collect();
    let (answer, void) = (VerdictClass::Answer, VerdictClass::Void);
    assert_eq!(
        told,
        [
            (answer, "sound-full"),
            (void, "order"),
            (answer, "result"),
            (answer, "result"),
            (answer, "sound-full")
        ]
    );
    assert_eq!(inspect.seen.load(Ordering::Relaxed), 3);
    let (_, failures) = stage.upstream(0).totals();
    assert_eq!((failures, stage.upstream(0).in_flight()), (1, 0));
}
