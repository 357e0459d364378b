//! TLS of a listener: certificate, key and what client certificates have to be, from files, and why
//! a handshake fails.
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

mod files;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::SingleCertAndKey;
use rustls::{InvalidMessage, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::certificate::{self, ClientName};
use crate::protocol::ClientProtocol;
use files::{FileStamps, TlsMaterial};

/// Sessions that a client may resume without a signature, given with each handshake.
const TICKETS: usize = 2;

/// Certificate and key of a listener, and the settings made from them.
pub struct Tls {
    files: TlsFiles,
    /// Seals the sessions that clients may resume; the certificate they were made under may change.
    ticketer: Arc<dyn ProducesTickets>,
    current: ArcSwap<CurrentTls>,
    /// The files as they were when they were last read, whatever came of it.
    seen: Mutex<FileStamps>,
}

/// What the next handshake goes by.
struct CurrentTls {
    config: Arc<ServerConfig>,
    ends: Vec<FileEnd>,
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsProblem {
    /// Which file.
    pub file: TlsFile,
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong: follows the path.
    pub why: String,
}

impl fmt::Display for TlsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {}", self.path.display(), self.why)
    }
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
        let material = files.read(&Arc::new(aws_lc_rs::default_provider()))?;
        let ticketer = aws_lc_rs::Ticketer::new().map_err(|error| files.unusable(&error))?;
        let current = current(material, &ticketer).map_err(|error| files.unusable(&error))?;
        let current = ArcSwap::from_pointee(current);
        Ok(Arc::new(Self { ticketer, seen: Mutex::new(seen), current, files }))
    }

    /// Takes the files anew if they have changed and are good.
    pub fn renew(&self) -> Renewed {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: what changes meanwhile shows the next time.
        let stamps = self.files.stamps();
        if *seen == stamps {
            return Renewed::Unchanged;
        }
        *seen = stamps;
        let renewed = self.files.read(&Arc::new(aws_lc_rs::default_provider())).and_then(|read| {
            current(read, &self.ticketer).map_err(|error| self.files.unusable(&error))
        });
        match renewed {
            Ok(renewed) => {
                self.current.store(Arc::new(renewed));
                Renewed::Taken
            }
            Err(problems) => Renewed::Refused(problems),
        }
    }

    /// When the certificate and the revocation lists that are in use end to be valid.
    pub fn ends(&self) -> Vec<FileEnd> {
        self.current.load().ends.clone()
    }

    /// Shakes hands with a client: see [`HandshakeFailure::of`] for how that fails.
    pub(crate) fn accept(&self, stream: TcpStream) -> Accept<TcpStream> {
        let config = Arc::clone(&self.current.load().config);
        TlsAcceptor::from(config).accept(stream)
    }
}

fn current(
    material: TlsMaterial,
    ticketer: &Arc<dyn ProducesTickets>,
) -> Result<CurrentTls, rustls::Error> {
    let TlsMaterial { certified, verifier, ends } = material;
    let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?;
    let resumes = verifier.is_none();
    let mut config = match verifier {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
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
    Ok(CurrentTls { config: Arc::new(config), ends })
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// The protocol that ALPN agreed on, if the client asked for one.
pub(crate) fn agreed(stream: &TlsStream<TcpStream>) -> Option<ClientProtocol> {
    match stream.get_ref().1.alpn_protocol()? {
        b"h2" => Some(ClientProtocol::Http2),
        _ => Some(ClientProtocol::Http1),
    }
}

/// The names in the certificate that the client has proved to be its own; `None` without one.
pub(crate) fn client_names(stream: &TlsStream<TcpStream>) -> Option<Box<[ClientName]>> {
    let own = stream.get_ref().1.peer_certificates()?.first()?;
    Some(certificate::names(own))
}

/// Why there was no handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// It was not done in time.
    Slow,
    /// The client disconnected; also load balancers that only check whether the port is open.
    Left,
    /// What came was not TLS; mostly plain HTTP.
    NotTls,
    /// There was nothing that both sides can do, or the client does not trust the certificate.
    Disagreed,
    /// The client had no certificate and needs one, or one that is not valid, not of an authority
    /// that is trusted, or revoked.
    Uncertified,
    /// Too many were under way: it was not begun, or gave way to another.
    Full,
}

impl HandshakeFailure {
    /// All of them, in the order of their counts.
    pub const ALL: [Self; 6] =
        [Self::Slow, Self::Left, Self::NotTls, Self::Disagreed, Self::Uncertified, Self::Full];

    /// How it is called in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Left => "left",
            Self::NotTls => "not_tls",
            Self::Disagreed => "disagreed",
            Self::Uncertified => "client_certificate",
            Self::Full => "full",
        }
    }

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
