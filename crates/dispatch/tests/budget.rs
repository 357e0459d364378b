//! What a budget stops, and what it never stops.

mod support;

use std::time::Duration;

use futures_util::future::join_all;
use support::{Stage, check_with};
use wellhead_dispatch::{Failure, now};
use wellhead_upstream::VerdictClass;

/// Spends all that there is, by calls to upstreams that are all dead.
async fn spend(stage: &Stage) {
    for _ in 0..100 {
        assert!(stage.run("eth_call").await.result.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_ends_when_no_upstream_is_well() {
    let dead = "connect ".repeat(4_000);
    let stage = Stage::new(&format!("{dead} | {dead}"));
    let began = now();
    let mut asked = 0;
    for _ in 0..1_000 {
        asked += stage.run("eth_call").await.trail.exchanges();
    }
    let floor = (now() - began).as_secs() as usize * 10;
    // One each, a fifth, the burst, the floor, and the one that was fit at first.
    assert!(asked <= 1_000 + 200 + 100 + floor + 10, "{asked} for 1000 calls, floor {floor}");
}

#[tokio::test(start_paused = true)]
async fn no_budget_keeps_a_read_from_one_that_is_well() {
    // Upstream `a` fails every call and is believed to be well each time.
    let mut stage = Stage::new(&format!("{} | ok", "missing ".repeat(3_000)));
    stage.bounds.hedging = None;
    for call in 0..2_000 {
        let outcome = stage.run("eth_call").await;
        assert!(outcome.result.is_ok_and(|served| served.class == VerdictClass::Answer), "{call}");
    }
}

#[tokio::test(start_paused = true)]
async fn last_resorts_after_the_first_attempt_and_second_rounds_cost() {
    let dead = "500 ".repeat(999);
    let stage = Stage::new(&format!("{dead} | resting {dead}"));
    spend(&stage).await;
    let attempts = stage.run("eth_call").await.trail.attempts;
    let (at_once, later): (Vec<_>, Vec<_>) =
        attempts.iter().partition(|it| it.after < Duration::from_millis(50));
    assert_eq!(at_once.len(), 1, "{attempts:?}");
    // The floor pays for ten a second.
    let floor = attempts.last().map_or(0, |last| last.after.as_millis() / 100);
    assert!(later.len() <= floor as usize + 1, "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn the_pauses_between_rounds_grow_and_are_drawn() {
    let mut longest = [Duration::ZERO; 2];
    for seed in 0..50 {
        let mut stage = Stage::new("connect connect connect");
        stage.reseed(seed);
        stage.run("eth_call").await;
        let seen = stage.transports[0].arrivals();
        assert_eq!(seen.len(), 3);
        for (longest, pair) in longest.iter_mut().zip(seen.windows(2)) {
            *longest = (*longest).max(pair[1].at - pair[0].at);
        }
    }
    let ms = Duration::from_millis;
    assert!(longest[0] > ms(80) && longest[0] <= ms(101), "{longest:?}");
    assert!(longest[1] > ms(160) && longest[1] <= ms(201), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_asked_for_a_pause_has_it() {
    // In time: waited for. A little later than asked, as many may wait for the same.
    let stage = Stage::new("429+5 ok");
    let began = now();
    let outcome = stage.run("eth_call").await;
    assert_eq!(stage.tell(&outcome), r#"a=throttled a=answer -> a "0x1""#);
    let took = (now() - began).as_millis();
    assert!((5_000..5_252).contains(&took), "{took}");
    // Not in time: no upstream is asked, and the client hears at once for how long.
    let stage = Stage::new("429+60 ok");
    stage.run("eth_call").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let began = now();
    let outcome = stage.run("eth_call").await;
    let Err(Failure::Exhausted { class, retry_after }) = outcome.result else {
        panic!("{}", stage.tell(&outcome))
    };
    assert_eq!((class, now() - began), (VerdictClass::Throttled, Duration::ZERO));
    assert_eq!(retry_after, Some(Duration::from_secs(50)));
    assert!(outcome.trail.attempts.is_empty());
    assert_eq!(stage.transports[0].count(), 1);
    // Others go first, however unwell.
    let expected = "b=answer";
    let throttled = |stage: &mut Stage| stage.throttle(0, Duration::from_secs(3));
    check_with("eth_call", "ok | resting ok", throttled, expected).await;
    // And when those fail, the pause is waited for.
    let throttled = |stage: &mut Stage| stage.throttle(0, Duration::from_secs(3));
    check_with("eth_call", "ok | 401", throttled, r#"b=auth a=answer -> a "0x1""#).await;
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_pause_are_served_after_it() {
    let mut stage = Stage::new(&"ok ".repeat(999));
    stage.throttle(0, Duration::from_secs(3));
    // How many may wait is bounded with the line: see `limits`.
    let outcomes = join_all((0..300).map(|_| stage.run("eth_call"))).await;
    assert!(outcomes.iter().all(|outcome| outcome.result.is_ok()));
}
