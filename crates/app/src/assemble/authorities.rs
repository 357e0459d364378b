//! The certificates of authorities, and our own for upstreams, in files, read at one time.
//!
//! A reload reads them where the config is read, on a thread that may wait for a disk; what is made from them is made
//! from one content, and the plan of the reload tells those that differ.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use crate::config::{self, IdentityFiles, ReadIdentity, Settings};

/// Every `ca_file`, `client_cert_file` and `client_key_file` of the settings.
#[derive(Debug, Default)]
pub(crate) struct Authorities {
    certificates: HashMap<PathBuf, Result<Certificates, String>>,
    identities: HashMap<IdentityFiles, Result<ReadIdentity, String>>,
}

#[derive(Debug)]
struct Certificates {
    pem: Vec<u8>,
    digest: u64,
}

impl Authorities {
    /// Waits for the disk. What cannot be read is an error where it is used.
    pub(crate) fn read(settings: &Settings) -> Self {
        let upstreams = || settings.chains.iter().flat_map(|(_, chain)| &chain.upstreams);
        let of_upstreams = upstreams().filter_map(|upstream| upstream.ca_file.as_ref());
        let of_issuers = settings.access.jwt.iter().filter_map(|issuer| issuer.ca_file.as_ref());
        let mut read = HashMap::new();
        for path in of_upstreams.chain(of_issuers) {
            read.entry(path.clone()).or_insert_with(|| Certificates::read(path));
        }
        let files = upstreams().filter_map(IdentityFiles::of);
        let identity = |files: IdentityFiles| {
            let read = files.read().map_err(|why| why.to_string());
            (files, read)
        };
        Self { certificates: read, identities: files.map(identity).collect() }
    }

    /// The certificate and key in files of the settings, as they were read.
    pub(super) fn identity(&self, files: &IdentityFiles) -> Result<&ReadIdentity, String> {
        let read = self.identities.get(files).ok_or("it was not read")?;
        read.as_ref().map_err(Clone::clone)
    }

    /// The certificates in a file of the settings, as they were read.
    pub(super) fn pem(&self, path: &Path) -> Result<&[u8], String> {
        let read = self.certificates.get(path).ok_or("it was not read")?;
        read.as_ref().map(|certificates| &*certificates.pem).map_err(Clone::clone)
    }

    /// Tells one content of a file from another; `None` where it cannot be used.
    pub(super) fn digest(&self, path: &Path) -> Option<u64> {
        self.certificates.get(path)?.as_ref().ok().map(|certificates| certificates.digest)
    }
}

impl Certificates {
    fn read(path: &Path) -> Result<Self, String> {
        let pem = config::authorities(path).map_err(|why| why.to_string())?;
        let mut hasher = DefaultHasher::new();
        pem.hash(&mut hasher);
        Ok(Self { pem, digest: hasher.finish() })
    }
}
