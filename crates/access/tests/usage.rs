//! Nothing that was recorded is lost or counted twice, whatever happens at the bounds.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use wellhead_access::usage::{
    MilliCredits, UsageAmounts, UsageBy, UsageHistory, UsageHistoryBounds, UsageMinute,
    UsageOutcome, UsageQuery, UsageRecord, UsageRow, UsageSource, UsageTable, write_csv,
    write_jsonl,
};
use wellhead_access::{AccessGrant, GrantKind, Tenant};

const METHODS: [&str; 3] = ["eth_call", "eth_getLogs", "*"];

fn grant(tenant: usize, key: usize) -> AccessGrant {
    let tenant = Arc::new(Tenant::new(format!("t{tenant}")));
    AccessGrant::new(GrantKind::Key, format!("k{key}"), tenant)
}

/// Different for each call, so that sums tell calls apart.
fn amounts(number: u64) -> UsageAmounts {
    UsageAmounts {
        calls: 1,
        credits_in: MilliCredits(number * 3 + 1),
        credits_out: MilliCredits(number * 5 + 2),
        bytes_in: number * 7 + 3,
        bytes_out: number * 11 + 4,
        time_us: number * 13 + 5,
    }
}

fn sum<'a>(all: impl IntoIterator<Item = &'a UsageAmounts>) -> UsageAmounts {
    let mut sum = UsageAmounts::default();
    all.into_iter().for_each(|one| sum.add(one));
    sum
}

fn sum_of(rows: &[UsageRow]) -> UsageAmounts {
    sum(rows.iter().map(|row| &row.amounts))
}

/// One call of a story: tenant, key, method, source, outcome, minute.
type Step = (usize, usize, usize, usize, usize, u32);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..6_usize, 0..4_usize, 0..3_usize, 0..4_usize, 0..5_usize, 0..8_u32);
    prop::collection::vec(step, 0..400)
}

fn play(table: &UsageTable, number: u64, step: Step) -> UsageAmounts {
    let (tenant, key, method, source, outcome, minute) = step;
    let (grant, chain) = (grant(tenant, key), Arc::from("ethereum"));
    let amounts = amounts(number);
    let record = UsageRecord {
        grant: &grant,
        chain: &chain,
        method: METHODS[method],
        source: UsageSource::ALL[source],
        outcome: UsageOutcome::ALL[outcome],
        amounts,
    };
    table.record(&record, UsageMinute(minute));
    amounts
}

/// The numbers at the end of the lines of a CSV, summed.
fn csv_sum(text: &[u8]) -> UsageAmounts {
    let text = std::str::from_utf8(text).expect("text");
    let milli = |decimal: &str| {
        let (whole, part) = decimal.split_once('.').unwrap_or((decimal, ""));
        let part = format!("{part:0<3}");
        whole.parse::<u64>().expect("a number") * 1_000 + part.parse::<u64>().expect("a number")
    };
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').rev().take(6).collect();
        let number = |place: usize| fields[place].parse().expect("a number");
        UsageAmounts {
            calls: number(5),
            credits_in: MilliCredits(milli(fields[4])),
            credits_out: MilliCredits(milli(fields[3])),
            bytes_in: number(2),
            bytes_out: number(1),
            time_us: number(0),
        }
    };
    sum(&text.lines().map(line).collect::<Vec<_>>())
}

proptest! {
    /// Takes come between calls of any minutes; few rows fit.
    #[test]
    fn all_outlets_have_the_sums_of_what_was_recorded(
        steps in steps(),
        (rows_max, others_max) in (0..40_usize, 0..30_usize),
        takes in prop::collection::hash_map(0..400_usize, 0..10_u32, 0..6),
    ) {
        let table = UsageTable::with_bounds("r", rows_max, others_max);
        let (mut recorded, mut rows) = (Vec::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            if let Some(before) = takes.get(&number) {
                rows.extend(table.take_minute(UsageMinute(*before)));
            }
            recorded.push(play(&table, number as u64, *step));
            // Of the tenant `other` one per source, outcome and open minute.
            prop_assert!(table.rows() <= rows_max + others_max + 20 * 4, "{}", table.rows());
        }
        rows.extend(table.take_minute(UsageMinute::MAX));
        let expected = sum(&recorded);
        prop_assert_eq!(table.rows(), 0);
        prop_assert_eq!(sum_of(&rows), expected);
        let ids: HashSet<_> = rows.iter().map(|row| row.id).collect();
        prop_assert_eq!(ids.len(), rows.len(), "an id is that of one row");

        // By source and outcome as well: these never fold.
        for (place, source) in UsageSource::ALL.into_iter().enumerate() {
            let calls = steps.iter().filter(|step| step.3 == place).count() as u64;
            let of_source = rows.iter().filter(|row| row.key.source == source);
            prop_assert_eq!(sum(of_source.map(|row| &row.amounts)).calls, calls);
        }

        let mut csv = Vec::new();
        write_csv(&mut csv, "r", &rows);
        prop_assert_eq!(csv_sum(&csv), expected);
        let mut jsonl = Vec::new();
        write_jsonl(&mut jsonl, "r", &rows);
        let lines = jsonl.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let of_line = |line: &[u8]| {
            let value: serde_json::Value = serde_json::from_slice(line).expect("JSON");
            value["bytes_out"].as_u64().expect("a number")
        };
        prop_assert_eq!(lines.map(of_line).sum::<u64>(), expected.bytes_out);

        let now = UsageMinute(9);
        let bounds = UsageHistoryBounds { minute_rows: 7, hour_rows: 5, ..Default::default() };
        let mut history = UsageHistory::new(bounds);
        history.add(&rows, now);
        let by = UsageBy::parse("tenant,outcome").expect("two names");
        for minutes in [UsageMinute(9), UsageMinute(3_000)] {
            history.add(&[], minutes);
            let answer = history.query(&UsageQuery { from: 0, to: 600, by });
            let sums: Vec<_> = answer.sums.iter().map(|sum| sum.amounts).collect();
            prop_assert_eq!(sum(&sums), expected);
        }
    }
}

/// Three threads record, one takes all the while; few rows fit.
#[test]
fn nothing_is_lost_while_rows_are_taken() {
    const CALLS: u64 = 30_000;
    let table = UsageTable::with_bounds("r", 30, 10);
    let is_over = AtomicBool::new(false);
    let mut rows = Vec::new();
    let recorded = std::thread::scope(|scope| {
        let table = &table;
        let worker = |worker: u64| {
            scope.spawn(move || {
                let mut own = UsageAmounts::default();
                for number in 0..CALLS {
                    let turn = (number * 7 + worker) as usize;
                    let step =
                        (turn % 5, turn % 11, turn % 3, turn % 4, turn % 5, number as u32 / 50);
                    own.add(&play(table, number, step));
                }
                own
            })
        };
        let workers: Vec<_> = (0..3).map(worker).collect();
        let taker = scope.spawn(|| {
            let (mut taken, mut before) = (Vec::new(), 0);
            while !is_over.load(Ordering::Relaxed) {
                before = (before + 1) % 700;
                taken.extend(table.take_minute(UsageMinute(before)));
            }
            taken
        });
        let done: Vec<_> = workers.into_iter().map(|it| it.join().expect("recorded")).collect();
        is_over.store(true, Ordering::Relaxed);
        rows = taker.join().expect("taken");
        sum(&done)
    });
    rows.extend(table.take_minute(UsageMinute::MAX));
    assert_eq!(sum_of(&rows), recorded);
    assert_eq!(recorded.calls, 3 * CALLS);
    assert!(table.folded() > 0, "the bound was reached");
    let ids: HashSet<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!((ids.len(), table.rows()), (rows.len(), 0));
}

#[test]
fn a_row_that_is_there_costs_no_allocation() {
    let table = UsageTable::new("r");
    let (grant, chain) = (grant(1, 1), Arc::from("ethereum"));
    let record = UsageRecord {
        grant: &grant,
        chain: &chain,
        method: "eth_call",
        source: UsageSource::Upstream,
        outcome: UsageOutcome::Answered,
        amounts: amounts(1),
    };
    let allocations = |minute: u32| {
        allocation_counter::measure(|| table.record(&record, UsageMinute(minute))).count_total
    };
    assert!(allocations(1) > 0, "the first makes the row");
    assert_eq!(allocations(1), 0);
    table.take_minute(UsageMinute(2));
    assert_eq!(allocations(2), 0, "the memory of a minute that was taken is used again");
    let full = UsageTable::with_bounds("r", 0, 9);
    let fold = || allocation_counter::measure(|| full.record(&record, UsageMinute(1))).count_total;
    assert!(fold() > 0);
    assert_eq!(fold(), 0, "nor does a row `other`");
}

#[test]
fn rows_fold_by_tenant_and_then_all_together() {
    let table = UsageTable::with_bounds("r", 2, 1);
    for (number, tenant) in [0, 1, 2, 2, 3, 0].into_iter().enumerate() {
        play(&table, number as u64, (tenant, 0, 0, 0, 0, 7));
    }
    let rows = table.take_minute(UsageMinute(8));
    let shown: Vec<_> = rows
        .iter()
        .map(|row| format!("{}/{} {}", row.key.tenant, row.key.key, row.amounts.calls))
        .collect();
    assert_eq!(shown, ["other/other 1", "t0/k0 2", "t1/k0 1", "t2/other 2"]);
    assert_eq!(table.folded(), 3);
    // With the rows the bound is gone.
    play(&table, 9, (3, 0, 0, 0, 0, 8));
    assert_eq!(&*table.take_minute(UsageMinute(9))[0].key.tenant, "t3");
}

#[test]
fn a_call_of_a_minute_that_was_taken_makes_a_row_of_its_own() {
    let table = UsageTable::new("r");
    let step = (0, 0, 0, 0, 0, 7);
    play(&table, 1, step);
    assert_eq!(table.take_minute(UsageMinute(7)), [], "it is open");
    let first = table.take_minute(UsageMinute(8));
    play(&table, 2, step);
    let second = table.take_minute(UsageMinute(8));
    let (first, second) = (&first[0], &second[0]);
    assert_eq!((first.minute, &first.key), (second.minute, &second.key));
    assert_ne!(first.id, second.id);
}

#[test]
fn more_open_minutes_than_the_bound_count_in_the_newest() {
    let table = UsageTable::new("r");
    for minute in [5, 1, 4, 2, 3, 9] {
        play(&table, u64::from(minute), (0, 0, 0, 0, 0, minute));
    }
    let rows = table.take_minute(UsageMinute::MAX);
    let shown: Vec<_> = rows.iter().map(|row| (row.minute.0, row.amounts.calls)).collect();
    assert_eq!(shown, [(1, 1), (2, 1), (4, 1), (5, 3)]);
}
