//! TLS of the listener: certificate and key from files, and why a handshake fails.
//!
//! The pair is read and checked at start, and again when a file changes: connections that
//! are open keep what they agreed on, new ones get the new certificate. A pair that is no
//! good is never taken; the one before it stays. What goes over a connection afterwards is
//! `connection`'s business, certificates of upstreams are `net`'s.
//!
//! A handshake is the dearest thing that a stranger can ask for (a signature, and a key
//! exchange that also withstands quantum computers), so `handshake` bounds it in
//! time and number, and each worker makes one step of one handshake at a time. Nothing can be negotiated anew on a connection (rustls knows no renegotiation).

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, InvalidMessage, ServerConfig};
use rustls_pki_types::pem::{self, PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};
use zeroize::Zeroizing;

use crate::protocol::ClientProtocol;

/// A file is read up to here. Chains of certificates are a few KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Sessions that a client may resume without a signature, given with each handshake.
const TICKETS: usize = 2;

/// Certificate and key of a listener, and the settings made from them.
pub struct Tls {
    files: TlsFiles,
    acceptor: TlsAcceptor,
    current: Arc<Current>,
    /// The files as they were when they were last read, whatever came of it.
    seen: Mutex<Stamps>,
}

/// Where certificate and key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate and those that lead to its authority, in this order (PEM).
    pub certificate: PathBuf,
    /// The private key of the first certificate (PEM, not encrypted).
    pub key: PathBuf,
}

/// One of the two files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFile {
    /// The chain of certificates.
    Certificate,
    /// The private key.
    Key,
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
        let provider = Arc::new(aws_lc_rs::default_provider());
        let seen = files.stamps();
        let certified = files.read(&provider)?;
        let current = Arc::new(Current(ArcSwap::from_pointee(certified)));
        let library = |error: rustls::Error| {
            vec![TlsProblem {
                file: TlsFile::Certificate,
                path: files.certificate.clone(),
                why: format!("cannot be served: {error}"),
            }]
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(library)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // Sealed and given to the client, so that no worker has to ask another for them. Early
        // data stays off: an attacker who records it could have a call repeated.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(library)?;
        config.send_tls13_tickets = TICKETS;
        Ok(Arc::new(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            seen: Mutex::new(seen),
            current,
            files,
        }))
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
        match self.files.read(&aws_lc_rs::default_provider()) {
            Ok(certified) => {
                self.current.0.store(Arc::new(certified));
                Renewed::Taken
            }
            Err(problems) => Renewed::Refused(problems),
        }
    }

    /// Shakes hands with a client: see [`HandshakeFailure::of`] for how that fails.
    pub(crate) fn accept(&self, stream: TcpStream) -> Accept<TcpStream> {
        self.acceptor.accept(stream)
    }
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
    /// Too many were under way: it was not begun, or gave way to another.
    Full,
}

impl HandshakeFailure {
    /// All of them, in the order of their counts.
    pub const ALL: [Self; 5] = [Self::Slow, Self::Left, Self::NotTls, Self::Disagreed, Self::Full];

    /// How it is called in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Left => "left",
            Self::NotTls => "not_tls",
            Self::Disagreed => "disagreed",
            Self::Full => "full",
        }
    }

    /// What an error of [`Tls::accept`] means.
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            None => Self::Left,
            // The first byte of a record says what it is; letters are none of these.
            Some(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType)) => Self::NotTls,
            Some(_) => Self::Disagreed,
        }
    }
}

/// What the next handshake shows.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// When the two files were last written, and their lengths; `None` for one that is not there.
type Stamps = [Option<(SystemTime, u64)>; 2];

impl TlsFiles {
    /// Everything that is wrong with the files; empty when they can be served.
    pub fn problems(&self) -> Vec<TlsProblem> {
        self.read(&aws_lc_rs::default_provider()).err().unwrap_or_default()
    }

    fn stamps(&self) -> Stamps {
        [&self.certificate, &self.key].map(|path| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        })
    }

    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, Vec<TlsProblem>> {
        let mut problems = Vec::new();
        let mut noted = |file, path: &Path, why: String| {
            problems.push(TlsProblem { file, path: path.to_owned(), why });
        };
        let chain = certificates(&self.certificate)
            .map_err(|why| noted(TlsFile::Certificate, &self.certificate, why));
        let key = private_key(&self.key)
            .and_then(|key| {
                let unusable = |_| "holds a key of a kind that cannot be used".to_owned();
                provider.key_provider.load_private_key(key).map_err(unusable)
            })
            .map_err(|why| noted(TlsFile::Key, &self.key, why));
        if let (Ok(chain), Ok(key)) = (chain, key) {
            let certified = CertifiedKey::new(chain, key);
            match certified.keys_match() {
                // Not every kind of key can tell its public half.
                Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                    return Ok(certified);
                }
                Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                    let other = self.certificate.display();
                    let why = format!("is not the key of the first certificate in `{other}`");
                    noted(TlsFile::Key, &self.key, why);
                }
                Err(error) => {
                    let why = format!("begins with a certificate that cannot be read: {error}");
                    noted(TlsFile::Certificate, &self.certificate, why);
                }
            }
        }
        Err(problems)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut chain = Vec::new();
    let mut has_key = false;
    for section in sections(&contents(path)?) {
        match section? {
            (SectionKind::Certificate, der) => chain.push(CertificateDer::from(der.to_vec())),
            (kind, _) => has_key |= is_key(kind),
        }
    }
    match chain.is_empty() {
        false => Ok(chain),
        true if has_key => Err("holds a key and no certificate: are the files swapped?".to_owned()),
        true => Err("holds no certificate (`-----BEGIN CERTIFICATE-----`)".to_owned()),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let contents = contents(path)?;
    let mut has_certificate = false;
    for section in sections(&contents) {
        let (kind, der) = section?;
        if let Some(key) = PrivateKeyDer::from_pem(kind, der.to_vec()) {
            return Ok(key);
        }
        has_certificate |= kind == SectionKind::Certificate;
    }
    Err(if contents.windows(ENCRYPTED.len()).any(|bytes| bytes == ENCRYPTED) {
        "holds an encrypted key: wellhead cannot ask for its password"
    } else if has_certificate {
        "holds a certificate and no key: are the files swapped?"
    } else {
        "holds no private key (`-----BEGIN PRIVATE KEY-----`)"
    }
    .to_owned())
}

/// Found in the first line of such a key, whichever tool made it.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

fn is_key(kind: SectionKind) -> bool {
    matches!(kind, SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey)
}

type Section = (SectionKind, Zeroizing<Vec<u8>>);

/// The sections of a PEM file. What is wrong is told in our words: the library's quote lines
/// of the file.
fn sections(contents: &[u8]) -> impl Iterator<Item = Result<Section, String>> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(contents).map(|section| {
        section.map(|(kind, der)| (kind, Zeroizing::new(der))).map_err(|error| match error {
            pem::Error::MissingSectionEnd { .. } => "is cut off: a section has no end".to_owned(),
            pem::Error::Base64Decode(_) => "is damaged: a section is not base64".to_owned(),
            _ => "is not PEM".to_owned(),
        })
    })
}

fn contents(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let cannot = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    // To open a pipe would wait until something writes to it.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is not a regular file".to_owned());
    }
    let mut contents = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut contents).map_err(cannot)?;
    if contents.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("is larger than {} KiB", FILE_BYTES_MAX / 1024));
    }
    Ok(contents)
}
