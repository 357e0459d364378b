//! What was played, as lines for a terminal: a line for each cell, in the order of the run.

use std::collections::BTreeMap;

use crate::record::trial;
use crate::record::{
    CallRecord, Cell, CellDoubt, MeasuredTarget, Record, Rollup, RunRecord, spent,
};
use crate::stat::quantile;

/// Parts of a long run that are told.
const PARTS_MAX: usize = 30;

/// What lines call the targets: by their names, and by the host where none was given. Where that
/// would be the same for two, those have what the run calls them.
pub fn names<'a>(targets: impl IntoIterator<Item = &'a MeasuredTarget>) -> Vec<String> {
    let targets: Vec<&MeasuredTarget> = targets.into_iter().collect();
    let is_unnamed = |(index, target): (usize, &MeasuredTarget)| target.id == given(index);
    let called = |(index, target): (usize, &&MeasuredTarget)| {
        let alike = targets.iter().enumerate();
        let alike = alike.filter(|(at, it)| it.host == target.host && is_unnamed((*at, it)));
        match is_unnamed((index, target)) && alike.count() == 1 {
            true => target.host.clone(),
            false => target.id.clone(),
        }
    };
    targets.iter().enumerate().map(called).collect()
}

/// The id of a target without a name, by its place.
pub fn given(index: usize) -> String {
    format!("target-{}", index + 1)
}

/// The lines.
pub fn lines(run: &RunRecord, records: &[Record]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut calls: BTreeMap<(&str, u32, u32), Vec<&CallRecord>> = BTreeMap::new();
    for call in records.iter().filter_map(Record::call) {
        calls.entry((call.experiment.as_str(), call.target, call.cell)).or_default().push(call);
    }
    for (index, target) in run.targets.iter().enumerate() {
        let chain = target.chain_id.map_or("unknown".to_owned(), |id| id.to_string());
        let provider = target.provider.as_deref().unwrap_or("unknown");
        lines.push(format!("{}  {}  chain {chain}  provider {provider}", target.id, target.host));
        let cells = || records.iter().filter_map(Record::cell);
        let own = || cells().filter(|cell| cell.target as usize == index);
        for cell in own().filter(|cell| !asks_one_by_one(&cell.experiment)) {
            let key = (cell.experiment.as_str(), cell.target, cell.cell);
            let own_calls = calls.get(&key).map(Vec::as_slice).unwrap_or_default();
            lines.push(format!("  {}", line(cell, own_calls)));
        }
        for name in run.experiments.iter().filter(|name| asks_one_by_one(name)) {
            let those: Vec<&Cell> = own().filter(|cell| cell.experiment == **name).collect();
            let calls: u64 = those.iter().map(|cell| cell.calls).sum();
            lines.push(format!("  {name}: {calls} calls in {} cells", those.len()));
        }
        let parts = records.iter().filter_map(Record::rollup);
        let parts: Vec<&Rollup> = parts.filter(|it| it.target as usize == index).collect();
        // Of many, as many as fit on a screen.
        let each = parts.len().div_ceil(PARTS_MAX).max(1);
        lines.extend(parts.iter().step_by(each).map(|it| format!("  {}", part(it))));
    }
    lines.extend(spent(run, records));
    lines
}

/// Whether a cell is one question or one sight of a block: they are hundreds, and what they come
/// to is a verdict.
fn asks_one_by_one(experiment: &str) -> bool {
    ["agree", "fresh", "reach"].contains(&experiment)
}

/// One part of a cell that is rolled up.
fn part(rollup: &Rollup) -> String {
    let ms = |us: u64| us as f64 / 1_000.0;
    let times = match (rollup.p50, rollup.p99) {
        (Some(p50), Some(p99)) => {
            format!(", p50 {:.1} ms, p99 {:.1} ms", ms(p50), ms(p99))
        }
        (_, _) => String::new(),
    };
    let doubt = left_out(rollup.load.doubted());
    format!(
        "{} {} s: {} calls, {} not served{times}{doubt}",
        rollup.experiment,
        rollup.begun_at / 1_000_000,
        rollup.calls,
        rollup.calls - rollup.served
    )
}

/// One cell. Times are those of calls that were served, from when they should have begun; what was
/// neither served nor throttled has failed, whether an answer came or not.
fn line(cell: &Cell, calls: &[&CallRecord]) -> String {
    let took: Vec<f64> =
        calls.iter().filter(|call| trial::served(call)).map(|call| trial::took_ms(call)).collect();
    let throttled = calls.iter().filter(|call| trial::throttled(call)).count();
    let failed = calls.len() - took.len() - throttled;
    let setting = cell.setting();
    if calls.is_empty() {
        return format!("{} {setting}: {} calls", cell.experiment, cell.calls);
    }
    let times = match (quantile(&took, 0.5), quantile(&took, 0.95)) {
        (Some(p50), Some(p95)) => format!(", p50 {p50:.1} ms, p95 {p95:.1} ms"),
        (_, _) => String::new(),
    };
    let doubt = left_out(cell.load.doubted());
    format!(
        "{} {setting}: {} calls, {throttled} throttled, {failed} failed{times}{doubt}",
        cell.experiment,
        calls.len()
    )
}

fn left_out(doubt: Option<CellDoubt>) -> String {
    doubt.map(|why| format!(", {}: left out", why.words())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{GeneratorLoad, MeasuredTarget};

    #[test]
    fn targets_are_called_by_their_names() {
        let called = |targets: &[(&str, &str)]| {
            let target = |(id, host): &(&str, &str)| MeasuredTarget {
                id: (*id).to_owned(),
                host: (*host).to_owned(),
                ..MeasuredTarget::default()
            };
            names(&targets.iter().map(target).collect::<Vec<_>>())
        };
        assert_eq!(called(&[("fast", "h"), ("slow", "h")]), ["fast", "slow"]);
        assert_eq!(called(&[("fast", "h"), ("target-2", "h")]), ["fast", "h"]);
        assert_eq!(called(&[("target-1", "h"), ("target-2", "g")]), ["h", "g"]);
        assert_eq!(
            called(&[("target-1", "h"), ("target-2", "h"), ("target-3", "g")]),
            ["target-1", "target-2", "g"]
        );
    }

    #[test]
    fn questions_are_counted() {
        let cell = |calls: u64| {
            let experiment = "agree".to_owned();
            Record::Cell(Cell { experiment, calls, ..Cell::default() })
        };
        let target = MeasuredTarget {
            id: "a".to_owned(),
            host: "h".to_owned(),
            ..MeasuredTarget::default()
        };
        let experiments = vec!["agree".to_owned()];
        let run = RunRecord { targets: vec![target], experiments, ..RunRecord::default() };
        let told = lines(&run, &[cell(1), cell(2)]);
        assert_eq!(told[1..], ["  agree: 3 calls in 2 cells"]);
    }

    #[test]
    fn a_cell_is_told_by_its_calls() {
        let call = |ms: u64, class: &str, error: Option<&str>| {
            Record::Call(CallRecord {
                experiment: "rate".to_owned(),
                class: class.to_owned(),
                error: error.map(str::to_owned),
                ended_at: ms * 1_000,
                ..CallRecord::default()
            })
        };
        let cell = Cell {
            experiment: "rate".to_owned(),
            factors: [("rate".to_owned(), "10".to_owned())].into(),
            load: GeneratorLoad { saturated: true, ..GeneratorLoad::default() },
            ..Cell::default()
        };
        let records = [
            call(10, "answer", None),
            call(20, "answer", None),
            call(1, "throttled", None),
            call(9_000, "fault", Some("timeout")),
            // A page of a proxy is no answer, however quick it is.
            call(1, "fault", None),
            Record::Cell(cell),
        ];
        let target = MeasuredTarget {
            id: "a".to_owned(),
            host: "h".to_owned(),
            ..MeasuredTarget::default()
        };
        let run = RunRecord { targets: vec![target], ..RunRecord::default() };
        assert_eq!(
            lines(&run, &records),
            [
                "a  h  chain unknown  provider unknown",
                "  rate rate 10: 5 calls, 1 throttled, 2 failed, p50 15.0 ms, p95 \
                 19.5 ms, the generator fell behind: left out",
            ]
        );
    }
}
