//! How large answers come, and what small calls beside them take (`bodies`).
//!
//! A cell `{"large": n, "small": m}` keeps `n` large answers on their way over one connection, and
//! with `m` of 1 makes small calls one after another: beside them, or alone where `n` is 0.

use rand::Rng;
use wellhead_net::STREAM_WINDOW;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{BodyPace, Finding, NoBodyPace, PacedFlow, SmallFlow, SmallWait};
use super::sentence::bytes;
use super::trial::{PlayedCell, served, took_ms};
use super::{Confidence, DraftVerdict};
use crate::record::CallRecord;
use crate::stat::bootstrap::median_difference;
use crate::stat::median;

/// Below this share of failures the others still say something.
const FAILED_MAX: f64 = 0.05;
/// An answer that is shorter than this part of the largest is no large one.
const LARGE_SHARE: f64 = 0.5;
/// Nor is one of fewer bytes: nothing can be told of its pace.
const LARGE_BYTES_MIN: u64 = 8_192;
/// A transfer that takes less may be our own time, or the clock's.
const TRANSFER_MS_MIN: f64 = 2.0;
/// Several at a time reach so much of what as many alone would reach together, where each has its
/// own pace; and so much of one alone where all have one.
const EACH_MIN: f64 = 0.7;
const TOGETHER_MAX: f64 = 1.6;
/// Above this part of what our own window lets through, the window may be what is measured.
const WINDOW_SHARE: f64 = 0.7;
/// Small calls wait where they take longer by this part of what they take alone, and by this many
/// milliseconds: less may be our own time.
const WAIT_MIN: f64 = 0.1;
const WAIT_MS_MIN: f64 = 2.0;

/// Whether a call of such a cell is a large one.
pub(crate) fn is_large(call: &CallRecord) -> bool {
    call.method == "eth_getBlockByNumber"
}

pub(super) fn bodies(cells: &[&PlayedCell<'_>], rng: &mut impl Rng) -> Vec<DraftVerdict> {
    let of = |large: fn(u64) -> bool, small: u64| -> Vec<&PlayedCell<'_>> {
        let fits = |cell: &&PlayedCell<'_>| {
            cell.count("large").is_some_and(large) && cell.count("small") == Some(small)
        };
        cells.iter().copied().filter(fits).collect()
    };
    let (one, many) = (of(|n| n == 1, 0), of(|n| n > 1, 0));
    let (alone, beside) = (of(|n| n == 0, 1), of(|n| n > 0, 1));
    vec![pace(&one, &many), wait(&alone, &beside, rng)]
}

/// Served large answers of cells, those that are none by their length left out.
fn large<'a>(cells: &[&PlayedCell<'a>]) -> Vec<&'a CallRecord> {
    let all = cells.iter().flat_map(|cell| cell.calls.iter().copied());
    let all: Vec<&CallRecord> = all.filter(|call| is_large(call) && served(call)).collect();
    let most = all.iter().map(|call| call.bytes_in).max().unwrap_or(0);
    let least = (most as f64 * LARGE_SHARE) as u64;
    all.into_iter().filter(|call| call.bytes_in >= least.max(LARGE_BYTES_MIN)).collect()
}

fn pace(one: &[&PlayedCell<'_>], many: &[&PlayedCell<'_>]) -> DraftVerdict {
    if let Some(why) = too_many_failed(one).or_else(|| too_many_failed(many)) {
        return DraftVerdict::cannot_tell(why);
    }
    let alone = large(one);
    let transfers: Vec<f64> = alone.iter().filter_map(|call| transfer_s(call)).collect();
    let sizes: Vec<f64> = alone.iter().map(|call| call.bytes_in as f64).collect();
    let (Some(took), Some(size)) = (median(&transfers), median(&sizes)) else {
        return DraftVerdict::cannot_tell("no response was large enough to measure throughput");
    };
    let n = alone.len();
    let mut evidence = vec![format!("{n} responses one at a time, median size {}", bytes(size))];
    let repeats = one.len().min(many.len());
    let sure = if repeats >= 3 { Confidence::High } else { Confidence::Medium };
    if took * 1_000.0 < TRANSFER_MS_MIN {
        // All of the exchange, so that nothing is promised that was not seen.
        let whole: Vec<f64> =
            alone.iter().map(|call| call.bytes_in as f64 * 1_000.0 / took_ms(call)).collect();
        let up_to_bytes_per_second = median(&whole).unwrap_or(0.0);
        evidence
            .push(format!("half of them were complete {TRANSFER_MS_MIN} ms after the first byte"));
        let finding = Finding::BodyPace(NotUpTo(NoBodyPace { up_to_bytes_per_second }));
        return DraftVerdict::new(finding, sure, evidence);
    }
    let paces: Vec<f64> = alone
        .iter()
        .filter_map(|call| Some(call.bytes_in as f64 / transfer_s(call).filter(|s| *s > 0.0)?))
        .collect();
    let bytes_per_second = median(&paces).unwrap_or(0.0);
    let bound = window_bound(&alone, size);
    if let Some(bound) = bound.filter(|it| bytes_per_second > WINDOW_SHARE * it) {
        let why = format!(
            "large responses arrive at {}/s, and the analyser's own HTTP/2 flow-control window allows at most {}/s",
            bytes(bytes_per_second),
            bytes(bound)
        );
        return DraftVerdict::new(Finding::CannotTell { why }, Confidence::None, evidence);
    }
    let (Some(by_one), Some(by_many)) = (delivered(one), delivered(many)) else {
        return DraftVerdict::cannot_tell("no concurrent responses were tested");
    };
    let at_once = many.iter().filter_map(|cell| cell.count("large")).max().unwrap_or(1) as f64;
    let gain = by_many / by_one;
    let (all, single) = (bytes(by_many), bytes(by_one));
    evidence.push(format!("{at_once} at a time: {all}/s in total; one at a time: {single}/s"));
    let of = if gain >= EACH_MIN * at_once {
        PacedFlow::Each
    } else if gain <= TOGETHER_MAX {
        PacedFlow::Together
    } else {
        let why = format!(
            "{at_once} concurrent responses arrived {gain:.1} times as fast as single ones"
        );
        return DraftVerdict::new(Finding::CannotTell { why }, Confidence::None, evidence);
    };
    DraftVerdict::new(Finding::BodyPace(Found(BodyPace { bytes_per_second, of })), sure, evidence)
}

/// What our window lets through at least, bytes a second, where it is smaller than the answers: it
/// opens again no earlier than a round trip later, and a call that is answered takes one or more.
fn window_bound(calls: &[&CallRecord], size: f64) -> Option<f64> {
    let window = f64::from(STREAM_WINDOW);
    let h2 = calls.iter().all(|call| call.protocol.as_deref() == Some("h2"));
    let waits: Vec<f64> =
        calls.iter().filter_map(|call| Some(call.first_byte? as f64 / 1e6)).collect();
    let wait = median(&waits).filter(|wait| *wait > 0.0)?;
    (h2 && size > window).then_some(window / wait)
}

fn too_many_failed(cells: &[&PlayedCell<'_>]) -> Option<String> {
    let failed = cells.iter().map(|cell| cell.share(|call| !served(call))).fold(0.0, f64::max);
    (failed > FAILED_MAX).then(|| format!("up to {:.0} % of the calls failed", failed * 100.0))
}

fn transfer_s(call: &CallRecord) -> Option<f64> {
    Some(call.transfer? as f64 / 1e6)
}

/// Bytes a second of all answers, the median of the cells.
pub(crate) fn delivered(cells: &[&PlayedCell<'_>]) -> Option<f64> {
    let of = |cell: &&PlayedCell<'_>| {
        let (begin, end) = cell.span()?;
        let all: u64 = cell.calls.iter().map(|call| call.bytes_in).sum();
        Some(all as f64 * 1e6 / (end - begin) as f64)
    };
    median(&cells.iter().filter_map(of).collect::<Vec<_>>())
}

fn wait(alone: &[&PlayedCell<'_>], beside: &[&PlayedCell<'_>], rng: &mut impl Rng) -> DraftVerdict {
    if let Some(why) = too_many_failed(alone).or_else(|| too_many_failed(beside)) {
        return DraftVerdict::cannot_tell(why);
    }
    let times = |cells: &[&PlayedCell<'_>]| -> Vec<Vec<f64>> {
        let of = |cell: &&PlayedCell<'_>| {
            let small = cell.calls.iter().filter(|call| !is_large(call) && served(call));
            small.map(|call| took_ms(call)).collect()
        };
        cells.iter().map(of).collect()
    };
    let (quiet, busy) = (times(alone), times(beside));
    let (Some(longer), Some(alone_ms)) =
        (median_difference(&busy, &quiet, rng), median(&quiet.concat()))
    else {
        return DraftVerdict::cannot_tell(
            "small calls were not measured both alone and alongside large responses",
        );
    };
    let large = large(beside).len();
    if large == 0 {
        return DraftVerdict::cannot_tell("no response was large enough to delay others");
    }
    let evidence = vec![
        format!("{} small calls alone: p50 {alone_ms:.1} ms", quiet.concat().len()),
        format!(
            "{} alongside {large} large responses: p50 {:.1} ms",
            busy.concat().len(),
            alone_ms + longer.point
        ),
    ];
    let sure = Confidence::by_count(quiet.len().min(busy.len()), 3, 2);
    let (low, high) = (longer.low, longer.high);
    // As with "faster": only where chance is excluded, and where a user would notice.
    let finding = if low > 0.0 && longer.point > WAIT_MS_MIN.max(WAIT_MIN * alone_ms) {
        Finding::SmallWait(Found(SmallWait { ms: longer.point, low, high, alone_ms }))
    } else {
        Finding::SmallWait(NotUpTo(SmallFlow { low, high }))
    };
    DraftVerdict::new(finding, sure, evidence)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;
    use crate::record::Cell;

    /// What is said of answers of this many bytes that take this long, one by one and four at a
    /// time.
    fn said(bytes_in: u64, first_byte_ms: u64, transfer_ms: u64, gain: f64) -> String {
        let cell = |large: u64| Cell {
            factors: [("large", large), ("small", 0)]
                .map(|(name, value)| (name.to_owned(), value.to_string()))
                .into(),
            ..Cell::default()
        };
        let call = |n: u64, every_us: f64| CallRecord {
            n,
            method: "eth_getBlockByNumber".to_owned(),
            class: "answer".to_owned(),
            protocol: Some("h2".to_owned()),
            bytes_in,
            first_byte: Some(first_byte_ms * 1_000),
            transfer: Some(transfer_ms * 1_000),
            begun_at: (n as f64 * every_us) as u64,
            intended_at: (n as f64 * every_us) as u64,
            ended_at: ((n + 1) as f64 * every_us) as u64,
            ..CallRecord::default()
        };
        let each = ((first_byte_ms + transfer_ms) * 1_000) as f64;
        let calls = |every: f64| (0..10).map(|n| call(n, every)).collect::<Vec<_>>();
        let (ones, manies) = (calls(each), calls(each / gain));
        let (one, many) = (cell(1), cell(4));
        let played = |cell, calls| PlayedCell { cell, calls, wires: Vec::new() };
        let one = played(&one, ones.iter().collect());
        let many = played(&many, manies.iter().collect());
        pace(&[&one], &[&many]).finding.to_string()
    }

    #[test]
    fn a_pace_is_each_answers_or_the_connections() {
        assert_eq!(said(100_000, 20, 500, 3.9), "Large responses are limited to 200 kB/s each");
        assert_eq!(
            said(100_000, 20, 500, 1.05),
            "Large responses on one connection are limited to 200 kB/s together"
        );
        let unclear =
            "inconclusive: 4 concurrent responses arrived 2.2 times as fast as single ones";
        assert_eq!(said(100_000, 20, 500, 2.2), unclear);
    }

    #[test]
    fn what_is_too_quick_or_too_small_has_no_pace() {
        let sentence = said(100_000, 20, 1, 1.0);
        assert!(sentence.starts_with("No bandwidth limit on large responses up to 4.76 MB/s"));
        assert!(said(500, 20, 50, 1.0).starts_with("inconclusive: no response was large enough"));
    }

    /// What is said of small calls that take this long alone, and this long beside large ones.
    fn waited(alone_ms: u64, beside_ms: u64, bytes_in: u64) -> String {
        let call = |method: &str, ms: u64, bytes_in: u64| CallRecord {
            method: method.to_owned(),
            class: "answer".to_owned(),
            bytes_in,
            ended_at: ms * 1_000,
            ..CallRecord::default()
        };
        let small = |ms| (0..20).map(move |n| call("eth_blockNumber", ms + n % 2, 40));
        let quiet: Vec<CallRecord> = small(alone_ms).collect();
        let large = (0..20).map(|_| call("eth_getBlockByNumber", 500, bytes_in));
        let busy: Vec<CallRecord> = small(beside_ms).chain(large).collect();
        let cell = Cell::default();
        let (quiet, busy) = (quiet.iter().collect(), busy.iter().collect());
        let quiet = PlayedCell { cell: &cell, calls: quiet, wires: Vec::new() };
        let busy = PlayedCell { cell: &cell, calls: busy, wires: Vec::new() };
        let mut rng = rand::rngs::SmallRng::seed_from_u64(1);
        wait(&[&quiet], &[&busy], &mut rng).finding.to_string()
    }

    #[test]
    fn small_calls_wait_or_do_not() {
        assert!(waited(20, 300, 100_000).starts_with("Small calls wait 28"));
        assert!(waited(20, 20, 100_000).starts_with("Small calls do not wait"));
        // That is our own time as likely as theirs.
        assert!(waited(1, 2, 100_000).starts_with("Small calls do not wait"));
        assert!(waited(20, 300, 700).starts_with("inconclusive: no response was large enough"));
    }

    #[test]
    fn our_own_window_is_not_taken_for_theirs() {
        // 512 KiB each 100 ms.
        let sentence = said(5_000_000, 100, 1_000, 1.0);
        assert!(
            sentence.starts_with("inconclusive: large responses arrive at 5 MB/s"),
            "{sentence}"
        );
        let slower = said(5_000_000, 100, 2_000, 1.0);
        assert!(slower.ends_with("limited to 2.5 MB/s together"), "{slower}");
    }
}
