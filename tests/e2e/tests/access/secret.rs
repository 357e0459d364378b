//! The secret of a key is in no output: what wellhead prints, tells, answers, or asks of an upstream.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::json;
use wellhead_e2e::attack::upstream::CHAIN_ID;
use wellhead_e2e::{
    Fault, FaultProxy, HttpReply, KeyFile, Rpc, Tap, Upstream, Wellhead, WsClient, attack, new_key,
    secret_forms, send_http2, until,
};

use crate::site::{balance_call, keys_in};

/// Far more than a line of the log needs.
const WRITTEN_WITHIN: Duration = Duration::from_secs(20);

/// The secret of a key: what stands between its id and its check sum.
fn secret_of(key: &str) -> &str {
    key.split('_').nth(3).unwrap()
}

/// All outputs of a run, by name.
#[derive(Default)]
struct Outputs(Vec<(String, Vec<u8>)>);

impl Outputs {
    fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.0.push((name.to_owned(), bytes.into()));
    }

    fn add_reply(&mut self, name: &str, reply: &HttpReply) {
        self.add(name, format!("{:?}", reply.headers));
        self.add(name, reply.body.to_vec());
    }

    fn holding(&self, text: &str) -> Vec<&str> {
        let holds =
            |bytes: &[u8]| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        self.0.iter().filter(|(_, bytes)| holds(bytes)).map(|(name, _)| &**name).collect()
    }
}

/// Requests with this key in every place: right ones and wrong ones.
/// `door`: a key that lets in whatever else there is, where there is no other.
async fn call_in_all_places(port: u16, key: &str, door: &str, outputs: &mut Outputs) {
    let rpc = Rpc::new(port, "/");
    let bearer = format!("Bearer {key}");
    let basic = format!("Basic {}", STANDARD.encode(format!(":{key}")));
    let protocol = format!("wellhead, wellhead.key.{key}");
    let places: [(String, &str, &str); 20] = [
        (format!("/{key}"), "x-none", ""),
        (format!("/{}", key.to_ascii_uppercase()), "x-none", ""),
        (format!("/main?key={key}"), "x-none", ""),
        (format!("/nowhere/{key}/"), "x-none", ""),
        (format!("/{key}"), "x-api-key", door),
        (format!("/main/{key}"), "x-wellhead-trail", "1"),
        (format!("/{key}/main?archive=true"), "x-none", ""),
        (format!("/nowhere/{key}"), "x-api-key", door),
        (format!("/main/{key}/more"), "x-api-key", door),
        (format!("/a/b/{key}"), "x-api-key", door),
        (format!("/{}", key.to_ascii_uppercase()), "x-api-key", door),
        (format!("/%77h{}", &key[2..]), "x-api-key", door),
        (format!("/main?key={key}"), "x-api-key", door),
        (format!("/main?{key}=true"), "x-api-key", door),
        (format!("/main?%77{}", &key[1..]), "x-api-key", door),
        (format!("/main?label={key}"), "x-api-key", door),
        ("/".to_owned(), "x-api-key", key),
        ("/".to_owned(), "authorization", &bearer),
        ("/".to_owned(), "authorization", &basic),
        ("/".to_owned(), "sec-websocket-protocol", &protocol),
    ];
    let single = json!({"jsonrpc": "2.0", "id": 1, "method": "eth_nothing", "params": []});
    for (number, (path, name, value)) in places.iter().enumerate() {
        let headers = [("content-type", "application/json"), (*name, *value)];
        let headers = if *name == "x-none" { &headers[..1] } else { &headers[..] };
        let (call, _) = balance_call(1_000 + number as u64);
        let bodies = [call.to_string(), single.to_string(), "{".to_owned()];
        for body in bodies.map(Bytes::from) {
            for method in ["POST", "GET", "OPTIONS"] {
                let reply = rpc.send(method, path, headers, body.clone()).await.unwrap();
                outputs.add_reply("an answer over HTTP/1.1", &reply);
            }
            let reply = send_http2(port, "POST", path, headers, body).await.unwrap();
            outputs.add_reply("an answer over HTTP/2", &reply);
        }
        match WsClient::connect_to(port, path, &headers[1..]).await {
            Err(reply) => outputs.add_reply("the refusal of an upgrade", &reply),
            Ok(mut client) => {
                for (method, params) in
                    [("eth_getBalance", &call["params"]), ("eth_nothing", &json!([]))]
                {
                    let answer = client.call(method, params.clone()).await;
                    outputs.add("an answer over WebSocket", format!("{answer:?}"));
                }
            }
        }
    }
}

#[tokio::test]
async fn the_secret_of_a_key_is_told_to_nobody() {
    let mut keys = KeyFile::new();
    let valid = keys.add("acme", |record| record.quota = Some("small".to_owned()));
    let door = keys.add("acme", |_| {});
    let revoked = keys.add("acme", |_| {});
    keys.revoke(&revoked);
    let (unknown, _, _) = new_key("live");
    let (other, _, _) = new_key("test");
    // A character less, and one that is another: neither has a check sum that fits.
    let cut = other[..other.len() - 1].to_owned();
    let (mut wrong, _, _) = new_key("live");
    wrong.pop();
    wrong.push('u');

    let node = attack::Upstream::start();
    let proxy = FaultProxy::start(node.address.port()).await;
    let tap = Tap::before(proxy.port()).await;
    let settings = format!(
        "log: {{ level: trace, requests: true }}\n{}\
         quotas: {{ small: {{ calls_per_second: 20, burst: 20, in_flight: 4, connections: 2 }} }}\n",
        keys_in(&keys)
    );
    let upstream = Upstream::new("node", &tap.url());
    let wellhead = Wellhead::start_with(&settings, CHAIN_ID, &[upstream]).await;

    let mut outputs = Outputs::default();
    for key in [&valid, &revoked, &unknown, &cut, &wrong] {
        call_in_all_places(wellhead.port, key, &door, &mut outputs).await;
    }
    // Answers that tell of upstreams which fail.
    proxy.set(Fault::Status(500));
    call_in_all_places(wellhead.port, &valid, &door, &mut outputs).await;
    // A line of the file that cannot be read, because the whole key stands in it.
    std::fs::write(keys.path(), format!("{{\"id\": \"{valid}\", \"tenant\": \"{valid}\"}}\n"))
        .unwrap();
    let told =
        || async { (wellhead.process.lines_with("the file of keys is invalid") > 0).then_some(()) };
    until(WRITTEN_WITHIN, told).await.expect("the file is read");
    for page in ["/metrics", "/status", "/usage?by=key,tenant,outcome", "/readyz", "/"] {
        let reply = wellhead.admin().get(page).await.unwrap();
        // Its one upstream fails, so it is not ready.
        assert_eq!(reply.status, if page == "/readyz" { 503 } else { 200 }, "{page}");
        outputs.add_reply(page, &reply);
    }
    outputs.add("the log", wellhead.process.printed());
    outputs.add("what the upstream was sent", tap.sent());

    // It would be found: the id of the key, which is no secret, is in the log, and its calls came to the upstream.
    let id = valid.split('_').nth(2).unwrap();
    assert!(outputs.holding(id).contains(&"the log"), "the id is not told");
    assert!(outputs.holding("\"TRACE\"").contains(&"the log"));
    assert!(outputs.holding("eth_getBalance").contains(&"what the upstream was sent"));
    for key in [&valid, &revoked, &unknown, &cut, &wrong] {
        for form in secret_forms(secret_of(key)) {
            let holding = outputs.holding(&form);
            let lines: String = wellhead
                .process
                .printed()
                .lines()
                .filter(|line| line.contains(&form))
                .take(5)
                .map(|line| format!("{line}\n"))
                .collect();
            assert!(holding.is_empty(), "{form} of {key} is in {holding:?}\n{lines}");
        }
    }
    let bytes: usize = outputs.0.iter().map(|(_, bytes)| bytes.len()).sum();
    println!("5 keys in none of {} outputs, {bytes} bytes", outputs.0.len());
}
