//! Each checker is seen to ring when what it looks for is broken on purpose.

use std::collections::HashMap;
use std::thread;

use wellhead_simulation::sabotage::{Sabotage, Story};
use wellhead_simulation::{Report, Scale, Scenario, play_sabotaged, play_scenario};

/// Seeds that are tried, from the one that is known on. A change of what seeds draw may need
/// another one; the test then takes longer until that is written down.
const SEEDS: u64 = 120;

fn rings(report: &Report, checker: &str) -> bool {
    report.violations.iter().any(|violation| violation.checker == checker)
}

/// What is played: a seed of a story.
type Play = (u64, Story);

fn scenario((seed, story): Play) -> Scenario {
    match story {
        Story::Usual => Scenario::draw(seed, Scale::Short),
        Story::Silence => Scenario::silence(seed, Scale::Short),
        Story::Crowd => Scenario::crowd(seed, Scale::Short),
        Story::Subscribers => Scenario::subscribers(seed, Scale::Short),
    }
}

/// The first play in which all these checkers ring. It ends there.
fn first((sabotage, seed, checkers): (Sabotage, u64, &[&str])) -> Play {
    let plays = (seed..seed + SEEDS).map(|seed| (seed, sabotage.story()));
    let all_ring = |play: &Play| {
        let report = play_sabotaged(scenario(*play), Some(sabotage));
        checkers.iter().all(|checker| rings(&report, checker))
    };
    let found = plays.into_iter().find(all_ring);
    found.unwrap_or_else(|| panic!("{sabotage:?}: {checkers:?} did not all ring in one seed"))
}

#[test]
fn every_checker_rings_when_its_promise_is_broken_on_purpose() {
    let parts = Sabotage::ALL.chunks(Sabotage::ALL.len().div_ceil(2));
    let found: Vec<(Play, &str)> = thread::scope(|scope| {
        let play = |part: &'static [(Sabotage, u64, &[&'static str])]| {
            part.iter().flat_map(|it| {
                let play = first(*it);
                it.2.iter().map(move |checker| (play, *checker))
            })
        };
        let running: Vec<_> =
            parts.map(|part| scope.spawn(move || play(part).collect::<Vec<_>>())).collect();
        running.into_iter().flat_map(|part| part.join().expect("a checker did not ring")).collect()
    });
    // Without sabotage: one play says it of all checkers.
    let mut sound: HashMap<Play, Report> = HashMap::new();
    for (play, checker) in found {
        let report = sound.entry(play).or_insert_with(|| play_scenario(scenario(play)));
        assert!(!rings(report, checker), "`{checker}` rings in {play:?} without sabotage");
    }
}
