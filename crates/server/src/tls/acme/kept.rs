//! What is kept of an ACME server: the account key and the certificate with its key, a file each.
//!
//! The first line of a file says what it is for. A file that was made for another ACME server, other
//! domains or other contacts is not read, and is replaced by the next order.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

use super::super::files::{private_key, small_file};
use super::{AcmeSettings, TlsFile, TlsProblem};

const ACCOUNT: &str = "account.pem";
const CERTIFICATE: &str = "certificate.pem";

/// Keys are in it.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Characters in a line of PEM (RFC 7468).
const PEM_LINE: usize = 64;

/// The directory, and what the files in it are for.
#[derive(Debug)]
pub(super) struct AcmeFolder {
    path: PathBuf,
    account_head: String,
    certificate_head: String,
}

impl AcmeFolder {
    /// Makes the directory if it is missing, and closes it to other users.
    pub(super) fn open(settings: &AcmeSettings) -> io::Result<Self> {
        let AcmeSettings { domains, contact, cache, directory, ca: _ } = settings;
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(cache)?;
        if fs::metadata(cache)?.permissions().mode() & 0o077 != 0
            && let Err(error) = fs::set_permissions(cache, Permissions::from_mode(FOLDER_MODE))
        {
            // The files in it are closed in any case.
            tracing::warn!(
                path = %cache.display(), %error,
                "other users can open the directory of the ACME account key, and its mode cannot be changed"
            );
        }
        let (contact, domains) = (contact.join(" "), domains.join(" "));
        Ok(Self {
            path: cache.clone(),
            account_head: format!("wellhead: account at {directory} of {contact}"),
            certificate_head: format!("wellhead: certificate of {directory} for {domains}"),
        })
    }

    /// The account key, as PKCS #8; `None` if there is none for these settings.
    pub(super) fn account(&self) -> Result<Option<Zeroizing<Vec<u8>>>, TlsProblem> {
        let Some(pem) = self.read(ACCOUNT, &self.account_head)? else { return Ok(None) };
        let unusable =
            |why| self.problem(ACCOUNT, format!("{why}: delete it to make another account"));
        let key = private_key(&pem).map_err(unusable)?;
        Ok(Some(Zeroizing::new(key.secret_der().to_vec())))
    }

    pub(super) fn keep_account(&self, key: &[u8]) -> Result<(), TlsProblem> {
        self.write(ACCOUNT, &self.account_head, &pem_of_key(key))
    }

    /// The certificate, those that lead to its authority, and its key (PEM); `None` if there is none
    /// for these settings.
    pub(super) fn certificate(&self) -> Result<Option<Zeroizing<Vec<u8>>>, TlsProblem> {
        self.read(CERTIFICATE, &self.certificate_head)
    }

    pub(super) fn keep_certificate(&self, pem: &[u8]) -> Result<(), TlsProblem> {
        self.write(CERTIFICATE, &self.certificate_head, pem)
    }

    pub(super) fn certificate_problem(&self, why: String) -> TlsProblem {
        self.problem(CERTIFICATE, why)
    }

    fn problem(&self, name: &str, why: String) -> TlsProblem {
        TlsProblem { file: TlsFile::AcmeCache, path: self.path.join(name), why }
    }

    fn read(&self, name: &str, head: &str) -> Result<Option<Zeroizing<Vec<u8>>>, TlsProblem> {
        let path = self.path.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let contents = small_file(&path).map_err(|why| self.problem(name, why))?;
        let is_for_this = contents.split(|byte| *byte == b'\n').next() == Some(head.as_bytes());
        Ok(is_for_this.then_some(contents))
    }

    /// Replaces a file as a whole, so that a crash leaves the one before.
    fn write(&self, name: &str, head: &str, pem: &[u8]) -> Result<(), TlsProblem> {
        let (path, beside) = (self.path.join(name), self.path.join(format!("{name}.new")));
        let written = write_beside(&beside, head, pem).and_then(|()| fs::rename(&beside, &path));
        written.map_err(|error| self.problem(name, format!("cannot be written: {error}")))
    }
}

fn write_beside(path: &Path, head: &str, pem: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    file.write_all(head.as_bytes())?;
    file.write_all(b"\n")?;
    file.write_all(pem)?;
    file.sync_all()
}

fn pem_of_key(key: &[u8]) -> Zeroizing<Vec<u8>> {
    let text = Zeroizing::new(BASE64_STANDARD.encode(key));
    let mut pem = Zeroizing::new(b"-----BEGIN PRIVATE KEY-----\n".to_vec());
    for line in text.as_bytes().chunks(PEM_LINE) {
        pem.extend_from_slice(line);
        pem.push(b'\n');
    }
    pem.extend_from_slice(b"-----END PRIVATE KEY-----\n");
    pem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(cache: &Path) -> AcmeSettings {
        AcmeSettings {
            domains: vec!["a.example".to_owned(), "b.example".to_owned()],
            contact: vec!["mailto:ops@a.example".to_owned()],
            cache: cache.to_owned(),
            directory: "https://acme.example/dir".to_owned(),
            ca: None,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_are_closed_to_others_and_read_again() {
        let parent = tempfile::tempdir().unwrap();
        let cache = parent.path().join("deep/acme");
        let folder = AcmeFolder::open(&settings(&cache)).unwrap();
        assert_eq!((folder.account(), folder.certificate()), (Ok(None), Ok(None)));
        let key = rcgen::KeyPair::generate().unwrap();
        for _ in 0..2 {
            folder.keep_account(key.serialized_der()).unwrap();
            folder.keep_certificate(b"a\nb\n").unwrap();
        }
        assert_eq!(mode(&cache), 0o700);
        assert_eq!(mode(&cache.join(ACCOUNT)), 0o600);
        assert_eq!(mode(&cache.join(CERTIFICATE)), 0o600);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 2);
        let folder = AcmeFolder::open(&settings(&cache)).unwrap();
        assert_eq!(folder.account().unwrap().unwrap().as_slice(), key.serialized_der());
        assert!(folder.certificate().unwrap().unwrap().ends_with(b"\na\nb\n"));
    }

    #[test]
    fn a_directory_that_others_can_open_is_closed() {
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), Permissions::from_mode(0o755)).unwrap();
        AcmeFolder::open(&settings(parent.path())).unwrap();
        assert_eq!(mode(parent.path()), 0o700);
    }

    #[test]
    fn files_for_other_settings_are_not_read() {
        let parent = tempfile::tempdir().unwrap();
        let made = settings(parent.path());
        let folder = AcmeFolder::open(&made).unwrap();
        folder.keep_account(rcgen::KeyPair::generate().unwrap().serialized_der()).unwrap();
        folder.keep_certificate(b"a").unwrap();
        let check = |settings: AcmeSettings, account: bool, certificate: bool| {
            let folder = AcmeFolder::open(&settings).unwrap();
            let found =
                (folder.account().unwrap().is_some(), folder.certificate().unwrap().is_some());
            assert_eq!(found, (account, certificate), "{settings:?}");
        };
        check(made.clone(), true, true);
        check(AcmeSettings { domains: vec!["a.example".to_owned()], ..made.clone() }, true, false);
        check(AcmeSettings { contact: Vec::new(), ..made.clone() }, false, true);
        let directory = "https://other.example/dir".to_owned();
        check(AcmeSettings { directory, ..made }, false, false);
    }

    #[test]
    fn a_damaged_account_key_is_told_without_its_contents() {
        let parent = tempfile::tempdir().unwrap();
        let folder = AcmeFolder::open(&settings(parent.path())).unwrap();
        folder.write(ACCOUNT, &folder.account_head, b"-----BEGIN PRIVATE KEY-----\nc2Vj").unwrap();
        let problem = folder.account().unwrap_err();
        assert_eq!(
            problem.why,
            "is cut off: a section has no end: delete it to make another account"
        );
    }
}
