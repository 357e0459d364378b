//! What our own part of a call costs, in nanoseconds: from the body to the bytes of
//! the answer, over an upstream that answers at once.
//!
//! `cargo bench -p wellhead-proxy` prints the median and the best of many rounds. It
//! asserts nothing: on a busy machine only the best means anything. The goal is 3 µs
//! for a call that goes upstream; allocations are counted by `tests/allocations.rs`.
//!
//! A word on the command line leaves out the cases whose names do not contain it, so that
//! callgrind can count the instructions of one.

#![allow(clippy::print_stdout, reason = "a bench prints what it found")]

#[path = "../tests/support/canned.rs"]
mod canned;

use std::time::{Duration, Instant};

use bytes::Bytes;
use canned::{Bench, balance_call, balance_reply, batch, batch_reply, own_call};

const ROUNDS: usize = 101;
const ROUND_CALLS: u32 = 2_000;

fn main() {
    let single = Bytes::from(balance_call(7));
    let local = Bytes::from(r#"{"jsonrpc":"2.0","id":7,"method":"eth_chainId"}"#);
    measure("a call that goes upstream", &Bench::answering(balance_reply()), &single, 1);
    let traced = |sample| Bench::answering(balance_reply()).tracing(sample);
    measure("traced, none sampled, upstream", &traced(0.0), &single, 1);
    measure("traced, 1 % sampled, upstream", &traced(0.01), &single, 1);
    measure("traced, all sampled, upstream", &traced(1.0), &single, 1);
    measure("a call answered here", &Bench::answering(balance_reply()), &local, 1);
    measure("one of a batch of 100", &Bench::answering(batch_reply(100)), &batch(100), 100);
    measure("charged, upstream", &Bench::charging(balance_reply()), &single, 1);
    measure("charged, answered here", &Bench::charging(balance_reply()), &local, 1);
    let kept = Bytes::from(balance_call(7).replace("latest", "0x50"));
    measure("pinned, upstream", &Bench::pinning(balance_reply()), &single, 1);
    measure("verified, upstream", &Bench::verifying(balance_reply()), &single, 1);
    measure("pinned, one of a batch", &Bench::pinning(batch_reply(100)), &batch(100), 100);
    let verifying = Bench::verifying(batch_reply(100));
    measure("verified, one of a batch", &verifying, &batch(100), 100);
    measure_own("default, a miss", &Bench::by_default(balance_reply()));
    measure_own("pinned, a call of its own", &Bench::pinning(balance_reply()));
    measure("pinned and kept", &Bench::keeping(balance_reply()), &kept, 1);
    let traced = Bench::keeping(balance_reply()).tracing(0.01);
    measure("traced, 1 % sampled, kept", &traced, &kept, 1);
}

/// Whether the command line leaves the case out. Cargo adds `--bench`, which is no name.
fn is_left_out(what: &str) -> bool {
    let mut names = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    names.next().is_some_and(|name| !what.contains(&name))
}

/// As [`measure`], each call another one, written out beforehand.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn measure_own(what: &str, bench: &Bench) {
    if is_left_out(what) {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let mut rounds: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for round in 0..ROUNDS {
        let id = |call: u32| round * ROUND_CALLS as usize + call as usize;
        let bodies: Vec<Bytes> =
            (0..ROUND_CALLS).map(|call| Bytes::from(own_call(id(call)))).collect();
        let took = runtime.block_on(async {
            let began = Instant::now();
            for body in &bodies {
                assert_eq!(bench.answer(body).await.status, 200);
            }
            began.elapsed()
        });
        rounds.push(took / ROUND_CALLS);
    }
    rounds.sort_unstable();
    println!("{what:<28} median {:>8.1?}  best {:>8.1?}", rounds[ROUNDS / 2], rounds[0]);
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn measure(what: &str, bench: &Bench, body: &Bytes, calls: u32) {
    if is_left_out(what) {
        return;
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let requests = (ROUND_CALLS / calls).max(1);
    let mut rounds: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let took = runtime.block_on(async {
            let began = Instant::now();
            for _ in 0..requests {
                assert_eq!(bench.answer(body).await.status, 200);
            }
            began.elapsed()
        });
        rounds.push(took / (requests * calls));
    }
    rounds.sort_unstable();
    println!("{what:<28} median {:>8.1?}  best {:>8.1?}", rounds[ROUNDS / 2], rounds[0]);
}
