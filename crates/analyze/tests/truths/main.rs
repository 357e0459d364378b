//! The short form of the bench of truths: kinds in paused time, with one seed each. All of them, nginx and HAProxy
//! too, are played by `scripts/truths`.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]
#![allow(dead_code, reason = "the long form plays more")]

mod bench;

use std::thread;

use bench::grade::{Worth, grade};
use bench::kind::{Kind, simulated};
use bench::play::{CaseClock, play};

const SEED: u64 = 1;

/// Kinds that are played here.
const KINDS: [&str; 14] = [
    "nothing",
    "token bucket of a second",
    "fixed window of ten seconds",
    "sliding window of a second",
    "calls in flight, 429",
    "calls in flight, waiting",
    "shaped by account",
    "shaped by connection",
    "bucket with pages of 503",
    "connection cap",
    "ban of an hour",
    "quota of a day, 429",
    "share of errors",
    "step",
];

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
fn what_is_said_of_known_servers_is_right() {
    thread::scope(|scope| {
        for name in KINDS {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, || right(name)).unwrap();
        }
    });
}
