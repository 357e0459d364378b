//! Charts of what was answered: which targets agree with each other, and which are late.

use std::collections::BTreeMap;

use super::super::chart::{Axis, Chart, Ink, Matrix, Plot, Series, Style};
use super::{METHODS_MAX, cdf, places};
use crate::conclude::verdict::see;
use crate::record::{RunRecord, Trial};

/// Pairs of targets in a matrix.
const PAIRS_MAX: usize = 28;
/// Steps of a line in time.
const STEPS_MAX: usize = 800;

fn name(run: &RunRecord, target: u32) -> String {
    run.targets.get(target as usize).map_or("?", |target| &target.id).to_owned()
}

/// Which targets agree with each other, by method; and, where there are three or more, with most.
pub(super) fn agreement(run: &RunRecord, all: &[Trial<'_>]) -> Vec<Chart> {
    let mut targets: Vec<u32> =
        all.iter().filter(|trial| trial.experiment == "agree").map(|trial| trial.target).collect();
    targets.sort_unstable();
    let mut pairs = Vec::new();
    for (place, one) in targets.iter().enumerate() {
        pairs.extend(targets[place + 1..].iter().map(|other| (*one, *other)));
    }
    pairs.truncate(PAIRS_MAX);
    let questions = see::questions(all);
    let mut by_pair: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    let mut by_target: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    let count = |counts: &mut (u64, u64), same: Option<bool>| {
        counts.0 += u64::from(same == Some(true));
        counts.1 += u64::from(same.is_some());
    };
    for question in questions.values() {
        let row = by_pair.entry(question.method).or_insert_with(|| vec![(0, 0); pairs.len()]);
        for (counts, (one, other)) in row.iter_mut().zip(&pairs) {
            count(counts, question.same(*one, *other));
        }
        let row = by_target.entry(question.method).or_insert_with(|| vec![(0, 0); targets.len()]);
        for (counts, target) in row.iter_mut().zip(&targets) {
            count(counts, question.differs(*target).map(|differs| !differs));
        }
    }
    let matrix = |title: &str, columns: Vec<String>, rows: BTreeMap<&str, Vec<(u64, u64)>>| {
        let rows = rows.into_iter().take(METHODS_MAX);
        Chart::Matrix(Matrix {
            title: title.to_owned(),
            columns,
            rows: rows.map(|(method, counts)| (method.to_owned(), counts)).collect(),
        })
    };
    let between =
        |(one, other): &(u32, u32)| format!("{} = {}", name(run, *one), name(run, *other));
    let mut charts = Vec::new();
    if targets.len() > 2 {
        let columns = targets.iter().map(|target| name(run, *target)).collect();
        charts.push(matrix("answers that agree with the majority", columns, by_target));
    }
    if !pairs.is_empty() {
        let columns = pairs.iter().map(between).collect();
        charts.push(matrix("answers that agree, by pair", columns, by_pair));
    }
    charts
}

/// How late blocks are, and how far behind each target was in time.
pub(super) fn freshness(run: &RunRecord, all: &[Trial<'_>]) -> Vec<Chart> {
    let sights = see::sights(all);
    let lags = |target: &u32| {
        let (_, lags) = see::lags_ms(*target, &sights)?;
        // The first one is not late.
        Some((name(run, *target), lags.into_iter().map(|lag| lag.max(0.0)).collect()))
    };
    let groups = sights.keys().filter_map(lags).collect();
    let mut charts = cdf("lag of new blocks behind the fastest other target", "lag, ms", groups);
    let mut parts: BTreeMap<u32, Vec<see::Distance>> = BTreeMap::new();
    for (target, own) in &sights {
        let others: Vec<_> =
            sights.iter().filter(|(other, _)| *other != target).map(|(_, sight)| sight).collect();
        parts.insert(*target, own.behind(&others));
    }
    let steps = parts.values().flatten().flat_map(|part| &part.steps);
    // Where nothing was watched nothing is drawn.
    let gaps = parts.values().flat_map(|parts| parts.iter().rev().skip(1));
    let times = places(steps.map(|(at, _)| *at).chain(gaps.map(|part| part.end)));
    let every = times.len().div_ceil(STEPS_MAX).max(1);
    let times: Vec<f64> = times.into_iter().step_by(every).collect();
    let Some(begin) = times.first().copied().filter(|_| times.len() > 1) else { return charts };
    let series = parts.iter().enumerate().map(|(n, (target, parts))| {
        let at = |time: &f64| {
            let begun = |part: &see::Distance| part.steps.first().is_some_and(|it| it.0 <= *time);
            let last = parts.partition_point(begun).checked_sub(1)?;
            let part = &parts[last];
            if last + 1 < parts.len() && *time >= part.end {
                return None;
            }
            let until = part.steps.partition_point(|(at, _)| at <= time);
            until.checked_sub(1).map(|last| part.steps[last].1 as f64)
        };
        Series::new(&name(run, *target), Style::Step, Ink::Nth(n), times.iter().map(at).collect())
    });
    let series = series.collect();
    charts.push(Chart::Plot(Plot {
        title: "blocks behind the highest other".to_owned(),
        x: Axis::new("seconds since the start"),
        y: Axis::new("blocks"),
        // Kept apart however long it lasts.
        xs: times.iter().map(|at| ((at - begin) / 1e3).round() / 1e3).collect(),
        series,
        marks: Vec::new(),
    }));
    charts
}
