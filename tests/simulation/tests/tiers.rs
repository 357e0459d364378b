//! A third upstream that is a fallback: what it costs in an hour in which two primaries do well,
//! and what clients notice when both die at once.

use std::time::Duration;

use wellhead_simulation::evidence::{Evidence, Exchange, Place};
use wellhead_simulation::scenario::{Budget, ClientPlan, Habit, UpstreamPlan};
use wellhead_simulation::weather::{Kind, Spell};
use wellhead_simulation::{Scale, Scenario, play_scenario};
use wellhead_upstream::Tier;
use wellhead_watch::Mode;

const HOUR: Duration = Duration::from_secs(3600);
const FALLBACK: Place = Place { chain: 0, slot: 2 };

fn upstream(like: &UpstreamPlan, slot: char, tier: Tier) -> UpstreamPlan {
    UpstreamPlan {
        name: format!("up-0{slot}"),
        tier,
        latency: Duration::from_millis(50),
        jitter: Duration::ZERO,
        spells: Vec::new(),
        // With a budget spending is counted by days.
        budget: Some(Budget {
            calls_per_second: None,
            in_flight: None,
            credits_per_day: Some(1_000_000),
            overspend: false,
        }),
        ..like.clone()
    }
}

/// Two primaries that do well for an hour and then die for good, a fallback, and a client that
/// calls all the time.
fn scenario(block_time: Duration, every: Duration) -> Scenario {
    let mut scenario = Scenario::relay(1, Scale::Short);
    scenario.length = HOUR + Duration::from_secs(60);
    // Neither of these is for the tiers to decide here.
    (scenario.settings.hedging, scenario.settings.broadcast_max) = (None, 1);
    scenario.settings.checks = Mode::On;
    (scenario.settings.quorum, scenario.settings.cache) = (None, None);
    let chain = &mut scenario.chains[0];
    chain.world.block_time = block_time;
    let like = chain.upstreams[0].clone();
    chain.upstreams = [('a', Tier::Primary), ('b', Tier::Primary), ('c', Tier::Fallback)]
        .map(|(slot, tier)| upstream(&like, slot, tier))
        .into();
    for primary in &mut chain.upstreams[..2] {
        let until = scenario.length + scenario.settings.total * 2;
        primary.spells.push(Spell { from: HOUR, until, kind: Kind::Crash });
    }
    scenario.clients = vec![ClientPlan {
        seed: 7,
        chain: 0,
        habit: Habit::Steady(every),
        from: Duration::from_secs(1),
        requests: u32::MAX,
        pauses: false,
        is_rude: false,
    }];
    scenario
}

/// A counter of the fallback in the metrics at the end, over all its other labels.
fn counted(evidence: &Evidence, name: &str) -> u64 {
    let metrics = evidence.pages.iter().rev().find(|(page, _)| *page == "metrics");
    let (_, metrics) = metrics.expect("looked at in the end");
    let lines = metrics.lines().filter(|line| {
        line.split('{').next() == Some(name) && line.contains(r#"upstream="up-0c""#)
    });
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn check(block_time: Duration, every: Duration) {
    let report = play_scenario(scenario(block_time, every));
    let evidence = &report.evidence;
    // No read fails, nor is anything else promised broken.
    let told: Vec<String> = report
        .violations
        .iter()
        .map(|it| format!("{:?} {}: {}", it.at, it.checker, it.what))
        .collect();
    assert!(told.is_empty(), "{told:#?}");
    let seen: Vec<&Exchange> = evidence.exchanges_of(FALLBACK).collect();
    let calls = |of: &dyn Fn(&Exchange) -> bool| {
        let of = seen.iter().filter(|exchange| of(exchange));
        of.map(|exchange| exchange.calls.len() as u64).sum::<u64>()
    };
    let in_the_hour = calls(&|it| it.began < HOUR);
    assert!((50..=60).contains(&in_the_hour), "{block_time:?}: {in_the_hour} calls");
    assert_eq!(calls(&|it| it.began < HOUR && !it.is_house()), 0, "{block_time:?}: no client's");
    // Its own count, what the metrics tell of it, and what is in the books.
    assert_eq!(counted(evidence, "wellhead_self_calls_total"), calls(&|it| it.is_house()));
    assert_eq!(counted(evidence, "wellhead_self_credits_total"), calls(&|it| it.is_house()));
    assert_eq!(counted(evidence, "wellhead_upstream_credits_total"), calls(&|_| true));
    // Its head is asked for at its first call at the latest.
    let first = seen.iter().find(|it| !it.is_house()).expect("the primaries are dead");
    let soon = first.began + Duration::from_millis(1);
    let asked = seen.iter().find(|it| it.is_house() && it.began >= HOUR);
    assert!(asked.is_some_and(|it| it.began <= soon), "{block_time:?}: asked at once");
    let served = evidence.requests.iter().filter(|it| it.at >= HOUR).count();
    assert!(served > 20, "{block_time:?}: {served} requests while the primaries are dead");
}

#[test]
fn an_hour_costs_a_fallback_sixty_calls_at_most_and_it_serves_from_the_first_call_on() {
    check(Duration::from_secs(12), Duration::from_secs(2));
}

#[test]
fn however_quick_the_chain_is() {
    check(Duration::from_secs(1), Duration::from_secs(1));
}
