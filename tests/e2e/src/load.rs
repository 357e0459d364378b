//! Reads, many at a time, counted.
//!
//! The load is closed: each worker waits for its answer before it asks again,
//! and both workers and reads are bounded. It only counts; whether a count is
//! right is for the test to say.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::Rpc;

/// Failures kept word for word; the rest are only counted.
const FAILURES_KEPT: usize = 10;
/// No load asks more often than this, however long it is let run.
const READS_MAX: usize = 1_000_000;

/// What became of the reads.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads that were answered with a result.
    pub answered: usize,
    /// Reads that were not.
    pub failed: usize,
    /// The first few failures, in words.
    pub failures: Vec<String>,
    /// Answers by the upstream that gave them, from `x-wellhead-upstream`.
    pub by_upstream: BTreeMap<String, usize>,
}

/// A load that others can watch and stop.
#[derive(Debug, Default)]
pub struct Gauge {
    stop: AtomicBool,
    asked: AtomicUsize,
    tally: Mutex<Tally>,
}

impl Gauge {
    /// Lets the workers finish the reads they are in, and no more.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Reads finished so far, either way.
    #[must_use]
    pub fn finished(&self) -> usize {
        let tally = self.tally.lock().expect("no holder of this lock panics");
        tally.answered + tally.failed
    }

    /// Answers so far from one upstream.
    #[must_use]
    pub fn answers_of(&self, upstream: &str) -> usize {
        let tally = self.tally.lock().expect("no holder of this lock panics");
        tally.by_upstream.get(upstream).copied().unwrap_or(0)
    }

    /// The counts, leaving zeros behind.
    #[must_use]
    pub fn take(&self) -> Tally {
        std::mem::take(&mut self.tally.lock().expect("no holder of this lock panics"))
    }

    fn count(&self, outcome: Result<String, String>) {
        let mut tally = self.tally.lock().expect("no holder of this lock panics");
        match outcome {
            Ok(upstream) => {
                tally.answered += 1;
                *tally.by_upstream.entry(upstream).or_default() += 1;
            }
            Err(why) => {
                tally.failed += 1;
                if tally.failures.len() < FAILURES_KEPT {
                    tally.failures.push(why);
                }
            }
        }
    }
}

/// Runs `workers` at once until the gauge is stopped or `reads` have been asked.
pub async fn load(rpc: &Rpc, gauge: &Gauge, workers: usize, reads: usize) {
    let reads = reads.min(READS_MAX);
    let worker = || async {
        loop {
            let index = gauge.asked.fetch_add(1, Ordering::Relaxed);
            if index >= reads || gauge.stop.load(Ordering::Relaxed) {
                return;
            }
            gauge.count(read(rpc, index).await);
        }
    };
    // All on one task: the workers wait far more than they work.
    let mut running: Vec<_> = (0..workers).map(|_| Box::pin(worker())).collect();
    std::future::poll_fn(|context| {
        running.retain_mut(|worker| worker.as_mut().poll(context).is_pending());
        if running.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// One of several ordinary reads; the upstream that answered, or the failure.
async fn read(rpc: &Rpc, index: usize) -> Result<String, String> {
    let address = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
    let (method, params) = match index % 5 {
        0 => ("eth_blockNumber", json!([])),
        1 => ("eth_getBalance", json!([address, "latest"])),
        2 => ("eth_getBlockByNumber", json!(["latest", false])),
        3 => ("eth_call", json!([{ "to": address, "data": "0x" }, "latest"])),
        _ => ("eth_getTransactionCount", json!([address, "latest"])),
    };
    let (value, reply) =
        rpc.call_with_reply(method, params).await.map_err(|why| format!("{method}: {why}"))?;
    match value.get("result") {
        None | Some(Value::Null) => Err(format!("{method}: HTTP {}: {value}", reply.status)),
        Some(_) if reply.status != 200 => Err(format!("{method}: HTTP {}", reply.status)),
        Some(_) => Ok(reply.header("x-wellhead-upstream").to_owned()),
    }
}
