//! One certificate and key for all that take part in a run.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;

const NAME: &str = "localhost";

/// A certificate for `localhost` that nothing but this run trusts. ECDSA over P-256, as most are today.
#[derive(Debug)]
pub struct Certificate {
    folder: TempDir,
    der: CertificateDer<'static>,
    client: Arc<ClientConfig>,
}

fn client_that_trusts<'a>(
    certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate.clone()).expect("a certificate that we made");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(client)
}

impl Certificate {
    /// Makes one.
    ///
    /// # Panics
    /// When there is no room for three files.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).expect("a good name");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let folder = tempfile::tempdir().expect("there is room for a key");
        // HAProxy wants both in one file.
        for (name, text) in
            [("certificate", &certificate), ("key", &key), ("both", &format!("{certificate}{key}"))]
        {
            std::fs::write(folder.path().join(name), text).expect("the folder is ours");
        }
        let der = made.cert.der().clone();
        let client = client_that_trusts([&der]);
        Self { folder, der, client }
    }

    /// What a client that trusts each of these is set to.
    #[must_use]
    pub fn client_of(certificates: &[Self]) -> Arc<ClientConfig> {
        client_that_trusts(certificates.iter().map(|certificate| &certificate.der))
    }

    /// As a server shows it.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// What a client that trusts it is set to.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }

    /// A client's side of a connection that trusts it.
    ///
    /// # Errors
    /// When the library cannot begin a connection.
    ///
    /// # Panics
    /// Never: the name is a good one.
    pub fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        let name = ServerName::try_from(NAME).expect("a good name");
        ClientConnection::new(self.client(), name)
    }

    /// The file with the certificate, that with the key, and that with both.
    #[must_use]
    pub fn files(&self) -> [PathBuf; 3] {
        ["certificate", "key", "both"].map(|name| self.folder.path().join(name))
    }
}
