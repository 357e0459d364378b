//! What is done next at a target, and what a budget lets happen.

use std::time::Duration;

use super::*;
use crate::conclude::verdict::{
    Confidence, Finding,
    FindingBound::{Found, NotUpTo},
    NoRateLimit, RefusalWay, RefusedRate,
};

fn terms(per_hour: u64) -> MonitorTerms {
    MonitorTerms {
        bounds: SpendBounds { per_hour, per_day: per_hour * 24 },
        every: Duration::from_secs(60),
        rate_max: 100.0,
        rate_lasting: Duration::from_secs(5),
    }
}

fn verdict(per_second: f64, confidence: Confidence) -> ExperimentVerdict {
    ExperimentVerdict {
        experiment: "rate".to_owned(),
        target: 0,
        finding: Finding::Rate(Found(RefusedRate { per_second, way: RefusalWay::Status429 })),
        sentence: String::new(),
        confidence,
        evidence: Vec::new(),
    }
}

fn known(per_second: f64) -> MonitoredTarget {
    let mut target = MonitoredTarget::new(MeasuredTarget::default());
    target.take(vec![verdict(per_second, Confidence::High)]);
    target
}

#[test]
fn a_target_is_studied_first_and_then_probed() {
    let (mut target, terms) = (MonitoredTarget::new(MeasuredTarget::default()), terms(12_000));
    assert_eq!(target.next_step(&terms, 0), MonitorStep::Study { calls: 6_000 });
    let found = vec![verdict(20.0, Confidence::High)];
    assert!(matches!(target.finish_study(found, &terms, 0), StudyResult::Changed { .. }));
    assert_eq!(target.counts.changes, 0, "the first is no change");
    let MonitorStep::Wait { until } = target.next_step(&terms, 0) else { panic!("{target:?}") };
    assert_eq!(target.next_step(&terms, until), MonitorStep::Round { calls: target.round_calls() });
}

#[test]
fn two_contradictions_in_a_row_make_a_study() {
    let (mut target, terms) = (known(20.0), terms(12_000));
    assert!(target.finish_round(ProbeSign::Lower, &terms, 100));
    assert_eq!(target.next_step(&terms, 100), MonitorStep::Wait { until: 110 });
    assert!(!target.finish_round(ProbeSign::Agrees, &terms, 110), "it was a slip");
    assert!(matches!(target.next_step(&terms, 110), MonitorStep::Wait { .. }));
    target.finish_round(ProbeSign::Lower, &terms, 200);
    target.finish_round(ProbeSign::Lower, &terms, 210);
    assert_eq!(target.next_step(&terms, 210), MonitorStep::Wait { until: 215 });
    assert!(matches!(target.next_step(&terms, 215), MonitorStep::Study { .. }));
}

#[test]
fn studies_that_find_nothing_grow_rare() {
    let (mut target, terms) = (known(20.0), terms(100_000));
    for _ in 0..2 {
        target.finish_round(ProbeSign::Higher, &terms, 0);
    }
    let mut pauses = Vec::new();
    for _ in 0..8 {
        let found = vec![verdict(20.0, Confidence::Low)];
        assert_eq!(target.finish_study(found, &terms, 0), StudyResult::Unclear);
        pauses.push(target.study_at);
    }
    assert_eq!(pauses, [60, 120, 240, 480, 960, 1_920, 3_600, 3_600]);
    assert_eq!(target.limit().per_second(), Some(20.0), "what was known stays");
}

#[test]
fn a_study_that_stops_below_a_limit_does_not_lift_it() {
    let (mut target, terms) = (known(50.0), terms(12_000));
    let none = |up_to_per_second| ExperimentVerdict {
        finding: Finding::Rate(NotUpTo(NoRateLimit { up_to_per_second, kept_s: 10.0 })),
        ..verdict(0.0, Confidence::High)
    };
    assert_eq!(target.finish_study(vec![none(20.0)], &terms, 0), StudyResult::Unclear);
    assert_eq!(target.limit().per_second(), Some(50.0));
    let lifted = target.finish_study(vec![none(100.0)], &terms, 0);
    assert!(matches!(lifted, StudyResult::Changed { to: TrackedLimit::NoneUpTo(100.0), .. }));
}

#[test]
fn rounds_leave_enough_for_a_study() {
    let (mut target, terms) = (known(20.0), terms(12_000));
    let reserve = target.reserve(&terms);
    let mut now = 0;
    for _ in 0..500 {
        match target.next_step(&terms, now) {
            MonitorStep::Round { calls } => {
                target.charge(calls, now);
                target.finish_round(ProbeSign::Agrees, &terms, now);
                assert!(target.left(terms.bounds, now) >= reserve, "{now}");
            }
            MonitorStep::Wait { until } => now = until,
            MonitorStep::Study { .. } => panic!("nothing contradicts"),
        }
    }
    assert!(now > 3_600 && target.counts.rounds > 100, "{now} {:?}", target.counts);
}

#[test]
fn the_smallest_budget_is_kept_as_well() {
    let (target, terms) = (MonitoredTarget::new(MeasuredTarget::default()), terms(200));
    assert_eq!(target.next_step(&terms, 0), MonitorStep::Study { calls: 100 });
    assert!(target.study_plan(&terms).calls_max() <= 97);
}

#[test]
fn a_target_that_answers_nothing_is_left_alone_for_a_while() {
    let (mut target, terms) = (MonitoredTarget::new(MeasuredTarget::default()), terms(12_000));
    assert!(target.rest(1_000) && !target.rest(1_000));
    assert_eq!(target.next_step(&terms, 1_000), MonitorStep::Wait { until: 1_900 });
    assert!(matches!(target.next_step(&terms, 1_900), MonitorStep::Round { .. }));
    assert!(target.answered(Some(7), 1_900) && !target.answered(None, 1_900));
    assert!(matches!(target.next_step(&terms, 1_900), MonitorStep::Study { .. }));
}

#[test]
fn a_restart_keeps_what_was_spent_and_found() {
    let mut target = known(20.0);
    target.charge(500, 60);
    target.settle(500, 300);
    let text = serde_json::to_string(&target).expect("plain data");
    let again: MonitoredTarget = serde_json::from_str(&text).expect("it was written so");
    assert_eq!(again.limit(), target.limit());
    assert_eq!((again.spent_in_hour(60), again.counts.calls), (300, 300));
}
