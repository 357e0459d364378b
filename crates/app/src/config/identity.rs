//! The files of the certificate that wellhead shows to an upstream (mTLS).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};

use wellhead_net::ClientIdentity;
use wellhead_telemetry::Secret;

use super::access_files::found;
use super::chain::Upstream;
use super::problem::{Problem, SettingPath};
use super::{CA_BYTES_MAX, RELATIVE_PATHS, UnusableCertificates, file};

/// A certificate and its private key, each in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct IdentityFiles {
    /// The certificate and its intermediate ones, in PEM.
    pub(crate) certificate: PathBuf,
    /// The private key, in PEM.
    pub(crate) key: PathBuf,
}

/// What was read from them.
#[derive(Debug, Clone)]
pub(crate) struct ReadIdentity {
    pub(crate) identity: ClientIdentity,
    /// Of the certificate: another key comes with another certificate.
    pub(crate) digest: u64,
}

impl IdentityFiles {
    /// Those of `upstream`, where it names both.
    pub(crate) fn of(upstream: &Upstream) -> Option<Self> {
        let (certificate, key) = (&upstream.client_cert_file, &upstream.client_key_file);
        let (certificate, key) = certificate.as_ref().zip(key.as_ref())?;
        Some(Self { certificate: certificate.clone(), key: key.clone() })
    }

    /// Waits for the disk.
    ///
    /// # Errors
    ///
    /// If a file is not there, or the two cannot be used together; names the file, and nothing of the key.
    pub(crate) fn read(&self) -> Result<ReadIdentity, UnusableCertificates> {
        let certificate = text(&self.certificate)?;
        let key = text(&self.key)?;
        let (certificate, key) = (certificate.expose().as_bytes(), key.expose().as_bytes());
        let identity = ClientIdentity::from_pem(certificate, key)
            .map_err(|error| UnusableCertificates::Other(error.to_string()))?;
        let mut hasher = DefaultHasher::new();
        certificate.hash(&mut hasher);
        Ok(ReadIdentity { identity, digest: hasher.finish() })
    }
}

fn text(path: &Path) -> Result<Secret, UnusableCertificates> {
    let shown = path.display();
    let other = |why: &str| UnusableCertificates::Other(format!("`{shown}`: {why}"));
    let read = file::read_regular(path, CA_BYTES_MAX).and_then(file::text);
    read.map(Secret::new).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => other("there is no such file"),
        _ => other(&error.to_string()),
    })
}

/// Makes the paths of an upstream's identity absolute to `base`, and reports what cannot be used. `path` is the
/// upstream's.
pub(super) fn find_identity(
    upstream: &mut Upstream,
    path: &SettingPath,
    base: &Path,
    problems: &mut Vec<Problem>,
) {
    for file in [&mut upstream.client_cert_file, &mut upstream.client_key_file] {
        found(file.as_mut(), base);
    }
    let Some(files) = IdentityFiles::of(upstream) else { return };
    if let Err(why) = files.read() {
        let told = format!("the client certificate cannot be used: {why}");
        let path = path.key("client_cert_file");
        problems.push(Problem::error(&path, told).hint(RELATIVE_PATHS));
    }
}
