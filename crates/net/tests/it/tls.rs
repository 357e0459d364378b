//! TLS: what ALPN agrees on is spoken, and certificates are checked.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use wellhead_net::{ClientIdentity, HttpVersion, Protocol, TlsClient, TrustedRoots};
use wellhead_transport::{Sent, TransportErrorKind as Kind};

use crate::h2::{Frames, echo_h2};
use crate::support::*;

/// An authority of our own, and a server certificate for `localhost` by it.
pub(crate) struct Authority {
    pub(crate) pem: String,
    config: ServerConfig,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// With another server certificate.
    pub(crate) fn with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a root");
        let key = KeyPair::generate().expect("a key");
        let names = vec!["localhost".to_owned()];
        let mut leaf = CertificateParams::new(names).expect("a name");
        change(&mut leaf);
        let leaf = leaf.signed_by(&key, &issuer);
        let chain = vec![leaf.expect("signed").der().clone()];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("a certificate");
        Self { pem: issuer.pem(), config }
    }

    /// An acceptor that offers `alpn`.
    pub(crate) fn acceptor(&self, alpn: &[&str]) -> TlsAcceptor {
        let mut config = self.config.clone();
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// An acceptor for clients that show a certificate of this authority.
    pub(crate) fn demanding(&self, authority: CertificateDer<'static>) -> TlsAcceptor {
        let mut roots = RootCertStore::empty();
        roots.add(authority).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier.build().expect("an authority"))
            .with_cert_resolver(Arc::clone(&self.config.cert_resolver));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }

    pub(crate) fn trusted_by(&self, upstream: &mut Upstream) {
        let tls =
            TlsClient::new(TrustedRoots::Only(self.pem.as_bytes())).expect("a good certificate");
        upstream.shared.tls = Arc::new(tls);
    }
}

/// Echoes by whatever was agreed.
pub(crate) async fn echo_tls(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => echo_h2(stream).await,
        _ => echo(stream).await,
    }
}

async fn start(authority: &Authority, alpn: &'static [&str]) -> (Server, String) {
    let acceptor = authority.acceptor(alpn);
    let server = Server::start(move |stream, _| echo_tls(acceptor.clone(), stream)).await;
    let url = format!("https://localhost:{}/SECRET", server.address.port());
    (server, url)
}

async fn agreed(alpn: &'static [&str], version: HttpVersion) -> Option<Protocol> {
    let authority = Authority::new();
    let (server, url) = start(&authority, alpn).await;
    let mut upstream = Upstream::new(&url, version);
    authority.trusted_by(&mut upstream);
    let transport = upstream.transport();
    for question in ["first", "second"] {
        match ask(&transport, question).await {
            Ok(reply) => assert_eq!(reply.body, question),
            Err(error) => {
                assert_eq!(error.sent, Sent::No);
                return None;
            }
        }
    }
    assert_eq!(server.accepted(), 1);
    transport.protocol()
}

#[tokio::test]
async fn what_alpn_agrees_on_is_spoken() {
    use HttpVersion::{Auto, H1, H2};
    assert_eq!(agreed(&["h2", "http/1.1"], Auto).await, Some(Protocol::H2));
    assert_eq!(agreed(&["h2"], Auto).await, Some(Protocol::H2));
    assert_eq!(agreed(&["http/1.1"], Auto).await, Some(Protocol::H1));
    assert_eq!(agreed(&[], Auto).await, Some(Protocol::H1));
    assert_eq!(agreed(&["h2", "http/1.1"], H1).await, Some(Protocol::H1));
    assert_eq!(agreed(&["h2", "http/1.1"], H2).await, Some(Protocol::H2));
    assert_eq!(agreed(&["http/1.1"], H2).await, None);
    assert_eq!(agreed(&[], H2).await, None);
}

#[tokio::test]
async fn certificates_are_checked() {
    let authority = Authority::new();
    let (_server, url) = start(&authority, &["http/1.1"]).await;
    let stranger = Upstream::new(&url, HttpVersion::Auto);
    assert_eq!(fails(&stranger.transport(), "question").await, (Kind::Tls, Sent::No));

    let other_name = url.replace("localhost", "127.0.0.1");
    let mut upstream = Upstream::new(&other_name, HttpVersion::Auto);
    authority.trusted_by(&mut upstream);
    assert_eq!(fails(&upstream.transport(), "question").await, (Kind::Tls, Sent::No));

    let other = Authority::new();
    for (roots, is_trusted) in [
        (TrustedRoots::Public, false),
        (TrustedRoots::Only(other.pem.as_bytes()), false),
        (TrustedRoots::Only(authority.pem.as_bytes()), true),
        (TrustedRoots::PublicAnd(other.pem.as_bytes()), false),
        (TrustedRoots::PublicAnd(authority.pem.as_bytes()), true),
    ] {
        let mut upstream = Upstream::new(&url, HttpVersion::Auto);
        upstream.shared.tls = Arc::new(TlsClient::new(roots).expect("good certificates"));
        let answer = ask(&upstream.transport(), "question").await;
        assert_eq!(answer.is_ok(), is_trusted, "{roots:?}: {answer:?}");
    }
}

/// A certificate of its own authority.
fn identity() -> (rcgen::CertifiedKey<KeyPair>, ClientIdentity) {
    let made = rcgen::generate_simple_self_signed(vec!["client".to_owned()]).expect("a name");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let identity = ClientIdentity::from_pem(certificate.as_bytes(), key.as_bytes());
    (made, identity.expect("they belong together"))
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_ours() {
    let authority = Authority::new();
    let ((known, ours), (_, other)) = (identity(), identity());
    let acceptor = authority.demanding(known.cert.der().clone());
    let server = Server::start(move |stream, _| echo_tls(acceptor.clone(), stream)).await;
    let url = format!("https://localhost:{}/", server.address.port());
    for (identity, is_accepted) in [(Some(&ours), true), (Some(&other), false), (None, false)] {
        for version in [HttpVersion::H1, HttpVersion::H2] {
            let mut upstream = Upstream::new(&url, version);
            let roots = TrustedRoots::Only(authority.pem.as_bytes());
            let tls = TlsClient::with_identity(roots, identity).expect("good certificates");
            upstream.shared.tls = Arc::new(tls);
            let answer = ask(&upstream.transport(), "question").await;
            assert_eq!(answer.is_ok(), is_accepted, "{identity:?} {version:?}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_peer_that_speaks_no_tls_is_a_tls_error() {
    let server = Server::start(|mut stream, _| async move {
        write(&mut stream, "HTTP/1.1 400 Bad Request\r\n\r\n").await;
        closed(&mut stream).await;
    })
    .await;
    let url = format!("https://localhost:{}/", server.address.port());
    let upstream = Upstream::new(&url, HttpVersion::Auto);
    assert_eq!(fails(&upstream.transport(), "question").await, (Kind::Tls, Sent::No));
}

#[tokio::test]
async fn a_peer_that_accepts_and_keeps_silent_is_a_connect_timeout() {
    let server = Server::start(|mut stream, _| async move { closed(&mut stream).await }).await;
    let url = format!("https://localhost:{}/", server.address.port());
    let mut upstream = Upstream::new(&url, HttpVersion::Auto);
    upstream.settings.connect_timeout = std::time::Duration::from_millis(50);
    let transport = upstream.transport();
    assert_eq!(fails(&transport, "question").await, (Kind::ConnectTimeout, Sent::No));
    assert_eq!(transport.stats().connect_timed_out(), 1);
}

/// Over TLS nothing is asked first, so requests may leave before SETTINGS come.
#[tokio::test]
async fn eight_streams_at_most_before_settings() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(&["h2"]);
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let go_on = Arc::new(tokio::sync::Notify::new());
    let may_go_on = Arc::clone(&go_on);
    let server = Server::start(move |stream, _| {
        let (acceptor, tell, go_on) = (acceptor.clone(), tell.clone(), Arc::clone(&may_go_on));
        async move {
            let stream = acceptor.accept(stream).await.expect("a handshake");
            let mut frames = Frames::accept(stream).await;
            let mut requests = 0;
            while let Some((kind, _)) = frames.next().await {
                requests += usize::from(kind == 1);
                if kind == 1 {
                    tell.send(requests).expect("listening");
                }
                if requests == 8 && kind == 1 {
                    go_on.notified().await;
                    // SETTINGS without a limit, and the acknowledgement.
                    write(&mut frames.stream, b"\0\0\0\x04\0\0\0\0\0\0\0\0\x04\x01\0\0\0\0").await;
                }
            }
        }
    })
    .await;
    let url = format!("https://localhost:{}/", server.address.port());
    let mut upstream = Upstream::new(&url, HttpVersion::Auto);
    authority.trusted_by(&mut upstream);
    let transport = upstream.transport();
    let asked: Vec<_> = (0..20).map(|n| ask_aside(&transport, &format!("q{n}"))).collect();
    for nth in 1..=8 {
        assert_eq!(told.recv().await, Some(nth));
    }
    assert_eq!(transport.stats().waiting(), 12);
    go_on.notify_one();
    for nth in 9..=20 {
        assert_eq!(told.recv().await, Some(nth));
    }
    assert_eq!((transport.stats().waiting(), server.accepted()), (0, 1));
    asked.iter().for_each(tokio::task::JoinHandle::abort);
}
