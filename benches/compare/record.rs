//! What is kept of a run: each sample as measured, and the machine it was on.
//!
//! The summary can be made again from the samples, so only they are kept.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contender::Kind;
use crate::measure::Sample;

const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/runs");

/// A run in the making.
pub(crate) struct Record {
    upstream: &'static str,
    turn: Duration,
    samples: Vec<(u32, Kind, Sample)>,
    /// From start to the first good answer.
    pub(crate) starts: Vec<Duration>,
}

impl Record {
    pub(crate) fn new(upstream: &'static str, turn: Duration) -> Self {
        Self { upstream, turn, samples: Vec::new(), starts: Vec::new() }
    }

    pub(crate) fn add(&mut self, round: u32, kind: Kind, sample: &Sample) {
        self.samples.push((round, kind, sample.clone()));
    }

    pub(crate) fn errors(&self) -> u64 {
        self.samples.iter().map(|(_, _, sample)| sample.errors).sum()
    }

    /// Prints minimum, median and maximum of what the rounds showed.
    pub(crate) fn summarise(&self) {
        println!();
        for kind in Kind::ALL {
            let [min, median, max] = spread(self.ratios(kind));
            let [_, micros, _] = spread(self.of(kind, Sample::cpu_micros_per_request));
            println!(
                "{:<16} {micros:6.2} µs   x nginx: min {min:.2}  median {median:.2}  max {max:.2}",
                kind.name(),
            );
        }
        let [_, resident, most] =
            spread(self.of(Kind::Wellhead, |sample| sample.resident_kib as f64 / 1024.0));
        println!(
            "wellhead, resident memory after a turn: median {resident:.1} MB, most {most:.1} MB"
        );
        let millis = self.starts.iter().map(|start| start.as_secs_f64() * 1e3).collect();
        let [min, median, max] = spread(millis);
        println!(
            "wellhead, start to first good answer: min {min:.0} ms, median {median:.0} ms, max {max:.0} ms"
        );
        println!("errors: {}", self.errors());
    }

    fn of(&self, kind: Kind, number: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let of_kind = self.samples.iter().filter(|(_, other, _)| *other == kind);
        of_kind.map(|(_, _, sample)| number(sample)).collect()
    }

    /// Each round's cost over nginx's of the same round.
    fn ratios(&self, kind: Kind) -> Vec<f64> {
        let cost = |kind| self.of(kind, Sample::cpu_micros_per_request);
        cost(kind).into_iter().zip(cost(Kind::Nginx)).map(|(own, nginx)| own / nginx).collect()
    }

    /// Writes the run under benches/runs, and says where.
    pub(crate) fn keep(&self) -> Result<String, String> {
        let began = said_by("date", &["-u", "+%Y-%m-%dT%H%M%SZ"]);
        let samples: Vec<Value> = self.samples.iter().map(sample).collect();
        let starts: Vec<f64> = self.starts.iter().map(|start| start.as_secs_f64() * 1e3).collect();
        let record = json!({
            "when": began,
            "machine": machine(),
            "upstream": self.upstream,
            "turn_seconds": self.turn.as_secs(),
            "connections": 64,
            "samples": samples,
            "start_to_first_answer_ms": starts,
        });
        let path = Path::new(RUNS).join(format!("{began}-{}.json", self.upstream));
        let text = format!("{record:#}\n");
        std::fs::create_dir_all(RUNS)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(format!("benches/runs/{began}-{}.json", self.upstream))
    }
}

fn sample((round, kind, sample): &(u32, Kind, Sample)) -> Value {
    json!({
        "round": round,
        "contender": kind.name(),
        "requests": sample.requests,
        "errors": sample.errors,
        "seconds": sample.seconds,
        "user_seconds": sample.user_seconds,
        "system_seconds": sample.system_seconds,
        "latency_p50_micros": sample.latency_p50_micros,
        "latency_p99_micros": sample.latency_p99_micros,
        "resident_kib": sample.resident_kib,
    })
}

/// What a reader needs to judge the numbers, and nothing that names the machine.
fn machine() -> Value {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": ")).map_or("", |(_, model)| model);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = meminfo.split_whitespace().nth(1).unwrap_or_default();
    json!({
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_kib": memory,
        "system": said_by("uname", &["-sm"]),
        "nginx": said_by("nginx", &["-v"]),
        "haproxy": said_by("haproxy", &["-v"]),
        "rustc": said_by("rustc", &["--version"]),
        "commit": said_by("git", &["describe", "--always", "--dirty"]),
    })
}

/// The first line that a program prints, on either stream.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else { return String::new() };
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().to_owned()
}

/// Minimum, median and maximum; of nothing, zeros.
fn spread(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (numbers.first(), numbers.last()) else { return [0.0; 3] };
    let middle = numbers.len() / 2;
    let median = f64::midpoint(numbers[middle], numbers[(numbers.len() - 1) / 2]);
    [*min, median, *max]
}
