//! Buckets, lines, bounds and bars.

use std::time::Duration;

use serde_json::{Value, json};
use wellhead_sim::ProviderDials;
use wellhead_sim::node::LatencyDial;
use wellhead_sim::provider::{AtOnce, CreditBucket, LimitScope, RefusalForm, Shaping};

use crate::client::{Http1, Http2, block_number, call, provider, until};

/// Far longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

fn with_buckets(buckets: Vec<CreditBucket>) -> ProviderDials {
    ProviderDials { buckets, ..ProviderDials::default() }
}

/// The statuses of this many calls in a row.
async fn statuses(client: &mut Http1, body: &str, calls: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..calls {
        statuses.push(client.ask(body).await.status.as_u16());
    }
    statuses
}

#[tokio::test]
async fn above_the_bucket_there_is_429() {
    for (after, told) in [(None, None), (Some(Duration::from_millis(1500)), Some("2".to_owned()))] {
        let refusal = RefusalForm::too_many(after);
        let provider = provider(with_buckets(vec![CreditBucket::fixed(3.0, HOUR, refusal)]));
        let (mut one, mut two) = (Http1::open(&provider).await, Http2::open(&provider).await);
        assert_eq!(statuses(&mut one, &block_number(), 2).await, [200, 200]);
        // Both connections draw on one account.
        assert_eq!(two.ask(&block_number()).await.status, 200);
        let refused = two.ask(&block_number()).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (429, Some(-32007)));
        assert_eq!((&refused.retry_after, &refused.body["id"]), (&told, &json!(7)));
        assert_eq!(one.ask(&block_number()).await, refused);
        let counts = provider.counts();
        assert_eq!((counts.calls, counts.refusals), (5, 2));
    }
}

#[tokio::test]
async fn methods_cost_what_they_cost() {
    let refusal = RefusalForm::too_many(None);
    let costs = [("eth_chainId", 0.0), ("eth_get*", 40.0)];
    let bucket = CreditBucket::fixed(100.0, HOUR, refusal).priced(20.0, &costs);
    let provider = provider(with_buckets(vec![bucket]));
    let mut client = Http1::open(&provider).await;
    let balance = call("eth_getBlockByNumber", &json!(["latest", false]));
    assert_eq!(statuses(&mut client, &balance, 3).await, [200, 200, 429]);
    assert_eq!(statuses(&mut client, &block_number(), 2).await, [200, 429]);
    assert_eq!(statuses(&mut client, &call("eth_chainId", &json!([])), 2).await, [200, 200]);
}

#[tokio::test]
async fn said_in_the_body_it_is_an_error_of_each_call() {
    let bucket = CreditBucket::fixed(2.0, HOUR, RefusalForm::too_many_in_body());
    let provider = provider(with_buckets(vec![bucket]));
    let mut client = Http1::open(&provider).await;
    let batch = format!("[{0},{0},{0}]", block_number());
    let told = client.ask(&batch).await;
    assert_eq!(told.status, 200);
    let codes: Vec<&Value> =
        told.body.as_array().unwrap().iter().map(|item| &item["error"]["code"]).collect();
    assert_eq!(codes, [&Value::Null, &Value::Null, &json!(-32005)]);
    let told = client.ask(&block_number()).await;
    assert_eq!((told.status.as_u16(), told.code()), (200, Some(-32005)));
    assert_eq!(provider.counts().refusals, 2);
}

#[tokio::test]
async fn two_buckets_and_a_turn_of_them() {
    let second = CreditBucket::fixed(4.0, HOUR, RefusalForm::too_many(None));
    let month = CreditBucket::spent_once(3.0, RefusalForm::month_spent());
    let provider = provider(with_buckets(vec![second, month]));
    let mut client = Http1::open(&provider).await;
    assert_eq!(statuses(&mut client, &block_number(), 4).await, [200, 200, 200, 403]);
    provider.turn(|dials| dials.buckets.truncate(1));
    let full = [200, 200, 200, 200, 429];
    assert_eq!(statuses(&mut client, &block_number(), 5).await, full);
    // A turn of something else gives nothing back.
    provider.turn(|dials| dials.lag_blocks = 1);
    assert_eq!(statuses(&mut client, &block_number(), 1).await, [429]);
    provider.turn(|dials| dials.buckets.clear());
    assert_eq!(statuses(&mut client, &block_number(), 3).await, [200, 200, 200]);
}

#[tokio::test]
async fn a_barred_account_gets_nothing() {
    let provider = provider(ProviderDials::default());
    let mut client = Http1::open(&provider).await;
    for (refusal, status, code) in [
        (RefusalForm::no_key(), 401, -32600),
        (RefusalForm::payment_required(), 402, -33000),
        (RefusalForm::month_spent(), 403, -32600),
        (RefusalForm::in_body(-32003, "daily request count exceeded"), 200, -32003),
    ] {
        provider.turn(|dials| dials.barred = Some(refusal));
        let told = client.ask(&block_number()).await;
        assert_eq!((told.status.as_u16(), told.code()), (status, Some(code)));
    }
    provider.turn(|dials| dials.barred = None);
    assert_eq!(statuses(&mut client, &block_number(), 1).await, [200]);
}

#[tokio::test]
async fn a_line_of_the_account_is_shared_and_no_client_is_told() {
    let shaping = Some(Shaping { per_second: 1.0 / 3600.0, scope: LimitScope::Account });
    let provider = provider(ProviderDials { shaping, ..ProviderDials::default() });
    Http1::open(&provider).await.ask(&block_number()).await;
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = Http2::open(&provider).await;
        clients.push(tokio::spawn(async move { client.try_ask(&block_number()).await }));
    }
    until(&provider, |counts| counts.waiting == 2).await;
    assert_eq!(provider.counts().refusals, 0);
    assert!(clients.iter().all(|client| !client.is_finished()));
    // Another pace is another line; a call that waits already waits on.
    provider.turn(|dials| dials.shaping = None);
    Http1::open(&provider).await.ask(&block_number()).await;
    assert_eq!(provider.counts().waiting, 2);
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    until(&provider, |counts| counts.waiting == 0).await;
}

#[tokio::test]
async fn a_line_of_a_connection_is_its_own() {
    let shaping = Some(Shaping { per_second: 1.0 / 3600.0, scope: LimitScope::Connection });
    let provider = provider(ProviderDials { shaping, ..ProviderDials::default() });
    let mut client = Http2::open(&provider).await;
    client.ask(&block_number()).await;
    for _ in 0..3 {
        Http1::open(&provider).await.ask(&block_number()).await;
    }
    let waits = tokio::spawn(async move { client.try_ask(&block_number()).await });
    until(&provider, |counts| counts.waiting == 1).await;
    waits.abort();
}

#[tokio::test]
async fn one_more_at_once_is_refused_or_waits() {
    let at_once = |refusal| Some(AtOnce { max: 1, refusal });
    let provider = provider(ProviderDials {
        latency: LatencyDial::even(HOUR, Duration::ZERO),
        at_once: at_once(Some(RefusalForm::too_many(None))),
        ..ProviderDials::default()
    });
    let mut busy = Http2::open(&provider).await;
    let first = tokio::spawn(async move { busy.try_ask(&block_number()).await });
    until(&provider, |counts| counts.requests == 1).await;
    // A refusal takes the latency as well: it is counted before it is sent.
    let mut refused = Http2::open(&provider).await;
    let second = tokio::spawn(async move { refused.try_ask(&block_number()).await });
    until(&provider, |counts| counts.refusals == 1).await;
    first.abort();
    second.abort();

    provider.turn(|dials| dials.at_once = at_once(None));
    let mut clients = Vec::new();
    for requests in 3..=4 {
        let mut client = Http2::open(&provider).await;
        clients.push(tokio::spawn(async move { client.try_ask(&block_number()).await }));
        until(&provider, |counts| counts.requests == requests).await;
    }
    until(&provider, |counts| counts.waiting == 1).await;
    assert_eq!(provider.counts().refusals, 1);
    // Its turn comes when the one before it gives up.
    clients[0].abort();
    until(&provider, |counts| counts.waiting == 0).await;
    clients[1].abort();
}
