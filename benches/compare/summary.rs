//! What is printed: a line for each turn, and the middle of all rounds.

use crate::case::Case;
use crate::contender::Kind;
use crate::figure::Figure;
use crate::record::Record;

/// System calls that are named.
const NAMED_MAX: usize = 8;

/// One line on the turn that has just ended.
pub(crate) fn print_turn(record: &Record, round: u32, case: Case, kind: Kind) {
    let Some(sample) = record.sample(round, case, kind) else { return };
    let mut line = format!("  {:<16}", kind.name());
    if kind != Kind::Direct {
        for figure in case.figures() {
            let Some(value) = record.value(round, case, kind, *figure) else { continue };
            line.push_str(&format!(" {value:9.2} {}", figure.name()));
            if let Some(ratio) = record.ratio(round, case, kind, *figure) {
                line.push_str(&format!(" ({ratio:.2} x)"));
            }
        }
    }
    if let Some(latency) = &sample.latency {
        line.push_str(&format!(
            "   p50 {:.0} µs  p99 {:.0} µs  p99.9 {:.0} µs",
            latency.p50_micros, latency.p99_micros, latency.p999_micros
        ));
    }
    if sample.errors > 0 {
        line.push_str(&format!("   {} ERRORS", sample.errors));
    }
    println!("{line}");
    if sample.traced_requests > 0 {
        println!("                   {}", names(record, round, case, kind));
    }
}

/// The most frequent system calls, per request.
fn names(record: &Record, round: u32, case: Case, kind: Kind) -> String {
    let Some(sample) = record.sample(round, case, kind) else { return String::new() };
    let mut calls: Vec<(&String, &u64)> = sample.system_calls.iter().collect();
    calls.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let requests = sample.traced_requests.max(1) as f64;
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
            print_change(record, *case, *figure);
        }
    }
    println!();
    println!("start to first good answer, in ms: min  median  max");
    for (kind, starts) in &record.starts {
        let millis = starts.iter().map(|start| start.as_secs_f64() * 1e3).collect();
        let [min, median, max] = spread(millis);
        println!("    {:<16} {min:5.0}  {median:6.0} {max:5.0}", kind.name());
    }
    println!("errors: {}", record.errors());
}

fn print_figure(record: &Record, case: Case, kind: Kind, figure: Figure) {
    let rounds = 1..=record.rounds();
    let values = rounds.clone().filter_map(|round| record.value(round, case, kind, figure));
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        // It had no turn.
        return;
    }
    let [_, value, _] = spread(values);
    let mut line = format!("    {:<16} {value:8.2}", kind.name());
    let ratios = rounds.filter_map(|round| record.ratio(round, case, kind, figure));
    let ratios: Vec<f64> = ratios.collect();
    if !ratios.is_empty() {
        let [min, median, max] = spread(ratios);
        line.push_str(&format!("            {min:5.2}  {median:6.2} {max:5.2}"));
    }
    println!("{line}");
}

/// This build over the one before it, and with traces over itself without, where there are such.
fn print_change(record: &Record, case: Case, figure: Figure) {
    let ratios = |bar, kind| -> Vec<f64> {
        let ratio = |round| record.ratio_to(bar, round, case, kind, figure);
        (1..=record.rounds()).filter_map(ratio).collect()
    };
    let traced = ratios(Kind::Wellhead, Kind::WellheadTraced);
    if !traced.is_empty() {
        let [min, median, max] = spread(traced);
        println!("    traces x without                     {min:5.3} {median:6.3} {max:5.3}");
    }
    let changed = ratios(Kind::WellheadBefore, Kind::Wellhead);
    if changed.is_empty() {
        return;
    }
    print_figure(record, case, Kind::WellheadBefore, figure);
    let [min, median, max] = spread(changed);
    println!("    wellhead x before                    {min:5.3} {median:6.3} {max:5.3}");
}

/// Minimum, median and maximum; of nothing, zeros.
fn spread(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    let (Some(min), Some(max)) = (numbers.first(), numbers.last()) else { return [0.0; 3] };
    let middle = numbers.len() / 2;
    let median = f64::midpoint(numbers[middle], numbers[(numbers.len() - 1) / 2]);
    [*min, median, *max]
}
