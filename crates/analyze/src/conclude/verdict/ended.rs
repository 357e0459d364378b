//! Why a target was asked no more. Read from all of its calls, also from those of a cell that was cut.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::{Confidence, DraftVerdict};
use crate::ending::{RefusalRun, SendingEnd};
use crate::record::{CallRecord, Record};

/// The targets at which the sending was ended or should have been, each with the experiment in which that
/// was.
pub(super) fn ended(records: &[Record]) -> Vec<(u32, &str, DraftVerdict)> {
    let mut calls: BTreeMap<u32, Vec<&CallRecord>> = BTreeMap::new();
    for call in records.iter().filter_map(Record::call) {
        calls.entry(call.target).or_default().push(call);
    }
    let of = |(target, calls)| {
        let (experiment, run) = last_run(calls)?;
        Some((target, experiment, told(&run)?))
    };
    calls.into_iter().filter_map(of).collect()
}

/// The refusals at the end of the calls of a target, if they are enough, and the experiment in which they
/// were that.
fn last_run(mut calls: Vec<&CallRecord>) -> Option<(&str, RefusalRun)> {
    calls.sort_by_key(|call| call.ended_at);
    let (mut run, mut experiment) = (RefusalRun::default(), None);
    for call in calls {
        // What was served later says that it was not for long.
        match run.add(call) {
            None if run.refused == 0 => experiment = None,
            None => {}
            Some(_) => experiment = experiment.or(Some(call.experiment.as_str())),
        }
    }
    Some((experiment?, run))
}

fn told(run: &RefusalRun) -> Option<DraftVerdict> {
    let after_calls = run.served;
    let refused_s = run.span.1.saturating_sub(run.span.0) as f64 / 1e6;
    let reason = run.end()?;
    let sure = match reason {
        SendingEnd::LongPause { .. } | SendingEnd::Spent => Confidence::High,
        // A window of that length, a quota and a ban look alike.
        SendingEnd::Refused { .. } => Confidence::Medium,
    };
    let mut evidence = vec![format!(
        "{after_calls} calls were served, then {} in a row were throttled or unauthorized, over {} s",
        run.refused,
        refused_s.round()
    )];
    if let Some(first) = run.first.first() {
        let status = first.status.map_or("no status".to_owned(), |it| format!("HTTP {it}"));
        evidence.push(format!("first of these: {status}, {} ({})", first.class, first.rule));
    }
    Some(DraftVerdict::new(Finding::Ended { after_calls, reason }, sure, evidence))
}
