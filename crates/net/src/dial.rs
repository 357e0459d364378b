//! From a host name to an open byte stream: names, TCP, TLS.
//!
//! Knows nothing of HTTP but the ALPN names; which protocol a stream then
//! speaks is decided in `http` (and found out in `detect`).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wellhead_transport::feed::BoxFuture;
use wellhead_transport::{Sent, TransportError, TransportErrorKind};

use crate::endpoint::{HttpVersion, Prepared, ProxyRoute};
use crate::identity::ClientIdentity;
use crate::journal::SetUp;
use crate::protocol::Protocol;

/// How long addresses are used before the name is looked up again.
const NAME_FRESH: Duration = Duration::from_secs(30);
/// How long a renewed look-up may take while old addresses are at hand.
const NAME_RENEW_MAX: Duration = Duration::from_secs(1);
/// Names kept; far above any real number of upstreams.
const NAMES_MAX: usize = 4096;
/// Addresses tried for one connection.
const ADDRESSES_MAX: usize = 8;
/// Silence before TCP asks whether the peer is still there, and between questions.
const TCP_KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Turns host and port into addresses.
pub type Lookup =
    dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync;

/// A name that is not looked up, and the address that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedAddress {
    /// The name.
    pub host: String,
    /// The port for which it holds.
    pub port: u16,
    /// Where it leads.
    pub address: SocketAddr,
}

/// Looks names up and remembers the addresses for 30 s; shared by all upstreams.
///
/// When a look-up fails or is slow, the last known addresses are used: a name
/// server that is down must not take a running proxy with it.
pub struct Resolver {
    lookup: Box<Lookup>,
    names: Mutex<HashMap<(String, u16), ResolvedName>>,
}

struct ResolvedName {
    addresses: Arc<[SocketAddr]>,
    found: Instant,
    renewing: bool,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new()
    }
}

impl Resolver {
    /// A resolver that asks the operating system.
    pub fn new() -> Self {
        Self::with_lookup(Box::new(|host, port| {
            Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
        }))
    }

    /// A resolver that knows these names, and asks the operating system for others.
    pub fn with_fixed(fixed: Vec<FixedAddress>) -> Self {
        Self::with_lookup(Box::new(move |host, port| {
            let known = fixed.iter().filter(|it| it.host.eq_ignore_ascii_case(&host));
            let known: Vec<_> = known.filter(|it| it.port == port).map(|it| it.address).collect();
            Box::pin(async move {
                if known.is_empty() {
                    return Ok(tokio::net::lookup_host((host, port)).await?.collect());
                }
                Ok(known)
            })
        }))
    }

    /// A resolver that asks `lookup`.
    pub fn with_lookup(lookup: Box<Lookup>) -> Self {
        Self { lookup, names: Mutex::default() }
    }

    /// The addresses of `host`, at least one.
    async fn addresses(&self, host: &str, port: u16) -> io::Result<Arc<[SocketAddr]>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(Arc::new([SocketAddr::new(ip, port)]));
        }
        let key = (host.to_owned(), port);
        let known = {
            let mut names = self.names.lock();
            match names.get_mut(&key) {
                Some(name) if name.found.elapsed() < NAME_FRESH || name.renewing => {
                    return Ok(Arc::clone(&name.addresses));
                }
                Some(name) => {
                    name.renewing = true;
                    Some(Arc::clone(&name.addresses))
                }
                None => None,
            }
        };
        // Cancelled look-ups (connect timeout) must not leave the name in renewal for ever.
        let _renewal = Renewal { resolver: self, key: &key };
        let asked = (self.lookup)(key.0.clone(), port);
        let found = match &known {
            Some(_) => timeout(NAME_RENEW_MAX, asked).await.unwrap_or_else(|_| {
                Err(io::Error::new(io::ErrorKind::TimedOut, "name look-up took too long"))
            }),
            None => asked.await,
        };
        match (found, known) {
            (Ok(list), known) if list.is_empty() => known.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, "the name has no addresses")
            }),
            (Ok(list), _) => {
                let addresses: Arc<[SocketAddr]> = list.into();
                let mut names = self.names.lock();
                if names.len() >= NAMES_MAX {
                    names.clear();
                }
                let name = ResolvedName {
                    addresses: Arc::clone(&addresses),
                    found: Instant::now(),
                    renewing: false,
                };
                names.insert(key.clone(), name);
                Ok(addresses)
            }
            (Err(error), Some(known)) => {
                tracing::warn!(host, %error, "name lookup failed; using the last known addresses");
                // Counts as fresh: asking again at every connect would slow each of them down.
                if let Some(name) = self.names.lock().get_mut(&key) {
                    name.found = Instant::now();
                }
                Ok(known)
            }
            (Err(error), None) => Err(error),
        }
    }
}

struct Renewal<'a> {
    resolver: &'a Resolver,
    key: &'a (String, u16),
}

impl Drop for Renewal<'_> {
    fn drop(&mut self) {
        if let Some(name) = self.resolver.names.lock().get_mut(self.key) {
            name.renewing = false;
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("names", &self.names.lock().len()).finish_non_exhaustive()
    }
}

/// Why the TLS client could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsSetupError {
    /// The given certificates are not PEM, or hold no certificate.
    #[error("trusted certificates: {0}")]
    Certificates(String),
    /// The TLS library refused its own settings.
    #[error("TLS set-up: {0}")]
    Library(String),
}

/// The authorities to which the certificate of an upstream is traced back.
#[derive(Debug, Clone, Copy)]
pub enum TrustedRoots<'a> {
    /// The public authorities, as browsers trust them.
    Public,
    /// Those in this PEM text and no others.
    Only(&'a [u8]),
    /// Those in this PEM text and the public ones.
    PublicAnd(&'a [u8]),
}

impl TrustedRoots<'_> {
    /// Whether a client can be made that trusts them.
    ///
    /// # Errors
    ///
    /// If the PEM text holds no certificate, or one that cannot be read.
    pub fn check(self) -> Result<(), TlsSetupError> {
        self.store().map(|_| ())
    }

    pub(crate) fn store(self) -> Result<RootCertStore, TlsSetupError> {
        let public = || webpki_roots::TLS_SERVER_ROOTS.to_vec();
        let (roots, pem) = match self {
            Self::Public => return Ok(RootCertStore { roots: public() }),
            Self::Only(pem) => (Vec::new(), pem),
            Self::PublicAnd(pem) => (public(), pem),
        };
        let mut store = RootCertStore { roots };
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|e| TlsSetupError::Certificates(e.to_string()))?;
            store.add(certificate).map_err(|e| TlsSetupError::Certificates(e.to_string()))?;
            added += 1;
        }
        if added == 0 {
            return Err(TlsSetupError::Certificates("no certificate found".to_owned()));
        }
        Ok(store)
    }
}

/// TLS settings and session tickets, shared by all upstreams.
#[derive(Clone)]
pub struct TlsClient {
    auto: Arc<ClientConfig>,
    h1: Arc<ClientConfig>,
    h2: Arc<ClientConfig>,
}

impl TlsClient {
    /// Trusts the authorities of `roots`, and shows no certificate of its own.
    ///
    /// # Errors
    ///
    /// If the PEM text in `roots` holds no certificate, or one that cannot be read.
    pub fn new(roots: TrustedRoots<'_>) -> Result<Self, TlsSetupError> {
        Self::with_identity(roots, None)
    }

    /// Trusts the authorities of `roots`, and shows this certificate to servers that ask for one.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_identity(
        roots: TrustedRoots<'_>,
        identity: Option<&ClientIdentity>,
    ) -> Result<Self, TlsSetupError> {
        let roots = roots.store()?;
        // Named explicitly: with two providers in the tree rustls would panic at the first use.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsSetupError::Library(e.to_string()))?
            .with_root_certificates(roots);
        let base = match identity {
            Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
            None => builder.with_no_client_auth(),
        };
        let with_alpn = |names: &[&str]| {
            let mut config = base.clone();
            config.alpn_protocols = names.iter().map(|name| name.as_bytes().to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            auto: with_alpn(&["h2", "http/1.1"]),
            h1: with_alpn(&["http/1.1"]),
            h2: with_alpn(&["h2"]),
        })
    }

    fn config(&self, version: HttpVersion) -> &Arc<ClientConfig> {
        match version {
            HttpVersion::Auto => &self.auto,
            HttpVersion::H1 => &self.h1,
            HttpVersion::H2 => &self.h2,
        }
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").finish_non_exhaustive()
    }
}

/// An open connection in plain text or under TLS.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Without a socket: tests decide what arrives together.
    #[cfg(test)]
    Memory(Box<dyn TestBytes>),
}

impl Stream {
    /// Whether it is encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether the peer chose HTTP/2 by ALPN.
    pub(crate) fn chose_h2(&self) -> bool {
        self.alpn() == Some(Protocol::H2)
    }

    /// What ALPN agreed on.
    pub(crate) fn alpn(&self) -> Option<Protocol> {
        let Self::Tls(tls) = self else { return None };
        match tls.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(Protocol::H2),
            Some(b"http/1.1") => Some(Protocol::H1),
            Some(_) | None => None,
        }
    }

    /// The socket beneath.
    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp) => Some(tcp),
            Self::Tls(tls) => Some(tls.get_ref().0),
            #[cfg(test)]
            Self::Memory(_) => None,
        }
    }
}

#[cfg(test)]
pub(crate) trait TestBytes:
    AsyncRead + AsyncWrite + Unpin + Send + Sync + fmt::Debug
{
}

#[cfg(test)]
impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync + fmt::Debug> TestBytes for T {}

/// Does the same with whichever stream it is.
macro_rules! each {
    ($stream:expr, $io:ident => $done:expr) => {
        match $stream {
            Stream::Plain($io) => $done,
            Stream::Tls($io) => $done,
            #[cfg(test)]
            Stream::Memory($io) => $done,
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), io => Pin::new(io).poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), io => Pin::new(io).poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), io => Pin::new(io).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, io => io.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), io => Pin::new(io).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), io => Pin::new(io).poll_shutdown(cx))
    }
}

/// Opens connections to one upstream.
#[derive(Debug)]
pub(crate) struct Dialer {
    /// Of the endpoint, or of the proxy on the way to it.
    host: String,
    port: u16,
    proxy: Option<ProxyRoute>,
    server_name: ServerName<'static>,
    tls: Option<TlsConfig>,
    resolver: Arc<Resolver>,
    /// Where the next connection starts in the list of addresses.
    turn: AtomicUsize,
}

struct TlsConfig(Arc<ClientConfig>);

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsConfig")
    }
}

/// What a dial was doing when its time ran out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DialStep {
    LookUp,
    Tcp,
    Tls,
    Http,
}

impl DialStep {
    /// The error for a dial that ran out of time here.
    pub(crate) fn timed_out(self) -> TransportError {
        let detail = match self {
            Self::LookUp => "still looking up the name",
            Self::Tcp => "no TCP connection yet",
            Self::Tls => "TLS handshake not finished",
            Self::Http => "HTTP not agreed yet",
        };
        TransportError::new(TransportErrorKind::ConnectTimeout, Sent::No, detail)
    }
}

impl Dialer {
    /// `first_turn` spreads workers over the addresses.
    pub(crate) fn new(
        prepared: &Prepared,
        resolver: Arc<Resolver>,
        tls: &TlsClient,
        first_turn: usize,
    ) -> Self {
        let proxy = prepared.proxy.clone();
        let (host, port) = match &proxy {
            Some(ProxyRoute { proxy, .. }) => (proxy.host.clone(), proxy.port),
            None => (prepared.host.clone(), prepared.port),
        };
        Self {
            host,
            port,
            proxy,
            server_name: prepared.server_name.clone(),
            tls: prepared.secure.then(|| TlsConfig(Arc::clone(tls.config(prepared.version)))),
            resolver,
            turn: AtomicUsize::new(first_turn),
        }
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// Connects before `deadline`, and tells how long each step took; keeps `step` current for
    /// the caller's timeout.
    ///
    /// The caller bounds the whole; `deadline` only divides the time among addresses.
    pub(crate) async fn dial(
        &self,
        deadline: Instant,
        step: &mut DialStep,
    ) -> Result<(Stream, SetUp), TransportError> {
        *step = DialStep::LookUp;
        let begun = Instant::now();
        let addresses = self.look_up().await?;
        *step = DialStep::Tcp;
        let found = Instant::now();
        let tcp = self.connect(&addresses, deadline).await?;
        let tcp = match &self.proxy {
            Some(ProxyRoute { proxy, tunnel_to: Some(place) }) => proxy.open(tcp, place).await?,
            Some(ProxyRoute { tunnel_to: None, .. }) | None => tcp,
        };
        let open = Instant::now();
        let set_up = SetUp { dns: found - begun, tcp: open - found, tls: Duration::ZERO };
        let Some(TlsConfig(config)) = &self.tls else { return Ok((Stream::Plain(tcp), set_up)) };
        *step = DialStep::Tls;
        let stream = shake_hands(tcp, config, &self.server_name).await?;
        Ok((stream, SetUp { tls: open.elapsed(), ..set_up }))
    }

    /// The addresses of the upstream's host, or of the proxy on the way to it; at least one.
    pub(crate) async fn look_up(&self) -> Result<Arc<[SocketAddr]>, TransportError> {
        let found = self.resolver.addresses(&self.host, self.port).await;
        found.map_err(|e| failed(TransportErrorKind::Dns, &e))
    }

    /// Tries each address in turn, starting one further each time.
    pub(crate) async fn connect(
        &self,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Result<TcpStream, TransportError> {
        let start = self.turn.fetch_add(1, Relaxed);
        let tries = addresses.len().min(ADDRESSES_MAX);
        let mut last = None;
        for nth in 0..tries {
            let address = addresses[start.wrapping_add(nth) % addresses.len()];
            // An address that swallows packets must leave time for the others.
            let share = (deadline - Instant::now()) / (tries - nth) as u32;
            let opened = match timeout(share, TcpStream::connect(address)).await {
                Ok(opened) => opened.and_then(tuned),
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
            };
            match opened {
                Ok(tcp) => return Ok(tcp),
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| io::Error::other("no addresses"));
        if error.kind() == io::ErrorKind::TimedOut {
            return Err(DialStep::Tcp.timed_out());
        }
        Err(failed(TransportErrorKind::Connect, &error))
    }
}

/// Shakes hands over an open connection.
pub(crate) async fn shake_hands(
    tcp: TcpStream,
    config: &Arc<ClientConfig>,
    server_name: &ServerName<'static>,
) -> Result<Stream, TransportError> {
    let connector = TlsConnector::from(Arc::clone(config));
    match connector.connect(server_name.clone(), tcp).await {
        Ok(tls) => Ok(Stream::Tls(Box::new(tls))),
        Err(error) => Err(failed(TransportErrorKind::Tls, &error)),
    }
}

fn tuned(tcp: TcpStream) -> io::Result<TcpStream> {
    tcp.set_nodelay(true)?;
    let keepalive =
        socket2::TcpKeepalive::new().with_time(TCP_KEEPALIVE.0).with_interval(TCP_KEEPALIVE.1);
    socket2::SockRef::from(&tcp).set_tcp_keepalive(&keepalive)?;
    Ok(tcp)
}

fn failed(kind: TransportErrorKind, error: &io::Error) -> TransportError {
    TransportError::new(kind, Sent::No, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Answers with port 1, 2, 3 … of 127.0.0.1; a zero in `script` is a failure.
    fn scripted(script: &'static [u16]) -> (Resolver, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&asked);
        let resolver = Resolver::with_lookup(Box::new(move |_, _| {
            let nth = counter.fetch_add(1, Relaxed) as usize;
            Box::pin(async move {
                match script[nth] {
                    0 => Err(io::Error::other("name server down")),
                    port => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
                }
            })
        }));
        (resolver, asked)
    }

    async fn ports(resolver: &Resolver) -> Vec<u16> {
        let found = resolver.addresses("node.test", 1).await.expect("addresses");
        found.iter().map(SocketAddr::port).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_remembered_renewed_and_served_stale() {
        let (resolver, asked) = scripted(&[1, 2, 0, 3]);
        assert_eq!(ports(&resolver).await, [1]);
        assert_eq!(ports(&resolver).await, [1]);
        assert_eq!(asked.load(Relaxed), 1);
        tokio::time::advance(NAME_FRESH).await;
        assert_eq!(ports(&resolver).await, [2]);
        tokio::time::advance(NAME_FRESH).await;
        assert_eq!(ports(&resolver).await, [2], "stale while the name server is down");
        assert_eq!(asked.load(Relaxed), 3);
        tokio::time::advance(NAME_FRESH).await;
        assert_eq!(ports(&resolver).await, [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_name_server_is_not_waited_for_when_addresses_are_known() {
        let calls = AtomicU32::new(0);
        let resolver = Resolver::with_lookup(Box::new(move |_, _| {
            let first = calls.fetch_add(1, Relaxed) == 0;
            Box::pin(async move {
                if !first {
                    std::future::pending::<()>().await;
                }
                Ok(vec![SocketAddr::from(([127, 0, 0, 1], 7))])
            })
        }));
        assert_eq!(ports(&resolver).await, [7]);
        tokio::time::advance(NAME_FRESH).await;
        let asked = Instant::now();
        assert_eq!(ports(&resolver).await, [7]);
        assert_eq!(asked.elapsed(), NAME_RENEW_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_never_known_is_an_error_and_a_cancelled_renewal_is_repeated() {
        let (resolver, _) = scripted(&[0, 5]);
        assert!(resolver.addresses("node.test", 1).await.is_err());
        assert_eq!(ports(&resolver).await, [5]);

        let hanging = Resolver::with_lookup(Box::new(|_, _| Box::pin(std::future::pending())));
        let name = ResolvedName {
            addresses: Arc::new([SocketAddr::from(([127, 0, 0, 1], 9))]),
            found: Instant::now(),
            renewing: false,
        };
        hanging.names.lock().insert(("node.test".to_owned(), 1), name);
        tokio::time::advance(NAME_FRESH).await;
        let early = timeout(Duration::from_millis(10), hanging.addresses("node.test", 1)).await;
        assert!(early.is_err(), "given up before the renewal bound");
        assert!(hanging.names.lock().values().all(|name| !name.renewing));
    }

    #[test]
    fn given_certificates_must_be_certificates() {
        assert!(TlsClient::new(TrustedRoots::Public).is_ok());
        for pem in [&b"nonsense"[..], b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
        {
            for roots in [TrustedRoots::Only(pem), TrustedRoots::PublicAnd(pem)] {
                let error = TlsClient::new(roots).expect_err("refused");
                assert!(matches!(error, TlsSetupError::Certificates(_)), "{error}");
            }
        }
    }

    /// How many public and how many other authorities are trusted.
    fn check_roots(roots: TrustedRoots<'_>, public: usize, others: usize) {
        let store = roots.store().expect("certificates");
        let is_public = |root: &&rustls_pki_types::TrustAnchor<'_>| {
            webpki_roots::TLS_SERVER_ROOTS.contains(root)
        };
        let found = store.roots.iter().filter(is_public).count();
        assert_eq!((found, store.len() - found), (public, others), "{roots:?}");
    }

    #[test]
    fn given_certificates_are_trusted_instead_of_the_public_ones_or_beside_them() {
        let params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = params.self_signed(&key).expect("signed").pem();
        let public = webpki_roots::TLS_SERVER_ROOTS.len();
        assert!(public > 100, "{public}");
        check_roots(TrustedRoots::Public, public, 0);
        check_roots(TrustedRoots::Only(own.as_bytes()), 0, 1);
        check_roots(TrustedRoots::PublicAnd(own.as_bytes()), public, 1);
    }
}
