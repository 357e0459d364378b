//! When upstreams fail together: what a client hears, how soon, and how it comes back.

mod support;

use std::time::Duration;

use support::{Plan, Stage, Step, elapsed, error, text};
use wellhead_dispatch::now;
use wellhead_kit::{result, status, throttle};
use wellhead_upstream::{Payload, Standing, Verdict, VerdictClass};

const CALL: &str = r#"{"id":1,"method":"eth_call","params":[{}]}"#;

fn settle(stage: &Stage, place: usize, class: VerdictClass, words: &str) {
    let row = wellhead_eth::MethodTable::standard().row("eth_call");
    let verdict = Verdict::new(class, "test", Payload::None { detail: words.to_owned() });
    let upstream = stage.upstream(place);
    (0..3).for_each(|_| {
        upstream.settle(row, &verdict, now(), now());
    });
    upstream.note_failure(class, format!("{}: {words}", class.word()), now());
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_upstreams_is_told_in_time_and_ends_at_once() {
    let stage = Stage::upstreams(3);
    let began = now();
    while elapsed(began) < Duration::from_secs(60) {
        for place in 0..3 {
            stage.peer(place).next("eth_call", Step::REFUSE);
            stage.peer(place).next("eth_call", Step::REFUSE);
        }
        let asked = now();
        let answer = stage.send(None, CALL).await;
        assert!(elapsed(asked) < Duration::from_secs(1), "{:?}", elapsed(asked));
        assert_eq!(answer.status, 503);
        assert!(answer.retry_after.is_some());
        let told = text(&answer);
        for name in ["a", "b", "c"] {
            let tried = format!("{name}: fault: could not connect: injected");
            let rests = format!("{name} is breaker_open: fault: could not connect: injected");
            let half = format!("{name} is half_open: fault: could not connect: injected");
            let is_named = [tried, rests, half].iter().any(|words| told.contains(words.as_str()));
            assert!(is_named, "{name}: {told}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    // What is left of the scripts is played; then all are well, though nothing has probed.
    for _ in 0..200 {
        if stage.send(None, CALL).await.status == 200 {
            break;
        }
    }
    let back = now();
    assert_eq!(stage.send(None, CALL).await.status, 200);
    assert!(elapsed(back) < Duration::from_secs(1), "{:?}", elapsed(back));
}

#[tokio::test(start_paused = true)]
async fn each_upstream_is_named_with_its_reason_and_without_a_secret() {
    let stage = Stage::new(vec![Plan { upstreams: 5, ..Plan::default() }]);
    settle(&stage, 0, VerdictClass::Throttled, "project s3cret is over its rate");
    settle(&stage, 1, VerdictClass::Auth, "key s3cret is not valid");
    settle(&stage, 2, VerdictClass::Fault, "HTTP 502");
    // Its last words were about our account, though it rests for another reason.
    settle(&stage, 3, VerdictClass::Fault, "HTTP 502");
    settle(&stage, 3, VerdictClass::Billing, "account s3cret is empty");
    stage.upstream(4).set_standing(Standing::Unverified);
    for place in 0..4 {
        let busy = r#"{"error":"s3cret: too many requests"}"#.to_owned();
        stage.peer(place).next_times(4, "eth_call", status(429, busy.clone()));
    }
    let answer = stage.send(None, CALL).await;
    let told = text(&answer);
    assert!(!told.contains("s3cret"), "{told}");
    assert_eq!(answer.status, 429, "{told}");
    for name in ["a", "b", "c", "d", "e"] {
        assert!(told.contains(&format!(r#"{{"upstream":"{name}","condition":""#)), "{told}");
    }
    assert!(told.contains("e is unverified: nothing is known about it"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_ends_too_late_is_told_at_once() {
    let stage = Stage::upstreams(1);
    throttle(stage.upstream(0), "eth_call", Some(Duration::from_secs(90)));
    let began = now();
    let answer = stage.send(None, CALL).await;
    assert_eq!((answer.status, elapsed(began)), (429, Duration::ZERO));
    assert_eq!(answer.retry_after, Some(Duration::from_secs(90)));
    let words = "made no attempt: a is throttled: it rate-limits calls for another 90000 ms";
    assert!(text(&answer).contains(words), "{}", text(&answer));
    assert!(stage.peer(0).seen().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_answer_was_lost_is_looked_up() {
    const RAW: &str = r#"["0xf86c098504a817c800825208943535353535353535353535353535353535353535880de0b6b3a76400008025a028ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276a067cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"]"#;
    const HASH: &str = r#""0x33469b22e9f636356c4160a87eb19df52b7412e8eac32a4a55ffe88ea8350788""#;
    const SEND: &str = "eth_sendRawTransaction";
    const LOOK: &str = "eth_getTransactionByHash";
    let cases = [
        // Both lost their answers, and the second has it.
        (status(502, ""), result("{}"), HASH),
        (status(502, ""), result("null"), "no upstream could answer"),
        // One knows the nonce as used, whatever else the other says.
        (error(-32000, "nonce too low"), result("{}"), HASH),
        (error(-32000, "nonce too low"), result("null"), "nonce too low"),
    ];
    for (say, found, told) in cases {
        let stage = Stage::upstreams(2);
        for _ in 0..3 {
            stage.peer(0).next(SEND, status(502, ""));
            stage.peer(1).next(SEND, say.clone());
        }
        stage.peer(0).next(LOOK, result("null"));
        stage.peer(1).next(LOOK, found);
        let answer = stage.call(SEND, RAW).await;
        assert!(answer.contains(told), "{say:?}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_attempt_is_counted_and_shown() {
    let stage = Stage::upstreams(2);
    stage.peer(0).next("eth_call", Step::Hang);
    let began = now();
    let answer = stage.send(None, CALL).await;
    assert_eq!((answer.status, answer.attempts), (200, 2));
    assert_eq!(elapsed(began), Duration::from_millis(250));
    assert_eq!(answer.trail.as_deref(), Some("b=answer/result:0ms a=abandoned:250ms cache=off"));
    let metrics = stage.metrics();
    let line = r#"wellhead_attempts_abandoned_total{chain="ethereum",upstream="a"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}
