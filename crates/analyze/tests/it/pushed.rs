//! `fresh` by subscriptions: what is said of heads that were pushed.

use std::collections::BTreeMap;

use wellhead_analyze::conclude::verdict::{
    BlockLag, Finding,
    FindingBound::{Found, NotUpTo},
    verdicts,
};
use wellhead_analyze::record::{Cell, MeasuredTarget, Record, RunRecord};

fn cell(target: u32, at_ms: u64, factors: &[(&str, u64)]) -> Record {
    let factors: BTreeMap<String, String> =
        factors.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    let experiment = "fresh".to_owned();
    let (begun_at, ended_at) = (at_ms * 1_000, at_ms * 1_000);
    Record::Cell(Cell { experiment, target, factors, begun_at, ended_at, ..Cell::default() })
}

/// Heads of a block each two seconds, which arrive so much after it, but for those left out.
fn heads(target: u32, late_ms: u64, left_out: &[u64]) -> Vec<Record> {
    let mut records = vec![cell(target, late_ms, &[("start", 100)])];
    let blocks = (1..=30).filter(|nth| !left_out.contains(nth));
    records.extend(blocks.map(|nth| cell(target, nth * 2_000 + late_ms, &[("block", 100 + nth)])));
    let pushed = 31 - left_out.len() as u64;
    let missed = left_out.len() as u64;
    let end = [
        ("watched_ms", 61_000),
        ("pushed", pushed),
        ("missed", missed),
        ("doubles", 1),
        ("lost", 2),
    ];
    records.push(cell(target, 61_000, &end));
    records
}

#[test]
fn a_delay_and_what_is_missing_are_told() {
    let target = |id: &str| MeasuredTarget { id: id.to_owned(), ..MeasuredTarget::default() };
    let run = RunRecord {
        targets: vec![target("early"), target("late")],
        experiments: vec!["fresh".to_owned()],
        ..RunRecord::default()
    };
    let mut records = [heads(0, 10, &[]), heads(1, 310, &[7, 8])].concat();
    for (number, record) in (0..).zip(&mut records) {
        if let Record::Cell(cell) = record {
            cell.cell = number;
        }
    }
    let told = verdicts(&run, &records);
    assert!(matches!(told[0].finding, Finding::Lag(NotUpTo(_))), "{:?}", told[0]);
    let late = &told[1];
    assert!(
        matches!(&late.finding, Finding::Lag(Found(BlockLag { ms, behind, .. })) if *ms == 300.0 && behind == "early"),
        "{late:?}"
    );
    let evidence = late.evidence.join("\n");
    let counts = "29 heads were pushed; none came for 2 heights, 1 came twice, and the connection was \
                  lost 2 times";
    assert!(evidence.contains(counts), "{evidence}");
    assert!(!evidence.contains("poll interval"), "{evidence}");
}
