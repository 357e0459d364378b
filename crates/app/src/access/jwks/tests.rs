//! Issuers that publish keys over HTTPS, go away, come back, and answer nonsense.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData as _, SigningKey as _};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{Accept, TlsAcceptor};
use wellhead_access::{TokenRefusal, TokenVerifier as _};

use super::*;
use crate::access::plan;
use crate::assemble::{Assembly, Authorities, Recorders};
use crate::config::{self, Overrides, Settings};

const ISSUER: &str = "https://id.example";
/// 2023-11-14, in seconds since 1970.
const NOW: u64 = 1_700_000_000;

/// A key of an issuer.
struct Signer {
    kid: &'static str,
    key: KeyPair,
}

impl Signer {
    fn new(kid: &'static str) -> Self {
        Self { kid, key: KeyPair::generate_for(&PKCS_ED25519).expect("a key") }
    }

    fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.der_bytes());
        json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": self.kid, "x": x })
    }

    /// A token of this subject that is valid for a month.
    fn token(&self, subject: &str) -> String {
        let header = json!({ "alg": "EdDSA", "kid": self.kid });
        let claims =
            json!({ "iss": ISSUER, "aud": "rpc", "sub": subject, "exp": NOW + 30 * 86_400 });
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.key.sign(message.as_bytes()).expect("signed");
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn document(signers: &[&Signer]) -> String {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

fn loaded(jwks: &str, more: &str) -> Result<Settings, String> {
    let text = format!(
        "access:\n  jwt:\n    - {{ issuer: \"{ISSUER}\", audience: [rpc], jwks: \"{jwks}\", tenant: acme{more} }}\n\
         tenants: {{ acme: {{}} }}\nchains:\n  main:\n    id: 1\n    upstreams: [ {{ id: a, url: \"http://127.0.0.1:1\" }} ]\n"
    );
    let loaded = config::parse("test.yaml", &text, &|_| None, Overrides::default());
    loaded.map(|loaded| loaded.settings).map_err(|report| report.render(false))
}

fn settings(jwks: &str, more: &str) -> Settings {
    loaded(jwks, more).unwrap_or_else(|report| panic!("{report}"))
}

fn keys(settings: &Settings) -> IssuerKeys {
    let planned = plan(settings, None, wellhead_dispatch::now()).expect("they fit together");
    planned.and_then(|it| it.tokens).expect("an issuer")
}

/// What the source answers to a fetch: the words of a script, of which the last stays.
struct Stage {
    source: Arc<JwksSource>,
    fetches: Arc<AtomicUsize>,
    answer: Arc<Mutex<Result<String, FetchError>>>,
    /// The wall clock is ahead by this.
    ahead: AtomicU64,
    epoch: Instant,
}

impl Stage {
    /// With a clock that goes with that of the runtime.
    fn new(answer: Result<String, FetchError>) -> Self {
        let (fetches, answer) = (Arc::<AtomicUsize>::default(), Arc::new(Mutex::new(answer)));
        let (told, asked) = (Arc::clone(&answer), Arc::clone(&fetches));
        let way: JwksWay = Arc::new(move || {
            asked.fetch_add(1, Relaxed);
            let answer = told.lock().clone();
            Box::pin(async move { answer.map(|body| FetchedDocument { body: body.into() }) })
        });
        let keys = keys(&settings("https://id.example/keys", ""));
        let epoch = Instant::now();
        let stale_max = Duration::from_secs(86_400);
        let source = JwksSource::new(ISSUER.into(), IssuerIndex(0), stale_max, keys, way);
        let ahead = AtomicU64::new(0);
        Self { source: Arc::new(source), fetches, answer, ahead, epoch }
    }

    fn set(&self, answer: Result<String, FetchError>) {
        *self.answer.lock() = answer;
    }

    fn verify(&self, token: &str) -> Result<String, TokenRefusal> {
        let wall = NOW + self.epoch.elapsed().as_secs() + self.ahead.load(Relaxed);
        let granted = self.source.keys.tokens.verify(token, Duration::from_secs(wall));
        granted.map(|grant| grant.id.to_string())
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Relaxed)
    }
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

const DOWN: FetchError = FetchError::Status(502);

#[tokio::test(start_paused = true)]
async fn keys_are_used_until_they_are_too_old_and_again_when_they_come() {
    let signer = Signer::new("a");
    let stage = Stage::new(Ok(document(&[&signer])));
    let token = signer.token("alice");
    assert_eq!(stage.verify(&token), Err(TokenRefusal::KeysUnknown), "before the first fetch");
    fetch_first(&[Arc::clone(&stage.source)]).await;
    assert_eq!(stage.verify(&token).as_deref(), Ok("alice"));
    let running = tokio::spawn(Arc::clone(&stage.source).run());
    pass(3_600).await;
    assert!((6..=7).contains(&stage.fetches()), "each 9 to 10 minutes: {}", stage.fetches());
    stage.set(Err(DOWN));
    pass(80_000).await;
    assert_eq!(stage.verify(&token).as_deref(), Ok("alice"), "they stay in use");
    stage.ahead.store(2 * 86_400, Relaxed);
    assert_eq!(stage.verify(&token).as_deref(), Ok("alice"), "the wall clock was set");
    stage.ahead.store(0, Relaxed);
    let status = stage.source.status();
    assert_eq!((status.keys, status.last_error), (1, Some(DOWN.to_string())));
    assert!(status.fetched_seconds_ago >= Some(80_000), "{:?}", status.fetched_seconds_ago);
    pass(7_000).await;
    assert_eq!(stage.verify(&token), Err(TokenRefusal::KeysUnknown), "a day after the last");
    assert_eq!(stage.source.status().keys, 0);
    stage.set(Ok(document(&[&signer])));
    pass(60).await;
    assert_eq!(stage.verify(&token).as_deref(), Ok("alice"), "within the longest backoff");
    assert_eq!(stage.source.status().last_error, None);
    let JwksCounts { fetched, failed, invalid } = stage.source.counts();
    assert_eq!((fetched + failed, invalid), (stage.fetches() as u64, 0));
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_lead_to_one_fetch_however_many_tokens_name_them() {
    let (known, made_up) = (Signer::new("a"), Signer::new("made-up"));
    let stage = Stage::new(Ok(document(&[&known])));
    let running = tokio::spawn(Arc::clone(&stage.source).run());
    pass(100).await;
    assert_eq!(stage.fetches(), 1);
    // One each tenth of a second for five minutes: one fetch each half of a minute.
    for n in 0..3_000 {
        assert!(matches!(
            stage.verify(&made_up.token(&n.to_string())),
            Err(TokenRefusal::Invalid(_))
        ));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!((10..=12).contains(&stage.fetches()), "{}", stage.fetches());
    let before = stage.fetches();
    pass(31).await;
    let after = stage.fetches();
    assert!(after <= before + 1);
    // No request waits any more.
    pass(500).await;
    assert_eq!(stage.fetches(), after);
    // A thousand at once, when the last fetch is long ago: one, at once.
    for n in 0..1_000 {
        assert!(stage.verify(&made_up.token(&format!("{n}x"))).is_err());
    }
    stage.set(Ok(document(&[&known, &made_up])));
    pass(1).await;
    assert_eq!(stage.fetches(), after + 1);
    assert_eq!(stage.verify(&made_up.token("bob")).as_deref(), Ok("bob"), "it was a rotation");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_down_at_the_start_is_asked_until_it_comes() {
    let signer = Signer::new("a");
    let stage = Stage::new(Err(DOWN));
    fetch_first(&[Arc::clone(&stage.source)]).await;
    let token = signer.token("alice");
    assert_eq!(stage.verify(&token), Err(TokenRefusal::KeysUnknown));
    let running = tokio::spawn(Arc::clone(&stage.source).run());
    pass(600).await;
    let asked = stage.fetches();
    assert!((12..=30).contains(&asked), "with pauses of up to a minute: {asked}");
    assert_eq!(stage.source.age(), None);
    // A page, as a sign-in in front of the issuer answers, is no key set.
    stage.set(Ok("<!doctype html><title>Sign in</title>".to_owned()));
    pass(61).await;
    assert!(stage.source.counts().invalid >= 1);
    let told = stage.source.status().last_error.expect("an error");
    assert_eq!(told, "the document is not JSON, or names a member twice");
    stage.set(Ok(document(&[&signer])));
    pass(61).await;
    assert_eq!(stage.verify(&token).as_deref(), Ok("alice"));
    running.abort();
}

/// An issuer on a real socket, with a certificate of its own.
struct HttpsIssuer {
    url: String,
    folder: TempDir,
    /// What it answers, as an HTTP message; `None`: it takes the question and says nothing.
    answer: Arc<Mutex<Option<String>>>,
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

impl HttpsIssuer {
    async fn open(answer: Option<String>) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.expect("a certificate");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.pem"), made.cert.pem()).expect("a file");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let answer = Arc::new(Mutex::new(answer));
        let answers = Arc::clone(&answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Self::serve(acceptor.accept(stream), Arc::clone(&answers)));
            }
        });
        Self { url: format!("https://localhost:{port}/keys?SECRET"), folder, answer }
    }

    async fn serve(accept: Accept<TcpStream>, answers: Arc<Mutex<Option<String>>>) {
        let Ok(mut stream) = accept.await else { return };
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).await.is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            } else {
                return;
            }
        }
        let answer = answers.lock().clone();
        if let Some(answer) = answer {
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
        // Until the client leaves.
        let _ = stream.read(&mut byte).await;
    }

    fn set(&self, answer: &str) {
        *self.answer.lock() = Some(answer.to_owned());
    }

    /// As the program makes it, with the certificate in `file`.
    fn source(&self, file: &str) -> Arc<JwksSource> {
        Arc::clone(&self.assembly(file).issuers[0])
    }

    fn assembly(&self, file: &str) -> Assembly {
        let path = self.folder.path().join(file);
        let settings = settings(&self.url, &format!(", ca_file: \"{}\"", path.display()));
        Assembly::new(&Arc::new(settings), Recorders::default(), wellhead_dispatch::now())
            .expect("usable")
    }
}

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(1)
}

/// The phases of a rotation: which of the old and the new key verify tokens. Between two of them
/// either may be the case.
const PHASES: [Option<(bool, bool)>; 5] =
    [Some((true, false)), None, Some((true, true)), None, Some((false, true))];

#[tokio::test]
async fn keys_are_rotated_under_load() {
    let (old, new) = (Signer::new("old"), Signer::new("new"));
    let issuer = HttpsIssuer::open(Some(ok(&document(&[&old])))).await;
    let source = issuer.source("ca.pem");
    fetch_first(&[Arc::clone(&source)]).await;
    let (phase, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    // Tokens that are remembered, and others that come for the first time.
    let tokens = [old.token("alice"), new.token("alice")];
    let checked = Arc::new([const { AtomicUsize::new(0) }; PHASES.len()]);
    let load: Vec<_> = (0..2)
        .map(|_| {
            let (source, tokens) = (Arc::clone(&source), tokens.clone());
            let (phase, stop, checked) =
                (Arc::clone(&phase), Arc::clone(&stop), Arc::clone(&checked));
            std::thread::spawn(move || {
                while stop.load(Relaxed) == 0 {
                    let before = phase.load(SeqCst);
                    let now = Duration::from_secs(NOW);
                    let verified =
                        tokens.each_ref().map(|it| source.keys.tokens.verify(it, now).is_ok());
                    let expected = PHASES[before];
                    if phase.load(SeqCst) == before && expected.is_some() {
                        assert_eq!(Some(verified.into()), expected, "phase {before}");
                        checked[before].fetch_add(1, SeqCst);
                    }
                }
            })
        })
        .collect();
    for (at, signers) in [(0, vec![&old]), (2, vec![&old, &new]), (4, vec![&new])] {
        issuer.set(&ok(&document(&signers)));
        source.fetch(&mut rng()).await;
        phase.store(at, SeqCst);
        while checked[at].load(SeqCst) < 200 && load.iter().all(|it| !it.is_finished()) {
            tokio::task::yield_now().await;
        }
        phase.store((at + 1).min(PHASES.len() - 1), SeqCst);
    }
    stop.store(1, Relaxed);
    for thread in load {
        thread.join().expect("each token was judged by the keys of its phase");
    }
    assert_eq!(source.counts(), JwksCounts { fetched: 4, failed: 0, invalid: 0 });
    assert_eq!(source.status().keys, 1);
}

#[tokio::test]
async fn what_an_issuer_answers_instead_of_keys_changes_nothing() {
    let signer = Signer::new("a");
    let good = ok(&document(&[&signer]));
    let issuer = HttpsIssuer::open(Some(good.clone())).await;
    let source = issuer.source("ca.pem");
    source.fetch(&mut rng()).await;
    let token = signer.token("alice");
    let now = Duration::from_secs(NOW);
    for (answer, expected) in [
        (ok("<html>Sign in</html>"), "the document is not JSON, or names a member twice"),
        (ok("{}"), "the document has no list `keys`"),
        (ok(r#"{"keys":[]}"#), "the key set has no key that can be used (none skipped)"),
        (
            "HTTP/1.1 302 Found\r\nlocation: https://other.example/\r\ncontent-length: 0\r\n\r\n"
                .to_owned(),
            "the server redirects (HTTP 302), which is not followed",
        ),
        (
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", JWKS_BYTES_MAX + 1),
            "the document is longer than 262144 bytes",
        ),
        (
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_owned(),
            "the server answered with HTTP 503",
        ),
    ] {
        issuer.set(&answer);
        source.fetch(&mut rng()).await;
        assert_eq!(source.status().last_error.as_deref(), Some(expected));
        assert!(source.keys.tokens.verify(&token, now).is_ok(), "{expected}");
    }
    issuer.set(&good);
    source.fetch(&mut rng()).await;
    assert_eq!(source.status().last_error, None);
    assert_eq!(source.counts(), JwksCounts { fetched: 2, failed: 3, invalid: 3 });
}

#[tokio::test]
async fn an_issuer_that_hangs_does_not_keep_the_start_waiting() {
    let issuer = HttpsIssuer::open(None).await;
    let source = issuer.source("ca.pem");
    let sources = [Arc::clone(&source)];
    tokio::time::timeout(FETCH_TIME * 2, fetch_first(&sources)).await.expect("it ends by itself");
    let told = source.status().last_error.expect("an error");
    assert_eq!(told, "the answer was not complete when the time was over");
    assert!(!format!("{source:?}").contains("SECRET"));
}

#[tokio::test]
async fn an_issuer_with_another_certificate_is_not_believed() {
    let signer = Signer::new("a");
    let (issuer, other) =
        tokio::join!(HttpsIssuer::open(Some(ok(&document(&[&signer])))), HttpsIssuer::open(None));
    std::fs::copy(other.folder.path().join("ca.pem"), issuer.folder.path().join("other.pem"))
        .expect("copied");
    let source = issuer.source("other.pem");
    source.fetch(&mut rng()).await;
    let told = source.status().last_error.expect("an error");
    assert!(told.starts_with("TLS handshake failed"), "{told}");
    assert!(!told.contains("SECRET"), "{told}");
    assert_eq!(source.status().keys, 0);
}

/// An issuer's authority is renewed, and its file replaced: a reload reads it, as those of upstreams.
#[tokio::test]
async fn a_file_of_authorities_is_read_again_with_the_config() {
    let signer = Signer::new("a");
    let (issuer, other) =
        tokio::join!(HttpsIssuer::open(Some(ok(&document(&[&signer])))), HttpsIssuer::open(None));
    let (folder, file) = (issuer.folder.path(), issuer.folder.path().join("used.pem"));
    std::fs::copy(other.folder.path().join("ca.pem"), &file).expect("copied");
    let parts = issuer.assembly("used.pem");
    let source = Arc::clone(&parts.issuers[0]);
    source.fetch(&mut rng()).await;
    assert!(
        source.status().last_error.is_some_and(|told| told.starts_with("TLS handshake failed"))
    );
    let next = |is_dry| {
        let (settings, now) = (Arc::clone(&parts.settings), wellhead_dispatch::now());
        let next = parts.succeeding(&settings, Authorities::read(&settings), is_dry, now);
        let next = next.expect("usable");
        let told: Vec<_> =
            next.other_certificates(&parts).iter().map(ToString::to_string).collect();
        (next, told.join("\n"))
    };
    assert_eq!(next(false).1, "", "the file is as it was");
    std::fs::copy(folder.join("ca.pem"), &file).expect("copied");
    let changed = "~ access.jwt[0].ca_file: the file has another content";
    assert_eq!(next(true).1, changed);
    source.fetch(&mut rng()).await;
    assert_eq!(source.status().keys, 0, "it was only looked at");
    let (next_parts, told) = next(false);
    assert_eq!(told, changed);
    let after = next_parts.begin(&parts, wellhead_dispatch::now());
    // The loop that waits for the next fetch is told.
    tokio::time::timeout(Duration::from_secs(5), source.wanted().notified()).await.expect("told");
    source.fetch(&mut rng()).await;
    assert_eq!((source.status().keys, source.status().last_error), (1, None));
    assert!(Arc::ptr_eq(&after.issuers[0], &source), "with what it knows");
}

/// What a config with this URL is refused with.
fn refused(jwks: &str) -> Option<String> {
    loaded(jwks, "").err()
}

#[test]
fn keys_that_could_be_changed_on_the_way_are_refused() {
    for good in
        ["https://id.example/k", "http://localhost:1/k", "http://127.0.0.1/k", "http://[::1]/k"]
    {
        assert_eq!(refused(good), None, "{good}");
    }
    for bad in ["http://id.example/SECRET", "http://10.0.0.1/SECRET", "http://localhost.example/"] {
        let told = refused(bad).expect(bad);
        assert!(told.contains("the keys of the issuer are fetched without TLS"), "{told}");
        assert!(!told.contains("SECRET"), "{told}");
    }
}
