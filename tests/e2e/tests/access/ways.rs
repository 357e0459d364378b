//! Each way to give a key, over HTTP/1.1, HTTP/2 and WebSocket; and what is said where none is valid.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use wellhead_access::UnixSeconds;
use wellhead_e2e::{HttpReply, KeyFile, Rpc, Wellhead, WsClient, new_key, send_http2, until};

use crate::site::{Site, balance_call, code, keys_in};

/// A file is looked at every 2 s.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// Where a request has its key.
#[derive(Clone)]
struct Request {
    path: String,
    headers: Vec<(&'static str, String)>,
}

impl Request {
    fn at(path: impl Into<String>) -> Self {
        Self { path: path.into(), headers: Vec::new() }
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.headers.iter().map(|(name, value)| (*name, &**value)).collect()
    }

    /// Over HTTP/1.1 and HTTP/2.
    async fn send(&self, port: u16, body: &Value) -> [HttpReply; 2] {
        let mut headers = self.headers();
        headers.push(("content-type", "application/json"));
        let body = Bytes::from(body.to_string());
        let http1 = Rpc::new(port, "/").send("POST", &self.path, &headers, body.clone()).await;
        let http2 = send_http2(port, "POST", &self.path, &headers, body).await;
        [http1, http2].map(|reply| reply.unwrap_or_else(|why| panic!("{}: {why}", self.path)))
    }

    async fn connect(&self, port: u16) -> Result<WsClient, HttpReply> {
        WsClient::connect_to(port, &self.path, &self.headers()).await
    }
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// Each way over HTTP.
fn ways(key: &str) -> Vec<Request> {
    let id = key.split('_').nth(2).unwrap();
    let root = || Request::at("/");
    vec![
        Request::at(format!("/{key}")),
        Request::at(format!("/main/{key}")),
        Request::at(format!("/1009/{key}")),
        Request::at(format!("/{key}/main")),
        root().with("x-api-key", key),
        Request::at("/main").with("x-api-key", key),
        root().with("authorization", format!("Bearer {key}")),
        root().with("authorization", basic("", key)),
        root().with("authorization", basic(id, key)),
        // One key twice is one.
        Request::at(format!("/{key}")).with("x-api-key", key),
    ]
}

#[tokio::test]
async fn a_key_is_taken_in_every_way() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    let site = Site::start(&keys_in(&keys)).await;
    let mut number = 1;
    let mut call = || {
        number += 1;
        balance_call(number)
    };
    for way in ways(&key) {
        let (body, result) = call();
        for reply in way.send(site.port(), &body).await {
            assert_eq!(reply.json().unwrap()["result"], result, "{reply:?}\n{}", site.log());
        }
    }
    // A page of a browser can set nothing but the path and the subprotocols.
    let protocols = format!("wellhead, wellhead.key.{key}");
    let browser = Request::at("/main").with("sec-websocket-protocol", protocols);
    for way in ways(&key).into_iter().chain([browser]) {
        let (body, result) = call();
        let mut client = way.connect(site.port()).await.unwrap_or_else(|reply| panic!("{reply:?}"));
        let answer = client.call("eth_getBalance", body["params"].clone()).await;
        assert_eq!(answer, Ok(result), "{}", site.log());
    }
}

/// A client that comes back during a restart of wellhead must not be told that its key is wrong: programs give up then.
#[tokio::test]
async fn a_key_is_valid_from_the_first_request_on() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |_| {});
    // So many that a table is not made at once.
    keys.add_many("acme", 20_000);
    let settings = keys_in(&keys);
    let chains = "  main:\n    id: 1009\n    upstreams:\n      - { url: \"http://127.0.0.1:1\" }\n";
    let wellhead = Wellhead::spawn(&settings, chains);
    let client = Rpc::new(wellhead.port, &format!("/{key}"));
    let (call, _) = balance_call(1);
    let first = until(TAKEN_WITHIN, || async { client.post(call.to_string()).await.ok() }).await;
    // Its one upstream is not there.
    let first = first.unwrap_or_else(|| panic!("no answer:\n{}", wellhead.process.log()));
    assert_eq!(first.status, 503, "{first:?}");
    assert_ne!(code(&first), -32001, "{first:?}");
}

/// What a client is told over HTTP, and in the place of an upgrade.
async fn refused(site: &Site, request: &Request, status: u16, says: &str) {
    let (body, _) = balance_call(1);
    let [http1, http2] = request.send(site.port(), &body).await;
    let upgrade = request.connect(site.port()).await;
    let upgrade = upgrade.err().unwrap_or_else(|| panic!("{says}: upgraded"));
    for reply in [http1, http2, upgrade] {
        assert_eq!((reply.status, code(&reply)), (status, -32001), "{says}: {reply:?}");
        let challenge = if status == 401 { "Bearer" } else { "" };
        assert_eq!(reply.header("www-authenticate"), challenge, "{reply:?}");
        let told = reply.text();
        assert!(told.contains(says), "{told}");
    }
}

#[tokio::test]
async fn what_is_no_valid_key_is_refused() {
    let mut keys = KeyFile::new();
    let [key, other] = [keys.add("acme", |_| {}), keys.add("acme", |_| {})];
    let expired = keys.add("acme", |record| record.expires_at = Some(UnixSeconds(1_700_000_000)));
    let elsewhere = keys.add("acme", |record| {
        record.rights.networks = Some(vec!["192.0.2.0/24".to_owned()]);
    });
    let revoked = keys.add("acme", |_| {});
    keys.revoke(&revoked);
    let site = Site::start(&keys_in(&keys)).await;
    let (unknown, _, _) = new_key("live");
    let (none, root) = ("a key is needed", || Request::at("/"));
    let (bad, many) = ("no valid key", "two different keys");
    let mut cut = key.clone();
    cut.pop();
    for (request, status, says) in [
        (root(), 401, none),
        (Request::at("/main"), 401, none),
        (Request::at("/nowhere"), 401, none),
        (Request::at(format!("/?key={key}")), 401, bad),
        (Request::at(format!("/{unknown}")), 401, bad),
        (root().with("x-api-key", &unknown), 401, bad),
        (root().with("authorization", basic("", &unknown)), 401, bad),
        (Request::at(format!("/{revoked}")), 401, bad),
        (root().with("authorization", format!("Bearer {expired}")), 401, bad),
        (Request::at(format!("/{cut}")), 401, bad),
        (Request::at("/wh_live_"), 401, bad),
        (Request::at(format!("/main/{}", key.to_ascii_uppercase())), 401, bad),
        (root().with("x-api-key", "hunter2"), 401, bad),
        (root().with("authorization", "Bearer a.b.c"), 401, bad),
        (Request::at(format!("/{key}")).with("x-api-key", &other), 401, many),
        (Request::at(format!("/{key}/{other}")), 401, many),
        (Request::at(format!("/{elsewhere}")), 403, "may not call"),
    ] {
        refused(&site, &request, status, says).await;
    }
    assert_eq!(site.proxy.asked_for("eth_getBalance"), 0);
}

/// What a key may not do is said as the answer to the call, and nothing is asked for it.
#[tokio::test]
async fn a_key_does_what_its_rights_say() {
    let mut keys = KeyFile::new();
    let key = keys.add("acme", |record| {
        record.rights.methods.deny = vec!["eth_getLogs".to_owned()];
        record.rights.batch_items_max = Some(2);
    });
    let site = Site::start(&keys_in(&keys)).await;
    let client = site.client(&key);
    let logs = json!([{ "fromBlock": "latest" }]);
    let (denied, reply) = client.call_with_reply("eth_getLogs", logs).await.unwrap();
    // As of a method that is not there.
    assert_eq!((reply.status, &denied["error"]["code"]), (403, &json!(-32601)), "{denied}");
    let (call, result) = balance_call(7);
    let two = client.post(json!([call, call]).to_string()).await.unwrap();
    assert_eq!(two.json().unwrap()[1]["result"], result);
    let three = client.post(json!([call, call, call]).to_string()).await.unwrap();
    assert_eq!(three.json().unwrap()[0]["error"]["code"], -32001, "{three:?}");
    assert_eq!(site.proxy.asked_for("eth_getLogs"), 0);
}

#[tokio::test]
async fn a_revoked_key_ends_what_it_began() {
    let mut keys = KeyFile::new();
    let [revoked, kept] = [keys.add("acme", |_| {}), keys.add("acme", |_| {})];
    let site = Site::start(&keys_in(&keys)).await;
    let mut clients = Vec::new();
    for key in [&revoked, &kept] {
        let connected = WsClient::connect_to(site.port(), &format!("/{key}"), &[]).await;
        let mut client = connected.unwrap_or_else(|reply| panic!("{reply:?}"));
        client.subscribe(json!(["newHeads"])).await;
        clients.push(client);
    }
    // One with no subscription, which nothing but its key could end.
    let idle = WsClient::connect_to(site.port(), &format!("/{revoked}"), &[]).await;
    clients.push(idle.unwrap_or_else(|reply| panic!("{reply:?}")));
    let http = site.client(&revoked);
    http.result("eth_getBalance", balance_call(1).0["params"].clone()).await.unwrap();

    keys.revoke(&revoked);
    let refused = || async { http.post("{}").await.ok().filter(|reply| reply.status == 401) };
    let refused = until(TAKEN_WITHIN, refused).await;
    assert_eq!(code(&refused.expect("refused in time")), -32001);
    assert_eq!(clients[0].close_code().await, Some(1008), "{}", site.log());
    assert_eq!(clients[2].close_code().await, Some(1008), "{}", site.log());
    let (call, result) = balance_call(3);
    let answer = clients[1].call("eth_getBalance", call["params"].clone()).await;
    assert_eq!(answer, Ok(result));
    // It stays valid, but not for the address of this client.
    keys.change(&kept, |record| record.rights.networks = Some(vec!["192.0.2.0/24".to_owned()]));
    assert_eq!(clients[1].close_code().await, Some(1008), "{}", site.log());
}
