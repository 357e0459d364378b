//! Connections that are cut, bodies in turn, and protocols that differ in time.

use std::future::{Future, ready};
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use wellhead_sim::{FakeProvider, ProviderDials};

use crate::client::{Http1, Http2, Open, block_number, call, frames, provider, until};

#[tokio::test]
async fn a_connection_is_cut_by_the_request_after_the_last() {
    let dials = ProviderDials {
        recycle_after: Some(2),
        recycle_abruptly: true,
        ..ProviderDials::default()
    };
    let provider = provider(dials);
    let mut one = Http1::open(&provider).await;
    for _ in 0..2 {
        assert!(!one.ask(&block_number()).await.closes);
    }
    assert!(one.try_ask(&block_number()).await.is_err());
    let mut two = Http2::open(&provider).await;
    for _ in 0..2 {
        two.ask(&block_number()).await;
    }
    assert!(two.try_ask(&block_number()).await.is_err());
    assert_eq!(two.end().await, None, "not a word");
    let counts = provider.counts();
    assert_eq!((counts.recycled, counts.requests, counts.goaways), (2, 4, 0));
}

/// A large answer that has begun, and a small one that was asked for after it.
async fn both(dials: ProviderDials) -> (FakeProvider, Http2, impl Future<Output = ()>, Open) {
    let provider = provider(dials);
    let mut client = Http2::open(&provider).await;
    let mut large = client.try_begin().await.unwrap();
    let small = client.try_begin().await.unwrap();
    large.send(&call("eth_getBlockByNumber", &json!(["latest", true])));
    let answer = large.headers().await.unwrap();
    let rest = async move {
        frames(answer.into_body()).await.unwrap();
    };
    (provider, client, rest, small)
}

/// Whether it is not over yet.
async fn is_under_way(future: impl Future<Output = impl Sized>) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = ready(()) => true,
    }
}

#[tokio::test]
async fn in_turn_a_small_body_waits_for_a_large_one() {
    // So slow that it would take minutes.
    let slow = ProviderDials { body_bytes_per_second: Some(10), ..ProviderDials::default() };
    let quick = ProviderDials { body_bytes_per_second: Some(100_000), ..slow.clone() };
    let (_provider, _client, large, small) = both(slow).await;
    small.finish(&block_number()).await.unwrap();
    assert!(is_under_way(large).await);
    let (_provider, _client, large, small) =
        both(ProviderDials { bodies_in_turn: true, ..quick }).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let late = tell.clone();
    let large = async move {
        large.await;
        late.send("large").unwrap();
    };
    let small = async move {
        small.finish(&block_number()).await.unwrap();
        tell.send("small").unwrap();
    };
    tokio::join!(large, small);
    assert_eq!(told.recv().await, Some("large"));
}

#[tokio::test]
async fn each_protocol_has_its_own_delay() {
    let long = Duration::from_secs(24 * 3600);
    let later = ProviderDials { http1_delay: long, ..ProviderDials::default() };
    let provider = provider(later);
    let (mut one, mut two) = (Http1::open(&provider).await, Http2::open(&provider).await);
    let body = block_number();
    let late = tokio::spawn(async move { one.try_ask(&body).await.is_ok() });
    until(&provider, |counts| counts.requests == 1).await;
    two.ask(&block_number()).await;
    assert!(is_under_way(late).await);
    provider.turn(|dials| (dials.http1_delay, dials.http2_delay) = (Duration::ZERO, long));
    let mut late = two.try_begin().await.unwrap();
    late.send(&block_number());
    until(&provider, |counts| counts.requests == 3).await;
    Http1::open(&provider).await.ask(&block_number()).await;
    assert!(is_under_way(late.headers()).await);
}
