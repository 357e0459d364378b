//! Limits of tenants, keys and groups of methods: what they let through, and what a client is told at them.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use wellhead_e2e::{Fault, HttpReply, KeyFile, Rpc, Signal, Webhook, WsClient, until};

use crate::site::{Site, balance_call};

/// Far more than a call or a close needs.
const SOON: Duration = Duration::from_secs(30);
/// What one `eth_getBalance` costs here, so that caps let an exact number of calls through.
const PRICE: u64 = 7;

/// The settings of tenant `acme`, whose quota is `q`.
fn settings(keys: &KeyFile, tenant: &str, quota: &str) -> String {
    let access = format!(
        "access: {{ keys: {{ file: \"{}\" }}, prices: [ {{ methods: [eth_getBalance], credits: {PRICE} }} ] }}",
        keys.path().display()
    );
    format!("{access}\ntenants: {{ acme: {{ {tenant} }} }}\nquotas: {{ q: {{ {quota} }} }}\n")
}

async fn post(client: &Rpc, body: &Value) -> HttpReply {
    client.post(body.to_string()).await.unwrap_or_else(|why| panic!("{why}"))
}

/// What a client is told at a limit: the status, the error and the headers. Returns `Retry-After` in seconds.
#[track_caller]
fn told_of(reply: &HttpReply, subject: &str, limit: &str, most: u64, window: Option<u64>) -> u64 {
    let body = reply.json().unwrap();
    assert_eq!((reply.status, &body["error"]["code"]), (429, &json!(-32005)), "{body}");
    let data = &body["error"]["data"];
    let said = (&data["subject"], &data["limit"], &data["quota"], &data["most"]);
    assert_eq!(said, (&json!(subject), &json!(limit), &json!("q"), &json!(most)), "{body}");
    let window = window.map_or_else(String::new, |seconds| format!(";w={seconds}"));
    assert_eq!(reply.header("ratelimit-policy"), format!("\"{limit}\";q={most}{window}"));
    let retry_after = reply.header("retry-after").parse().unwrap();
    assert_eq!(reply.header("ratelimit"), format!("\"{limit}\";r=0;t={retry_after}"));
    assert_eq!(data["retry_after_s"], json!(retry_after));
    assert!(retry_after >= 1, "{reply:?}");
    retry_after
}

#[tokio::test]
async fn calls_per_second() {
    const CALLS: u64 = 40;
    const RATE: u64 = 5;
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let quota = format!("calls_per_second: {RATE}, burst: {RATE}");
    let site = Site::start(&settings(&keys, "quota: q", &quota)).await;
    let client = site.client(&key);
    let began = Instant::now();
    // Address 0 is what wellhead itself asks upstreams about.
    let calls: Vec<_> = (1..=CALLS).map(balance_call).collect();
    let replies = join_all(calls.iter().map(|(call, _)| post(&client, call))).await;
    let took = began.elapsed();
    let (served, refused): (Vec<_>, Vec<_>) =
        replies.iter().zip(&calls).partition(|(reply, _)| reply.status == 200);
    for (reply, (_, result)) in &served {
        assert_eq!(reply.json().unwrap()["result"], *result);
    }
    for (reply, (call, _)) in &refused {
        assert_eq!(told_of(reply, "tenant", "calls_per_second", RATE, Some(1)), 1);
        assert_eq!(site.proxy.asked_for(call["params"][0].as_str().unwrap()), 0, "{call}");
    }
    let most = RATE as f64 * (1.0 + took.as_secs_f64());
    println!("{} of {CALLS} calls served in {took:?}, {most:.1} at most", served.len());
    assert!(served.len() as u64 >= RATE && served.len() as f64 <= most);
    assert!(!refused.is_empty());
    // It is a rate: the next calls are let through.
    let (call, result) = balance_call(CALLS + 1);
    let again = until(SOON, || async {
        Some(post(&client, &call).await).filter(|reply| reply.status == 200)
    });
    assert_eq!(again.await.expect("served again").json().unwrap()["result"], result);
}

/// The keys of a tenant share its quota; a key has one of its own within it.
#[tokio::test]
async fn credits_per_day() {
    let mut keys = KeyFile::new();
    let [first, second] = [keys.add("acme", |_| {}), keys.add("acme", |_| {})];
    let quota = format!("credits_per_day: {}", 3 * PRICE);
    let site = Site::start(&settings(&keys, "quota: q", &quota)).await;
    let clients = [site.client(&first), site.client(&second)];
    for number in 0..3_u64 {
        let reply = post(&clients[usize::from(number > 0)], &balance_call(number).0).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    for client in &clients {
        let reply = post(client, &balance_call(9).0).await;
        let day = Some(86_400);
        assert!(told_of(&reply, "tenant", "credits_per_day", 3 * PRICE, day) <= 86_400);
    }

    let site = Site::start(&settings(&keys, "key_quota: q", &quota)).await;
    for key in [&first, &second] {
        let client = site.client(key);
        for number in 0..3 {
            assert_eq!(post(&client, &balance_call(number).0).await.status, 200);
        }
        let reply = post(&client, &balance_call(9).0).await;
        told_of(&reply, "key", "credits_per_day", 3 * PRICE, Some(86_400));
    }
}

#[tokio::test]
async fn in_flight() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let site = Site::start(&settings(&keys, "quota: q", "in_flight: 2")).await;
    let client = site.client(&key);
    site.proxy.set(Fault::Hold("eth_getBalance"));
    let held = join_all((0..2).map(|number| {
        let call = balance_call(number).0;
        let client = &client;
        async move { post(client, &call).await }
    }));
    let third = async {
        let are_held = || async { (site.proxy.held() >= 2).then_some(()) };
        until(SOON, are_held).await.expect("two calls are under way");
        let third = post(&client, &balance_call(3).0).await;
        site.proxy.set(Fault::None);
        third
    };
    let (held, third) = tokio::join!(held, third);
    told_of(&third, "tenant", "in_flight", 2, None);
    assert!(held.iter().all(|reply| reply.status == 200), "{held:?}");
    assert_eq!(post(&client, &balance_call(4).0).await.status, 200);
}

/// Each item of a batch is let through or refused by itself.
#[tokio::test]
async fn a_batch_is_refused_in_part() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let quota = format!("credits_per_day: {}", 3 * PRICE);
    let site = Site::start(&settings(&keys, "quota: q", &quota)).await;
    let calls: Vec<_> = (0..5).map(balance_call).collect();
    let batch: Value = calls.iter().map(|(call, _)| call.clone()).collect();
    let reply = post(&site.client(&key), &batch).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let replies = reply.json().unwrap();
    let replies = replies.as_array().unwrap();
    assert_eq!(replies.len(), calls.len());
    let results: Vec<_> = replies.iter().filter(|reply| reply.get("result").is_some()).collect();
    assert_eq!(results.len(), 3, "{replies:?}");
    for reply in replies.iter().filter(|reply| reply.get("result").is_none()) {
        assert_eq!(reply["error"]["code"], -32005);
        assert_eq!(reply["error"]["data"]["limit"], "credits_per_day");
    }
}

/// A group bounds its own methods, and no others.
#[tokio::test]
async fn a_group_of_methods() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let group = "groups: [ { methods: [eth_getStorageAt], calls_per_second: 1, burst: 1 } ]";
    let site = Site::start(&settings(&keys, "quota: q", group)).await;
    let client = site.client(&key);
    let storage = |number: u64| {
        let params = json!([format!("0x{number:040x}"), "0x0", "latest"]);
        json!({"jsonrpc": "2.0", "id": 1, "method": "eth_getStorageAt", "params": params})
    };
    let bounded: Vec<_> = (0..20).map(storage).collect();
    let free: Vec<_> = (0..20).map(|number| balance_call(number).0).collect();
    let (bounded, free) = tokio::join!(
        join_all(bounded.iter().map(|call| post(&client, call))),
        join_all(free.iter().map(|call| post(&client, call))),
    );
    assert!(free.iter().all(|reply| reply.status == 200), "{free:?}");
    let refused: Vec<_> = bounded.iter().filter(|reply| reply.status != 200).collect();
    assert!(!refused.is_empty() && refused.len() < bounded.len(), "{} refused", refused.len());
    for reply in refused {
        told_of(reply, "tenant", "calls_per_second", 1, Some(1));
    }
}

#[tokio::test]
async fn connections_and_subscriptions() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let quota = "connections: 2, subscriptions: 3";
    let site = Site::start(&settings(&keys, "quota: q", quota)).await;
    let path = format!("/{key}");
    let connect = || async {
        let connected = WsClient::connect_to(site.port(), &path, &[]).await;
        connected.unwrap_or_else(|reply| panic!("{reply:?}"))
    };
    let (mut first, mut second) = (connect().await, connect().await);
    for client in [&mut first, &mut second] {
        client.call("eth_chainId", json!([])).await.unwrap();
    }
    assert_eq!(connect().await.close_code().await, Some(1013), "{}", site.log());

    let heads = json!(["newHeads"]);
    let id = first.subscribe(heads.clone()).await;
    first.subscribe(heads.clone()).await;
    second.subscribe(heads.clone()).await;
    for client in [&mut first, &mut second] {
        let why = client.call("eth_subscribe", heads.clone()).await.unwrap_err();
        assert!(why.contains("-32005") && why.contains("subscriptions"), "{why}");
    }
    // One that ends makes room for another.
    assert_eq!(first.call("eth_unsubscribe", json!([id])).await, Ok(json!(true)));
    second.subscribe(heads.clone()).await;
    second.call("eth_subscribe", heads.clone()).await.unwrap_err();
    // So does a connection.
    drop(first);
    let again = until(SOON, || async {
        let mut client = connect().await;
        client.ask_open().await.then_some(client)
    });
    again.await.expect("there is room again").subscribe(heads).await;
}

#[tokio::test]
async fn a_webhook_is_told_of_80_and_100_percent() {
    let (mut keys, webhook) = (KeyFile::new(), Webhook::listen().await);
    let folder = tempfile::tempdir().unwrap();
    let key = keys.add("acme", |_| {});
    // Room for four calls and a half: 80 % with the fourth, and the fifth is refused.
    let quota = format!("credits_per_day: {}", 4 * PRICE + PRICE / 2);
    let more = format!(
        "usage: {{ webhook: {{ url: \"http://127.0.0.1:{}/\" }} }}\nstate: \"{}\"\n",
        webhook.port,
        folder.path().join("state").display()
    );
    let site = Site::start(&(settings(&keys, "quota: q", &quota) + &more)).await;
    let client = site.client(&key);
    for (call, status) in (1..=5).map(|n| (balance_call(n).0, if n < 5 { 200 } else { 429 })) {
        assert_eq!(post(&client, &call).await.status, status, "{call}");
    }
    // What a minute would tell is told at the end of the process, too.
    site.wellhead.process.signal(Signal::Term);
    let told = || async { Some(webhook.bodies()).filter(|bodies| bodies.len() >= 2) };
    let told = until(SOON, told).await.unwrap_or_else(|| panic!("{:?}", webhook.bodies()));
    let said = told.iter().map(|it| {
        let words = [&it["event"], &it["tenant"], &it["period"], &it["used"], &it["quota"]];
        (it["percent"].as_u64().unwrap(), words.map(|word| word.as_str().unwrap().to_owned()))
    });
    let words = ["quota", "acme", "day", "28", "31"].map(str::to_owned);
    assert_eq!(said.collect::<Vec<_>>(), [(80, words.clone()), (100, words)]);
    assert_ne!(told[0]["id"], told[1]["id"]);
}
