//! The files of a listener's TLS: reading them, and saying what is wrong with one.

use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientCertVerifierBuilder, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{InconsistentKeys, RootCertStore};
use rustls_pki_types::pem::{self, PemObject as _, SectionKind};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use zeroize::Zeroizing;

use super::{ClientFiles, FileEnd, TlsFile, TlsFiles, TlsProblem};
use crate::certificate::{certificate_end, revocation_list_end};

/// A file is read up to here. Chains of certificates are a few KiB.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Revocation lists of large authorities have 40 bytes for each certificate.
const LIST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// When each file was last written, and its length; `None` for one that is not there.
pub(super) type FileStamps = Vec<Option<(SystemTime, u64)>>;

/// What a listener's settings are made from.
#[derive(Clone)]
pub(super) struct TlsMaterial {
    /// `None` until an ACME server has issued the first certificate.
    pub(super) certified: Option<Arc<CertifiedKey>>,
    /// `None` if clients are not asked for a certificate.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) ends: Vec<FileEnd>,
}

impl TlsMaterial {
    /// With this certificate instead of the one before.
    pub(super) fn with_certificate(mut self, certified: Arc<CertifiedKey>) -> Self {
        self.ends.retain(|it| it.file != TlsFile::Certificate);
        let end = certified.cert.iter().filter_map(certificate_end).min();
        self.ends.splice(0..0, end.map(|end| FileEnd { file: TlsFile::Certificate, end }));
        self.certified = Some(certified);
        self
    }
}

impl TlsFiles {
    /// Everything that is wrong with the files; empty when they can be served.
    pub fn problems(&self) -> Vec<TlsProblem> {
        self.read(&super::provider()).err().unwrap_or_default()
    }

    /// What the library holds against all of them together.
    pub(super) fn unusable(&self, error: &rustls::Error) -> Vec<TlsProblem> {
        vec![TlsProblem {
            file: TlsFile::Certificate,
            path: self.certificate.clone(),
            why: format!("cannot be served: {error}"),
        }]
    }

    pub(super) fn stamps(&self) -> FileStamps {
        let own = [&self.certificate, &self.key].map(|path| stamp(path));
        own.into_iter().chain(client_stamps(self.clients.as_ref())).collect()
    }

    pub(super) fn read(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<TlsMaterial, Vec<TlsProblem>> {
        let mut problems = Vec::new();
        let certified = self.certified(provider, &mut problems);
        match (certified, client_material(self.clients.as_ref(), provider)) {
            (Some(certified), Ok(material)) => Ok(material.with_certificate(Arc::new(certified))),
            (None, Ok(_)) => Err(problems),
            (_, Err(more)) => {
                problems.extend(more);
                Err(problems)
            }
        }
    }

    fn certified(
        &self,
        provider: &CryptoProvider,
        problems: &mut Vec<TlsProblem>,
    ) -> Option<CertifiedKey> {
        let mut noted = |file, path: &Path, why: String| {
            problems.push(TlsProblem { file, path: path.to_owned(), why });
        };
        let chain = certificates(&self.certificate)
            .map_err(|why| noted(TlsFile::Certificate, &self.certificate, why));
        let key = contents(&self.key, FILE_BYTES_MAX)
            .and_then(|contents| signing_key(&contents, provider))
            .map_err(|why| noted(TlsFile::Key, &self.key, why));
        let (Ok(chain), Ok(key)) = (chain, key) else { return None };
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            // Not every kind of key can tell its public half.
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                return Some(certified);
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
        None
    }
}

/// The certificate and the key in one text, as they are kept of an ACME server.
pub(super) fn certified_in(pem: &[u8], provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let certified = CertifiedKey::new(certificates_in(pem)?, signing_key(pem, provider)?);
    match certified.keys_match() {
        Ok(()) => Ok(certified),
        Err(error) => Err(format!("holds a certificate that does not fit its key: {error}")),
    }
}

/// When the files by which clients are verified were last written.
pub(super) fn client_stamps(clients: Option<&ClientFiles>) -> FileStamps {
    let paths = clients.into_iter().flat_map(|it| std::iter::once(&it.ca).chain(&it.crl));
    paths.map(|path| stamp(path)).collect()
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.modified().ok()?, found.len()))
}

/// What clients are verified by, yet without a certificate of the listener.
pub(super) fn client_material(
    clients: Option<&ClientFiles>,
    provider: &Arc<CryptoProvider>,
) -> Result<TlsMaterial, Vec<TlsProblem>> {
    let (mut problems, mut ends) = (Vec::new(), Vec::new());
    let verifier = clients.map(|it| it.verifier(provider, &mut problems, &mut ends));
    match verifier {
        None => Ok(TlsMaterial { certified: None, verifier: None, ends }),
        Some(Some(verifier)) => Ok(TlsMaterial { certified: None, verifier: Some(verifier), ends }),
        Some(None) => Err(problems),
    }
}

impl ClientFiles {
    /// Everything that is wrong with the files.
    pub fn problems(&self) -> Vec<TlsProblem> {
        client_material(Some(self), &super::provider()).err().unwrap_or_default()
    }

    /// What verifies client certificates; `None` when a file cannot be used, which is noted.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
        problems: &mut Vec<TlsProblem>,
        ends: &mut Vec<FileEnd>,
    ) -> Option<Arc<dyn ClientCertVerifier>> {
        let mut noted = |file, path: &Path, why: String| {
            problems.push(TlsProblem { file, path: path.to_owned(), why });
        };
        let roots = authorities(&self.ca)
            .map_err(|why| noted(TlsFile::ClientAuthority, &self.ca, why))
            .map(Arc::new)
            .ok();
        let builder = |lists: &[CertificateRevocationListDer<'static>]| {
            let roots = Arc::clone(roots.as_ref()?);
            let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider))
                .with_crls(lists.to_vec())
                // What was revoked since the next list was due is unknown.
                .enforce_revocation_expiration();
            Some(if self.required { builder } else { builder.allow_unauthenticated() })
        };
        let mut lists = Vec::new();
        let mut is_good = true;
        for (index, path) in self.crl.iter().enumerate() {
            let file = TlsFile::RevocationList(index);
            // The library reads them only together with authorities.
            let read = revocation_lists(path).and_then(|read| {
                match builder(&read).map(ClientCertVerifierBuilder::build) {
                    Some(Err(error)) => Err(format!("cannot be read: {error}")),
                    Some(Ok(_)) | None => Ok(read),
                }
            });
            match read {
                Ok(read) => {
                    let end = read.iter().filter_map(revocation_list_end).min();
                    ends.extend(end.map(|end| FileEnd { file, end }));
                    lists.extend(read);
                }
                Err(why) => {
                    noted(file, path, why);
                    is_good = false;
                }
            }
        }
        let built = builder(&lists).filter(|_| is_good)?.build();
        let unusable = |error| {
            noted(TlsFile::ClientAuthority, &self.ca, format!("cannot verify clients: {error}"));
        };
        built.map_err(unusable).ok()
    }
}

pub(super) fn authorities(path: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(certificates(path)?) {
        let bad =
            |error| format!("holds a certificate (number {number}) that is no authority: {error}");
        roots.add(certificate).map_err(bad)?;
    }
    Ok(roots)
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let mut lists = Vec::new();
    for section in sections(&contents(path, LIST_BYTES_MAX)?) {
        if let (SectionKind::Crl, der) = section? {
            lists.push(CertificateRevocationListDer::from(der.to_vec()));
        }
    }
    if lists.is_empty() {
        return Err("holds no revocation list (`-----BEGIN X509 CRL-----`)".to_owned());
    }
    Ok(lists)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    certificates_in(&contents(path, FILE_BYTES_MAX)?)
}

fn certificates_in(contents: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut chain = Vec::new();
    let mut has_key = false;
    for section in sections(contents) {
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

fn signing_key(contents: &[u8], provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, String> {
    let unusable = |_| "holds a key of a kind that cannot be used".to_owned();
    provider.key_provider.load_private_key(private_key(contents)?).map_err(unusable)
}

pub(super) fn private_key(contents: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let mut has_certificate = false;
    for section in sections(contents) {
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

/// The contents of a small file.
pub(super) fn small_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    contents(path, FILE_BYTES_MAX)
}

fn contents(path: &Path, bytes_max: u64) -> Result<Zeroizing<Vec<u8>>, String> {
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
    file.take(bytes_max + 1).read_to_end(&mut contents).map_err(cannot)?;
    if contents.len() as u64 > bytes_max {
        return Err(format!("is larger than {} KiB", bytes_max / 1024));
    }
    Ok(contents)
}
