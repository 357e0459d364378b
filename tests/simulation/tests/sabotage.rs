//! Each checker is seen to ring when what it looks for is broken on purpose.

use std::thread;

use wellhead_simulation::sabotage::Sabotage;
use wellhead_simulation::{Report, Scale, Scenario, play_sabotaged, play_scenario};

/// Seeds that are tried until one gives the defect an occasion: an outage, a budget, a lie.
const SEEDS: u64 = 120;

fn rings(report: &Report, checker: &str) -> bool {
    report.violations.iter().any(|violation| violation.checker == checker)
}

fn scenario(sabotage: Sabotage, seed: u64) -> Scenario {
    match sabotage {
        Sabotage::FindNoLogs => Scenario::silence(seed, Scale::Short),
        _ => Scenario::draw(seed, Scale::Short),
    }
}

#[test]
fn every_checker_rings_when_its_promise_is_broken_on_purpose() {
    let check = |(sabotage, checker): (Sabotage, &str)| {
        let seed = (0..SEEDS).find(|seed| {
            rings(&play_sabotaged(scenario(sabotage, *seed), Some(sabotage)), checker)
        });
        let seed = seed.unwrap_or_else(|| panic!("{sabotage:?}: `{checker}` did not ring"));
        let sound = play_scenario(scenario(sabotage, seed));
        assert!(!rings(&sound, checker), "`{checker}` rings in seed {seed} without sabotage");
    };
    thread::scope(|scope| {
        for all in Sabotage::ALL.chunks(4) {
            scope.spawn(move || all.iter().copied().for_each(check));
        }
    });
}
