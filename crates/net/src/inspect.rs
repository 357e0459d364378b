//! One look at an endpoint, step by step: what its name leads to, whether a connection opens, which
//! certificate the peer shows, and what its clock says.
//!
//! For a person who looks for a fault: a report has what was seen before the step that failed, and the
//! certificate even if it was refused. Calls go by `http` and `ws`, which know nothing of this.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};
use wellhead_http1::answer;
use wellhead_telemetry::clock;
use wellhead_transport::TransportError;

use crate::dial::{
    DialStep, Dialer, Resolver, Stream, TlsClient, TlsSetupError, TrustedRoots, shake_hands,
};
use crate::endpoint::{Endpoint, EndpointError, HttpVersion, Prepared, Purpose};
use crate::identity::ClientIdentity;

/// The call whose answer has a `Date`: every upstream has it, and most providers charge nothing for it.
const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#;

/// What was seen, as far as it came.
#[derive(Debug, Clone, Default)]
pub struct EndpointReport {
    /// What the name leads to.
    pub addresses: Vec<SocketAddr>,
    /// The address that a connection was opened to.
    pub peer: Option<SocketAddr>,
    /// How long name, connection and handshake took together.
    pub took: Duration,
    /// What the peer showed under TLS.
    pub certificate: Option<ShownCertificate>,
    /// The peer's clock, by the `Date` of an answer over HTTP/1.1.
    pub clock: Option<PeerClock>,
    /// The step that failed. It does not say that a clock is missing.
    pub failure: Option<TransportError>,
}

/// The certificate of a peer.
#[derive(Debug, Clone)]
pub struct ShownCertificate {
    /// The first certificate of its chain.
    pub der: Vec<u8>,
    /// Why it is refused.
    pub fault: Option<CertificateFault>,
}

/// Why a certificate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateFault {
    /// Its time is over.
    Expired,
    /// Its time has not begun.
    NotYetValid,
    /// It leads to no trusted authority.
    UnknownIssuer,
    /// It is for another name.
    OtherName,
    /// Anything else.
    Other,
}

/// What the clock of a peer says, beside that of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerClock {
    /// How far this machine is ahead, to a second.
    pub ahead_seconds: i64,
    /// How long the answer took: the difference is no more exact than this.
    pub round_trip: Duration,
}

/// Why an endpoint cannot be looked at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// Its settings cannot be used.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The authorities cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsSetupError),
}

/// Looks at `endpoint`, whose URL may be of any scheme of ours, until `deadline` at most. A server that asks for a
/// certificate is shown that of `identity`.
///
/// # Errors
///
/// If there is nothing to look at; what is wrong with the peer is in the report.
pub async fn inspect(
    endpoint: &Endpoint,
    roots: TrustedRoots<'_>,
    identity: Option<&ClientIdentity>,
    resolver: Arc<Resolver>,
    deadline: Instant,
) -> Result<EndpointReport, InspectError> {
    let is_feed = matches!(endpoint.url.expose().scheme(), "ws" | "wss");
    let purpose = match is_feed {
        true => Purpose::Feed,
        false => Purpose::Calls { compression: Some(false) },
    };
    let prepared = Prepared::new(endpoint, purpose)?;
    // The dialer opens the connection alone; the handshake here keeps what it sees.
    let dialer = Dialer::new(&prepared, Arc::clone(&resolver), &TlsClient::new(roots)?, 0);
    let (config, witness) = witnessed(roots, identity)?;
    let mut report = EndpointReport::default();
    let (begun, mut step) = (Instant::now(), DialStep::LookUp);
    let looking = look(&prepared, &dialer, &config, deadline, &mut step, &mut report);
    let opened = match timeout_at(deadline, looking).await {
        Ok(opened) => opened,
        Err(_) => Err(step.timed_out()),
    };
    report.took = begun.elapsed();
    report.certificate = witness.shown.lock().take();
    match opened {
        Ok(stream) if !is_feed && prepared.version != HttpVersion::H2 => {
            report.clock = timeout_at(deadline, ask_date(&prepared, stream)).await.ok().flatten();
        }
        Ok(_) => {}
        Err(error) => report.failure = Some(error),
    }
    Ok(report)
}

async fn look(
    prepared: &Prepared,
    dialer: &Dialer,
    config: &Arc<ClientConfig>,
    deadline: Instant,
    step: &mut DialStep,
    report: &mut EndpointReport,
) -> Result<Stream, TransportError> {
    report.addresses = dialer.look_up().await?.to_vec();
    *step = DialStep::Tcp;
    let tcp = dialer.connect(&report.addresses, deadline).await?;
    report.peer = tcp.peer_addr().ok();
    if !prepared.secure {
        return Ok(Stream::Plain(tcp));
    }
    *step = DialStep::Tls;
    shake_hands(tcp, config, &prepared.server_name).await
}

/// Sends one call and reads the head of its answer.
async fn ask_date(prepared: &Prepared, mut stream: Stream) -> Option<PeerClock> {
    let mut request = prepared.h1_head.to_vec();
    request.extend_from_slice(CALL.len().to_string().as_bytes());
    request.extend_from_slice(b"\r\n\r\n");
    request.extend_from_slice(CALL);
    let begun = Instant::now();
    stream.write_all(&request).await.ok()?;
    stream.flush().await.ok()?;
    let mut bytes = Vec::new();
    // The reader of heads bounds their length.
    while stream.read_buf(&mut bytes).await.ok()? > 0 {
        if let Some(head) = answer::head(&bytes).ok()? {
            let date = std::str::from_utf8(head.date?).ok()?;
            let date = httpdate::parse_http_date(date.trim()).ok()?;
            let date = date.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
            let ahead = i128::from(clock::unix_seconds()) - i128::from(date);
            let ahead_seconds = i64::try_from(ahead).ok()?;
            return Some(PeerClock { ahead_seconds, round_trip: begun.elapsed() });
        }
    }
    None
}

/// Verifies as the transports do, and keeps what it was shown.
#[derive(Debug)]
struct CertificateWitness {
    verifier: Arc<WebPkiServerVerifier>,
    shown: Mutex<Option<ShownCertificate>>,
}

fn witnessed(
    roots: TrustedRoots<'_>,
    identity: Option<&ClientIdentity>,
) -> Result<(Arc<ClientConfig>, Arc<CertificateWitness>), TlsSetupError> {
    let library = |error: &dyn std::fmt::Display| TlsSetupError::Library(error.to_string());
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let store = Arc::new(roots.store()?);
    let verifier = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider))
        .build()
        .map_err(|error| library(&error))?;
    let witness = Arc::new(CertificateWitness { verifier, shown: Mutex::default() });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| library(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&witness) as Arc<dyn ServerCertVerifier>);
    let mut config = match identity {
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), witness))
}

impl ServerCertVerifier for CertificateWitness {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let fault = verified.as_ref().err().map(fault_of);
        *self.shown.lock() = Some(ShownCertificate { der: end_entity.to_vec(), fault });
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

fn fault_of(error: &Error) -> CertificateFault {
    let Error::InvalidCertificate(error) = error else { return CertificateFault::Other };
    // The library's list is open: what it adds is told by its words.
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            CertificateFault::Expired
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            CertificateFault::NotYetValid
        }
        CertificateError::UnknownIssuer => CertificateFault::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            CertificateFault::OtherName
        }
        _ => CertificateFault::Other,
    }
}
