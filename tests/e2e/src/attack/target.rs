//! The real binary, put before the upstreams that an attack wants.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;

use super::play::Subject;
use super::refusal::secret_fields;
use super::upstream::{CHAIN_ID, Upstream};
use super::{Attack, Place, Scale};
use crate::Wellhead;

/// A certificate for `localhost` that nothing but this run trusts.
#[derive(Debug)]
pub struct Certificate {
    folder: TempDir,
    client: Arc<ClientConfig>,
}

impl Certificate {
    /// Makes one, with ECDSA over P-256.
    ///
    /// # Panics
    /// When there is no room for two files.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
        let made = made.expect("a good name");
        let folder = tempfile::tempdir().expect("there is room for a key");
        for (name, text) in
            [("certificate", made.cert.pem()), ("key", made.signing_key.serialize_pem())]
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

    /// The files with the certificate and with its key.
    #[must_use]
    pub fn files(&self) -> [PathBuf; 2] {
        ["certificate", "key"].map(|name| self.folder.path().join(name))
    }

    /// Trusts it.
    #[must_use]
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

/// Starts wellhead with default settings for this attack, and waits until it serves.
pub async fn wellhead(
    attack: &Attack,
    [hostile, well]: [&Upstream; 2],
    certificate: &Certificate,
    scale: Scale,
) -> (Wellhead, Subject) {
    let one =
        |id: &str, url: &str, more: &str| format!("      - {{ id: {id}, url: \"{url}\"{more} }}\n");
    let (more, upstreams) = match attack.place {
        Place::Plain => (String::new(), one("a", &hostile.url(), "")),
        Place::FewConnections => {
            let few = scale == Scale::Short;
            let limits = if few { "limits: { connections: 200 }" } else { "" };
            (limits.to_owned(), one("a", &hostile.url(), ""))
        }
        Place::Tls => {
            let [certificate, key] = certificate.files();
            let (certificate, key) = (certificate.display(), key.display());
            let tls = format!("tls: {{ certificate: \"{certificate}\", key: \"{key}\" }}");
            (tls, one("a", &hostile.url(), ""))
        }
        Place::Secrets => {
            let (url, fields) = secret_fields(&hostile.url());
            (String::new(), one("a", &url, &format!(", {fields}")))
        }
        Place::Two | Place::TwoHttp2 => {
            let http = if attack.place == Place::TwoHttp2 { ", http: \"2\"" } else { "" };
            let both = one("hostile", &hostile.url(), http) + &one("well", &well.url(), "");
            (String::new(), both)
        }
    };
    let chain = format!("  main:\n    id: {CHAIN_ID}\n    upstreams:\n{upstreams}");
    let wellhead = Wellhead::spawn(&more, &chain).ready().await;
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, wellhead.port));
    let tls = (attack.place == Place::Tls).then(|| certificate.client());
    let subject = Subject { pid: wellhead.process.pid(), target, http2: target, tls };
    (wellhead, subject)
}
