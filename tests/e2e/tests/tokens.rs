//! Signed tokens, from an issuer that publishes its keys over HTTPS to calls over HTTP and WebSocket.

#![allow(clippy::unwrap_used, reason = "a test may stop where it likes")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _, SigningKey as _};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use wellhead_e2e::{Certificate, HttpReply, Wellhead, free_port, guard_secret, until, wall_clock};

const BOUND: Duration = Duration::from_secs(60);
const ISSUER: &str = "https://id.example/";

/// A key of the issuer.
struct Signer {
    kid: &'static str,
    key: KeyPair,
}

impl Signer {
    fn new(kid: &'static str) -> Self {
        Self { kid, key: KeyPair::generate_for(&PKCS_ED25519).unwrap() }
    }

    fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.der_bytes());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x })
    }

    fn token(&self, claims: &Value) -> String {
        let message = message("EdDSA", self.kid, claims);
        signed(&message, &self.key.sign(message.as_bytes()).unwrap())
    }
}

/// A token with this signature, which is in no output of wellhead.
fn signed(message: &str, signature: &[u8]) -> String {
    let signature = URL_SAFE_NO_PAD.encode(signature);
    guard_secret(&signature);
    format!("{message}.{signature}")
}

fn message(algorithm: &str, kid: &str, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(&json!({ "alg": algorithm, "kid": kid })), part(claims))
}

/// An HMAC with this text as secret.
fn hs256(kid: &str, claims: &Value, secret: &[u8]) -> String {
    let message = message("HS256", kid, claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    signed(&message, tag.as_ref())
}

/// The claims of a good token, with some of them changed.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": ["web", "rpc"], "sub": "alice", "exp": wall_clock().as_secs() + 600,
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

/// Reads one request; its body, or nothing when the client leaves.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.split_once("content-length: ").map_or("0", |(_, rest)| rest);
    let mut body = vec![0; length.lines().next()?.trim().parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some(body)
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), body: &str) {
    let text = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.flush().await;
}

/// A node that answers each call with `"0x7"`; returns its port.
async fn node() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                while let Some(body) = request(&mut stream).await {
                    let Ok(call) = serde_json::from_slice::<Value>(&body) else { return };
                    let reply = json!({ "jsonrpc": "2.0", "id": call["id"], "result": "0x7" });
                    answer(&mut stream, &reply.to_string()).await;
                }
            });
        }
    });
    port
}

/// Publishes keys over HTTPS.
struct Issuer {
    port: u16,
    certificate: Certificate,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Issuer {
    /// One that does not listen yet.
    fn new(keys: &[&Signer]) -> Self {
        let keys = keys.iter().map(|signer| signer.jwk()).collect();
        Self {
            port: free_port(),
            certificate: Certificate::new(),
            keys: Arc::new(Mutex::new(keys)),
        }
    }

    fn publish(&self, keys: &[&Signer]) {
        *self.keys.lock().unwrap() = keys.iter().map(|signer| signer.jwk()).collect();
    }

    async fn open(&self) {
        let [certificate, key, _] = self.certificate.files();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(certificate).unwrap()],
                PrivateKeyDer::from_pem_file(key).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let listener = TcpListener::bind(address).await.unwrap();
        let keys = Arc::clone(&self.keys);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                if request(&mut stream).await.is_some() {
                    let document = json!({ "keys": *keys.lock().unwrap() }).to_string();
                    answer(&mut stream, &document).await;
                    let _ = stream.shutdown().await;
                }
            }
        });
    }

    async fn wellhead(&self) -> Wellhead {
        let [ca, ..] = self.certificate.files();
        let jwks = format!("https://localhost:{}/keys?k=JWKS-SECRET", self.port);
        let more = format!(
            "access:\n  jwt:\n    - {{ issuer: \"{ISSUER}\", audience: [rpc], jwks: \"{jwks}\", ca_file: \"{}\", tenant: acme }}\n\
             tenants: {{ acme: {{}} }}",
            ca.display()
        );
        let node = node().await;
        let chains = format!(
            "  main:\n    id: 7\n    checks: {{ mode: off }}\n    upstreams: [ {{ id: a, url: \"http://127.0.0.1:{node}\" }} ]\n"
        );
        Wellhead::spawn(&more, &chains).ready().await
    }
}

async fn call(wellhead: &Wellhead, token: &str) -> HttpReply {
    let authorization = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", authorization.as_str())];
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice","params":[]}"#;
    wellhead.rpc().send("POST", "/", &headers, Bytes::from(body)).await.unwrap()
}

/// Upgrades with these fields and makes a call: the subprotocol and the result, or the status of a refusal.
async fn call_by_websocket(
    wellhead: &Wellhead,
    fields: &[(&'static str, &str)],
) -> Result<(String, Value), u16> {
    let url = format!("ws://127.0.0.1:{}/", wellhead.port);
    let mut request = url.into_client_request().unwrap();
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(("127.0.0.1", wellhead.port)).await.unwrap();
    let (mut client, response) =
        client_async(request, stream).await.map_err(|error| match error {
            tokio_tungstenite::tungstenite::Error::Http(reply) => reply.status().as_u16(),
            other => panic!("{other}"),
        })?;
    let selected = response.headers().get("sec-websocket-protocol");
    let selected = selected.map_or(String::new(), |name| name.to_str().unwrap().to_owned());
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"eth_gasPrice","params":[]}"#;
    client.send(Message::text(body)).await.unwrap();
    let reply = client.next().await.unwrap().unwrap().into_text().unwrap();
    let reply: Value = serde_json::from_str(&reply).unwrap();
    Ok((selected, reply["result"].clone()))
}

#[tokio::test]
async fn tokens_of_the_issuer_call_and_others_do_not() {
    let (signer, stranger) = (Signer::new("a"), Signer::new("a"));
    let issuer = Issuer::new(&[&signer]);
    issuer.open().await;
    let wellhead = issuer.wellhead().await;
    let good = signer.token(&claims(&json!({})));
    let reply = call(&wellhead, &good).await;
    assert_eq!((reply.status, reply.json().unwrap()["result"].clone()), (200, json!("0x7")));

    let bearer = format!("Bearer {good}");
    let answered = call_by_websocket(&wellhead, &[("authorization", &bearer)]).await;
    assert_eq!(answered, Ok((String::new(), json!("0x7"))));
    let offered = format!("wellhead, wellhead.key.{good}");
    let answered = call_by_websocket(&wellhead, &[("sec-websocket-protocol", &offered)]).await;
    assert_eq!(answered, Ok(("wellhead".to_owned(), json!("0x7"))), "as browsers do it");

    let (now, fine) = (wall_clock().as_secs(), claims(&json!({})));
    let x = signer.jwk()["x"].as_str().unwrap().to_owned();
    let refused = [
        ("another audience", signer.token(&claims(&json!({ "aud": "other" })))),
        ("no audience", signer.token(&claims(&json!({ "aud": [] })))),
        ("expired", signer.token(&claims(&json!({ "exp": now - 60 })))),
        ("without an end", signer.token(&claims(&json!({ "exp": null })))),
        ("not yet valid", signer.token(&claims(&json!({ "nbf": now + 600 })))),
        ("another issuer", signer.token(&claims(&json!({ "iss": "https://other.example/" })))),
        ("another key of this name", stranger.token(&fine)),
        ("HMAC with the raw public key", hs256("a", &fine, signer.key.der_bytes())),
        ("HMAC with the JWK's text", hs256("a", &fine, x.as_bytes())),
        ("HMAC with the PEM", hs256("a", &fine, signer.key.public_key_pem().as_bytes())),
        ("HMAC with the DER", hs256("a", &fine, &signer.key.subject_public_key_info())),
        ("no algorithm", format!("{}.", message("none", "a", &fine))),
        ("cut", good[..good.len() - 2].to_owned()),
    ];
    for (what, token) in refused {
        let reply = call(&wellhead, &token).await;
        assert_eq!(reply.status, 401, "{what}: {reply:?}");
        assert_eq!(reply.header("www-authenticate"), "Bearer", "{what}");
        assert!(reply.json().unwrap()["error"]["code"].is_i64(), "{what}");
        let bearer = format!("Bearer {token}");
        let answered = call_by_websocket(&wellhead, &[("authorization", &bearer)]).await;
        assert_eq!(answered, Err(401), "{what}");
    }
    assert_eq!(wellhead.rpc().post("{}").await.unwrap().status, 401, "without a token");
    let status = wellhead.admin().get("/status").await.unwrap().json().unwrap();
    assert_eq!(status["issuers"][0]["name"], ISSUER, "{status}");
    assert_eq!(
        (&status["issuers"][0]["keys"], &status["issuers"][0]["last_error"]),
        (&json!(1), &Value::Null)
    );
    let metrics = wellhead.admin().get("/metrics").await.unwrap().text();
    for line in [
        format!("wellhead_jwks_fetches_total{{issuer=\"{ISSUER}\",result=\"fetched\"}} 1\n"),
        format!("wellhead_jwks_age_seconds{{issuer=\"{ISSUER}\"}} "),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let log = wellhead.process.log();
    for secret in ["JWKS-SECRET", &good, &x] {
        assert!(!log.contains(secret) && !metrics.contains(secret), "{secret}");
        assert!(!status.to_string().contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn an_issuer_that_comes_late_and_rotates_its_keys_is_followed() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let issuer = Issuer::new(&[&old]);
    let wellhead = issuer.wellhead().await;
    let [old_token, new_token] = [&old, &new].map(|it| it.token(&claims(&json!({}))));
    assert_eq!(call(&wellhead, &old_token).await.status, 503, "no issuer can say");
    issuer.open().await;
    let accepted = |token: String| {
        let wellhead = &wellhead;
        async move { (call(wellhead, &token).await.status == 200).then_some(()) }
    };
    let found = until(BOUND, || accepted(old_token.clone())).await;
    assert!(found.is_some(), "{}", wellhead.process.log());
    issuer.publish(&[&old, &new]);
    let found = until(BOUND, || accepted(new_token.clone())).await;
    assert!(found.is_some(), "{}", wellhead.process.log());
    assert_eq!(call(&wellhead, &old_token).await.status, 200, "it is still published");
}
