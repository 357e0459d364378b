//! What a call pays for being counted, in nanoseconds.
//!
//! `cargo bench -p wellhead-access --bench usage` prints the best and the median of many rounds; on a
//! busy machine only the best means anything. It asserts nothing. The goal is 80 ns for a row that is
//! there.

#![allow(clippy::print_stdout, reason = "the report of a bench goes to the terminal")]

#[path = "../../jsonrpc/benches/support/rounds.rs"]
mod rounds;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wellhead_access::usage::{
    MilliCredits, UsageAmounts, UsageBy, UsageHistory, UsageHistoryBounds, UsageMinute,
    UsageOutcome, UsageQuery, UsageRecord, UsageRow, UsageSource, UsageTable,
};
use wellhead_access::{AccessGrant, GrantKind, Tenant};

use rounds::Rounds;

const ROUNDS: usize = 101;
const ROUND: Duration = Duration::from_millis(4);
const METHODS: [&str; 4] = ["eth_call", "eth_getBalance", "eth_getTransactionReceipt", "*"];

fn main() {
    let table = UsageTable::new("bench");
    let chain: Arc<str> = "ethereum".into();
    let (few, many) = (grants(1), grants(10_000));
    let mut turn = 0_usize;
    let mut record = |grants: &[AccessGrant], minute: u32| {
        turn = turn.wrapping_add(7);
        let grant = &grants[turn % grants.len()];
        table.record(
            black_box(&call(grant, &chain, METHODS[turn % METHODS.len()])),
            UsageMinute(minute),
        );
    };
    measure("four rows", || record(&few, 1));
    measure("10,000 rows", || record(&many, 1));
    table.take_minute(UsageMinute::MAX);
    let strangers = grants(100_000);
    for grant in &strangers {
        for method in METHODS {
            table.record(&call(grant, &chain, method), UsageMinute(2));
        }
    }
    let mut turn = 0_usize;
    measure("beyond the bound, in a row `other`", || {
        turn = (turn + 1) % 10_000;
        table.record(&call(&strangers[90_000 + turn], &chain, "eth_call"), UsageMinute(2));
    });
    let began = now();
    let taken = table.take_minute(UsageMinute::MAX);
    println!("{:36} {} rows in {:.1?}", "taking a full table", taken.len(), began.elapsed());
    query(&taken);
    two_threads(&table, &chain, &few);
}

/// What a page costs that reads a full minute.
fn query(rows: &[UsageRow]) {
    let bounds = UsageHistoryBounds { minute_rows: rows.len(), ..UsageHistoryBounds::default() };
    let mut history = UsageHistory::new(bounds);
    let began = now();
    history.add(rows, UsageMinute(2));
    println!("{:36} {} rows in {:.1?}", "keeping them", rows.len(), began.elapsed());
    let by = UsageBy::parse("tenant,method").expect("two names");
    let ask = |_| {
        let began = now();
        let sums = history.query(&UsageQuery { from: 0, to: 600, by }).sums.len();
        (began.elapsed(), sums)
    };
    let best = (0..11).map(ask).min().expect("many");
    println!("{:36} {} rows in {:.1?}, {} sums", "asking for them", rows.len(), best.0, best.1);
}

/// Two workers that count in one row: the worst that a lock sees.
fn two_threads(table: &UsageTable, chain: &Arc<str>, grants: &[AccessGrant]) {
    const CALLS: u32 = 2_000_000;
    let began = now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..CALLS {
                    table.record(black_box(&call(&grants[0], chain, "eth_call")), UsageMinute(3));
                }
            });
        }
    });
    let each = began.elapsed() / CALLS;
    println!("{:36} {each:?} for each of both", "two threads in one row");
}

fn grants(count: usize) -> Vec<AccessGrant> {
    let grant = |number: usize| {
        let tenant = Arc::new(Tenant::new(format!("tenant-{}", number / 10)));
        AccessGrant::new(GrantKind::Key, format!("key{number:05}"), tenant)
    };
    (0..count).map(grant).collect()
}

fn call<'a>(grant: &'a AccessGrant, chain: &'a Arc<str>, method: &'static str) -> UsageRecord<'a> {
    let amounts = UsageAmounts {
        calls: 1,
        credits_in: MilliCredits::whole(26),
        credits_out: MilliCredits::whole(20),
        bytes_in: 180,
        bytes_out: 110,
        time_us: 900,
    };
    let (source, outcome) = (UsageSource::Upstream, UsageOutcome::Answered);
    UsageRecord { grant, chain, method, source, outcome, amounts }
}

#[allow(clippy::disallowed_methods, reason = "a bench is the one place that must read a clock")]
fn now() -> Instant {
    Instant::now()
}

fn measure(name: &str, operation: impl FnMut()) {
    let Rounds { best, median } = Rounds::of(ROUNDS, ROUND, operation);
    println!("{name:36} best {best:>7.1} ns  median {median:>7.1} ns");
}
