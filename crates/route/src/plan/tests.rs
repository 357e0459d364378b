//! Plans, from upstreams that are written as words.

use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use wellhead_chain::{Heads, Observation, Source};
use wellhead_eth::{ChainId, MethodTable};
use wellhead_upstream::{
    BreakerBounds, CallExtent, Identity, Learnt, MethodRules, Payload, SearchSize, Standing,
    UpstreamId, Verdict, VerdictClass,
};

use super::*;
use crate::balance::Balance;
use crate::roster::{NotServed, RouteRule};

#[allow(clippy::disallowed_methods, reason = "an arbitrary origin")]
fn origin() -> Instant {
    Instant::now()
}

fn verdict(class: VerdictClass) -> Verdict {
    Verdict::new(class, "test", Payload::None { detail: String::new() })
}

/// Upstreams as `name[:word...]`, where a word is a head `#100`, a latency `30ms`,
/// a tier `fallback`/`public`, a condition (`dead`, `syncing`, `unverified`, `wrong`,
/// `throttled`, `out`), `idle` once its head is told, or a label `k=v`.
fn build(text: &str, now: Instant) -> (Roster, Arc<View>) {
    let row = MethodTable::standard().row("eth_call");
    let words: Vec<&str> = text.split_whitespace().collect();
    let heads = Heads::new(words.len(), None, Some(2));
    let mut upstreams = Vec::new();
    for (place, text) in words.iter().enumerate() {
        let mut parts = text.split(':');
        let mut identity = Identity::named(parts.next().expect("a name"));
        let parts: Vec<&str> = parts.collect();
        for part in &parts {
            match (*part, part.split_once('=')) {
                ("fallback", _) => identity.tier = Tier::Fallback,
                ("public", _) => identity.tier = Tier::Public,
                (_, Some((name, value))) => {
                    identity.labels.insert(name.into(), value.into());
                }
                _ => {}
            }
        }
        let slot = Slot(u8::try_from(place).expect("few upstreams"));
        let upstream = Arc::new(Upstream::new(identity, slot, BreakerBounds::default(), now));
        upstream.set_standing(Standing::Verified);
        for part in parts {
            let size = SearchSize { blocks: 0, filter: FilterShape::default() };
            let extent = CallExtent { oldest: None, head: None, size };
            let fail = |class| {
                upstream.settle(row, &verdict(class), now, now);
            };
            if let Some(number) = part.strip_prefix('#') {
                let number = BlockNumber(number.parse().expect("a number"));
                let seen = Observation::of_number(number);
                heads.observe(slot, seen, Source::Word, now);
            } else if let Some(ms) = part.strip_suffix("ms") {
                let took = Duration::from_millis(ms.parse().expect("a number"));
                upstream.settle(row, &verdict(VerdictClass::Answer), now, now + took);
            } else {
                match part {
                    "dead" => (0..3).for_each(|_| fail(VerdictClass::Fault)),
                    "throttled" => fail(VerdictClass::Throttled),
                    // Never three in a row.
                    "flaky" => (0..7).for_each(|turn| match turn % 3 {
                        2 => fail(VerdictClass::Answer),
                        _ => fail(VerdictClass::Fault),
                    }),
                    "pruned" => {
                        let learnt = Some(Learnt::PrunedBelow { number: 50 });
                        let class = VerdictClass::MissingData;
                        upstream.learn_reach(row, class, learnt, &extent, now);
                    }
                    "narrow" => {
                        let learnt = Some(Learnt::RangeMax { blocks: 10 });
                        let class = VerdictClass::RangeTooLarge;
                        upstream.learn_reach(row, class, learnt, &extent, now);
                    }
                    "few_addresses" => {
                        let learnt = Some(Learnt::AddressesMax { addresses: 10 });
                        let class = VerdictClass::FilterTooLarge;
                        let filter = FilterShape { addresses: 11, digest: 1 };
                        let size = SearchSize { blocks: 1, filter };
                        let extent = CallExtent { size, ..extent };
                        upstream.learn_reach(row, class, learnt, &extent, now);
                    }
                    "idle" => heads.set_idle(slot, true, now),
                    "unprobed" => upstream.set_tried_by_clients(true),
                    "out" => fail(VerdictClass::Auth),
                    "banned" => {
                        fail(VerdictClass::Answer);
                        fail(VerdictClass::Unsupported);
                    }
                    "lacking" => fail(VerdictClass::Unsupported),
                    "syncing" => drop(upstream.set_syncing(true)),
                    "unverified" => drop(upstream.set_standing(Standing::Unverified)),
                    "wrong" => {
                        upstream.set_standing(Standing::WrongChain(ChainId(5)));
                    }
                    _ => {}
                }
            }
        }
        upstreams.push(upstream);
    }
    (Roster::new(upstreams, MethodRules::default(), Vec::new()), heads.view())
}

fn names(roster: &Roster, plan: &Plan) -> String {
    names_of(roster, plan.candidates())
}

fn names_of(roster: &Roster, slots: &[Slot]) -> String {
    let name = |slot: &Slot| roster.upstream(*slot).identity().id.to_string();
    slots.iter().map(name).collect::<Vec<_>>().join(" ")
}

/// "fit | last resorts".
fn shown(roster: &Roster, plan: &Plan) -> String {
    let (fit, rest) = plan.candidates().split_at(plan.fit());
    format!("{} | {}", names_of(roster, fit), names_of(roster, rest)).trim().to_owned()
}

/// An `eth_call` to all of them.
fn ask(roster: &Roster) -> PlanRequest<'static> {
    let row = MethodTable::standard().row("eth_call");
    PlanRequest::of(row, roster.eligible(row, "eth_call").expect("served"))
}

/// Plans an `eth_call` that `change` has altered first.
fn planned(upstreams: &str, change: impl FnOnce(&mut PlanRequest<'static>)) -> (Roster, Plan) {
    let now = origin();
    let (roster, view) = build(upstreams, now);
    let mut ask = ask(&roster);
    change(&mut ask);
    let plan = plan(&ask, &view, &roster, now, &mut SmallRng::seed_from_u64(1));
    (roster, plan)
}

/// Plans an `eth_call` about `blocks`, the first and the last, and compares as below.
fn check_reach(blocks: (u64, u64), upstreams: &str, expected: &str) {
    check_search(blocks, 1, upstreams, expected);
}

#[track_caller]
fn check_search(blocks: (u64, u64), addresses: u64, upstreams: &str, expected: &str) {
    let (oldest, needed) = (Some(BlockNumber(blocks.0)), Some(BlockNumber(blocks.1)));
    let (span, filter) = (blocks.1 - blocks.0 + 1, FilterShape { addresses, digest: 1 });
    let (roster, plan) = planned(upstreams, |ask| {
        *ask = PlanRequest { oldest, needed, span, filter, ..*ask };
    });
    assert_eq!(shown(&roster, &plan), expected, "{upstreams}");
}

#[test]
fn asks_are_alike_when_nothing_that_is_assessed_differs() {
    let table = MethodTable::standard();
    let all: UpstreamSet = [Slot(0), Slot(1)].into_iter().collect();
    let one = PlanRequest::of(table.row("eth_call"), all);
    assert!(one.is_alike(&one));
    let filter = FilterShape { addresses: 1, digest: 7 };
    for other in [
        PlanRequest { row: table.row("eth_getBalance"), ..one },
        PlanRequest { eligible: [Slot(1)].into_iter().collect(), ..one },
        PlanRequest { needed: Some(BlockNumber(0)), ..one },
        PlanRequest { oldest: Some(BlockNumber(0)), ..one },
        PlanRequest { span: 1, ..one },
        PlanRequest { filter, ..one },
    ] {
        assert!(!one.is_alike(&other), "{other:?}");
    }
}

#[test]
fn an_upstream_that_does_not_reach_so_far_is_the_last_resort() {
    check_reach((49, 49), "a:#100:pruned b:#100:fallback", "b | a");
    check_reach((49, 49), "a:#100:pruned b:#100:syncing", "| b a");
    check_reach((50, 50), "a:#100:pruned b:#100:fallback", "a b |");
    check_reach((50, 59), "a:#100:narrow b:#100:fallback", "a b |");
    check_reach((50, 60), "a:#100:narrow b:#100:fallback", "b | a");
    check_reach((50, 60), "a:#100:narrow b:#100:narrow:pruned:fallback", "| a b");
}

#[test]
fn an_upstream_that_takes_fewer_addresses_is_the_last_resort() {
    check_search((50, 50), 10, "a:#100:few_addresses b:#100:fallback", "a b |");
    check_search((50, 50), 11, "a:#100:few_addresses b:#100:fallback", "b | a");
    check_search((50, 60), 11, "a:#100:few_addresses b:#100:narrow:fallback", "| a b");
}

/// Plans an `eth_call` at block `needed` and compares "fit | last resorts".
fn check(needed: Option<u64>, upstreams: &str, expected: &str) {
    let now = origin();
    let (roster, view) = build(upstreams, now);
    let ask = PlanRequest { needed: needed.map(BlockNumber), ..ask(&roster) };
    // Well after the rests that `build` started would still be running.
    let later = now + Duration::from_millis(500);
    let plan = plan(&ask, &view, &roster, later, &mut SmallRng::seed_from_u64(1));
    assert_eq!(shown(&roster, &plan), expected, "{upstreams}");
}

#[test]
fn the_quickest_is_first() {
    check(None, "a:30ms b:10ms c:20ms", "b c a |");
}

#[test]
fn an_upstream_of_twice_the_weight_may_cost_twice_as_much() {
    let first = |weight| {
        let now = origin();
        let (mut roster, view) = build("a:20ms b:30ms", now);
        let heavier = Identity { weight, ..Identity::named("b") };
        let row = MethodTable::standard().row("eth_call");
        let b = Upstream::new(heavier, Slot(1), BreakerBounds::default(), now);
        b.set_standing(Standing::Verified);
        b.settle(row, &verdict(VerdictClass::Answer), now, now + Duration::from_millis(30));
        let upstreams = vec![Arc::clone(roster.upstream(Slot(0))), Arc::new(b)];
        roster = Roster::new(upstreams, MethodRules::default(), Vec::new());
        let plan = plan(&ask(&roster), &view, &roster, now, &mut SmallRng::seed_from_u64(1));
        names(&roster, &plan)
    };
    assert_eq!((first(1), first(2)), ("a b".to_owned(), "b a".to_owned()));
}

#[test]
fn each_caller_has_its_own_upstream_while_that_is_well() {
    let of = |upstreams: &str, caller: u64| {
        let (roster, plan) = planned(upstreams, |ask| ask.caller = Some(caller));
        names(&roster, &plan)
    };
    let quick = "a:1ms b:90ms c:90ms d:90ms e:90ms";
    let callers = (1..=64).map(|caller: u64| caller.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut firsts, mut moved) = (std::collections::BTreeMap::new(), 0);
    for caller in callers {
        let order = of(quick, caller);
        assert_eq!(order, of("a:90ms b:1ms c:1ms d:1ms e:1ms", caller), "latency says nothing");
        // Where `a` is unwell its own callers go to their second, and no other moves.
        let without = of("a:dead b:90ms c:90ms d:90ms e:90ms", caller);
        let others: Vec<_> = order.split(' ').filter(|name| *name != "a").collect();
        assert_eq!(without, format!("{} a", others.join(" ")));
        moved += usize::from(order.starts_with('a'));
        *firsts.entry(order[..1].to_owned()).or_insert(0) += 1;
    }
    assert!(firsts.len() == 5 && moved < 64 / 3, "{firsts:?}");
    assert!(of("a:fallback b:90ms", 3).starts_with('b'), "the tier goes before");
}

#[test]
fn upstreams_that_are_to_be_last_are_before_the_last_resorts() {
    let (roster, plan) = planned("a:30ms b:10ms c:20ms d:dead", |_| {});
    assert_eq!((names(&roster, &plan), plan.fit()), ("b c a d".to_owned(), 3));
    let plan = plan.with_last([Slot(1), Slot(2), Slot(3)].into_iter().collect());
    assert_eq!((names(&roster, &plan), plan.fit()), ("a b c d".to_owned(), 3));
}

#[test]
fn tiers_outrank_speed() {
    check(None, "a:fallback:1ms b:90ms c:public:1ms", "b a c |");
}

#[test]
fn the_unwell_are_last_resorts_in_order_of_badness() {
    check(None, "a:dead b:10ms c:syncing d:throttled e:out", "b | d c a e");
}

#[test]
fn no_fit_upstream_is_not_no_upstream() {
    check(None, "a:dead b:dead:fallback", "| a b");
}

#[test]
fn another_chain_is_never_used() {
    check(None, "a:wrong b:unverified", "|");
}

#[test]
fn laggards_are_left_out() {
    check(None, "a:#100:30ms b:#97:10ms", "a | b");
    check(None, "a:#100:30ms b:#98:10ms", "b a |");
}

#[test]
fn an_upstream_without_the_block_waits_behind_one_that_holds_it() {
    check(Some(100), "a:#100:30ms b:#99:10ms", "a | b");
    check(Some(99), "a:#100:30ms b:#99:10ms", "b a |");
}

#[test]
fn an_upstream_that_is_behind_is_not_fit_and_yet_well() {
    let (_, plan) =
        planned("a:#100 b:#99 c:#99:dead d:#90", |ask| ask.needed = Some(BlockNumber(100)));
    assert_eq!((plan.candidates().len(), plan.fit(), plan.well()), (4, 1, 2));
}

#[test]
fn an_upstream_that_is_not_well_is_named_as_it_may_come_back() {
    let (roster, plan) = planned("a:#100 b:dead c:#80 d:pruned:#100 e:syncing", |ask| {
        ask.oldest = Some(BlockNumber(49));
    });
    assert_eq!(names(&roster, &plan), "a c e b d");
    assert_eq!(plan.unwell(), [Slot(4), Slot(1)]);
}

#[test]
fn an_upstream_that_asked_for_a_pause_is_well_and_outranks_one_that_is_behind() {
    let (roster, plan) = planned("a:#99 b:#100:throttled c:#80 d:#80:throttled", |ask| {
        ask.needed = Some(BlockNumber(100));
    });
    assert_eq!(names(&roster, &plan).split(' ').take(2).collect::<String>(), "ba");
    assert_eq!((plan.fit(), plan.holding(), plan.well()), (0, 1, 2), "a pause heals no lag");
}

#[test]
fn an_idle_upstream_is_fit_in_its_tier_however_old_its_head() {
    check(Some(100), "a:#90:idle:fallback b:#100", "b a |");
    check(Some(100), "a:#90:fallback b:#100", "b | a");
    // It was behind already when it told its head.
    check(None, "a:#100 b:#90:idle:fallback", "a | b");
}

#[test]
fn an_unknown_head_is_given_a_chance() {
    check(Some(100), "a:#100:30ms b:10ms", "b a |");
}

#[test]
fn a_class_that_fails_there_too_often_goes_elsewhere_but_not_nowhere() {
    check(None, "a:flaky b:900ms", "b | a");
    check(None, "a:flaky b:dead", "| a b");
    check(None, "a:flaky", "| a");
}

#[test]
fn without_probes_a_client_tries_an_upstream_whose_rest_is_over() {
    let start = origin();
    let (roster, view) = build("a:dead:unprobed b:500ms c:dead", start);
    let upstream = roster.upstream(Slot(0));
    let at = |ms| start + Duration::from_millis(ms);
    let shown = |method: &str, now| {
        let row = MethodTable::standard().row(method);
        let eligible = roster.eligible(row, method).expect("served");
        let ask = PlanRequest::of(row, eligible);
        [0, 1, 2].map(|slot| assess(&ask, roster.upstream(Slot(slot)), &view, now))
    };
    let (fit, rests) = (Fitness::Fit, Fitness::Unwell(Condition::BreakerOpen));
    let half = Fitness::Unwell(Condition::HalfOpen);
    assert_eq!(shown("eth_call", at(500)), [rests, fit, rests]);
    assert_eq!(shown("eth_call", at(1500)), [fit, fit, half], "its rest is over");
    let raw = shown("eth_sendPrivateTransaction", at(1500))[0];
    assert_eq!(raw, half, "nothing is tried with what may not be repeated");
    let row = MethodTable::standard().row("eth_call");
    let trial = upstream.begin_call(row, at(1500));
    assert_eq!(shown("eth_call", at(1600)), [half, fit, half], "one at a time");
    upstream.settle(row, &verdict(VerdictClass::Answer), at(1500), at(1700));
    drop(trial);
    assert_eq!(shown("eth_call", at(1700)), [fit, fit, half]);
}

#[test]
fn a_method_that_was_not_known_is_tried_again_after_a_while() {
    let start = origin();
    let (roster, view) = build("a:banned b:200ms", start);
    let ask = ask(&roster);
    let fitness = |seconds| {
        assess(&ask, roster.upstream(Slot(0)), &view, start + Duration::from_secs(seconds))
    };
    assert_eq!((fitness(299), fitness(301)), (Fitness::MethodUnknown, Fitness::Fit));
}

/// Plays a minute of calls, ten a second, of which `a` fails three in ten and `b` none,
/// both answering in 10 ms. Never two of the three in a row, so that no breaker of
/// consecutive failures could tell.
#[test]
fn one_that_fails_three_in_ten_is_asked_little_but_asked() {
    let start = origin();
    let (roster, view) = build("a b", start);
    let row = MethodTable::standard().row("eth_call");
    let ask = ask(&roster);
    let mut rng = SmallRng::seed_from_u64(3);
    let (mut asked, mut failed) = (0_u32, 0_u32);
    for turn in 0..600 {
        let now = start + Duration::from_millis(turn * 100);
        let first = plan(&ask, &view, &roster, now, &mut rng).candidates()[0];
        let upstream = roster.upstream(first);
        let call = upstream.begin_call(row, now);
        let mut class = VerdictClass::Answer;
        if first == Slot(0) {
            asked += 1;
            if matches!(asked % 10, 1 | 4 | 7) {
                failed += 1;
                class = VerdictClass::Fault;
            }
        }
        upstream.settle(row, &verdict(class), now, now + Duration::from_millis(10));
        drop(call);
    }
    assert!((3..60).contains(&asked), "{asked} of 600 calls, {failed} failed");
    // Alone it is used for everything.
    let only = PlanRequest { eligible: [Slot(0)].into_iter().collect(), ..ask };
    let end = start + Duration::from_secs(60);
    assert_eq!(plan(&only, &view, &roster, end, &mut rng).candidates(), [Slot(0)]);
}

#[test]
fn a_method_not_known_there_goes_elsewhere() {
    check(None, "a:banned b:200ms", "b | a");
}

#[test]
fn a_method_that_is_lacking_there_is_not_asked_for() {
    check(None, "a:lacking b:200ms", "b |");
    check(None, "a:lacking b:200ms:dead", "| b");
    check(None, "a:lacking b:lacking", "|");
    // What was answered before is not believed to be gone at once.
    check(None, "a:20ms:lacking b:lacking", "| a");
    let unoffered = |upstreams: &str| planned(upstreams, |_| {}).1.is_unoffered();
    assert!(unoffered("a:lacking b:lacking"));
    assert!(unoffered("a:lacking b:dead"), "nothing says that it is there");
    assert!(!unoffered("a:lacking b:200ms:dead"), "it was there");
    assert!(!unoffered("a:lacking b:throttled"), "it is well");
    assert!(!unoffered("a:lacking b:banned"));
    assert!(!unoffered("a:dead b:dead"));
}

#[test]
fn a_part_of_a_plan_keeps_its_order_and_its_ranks() {
    let (roster, plan) = planned("a:30ms b:10ms:fallback c:20ms d:dead e:5ms:throttled", |_| {});
    assert_eq!((names(&roster, &plan), plan.fit(), plan.well()), ("c a b e d".to_owned(), 3, 4));
    let part = plan.only([0, 3, 4].map(Slot).into_iter().collect());
    assert_eq!((names(&roster, &part), part.fit(), part.well()), ("a e d".to_owned(), 1, 2));
    assert_eq!((part.up(), part.unwell()), (2, &[Slot(3)][..]));
}

#[test]
fn with_four_equals_two_are_drawn_and_the_cheaper_leads() {
    let now = origin();
    let (roster, view) = build("a:10ms b:20ms c:30ms d:400ms", now);
    let ask = ask(&roster);
    let mut rng = SmallRng::seed_from_u64(7);
    let mut led = [0; 4];
    for _ in 0..1000 {
        let plan = plan(&ask, &view, &roster, now, &mut rng);
        led[plan.candidates()[0].index()] += 1;
        assert_eq!(plan.candidates().len(), 4);
    }
    // Of six pairs a leads three, b two, c one, and d none.
    assert!(led[0] > led[1] && led[1] > led[2] && led[2] > 0, "{led:?}");
    assert_eq!(led[3], 0, "the dearest never leads: {led:?}");
}

#[test]
fn routes_pick_by_name() {
    let now = origin();
    let glob = |text: &str| vec![text.parse().expect("a good glob")];
    let (plain, _) = build("a b c", now);
    let only = |names: &[&str]| names.iter().map(|name| UpstreamId::new(name)).collect();
    let roster = Roster::new(
        plain.upstreams().to_vec(),
        MethodRules { allow: Vec::new(), deny: glob("admin_*") },
        vec![
            RouteRule { methods: glob("debug_*"), only: only(&["b", "c"]), balance: None },
            RouteRule {
                methods: glob("trace_*"),
                only: only(&["a"]),
                balance: Some(Balance::Rendezvous),
            },
            RouteRule { methods: glob("ots_*"), only: only(&[]), balance: None },
        ],
    );
    let served = |method: &str| {
        let row = MethodTable::standard().row(method);
        roster.eligible(row, method).map(|set| {
            let has = |upstream: &&Arc<Upstream>| set.contains(upstream.slot());
            let name = |upstream: &Arc<Upstream>| upstream.identity().id.to_string();
            roster.upstreams().iter().filter(has).map(name).collect::<String>()
        })
    };
    assert_eq!(served("eth_call"), Ok("abc".into()));
    assert_eq!(served("debug_traceTransaction"), Ok("bc".into()));
    assert_eq!(served("debug_neverHeardOf"), Ok("bc".into()));
    assert_eq!(served("trace_block"), Ok("a".into()));
    assert_eq!(served("ots_getBlockDetails"), Err(NotServed::NoUpstream));
    assert_eq!(served("admin_peers"), Err(NotServed::Forbidden));
}
