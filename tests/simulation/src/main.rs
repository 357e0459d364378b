//! Plays many seeds, or one with its log. Called by `cargo xtask sim`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool of the command line")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use wellhead_simulation::check;
use wellhead_simulation::journal::written;
use wellhead_simulation::{Report, Scale, Scenario, play_scenario};

const USAGE: &str = "\
usage: cargo xtask sim [--seeds N] [--from N] [--short] [--relay|--silence|--crowd|--subscribers] [--threads N] [--keep-going]
       cargo xtask sim --seed N [--short] [--plain|--relay|--silence|--crowd|--subscribers]
  --seeds N      play so many seeds (1000)
  --from N       begin with this one (0)
  --seed N       play one and print what happened
  --plain        without feeds, budgets, outages of a whole chain, a cache, deep reorgs and lies
  --relay        trouble that goes from one upstream to the next
  --silence      an upstream that hides logs
  --crowd        one address that takes all it can get
  --subscribers  clients that subscribe to heads and logs, and keep filters
  --short        the short scenarios of the tests
  --threads N    side by side (one a core)
  --keep-going   do not stop at the first failure; count them by checker";

/// What a seed may be played as, by the option that asks for it.
const STORIES: [(&str, Story); 5] = [
    ("--plain", Scenario::plain),
    ("--relay", Scenario::relay),
    ("--silence", Scenario::silence),
    ("--crowd", Scenario::crowd),
    ("--subscribers", Scenario::subscribers),
];

type Story = fn(u64, Scale) -> Scenario;

/// Lines shown of what led to a failure.
const SHOWN_LINES: usize = 40;
/// Violations shown of one seed.
const SHOWN_VIOLATIONS: usize = 8;

struct Options {
    seeds: u64,
    from: u64,
    one: Option<u64>,
    scale: Scale,
    /// One of [`STORIES`], or all that there is by itself.
    story: Option<(&'static str, Story)>,
    threads: usize,
    keep_going: bool,
}

impl Options {
    fn play(&self, seed: u64) -> Report {
        let story = self.story.map_or(Scenario::draw as Story, |(_, story)| story);
        play_scenario(story(seed, self.scale))
    }
}

fn options() -> Result<Options, String> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut options = Options {
        seeds: 1000,
        from: 0,
        one: None,
        scale: Scale::Full,
        story: None,
        threads,
        keep_going: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let text = arguments.next().ok_or(format!("`{argument}` needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"))
        };
        match argument.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--seed" => options.one = Some(number()?),
            "--threads" => options.threads = usize::try_from(number()?.max(1)).unwrap_or(1),
            "--short" => options.scale = Scale::Short,
            "--keep-going" => options.keep_going = true,
            word => match STORIES.into_iter().find(|(option, _)| *option == word) {
                Some(story) => options.story = Some(story),
                None => return Err(format!("`{argument}` is not known")),
            },
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match options.one {
        Some(seed) => replay(seed, &options),
        None => many(&options),
    }
}

/// One seed, with everything that happened.
fn replay(seed: u64, options: &Options) -> ExitCode {
    let report = options.play(seed);
    println!("{:#?}", report.evidence.scenario);
    for (at, line) in report.evidence.journal.lines() {
        println!("{}", written(*at, line));
    }
    println!("seed {seed}: hash {:016x}", report.evidence.journal.hash());
    tell(&report, options, 0);
    if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Default)]
struct Sums {
    played: u64,
    requests: usize,
    judged: usize,
    found: (usize, usize),
    exchanges: usize,
    simulated_secs: f64,
    failed: BTreeMap<u64, &'static str>,
}

fn many(options: &Options) -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "how long the run itself took")]
    let began = Instant::now();
    let (next, stop) = (AtomicU64::new(options.from), AtomicBool::new(false));
    let end = options.from.saturating_add(options.seeds);
    let sums = Mutex::new(Sums::default());
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let report = options.play(seed);
                    let judged = check::judged(&report.evidence);
                    let (asked, found) = check::found(&report.evidence);
                    let mut sums = sums.lock();
                    sums.judged += judged;
                    sums.found = (sums.found.0 + asked, sums.found.1 + found);
                    sums.played += 1;
                    sums.requests += report.evidence.requests.len();
                    sums.exchanges += report.evidence.exchanges.len();
                    let last = report.evidence.journal.lines().last();
                    sums.simulated_secs += last.map_or(0.0, |(at, _)| at.as_secs_f64());
                    if let Some(first) = report.violations.first() {
                        sums.failed.insert(seed, first.checker);
                        if options.keep_going {
                            println!("seed {seed}: {}: {}", first.checker, first.what);
                        } else {
                            stop.store(true, Ordering::Relaxed);
                            tell(&report, options, SHOWN_LINES);
                        }
                    }
                }
            });
        }
    });
    let sums = sums.into_inner();
    println!(
        "{} seeds from {}: {} failed; {} requests ({} with an upstream well), {} exchanges, {:.0} simulated seconds in {:.1} s",
        sums.played,
        options.from,
        sums.failed.len(),
        sums.requests,
        sums.judged,
        sums.exchanges,
        sums.simulated_secs,
        began.elapsed().as_secs_f64(),
    );
    println!(
        "of {} calls that may be kept or shared {} were answered without an upstream",
        sums.found.0, sums.found.1,
    );
    let mut by_checker: BTreeMap<&str, usize> = BTreeMap::new();
    sums.failed.values().for_each(|checker| *by_checker.entry(checker).or_default() += 1);
    for (checker, count) in by_checker {
        println!("  {checker}: {count}");
    }
    if sums.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tell(report: &Report, options: &Options, lines: usize) {
    let Some(first) = report.violations.first() else { return };
    for line in report.evidence.journal.around(first.at, lines) {
        println!("{line}");
    }
    for violation in report.violations.iter().take(SHOWN_VIOLATIONS) {
        let line = format!("{}: {}", violation.checker, violation.what);
        println!("VIOLATED {}", written(violation.at, &line));
    }
    let hidden = report.violations.len().saturating_sub(SHOWN_VIOLATIONS);
    if hidden > 0 {
        println!("and {hidden} more");
    }
    let short = if options.scale == Scale::Short { " --short" } else { "" };
    let story = options.story.map(|(option, _)| format!(" {option}")).unwrap_or_default();
    println!("replay: cargo xtask sim --seed {}{short}{story}", report.seed);
}
