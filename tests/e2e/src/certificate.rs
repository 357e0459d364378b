//! One certificate and key for all that take part in a run.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;
use tempfile::TempDir;

const NAME: &str = "localhost";

/// A certificate for `localhost` that nothing but this run trusts. ECDSA over P-256, as most are today.
#[derive(Debug)]
pub struct Certificate {
    folder: TempDir,
    client: Arc<ClientConfig>,
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
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("it was just made");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { folder, client: Arc::new(client) }
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
