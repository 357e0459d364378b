//! Writes the report on a made-up run at three kinds of provider, to look at it.
//!
//! `cargo run -p wellhead-analyze --example synthetic_report -- DIR`

#[path = "../tests/it/synthetic.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod synthetic;

use std::path::Path;
use std::{env, fs, io};

use synthetic::{World, elastic, metered, shaped};
use wellhead_analyze::report::{Side, compare, report};

fn main() -> io::Result<()> {
    let Some(folder) = env::args().nth(1) else {
        return Err(io::Error::other("name a folder to write to"));
    };
    let folder = Path::new(&folder);
    fs::create_dir_all(folder)?;
    let [first, second] = [7, 8].map(|seed| {
        let mut world = World::new(seed, vec![metered(), shaped(), elastic()]);
        world.play_all();
        world
    });
    for file in report(&first.run, &first.records) {
        fs::write(folder.join(file.name), file.text)?;
    }
    let before = Side { name: "first", run: &first.run, records: &first.records };
    let after = Side { name: "second", run: &second.run, records: &second.records };
    let both = compare(before, after);
    fs::write(folder.join("compare.html"), both.html)?;
    fs::write(folder.join("compare.md"), both.markdown)
}
