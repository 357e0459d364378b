//! TLS of a listener: certificate, key and what client certificates have to be, from files or from an
//! ACME server (`acme`), and why a handshake fails.
//!
//! The files are read and checked at start, and again when one changes: connections that
//! are open keep what they agreed on, new ones get the new certificate. Files that are no
//! good are never taken; those before stay. What goes over a connection afterwards is
//! `connection`'s business, certificates of upstreams are `net`'s.
//!
//! A handshake is the dearest thing that a stranger can ask for (a signature, and a key
//! exchange that also withstands quantum computers), so `handshake` bounds it in
//! time and number, and each worker makes one step of one handshake at a time. Nothing can be
//! negotiated anew on a connection (rustls knows no renegotiation), so a client certificate is asked
//! for before the path of any request is known, and required of all or of none.

mod acme;
mod files;
mod stream;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{
    Acceptor, ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert,
};
use rustls::sign::CertifiedKey;
use rustls::{InvalidMessage, ServerConfig};
use rustls_acme::is_tls_alpn_challenge;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::certificate::{self, ClientName};
use crate::protocol::ClientProtocol;
use acme::AcmeCertificate;
use files::{FileStamps, TlsMaterial, client_material, client_stamps};

pub(crate) use stream::TlsStream;

pub use acme::{AcmeFailure, AcmeIssue, AcmeOrders, AcmeSettings};

/// Sessions that a client may resume without a signature, given with each handshake.
const TICKETS: usize = 2;

/// Certificate and key of a listener, and the settings made from them.
pub struct Tls {
    source: TlsSource,
    /// Seals the sessions that clients may resume; the certificate they were made under may change.
    ticketer: Arc<dyn ProducesTickets>,
    current: ArcSwap<CurrentTls>,
    /// The files as they were when they were last read, whatever came of it.
    seen: Mutex<FileStamps>,
}

/// Where the certificate comes from.
#[derive(Debug)]
enum TlsSource {
    Files(TlsFiles),
    Acme(Arc<AcmeCertificate>),
}

/// What the next handshake goes by.
struct CurrentTls {
    config: Arc<ServerConfig>,
    material: TlsMaterial,
}

/// Where certificate and key are, and what client certificates are verified by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that lead to its authority, in this order (PEM).
    pub certificate: PathBuf,
    /// The private key of the first certificate (PEM, not encrypted).
    pub key: PathBuf,
    /// What client certificates are verified by; `None` if clients are not asked for any.
    pub clients: Option<ClientFiles>,
}

/// How client certificates are verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that issue them (PEM). That one of these has expired is not looked at.
    pub ca: PathBuf,
    /// Whether a client without a certificate is refused; it applies to the whole listener.
    pub required: bool,
    /// Revocation lists (PEM). With any, each authority between a client and `ca` needs one that is
    /// not overdue, or its certificates are refused.
    pub crl: Vec<PathBuf>,
}

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFile {
    /// The chain of certificates.
    Certificate,
    /// The private key.
    Key,
    /// The authorities of client certificates.
    ClientAuthority,
    /// One of the revocation lists, by its place.
    RevocationList(usize),
    /// The directory in which the account key and the certificate of an ACME server are kept.
    AcmeCache,
    /// The authorities that an ACME server is verified by.
    AcmeAuthority,
}

/// When a file ends to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEnd {
    /// Which file.
    pub file: TlsFile,
    /// The first end of what is in it, since 1970: of a certificate its last moment, of a
    /// revocation list the moment at which the next one is due.
    pub end: Duration,
}

/// Why a file cannot be used. Tells nothing of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` {why}", path.display())]
pub struct TlsProblem {
    /// Which file.
    pub file: TlsFile,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong: follows the path.
    pub why: String,
}

/// What came of looking at the files again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewed {
    /// They are as they were when they were last read.
    Unchanged,
    /// New connections get what is in them now.
    Taken,
    /// They cannot be used; what was taken before stays. Told once for each change.
    Refused(Vec<TlsProblem>),
}

impl Tls {
    /// Reads and checks the files. Blocks, as [`Self::renew`] does.
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, Vec<TlsProblem>> {
        let seen = files.stamps();
        let material = files.read(&provider())?;
        Self::new(TlsSource::Files(files), seen, material)
    }

    /// Prepares a listener whose certificate an ACME server issues, when [`Self::acme`] orders it. One
    /// that is kept from earlier is in use at once; without one, handshakes fail until it is issued.
    /// Asks no server. Blocks.
    pub fn with_acme(
        settings: AcmeSettings,
        clients: Option<ClientFiles>,
    ) -> Result<Arc<Self>, Vec<TlsProblem>> {
        let seen = client_stamps(clients.as_ref());
        let material = client_material(clients.as_ref(), &provider());
        let opened = AcmeCertificate::open(settings, clients);
        let (acme, material) = match (opened, material) {
            (Ok(acme), Ok(material)) => (acme, material),
            (Err(problem), Ok(_)) => return Err(vec![problem]),
            (opened, Err(problems)) => {
                return Err(opened.err().into_iter().chain(problems).collect());
            }
        };
        let material = match acme.kept(&provider()) {
            Some(certified) => material.with_certificate(certified),
            None => material,
        };
        Self::new(TlsSource::Acme(Arc::new(acme)), seen, material)
    }

    fn new(
        source: TlsSource,
        seen: FileStamps,
        material: TlsMaterial,
    ) -> Result<Arc<Self>, Vec<TlsProblem>> {
        let ticketer = aws_lc_rs::Ticketer::new().map_err(|error| source.unusable(&error))?;
        let current = current(material, &ticketer).map_err(|error| source.unusable(&error))?;
        let current = ArcSwap::from_pointee(current);
        Ok(Arc::new(Self { ticketer, seen: Mutex::new(seen), current, source }))
    }

    /// Takes the files anew if they have changed and are good.
    pub fn renew(&self) -> Renewed {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: what changes meanwhile shows the next time.
        let stamps = self.source.stamps();
        if *seen == stamps {
            return Renewed::Unchanged;
        }
        *seen = stamps;
        let renewed = match &self.source {
            TlsSource::Files(files) => files.read(&provider()),
            TlsSource::Acme(acme) => client_material(acme.clients(), &provider()).map(|read| {
                match &self.current.load().material.certified {
                    Some(certified) => read.with_certificate(Arc::clone(certified)),
                    None => read,
                }
            }),
        };
        let renewed = renewed.and_then(|read| {
            current(read, &self.ticketer).map_err(|error| self.source.unusable(&error))
        });
        match renewed {
            Ok(renewed) => {
                self.current.store(Arc::new(renewed));
                Renewed::Taken
            }
            Err(problems) => Renewed::Refused(problems),
        }
    }

    /// Takes a certificate that was issued.
    fn install(&self, certified: CertifiedKey) -> Result<(), rustls::Error> {
        // Held, so that no renewal of files puts the certificate before back.
        let _seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let material = self.current.load().material.clone();
        let issued = material.with_certificate(Arc::new(certified));
        self.current.store(Arc::new(current(issued, &self.ticketer)?));
        Ok(())
    }

    /// When the certificate and the revocation lists that are in use end to be valid.
    pub fn ends(&self) -> Vec<FileEnd> {
        self.current.load().material.ends.clone()
    }

    /// Orders the certificate, if an ACME server issues it.
    pub fn acme(self: &Arc<Self>) -> Option<AcmeOrders> {
        match &self.source {
            TlsSource::Files(_) => None,
            TlsSource::Acme(acme) => Some(AcmeOrders::new(Arc::clone(self), Arc::clone(acme))),
        }
    }

    /// Shakes hands with a client: see [`HandshakeFailure::of`] for how that fails.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.current.load().config);
        let Some(challenge) = self.source.challenge() else {
            return TlsStream::accept(config, stream, Vec::new()).await;
        };
        // A validator of the ACME server has no certificate that `config` may require.
        let mut received = Vec::new();
        let config = match begins_challenge(&mut stream, &mut received).await? {
            true => challenge,
            false => config,
        };
        TlsStream::accept(config, stream, received).await
    }
}

impl TlsSource {
    fn stamps(&self) -> FileStamps {
        match self {
            Self::Files(files) => files.stamps(),
            Self::Acme(acme) => client_stamps(acme.clients()),
        }
    }

    /// What the library holds against what was read.
    fn unusable(&self, error: &rustls::Error) -> Vec<TlsProblem> {
        match self {
            Self::Files(files) => files.unusable(error),
            Self::Acme(acme) => vec![acme.unusable(error)],
        }
    }

    /// What proves a domain to an ACME server, while a certificate is on order.
    fn challenge(&self) -> Option<Arc<ServerConfig>> {
        match self {
            Self::Files(_) => None,
            Self::Acme(acme) => acme.challenge(),
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Gives every client the one certificate; none before there is one.
#[derive(Debug)]
struct OneCertificate(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for OneCertificate {
    fn resolve(&self, _client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

fn current(
    material: TlsMaterial,
    ticketer: &Arc<dyn ProducesTickets>,
) -> Result<CurrentTls, rustls::Error> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let resumes = material.verifier.is_none();
    let mut config = match &material.verifier {
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(Arc::new(OneCertificate(material.certified.clone())));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if resumes {
        // Sealed and given to the client, so that no worker has to ask another for them. Early
        // data stays off: an attacker who records it could have a call repeated.
        config.ticketer = Arc::clone(ticketer);
        config.send_tls13_tickets = TICKETS;
    } else {
        // A session that is resumed is not verified again: a client could go on by its ticket for
        // hours after its certificate was revoked.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(CurrentTls { config: Arc::new(config), material })
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Whether the client is an ACME server that verifies a domain, by what it says first; that is put into
/// `received`. What is not TLS is not such a client; the handshake says why.
async fn begins_challenge(stream: &mut TcpStream, received: &mut Vec<u8>) -> io::Result<bool> {
    let mut acceptor = Acceptor::default();
    loop {
        let known = received.len();
        if stream.read_buf(received).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut new = &received[known..];
        while !new.is_empty() {
            acceptor.read_tls(&mut new)?;
            match acceptor.accept() {
                Ok(Some(begun)) => return Ok(is_tls_alpn_challenge(&begun.client_hello())),
                Ok(None) => {}
                Err(_) => return Ok(false),
            }
        }
    }
}

/// The protocol that ALPN agreed on, if the client asked for one.
pub(crate) fn agreed(stream: &TlsStream<TcpStream>) -> Option<ClientProtocol> {
    match stream.session().alpn_protocol()? {
        b"h2" => Some(ClientProtocol::Http2),
        _ => Some(ClientProtocol::Http1),
    }
}

/// Whether the client was an ACME server that has seen its proof. Nothing more is said on it.
pub(crate) fn was_challenge(stream: &TlsStream<TcpStream>) -> bool {
    stream.session().alpn_protocol() == Some(acme::PROTOCOL)
}

/// The names in the certificate that the client has proved to be its own; `None` without one.
pub(crate) fn client_names(stream: &TlsStream<TcpStream>) -> Option<Box<[ClientName]>> {
    let own = stream.session().peer_certificates()?.first()?;
    Some(certificate::names(own))
}

/// Why there was no handshake. Its words stand in metrics and the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum HandshakeFailure {
    /// It was not done in time.
    Slow,
    /// The client disconnected; also load balancers that only check whether the port is open.
    Left,
    /// What came was not TLS; mostly plain HTTP.
    NotTls,
    /// There was nothing that both sides can do, or the client does not trust the certificate, or an
    /// ACME server has not issued the first one yet.
    Disagreed,
    /// The client had no certificate and needs one, or one that is not valid, not of an authority
    /// that is trusted, or revoked.
    #[strum(serialize = "client_certificate")]
    Uncertified,
    /// Too many were under way: it was not begun, or gave way to another.
    Full,
}

wellhead_word::words!(HandshakeFailure);

impl HandshakeFailure {
    /// What an error of [`Tls::accept`] means.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            None => Self::Left,
            // The first byte of a record says what it is; letters are none of these.
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::NotTls,
            // What a client holds against our certificate comes as an alert, and is none of these.
            Some(
                rustls::Error::InvalidCertificate(_)
                | rustls::Error::InvalidCertRevocationList(_)
                | rustls::Error::NoCertificatesPresented,
            ) => Self::Uncertified,
            Some(_) => Self::Disagreed,
        }
    }
}
