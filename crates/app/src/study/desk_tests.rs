//! When a study begins, and whose calls it holds.

use wellhead_analyze::measure::client::CallMeter as _;
use wellhead_analyze::monitor::RateBound;
use wellhead_eth::MethodTable;
use wellhead_upstream::{Bound, Standing, Upstream};
use wellhead_watch::CallReason;

use super::*;
use crate::assemble::{Assembly, Recorders};
use crate::config;
use crate::study::upstream::{StudyMeter, studied};

#[test]
fn the_rate_of_clients_is_told_from_two_counts() {
    let begun = now();
    let at = |seconds: u64| begun + Duration::from_secs(seconds);
    let mut traffic = ClientTraffic::default();
    for (seconds, attempts, expected) in [
        (0, 100, None),
        // Too soon.
        (3, 110, None),
        (5, 110, Some(2.0)),
        (10, 110, Some(0.0)),
        // Too long ago to tell of now.
        (600, 900, None),
        (605, 905, Some(1.0)),
    ] {
        assert_eq!(traffic.per_second(attempts, at(seconds)), expected, "{seconds}");
    }
}

/// The desk of upstream `a`, with settings of all upstreams.
fn desk(upstreams: &str) -> (Assembly, StudyDesk) {
    let yaml = format!("chains: {{ eth: {{ id: 1, upstreams: [{upstreams}] }} }}");
    let settings = config::sound(&yaml);
    let parts = Assembly::new(&Arc::new(settings), Recorders::default(), now()).expect("sound");
    let found = studied(&parts).into_iter().next().expect("`a` is studied");
    let desk = StudyDesk {
        key: found.key(),
        place: found.place(),
        bounds: found.terms().bounds,
        current: Arc::new(ArcSwap::new(found)),
        record: StudyRecord::default(),
        turn: StudyTurn::default(),
        taken: None,
        traffic: ClientTraffic::default(),
        held_until: None,
        stop: Arc::default(),
    };
    (parts, desk)
}

const A: &str =
    "{ id: a, url: 'http://a', study: { dir: study }, budget: { credits_per_day: 1000 } }";
const B: &str = "{ id: b, url: 'http://b' }";

fn verify(parts: &Assembly, place: usize) -> Arc<Upstream> {
    let upstream = Arc::clone(&parts.chains[0].served.roster.upstreams()[place]);
    upstream.set_standing(Standing::Verified);
    upstream
}

#[test]
fn nothing_begins_before_the_upstream_is_ready_or_beyond_half_of_a_cap() {
    let (parts, mut desk) = desk(&format!("{A}, {B}"));
    let now = now();
    assert_eq!(desk.admit(TrackedLimit::Unknown, 100, now), Err(PutOff::NotReady));
    let (a, _b) = (verify(&parts, 0), verify(&parts, 1));
    assert_eq!(desk.admit(TrackedLimit::Unknown, 500, now), Ok(()));
    assert_eq!(desk.admit(TrackedLimit::Unknown, 501, now), Err(PutOff::Cap));
    // As its own calls spend it.
    let meter = StudyMeter(Arc::clone(&desk.current));
    (0..200).for_each(|_| meter.sends("eth_blockNumber"));
    assert_eq!(desk.admit(TrackedLimit::Unknown, 401, now), Err(PutOff::Cap));
    assert_eq!(desk.admit(TrackedLimit::Unknown, 400, now), Ok(()));
    let counts = &parts.chains[0].served.asked[0];
    assert_eq!((counts.get(CallReason::Study), counts.credits()), (200, 200));
    assert_eq!((a.spending(now).total, a.totals().0), (200, 200));
    assert_eq!(desk.current.load().clients_attempts(), 0);
}

#[test]
fn an_upstream_without_another_one_is_studied_while_clients_call_rarely() {
    let (parts, mut desk) = desk(&format!("{A}, {B}"));
    let (a, begun) = (verify(&parts, 0), now());
    let mut begins = |calls: u32, per_second: f64, seconds: u64| {
        let row = MethodTable::standard().row("eth_call");
        let now = begun + Duration::from_secs(seconds);
        (0..calls).for_each(|_| drop(a.begin_call(row, now)));
        let bound = RateBound { per_second, size: None, is_even: false };
        desk.admit(TrackedLimit::Limited(bound), 100, now)
    };
    assert_eq!(begins(0, 20.0, 0), Err(PutOff::Busy), "it is not known yet");
    assert_eq!(begins(10, 20.0, 5), Ok(()), "2 per second are a tenth of the limit");
    assert_eq!(begins(11, 20.0, 10), Err(PutOff::Busy));
    assert_eq!(begins(11, 30.0, 15), Ok(()));
    verify(&parts, 1);
    assert_eq!(begins(500, 20.0, 20), Ok(()), "there is another one");
}

#[test]
fn a_hold_is_renewed_while_calls_lean_and_ends_with_the_desk() {
    let (parts, mut desk) = desk(&format!("{A}, {B}"));
    let (a, row) = (verify(&parts, 0), MethodTable::standard().row("eth_call"));
    let begun = now();
    let held = |at: Instant| a.paused_for(row, at).map(|held| held.bound);
    for quarter in 0..20 {
        let at = begun + Duration::from_millis(250) * quarter;
        desk.hold(at);
        let just_before_the_next = at + Duration::from_millis(249);
        assert_eq!(held(just_before_the_next), Some(Bound::Study), "{quarter}");
    }
    drop(desk);
    assert_eq!(held(begun + Duration::from_secs(5)), None);
}

#[test]
fn one_upstream_has_the_turn() {
    let turn = StudyTurn::default();
    let taken = turn.try_lock();
    assert!(taken.is_ok() && turn.try_lock().is_err());
    drop(taken);
    assert!(turn.try_lock().is_ok());
}

#[test]
fn a_study_goes_on_unless_it_is_another_one() {
    let studied_with = |a: &str| desk(&format!("{a}, {B}")).1.current.load_full();
    let first = studied_with(A);
    // An upstream that is reached in the same way, as after a reload.
    let (parts, _) = desk(&format!("{A}, {B}"));
    let again = studied(&parts);
    assert!(again[0].goes_on_as(&studied(&parts)[0]));
    assert!(!again[0].goes_on_as(&first), "another connection");
    assert_eq!(first.place(), std::path::Path::new("study/eth/a"));
}
