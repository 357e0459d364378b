//! Let's Encrypt's ACME server for tests, and a name server that sends all domains to this machine.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::free_port;
use crate::process::{Process, tool};
use crate::{Certificate, until};

/// Far more than it needs, for a machine that is busy.
const READY_MAX: Duration = Duration::from_secs(20);

/// Where a pebble will be. It does not run yet, or no more.
#[derive(Debug)]
pub struct PebbleSite {
    port: u16,
    management_port: u16,
    /// What the pebble itself is trusted by.
    certificate: Certificate,
    folder: TempDir,
}

/// A running pebble.
#[derive(Debug)]
pub struct Pebble {
    /// The program that runs.
    pub process: Process,
    /// Trusts what it issues, and nothing else.
    pub client: Arc<ClientConfig>,
    _names: Process,
}

impl PebbleSite {
    /// A domain that it refuses.
    pub const REFUSED: &str = "refused.example.org";

    /// Chooses its ports.
    ///
    /// # Panics
    /// When there is no room for its files.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it writes files")]
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("there is room for a config");
        let (port, management_port) = (free_port(), free_port());
        Self { port, management_port, certificate: Certificate::new(), folder }
    }

    /// The settings of an ACME client that orders here, as they stand in wellhead's config.
    #[must_use]
    pub fn settings(&self) -> String {
        let [ca, _, _] = self.certificate.files();
        format!("directory: \"https://localhost:{}/dir\", ca: {}", self.port, ca.display())
    }

    /// Starts it. It verifies domains at `tls_port` of this machine, and issues certificates that are
    /// valid for `validity`.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start(&self, tls_port: u16, validity: Duration) -> Pebble {
        let (names, names_port) = self.start_names();
        let [certificate, key, _] = self.certificate.files();
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management_port),
            "certificate": certificate, "privateKey": key,
            "httpPort": 1, "tlsPort": tls_port,
            "domainBlocklist": [Self::REFUSED],
            "keyAlgorithm": "ecdsa",
            "profiles": { "default": { "description": "", "validityPeriod": validity.as_secs() } },
        }});
        let file = self.folder.path().join("pebble.json");
        std::fs::write(&file, config.to_string()).expect("the folder is ours");
        let resolver = format!("127.0.0.1:{names_port}");
        let file = file.display().to_string();
        // Domains are verified at once, and each nonce is good: it would refuse one of twenty.
        let mut command: Vec<String> =
            ["env", "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0"].map(str::to_owned).to_vec();
        command.extend([tool("pebble"), "-strict".into(), "-config".into(), file]);
        command.extend(["-dnsserver".into(), resolver]);
        let process = Process::start(&command, self.folder.path().join("log"));
        let Some(client) = until(READY_MAX, || self.root()).await else {
            panic!("pebble does not answer:\n{}", process.log());
        };
        Pebble { process, client, _names: names }
    }

    fn start_names(&self) -> (Process, u16) {
        let port = free_port();
        let mut command = vec![tool("pebble-challtestsrv")];
        for (flag, value) in [
            ("dnsserver", format!("127.0.0.1:{port}")),
            ("management", format!("127.0.0.1:{}", free_port())),
            ("defaultIPv6", String::new()),
            ("http01", String::new()),
            ("https01", String::new()),
            ("tlsalpn01", String::new()),
            ("doh", String::new()),
        ] {
            command.extend([format!("-{flag}"), value]);
        }
        (Process::start(&command, self.folder.path().join("names-log")), port)
    }

    /// A client that trusts what it issues.
    async fn root(&self) -> Option<Arc<ClientConfig>> {
        let client = self.certificate.client();
        let get = "GET /roots/0 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
        let reply = https(client, "localhost", self.management_port, get).await.ok()?;
        let root = CertificateDer::from_pem_slice(reply.text.as_bytes()).ok()?;
        let mut roots = RootCertStore::empty();
        roots.add(root).ok()?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let mut client = builder.with_root_certificates(roots).with_no_client_auth();
        // A session that is resumed has the certificate under which it began.
        client.resumption = Resumption::disabled();
        Some(Arc::new(client))
    }
}

/// What came back over TLS.
#[derive(Debug)]
pub struct HttpsReply {
    /// The certificate of the server, which the client trusts.
    pub certificate: CertificateDer<'static>,
    /// Head and body.
    pub text: String,
}

/// Sends a request of HTTP/1.1, which asks to close the connection, to a port of the loopback that is
/// called `name`.
///
/// # Errors
/// When there is no handshake, or no answer.
pub async fn https(
    client: Arc<ClientConfig>,
    name: &str,
    port: u16,
    request: &str,
) -> io::Result<HttpsReply> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut stream = TlsConnector::from(client).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificate = chain.first().cloned().ok_or(io::ErrorKind::InvalidData)?.into_owned();
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(HttpsReply { certificate, text })
}
