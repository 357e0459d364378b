//! The arithmetic of the store's side.

use super::book::{GateBook, LeaseBook, WindowBook, chunk, left};
use super::*;

/// A bucket of 1000/s and 100; each step `at_ms:want/need/back`, each answer
/// `granted` or `granted+wait_us`.
fn check(script: &str, expected: &str) {
    let terms = BucketTerms { rate: 1_000, depth: 100 };
    let mut book = LeaseBook::default();
    let told = |step: &str| {
        let (at, ask) = step.split_once(':').expect("at:ask");
        let at = 1_000_000 + at.parse::<u64>().expect("ms") * 1_000;
        let numbers: Vec<u64> = ask.split('/').map(|n| n.parse().expect("a number")).collect();
        let ask = LeaseAsk { want: numbers[0], need: numbers[1], back: numbers[2] };
        let grant = book.lease(terms, ask, at);
        match grant.wait.as_micros() {
            0 => grant.granted.to_string(),
            wait => format!("{}+{wait}", grant.granted),
        }
    };
    let found: Vec<_> = script.split_whitespace().map(told).collect();
    assert_eq!(found.join(" "), expected, "{script}");
}

#[test]
fn what_is_there_is_granted_and_comes_back() {
    check("0:60/1/0 0:60/1/0 0:60/1/0 50:60/1/0", "60 40+1000 0+1000 50+1000");
    check("0:100/1/0 1000:200/1/0 1000:1/1/0", "100 100+1000 0+1000");
}
#[test]
fn less_than_needed_is_kept_for_later() {
    check("0:90/1/0 0:50/30/0 19:50/30/0 20:50/30/0", "90 0+20000 0+1000 30+30000");
}
#[test]
fn all_there_is_can_be_needed() {
    let terms = BucketTerms { rate: 6_326, depth: 7_201 };
    let ask = LeaseAsk { want: 9_000, need: 7_201, back: 0 };
    let granted = LeaseBook::default().lease(terms, ask, 1_000_000).granted;
    assert!((7_190..=7_201).contains(&granted), "{granted}");
}
#[test]
fn what_is_given_back_can_be_granted_again_and_never_more_than_fits() {
    check("0:100/1/0 0:0/0/30 0:50/1/0", "100 0 30+1000");
    check("0:10/1/0 0:0/0/300 0:150/1/0", "10 0 100+1000");
}
#[test]
fn a_clock_set_back_leaves_what_was_there() {
    check("900000:100/1/0 0:10/1/0 10:10/1/0", "100 0+1000 10");
    check("900000:40/1/0 0:50/1/0 0:50/1/0", "40 50 10+1000");
    check("900000:40/1/0 899995:100/1/0", "40 60+1000");
    check("900000:40/1/0 0:0/0/30 0:100/1/0", "40 0 90+1000");
}

#[test]
fn caps_are_leased_in_chunks() {
    let terms = CapTerms { day: Some(1_000), month: None };
    assert_eq!((left(terms, 400, 0), left(terms, 1_001, 0)), (600, 0));
    let ask = |want, need| LeaseAsk { want, need, back: 0 };
    for (rest, replicas, wanted, granted) in [
        (600, 3, ask(100, 1), 10),
        (600, 3, ask(4, 1), 4),
        (600, 3, ask(100, 50), 50),
        (40, 3, ask(100, 1), 1),
        (40, 3, ask(100, 50), 0),
        (0, 3, ask(100, 1), 0),
    ] {
        assert_eq!(chunk(rest, replicas, wanted), granted, "{rest} {wanted:?}");
    }
}

#[test]
fn a_window_opens_with_an_ask_and_takes_back_what_is_its_own() {
    let terms = WindowTerms { credits: 1_000, length: 50 };
    let mut book = WindowBook::default();
    let mut lease = |want, back, began, now| {
        let ask = LeaseAsk { want, need: want, back };
        let grant = book.lease(terms, 1, WindowAsk { ask, began }, now);
        (grant.granted, grant.left, grant.ends_in.as_micros(), grant.began)
    };
    assert_eq!(lease(0, 5, 0, 100), (0, 1_000, 0, 0), "nothing is wanted");
    assert_eq!(lease(600, 0, 0, 100), (600, 400, 50, 100));
    assert_eq!(lease(600, 0, 100, 149), (400, 0, 1, 100), "all that is left");
    assert_eq!(lease(600, 300, 100, 149), (300, 0, 1, 100));
    assert_eq!(lease(600, 300, 100, 150), (600, 400, 50, 150), "that window is over");
    assert_eq!(lease(500, 0, 150, 120), (400, 0, 50, 120), "set back, it is used as before");
}

#[test]
fn places_are_divided_by_what_is_wanted() {
    let mut book = GateBook::default();
    let mut divide = |replica, want, inside, now| {
        book.divide(replica, GateAsk { places: 30, want, inside }, 3_000, now)
    };
    assert_eq!(divide(1, 40, 0, 0), 30, "alone");
    assert_eq!(divide(2, 5, 0, 10), 0, "all are taken until the first asks again");
    assert_eq!(divide(1, 40, 10, 1_000), 25);
    assert_eq!(divide(2, 5, 0, 1_010), 5);
    assert_eq!(divide(3, 40, 0, 1_020), 0);
    assert_eq!(divide(1, 40, 25, 2_000), 12, "an equal part of what the second leaves");
    assert_eq!(divide(3, 40, 0, 2_001), 0, "what the first one uses is not free yet");
    assert_eq!(divide(1, 40, 12, 2_010), 12);
    assert_eq!(divide(3, 40, 0, 2_011), 12);
    assert_eq!(divide(3, 40, 0, 4_011), 15, "the second is forgotten");
    assert_eq!(divide(3, 40, 0, 5_010), 30, "the first one too");
}
