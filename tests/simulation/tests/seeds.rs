//! A fixed set of seeds, and that a seed is one story and not several.

use std::thread;

use wellhead_simulation::journal::written;
use wellhead_simulation::{Report, Scale, play};

/// Seeds that every change has to pass.
const SEEDS: u64 = 240;
/// Lines shown of what led to a failure.
const SHOWN_LINES: usize = 30;

fn told(report: &Report) -> String {
    let mut text = String::new();
    if let Some(first) = report.violations.first() {
        text = report.evidence.journal.around(first.at, SHOWN_LINES).join("\n");
        let line = format!("{}: {}", first.checker, first.what);
        text += &format!("\nVIOLATED {}", written(first.at, &line));
        text += &format!("\nreplay: cargo xtask sim --seed {} --short", report.seed);
    }
    text
}

#[test]
fn fixed_seeds_pass_every_checker() {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let failed: Vec<String> = thread::scope(|scope| {
        let share = |first: u64| {
            scope.spawn(move || {
                let mut failed = Vec::new();
                for seed in (first..SEEDS).step_by(threads as usize) {
                    let report = play(seed, Scale::Short);
                    assert!(!report.evidence.requests.is_empty(), "seed {seed} asks nothing");
                    failed.extend((!report.violations.is_empty()).then(|| told(&report)));
                }
                failed
            })
        };
        let running: Vec<_> = (0..threads).map(share).collect();
        running.into_iter().flat_map(|it| it.join().expect("a seed panicked")).collect()
    });
    assert!(failed.is_empty(), "{} seeds failed:\n{}", failed.len(), failed.join("\n\n"));
}

#[test]
fn a_seed_is_played_the_same_each_time() {
    for seed in [1, 2, 3, 5, 8, 13, 21, 34] {
        let (one, other) = (play(seed, Scale::Short), play(seed, Scale::Short));
        let lines = |report: &Report| report.evidence.journal.lines().to_vec();
        let differing = lines(&one).into_iter().zip(lines(&other)).find(|(a, b)| a != b);
        assert_eq!(differing, None, "seed {seed}");
        assert_eq!(one.evidence.journal.hash(), other.evidence.journal.hash(), "seed {seed}");
    }
}
