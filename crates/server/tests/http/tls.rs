//! TLS: real handshakes, and clients that spoil them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::generate_simple_self_signed;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wellhead_server::{HandshakeFailure, Renewed, Settings, Tls, TlsFile, TlsFiles, TlsProblem};

use crate::site::{GUARD, SOON, Site, big};
use crate::wire::Wire;

/// A certificate for `localhost` and its key, as PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Pair {
    pub(crate) fn new() -> Self {
        let made = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        Self { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    /// A client that trusts this certificate alone and offers `alpn`.
    async fn connect(&self, site: &Site, alpn: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_as(site, alpn, None).await
    }

    /// As [`Self::connect`], with a certificate of the client.
    pub(crate) async fn connect_as(
        &self,
        site: &Site,
        alpn: &[&str],
        client: Option<&Self>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.client(alpn, client).connect(site).await
    }

    /// A client that can connect several times.
    pub(crate) fn client(&self, alpn: &[&str], own: Option<&Self>) -> TlsClient {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(own) => {
                let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes());
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain.map(Result::unwrap).collect(), key).unwrap()
            }
        };
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsClient(TlsConnector::from(Arc::new(config)))
    }
}

/// A client of TLS with its memory of sessions.
pub(crate) struct TlsClient(TlsConnector);

impl TlsClient {
    pub(crate) async fn connect(&self, site: &Site) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_over(TcpStream::connect(site.address).await.unwrap()).await
    }

    pub(crate) async fn connect_over(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        tokio::time::timeout(GUARD, self.0.connect(name, stream)).await.unwrap()
    }
}

/// The files of a listener.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new(pair: &Pair) -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        folder.write("certificate", &pair.certificate);
        folder.write("key", &pair.key);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Each time a second later, however quick the test is.
    pub(crate) fn write(&self, name: &str, text: &str) {
        static SECONDS: AtomicU64 = AtomicU64::new(1);
        std::fs::write(self.path(name), text).unwrap();
        let file = std::fs::File::options().write(true).open(self.path(name)).unwrap();
        let second = Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed));
        file.set_modified(SystemTime::UNIX_EPOCH + second).unwrap();
    }

    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles { certificate: self.path("certificate"), key: self.path("key"), clients: None }
    }
}

fn open(settings: Settings) -> (Site, Pair) {
    let pair = Pair::new();
    let tls = Tls::load(Folder::new(&pair).files()).unwrap();
    (Site::open_with(settings, Some(tls)), pair)
}

pub(crate) async fn fails(site: &Site, failure: HandshakeFailure) {
    let failed = |counts: &wellhead_server::ServerCounts| counts.tls_failed(failure) == 1;
    site.until("the failure is counted", failed).await;
    let counts = site.server.counts();
    assert_eq!(counts.tls_failed.iter().sum::<u64>(), 1, "{counts:?}");
    assert_eq!(counts.tls_total, 0);
    site.until("its place is free", |counts| counts.connections_open == 0).await;
}

/// Reads to the end, which must be a good one: TLS tells it from a cut.
async fn ends_well(wire: &mut Wire<TlsStream<TcpStream>>) {
    let read = tokio::time::timeout(GUARD, wire.stream.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap(), 0);
}

#[tokio::test]
async fn http1_is_spoken() {
    for alpn in [&[][..], &["http/1.1"], &["h3", "http/1.1"]] {
        let (site, pair) = open(Settings::default());
        let mut wire = Wire::over(pair.connect(&site, alpn).await.unwrap());
        for body in [&b"{}"[..], &vec![b' '; 300_000]] {
            let reply = wire.exchange("/", "", body).await;
            assert_eq!(reply.status, 200);
            assert!(reply.body == body);
        }
        assert!(wire.exchange("/big", "", b"{}").await.body == big().concat());
        let reply = wire.exchange("/", "expect: 100-continue\r\nconnection: close\r\n", b"1").await;
        assert_eq!(reply.body, b"1");
        ends_well(&mut wire).await;
        let counts = site.server.counts();
        assert_eq!((counts.tls_total, counts.http1_total, counts.http2_total), (1, 1, 0));
    }
}

#[tokio::test]
async fn http2_is_preferred() {
    let (site, pair) = open(Settings::default());
    let stream = pair.connect(&site, &["http/1.1", "h2"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for (target, expected) in [("/", Bytes::from("{}")), ("/big", big().concat().into())] {
        let request = Request::post(format!("https://localhost{target}"));
        let request = request.body(Full::new(Bytes::from("{}"))).unwrap();
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.into_body().collect().await.unwrap().to_bytes() == expected);
    }
    let counts = site.server.counts();
    assert_eq!((counts.tls_total, counts.http1_total, counts.http2_total), (1, 0, 1));
}

/// What was agreed on is spoken: a request must not be read in two ways.
#[tokio::test]
async fn another_protocol_than_agreed_is_refused() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let request = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n";
    for (agreed, spoken) in [("h2", request), ("http/1.1", preface)] {
        let (site, pair) = open(Settings::default());
        let mut stream = pair.connect(&site, &[agreed]).await.unwrap();
        stream.write_all(spoken.as_bytes()).await.unwrap();
        site.until("it is refused", |counts| counts.bad_http_total == 1).await;
        assert_eq!(site.handler.arrived.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test]
async fn an_answer_beyond_all_buffers_arrives_whole() {
    let (site, pair) = open(Settings::default());
    let mut wire = Wire::over(pair.connect(&site, &[]).await.unwrap());
    let reply = wire.exchange("/endless", "", b"{}").await;
    assert_eq!(reply.body.len(), 64 * 1024 * 1024);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_dropped() {
    let (site, pair) = open(Settings { write_timeout: SOON, ..Settings::default() });
    let mut wire = Wire::over(pair.connect(&site, &[]).await.unwrap());
    wire.post("/endless", "", b"{}").await;
    site.until("it is dropped", |counts| counts.slow_reader_total == 1).await;
    // Cut, and it shows: there is no good end.
    assert!(wire.stream.read_to_end(&mut Vec::new()).await.is_err());
}

#[tokio::test]
async fn the_idle_are_told_that_it_ends() {
    let (site, pair) = open(Settings { idle_timeout: SOON, ..Settings::default() });
    let mut wire = Wire::over(pair.connect(&site, &[]).await.unwrap());
    assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
    ends_well(&mut wire).await;
    site.until("it is counted", |counts| counts.idle_closed_total == 1).await;
}

#[tokio::test]
async fn draining_answers_and_ends_well() {
    let (site, pair) = open(Settings::default());
    let mut idle = Wire::over(pair.connect(&site, &[]).await.unwrap());
    assert_eq!(idle.exchange("/", "", b"{}").await.status, 200);
    let mut busy = Wire::over(pair.connect(&site, &[]).await.unwrap());
    busy.post("/wait", "", b"7").await;
    site.until_arrived(2).await;
    site.shutdown.begin();
    ends_well(&mut idle).await;
    site.handler.gate.add_permits(1);
    let reply = busy.reply().await;
    assert_eq!((&*reply.body, reply.header("connection")), (&b"7"[..], Some("close")));
    ends_well(&mut busy).await;
    assert_eq!(site.drained().await.dropped, 0);
}

#[tokio::test]
async fn a_handshake_has_its_time() {
    // Silence, and the beginning of a record of 512 bytes.
    for begun in [&b""[..], b"\x16\x03\x01\x02\0\x01"] {
        let (site, _) = open(Settings { head_timeout: SOON, ..Settings::default() });
        let mut wire = site.connect().await;
        wire.send(begun).await;
        wire.is_closed().await;
        fails(&site, HandshakeFailure::Slow).await;
    }
}

/// Each address holds no more than its share, but all places are taken.
#[tokio::test]
async fn a_client_that_talks_at_once_gets_through_half_handshakes_of_many_addresses() {
    const HANDSHAKES_MAX: usize = 64;
    const HALF: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let (site, pair) = open(Settings { handshakes_max: HANDSHAKES_MAX, ..Settings::default() });
    let full = |counts: &wellhead_server::ServerCounts| counts.tls_failed(HandshakeFailure::Full);
    let mut hogs = Vec::new();
    for n in 0..HANDSHAKES_MAX * 2 {
        let address = 10 + u8::try_from(n % 16).unwrap();
        let mut hog = site.connect_from([127, 0, 0, address]).await;
        hog.send(HALF).await;
        hogs.push(hog);
    }
    let displaced = (hogs.len() - HANDSHAKES_MAX) as u64;
    site.until("all places are taken", |counts| full(counts) == displaced).await;
    for _ in 0..3 {
        let mut wire = Wire::over(pair.connect(&site, &[]).await.unwrap());
        assert_eq!(wire.exchange("/", "", b"{}").await.status, 200);
        // A further byte does not make a handshake younger.
        for hog in &mut hogs[HANDSHAKES_MAX + 3..] {
            hog.send([1]).await;
        }
    }
    site.until("one gave way", |counts| full(counts) == displaced + 1).await;
    assert_eq!(site.server.counts().tls_total, 3);
}

#[tokio::test]
async fn plain_http_is_closed() {
    let (site, _) = open(Settings::default());
    let mut wire = site.connect().await;
    wire.post("/", "", b"{}").await;
    let mut said = Vec::new();
    wire.stream.read_to_end(&mut said).await.unwrap();
    // An alert and no more.
    assert_eq!(said.first(), Some(&0x15), "{said:?}");
    assert_eq!(said.len(), 7);
    fails(&site, HandshakeFailure::NotTls).await;
    assert_eq!(site.handler.arrived.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_client_that_leaves_within_the_handshake_is_counted() {
    for begun in [&b""[..], b"\x16\x03"] {
        let (site, _) = open(Settings::default());
        let mut wire = site.connect().await;
        wire.send(begun).await;
        drop(wire);
        fails(&site, HandshakeFailure::Left).await;
    }
}

#[tokio::test]
async fn without_a_common_protocol_there_is_no_handshake() {
    let (site, pair) = open(Settings::default());
    assert!(pair.connect(&site, &["spdy/3"]).await.is_err());
    fails(&site, HandshakeFailure::Disagreed).await;
}

#[tokio::test]
async fn beyond_the_bound_on_connections_no_client_is_greeted() {
    let (site, pair) = open(Settings { connections_max: 1, shares: false, ..Settings::default() });
    let mut first = Wire::over(pair.connect(&site, &[]).await.unwrap());
    assert_eq!(first.exchange("/", "", b"{}").await.status, 200);
    let mut second = site.connect().await;
    second.is_closed().await;
    assert_eq!(site.server.counts().refused(wellhead_server::HttpRefusal::ConnectionsFull), 1);
}

/// Only what the renewed certificate vouches for, and only for new connections.
#[tokio::test]
async fn changed_files_are_taken_if_they_are_good() {
    let (old, new) = (Pair::new(), Pair::new());
    let folder = Folder::new(&old);
    let tls = Tls::load(folder.files()).unwrap();
    let site = Site::open_with(Settings::default(), Some(Arc::clone(&tls)));
    let mut kept = Wire::over(old.connect(&site, &[]).await.unwrap());
    assert_eq!(tls.renew(), Renewed::Unchanged);

    // Half of the new pair, as while they are still being copied.
    folder.write("certificate", &new.certificate);
    let Renewed::Refused(problems) = tls.renew() else { panic!("half a pair was taken") };
    assert_eq!(
        told(&folder, &problems),
        ["key: is not the key of the first certificate in `DIR/certificate`"]
    );
    assert_eq!(tls.renew(), Renewed::Unchanged, "told once");
    old.connect(&site, &[]).await.unwrap();

    folder.write("key", &new.key);
    assert_eq!(tls.renew(), Renewed::Taken);
    assert!(old.connect(&site, &[]).await.is_err());
    new.connect(&site, &[]).await.unwrap();
    assert_eq!(kept.exchange("/", "", b"{}").await.status, 200);

    std::fs::remove_file(folder.path("key")).unwrap();
    assert!(matches!(tls.renew(), Renewed::Refused(_)));
    new.connect(&site, &[]).await.unwrap();
}

pub(crate) fn told(folder: &Folder, problems: &[TlsProblem]) -> Vec<String> {
    let told = |problem: &TlsProblem| {
        let name = match problem.file {
            TlsFile::Certificate => "certificate",
            TlsFile::Key => "key",
            TlsFile::ClientAuthority => "ca",
            TlsFile::RevocationList(0) => "crl",
            TlsFile::RevocationList(_) => "more",
            TlsFile::AcmeCache | TlsFile::AcmeAuthority => "acme",
        };
        assert_eq!(problem.path, folder.path(name));
        let why = problem.why.replace(&folder.0.path().display().to_string(), "DIR");
        format!("{name}: {why}")
    };
    problems.iter().map(told).collect()
}

#[test]
fn files_that_cannot_be_served() {
    let (pair, other) = (Pair::new(), Pair::new());
    let (certificate, key) = (&*pair.certificate, &*pair.key);
    let no_certificate = "certificate: holds no certificate (`-----BEGIN CERTIFICATE-----`)";
    let no_key = "key: holds no private key (`-----BEGIN PRIVATE KEY-----`)";
    let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let cut = &key[..key.len() - 30];
    let odd = key.replacen("\nM", "\n?", 1);
    let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let kind = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    let chained = format!("words before\n{certificate}{}", other.certificate);
    let together = format!("{certificate}{key}");
    let cases: [(&str, &str, &[&str]); 13] = [
        (certificate, key, &[]),
        (&chained, key, &[]),
        (&together, &together, &[]),
        ("", "", &[no_certificate, no_key]),
        ("none", "none", &[no_certificate, no_key]),
        (
            key,
            certificate,
            &[
                "certificate: holds a key and no certificate: are the files swapped?",
                "key: holds a certificate and no key: are the files swapped?",
            ],
        ),
        (
            certificate,
            &encrypted,
            &["key: holds an encrypted key: wellhead cannot ask for its password"],
        ),
        (certificate, cut, &["key: is cut off: a section has no end"]),
        (certificate, &odd, &["key: is damaged: a section is not base64"]),
        (certificate, "-----BEGIN SECRET\n", &["key: is not PEM"]),
        (certificate, kind, &["key: holds a key of a kind that cannot be used"]),
        (
            certificate,
            &other.key,
            &["key: is not the key of the first certificate in `DIR/certificate`"],
        ),
        (
            empty,
            key,
            &[
                "certificate: begins with a certificate that cannot be read: invalid peer certificate: BadEncoding",
            ],
        ),
    ];
    for (certificate, key, expected) in cases {
        let folder = Folder::new(&pair);
        folder.write("certificate", certificate);
        folder.write("key", key);
        let problems = folder.files().problems();
        assert_eq!(told(&folder, &problems), expected);
        // Nothing of a key is ever told.
        let words = format!("{problems:?}");
        for line in pair.key.lines().chain(other.key.lines()).filter(|line| line.len() > 30) {
            assert!(!words.contains(line) || line.starts_with("-----"), "{words}");
        }
        assert!(!words.contains("SECRET"));
    }
    let folder = Folder::new(&pair);
    std::fs::remove_file(folder.path("key")).unwrap();
    folder.write("certificate", &" ".repeat(1024 * 1024 + 1));
    let problems = folder.files().problems();
    assert_eq!(
        told(&folder, &problems),
        ["certificate: is larger than 1024 KiB", "key: does not exist"]
    );
}
