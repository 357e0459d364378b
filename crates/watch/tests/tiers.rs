//! What an upstream of a tier that serves no calls costs, and how soon it is known when it does.

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{Connector, Member, Mood, Node, Stage, now, pass, seconds, settle};
use wellhead_upstream::{Budget, BudgetTerms, Condition, Provider, Slot, Tier};
use wellhead_watch::{CallReason, Checks, FeedUse, Mode};

const BLOCK: Duration = Duration::from_secs(12);
const QUICK: Duration = Duration::from_millis(250);
const TIERS: [Tier; 3] = [Tier::Primary, Tier::Primary, Tier::Fallback];

/// The bill of a provider of the catalogue.
fn budget(provider: &str) -> Budget {
    Budget::new(Provider::named(provider), &BudgetTerms::default(), 0)
}

/// Two primaries and a fallback, all well.
async fn two_and_one(nodes: &[Arc<Node>; 3], checks: Checks) -> Stage {
    let mut stage = Stage::new(Some(1), 3);
    let [a, b, c] = nodes;
    stage.follow_tiers(&[(a, Tier::Primary), (b, Tier::Primary), (c, Tier::Fallback)], checks);
    settle().await;
    assert_eq!(stage.condition(2), Condition::Ready);
    stage
}

fn three(block: Duration) -> [Arc<Node>; 3] {
    [Node::new(1, block), Node::new(1, block), Node::new(1, block)]
}

/// Clients call the first one twice a second for so long.
async fn load(stage: &Stage, time: Duration) {
    let end = now() + time;
    while now() < end {
        stage.call(0);
        pass(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_load_on_the_primaries_costs_a_fallback_sixty_calls_at_most() {
    for block in [BLOCK, QUICK] {
        // From the first moment on, before any of them is verified, and after the start.
        for starts_after in [0, 1] {
            let nodes = three(block);
            let mut stage = Stage::new(Some(1), 3);
            let members = nodes.iter().zip(TIERS);
            let members =
                members.map(|(node, tier)| Member::new(node, tier).within(budget("alchemy")));
            stage.follow_chain(members.collect(), None, Checks::default());
            pass(seconds(starts_after)).await;
            load(&stage, seconds(3600)).await;
            let asked = stage.asked_in_all(2);
            assert!((50..=60).contains(&asked), "{block:?}: {asked}, {}", stage.asked(2));
            // What the metrics tell, what the upstream itself counted, and what is on the bill.
            assert_eq!(nodes[2].calls.lock().len() as u64, asked);
            let credits = stage.asked[2].credits();
            let paid =
                [CallReason::Head, CallReason::Version].map(|reason| stage.asked[2].get(reason));
            assert_eq!(credits, 20 * (paid[0] + paid[1]), "the others are free");
            assert_eq!(stage.upstreams[2].spending(now()).total, credits);
            assert!(stage.asked[0].get(CallReason::Head) > 200, "a primary is followed");
            let view = stage.heads.view();
            let behind = nodes[0].head() - view.latest.expect("agreed").number.0;
            assert!(behind <= 2, "{block:?}: the agreed head is {behind} blocks behind");
            assert!(!view.is_lagging(Slot(2), None) && view.is_idle(Slot(2)));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_load_costs_an_idle_fallback_no_more_when_something_is_wrong_with_it() {
    for mood in [Mood::Refuses, Mood::Hangs, Mood::Status(500), Mood::Status(429)] {
        for from_the_start in [true, false] {
            let nodes = three(BLOCK);
            let mut stage = match from_the_start {
                true => Stage::new(Some(1), 3),
                false => two_and_one(&nodes, Checks::default()).await,
            };
            nodes[2].feel(mood.clone());
            if from_the_start {
                let [a, b, c] = &nodes;
                let tiers = [(a, Tier::Primary), (b, Tier::Primary), (c, Tier::Fallback)];
                stage.follow_tiers(&tiers, Checks::default());
                settle().await;
            }
            load(&stage, seconds(3600)).await;
            let asked = stage.asked_in_all(2);
            assert!(asked <= 63, "{mood:?}, {from_the_start}: {asked}, {}", stage.asked(2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn its_first_call_has_its_head_asked_for_at_once_and_followed_for_a_while() {
    let nodes = three(BLOCK);
    let stage = two_and_one(&nodes, Checks::default()).await;
    load(&stage, seconds(600)).await;
    let head = stage.head(2).expect("a head");
    assert!(nodes[2].head() - head <= 6 && stage.heads.view().is_idle(Slot(2)));
    let called = now();
    stage.call(2);
    settle().await;
    assert_eq!(nodes[2].calls_of("eth_getBlockByNumber", called), [Duration::ZERO]);
    for _ in 0..60 {
        stage.call(2);
        pass(seconds(5)).await;
        let behind = nodes[2].head() - stage.head(2).expect("a head");
        assert!(behind <= 2, "it is followed: {behind} behind");
    }
    assert!(!stage.heads.view().is_idle(Slot(2)), "and votes");
    let polls = nodes[2].calls_of("eth_getBlockByNumber", called).len();
    assert!((20..=25).contains(&polls), "at the pace of blocks: {polls}");
    load(&stage, seconds(60)).await;
    let left = now();
    load(&stage, seconds(600)).await;
    let polls = nodes[2].calls_of("eth_getBlockByNumber", left).len();
    assert!(polls <= 10 && stage.heads.view().is_idle(Slot(2)), "idle again: {polls}");
}

#[tokio::test(start_paused = true)]
async fn when_no_better_one_is_fit_it_is_followed_before_a_call_comes() {
    for how in ["dead", "throttled", "behind"] {
        let nodes = three(BLOCK);
        let stage = two_and_one(&nodes, Checks::default()).await;
        load(&stage, seconds(600)).await;
        let began = now();
        for node in &nodes[..2] {
            match how {
                "dead" => node.feel(Mood::Refuses),
                "throttled" => node.feel(Mood::Status(429)),
                // It was reset, and has few blocks.
                _ => node.chain.lock().0 = 1,
            }
        }
        // Calls of clients that are answered without any upstream.
        stage.busy_for(seconds(30), Duration::from_millis(500)).await;
        let polls = nodes[2].calls_of("eth_getBlockByNumber", began);
        assert!(!polls.is_empty(), "{how}: {polls:?}");
        let behind = nodes[2].head() - stage.head(2).expect("a head");
        // A pause of a second is over before the next block.
        assert!(behind <= 1 || how == "throttled", "{how}: {behind} behind");
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_was_behind_at_its_last_word_is_left_out_and_one_that_was_not_is_fit() {
    let nodes = three(BLOCK);
    nodes[2].chain.lock().0 -= 50;
    let stage = two_and_one(&nodes, Checks::default()).await;
    load(&stage, seconds(300)).await;
    let lags = || stage.heads.view().is_lagging(Slot(2), None);
    assert!(lags(), "it said so itself");
    nodes[2].chain.lock().0 += 50;
    for _ in 0..300 {
        load(&stage, seconds(1)).await;
        if !lags() {
            break;
        }
    }
    for _ in 0..300 {
        load(&stage, seconds(1)).await;
        assert!(!lags(), "what it said last is old, and no lag");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agreement_that_the_primaries_cannot_reach_has_the_fallback_followed() {
    for (agreement, is_followed) in [(None, false), (Some(2), false), (Some(3), true)] {
        let nodes = three(BLOCK);
        let mut stage = Stage::new(Some(1), 3);
        let members = nodes.iter().zip(TIERS).map(|(node, tier)| Member::new(node, tier));
        stage.follow_chain(members.collect(), agreement, Checks::default());
        load(&stage, seconds(600)).await;
        let asked = stage.asked_in_all(2);
        assert_eq!(asked > 40, is_followed, "{agreement:?}: {asked}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_one_that_is_asked_only_when_needed_is_not_asked_and_then_at_once() {
    let nodes = three(BLOCK);
    let checks = Checks { mode: Mode::Ephemeral, ..Checks::default() };
    let stage = two_and_one(&nodes, checks).await;
    let before = stage.asked_in_all(2);
    load(&stage, seconds(3600)).await;
    assert_eq!(stage.asked_in_all(2), before, "{}", stage.asked(2));
    let called = now();
    stage.call(2);
    settle().await;
    assert_eq!(nodes[2].calls_of("eth_getBlockByNumber", called), [Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn a_feed_is_open_while_clients_call_and_the_tier_serves() {
    let (primary, fallback) = (Node::new(1, BLOCK), Node::new(1, BLOCK));
    let (first, second) = (Arc::new(Connector::default()), Arc::new(Connector::default()));
    let speakers = [first.prepare_good(1), second.prepare_good(1), first.prepare_good(1)];
    let mut stage = Stage::new(Some(1), 2);
    let members = vec![
        Member::new(&primary, Tier::Primary).feeding(&first),
        Member::new(&fallback, Tier::Fallback).feeding(&second),
    ];
    stage.follow_chain(members, None, Checks::default());
    pass(seconds(600)).await;
    let opened = || (first.opened.lock().len(), second.opened.lock().len());
    assert_eq!(opened(), (0, 0), "no client calls");
    stage.call(0);
    settle().await;
    assert_eq!(opened(), (1, 0), "the fallback serves no calls");
    for _ in 0..20 {
        speakers[0].head(primary.head());
        stage.call(0);
        pass(BLOCK).await;
    }
    stage.call(1);
    settle().await;
    assert_eq!(opened(), (1, 1), "now it does");
    // Half a minute without calls, and another one.
    pass(seconds(58)).await;
    assert!(!speakers[0].is_closed(), "calls may come again");
    pass(seconds(5)).await;
    assert!(speakers[0].is_closed() && speakers[1].is_closed());
    pass(seconds(3600)).await;
    assert_eq!(opened(), (1, 1));
    stage.call(0);
    settle().await;
    assert_eq!(opened(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dear_feed_is_not_opened_and_one_that_is_wanted_anyway_is_on_the_bill() {
    for (provider, feed, is_open) in [
        ("alchemy", FeedUse::ByPrice, false),
        ("alchemy", FeedUse::Always, true),
        ("infura", FeedUse::ByPrice, true),
        ("infura", FeedUse::Never, false),
    ] {
        let (node, connector) = (Node::new(1, BLOCK), Arc::new(Connector::default()));
        let speaker = connector.prepare_good(1);
        let mut stage = Stage::new(Some(1), 1);
        let member = Member::new(&node, Tier::Primary).feeding(&connector).within(budget(provider));
        stage.follow_chain(vec![member], None, Checks { feed, ..Checks::default() });
        load(&stage, seconds(60)).await;
        assert_eq!(connector.opened.lock().len(), usize::from(is_open), "{provider} {feed:?}");
        let before = (stage.asked[0].credits(), stage.upstreams[0].spending(now()).total);
        if is_open {
            let next = node.head() + 1;
            let bytes: usize = (next..next + 100).map(|number| speaker.head(number)).sum();
            settle().await;
            let credits = if provider == "alchemy" { bytes as u64 * 40 / 1_000 } else { 5_000 };
            let after = (stage.asked[0].credits(), stage.upstreams[0].spending(now()).total);
            assert_eq!((after.0 - before.0, after.1 - before.1), (credits, credits), "{provider}");
            assert_eq!(stage.asked[0].pushed(), 100);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_feed_that_spends_the_credits_of_the_day_is_closed_until_tomorrow() {
    let (node, connector) = (Node::new(1, BLOCK), Arc::new(Connector::default()));
    let speaker = connector.prepare_good(1);
    let mut stage = Stage::new(Some(1), 1);
    let checks = Checks { credits_per_day: Some(1_000), ..Checks::default() };
    let member = Member::new(&node, Tier::Primary).feeding(&connector).within(budget("infura"));
    stage.follow_chain(vec![member], None, checks);
    stage.call(0);
    settle().await;
    for number in 2000..2030 {
        if !speaker.is_closed() {
            speaker.head(number);
        }
        settle().await;
    }
    assert!(speaker.is_closed());
    assert!((5..=20).contains(&stage.asked[0].pushed()), "{}", stage.asked[0].pushed());
    stage.busy_for(seconds(3600), seconds(5)).await;
    assert_eq!(connector.opened.lock().len(), 1);
}
