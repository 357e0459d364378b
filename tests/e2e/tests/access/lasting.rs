//! WebSocket connections that outlive what let them in, and keys that come back.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use wellhead_access::{KeyRecord, UnixSeconds};
use wellhead_e2e::{KeyFile, Rpc, Signal, WsClient, until, wall_clock};

use crate::site::{Site, balance_call, code, keys_in};

/// A file of keys is looked at every 2 s, and connections a second later at most; the machine may be busy.
const CLOSED_WITHIN: Duration = Duration::from_secs(20);
/// What a request that changes something needs.
const ASKED: [(&str, &str); 1] = [("x-wellhead-admin", "1")];
const PAGE: &str = "https://app.example";

/// A key whose record is changed while a connection is open.
struct Case {
    name: &'static str,
    is_subscribed: bool,
    change: fn(&mut KeyRecord),
    is_closed: bool,
}

const fn case(
    name: &'static str,
    is_subscribed: bool,
    is_closed: bool,
    change: fn(&mut KeyRecord),
) -> Case {
    Case { name, is_subscribed, change, is_closed }
}

fn list(word: &str) -> Option<Vec<String>> {
    Some(vec![word.to_owned()])
}

const CASES: [Case; 13] = [
    case("nothing", true, false, |_| {}),
    case("a note", true, false, |it| it.note = Some("n".to_owned())),
    case("revoked", false, true, |it| it.revoked_at = Some(UnixSeconds(1))),
    case("expired", false, true, |it| it.expires_at = Some(UnixSeconds(1))),
    case("rights expired", false, true, |it| it.rights.expires_at = Some(UnixSeconds(1))),
    case("another page", false, true, |it| it.rights.origins = list("https://b.example")),
    case("its page", true, false, |it| it.rights.origins = list(PAGE)),
    case("another network", false, true, |it| it.rights.networks = list("192.0.2.0/24")),
    case("another chain", false, true, |it| it.rights.chains = list("other")),
    case("its chain", true, false, |it| it.rights.chains = list("main")),
    case("no subscriptions, none", false, false, |it| {
        it.rights.methods.deny = vec!["eth_subscribe".to_owned()];
    }),
    case("no subscriptions, one", true, true, |it| {
        it.rights.methods.deny = vec!["eth_subscribe".to_owned()];
    }),
    case("one contract", true, true, |it| {
        it.rights.contracts = list("0x00000000000000000000000000000000000000aa");
    }),
];

async fn connect(site: &Site, path: &str) -> WsClient {
    let connected = WsClient::connect_to(site.port(), path, &[("origin", PAGE)]).await;
    connected.unwrap_or_else(|reply| panic!("{reply:?}"))
}

/// Whatever is taken away, the connections that it let in are closed; others go on, and none is forgotten because
/// nothing is sent over it.
#[tokio::test]
async fn a_connection_ends_with_what_let_it_in() {
    let mut keys = KeyFile::new();
    let texts: Vec<_> = CASES
        .iter()
        .map(|_| {
            keys.add("acme", |it| it.rights.chains = Some(vec!["main".into(), "other".into()]))
        })
        .collect();
    let site = Site::start(&format!("{}cors: {{ origins: [\"*\"] }}\n", keys_in(&keys))).await;
    let mut clients = Vec::new();
    for (case, text) in CASES.iter().zip(&texts) {
        let mut client = connect(&site, &format!("/{text}")).await;
        if case.is_subscribed {
            client.subscribe(json!(["newHeads"])).await;
        }
        clients.push(client);
    }
    for (case, text) in CASES.iter().zip(&texts) {
        keys.change(text, case.change);
    }
    let changed = Instant::now();
    for (case, client) in CASES.iter().zip(&mut clients).filter(|(case, _)| case.is_closed) {
        let closed = tokio::time::timeout(CLOSED_WITHIN, client.close_code()).await;
        assert_eq!(closed, Ok(Some(1008)), "{}\n{}", case.name, site.log());
        println!("{}: closed {} ms after the change", case.name, changed.elapsed().as_millis());
    }
    for (number, (case, client)) in (1..).zip(CASES.iter().zip(&mut clients)) {
        if !case.is_closed {
            let (call, result) = balance_call(number);
            let answer = client.call("eth_getBalance", call["params"].clone()).await;
            assert_eq!(answer, Ok(result), "{}\n{}", case.name, site.log());
        }
    }
    // By the rights of now.
    let refused = clients[10].call("eth_subscribe", json!(["newHeads"])).await;
    assert!(refused.is_err_and(|told| told.contains("-32601")), "{}", site.log());
}

#[tokio::test]
async fn a_silent_connection_ends_with_its_key() {
    let mut keys = KeyFile::new();
    let ends_at = wall_clock().as_secs() + 8;
    let key = keys.add("acme", |record| record.expires_at = Some(UnixSeconds(ends_at)));
    let site = Site::start(&format!("{}cors: {{ origins: [\"*\"] }}\n", keys_in(&keys))).await;
    let mut client = connect(&site, &format!("/{key}")).await;
    let closed = tokio::time::timeout(CLOSED_WITHIN, client.close_code()).await;
    assert_eq!(closed, Ok(Some(1008)), "{}", site.log());
    assert!(wall_clock().as_secs() >= ends_at, "not before its end");
}

/// Settings that are reloaded may take away what let a client in that has no key.
#[tokio::test]
async fn a_connection_ends_with_the_settings_that_let_it_in() {
    let keys = KeyFile::new();
    let settings = |anonymous: &str, rights: &str| {
        let keys = keys_in(&keys).replace("acme: {}", &format!("acme: {{ rights: {rights} }}"));
        let keys = keys.replace("access: {", &format!("access: {{ anonymous: {anonymous},"));
        format!("{keys}cors: {{ origins: [\"*\"] }}\n")
    };
    let mut keys_of_acme = KeyFile::new();
    let key = keys_of_acme.add("acme", |_| {});
    std::fs::copy(keys_of_acme.path(), keys.path()).unwrap();
    let before = settings("allow", "{}");
    let site = Site::start(&before).await;
    let [mut stranger, mut keyed] =
        [connect(&site, "/").await, connect(&site, &format!("/{key}")).await];
    for client in [&mut stranger, &mut keyed] {
        client.subscribe(json!(["newHeads"])).await;
    }
    let reload = |from: &str, to: &str| {
        site.wellhead.rewrite(|config| config.replace(from, to));
        site.wellhead.admin().send("POST", "/reload", &ASKED, Bytes::new())
    };
    let denied = settings("deny", "{}");
    assert_eq!(reload(&before, &denied).await.unwrap().status, 200, "{}", site.log());
    let closed = tokio::time::timeout(CLOSED_WITHIN, stranger.close_code()).await;
    assert_eq!(closed, Ok(Some(1008)), "{}", site.log());
    let (call, result) = balance_call(1);
    assert_eq!(keyed.call("eth_getBalance", call["params"].clone()).await, Ok(result));
    let narrowed = settings("deny", "{ origins: [\"https://b.example\"] }");
    assert_eq!(reload(&denied, &narrowed).await.unwrap().status, 200, "{}", site.log());
    let closed = tokio::time::timeout(CLOSED_WITHIN, keyed.close_code()).await;
    assert_eq!(closed, Ok(Some(1008)), "{}", site.log());
}

/// A backup of the file of keys is put back.
#[tokio::test]
async fn a_key_that_was_revoked_does_not_come_back_with_its_file() {
    let mut keys = KeyFile::new();
    let [revoked, kept] = [keys.add("acme", |_| {}), keys.add("acme", |_| {})];
    let id = revoked.split('_').nth(2).unwrap().to_owned();
    let site = Site::start(&keys_in(&keys)).await;
    let (call, result) = balance_call(1);
    let call = call["params"].clone();
    let was = site.client(&revoked).result("eth_getBalance", call.clone()).await;
    assert_eq!(was.unwrap(), result);
    let backup = std::fs::read(keys.path()).unwrap();
    keys.revoke(&revoked);
    let http = site.client(&revoked);
    let refused = || async { http.post("{}").await.ok().filter(|reply| reply.status == 401) };
    assert_eq!(code(&until(CLOSED_WITHIN, refused).await.expect("refused in time")), -32001);
    std::fs::write(keys.path(), backup).unwrap();
    let told = || async { site.log().contains("key.return").then_some(()) };
    assert!(until(CLOSED_WITHIN, told).await.is_some(), "{}", site.log());
    assert_eq!(http.post("{}").await.unwrap().status, 401);
    let answer = site.client(&kept).result("eth_getBalance", call).await;
    assert_eq!(answer.unwrap(), result);
    let (log, pages) = (site.log(), site.wellhead.admin().get("/metrics").await.unwrap().text());
    let line = log.lines().find(|line| line.contains("key.return")).unwrap();
    assert!(line.contains(&id) && line.contains("denied"), "{line}");
    assert!(!log.contains(&revoked[17..]), "no secret");
    assert!(pages.contains("wellhead_keys_returned_total{reason=\"revoked\"} 1"), "{pages}");
}

/// A backup of the file of keys is put back while wellhead is down.
#[tokio::test]
async fn a_key_that_was_revoked_does_not_come_back_with_a_restart() {
    let mut keys = KeyFile::new();
    let [revoked, kept] = [keys.add("acme", |_| {}), keys.add("acme", |_| {})];
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let settings = format!("{}state: \"{}\"\n", keys_in(&keys), state.display());
    let Site { mut wellhead, proxy: _upstream } = Site::start(&settings).await;
    let backup = std::fs::read(keys.path()).unwrap();
    keys.revoke(&revoked);
    let client = |key: &str| Rpc::new(wellhead.port, &format!("/{key}"));
    let [of_revoked, of_kept] = [client(&revoked), client(&kept)];
    let refused = || async { of_revoked.post("{}").await.ok().filter(|it| it.status == 401) };
    until(CLOSED_WITHIN, refused).await.expect("refused in time");
    wellhead.process.signal(Signal::Term);
    assert_eq!(wellhead.process.exit_code(CLOSED_WITHIN).await, Some(0));
    std::fs::write(keys.path(), backup).unwrap();
    let wellhead = wellhead.start_again().await;
    assert_eq!(of_revoked.post("{}").await.unwrap().status, 401, "{}", wellhead.process.log());
    let (call, result) = balance_call(1);
    let answer = of_kept.result("eth_getBalance", call["params"].clone()).await;
    assert_eq!(answer.unwrap(), result);
    let log = wellhead.process.printed();
    let line = log.lines().find(|line| line.contains("key.return")).expect("it is told");
    assert!(line.contains(revoked.split('_').nth(2).unwrap()) && line.contains("denied"), "{line}");
}
