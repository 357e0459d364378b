//! What is printed: a line for each turn, and the middle of all rounds.

use crate::case::{Case, Load};
use crate::contender::Kind;
use crate::figure::Figure;
use crate::record::Record;

/// System calls that are named.
const NAMED_MAX: usize = 8;

/// One line on the turn that has just ended.
pub(crate) fn print_turn(record: &Record, round: u32, case: Case, kind: Kind) {
    let Some(sample) = record.sample(round, case, kind) else { return };
    let mut line = format!("  {:<16}", kind.name());
    if kind == Kind::Direct {
        let latency = sample.latency.clone().unwrap_or_default();
        line.push_str(&format!(
            " p50 {:.0} µs  p99 {:.0} µs  p99.9 {:.0} µs",
            latency.p50_micros, latency.p99_micros, latency.p999_micros
        ));
    } else {
        for figure in case.figures() {
            let value = record.value(round, case, kind, *figure).unwrap_or(0.0);
            let ratio = record.ratio(round, case, kind, *figure).unwrap_or(0.0);
            line.push_str(&format!(" {value:9.2} {} ({ratio:.2} x)", figure.name()));
        }
        line.push_str(&format!(
            "   {:.0} requests/s  {} MiB",
            sample.requests_per_second(),
            sample.resident_kib / 1024
        ));
    }
    if sample.errors > 0 {
        line.push_str(&format!("   {} ERRORS", sample.errors));
    }
    println!("{line}");
    if matches!(case.load(), Load::Traced { .. }) {
        println!("                   {}", names(record, round, case, kind));
    }
}

/// The most frequent system calls, per request.
fn names(record: &Record, round: u32, case: Case, kind: Kind) -> String {
    let Some(sample) = record.sample(round, case, kind) else { return String::new() };
    let mut calls: Vec<(&String, &u64)> = sample.system_calls.iter().collect();
    calls.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let requests = sample.requests.max(1) as f64;
    let told: Vec<String> = calls
        .iter()
        .take(NAMED_MAX)
        .map(|(name, count)| format!("{name} {:.3}", **count as f64 / requests))
        .collect();
    told.join(", ")
}

/// Minimum, median and maximum of what the rounds showed.
pub(crate) fn print(record: &Record, cases: &[Case]) {
    for case in cases {
        println!("\n{}: {}", case.name(), case.about());
        for figure in case.figures() {
            println!("  {:<16} {:>10}   x nginx: min  median  max", figure.name(), "median");
            for kind in case.kinds() {
                print_figure(record, *case, *kind, *figure);
            }
        }
    }
    println!();
    let millis = record.starts.iter().map(|start| start.as_secs_f64() * 1e3).collect();
    let [min, median, max] = spread(millis);
    println!(
        "wellhead, start to first good answer: min {min:.0} ms, median {median:.0} ms, max {max:.0} ms"
    );
    println!("errors: {}", record.errors());
}

fn print_figure(record: &Record, case: Case, kind: Kind, figure: Figure) {
    let rounds = 1..=record.rounds();
    let values = rounds.clone().filter_map(|round| record.value(round, case, kind, figure));
    let [_, value, _] = spread(values.collect());
    let ratios = rounds.filter_map(|round| record.ratio(round, case, kind, figure));
    let [min, median, max] = spread(ratios.collect());
    println!("    {:<16} {value:8.2}            {min:5.2}  {median:6.2} {max:5.2}", kind.name());
}

/// Minimum, median and maximum; of nothing, zeros.
fn spread(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (numbers.first(), numbers.last()) else { return [0.0; 3] };
    let middle = numbers.len() / 2;
    let median = f64::midpoint(numbers[middle], numbers[(numbers.len() - 1) / 2]);
    [*min, median, *max]
}
