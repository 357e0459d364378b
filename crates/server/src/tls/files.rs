//! The files of a listener's TLS: reading them, and saying what is wrong with one.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientCertVerifierBuilder, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
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

/// What is in the files.
pub(super) struct TlsMaterial {
    pub(super) certified: CertifiedKey,
    /// `None` if clients are not asked for a certificate.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    pub(super) ends: Vec<FileEnd>,
}

impl TlsFiles {
    /// Everything that is wrong with the files; empty when they can be served.
    pub fn problems(&self) -> Vec<TlsProblem> {
        self.read(&Arc::new(aws_lc_rs::default_provider())).err().unwrap_or_default()
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
        let clients = self.clients.iter().flat_map(|it| std::iter::once(&it.ca).chain(&it.crl));
        let stamp = |path: &PathBuf| {
            let found = std::fs::metadata(path).ok()?;
            Some((found.modified().ok()?, found.len()))
        };
        [&self.certificate, &self.key].into_iter().chain(clients).map(stamp).collect()
    }

    pub(super) fn read(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<TlsMaterial, Vec<TlsProblem>> {
        let mut problems = Vec::new();
        let mut ends = Vec::new();
        let certified = self.certified(provider, &mut problems, &mut ends);
        let clients = self.clients.as_ref();
        let verifier = clients.map(|it| it.verifier(provider, &mut problems, &mut ends));
        match (certified, verifier) {
            (Some(certified), None) => Ok(TlsMaterial { certified, verifier: None, ends }),
            (Some(certified), Some(Some(verifier))) => {
                Ok(TlsMaterial { certified, verifier: Some(verifier), ends })
            }
            (None, _) | (_, Some(None)) => Err(problems),
        }
    }

    fn certified(
        &self,
        provider: &CryptoProvider,
        problems: &mut Vec<TlsProblem>,
        ends: &mut Vec<FileEnd>,
    ) -> Option<CertifiedKey> {
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
        let (Ok(chain), Ok(key)) = (chain, key) else { return None };
        push_end(ends, TlsFile::Certificate, chain.iter().filter_map(certificate_end));
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

impl ClientFiles {
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
                    push_end(ends, file, read.iter().filter_map(revocation_list_end));
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

fn push_end(ends: &mut Vec<FileEnd>, file: TlsFile, all: impl Iterator<Item = Duration>) {
    ends.extend(all.min().map(|end| FileEnd { file, end }));
}

fn authorities(path: &Path) -> Result<RootCertStore, String> {
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
    let mut chain = Vec::new();
    let mut has_key = false;
    for section in sections(&contents(path, FILE_BYTES_MAX)?) {
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
    let contents = contents(path, FILE_BYTES_MAX)?;
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
