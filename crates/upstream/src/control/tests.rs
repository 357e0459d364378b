//! Bounds of one upstream, each alone and together.

use wellhead_eth::MethodTable;
use wellhead_limit::lease::{LeaseGrant, WindowGrant};

use super::*;
use crate::budget::BudgetTerms;
use crate::provider::Provider;

/// 20 November 2026, 23:00 UTC.
const LATE: u64 = 20_777 * 86_400 + 23 * 3_600;

fn controls(provider: &str, terms: &BudgetTerms<'_>) -> Controls {
    Controls::new(Budget::new(Provider::named(provider), terms, LATE))
}

/// As [`controls`], with the one limit that replicas share.
fn shared_controls(provider: &str, terms: &BudgetTerms<'_>, word: &str) -> (Controls, LeasedLimit) {
    let mut controls = controls(provider, terms);
    let mut shared = Vec::new();
    controls.share(|word, limit| shared.push((word, limit)));
    let [(shared_word, limit)] = <[_; 1]>::try_from(shared).expect("one limit");
    assert_eq!(shared_word, word);
    (controls, limit)
}

/// Plays `at_ms:method[*calls]` and compares: `ok`, or the bound and the wait.
fn check(controls: &Controls, script: &str, expected: &str) {
    let told = |step: &str| {
        let (at, method) = step.split_once(':').expect("at:method");
        let (method, calls) = method.split_once('*').unwrap_or((method, "1"));
        let at = Duration::from_millis(at.parse().expect("ms"));
        let row = MethodTable::standard().row(method);
        let calls = calls.parse().expect("a number");
        let rows = std::iter::repeat_n(row, calls);
        match controls.admit(rows, place(calls > 1 || row.class.is_heavy()), || None, at) {
            Ok(()) => "ok".to_owned(),
            Err(held) => format!("{}/{}ms", held.bound.word(), held.wait.as_millis()),
        }
    };
    let found: Vec<_> = script.split_whitespace().map(told).collect();
    assert_eq!(found.join(" "), expected, "{script}");
}

fn place(is_bulky: bool) -> ExchangePlace {
    ExchangePlace { is_bulky, client: None }
}

fn terms() -> BudgetTerms<'static> {
    BudgetTerms { learn: true, ..BudgetTerms::default() }
}

fn paused(controls: &Controls, method: &str, at: Duration) -> Option<Duration> {
    let row = MethodTable::standard().row(method);
    controls.refusals().pause_for(std::iter::once(row), || at).map(|held| held.wait)
}

#[test]
fn without_bounds_all_go() {
    let controls = controls("", &terms());
    check(&controls, "0:eth_call 0:eth_call*1000 0:eth_getLogs", "ok ok ok");
    assert_eq!(controls.spending(Duration::ZERO).total, 1_002);
    assert_eq!(controls.spending(Duration::ZERO).day, None);
}

#[test]
fn a_rate_that_replicas_share_is_asked_for_and_held_like_any_other() {
    let terms = BudgetTerms { calls_per_second: Some(100), calls_burst: Some(10), ..terms() };
    let (controls, limit) = shared_controls("", &terms, "calls");
    let LeasedLimit::Bucket(bucket) = limit else { panic!("another limit: {limit:?}") };
    // No store serves it: the whole is its own, 95 a second and 9 at once.
    check(&controls, "0:eth_call*9 0:eth_call", "ok calls/10ms");
    bucket.note_replicas(3);
    bucket.note_back();
    check(&controls, "1:eth_call 1:eth_call", "ok calls/6ms");
    let ms = Duration::from_millis;
    let ask = bucket.ask(ms(2)).expect("it owes one, and wants another");
    let grant = |granted, wait| LeaseGrant { granted, wait: ms(wait) };
    bucket.grant(grant(ask.want, 0), ms(3));
    check(&controls, "3:eth_call", "ok");
    let calls = controls.calls.as_ref().expect("a rate of calls");
    while calls.take(1.0, ms(4), Bound::Calls).is_ok() {}
    bucket.ask(ms(5)).expect("it wants more");
    bucket.grant(grant(0, 300), ms(6));
    check(&controls, "7:eth_call", "calls/299ms");
    let row = MethodTable::standard().row("eth_call");
    assert_eq!(controls.rate_wait(row, ms(7)), ms(299));
}

#[test]
fn caps_that_replicas_share_end_where_the_store_says() {
    let terms = BudgetTerms { credits_per_day: Some(100), ..terms() };
    let (controls, limit) = shared_controls("", &terms, "caps");
    let LeasedLimit::Cap(cap) = limit else { panic!("another limit: {limit:?}") };
    cap.note_replicas(3);
    cap.note_back();
    let (ms, unix) = (Duration::from_millis, Duration::from_secs(LATE));
    check(&controls, "0:eth_call", "day/6ms");
    let ask = cap.ask(ms(1), unix).expect("a call waits for it");
    cap.grant(ask, 2_000, (50_000, u64::MAX), ms(2));
    check(&controls, "2:eth_call 2:eth_call", "ok ok");
    assert_eq!(controls.cap_reached(ms(2)), None);
    controls.begin(MethodTable::standard().row("eth_chainId"), ms(2));
    // The others have spent the rest.
    check(&controls, "3:eth_call", "day/6ms");
    let ask = cap.ask(ms(3), unix).expect("one was charged, another waits");
    cap.grant(ask, 0, (0, u64::MAX), ms(4));
    check(&controls, "5:eth_call", "day/3600000ms");
    assert_eq!(controls.cap_reached(ms(5)), Some(Cap::Day));
    assert_eq!(controls.cap_reached(Duration::from_secs(3_600)), None, "tomorrow");
}

#[test]
fn a_window_that_replicas_share_is_counted_by_the_store() {
    let terms = BudgetTerms { plan: Some("standard"), ..terms() };
    let (controls, limit) = shared_controls("fiews", &terms, "credits");
    let LeasedLimit::Window(window) = limit else { panic!("another limit: {limit:?}") };
    window.note_replicas(3);
    window.note_back();
    let ms = Duration::from_millis;
    check(&controls, "1:eth_call", "credits/6ms");
    let grant = |granted, left| WindowGrant { granted, left, ends_in: ms(300_250), began: 7 };
    window.ask(ms(2)).expect("a call waits for it");
    window.grant(grant(2_000, 0), ms(3));
    check(&controls, "3:eth_call", "ok");
    controls.begin(MethodTable::standard().row("eth_chainId"), ms(3));
    check(&controls, "4:eth_call", "credits/6ms");
    window.ask(ms(5)).expect("another waits");
    window.grant(grant(0, 0), ms(6));
    check(&controls, "7:eth_call", "credits/300248ms");
    let row = MethodTable::standard().row("eth_call");
    assert_eq!(controls.rate_wait(row, ms(7)), ms(300_248));
}

#[test]
fn places_that_replicas_share_are_held_by_parked_answers_too() {
    let terms = BudgetTerms { in_flight: Some(12), ..terms() };
    let (controls, limit) = shared_controls("", &terms, "in_flight");
    let LeasedLimit::Gate(places) = limit else { panic!("another limit: {limit:?}") };
    places.note_replicas(3);
    places.note_back();
    // Two are its own; six more are divided by the store.
    check(&controls, "0:eth_call 0:eth_call 0:eth_call", "ok ok in_flight/1ms");
    let ask = places.ask(Duration::ZERO).expect("more are wanted");
    places.grant(ask, 1, Duration::ZERO);
    check(&controls, "1:eth_call 1:eth_call", "ok in_flight/1ms");
    controls.parked(false);
    assert_eq!((controls.in_flight(), places.inside()), (2, 3));
    check(&controls, "2:eth_call", "in_flight/1ms");
    controls.left_parked(place(false));
    controls.ended(place(false));
    assert_eq!((controls.in_flight(), places.inside()), (1, 1));
    controls.begin(MethodTable::standard().row("eth_chainId"), Duration::ZERO);
    assert_eq!((controls.in_flight(), places.inside()), (2, 2));
    // A quarter of its fair share of four.
    assert!(controls.begin_flow() && !controls.begin_flow());
}

#[test]
fn calls_at_once() {
    let controls = controls("", &BudgetTerms { in_flight: Some(2), ..terms() });
    check(&controls, "0:eth_call 0:eth_call 0:eth_call", "ok ok in_flight/1ms");
    controls.ended(place(false));
    check(&controls, "0:eth_call 0:eth_call", "ok in_flight/1ms");
    // Our own are counted but not held.
    controls.begin(MethodTable::standard().row("eth_chainId"), Duration::ZERO);
    assert_eq!(controls.in_flight(), 3);
}

#[test]
fn one_of_several_clients_leaves_places_to_the_others() {
    let controls = controls("", &BudgetTerms { in_flight: Some(4), ..terms() });
    let row = MethodTable::standard().row("eth_call");
    let of = |client| ExchangePlace { is_bulky: false, client: Some(ClientHash(client)) };
    let enter = |client| {
        let rows = std::iter::once(row);
        let admitted = controls.admit(rows, of(client), || None, Duration::ZERO);
        admitted.map_err(|held| held.bound)
    };
    assert_eq!([enter(1), enter(2), enter(2), enter(2)], [Ok(()); 4]);
    assert_eq!(enter(2), Err(Bound::ClientShare));
    assert_eq!(enter(1), Err(Bound::InFlight));
    controls.ended(of(1));
    assert_eq!((enter(2), enter(1)), (Err(Bound::ClientShare), Ok(())));
    // Parked, it still has a place of the given limit and of its client's share.
    controls.parked(false);
    assert_eq!(enter(2), Err(Bound::ClientShare));
    controls.left_parked(of(2));
    assert_eq!((enter(2), enter(2)), (Ok(()), Err(Bound::ClientShare)));
}

#[test]
fn an_answer_that_waits_for_its_client_has_a_place_of_the_given_limit_alone() {
    let controls = controls("", &BudgetTerms { in_flight: Some(8), ..terms() });
    check(&controls, "0:eth_call*1 0:eth_call*1", "ok ok");
    controls.parked(false);
    controls.parked(false);
    assert_eq!(controls.in_flight(), 0);
    check(&controls, "0:a 0:a 0:a 0:a 0:a 0:a 0:a", "ok ok ok ok ok ok in_flight/1ms");
    controls.resumed(false);
    controls.left_parked(place(false));
    assert_eq!(controls.in_flight(), 7);
    check(&controls, "0:a 0:a", "ok in_flight/1ms");
}

#[test]
fn a_quarter_of_the_given_limit_flows_however_many_wait_for_their_clients() {
    for (given, most) in [(None, 99), (Some(1), 0), (Some(2), 1), (Some(8), 2), (Some(9), 2)] {
        let controls = controls("", &BudgetTerms { in_flight: given, ..terms() });
        let flow = |_: &u32| {
            let began = controls.begin_flow();
            if began {
                controls.begin(MethodTable::standard().row("eth_getLogs"), Duration::ZERO);
                controls.parked(false);
                controls.resumed(false);
            }
            began
        };
        assert_eq!((0..99).filter(flow).count(), most, "{given:?}");
        if most > 0 {
            controls.end_flow();
            assert!(controls.begin_flow(), "{given:?}: one ended");
        }
    }
}

#[test]
fn credits_are_those_of_the_provider() {
    // A bucket of 5,000, of which 4,500 may go at once: a raw transaction is 250.
    let controls = controls("alchemy", &BudgetTerms { plan: Some("free"), ..terms() });
    check(
        &controls,
        "0:eth_sendRawTransaction*18 0:eth_chainId 0:eth_call 52:eth_call",
        "ok ok credits/52ms ok",
    );
    // Billed otherwise than counted against the rate.
    assert_eq!(controls.spending(Duration::ZERO).total, 18 * 40 + 26);
}

#[test]
fn pushed_messages_are_in_the_ledger_to_the_credit() {
    let pushed = |provider: &str, messages: u64, bytes| {
        let controls = controls(provider, &terms());
        let told: u64 = (0..messages).map(|_| controls.charge_push(bytes, Duration::ZERO)).sum();
        assert_eq!(controls.spending(Duration::ZERO).total, told, "{provider}");
        told
    };
    // A day of mainnet: 7,200 heads of 1,816 bytes at 0.04 credits a byte.
    assert_eq!(pushed("alchemy", 7_200, 1_816), 523_008);
    assert_eq!(pushed("alchemy", 3, 10), 1, "1.2 credits");
    assert_eq!(pushed("infura", 7_200, 1_816), 360_000);
    assert_eq!(pushed("", 7_200, 1_816), 0, "an own node costs nothing");
}

#[test]
fn a_batch_costs_what_its_calls_cost() {
    let controls = controls("", &BudgetTerms { credits_per_second: Some(100), ..terms() });
    check(&controls, "0:eth_call*5 0:eth_call", "ok credits/10ms");
}

#[test]
fn what_is_held_by_a_later_bound_pays_no_earlier_one() {
    let terms =
        BudgetTerms { credits_per_second: Some(1_000), calls_per_second: Some(20), ..terms() };
    let controls = controls("", &terms);
    check(
        &controls,
        "0:eth_call 0:eth_call 0:eth_call 0:eth_call",
        "ok calls/52ms calls/52ms calls/52ms",
    );
    assert_eq!(controls.spending(Duration::ZERO).total, 1);
    assert_eq!(controls.in_flight(), 1, "nor a place");
    // 50 at once less the one that went.
    check(&controls, "0:eth_call*49", "calls/52ms");
    let row = MethodTable::standard().row("eth_call");
    assert_eq!(controls.rate_wait(row, Duration::ZERO).as_millis(), 52);
}

#[test]
fn caps_end_with_their_day() {
    let day = BudgetTerms { credits_per_day: Some(3), ..terms() };
    let controls = controls("", &day);
    check(&controls, "0:eth_call*3 0:eth_call", "ok day/3600000ms");
    check(&controls, "3599999:eth_call 3600000:eth_call", "day/1000ms ok");
}

#[test]
fn and_with_their_month() {
    let month = BudgetTerms { credits_per_month: Some(3), ..terms() };
    let controls = controls("", &month);
    // An hour of today and ten days of November are left.
    check(&controls, "0:eth_call*3 0:eth_call", "ok month/867600000ms");
    check(&controls, "867600000:eth_call", "ok");
}

#[test]
fn beyond_a_cap_only_an_upstream_with_overspend_is_asked() {
    let terms = BudgetTerms { credits_per_day: Some(1), overspend: true, ..terms() };
    let controls = controls("", &terms);
    check(&controls, "0:eth_call 0:eth_call", "ok ok");
    assert_eq!(controls.cap_reached(Duration::ZERO), Some(Cap::Day));
}

#[test]
fn long_answers_leave_a_quarter_of_what_is_learnt_to_short_ones() {
    let controls = controls("", &terms());
    let play = |script: &str, times: usize, expected: &str| {
        (0..times).for_each(|_| check(&controls, script, expected));
    };
    play("0:eth_getLogs", 12, "ok");
    play("0:eth_call*100", 12, "ok");
    check(&controls, "0:eth_getLogs 0:eth_call*2", "bulky_share/1ms bulky_share/1ms");
    play("0:eth_call", 8, "ok");
    check(&controls, "0:eth_call", "learnt_limit/1ms");
    // One that waits for its client leaves its place, and takes it again.
    controls.parked(true);
    check(&controls, "0:eth_getLogs 0:eth_getLogs", "ok bulky_share/1ms");
    controls.resumed(true);
    controls.ended(place(true));
    controls.ended(place(false));
    check(&controls, "0:eth_getLogs 0:eth_call", "bulky_share/1ms ok");
    controls.ended(place(true));
    check(&controls, "0:eth_getLogs 0:eth_call", "ok learnt_limit/1ms");
}

#[test]
fn a_limit_that_was_given_is_for_all() {
    let controls = controls("", &BudgetTerms { in_flight: Some(4), ..terms() });
    check(&controls, "0:eth_getLogs 0:eth_call*2 0:eth_getLogs 0:eth_getLogs", "ok ok ok ok");
    check(&controls, "0:eth_getLogs 0:eth_call", "in_flight/1ms in_flight/1ms");
}

#[test]
fn a_refusal_changes_the_rate_and_not_the_limit() {
    let controls = controls("", &terms());
    let row = MethodTable::standard().row("eth_call");
    let limit = controls.spending(Duration::ZERO).limit;
    let at = Duration::from_secs(1);
    let rows = std::iter::repeat_n(row, 50);
    assert!(controls.admit(rows, place(false), || None, at).is_ok());
    controls.refused(row, at, at, None, Duration::from_secs(9));
    let pause = paused(&controls, "eth_call", at).expect("a pause");
    assert_eq!(pause, Duration::from_secs(1));
    let spending = controls.spending(at + pause);
    assert!(spending.learnt_rate.is_some_and(|rate| rate < 50.0), "{spending:?}");
    assert_eq!(spending.limit, limit);
}

#[test]
fn with_learning_off_no_limit_is_learnt() {
    let controls = controls("", &BudgetTerms { learn: false, ..terms() });
    let row = MethodTable::standard().row("eth_call");
    let at = Duration::from_secs(1);
    controls.refused(row, at, at, None, Duration::from_secs(9));
    assert_eq!(paused(&controls, "eth_call", at), Some(Duration::from_secs(9)));
    let spending = controls.spending(at);
    assert_eq!((spending.learnt_rate, spending.limit), (None, None));
}
