//! No output has the secret of a key: logs at the finest level, answers, metrics, pages, what an upstream gets.
//!
//! The whole proxy runs on real sockets. Keys that are good, unknown, damaged and cut are sent by every way
//! in which one can be given, and by some in which none should be; then all that came out is searched.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use wellhead_access::{ApiKey, KeyRecord, Pepper};

use crate::config::{self, Admin, Settings};
use crate::serve;
use crate::systemd::GivenSockets;

/// All that came out, each with what it came from.
#[derive(Clone, Default)]
struct Outputs(Arc<Mutex<Vec<(String, String)>>>);

impl Outputs {
    fn add(&self, from: impl Into<String>, text: impl Into<String>) {
        self.0.lock().push((from.into(), text.into()));
    }

    #[track_caller]
    fn check(&self, secrets: &[String]) {
        for (from, text) in self.0.lock().iter() {
            for secret in secrets {
                assert!(!text.contains(secret.as_str()), "{from}: {text}");
            }
        }
    }

    fn count(&self, from: &str) -> usize {
        self.0.lock().iter().filter(|(it, _)| it.starts_with(from)).count()
    }
}

/// Writes down every event and span of our own, at every level. The libraries below are held at coarser
/// levels whatever the settings say (`wellhead_telemetry::log`).
struct Scribe(Outputs);

struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl Subscriber for Scribe {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !["h2", "hyper", "rustls", "tungstenite", "tokio_tungstenite", "mio"]
            .iter()
            .any(|held| metadata.target().starts_with(held))
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = FieldText(span.metadata().name().to_owned());
        span.record(&mut text);
        self.0.add("log", text.0);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut text = FieldText(String::new());
        values.record(&mut text);
        self.0.add("log", text.0);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = FieldText(event.metadata().target().to_owned());
        event.record(&mut text);
        self.0.add("log", text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An upstream that answers everything with 1, and writes down what it got.
fn upstream(outputs: Outputs) -> SocketAddr {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Both end with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let outputs = outputs.clone();
            std::thread::spawn(move || serve_upstream(stream, &outputs));
        }
    });
    address
}

fn serve_upstream(mut stream: std::net::TcpStream, outputs: &Outputs) {
    let mut bytes = Vec::new();
    loop {
        let mut part = [0; 4096];
        match stream.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&part[..read]),
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(call) = serde_json::from_str::<Value>(body) else { continue };
        // A method that is a key by mistake is passed on as any other that no table knows.
        let is_key = call["method"].as_str().is_some_and(|method| method.starts_with("wh_"));
        outputs.add("upstream", format!("{head}\n{}", if is_key { "" } else { body }));
        let answer = |call: &Value| json!({ "jsonrpc": "2.0", "id": call["id"], "result": "0x1" });
        let answer = match &call {
            Value::Array(calls) => Value::Array(calls.iter().map(answer).collect()),
            call => answer(call),
        };
        let answer = answer.to_string();
        let length = answer.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        if stream.write_all(format!("{head}{answer}").as_bytes()).is_err() {
            return;
        }
        bytes.clear();
    }
}

async fn exchange(address: SocketAddr, request: String) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(20), read).await.expect("it ends").unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn request(method: &str, target: &str, fields: &[String], body: &str) -> String {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{fields}\r\n{body}"
    )
}

/// The head of an upgrade.
fn websocket(target: &str, fields: &[String]) -> String {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    format!(
        "GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    )
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}"#;

/// What clients send with a key, in its place and out of it.
fn client_requests(key: &str, other: &str) -> Vec<String> {
    let post = |target: &str, fields: &[String]| request("POST", target, fields, CALL);
    let id = key.get(8..16).unwrap_or_default();
    let (plain, named) =
        (STANDARD.encode(format!(":{key}")), STANDARD.encode(format!("{id}:{key}")));
    let encoded = format!("%77{}", &key[1..]);
    let api_key = format!("x-api-key: {key}");
    let trail = "x-wellhead-trail: 1".to_owned();
    let origin = "origin: https://a.example".to_owned();
    let as_method = CALL.replace("eth_blockNumber", key);
    vec![
        post(&format!("/{key}"), std::slice::from_ref(&trail)),
        post(&format!("/ethereum/{key}"), &[]),
        post(&format!("/{key}/ethereum"), &[]),
        post(&format!("/{encoded}"), &[]),
        post(&format!("/nochain/{key}"), &[]),
        post(&format!("/{key}/nochain"), &[]),
        post(&format!("/ethereum/{key}/more"), &[]),
        post(&format!("/{key}/{other}"), &[]),
        post(&format!("/a{key}"), std::slice::from_ref(&api_key)),
        post("/", std::slice::from_ref(&api_key)),
        post("/", &[format!("authorization: Bearer {key}"), trail]),
        post("/", &[format!("authorization: Basic {plain}")]),
        post("/", &[format!("authorization: Basic {named}")]),
        post("/", &[format!("authorization: Basic {}", STANDARD.encode(format!("x:{key}")))]),
        post("/", &[api_key.clone(), format!("authorization: Bearer {other}")]),
        post(&format!("/?key={key}"), &[]),
        post(&format!("/?{key}=1"), std::slice::from_ref(&api_key)),
        post(&format!("/ethereum?archive={key}"), std::slice::from_ref(&api_key)),
        request("POST", "/", std::slice::from_ref(&api_key), &as_method),
        request("POST", "/", std::slice::from_ref(&api_key), key),
        request("GET", &format!("/{key}"), &[], ""),
        request(
            "OPTIONS",
            &format!("/{key}"),
            &[origin, "access-control-request-method: POST".to_owned()],
            "",
        ),
        format!("POST /{key} HTTP/9.9\r\n{key}\r\n\r\n"),
    ]
}

/// What may be sent to the admin listener by mistake.
fn admin_requests(key: &str) -> Vec<String> {
    let ask = |method: &str, target: &str, body: &str| request(method, target, &[], body);
    vec![
        ask("GET", &format!("/keys/{key}"), ""),
        ask("DELETE", &format!("/keys/{key}"), ""),
        ask("POST", &format!("/keys/{key}/rotate"), "{}"),
        ask("GET", &format!("/keys?tenant={key}"), ""),
        ask("GET", &format!("/keys?after={key}"), ""),
        ask("GET", &format!("/keys?{key}=1"), ""),
        ask("POST", "/keys", &format!(r#"{{"tenant":"acme","note":"{key}"}}"#)),
        ask("POST", "/keys", &format!(r#"{{"tenant":"acme","quota":"{key}"}}"#)),
        ask("POST", "/keys", &format!(r#"{{"{key}":1}}"#)),
        ask("POST", "/keys", &format!(r#"{{"tenant":"acme","rights":{{"chains":["{key}"]}}}}"#)),
        ask("GET", &format!("/{key}"), ""),
        ask("GET", &format!("/explain?method=eth_call&chain={key}"), ""),
        ask("GET", &format!("/explain?method={key}"), ""),
        ask("GET", &format!("/explain?{key}=1"), ""),
        ask("GET", &format!("/usage?{key}=1"), ""),
        ask("GET", &format!("/usage?by={key}"), ""),
    ]
}

fn settings(upstream: SocketAddr, access: &str) -> Settings {
    let yaml = format!(
        "listen: \"127.0.0.1:4545\"\nworkers: 1\nchains: {{ ethereum: {{ id: 1, upstreams: [{{ url: \"http://{upstream}\" }}] }} }}\n{access}"
    );
    let settings = config::sound(&yaml);
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    Settings { listen: any, admin: Admin::At(any), ..settings }
}

/// Runs the proxy, and sends it everything.
fn run(settings: &Settings, keys: &[String], outputs: &Outputs) {
    let running = serve::start(&Arc::new(settings.clone()), GivenSockets::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let listen = running.addresses.listen;
    let Admin::At(admin) = running.addresses.admin else { panic!("there is an admin listener") };
    let (outputs, keys) = (outputs.clone(), keys.to_vec());
    serve::runtime().unwrap().block_on(async move {
        let client = tokio::spawn(async move {
            for (place, key) in keys.iter().enumerate() {
                let other = &keys[(place + 1) % keys.len()];
                for sent in client_requests(key, other) {
                    outputs.add("answer", exchange(listen, sent).await);
                }
                for target in ["/", &format!("/{key}")] {
                    let protocol = format!("sec-websocket-protocol: wellhead.key.{key}, wellhead");
                    let answer = upgrade(listen, websocket(target, &[protocol])).await;
                    outputs.add("websocket", answer);
                }
                for sent in admin_requests(key) {
                    outputs.add("admin", exchange(admin, sent).await);
                }
            }
            for page in ["/metrics", "/status", "/keys", "/usage", "/readyz", "/"] {
                outputs.add("page", exchange(admin, request("GET", page, &[], "")).await);
            }
        });
        let stop = async move { client.await.expect("the client does not fail") };
        running.control(stop, || ()).await.expect("it ends well");
    });
}

/// The head of the answer, and that of one call if it is a good one.
async fn upgrade(address: SocketAddr, request: String) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut sent = request.into_bytes();
    // A text message, masked with zeros, which change nothing; then the end.
    sent.extend([0x81, 0x80 | CALL.len() as u8, 0, 0, 0, 0]);
    sent.extend(CALL.as_bytes());
    sent.extend([0x88, 0x80, 0, 0, 0, 0]);
    stream.write_all(&sent).await.unwrap();
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // A refusal may reset the connection, as the message behind it is not read.
    let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("it ends");
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn the_secret_of_a_key_is_in_no_output() {
    let outputs = Outputs::default();
    tracing::subscriber::set_global_default(Scribe(outputs.clone()))
        .expect("no other test of this crate listens to events");
    let upstream = upstream(outputs.clone());
    let mut rng = StdRng::seed_from_u64(1);
    let [good, unknown] = [(); 2].map(|()| ApiKey::generate("live", &mut rng).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.jsonl");
    let hash = Pepper::well_known().hash(good.text.expose());
    std::fs::write(&path, KeyRecord::new(good.id, hash, "acme").to_line() + "\n").unwrap();
    let (good, unknown) = (good.text.expose(), unknown.text.expose());
    let damaged =
        format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    let keys = [good.to_owned(), unknown.to_owned(), damaged, good[..40].to_owned()];

    let access = format!("access: {{ keys: {{ file: \"{}\" }} }}", path.display());
    run(&settings(upstream, &access), &keys, &outputs);
    let answers =
        outputs.0.lock().iter().filter(|(_, text)| text.contains(r#""result":"0x1""#)).count();
    assert!(answers >= 8, "the good key was of use in {answers} requests");
    let masked = outputs.0.lock().iter().filter(|(_, text)| text.contains("wh_***")).count();
    assert!(masked > 0, "something was masked");
    // A browser fails where no subprotocol is named.
    let named = "sec-websocket-protocol: wellhead\r\n";
    assert!(outputs.0.lock().iter().any(|(_, text)| text.to_ascii_lowercase().contains(named)));
    // Keys in the path of a proxy that knows no keys are no chains of it.
    run(&settings(upstream, ""), &keys, &outputs);

    outputs.add("file", std::fs::read_to_string(&path).unwrap());
    for from in ["log", "answer", "websocket", "admin", "page", "upstream"] {
        assert!(outputs.count(from) > 4, "{from} was listened to");
    }
    // The first part of the secret: that of a key that was cut is enough to guess at.
    let mut secrets: Vec<_> = keys.iter().map(|key| key[17..33].to_owned()).collect();
    secrets.extend(keys.iter().map(|key| STANDARD.encode(format!(":{key}"))));
    outputs.check(&secrets);
}
