//! Several runs at once: over time, and side by side.

use wellhead_analyze::report::{MERGED_FILES, history, merge};

use super::synthetic::{Dials, World, metered, shaped, side};

fn run(seed: u64, day: u64, note: Option<&str>, dials: Vec<Dials>) -> World {
    let count = dials.len();
    let mut world = World::new(seed, dials);
    world.run.started_unix = 1_795_000_000 + day * 86_400;
    world.run.machine.note = note.map(str::to_owned);
    (0..count).for_each(|target| world.play("rate", target));
    world
}

#[test]
fn trends_are_in_the_order_of_time() {
    let tighter = Dials { bucket: Some((80.0, 80.0)), ..metered() };
    let (old, new) = (run(1, 0, None, vec![metered()]), run(2, 3, None, vec![tighter, shaped()]));
    let told = history(&[side("new", &new), side("old", &old)]);
    let line = |name: &str| {
        let line = told.text.lines().find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name}\n{}", told.text));
        line.rsplit("/s")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("verdict rate.limit"), "125 80 -36 %");
    // A target that only one run has is told where it is.
    let shaped = told.text.split("\nshaped").nth(1).unwrap_or_default();
    assert!(shaped.lines().skip(1).all(|line| line.contains(" - ")), "{}", told.text);
    assert!(told.html.contains("days since 2026-11-18 11:06"));
    assert!(told.html.contains("\"xs\":[0.0,3.0]"), "{}", told.html.len());
    assert!(told.html.contains("<h2>metered: rate</h2>"));
}

#[test]
fn regions_stand_side_by_side_with_their_own_verdicts() {
    let tighter = Dials { bucket: Some((80.0, 80.0)), ..metered() };
    let (here, there) = (run(1, 0, Some("Tokyo"), vec![metered()]), run(2, 0, None, vec![tighter]));
    let again = run(3, 0, Some("Tokyo"), vec![metered()]);
    let files = merge(&[side("a", &here), side("b", &there), side("c", &again)]);
    assert_eq!(files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), MERGED_FILES);
    let markdown = &files[2].text;
    assert!(
        markdown.contains("| metered&#64;Tokyo | metered&#64;b | metered&#64;Tokyo 3 |"),
        "{markdown}"
    );
    let row = markdown.lines().find(|line| line.starts_with("| rate |")).expect("a row");
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert!(
        cells[2].contains("125") && cells[3].contains("80") && cells[4].contains("125"),
        "{row}"
    );
    assert_eq!(files[0].text.matches("<article class=\"card\">").count(), 3);
}
