//! Connections that are cut, bodies in turn, and protocols that differ in time, which is paused.

use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wellhead_sim::ProviderDials;

use crate::client::{Http1, Http2, block_number, call, frames, provider};

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

/// Whether a small answer, asked for after a large one, comes first.
async fn small_is_first(bodies_in_turn: bool) -> bool {
    let body_bytes_per_second = Some(10_000);
    let dials = ProviderDials { body_bytes_per_second, bodies_in_turn, ..ProviderDials::default() };
    let provider = provider(dials);
    let mut client = Http2::open(&provider).await;
    let mut large = client.try_begin().await.unwrap();
    let small = client.try_begin().await.unwrap();
    let body = call("eth_getBlockByNumber", &json!(["latest", true]));
    let (tell, mut told) = mpsc::unbounded_channel();
    let late = tell.clone();
    large.send(&body);
    let answer = large.headers().await.unwrap();
    let small = async move {
        small.finish(&block_number()).await.unwrap();
        tell.send(true).unwrap();
    };
    let large = async move {
        frames(answer.into_body()).await.unwrap();
        late.send(false).unwrap();
    };
    tokio::join!(large, small);
    told.recv().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn in_turn_a_small_body_waits_for_a_large_one() {
    assert!(small_is_first(false).await);
    assert!(!small_is_first(true).await);
}

#[tokio::test(start_paused = true)]
async fn each_protocol_has_its_own_delay() {
    let ms = Duration::from_millis;
    let dials =
        ProviderDials { http1_delay: ms(70), http2_delay: ms(30), ..ProviderDials::default() };
    let provider = provider(dials);
    let (mut one, mut two) = (Http1::open(&provider).await, Http2::open(&provider).await);
    let begun = Instant::now();
    one.ask(&block_number()).await;
    let between = Instant::now();
    two.ask(&block_number()).await;
    // A timer may be a millisecond late.
    assert!((ms(70)..=ms(72)).contains(&(between - begun)), "{:?}", between - begun);
    assert!((ms(30)..=ms(32)).contains(&between.elapsed()), "{:?}", between.elapsed());
}
