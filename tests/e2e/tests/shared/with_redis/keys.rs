//! Keys in the store: made, rotated and revoked over the admin listener of one wellhead, for both.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::{Value, json};
use wellhead_e2e::attack::{self, upstream::CHAIN_ID};
use wellhead_e2e::{HttpReply, Rpc, Wellhead, chain, guard_secret, until};
use wellhead_kit::RedisServer;

/// Far more than anything here needs.
const BOUND: Duration = Duration::from_secs(60);
/// Within this time a change that cannot be made is refused, on a machine that is busy.
const REFUSED_WITHIN: Duration = Duration::from_secs(30);

/// Two wellheads whose keys are in one store.
struct Pair {
    replicas: Vec<Wellhead>,
}

impl Pair {
    async fn start(store: &RedisServer) -> Self {
        let settings = format!(
            "shared: {{ redis: \"{}\" }}\naccess: {{ keys: {{ redis: true }} }}\ntenants: {{ acme: {{}} }}\n",
            store.url()
        );
        let node = format!("http://{}", attack::Upstream::start().address);
        let chain = chain(CHAIN_ID, &[wellhead_e2e::Upstream::new("node", &node)]);
        let spawn = |_| Wellhead::spawn(&settings, &chain).ready();
        let pair = Self { replicas: join_all((0..2).map(spawn)).await };
        for replica in 0..2 {
            let is_read = || async { (pair.list(replica).await == json!([])).then_some(()) };
            until(BOUND, is_read).await.expect("the list of keys");
        }
        pair
    }

    async fn change(&self, replica: usize, method: &str, path: &str, body: &Value) -> HttpReply {
        let headers = [("content-type", "application/json"), ("x-wellhead-admin", "1")];
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        self.replicas[replica].admin().send(method, path, &headers, body).await.unwrap()
    }

    /// A change that is made: its answer, with the text of the key if it has one.
    async fn changed(&self, replica: usize, method: &str, path: &str, body: Value) -> Value {
        let reply = self.change(replica, method, path, &body).await;
        let is_done = matches!(reply.status, 200 | 201);
        assert!(is_done, "{reply:?}\n{}", self.replicas[replica].process.log());
        let answer = reply.json().unwrap();
        if let Some(key) = answer["key"].as_str() {
            guard_secret(key);
        }
        assert_eq!(answer["source"], "redis", "{}", answer["id"]);
        answer
    }

    async fn list(&self, replica: usize) -> Value {
        let reply = self.replicas[replica].admin().get("/keys").await.unwrap();
        reply.json().unwrap()["keys"].take()
    }

    /// What a call with this key is answered with: its HTTP status.
    async fn status(&self, replica: usize, key: &str) -> u16 {
        let client = Rpc::new(self.replicas[replica].port, &format!("/{key}"));
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []});
        client.post(call.to_string()).await.unwrap().status
    }

    async fn until_status(&self, replica: usize, key: &str, status: u16) {
        let is_so = || async { (self.status(replica, key).await == status).then_some(()) };
        let log = || self.replicas[replica].process.log();
        assert!(until(BOUND, is_so).await.is_some(), "not {status} at {replica}:\n{}", log());
    }
}

fn key_of(answer: &Value) -> String {
    answer["key"].as_str().expect("the text of the key").to_owned()
}

#[tokio::test]
async fn a_key_is_changed_at_one_for_both() {
    let store = RedisServer::valkey();
    let pair = Pair::start(&store).await;
    let made = pair.changed(0, "POST", "/keys", json!({"tenant": "acme", "note": "n"})).await;
    let (first, id) = (key_of(&made), made["id"].as_str().unwrap());
    assert_eq!(pair.status(0, &first).await, 200, "it is in use when it is answered");
    pair.until_status(1, &first, 200).await;
    for replica in 0..2 {
        let list = pair.list(replica).await;
        let row = (&list[0]["id"], &list[0]["source"], &list[0]["note"]);
        assert_eq!(row, (&json!(id), &json!("redis"), &json!("n")), "{list}");
    }

    let path = format!("/keys/{id}/rotate");
    let rotated = pair.changed(1, "POST", &path, json!({"overlap": "1h"})).await;
    let next = key_of(&rotated);
    assert!(rotated["previous"]["valid_until"].is_u64());
    assert_eq!([pair.status(1, &next).await, pair.status(1, &first).await], [200, 200]);
    pair.until_status(0, &next, 200).await;
    assert_eq!(pair.status(0, &first).await, 200, "the old secret during the overlap");

    let revoked = pair.changed(0, "DELETE", &format!("/keys/{id}"), Value::Null).await;
    assert_eq!(revoked["state"], "revoked");
    for key in [&first, &next] {
        assert_eq!(pair.status(0, key).await, 401);
        pair.until_status(1, key, 401).await;
    }
    let late = pair.change(1, "POST", &path, &json!({})).await;
    let words = format!("the key {id} is revoked: make a new one");
    assert_eq!((late.status, late.json().unwrap()), (409, json!({ "error": words })));
    let log = pair.replicas[0].process.log();
    assert!(log.contains("key.create") && log.contains("key.revoke"), "the audit:\n{log}");
}

/// A store that has ended, or that hangs, changes nothing: also not later, when it goes on.
#[tokio::test]
async fn without_the_store_no_key_is_changed() {
    let store = RedisServer::valkey();
    let pair = Pair::start(&store).await;
    let made = pair.changed(0, "POST", "/keys", json!({"tenant": "acme"})).await;
    let (key, path) = (key_of(&made), format!("/keys/{}", made["id"].as_str().unwrap()));
    pair.until_status(1, &key, 200).await;
    let away = "Redis cannot be reached, or is too slow: nothing was changed; try again later";
    let refused = async || {
        let order = json!({"tenant": "acme"});
        for (method, path, body) in [("POST", "/keys", &order), ("DELETE", &*path, &Value::Null)] {
            let change = pair.change(0, method, path, body);
            let reply = tokio::time::timeout(REFUSED_WITHIN, change).await.expect("it is bounded");
            assert_eq!((reply.status, reply.json().unwrap()), (503, json!({ "error": away })));
        }
        assert_eq!([pair.status(0, &key).await, pair.status(1, &key).await], [200, 200]);
    };
    store.signal("-STOP");
    refused().await;
    store.signal("-CONT");
    // The first that is made again: nothing of the others comes after it.
    let is_back = || async {
        let reply = pair.change(1, "POST", "/keys", &json!({"tenant": "acme"})).await;
        (reply.status == 201).then(|| reply.json().unwrap())
    };
    let other = until(BOUND, is_back).await.expect("it goes on");
    guard_secret(&key_of(&other));
    let both = || async { (pair.list(0).await.as_array()?.len() == 2).then_some(()) };
    until(BOUND, both).await.expect("two keys, those that were made");
    assert_eq!(pair.status(0, &key).await, 200);
    store.signal("-KILL");
    refused().await;
}
