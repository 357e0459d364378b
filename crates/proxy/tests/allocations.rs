//! How often our own part of a call asks the allocator. A bound that is too low for
//! a change is raised here, in the change that says what it buys.

#![allow(clippy::print_stdout, reason = "the count is told as well as checked")]

#[path = "support/canned.rs"]
mod canned;

use std::pin::pin;

use allocation_counter::measure;
use bytes::Bytes;
use canned::{Bench, balance_call, balance_reply, batch, batch_reply, own_call};

/// Answers `body` a few times, so that what is made once is made, and counts the last.
fn check(bench: &Bench, body: &Bytes, allocations_max: u64) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        for _ in 0..4 {
            assert_eq!(bench.answer(body).await.status, 200);
        }
    });
    // One block_on costs none, as it is given a pointer: without optimisation tokio boxes futures of more than
    // 2 KiB. The answer is dropped inside.
    let counted = measure(|| {
        let answered = pin!(async { drop(bench.answer(body).await) });
        runtime.block_on(answered);
    });
    let count = counted.count_total;
    println!("{count} allocations, {} bytes", counted.bytes_total);
    assert!(count <= allocations_max, "{count} allocations, {allocations_max} were enough");
}

#[test]
fn a_call_that_goes_upstream() {
    let body = Bytes::from(balance_call(7));
    // What is known before an upstream is asked, which would otherwise be copied with the state of the
    // attempt; that, the body upstream and its handle, the exchange, the trail, the reply and its
    // handle, the pieces.
    check(&Bench::answering(balance_reply()), &body, 10);
    // What the call has taken from the limits of its caller, and its place among those under way.
    check(&Bench::charging(balance_reply()), &body, 12);
    // The parameters with the number in the place of `latest`.
    check(&Bench::pinning(balance_reply()), &body, 11);
    // The answer in a list, what is thought of it, and the futures of both.
    check(&Bench::verifying(balance_reply()), &body, 15);
    // The key, the flight that equal calls would join, and an entry that is not kept.
    check(&Bench::keeping(balance_reply()), &body, 13);
}

#[test]
fn a_call_whose_answer_is_kept_by_default() {
    let bench = Bench::by_default(balance_reply());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let answer = |id: usize| {
        let body = Bytes::from(own_call(id));
        let answered = pin!(async { assert_eq!(bench.answer(&body).await.cache, Some("miss")) });
        runtime.block_on(answered);
    };
    // Tables that grow do so before.
    (0..2_000).for_each(answer);
    let counted = measure(|| (2_000..2_100).for_each(answer));
    let count = counted.count_total as f64 / 100.0;
    println!("{count} allocations, {} bytes", counted.bytes_total / 100);
    // Two of them make the body of the call. Beside those of a call that goes upstream with a
    // number in the place of `latest`: the key and its flight, the params with the hash, what is
    // kept (the answer, its handle, its entry and its place in the index of blocks).
    assert!(count <= 24.0, "{count} allocations");
}

#[test]
fn a_call_whose_answer_was_kept() {
    let body = Bytes::from(balance_call(7).replace("latest", "0x50"));
    // The key, the reply and its handle, the pieces.
    check(&Bench::keeping(balance_reply()), &body, 4);
}

#[test]
fn a_call_that_is_never_kept() {
    let body = Bytes::from(r#"{"jsonrpc":"2.0","id":7,"method":"net_peerCount"}"#);
    check(&Bench::answering(balance_reply()), &body, 10);
    check(&Bench::keeping(balance_reply()), &body, 10);
}

#[test]
fn a_call_that_is_answered_here() {
    let body = Bytes::from(r#"{"jsonrpc":"2.0","id":7,"method":"eth_chainId"}"#);
    check(&Bench::answering(balance_reply()), &body, 5);
}

#[test]
fn a_batch_of_a_hundred() {
    check(&Bench::answering(batch_reply(100)), &batch(100), 44);
    // One for each item whose `latest` became a number.
    // None for the cache: balances at the newest block are not looked up in a batch.
    check(&Bench::pinning(batch_reply(100)), &batch(100), 144);
    check(&Bench::keeping(batch_reply(100)), &batch(100), 144);
}

#[test]
fn a_call_that_may_leave_a_trace() {
    let body = Bytes::from(balance_call(7));
    // What it leaves for its trace, which is not kept.
    check(&Bench::answering(balance_reply()).tracing(0.0), &body, 11);
    let body = Bytes::from(r#"{"jsonrpc":"2.0","id":7,"method":"eth_chainId"}"#);
    check(&Bench::answering(balance_reply()).tracing(0.0), &body, 6);
}
