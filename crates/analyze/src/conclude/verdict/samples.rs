//! A finding of each kind, bound and manner, and the page that shows what verdicts say of them.

use std::fmt::Write as _;

use super::finding::FindingBound::{Found, NotUpTo};
use super::finding::{
    AnswersAgree, AnswersDiffer, BlockLag, BodyPace, CapWay, Drift, Drifting, Extent, FailedCalls,
    FailureSpan, FailureWay, Faster, Finding, IdleClose, LoadCapacity, NoBlockLag, NoBodyPace,
    NoCountLimit, NoDifference, NoDrift, NoIdleClose, NoLoadCapacity, NoRateLimit, NotShaped,
    PacedFlow, Recycle, Refilled, RefusalWay, RefusedRate, RetryAfterWorth, ServedUsers, Shaped,
    ShapingScope, SmallFlow, SmallWait, StreamLimit, TokenLimit,
};
use super::kind::FINDING_KINDS;
use crate::ending::SendingEnd;

/// The refusals that sentences tell apart.
const REFUSALS: [RefusalWay; 5] = [
    RefusalWay::Status429,
    RefusalWay::InBody,
    RefusalWay::OtherStatus(503),
    RefusalWay::Unanswered,
    RefusalWay::Queued,
];

/// At least one finding of each kind and bound, and of each word in its sentence.
pub fn sample_findings() -> Vec<Finding> {
    let takes = vec![Finding::Takes { p50_ms: 4.7, p95_ms: 6.8 }];
    let (limits, loads) = ([connections(), limits()].concat(), [loads(), long_runs()].concat());
    [takes, limits, comparisons(), answers(), reaches(), loads].concat()
}

fn connections() -> Vec<Finding> {
    let cap = |way| {
        Finding::StreamCap(Found(StreamLimit { streams: 99, way, seen: "3 of 3".to_owned() }))
    };
    vec![
        cap(CapWay::Announced),
        cap(CapWay::Refused),
        cap(CapWay::Fatal),
        Finding::StreamCap(NotUpTo(NoCountLimit { up_to: 256 })),
        Finding::Recycle(Found(Recycle { after_calls: 1_000, orderly: true })),
        Finding::Recycle(Found(Recycle { after_calls: 1_000, orderly: false })),
        Finding::Recycle(NotUpTo(NoCountLimit { up_to: 1_200 })),
        Finding::IdleClose(Found(IdleClose { after_ms: 60_000 })),
        Finding::IdleClose(NotUpTo(NoIdleClose { up_to_ms: 300_000 })),
    ]
}

fn limits() -> Vec<Finding> {
    let rate = |way| Finding::Rate(Found(RefusedRate { per_second: 125.0, way }));
    let limit = TokenLimit {
        size: 21,
        refill_per_second: 50.0,
        window_s: 0.42,
        refill: Refilled::Evenly,
        way: RefusalWay::Status429,
        retry_after: RetryAfterWorth::NotGiven,
    };
    let bucket = |limit| Finding::Bucket(Found(limit));
    let window = |refill| TokenLimit { refill, size: 500, window_s: 10.0, ..limit };
    let shaped =
        |scope| Finding::Shaping(Found(Shaped { calls_per_second: 250.0, scope, knee: 10.0 }));
    let mut all: Vec<Finding> = REFUSALS.map(rate).to_vec();
    all.extend([
        Finding::Rate(NotUpTo(NoRateLimit { up_to_per_second: 244.0, kept_s: 12.0 })),
        Finding::InFlight { calls: 20, way: RefusalWay::Status429 },
        Finding::ConnectionCap { connections: 10, way: RefusalWay::Unanswered },
        bucket(limit),
        bucket(TokenLimit { retry_after: RetryAfterWorth::TooShort, ..window(Refilled::Window) }),
        bucket(TokenLimit { retry_after: RetryAfterWorth::Holds, ..window(Refilled::Sliding) }),
        bucket(TokenLimit { retry_after: RetryAfterWorth::Untried, ..window(Refilled::AtOnce) }),
        bucket(TokenLimit { way: RefusalWay::Unanswered, ..limit }),
        Finding::Bucket(NotUpTo(NoCountLimit { up_to: 800 })),
        shaped(ShapingScope::Connection),
        shaped(ShapingScope::Account),
        shaped(ShapingScope::Open),
        Finding::Shaping(NotUpTo(NotShaped { up_to: 400.0 })),
    ]);
    all
}

fn comparisons() -> Vec<Finding> {
    let (what, than) = ("http/1.1".to_owned(), "h2".to_owned());
    let held = "4 at a time".to_owned();
    let cost = |observed_ratio, catalogue_ratio, low, high| Finding::Cost {
        method: "eth_getLogs".to_owned(),
        base: "eth_blockNumber".to_owned(),
        observed_ratio,
        low,
        high,
        catalogue_ratio,
    };
    let adds = |ms, low, high| Finding::Adds {
        than: "direct".to_owned(),
        ms,
        low,
        high,
        held: String::new(),
    };
    let pace = |of| Finding::BodyPace(Found(BodyPace { bytes_per_second: 12.5e6, of }));
    vec![
        Finding::Comparison(Found(Faster {
            what: what.clone(),
            than: than.clone(),
            percent: 12.0,
            low: 8.0,
            high: 15.0,
            held: held.clone(),
        })),
        Finding::Comparison(NotUpTo(NoDifference { what, than, low: -3.0, high: 4.0, held })),
        pace(PacedFlow::Each),
        pace(PacedFlow::Together),
        Finding::BodyPace(NotUpTo(NoBodyPace { up_to_bytes_per_second: 50e6 })),
        Finding::SmallWait(Found(SmallWait { ms: 120.0, low: 100.0, high: 140.0, alone_ms: 5.0 })),
        Finding::SmallWait(NotUpTo(SmallFlow { low: -1.0, high: 2.0 })),
        cost(20.0, Some(75.0), 18.0, 22.0),
        cost(1.0, Some(1.0), 0.9, 1.1),
        cost(0.0, None, 0.0, 1.2),
        adds(0.8, 0.6, 1.0),
        adds(-0.8, -1.0, -0.6),
        adds(0.1, -0.2, 0.3),
    ]
}

fn answers() -> Vec<Finding> {
    let differ = |outvoted| {
        Finding::Answers(Found(AnswersDiffer {
            calls: 5,
            of: 200,
            outvoted,
            method: "eth_getLogs".to_owned(),
            params: "[]".to_owned(),
            difference: None,
        }))
    };
    vec![
        Finding::Lag(Found(BlockLag {
            ms: 300.0,
            low_ms: 250.0,
            high_ms: 350.0,
            p95_ms: 900.0,
            blocks: 1,
            p95_blocks: 2,
            seen: 120,
            behind: "target-1".to_owned(),
        })),
        Finding::Lag(NotUpTo(NoBlockLag { within_ms: 50.0, seen: 120 })),
        differ(0),
        differ(3),
        differ(5),
        Finding::Answers(NotUpTo(AnswersAgree { calls: 200 })),
        Finding::Methods { served: 69, missing: Vec::new() },
        Finding::Methods {
            served: 67,
            missing: vec!["debug_traceCall".to_owned(), "trace_block".to_owned()],
        },
        Finding::WebSocket { served: true },
        Finding::WebSocket { served: false },
    ]
}

fn reaches() -> Vec<Finding> {
    let reach = |what, up_to, refused_at, whole| Finding::Reach { what, up_to, refused_at, whole };
    let mut all = Vec::new();
    for what in [Extent::State, Extent::Blocks, Extent::Logs, Extent::Traces] {
        all.push(reach(what, Some(128), Some(256), false));
    }
    all.extend([
        reach(Extent::State, Some(40_000), None, true),
        reach(Extent::State, Some(10_000), None, false),
        reach(Extent::State, None, Some(3), false),
        reach(Extent::State, None, None, false),
        reach(Extent::Range, Some(10_000), Some(20_000), false),
        reach(Extent::Range, Some(40_000), None, true),
        reach(Extent::Batch, Some(100), Some(200), false),
        reach(Extent::Batch, Some(1_000), None, false),
    ]);
    all
}

fn loads() -> Vec<Finding> {
    let failed = |failed, unanswered| FailedCalls { failed, of: 1_000, unanswered };
    let capacity =
        |failed| Finding::Capacity(Found(LoadCapacity { per_second: 200.0, p99_ms: 48.0, failed }));
    let stage = |users| ServedUsers {
        users,
        per_second: 20.0 * users as f64,
        p99_ms: 50.0,
        failed: failed(0, 0),
    };
    let fails = |how, when| Finding::Fails { percent: 2.0, low: 1.5, high: 2.6, how, when };
    vec![
        capacity(failed(0, 0)),
        capacity(failed(20, 0)),
        capacity(failed(20, 20)),
        capacity(failed(20, 3)),
        Finding::Capacity(NotUpTo(NoLoadCapacity {
            up_to_per_second: 400.0,
            p99_ms: 48.0,
            failed: failed(0, 0),
        })),
        Finding::Users { stages: (1..=7).map(stage).collect() },
        fails(FailureWay::Refused(RefusalWay::OtherStatus(500)), FailureSpan::AnyRate),
        fails(FailureWay::Refused(RefusalWay::Unanswered), FailureSpan::AnyConcurrency),
        fails(FailureWay::Transport("timeout".to_owned()), FailureSpan::AnyTime),
        fails(FailureWay::Transport("closed".to_owned()), FailureSpan::AnyTime),
        fails(FailureWay::Class("auth".to_owned()), FailureSpan::AnyTime),
        fails(FailureWay::Class("throttled".to_owned()), FailureSpan::AnyTime),
        fails(FailureWay::Class("missing_data".to_owned()), FailureSpan::AnyTime),
    ]
}

fn long_runs() -> Vec<Finding> {
    let moved = |what, from, to| Finding::Drift(Found(Drift { what, from, to, minutes: 60 }));
    let stepped = |what, from, to| Finding::Step { what, from, to, after_minutes: 20, minutes: 60 };
    let ended = |reason| Finding::Ended { after_calls: 120, reason };
    vec![
        Finding::Held { minutes: 60, parts: 360, with_errors: 2, p50_ms: 11.0, p99_ms: 48.0 },
        moved(Drifting::Time, 20.0, 31.0),
        moved(Drifting::Tail, 90.0, 60.0),
        moved(Drifting::Errors, 0.0, 4.0),
        moved(Drifting::Throughput, 100.0, 80.0),
        Finding::Drift(NotUpTo(NoDrift { minutes: 60 })),
        stepped(Drifting::Time, 11.0, 31.0),
        stepped(Drifting::Tail, 40.0, 92.0),
        stepped(Drifting::Errors, 0.0, 4.0),
        stepped(Drifting::Throughput, 100.0, 80.0),
        ended(SendingEnd::LongPause { seconds: 3_600 }),
        ended(SendingEnd::Spent),
        ended(SendingEnd::Refused { seconds: 90 }),
        Finding::CannotTell {
            why: "too few sound samples (the generator fell behind in 4 of 7 cells)".to_owned(),
        },
    ]
}

/// What verdicts say, a table for each kind with a row for each sentence and the figures in it.
pub fn sentences_page() -> String {
    let samples = sample_findings();
    let mut out = String::new();
    let rows = FINDING_KINDS.iter().map(Some).chain([None]);
    for kind in rows {
        let (word, subject) =
            kind.map_or(("cannot_tell", "no conclusion"), |it| (it.word, it.subject));
        let _ = writeln!(out, "### `{word}`: {subject}\n");
        let is_own = |it: &&Finding| it.kind().map(|kind| kind.word) == kind.map(|kind| kind.word);
        for finding in samples.iter().filter(is_own) {
            let _ = writeln!(out, "- {finding}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::kind::{FigureBound, figures};
    use super::*;

    #[test]
    fn each_kind_has_a_sentence_and_its_figures() {
        for kind in &FINDING_KINDS {
            let own = || {
                sample_findings()
                    .into_iter()
                    .filter(|it| it.kind().is_some_and(|its| its.word == kind.word))
            };
            assert!(own().count() > 0, "{}", kind.word);
            for terms in kind.figures {
                let has = own().any(|it| figures(&it).iter().any(|its| its.word == terms.word));
                assert!(has, "{}.{} has no value", kind.word, terms.word);
            }
        }
    }

    #[test]
    fn a_kind_is_named_as_in_json() {
        for finding in sample_findings() {
            let value = serde_json::to_value(&finding).expect("plain data");
            let word = finding.kind().map_or("cannot_tell", |kind| kind.word);
            assert_eq!(value["finding"], word, "{value}");
            let bound = value.get("bound").and_then(|it| it.as_str());
            if let Some(bound) = bound {
                assert_eq!(bound == "not_up_to", finding.is_unmet(), "{value}");
            }
            assert_eq!(serde_json::from_value::<Finding>(value).expect("as written"), finding);
        }
    }

    #[test]
    fn sentences_are_whole_and_use_one_word_for_a_thing() {
        for sentence in sample_findings().iter().map(Finding::to_string) {
            assert!(!sentence.is_empty());
            let banned = ["refused", "denied", "cannot tell", "confidence", "HTTP 429"];
            let found = banned.iter().find(|word| sentence.contains(*word));
            assert_eq!(found, None, "{sentence}");
        }
    }

    #[test]
    fn a_figure_without_a_limit_is_a_bound() {
        let told = |finding: Finding| {
            let told = figures(&finding);
            (told[0].word, told[0].bound, told[0].to_string())
        };
        let rate = NoRateLimit { up_to_per_second: 244.0, kept_s: 12.0 };
        let at_least = ("limit", FigureBound::AtLeast, "at least 244/s".to_owned());
        assert_eq!(told(Finding::Rate(NotUpTo(rate))), at_least);
        let lag = NoBlockLag { within_ms: 50.0, seen: 120 };
        let at_most = ("lag", FigureBound::AtMost, "at most 50 ms".to_owned());
        assert_eq!(told(Finding::Lag(NotUpTo(lag))), at_most);
        let reach = |refused_at| Finding::Reach {
            what: Extent::Batch,
            up_to: Some(100),
            refused_at,
            whole: false,
        };
        assert_eq!(told(reach(None)), ("batch", FigureBound::AtLeast, "at least 100".to_owned()));
        assert_eq!(told(reach(Some(200))), ("batch", FigureBound::Exactly, "100".to_owned()));
    }
}
