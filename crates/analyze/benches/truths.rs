//! Plays the bench of truths and prints the confusion matrix: `scripts/truths`.
//!
//! `[--seeds N] [--only PART-OF-A-NAME] [--load] [--keep DIRECTORY] [--simulated | --timed | --proxies]`. Exits with 1 where a verdict of
//! medium or high confidence is wrong, or fewer than nine of ten are right.

#![allow(clippy::unwrap_used, reason = "it ends where a server does not start")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]
#![allow(clippy::disallowed_methods, reason = "it tells how long each case takes")]

#[path = "../tests/truths/bench/mod.rs"]
mod bench;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use bench::grade::{Worth, grade};
use bench::kind::{Kind, proxies, simulated, timed};
use bench::matrix::Matrix;
use bench::play::{CaseClock, play};

/// Servers that are played at once.
const JOBS: usize = 2;

/// Threads that compute for nothing beside a load run, for each core.
const BURNERS: usize = 3;

struct Options {
    seeds: u64,
    only: Option<String>,
    load: bool,
    /// Where the records of each case are kept.
    keep: Option<PathBuf>,
    kinds: Vec<(Kind, CaseClock)>,
}

fn options() -> Result<Options, String> {
    let (mut seeds, mut only, mut load, mut keep) = (2, None, false, None);
    let with = |kinds: Vec<Kind>, clock| kinds.into_iter().map(move |kind| (kind, clock));
    let of_simulated = || with(simulated(), CaseClock::Paused);
    let of_timed = || with(timed(), CaseClock::Real);
    let of_proxies = || with(proxies(), CaseClock::Real);
    let mut kinds = of_simulated().chain(of_timed()).chain(of_proxies()).collect();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("`{word}` needs a value"));
        match word.as_str() {
            // From cargo.
            "--bench" => {}
            "--seeds" => seeds = value()?.parse().map_err(|_| "`--seeds` needs a number")?,
            "--only" => only = Some(value()?),
            "--keep" => keep = Some(PathBuf::from(value()?)),
            "--load" => (load, kinds) = (true, of_timed().chain(of_proxies()).collect()),
            "--simulated" => kinds = of_simulated().collect(),
            "--timed" => kinds = of_timed().collect(),
            "--proxies" => kinds = of_proxies().collect(),
            other => return Err(format!("unknown argument `{other}`")),
        }
    }
    Ok(Options { seeds, only, load, keep, kinds })
}

/// A case that is to be played.
struct QueuedCase {
    kind: Kind,
    clock: CaseClock,
    seed: u64,
}

/// Plays the cases of a queue until it is empty.
fn work(queue: &Mutex<VecDeque<QueuedCase>>, matrix: &Mutex<Matrix>, keep: Option<&Path>) {
    loop {
        let Some(QueuedCase { kind, clock, seed }) = queue.lock().unwrap().pop_front() else {
            return;
        };
        let begun = Instant::now();
        let name = format!("{}/{seed}", kind.name);
        let dir = keep.map(|keep| keep.join(name.replace(['/', ' ', ':', ','], "-")));
        let played = play(kind.case(seed), clock, dir.as_deref());
        let took = begun.elapsed().as_secs_f64();
        let mut matrix = matrix.lock().unwrap();
        matrix.server();
        let mut worst = String::new();
        for truth in &played.truths {
            let grade = grade(truth, &played.verdicts);
            matrix.add(&name, truth, &grade);
            worst += match grade.worth {
                Worth::Right => " right",
                Worth::Inconclusive => " open",
                Worth::Wrong => " WRONG",
            };
        }
        println!("{name}: {} calls, {took:.1} s:{worst}", played.calls);
    }
}

fn main() -> ExitCode {
    let Options { seeds, only, load, keep, kinds } = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let is_asked = |kind: &Kind| only.as_ref().is_none_or(|only| kind.name.contains(only.as_str()));
    let cases = |kind: Kind, clock| {
        // Real time is dear: one seed.
        let seeds = if clock == CaseClock::Real { 1 } else { seeds };
        (0..seeds).map(move |seed| QueuedCase { kind, clock, seed })
    };
    let queue: VecDeque<QueuedCase> = kinds
        .into_iter()
        .filter(|(kind, _)| is_asked(kind))
        .flat_map(|(kind, clock)| cases(kind, clock))
        .collect();
    let (queue, matrix, over) =
        (Mutex::new(queue), Mutex::new(Matrix::default()), AtomicBool::new(false));
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let burners = if load { BURNERS * cores } else { 0 };
        for _ in 0..burners {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let jobs: Vec<_> =
            (0..JOBS).map(|_| scope.spawn(|| work(&queue, &matrix, keep.as_deref()))).collect();
        for job in jobs {
            let _ = job.join();
        }
        over.store(true, Relaxed);
    });
    let matrix = matrix.into_inner().unwrap();
    println!("{matrix}");
    if matrix.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
