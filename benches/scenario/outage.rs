//! Every upstream is gone for a minute, then one returns.
//!
//! Calls are made at a fixed pace whether or not earlier ones are answered, so that
//! what clients are told, and how soon, is seen at every moment.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{Instant, interval, sleep};
use wellhead_e2e::{Rpc, until};

use crate::claim::Claims;
use crate::proxy::{Log, Wellhead};
use crate::upstream::{Fault, Upstreams};

const CALL_EVERY: Duration = Duration::from_millis(100);
const WELL: Duration = Duration::from_secs(3);
const OUTAGE: Duration = Duration::from_secs(60);
/// From the return of an upstream to an answer.
const RECOVERY_MAX: Duration = Duration::from_secs(1);
/// When recovery takes longer than this it is not waited for.
const RECOVERY_AWAITED: Duration = Duration::from_secs(90);
/// `timeouts.total` by default, and a moment.
const ERROR_MAX: Duration = Duration::from_secs(31);
const TEXTS_MAX: usize = 6;

/// One call that has ended.
struct Ended {
    sent: Instant,
    at: Instant,
    /// The error, when there was one.
    error: Option<String>,
}

/// Both kinds of being gone.
pub(crate) async fn run(upstreams: &Upstreams, claims: &mut Claims) -> Value {
    println!("\noutage: both upstreams are gone for {} s, then `south` returns", OUTAGE.as_secs());
    let killed = one(upstreams, "killed", Fault::Killed, claims).await;
    let stalls = one(upstreams, "stalls", Fault::Stalls, claims).await;
    json!([killed, stalls])
}

async fn one(upstreams: &Upstreams, name: &str, fault: Fault, claims: &mut Claims) -> Value {
    let wellhead = Wellhead::start(upstreams, Log::Kept).await;
    let ended: Rc<RefCell<Vec<Ended>>> = Rc::default();
    let stop = Cell::new(false);
    let story = async {
        sleep(WELL).await;
        let gone = Instant::now();
        upstreams.set(fault);
        sleep(OUTAGE).await;
        let back = Instant::now();
        upstreams.south.set(Fault::None);
        let first_good = || async {
            let ended = ended.borrow();
            ended.iter().filter(|one| one.error.is_none() && one.at > back).map(|one| one.at).min()
        };
        let recovered = until(RECOVERY_AWAITED, first_good).await;
        sleep(WELL).await;
        stop.set(true);
        (gone, back, recovered)
    };
    let (gone, back, recovered) = LocalSet::new()
        .run_until(async { tokio::join!(story, call_until_told(wellhead.port, &stop, &ended)).0 })
        .await;
    upstreams.set(Fault::None);
    let ended = ended.borrow();
    let failed: Vec<&Ended> = ended.iter().filter(|one| one.error.is_some()).collect();
    let mut took: Vec<Duration> = failed.iter().map(|one| one.at - one.sent).collect();
    took.sort();
    let middle = took.get(took.len() / 2).copied().unwrap_or_default();
    let longest = took.last().copied().unwrap_or_default();
    let recovery = recovered.map(|at| at - back);
    println!(
        "{name}: {} calls, {} failed, after {} ms in the middle and {} ms at most",
        ended.len(),
        failed.len(),
        middle.as_millis(),
        longest.as_millis(),
    );
    let caught: Vec<&Ended> = ended.iter().filter(|one| one.sent < back && one.at > back).collect();
    let caught_failed = caught.iter().filter(|one| one.error.is_some()).count();
    let last = caught.iter().map(|one| one.at - back).max().unwrap_or_default();
    println!(
        "  {} calls were under way at the return: {caught_failed} failed, the last ended {} ms after it",
        caught.len(),
        last.as_millis(),
    );
    let mut texts: BTreeMap<String, (Duration, &str, u64)> = BTreeMap::new();
    for one in &failed {
        let text = one.error.as_deref().unwrap_or_default();
        let words = text.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        let first = one.at.saturating_duration_since(gone);
        texts.entry(words).or_insert((first, text, 0)).2 += 1;
    }
    let mut texts: Vec<_> = texts.into_values().collect();
    texts.sort();
    for (first, text, count) in texts.iter().take(TEXTS_MAX) {
        println!("  {count} x, first {:.1} s after they went: {text}", first.as_secs_f64());
    }
    let unnamed = failed.iter().filter(|one| !names_both(one)).count();
    claims
        .check(unnamed == 0, format!("{name}: every error names each upstream ({unnamed} do not)"));
    let ms = longest.as_millis();
    claims.check(
        longest <= ERROR_MAX,
        format!("{name}: errors come within the deadline ({ms} ms at most)"),
    );
    let told = recovery.map_or("none".to_owned(), |time| format!("{} ms", time.as_millis()));
    claims.check(
        recovery.is_some_and(|time| time <= RECOVERY_MAX),
        format!("{name}: first good answer within a second of the return ({told})"),
    );
    let after = failed.iter().filter(|one| recovered.is_some_and(|at| one.sent > at)).count();
    claims.check(after == 0, format!("{name}: no call fails that was sent after it ({after} did)"));
    json!({
        "case": name, "outage_seconds": OUTAGE.as_secs(), "calls": ended.len(), "failed": failed.len(),
        "error_after_ms_median": middle.as_millis() as u64, "error_after_ms_max": ms as u64,
        "recovery_ms": recovery.map(|time| time.as_millis() as u64),
        "failed_after_recovery": after, "under_way_at_return": caught.len(),
        "under_way_failed": caught_failed, "under_way_ended_ms_max": last.as_millis() as u64,
        "texts": texts.iter().map(|(_, text, count)| json!([text, count])).collect::<Value>(),
    })
}

fn names_both(one: &Ended) -> bool {
    one.error.as_deref().is_some_and(|text| text.contains("north") && text.contains("south"))
}

/// One call after the other becomes due, and none waits for another; when told to
/// stop, waits for those under way.
async fn call_until_told(port: u16, stop: &Cell<bool>, ended: &Rc<RefCell<Vec<Ended>>>) {
    let rpc = Rc::new(Rpc::new(port, "/"));
    let mut due = interval(CALL_EVERY);
    let mut calls = JoinSet::new();
    while !stop.get() {
        due.tick().await;
        while calls.try_join_next().is_some() {}
        let (rpc, ended) = (Rc::clone(&rpc), Rc::clone(ended));
        calls.spawn_local(async move {
            let sent = Instant::now();
            let reply = rpc.call_with_reply("eth_blockNumber", json!([])).await;
            let error = match reply {
                Ok((value, _)) if value["error"].is_null() => None,
                Ok((value, http)) => Some(format!("HTTP {}: {}", http.status, value["error"])),
                Err(why) => Some(why),
            };
            ended.borrow_mut().push(Ended { sent, at: Instant::now(), error });
        });
    }
    // The client gives each of them up at last.
    while calls.join_next().await.is_some() {}
}
