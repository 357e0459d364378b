//! Calls that were not served, by what became of them.

use std::collections::BTreeMap;

use super::super::chart::{Axis, Chart, Stack, rounded};
use super::{FACETS_MAX, totals};
use crate::conclude::verdict::see;
use crate::record::{CallRecord, PlayedCell, Trial};
use crate::text::{class_words, transport_words};

/// Classes that have a part of their own; what is left is one part.
const CLASSES_MAX: usize = 6;

/// The part of what is left.
const OTHERS: &str = "others";

/// What became of some calls.
#[derive(Debug, Default, Clone)]
struct Failures {
    calls: u64,
    /// By class, those that were not served.
    unserved: BTreeMap<String, u64>,
}

/// Whether failures of an experiment say something of a target: some experiments provoke them, and
/// some judge answers for themselves.
pub(super) fn is_told(experiment: &str) -> bool {
    matches!(
        experiment,
        "latency" | "protocol" | "bodies" | "rate" | "throttle" | "load" | "soak" | "replay"
    )
}

/// What became of a call that was not served, in the words of the field.
pub(super) fn class_of(call: &CallRecord) -> String {
    match (&call.error, call.status) {
        (Some(error), _) => transport_words(error),
        (None, _) if see::throttled(call) => "throttled".to_owned(),
        (None, Some(status)) if status != 200 => format!("HTTP {status}"),
        (None, _) if call.class == "fault" => "rejected".to_owned(),
        (None, _) => class_words(&call.class),
    }
}

impl Failures {
    fn add(&mut self, call: &CallRecord) {
        self.calls += 1;
        if !see::served(call) {
            *self.unserved.entry(class_of(call)).or_default() += 1;
        }
    }

    fn of_trial(trial: &Trial<'_>) -> Self {
        let mut failures = Self::default();
        let calls = trial.sound().0.into_iter().flat_map(|cell| cell.calls.iter());
        calls.for_each(|call| failures.add(call));
        for rollup in trial.rollups.iter().filter(|rollup| !rollup.load.saturated) {
            failures.calls += rollup.calls;
            for (class, calls) in &rollup.unserved {
                *failures.unserved.entry(class_words(class)).or_default() += calls;
            }
        }
        failures
    }
}

/// The targets side by side; nothing where all calls were served.
pub(super) fn by_target(
    trials: &[&Trial<'_>],
    name: &dyn Fn(&Trial<'_>) -> String,
) -> Option<Chart> {
    let bars = trials.iter().map(|trial| (name(trial), Failures::of_trial(trial)));
    stack("calls not served, by class: all targets", &bars.collect::<Vec<_>>())
}

/// The settings of one target; nothing where all calls were served.
pub(super) fn by_setting(cells: Vec<(String, &PlayedCell<'_>)>) -> Option<Chart> {
    let mut bars: Vec<(String, Failures)> = Vec::new();
    for (setting, cell) in cells {
        if bars.last().is_none_or(|(name, _)| *name != setting) {
            bars.push((setting, Failures::default()));
        }
        if let Some((_, failures)) = bars.last_mut() {
            cell.calls.iter().for_each(|call| failures.add(call));
        }
    }
    // Those at which calls fail, and of these the highest.
    bars.retain(|(_, failures)| !failures.unserved.is_empty());
    let first = bars.len().saturating_sub(FACETS_MAX);
    stack("calls not served, by class", &bars[first..])
}

fn stack(title: &str, bars: &[(String, Failures)]) -> Option<Chart> {
    let mut classes = totals(bars.iter().flat_map(|(_, failures)| &failures.unserved));
    if classes.is_empty() {
        return None;
    }
    let has_others = classes.len() > CLASSES_MAX;
    classes.truncate(CLASSES_MAX);
    let share = |failures: &Failures, calls: u64| {
        rounded(100.0 * calls as f64 / failures.calls.max(1) as f64)
    };
    let bar = |(name, failures): &(String, Failures)| {
        let named = classes.iter().map(|(class, _)| *failures.unserved.get(*class).unwrap_or(&0));
        let named: Vec<u64> = named.collect();
        let others: u64 = failures.unserved.values().sum::<u64>() - named.iter().sum::<u64>();
        let parts = named.into_iter().chain(has_others.then_some(others));
        (name.clone(), parts.map(|calls| share(failures, calls)).collect())
    };
    let others = has_others.then(|| OTHERS.to_owned());
    Some(Chart::Stack(Stack {
        title: title.to_owned(),
        x: Axis::new("of all calls, %"),
        unit: "%",
        parts: classes.iter().map(|(class, _)| (*class).to_owned()).chain(others).collect(),
        bars: bars.iter().map(bar).collect(),
        marks: Vec::new(),
    }))
}
