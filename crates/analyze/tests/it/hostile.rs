//! Records of others: whatever their numbers and texts are, they are refused or concluded from,
//! and nothing breaks.

use std::thread;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use wellhead_analyze::record::{Record, RunRecord, read_all};
use wellhead_analyze::report::summary;
use wellhead_analyze::report::{Side, compare, report};

use super::synthetic::{World, metered, shaped};

const NUMBERS: [u64; 8] = [0, 1, 2, 1_000_000, 1 << 32, (1 << 53) - 1, 1 << 53, u64::MAX];
const TEXTS: [&str; 10] =
    ["", "0", "-1", "1e308", "NaN", "9007199254740992", "a,b", "</script>", "throttled", "fault"];

/// Puts another value in the place of a number or text, somewhere below.
fn spoil(value: &mut Value, rng: &mut SmallRng) {
    match value {
        Value::Object(fields) => {
            let kept = ["kind", "event", "experiment"];
            let names: Vec<String> =
                fields.keys().filter(|name| !kept.contains(&name.as_str())).cloned().collect();
            let field = names.choose(rng).and_then(|name| fields.get_mut(name));
            field.into_iter().for_each(|field| spoil(field, rng));
        }
        Value::Array(items) => {
            let at = rng.random_range(0..items.len().max(1));
            items.get_mut(at).into_iter().for_each(|item| spoil(item, rng));
        }
        Value::Number(_) => *value = NUMBERS[rng.random_range(0..NUMBERS.len())].into(),
        Value::String(_) => *value = TEXTS[rng.random_range(0..TEXTS.len())].into(),
        Value::Bool(it) => *it = !*it,
        Value::Null => {}
    }
}

/// Conclusions of records of which some are spoilt; those that the reader refuses are left out.
fn check(experiment: &str, seed: u64) {
    let mut world = World::new(seed, vec![metered(), shaped()]);
    (0..2).for_each(|target| world.play(experiment, target));
    let mut rng = SmallRng::seed_from_u64(seed);
    // Of some runs single lines are spoilt, of others all cells and nearly all else.
    let share = [0.01, 0.2, 0.9][rng.random_range(0..3)];
    let mut records: Vec<Record> = Vec::new();
    for record in &world.records {
        let mut line = serde_json::to_value(record).expect("plain data");
        if rng.random_bool(share) {
            spoil(&mut line, &mut rng);
        }
        if rng.random_bool(0.05) {
            continue;
        }
        let text = format!("{line}\n");
        records.extend(read_all(text.as_bytes()).map(|(read, _)| read).unwrap_or_default());
    }
    let mut run = serde_json::to_value(&world.run).expect("plain data");
    spoil(&mut run, &mut rng);
    let run: RunRecord = serde_json::from_value(run).unwrap_or_else(|_| world.run.clone());
    let files = report(&run, &records);
    assert!(files.iter().all(|file| !file.text.contains("</script>a")), "{experiment} {seed}");
    assert!(!summary::lines(&run, &records).is_empty() || run.targets.is_empty());
    let whole = Side { name: "whole", run: &world.run, records: &world.records };
    compare(whole, Side { name: "spoilt", run: &run, records: &records });
}

#[test]
fn records_of_what_never_was_break_nothing() {
    let experiments = [
        "rate",
        "load",
        "streams",
        "connection",
        "window",
        "cost",
        "protocol",
        "throttle",
        "soak",
        "fresh",
        "reach",
    ];
    thread::scope(|scope| {
        for experiment in experiments {
            let check_all = move || (1..=4).for_each(|seed| check(experiment, seed));
            let thread = thread::Builder::new().name(experiment.to_owned());
            thread.spawn_scoped(scope, check_all).expect("a thread");
        }
    });
}
