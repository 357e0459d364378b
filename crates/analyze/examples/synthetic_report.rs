//! Writes the pages on made-up runs, to look at them: reports on 1, 3 and 8 targets, a comparison,
//! a history and merged runs.
//!
//! `cargo run -p wellhead-analyze --example synthetic_report -- DIR`

#[path = "../tests/it/synthetic.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod synthetic;

use std::path::Path;
use std::{env, fs, io};

use synthetic::{Dials, World, elastic, metered, shaped};
use wellhead_analyze::report::{ReportFile, Side, charts, compare, history, merge, report};

/// Names of eight targets, some longer than a card is wide.
const IDS: [&str; 8] = [
    "metered",
    "shaped",
    "elastic",
    "metered-frankfurt-with-a-long-name",
    "shaped-2",
    "elastic-2",
    "metered-3",
    "elastic-3",
];

fn main() -> io::Result<()> {
    let Some(folder) = env::args().nth(1) else {
        return Err(io::Error::other("name a folder to write to"));
    };
    let folder = Path::new(&folder);
    let kinds = [metered, shaped, elastic];
    let dials = |count: usize| -> Vec<Dials> {
        let one = |(n, id): (usize, &'static str)| Dials { id, ..kinds[n % kinds.len()]() };
        IDS.into_iter().take(count).enumerate().map(one).collect()
    };
    let play = |seed: u64, dials: Vec<Dials>| {
        let mut world = World::new(seed, dials);
        world.play_all();
        world
    };
    let [first, mut second] = [7, 8].map(|seed| play(seed, dials(3)));
    second.run.started_unix += 86_400;
    second.run.machine.note = Some("Frankfurt".to_owned());
    for (name, world) in [("1", &play(7, vec![shaped()])), ("3", &first), ("8", &play(7, dials(8)))]
    {
        write(&folder.join(name), &report(&world.run, &world.records))?;
    }
    let svg = folder.join("svg");
    fs::create_dir_all(&svg)?;
    for file in charts(&first.run, &first.records) {
        fs::write(svg.join(file.name), file.text)?;
    }
    let before = Side { name: "first", run: &first.run, records: &first.records };
    let after = Side { name: "second", run: &second.run, records: &second.records };
    write(&folder.join("merged"), &merge(&[before, after]))?;
    let both = compare(before, after);
    fs::write(folder.join("compare.html"), both.html)?;
    fs::write(folder.join("compare.md"), both.markdown)?;
    fs::write(folder.join("history.html"), history(&[before, after]).html)
}

fn write(folder: &Path, files: &[ReportFile]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    files.iter().try_for_each(|file| fs::write(folder.join(&file.name), &file.text))
}
