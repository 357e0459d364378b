//! What each failure leads to: which upstream is asked next, and what the client gets.

mod support;

use std::time::Duration;

use support::{check, check_with};
use wellhead_upstream::Standing;

#[tokio::test(start_paused = true)]
async fn every_failure_of_the_upstream_goes_on_to_the_next() {
    let words = [
        ("dns", "fault"),
        ("connect", "fault"),
        ("tls", "fault"),
        ("connect_timeout", "fault"),
        ("timeout", "fault"),
        ("closed", "fault"),
        ("refused", "fault"),
        ("truncated", "fault"),
        ("protocol", "fault"),
        ("pool_full", "fault"),
        ("500", "fault"),
        ("502", "fault"),
        ("503+9", "fault"),
        ("html", "fault"),
        ("cut_json", "fault"),
        ("empty", "fault"),
        ("wrong_id", "fault"),
        ("429", "throttled"),
        ("429+9", "throttled"),
        ("limit", "throttled"),
        ("401", "auth"),
        ("missing", "missing_data"),
        ("unsupported", "unsupported"),
        ("null", "null"),
        ("wide", "range_too_large"),
        ("too_large", "range_too_large"),
        ("strange", "unknown"),
    ];
    for (word, class) in words {
        let scripts = format!("{word} | ok | ok");
        check("eth_call", &scripts, &format!("a={class} b=answer -> b \"0x1\"")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_no_upstream_can_heal_is_passed_on_at_once() {
    check("eth_call", "ok | ok", r#"a=answer -> a "0x1""#).await;
    check("eth_call", "revert | ok", r#"a=reverted -> a {"code":3,"#).await;
    check("eth_call", "caller | ok", r#"a=caller_fault -> a {"code":-32602,"#).await;
    check("eth_sendRawTransaction", "nonce", "a=transaction_rejected -> a {").await;
    check("eth_sendRawTransaction", "known", "a=transaction_known -> a {").await;
    // The table says that a null receipt is the truth.
    check("eth_getTransactionReceipt", "null | ok", "a=answer -> a null").await;
}

#[tokio::test(start_paused = true)]
async fn once_is_one_more_and_no_more() {
    check("eth_call", "null | null | ok", "a=null b=null -> a null").await;
    check("eth_call", "wide | wide | ok", "a=range_too_large b=range_too_large -> a {").await;
    // Another opinion is not a second one.
    check("eth_call", "wide | strange | ok", "a=range_too_large b=unknown c=answer -> c").await;
    check("eth_call", "strange | wide | ok", "a=unknown b=range_too_large c=answer -> c").await;
    check("eth_call", "null | strange | null | ok", "a=null b=unknown c=null d=answer -> d").await;
    // A failure in between is not the second opinion.
    check("eth_call", "null | connect | ok", "a=null b=fault c=answer -> c \"0x1\"").await;
}

/// What no rule knows may be the fault of all upstreams that say it, as long as a well upstream was not
/// asked; but that is paid for, so that calls that are at fault do not multiply.
#[tokio::test(start_paused = true)]
async fn an_unknown_error_has_a_third_opinion_within_the_budget() {
    let strange = "strange ".repeat(999);
    let scripts = format!("{strange} | {strange} | ok");
    check("eth_call", &scripts, "a=unknown b=unknown c=answer -> c").await;
    check("eth_call", "404 | 404 | ok", "a=fault b=fault c=answer -> c").await;
    // None is asked twice, and none that rests is asked.
    check("eth_call", "strange | strange | resting ok", "a=unknown b=unknown -> a {").await;
    let stage = support::Stage::new(&format!("{strange} | {strange} | {strange}"));
    let mut asked = 0;
    for _ in 0..300 {
        asked += stage.run("eth_call").await.trail.attempts.len();
    }
    // Two each; the burst and a fifth, of which second opinions took as many.
    assert!((600..=600 + 100 + 60).contains(&asked), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn the_second_opinion_may_be_that_of_an_upstream_that_is_behind() {
    let mut stage = support::Stage::new("strange | ok");
    stage.heads = vec![100, 80];
    assert_eq!(stage.tell(&stage.run("eth_call").await), "a=unknown b=answer -> b \"0x1\"");
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_is_asked_for_what_others_lack() {
    for (word, class) in [("missing", "missing_data"), ("null", "null")] {
        let mut stage = support::Stage::new(&format!("{word} | resting ok"));
        stage.heads = vec![100, 100];
        tokio::time::sleep(Duration::from_secs(2)).await;
        let told = stage.tell(&stage.run("eth_getBlockByNumber").await);
        assert_eq!(told, format!("a={class} b=answer -> b \"0x1\""));
        // One that is down just now is not asked, or every such answer would wait for it.
        let mut stage = support::Stage::new(&format!("{word} | resting ok"));
        stage.heads = vec![100, 100];
        let told = stage.tell(&stage.run("eth_getBlockByNumber").await);
        assert!(told.starts_with(&format!("a={class} -> a")), "{told}");
        // One that is behind and well otherwise may have what others dropped.
        let mut stage = support::Stage::new(&format!("{word} | ok"));
        stage.heads = vec![100, 80];
        let told = stage.tell(&stage.run("eth_getBlockByNumber").await);
        assert_eq!(told, format!("a={class} b=answer -> b \"0x1\""));
        // And any upstream, where no other one could have it.
        let mut stage = support::Stage::new(&format!("{word} | resting ok"));
        stage.heads = vec![80, 100];
        let told = stage.tell(&stage.run("eth_getBlockByNumber").await);
        assert_eq!(told, format!("a={class} b=answer -> b \"0x1\""));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_upstream_behind_lacks_is_looked_for_elsewhere_after_a_shared_fault() {
    let mut stage = support::Stage::new("internal | internal | missing | ok");
    stage.heads = vec![100, 100, 80, 80];
    let told = stage.tell(&stage.run("eth_getBalance").await);
    assert_eq!(told, r#"a=fault b=fault c=missing_data d=answer -> d "0x1""#);
}

#[tokio::test(start_paused = true)]
async fn a_null_for_a_block_that_is_there_is_a_lack() {
    let there = |stage: &mut support::Stage| stage.heads = vec![7, 7, 7];
    let expected = "a=null b=null c=answer -> c";
    check_with("eth_getBlockByNumber", "null | null | ok", there, expected).await;
    let there = |stage: &mut support::Stage| stage.heads = vec![7, 7];
    check_with("eth_getBlockByNumber", "null | null", there, "a=null b=null -> a null").await;
}

#[tokio::test(start_paused = true)]
async fn a_null_that_must_be_true_is_believed_at_once() {
    let ahead = |stage: &mut support::Stage| stage.null_is_final = true;
    check_with("eth_getBlockByNumber", "null | ok", ahead, "a=null -> a null").await;
    let ahead = |stage: &mut support::Stage| stage.null_is_final = true;
    check_with("eth_getBlockByNumber", "connect | null | ok", ahead, "a=fault b=null -> b null")
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_most_telling_failure_is_passed_on() {
    let cases = [
        ("missing | missing", "a=missing_data b=missing_data -> a {"),
        ("missing | connect", "a=missing_data b=fault -> a {\"code\":-32000,\"message\":\"missing"),
        ("connect | missing", "a=fault b=missing_data -> b {\"code\":-32000,\"message\":\"missing"),
        ("missing | caller", "a=missing_data b=caller_fault -> b {\"code\":-32602"),
        ("null | caller", "a=null b=caller_fault -> a null"),
        ("null | missing", "a=null b=missing_data -> a null"),
        ("unsupported | unsupported", "a=unsupported b=unsupported -> a {\"code\":-32601"),
        ("429+99 | unsupported", "a=throttled b=unsupported -> b {\"code\":-32601"),
        (
            "401 | 429+33",
            "a=auth b=throttled -> Exhausted { class: Throttled, retry_after: Some(33s)",
        ),
        ("401 | 401", "a=auth b=auth -> Exhausted { class: Auth, retry_after: None }"),
        (
            "429+99 | 429+44",
            "a=throttled b=throttled -> Exhausted { class: Throttled, retry_after: Some(44s)",
        ),
        (
            "too_large | too_large",
            "a=range_too_large b=range_too_large -> Exhausted { class: RangeTooLarge",
        ),
    ];
    for (scripts, expected) in cases {
        check("eth_call", scripts, expected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_refusal_outranks_an_equal_that_was_not_final() {
    let expected =
        "a=transaction_rejected b=transaction_rejected -> b {\"code\":-32000,\"message\":\"nonce";
    check("eth_sendRawTransaction", "underpriced | nonce", expected).await;
}

#[tokio::test(start_paused = true)]
async fn last_resorts_are_for_failures_and_not_for_missing_data() {
    check("eth_call", "connect | resting ok", "a=fault b=answer -> b \"0x1\"").await;
    check("eth_call", "429 | resting ok", "a=throttled b=answer").await;
    check("eth_call", "unsupported | resting ok", "a=unsupported b=answer").await;
    check("eth_call", "resting ok", "a=answer").await;
    for (word, class) in
        [("missing", "missing_data"), ("null", "null"), ("wide", "range_too_large")]
    {
        check("eth_call", &format!("{word} | resting ok"), &format!("a={class} -> a ")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_round_heals_a_moment() {
    check("eth_call", "connect ok", "a=fault a=answer -> a \"0x1\"").await;
    check("eth_call", "connect connect | closed ok", "a=fault b=fault b=answer").await;
    check("eth_call", "connect connect ok", "a=fault a=fault a=answer").await;
    check("eth_call", "connect connect connect", "a=fault a=fault a=fault -> Exhausted").await;
}

#[tokio::test(start_paused = true)]
async fn the_second_round_spares_those_whom_a_moment_does_not_heal() {
    // One asked for a pause, one has no such method, one refused our key.
    check("eth_call", "429+50 ok", "a=throttled -> Exhausted").await;
    check("eth_call", "unsupported ok", "a=unsupported -> a {\"code\":-32601").await;
    check("eth_call", "401 ok", "a=auth -> Exhausted").await;
    check("eth_call", "429 ok | connect ok", "a=throttled b=fault b=answer -> b \"0x1\"").await;
}

#[tokio::test(start_paused = true)]
async fn attempts_are_bounded() {
    for (attempts_max, tried) in [(0, 1), (1, 1), (2, 2), (3, 3), (9, 6)] {
        let mut stage = support::Stage::new("500 500 500 | 500 500 500");
        stage.bounds.attempts_max = attempts_max;
        let began = wellhead_dispatch::now();
        let outcome = stage.run("eth_call").await;
        assert_eq!(outcome.trail.attempts.len(), tried, "attempts_max {attempts_max}");
        if tried <= 2 {
            let paused = wellhead_dispatch::now() - began;
            assert_eq!(paused, Duration::ZERO, "no pause for a round that cannot come");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_is_repeated_only_when_it_certainly_never_ran() {
    let stops = ["timeout", "closed", "truncated", "protocol", "502", "html", "cut_json", "hang"];
    for word in stops {
        for method in ["eth_sendTransaction", "evm_mine", "eth_newBlockFilter", "no_such_method"] {
            check(method, &format!("{word} | ok"), "a=fault -> Exhausted { class: Fault").await;
        }
    }
    let goes_on = ["connect", "dns", "tls", "refused", "pool_full", "429", "401", "limit"];
    for word in goes_on {
        for method in ["eth_sendTransaction", "no_such_method"] {
            let told = format!("{word} | ok");
            let mut stage = support::Stage::new(&told);
            stage.bounds.attempts_max = 2;
            let outcome = stage.run(method).await;
            assert!(stage.tell(&outcome).ends_with("b=answer -> b \"0x1\""), "{method} {word}");
        }
    }
    // The words of the upstream say no more than that it failed: it may have begun.
    check("eth_sendTransaction", "internal | ok", "a=fault -> ").await;
    check("eth_sendTransaction", "missing | ok", "a=missing_data -> a {").await;
}

#[tokio::test(start_paused = true)]
async fn a_raw_transaction_is_taken_by_any_upstream_and_known_is_a_success() {
    for word in ["timeout", "closed", "502", "connect"] {
        check("eth_sendRawTransaction", &format!("{word} | ok"), "a=fault b=answer").await;
        check(
            "eth_sendRawTransaction",
            &format!("{word} | known"),
            "a=fault b=transaction_known -> b {",
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_upstream_to_ask() {
    let stage = support::Stage::new("ok");
    stage.upstream(0).set_standing(Standing::Unverified);
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), " -> EmptyPlan");
}
