//! The rule of the colours, case by case.

use super::*;
use crate::conclude::verdict::{
    AnswersDiffer, CapWay, Drift, Drifting, FailureSpan, FailureWay, Finding,
    FindingBound::{Found, NotUpTo},
    NoRateLimit, RefusalWay, RefusedRate, StreamLimit,
};

fn told(experiment: &str, finding: Finding, confidence: Confidence) -> ExperimentVerdict {
    ExperimentVerdict {
        experiment: experiment.to_owned(),
        target: 0,
        sentence: finding.to_string(),
        finding,
        confidence,
        evidence: Vec::new(),
    }
}

fn check(expected: TargetSeverity, findings: &[(&str, Finding, Confidence)]) {
    let all: Vec<ExperimentVerdict> =
        findings.iter().map(|(name, finding, sure)| told(name, finding.clone(), *sure)).collect();
    let own: Vec<&ExperimentVerdict> = all.iter().collect();
    assert_eq!(severity(&own), expected, "{all:?}");
    assert_eq!(
        reasons(&own, expected).is_empty(),
        all.is_empty(),
        "a card says why it has its colour: {all:?}"
    );
}

fn fails(percent: f64) -> Finding {
    let (how, when) = (FailureWay::Class("fault".to_owned()), FailureSpan::AnyRate);
    Finding::Fails { percent, low: percent * 0.8, high: percent * 1.2, how, when }
}

fn no_limit() -> Finding {
    Finding::Rate(NotUpTo(NoRateLimit { up_to_per_second: 160.0, kept_s: 6.0 }))
}

fn rate() -> Finding {
    Finding::Rate(Found(RefusedRate { per_second: 125.0, way: RefusalWay::Status429 }))
}

fn open() -> Finding {
    Finding::CannotTell { why: "too few calls".to_owned() }
}

fn disagrees(outvoted: u64) -> Finding {
    Finding::Answers(Found(AnswersDiffer {
        calls: 5,
        of: 200,
        outvoted,
        method: "eth_getLogs".to_owned(),
        params: "[]".to_owned(),
        difference: None,
    }))
}

#[test]
fn the_weightiest_sure_finding_decides() {
    use Confidence::{High, Low, Medium, None};
    let sound = ("rate", no_limit(), High);
    check(TargetSeverity::Sound, std::slice::from_ref(&sound));
    check(TargetSeverity::Limited, &[("rate", rate(), Medium), ("load", no_limit(), High)]);
    check(TargetSeverity::Unfit, &[("rate", rate(), High), ("load", fails(2.0), Medium)]);
    // At most 1 % of failures is a limit of its own, as the interval reaches below it.
    check(TargetSeverity::Limited, &[sound.clone(), ("load", fails(1.1), High)]);
    check(TargetSeverity::Unfit, &[sound.clone(), ("agree", disagrees(5), High)]);
    check(TargetSeverity::Limited, &[sound.clone(), ("agree", disagrees(0), High)]);
    // What is not sure colours nothing.
    check(TargetSeverity::Sound, &[sound.clone(), ("window", rate(), Low)]);
    check(TargetSeverity::Inconclusive, &[]);
    check(TargetSeverity::Inconclusive, &[("rate", open(), None)]);
    check(TargetSeverity::Inconclusive, &[("rate", rate(), Low)]);
    check(TargetSeverity::Sound, &[sound.clone(), ("streams", open(), None)]);
    check(
        TargetSeverity::Inconclusive,
        &[sound.clone(), ("streams", open(), None), ("window", open(), None)],
    );
    check(
        TargetSeverity::Sound,
        &[sound.clone(), ("load", no_limit(), Medium), ("streams", open(), None)],
    );
    check(TargetSeverity::Limited, &[("rate", rate(), High), ("streams", open(), None)]);
}

#[test]
fn a_cap_and_a_change_count_where_they_cost_calls() {
    let high = Confidence::High;
    let cap = |way| {
        Finding::StreamCap(Found(StreamLimit { streams: 99, way, seen: "3 of 3".to_owned() }))
    };
    check(TargetSeverity::Sound, &[("streams", cap(CapWay::Announced), high)]);
    check(TargetSeverity::Limited, &[("streams", cap(CapWay::Fatal), high)]);
    check(TargetSeverity::Limited, &[("streams", cap(CapWay::Refused), high)]);
    let drift = |what, from, to| Finding::Drift(Found(Drift { what, from, to, minutes: 60 }));
    check(TargetSeverity::Limited, &[("soak", drift(Drifting::Time, 20.0, 40.0), high)]);
    check(TargetSeverity::Sound, &[("soak", drift(Drifting::Time, 40.0, 20.0), high)]);
    check(TargetSeverity::Limited, &[("soak", drift(Drifting::Throughput, 40.0, 20.0), high)]);
    check(TargetSeverity::Limited, &[("soak", drift(Drifting::Errors, 0.0, 0.5), high)]);
    check(TargetSeverity::Unfit, &[("soak", drift(Drifting::Errors, 0.0, 5.0), high)]);
}

#[test]
fn each_colour_has_its_word_and_its_sign() {
    let words: std::collections::BTreeSet<&str> =
        TargetSeverity::ALL.iter().map(|severity| severity.word()).collect();
    let signs: std::collections::BTreeSet<char> =
        TargetSeverity::ALL.iter().map(|severity| severity.sign()).collect();
    assert_eq!((words.len(), signs.len()), (4, 4));
    for severity in TargetSeverity::ALL {
        assert!(badge(severity).ends_with(&format!("{}</b>", severity.word())));
    }
}
