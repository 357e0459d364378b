//! The short form of the bench of truths: kinds in paused time, with one seed each. All of them, nginx and HAProxy
//! too, are played by `scripts/truths`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#![allow(dead_code, reason = "the long form plays more")]

mod bench;

use bench::grade::{Worth, grade};
use bench::kind::{Kind, simulated};
use bench::play::{CaseClock, play};

const SEED: u64 = 1;

/// Nothing that is said of it with medium or high confidence is wrong, and what should be said is.
#[track_caller]
fn right(name: &str) {
    let kind: Vec<Kind> = simulated().into_iter().filter(|kind| kind.name == name).collect();
    let [kind] = kind[..] else { panic!("no kind has the name {name}") };
    let played = play(kind.case(SEED), CaseClock::Paused, None);
    for truth in &played.truths {
        let grade = grade(truth, &played.verdicts);
        assert_eq!(grade.worth, Worth::Right, "{name}, {truth:?}: {:#?}", grade.lines);
    }
}

#[test]
fn where_there_is_no_limit_none_is_told() {
    right("nothing");
}

#[test]
fn a_token_bucket() {
    right("token bucket of a second");
}

#[test]
fn a_fixed_window() {
    right("fixed window of ten seconds");
}

#[test]
fn a_sliding_window() {
    right("sliding window of a second");
}

#[test]
fn a_limit_on_calls_in_flight() {
    right("calls in flight, 429");
}

#[test]
fn a_line_before_a_server() {
    right("calls in flight, waiting");
}

#[test]
fn a_shaped_account() {
    right("shaped by account");
}

#[test]
fn shaped_connections() {
    right("shaped by connection");
}

#[test]
fn a_limit_that_tells_itself_by_503() {
    right("bucket with pages of 503");
}

#[test]
fn a_connection_cap() {
    right("connection cap");
}

#[test]
fn a_ban() {
    right("ban of an hour");
}

#[test]
fn a_quota() {
    right("quota of a day, 429");
}

#[test]
fn a_share_of_errors() {
    right("share of errors");
}

#[test]
fn a_step() {
    right("step");
}
