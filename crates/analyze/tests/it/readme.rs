//! The README of a run's directory has lines for pandas and for DuckDB. Both print the table above them.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;
use wellhead_analyze::record::{CallRecord, Cell, Record, RecordStamp, Writer};
use wellhead_analyze::report::report;

use super::synthetic::{World, metered, shaped};

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
struct HeadlineRow {
    target: String,
    experiment: String,
    /// pandas does not print it.
    calls: Option<u64>,
    p50_ms: f64,
    p95_ms: f64,
}

/// A directory with the records of a run, and its README.
struct RunDirectory {
    dir: TempDir,
    readme: String,
}

impl RunDirectory {
    /// A run in which some calls fail, one cell is doubted, and one was played twice.
    fn record() -> Self {
        let mut world = World::new(1, vec![metered(), shaped()]);
        world.run.id = "00ff".to_owned();
        for (experiment, target) in [("rate", 0), ("rate", 1), ("load", 0)] {
            world.play(experiment, target);
        }
        let cut = interrupted(&mut world.records);
        for (n, record) in world.records.iter_mut().enumerate() {
            match record {
                Record::Call(call) if n % 5 == 1 => spoil(call, n),
                Record::Cell(cell) if cell.experiment == "load" && cell.cell % 4 == 1 => {
                    cell.load.saturated = true;
                }
                Record::Call(_) | Record::Cell(_) | Record::Wire(_) | Record::Rollup(_) => {}
            }
        }
        world.records.splice(0..0, cut);
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.stamp(RecordStamp::new(&world.run, 1));
        world.records.iter().for_each(|record| writer.write(record).expect("written"));
        let dir = TempDir::new().expect("a directory");
        std::fs::write(dir.path().join("records.jsonl"), out).expect("written");
        let files = report(&world.run, &world.records).into_iter();
        let readme = files.filter(|file| file.name == "README.md").map(|file| file.text).collect();
        Self { dir, readme }
    }

    /// The table of the README.
    fn table(&self) -> Vec<HeadlineRow> {
        let head = "|---|---|---|---|---|\n";
        let (_, rows) = self.readme.split_once(head).expect("a table");
        let row = |line: &str| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let mut next = || cells.next().expect("a column").to_owned();
            HeadlineRow {
                target: next(),
                experiment: next(),
                calls: Some(next().parse().expect("a number")),
                p50_ms: next().parse().expect("a number"),
                p95_ms: next().parse().expect("a number"),
            }
        };
        rows.lines().take_while(|line| line.starts_with('|')).map(row).collect()
    }

    /// The lines of the README in this language, unchanged.
    fn lines(&self, language: &str) -> &str {
        let begin = format!("```{language}\n");
        let (_, rest) = self.readme.split_once(&begin).expect("lines");
        rest.split_once("```").expect("an end").0
    }

    /// What a script prints that runs in the directory, in the environment of this name.
    fn python(&self, environment: &str, script: &str, argument: &str) -> String {
        let python = cache().join(environment).join("bin/python");
        let mut command = Command::new(&python);
        let ran = command.args(["-c", script, argument]).current_dir(self.dir.path()).output();
        let ran = ran.unwrap_or_else(|error| {
            panic!("{}: {error}: `scripts/setup test` installs it", python.display())
        });
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).expect("text")
    }
}

fn cache() -> PathBuf {
    if let Some(cache) = std::env::var_os("WELLHEAD_CACHE") {
        return cache.into();
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    base.expect("HOME is set where people work").join("wellhead")
}

/// By so much the run is put off, so that there is time before it.
const BEFORE_US: u64 = 600_000_000;

/// The first cell as it was played before the run was cut, with times that are longer by [`BEFORE_US`].
fn interrupted(records: &mut [Record]) -> Vec<Record> {
    for record in records.iter_mut() {
        match record {
            Record::Call(call) => {
                call.intended_at += BEFORE_US;
                call.begun_at += BEFORE_US;
                call.ended_at += BEFORE_US;
            }
            Record::Cell(cell) => {
                cell.begun_at += BEFORE_US;
                cell.ended_at += BEFORE_US;
            }
            Record::Wire(wire) => wire.at += BEFORE_US,
            Record::Rollup(_) => {}
        }
    }
    let first = records.iter().find_map(Record::cell).expect("a cell").clone();
    let (begun_at, ended_at) = (first.begun_at - BEFORE_US, first.ended_at - BEFORE_US);
    let earlier = Record::Cell(Cell { begun_at, ended_at, ..first });
    let calls = records.iter().filter_map(Record::call).take(20);
    let early = |call: &CallRecord| {
        Record::Call(CallRecord {
            intended_at: call.intended_at - BEFORE_US,
            begun_at: call.begun_at - BEFORE_US,
            ended_at: call.ended_at,
            ..call.clone()
        })
    };
    calls.map(early).chain([earlier]).collect()
}

/// Some answers say that a call is served, and others do not.
fn spoil(call: &mut CallRecord, n: usize) {
    let outcome = [
        ("answer", Some("closed"), "eth_blockNumber"),
        ("reverted", None, "eth_call"),
        ("transaction_known", None, "eth_sendRawTransaction"),
        ("null", None, "eth_getBlockByNumber"),
        ("null", None, "eth_blockNumber"),
        ("throttled", None, "eth_blockNumber"),
    ][n / 5 % 6];
    call.class = outcome.0.to_owned();
    call.error = outcome.1.map(str::to_owned);
    call.method = outcome.2.to_owned();
    // So that it shows where it should not be counted, or is not.
    call.ended_at += 2_000_000;
}

/// The rows of two tables are the same, to the last digit that the README has.
#[track_caller]
fn check(expected: &[HeadlineRow], found: &[HeadlineRow]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}\n{expected:#?}");
    for (row, other) in expected.iter().zip(found) {
        let is_near = |a: f64, b: f64| (a - b).abs() < 0.001;
        let is_same = (&row.target, &row.experiment) == (&other.target, &other.experiment)
            && other.calls.is_none_or(|calls| Some(calls) == row.calls)
            && is_near(row.p50_ms, other.p50_ms)
            && is_near(row.p95_ms, other.p95_ms);
        assert!(is_same, "{row:?}\n{other:?}");
    }
}

fn sorted(mut rows: Vec<HeadlineRow>) -> Vec<HeadlineRow> {
    rows.sort_by(|one, other| {
        (&one.target, &one.experiment).cmp(&(&other.target, &other.experiment))
    });
    rows
}

#[test]
fn the_readme_has_a_row_for_each_experiment_at_each_target() {
    let run = RunDirectory::record();
    let rows = run.table();
    let names: Vec<_> = rows.iter().map(|row| (&*row.target, &*row.experiment)).collect();
    assert_eq!(names, [("metered", "load"), ("metered", "rate"), ("shaped", "rate")]);
    assert!(rows.iter().all(|row| row.calls > Some(100) && row.p95_ms > row.p50_ms), "{rows:#?}");
}

mod with_pandas {
    use super::*;

    /// So that each row has all of its names, and its figures all of their digits.
    const PRINTED_WHOLE: &str = "import pandas\n\
        pandas.set_option('display.multi_sparse', False)\n\
        pandas.set_option('display.precision', 6)\n";

    #[test]
    fn the_lines_of_the_readme_print_its_headline() {
        let run = RunDirectory::record();
        let lines = run.lines("python");
        let printed = run.python("pandas", &format!("{PRINTED_WHOLE}{lines}"), "");
        // `metered load 0.50 40.1`, one line for each percentile.
        let values: Vec<Vec<&str>> =
            printed.lines().map(|line| line.split_whitespace().collect()).collect();
        let values: Vec<&Vec<&str>> = values
            .iter()
            .filter(|words| words.len() == 4 && matches!(words[2], "0.50" | "0.95"))
            .collect();
        let row = |pair: &[&Vec<&str>]| {
            let [p50, p95] = pair else { panic!("{printed}") };
            assert_eq!((p50[2], p95[2]), ("0.50", "0.95"), "{printed}");
            HeadlineRow {
                target: p50[0].to_owned(),
                experiment: p50[1].to_owned(),
                calls: None,
                p50_ms: p50[3].parse().expect("a number"),
                p95_ms: p95[3].parse().expect("a number"),
            }
        };
        let rows: Vec<HeadlineRow> = values.chunks(2).map(row).collect();
        check(&sorted(run.table()), &rows);
    }
}

mod with_duckdb {
    use super::*;

    const AS_JSON: &str =
        "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall()))";

    /// Target, experiment, calls, and the two percentiles.
    #[derive(serde::Deserialize)]
    struct DuckRow(String, String, u64, [f64; 2]);

    #[test]
    fn the_lines_of_the_readme_select_its_headline() {
        let run = RunDirectory::record();
        let printed = run.python("duckdb", AS_JSON, run.lines("sql"));
        let rows: Vec<DuckRow> =
            serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
        let row = |DuckRow(target, experiment, calls, [p50_ms, p95_ms])| HeadlineRow {
            target,
            experiment,
            calls: Some(calls),
            p50_ms,
            p95_ms,
        };
        let rows: Vec<HeadlineRow> = rows.into_iter().map(row).collect();
        check(&sorted(run.table()), &rows);
    }
}
