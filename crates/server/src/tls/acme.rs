//! A certificate from an ACME server (RFC 8555), such as Let's Encrypt.
//!
//! `rustls-acme` runs one order at a time: account, proof, certificate. The proof is TLS-ALPN-01
//! (RFC 8737): the ACME server connects to port 443 of each domain, and the handshake there shows it a
//! certificate made for that purpose, so the listener needs no second port. When an order is due and
//! when a failed one is repeated is decided by the caller, because the library waits without an end for
//! an ACME server that does not answer, and repeats an order more often than Let's Encrypt allows.
//!
//! `kept` has the files.

mod kept;

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig};
use rustls_acme::acme::{AcmeError, AuthStatus, ChallengeType, OrderStatus};
use rustls_acme::{
    AccountCache, AcmeConfig, AcmeState, CertCache, EventError, EventOk, OrderError,
};
use zeroize::Zeroizing;

use super::files::{authorities, certified_in};
use super::{ClientFiles, Tls, TlsFile, TlsProblem, provider};
use crate::certificate::{certificate_end, certificate_start};
use kept::AcmeFolder;

/// What an ACME server that verifies a domain speaks, and no other client.
pub(super) const PROTOCOL: &[u8] = b"acme-tls/1";

/// An order is given up after this time. The proofs of many domains take about a second each.
const ORDER_TIME_MAX: Duration = Duration::from_secs(15 * 60);

/// Answers of the ACME server are shown up to here.
const ANSWER_CHARS_MAX: usize = 400;

/// Where a certificate is ordered, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeSettings {
    /// The names that the certificate is for.
    pub domains: Vec<String>,
    /// Where the ACME server may write to: `mailto:` and an address.
    pub contact: Vec<String>,
    /// The directory for the account key and the certificate.
    pub cache: PathBuf,
    /// The URL of the ACME server's directory.
    pub directory: String,
    /// The authorities that the ACME server itself is verified by, instead of the public ones (PEM).
    pub ca: Option<PathBuf>,
}

impl AcmeSettings {
    /// Everything that is wrong with the files. A cache that is missing is made at start.
    pub fn problems(&self) -> Vec<TlsProblem> {
        let cache = match std::fs::metadata(&self.cache) {
            Ok(found) if !found.is_dir() => {
                Some(self.cache_problem("is not a directory".to_owned()))
            }
            Ok(_) | Err(_) => None,
        };
        cache.into_iter().chain(self.client().err()).collect()
    }

    fn cache_problem(&self, why: String) -> TlsProblem {
        TlsProblem { file: TlsFile::AcmeCache, path: self.cache.clone(), why }
    }

    /// The client's side of connections to the ACME server; `None` stands for the public authorities.
    fn client(&self) -> Result<Option<ClientConfig>, TlsProblem> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let problem = |why| TlsProblem { file: TlsFile::AcmeAuthority, path: ca.clone(), why };
        let roots = authorities(ca).map_err(problem)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| problem(format!("cannot be used: {error}")))?;
        Ok(Some(builder.with_root_certificates(roots).with_no_client_auth()))
    }
}

/// The certificate of a listener, as an ACME server issues it.
#[derive(Debug)]
pub(super) struct AcmeCertificate {
    settings: AcmeSettings,
    clients: Option<ClientFiles>,
    folder: AcmeFolder,
    /// Shows the ACME server the proof of a domain, while a certificate is on order.
    challenge: ArcSwapOption<ServerConfig>,
}

impl AcmeCertificate {
    /// Makes the cache if it is missing.
    pub(super) fn open(
        settings: AcmeSettings,
        clients: Option<ClientFiles>,
    ) -> Result<Self, TlsProblem> {
        settings.client()?;
        let folder = AcmeFolder::open(&settings)
            .map_err(|error| settings.cache_problem(format!("cannot be used: {error}")))?;
        Ok(Self { settings, clients, folder, challenge: ArcSwapOption::empty() })
    }

    pub(super) fn clients(&self) -> Option<&ClientFiles> {
        self.clients.as_ref()
    }

    pub(super) fn challenge(&self) -> Option<Arc<ServerConfig>> {
        self.challenge.load_full()
    }

    /// The certificate that is kept from earlier.
    pub(super) fn kept(&self, provider: &CryptoProvider) -> Option<Arc<CertifiedKey>> {
        let pem = self.folder.certificate().unwrap_or_else(|problem| {
            tracing::warn!(%problem, "the TLS certificate that was kept cannot be read; another will be ordered");
            None
        })?;
        match certified_in(&pem, provider) {
            Ok(certified) => Some(Arc::new(certified)),
            Err(why) => {
                let problem = self.folder.certificate_problem(why);
                tracing::warn!(%problem, "the TLS certificate that was kept cannot be used; another will be ordered");
                None
            }
        }
    }

    pub(super) fn unusable(&self, error: &rustls::Error) -> TlsProblem {
        self.folder.certificate_problem(format!("cannot be served: {error}"))
    }
}

/// A certificate that was issued, and is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeIssue {
    /// Why it could not be kept for the next start; a restart will order another.
    pub not_kept: Option<TlsProblem>,
}

/// Why no certificate was issued. Tells nothing of the account key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AcmeFailure {
    /// The ACME server cannot be reached, or has no answer for now: worth repeating soon.
    #[error("the ACME server is unavailable: {0}")]
    Unavailable(String),
    /// The ACME server will not issue it: a domain does not lead here, or a limit is reached. Each
    /// repetition counts in the limits of the ACME server.
    #[error("the ACME server refused: {0}")]
    Refused(String),
    /// A file of ours cannot be read or written.
    #[error("{0}")]
    File(#[from] TlsProblem),
}

/// Orders the certificate of a listener, one order at a time.
#[derive(Debug)]
pub struct AcmeOrders {
    tls: Arc<Tls>,
    acme: Arc<AcmeCertificate>,
}

impl AcmeOrders {
    pub(super) fn new(tls: Arc<Tls>, acme: Arc<AcmeCertificate>) -> Self {
        Self { tls, acme }
    }

    /// The names that the certificate is for.
    pub fn domains(&self) -> &[String] {
        &self.acme.settings.domains
    }

    /// The last moment at which the certificate in use is valid, since 1970; `None` without one.
    pub fn end(&self) -> Option<Duration> {
        let current = self.tls.current.load();
        certificate_end(current.material.certified.as_ref()?.cert.first()?)
    }

    /// When the next certificate should be ordered, since 1970: after two thirds of the validity of
    /// the one in use, at once without one.
    pub fn due(&self) -> Duration {
        let current = self.tls.current.load();
        let own = current.material.certified.as_ref().and_then(|it| it.cert.first());
        let validity = own.and_then(|own| Some((certificate_start(own)?, certificate_end(own)?)));
        validity.map_or(Duration::ZERO, |(start, end)| start + end.saturating_sub(start) * 2 / 3)
    }

    /// Orders a certificate, which new connections get. Takes at most 15 minutes.
    pub async fn order(&self) -> Result<AcmeIssue, AcmeFailure> {
        let challenge = &self.acme.challenge;
        let (cache, mut state) = self.begin().await?;
        challenge.store(Some(state.challenge_rustls_config_with_provider(provider())));
        let _ends = ChallengeGuard(challenge);
        let ordered = tokio::time::timeout(ORDER_TIME_MAX, self.run(&cache, &mut state)).await;
        let minutes = ORDER_TIME_MAX.as_secs() / 60;
        ordered.unwrap_or_else(|_| {
            Err(AcmeFailure::Unavailable(format!("no certificate within {minutes} minutes")))
        })
    }

    /// Reads the files and prepares an order.
    async fn begin(&self) -> Result<(OrderCache, AcmeState<Infallible, Infallible>), AcmeFailure> {
        let acme = Arc::clone(&self.acme);
        let read = on_disk(move || Ok((acme.settings.client()?, acme.folder.account()?)));
        let (client, account) = read.await?;
        let settings = &self.acme.settings;
        let cache = OrderCache::default();
        cache.0.lock().account = account;
        let config = match client {
            Some(client) => AcmeConfig::new_with_client_config(&settings.domains, Arc::new(client)),
            None => AcmeConfig::new_with_provider(&settings.domains, provider()),
        };
        let config = config.directory(&settings.directory).contact(&settings.contact);
        let state = config.cache(cache.clone()).state();
        Ok((cache, state))
    }

    /// Follows an order to its end.
    async fn run(
        &self,
        cache: &OrderCache,
        state: &mut AcmeState<Infallible, Infallible>,
    ) -> Result<AcmeIssue, AcmeFailure> {
        loop {
            let Some(event) = state.next().await else {
                return Err(AcmeFailure::Unavailable("the order ended early".to_owned()));
            };
            match event {
                // Each certificate is taken when the library hands it over to be kept.
                Ok(EventOk::DeployedNewCert | EventOk::DeployedCachedCert) => {}
                Ok(EventOk::AccountCacheStore) => self.keep_account(cache).await?,
                Ok(EventOk::CertCacheStore) => return self.take_certificate(cache).await,
                Err(EventError::Order(error)) => return Err(failure(error)),
                Err(EventError::NewCertParse(error) | EventError::CachedCertParse(error)) => {
                    let why = format!("its certificate cannot be read: {}", shown(&error));
                    return Err(AcmeFailure::Unavailable(why));
                }
                Err(
                    EventError::CertCacheLoad(never)
                    | EventError::AccountCacheLoad(never)
                    | EventError::CertCacheStore(never)
                    | EventError::AccountCacheStore(never),
                ) => match never {},
            }
        }
    }

    /// Keeps a new account key before it is used: with each key that is lost the ACME server would
    /// count another account.
    async fn keep_account(&self, cache: &OrderCache) -> Result<(), AcmeFailure> {
        let Some(key) = cache.0.lock().account.clone() else { return Ok(()) };
        let acme = Arc::clone(&self.acme);
        on_disk(move || Ok(acme.folder.keep_account(&key)?)).await
    }

    async fn take_certificate(&self, cache: &OrderCache) -> Result<AcmeIssue, AcmeFailure> {
        let Some(pem) = cache.0.lock().issued.take() else {
            return Err(AcmeFailure::Unavailable("its certificate is missing".to_owned()));
        };
        let bad = |why| AcmeFailure::Unavailable(format!("its answer {why}"));
        let certified = certified_in(&pem, &provider()).map_err(bad)?;
        self.tls.install(certified).map_err(|error| bad(format!("cannot be served: {error}")))?;
        let acme = Arc::clone(&self.acme);
        match on_disk(move || Ok(acme.folder.keep_certificate(&pem)?)).await {
            Ok(()) => Ok(AcmeIssue { not_kept: None }),
            Err(AcmeFailure::File(problem)) => Ok(AcmeIssue { not_kept: Some(problem) }),
            Err(other) => Err(other),
        }
    }
}

/// Runs what reads or writes files: the disk may hang.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AcmeFailure> + Send + 'static,
) -> Result<T, AcmeFailure> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(AcmeFailure::Unavailable(error.to_string())))
}

/// Ends the proof of domains with the order, however that ends.
struct ChallengeGuard<'a>(&'a ArcSwapOption<ServerConfig>);

impl Drop for ChallengeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(None);
    }
}

/// Where the library and an order hand keys and certificates to each other.
#[derive(Clone, Default)]
struct OrderCache(Arc<Mutex<OrderCacheContent>>);

#[derive(Default)]
struct OrderCacheContent {
    account: Option<Zeroizing<Vec<u8>>>,
    issued: Option<Zeroizing<Vec<u8>>>,
}

#[async_trait]
impl CertCache for OrderCache {
    type EC = Infallible;

    /// None, because this is an order for the next one.
    async fn load_cert(&self, _: &[String], _: &str) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(None)
    }

    async fn store_cert(&self, _: &[String], _: &str, pem: &[u8]) -> Result<(), Infallible> {
        self.0.lock().issued = Some(Zeroizing::new(pem.to_vec()));
        Ok(())
    }
}

#[async_trait]
impl AccountCache for OrderCache {
    type EA = Infallible;

    async fn load_account(&self, _: &[String], _: &str) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.lock().account.as_ref().map(|key| key.to_vec()))
    }

    async fn store_account(&self, _: &[String], _: &str, key: &[u8]) -> Result<(), Infallible> {
        self.0.lock().account = Some(Zeroizing::new(key.to_vec()));
        Ok(())
    }
}

/// What a failed order means.
fn failure(error: OrderError) -> AcmeFailure {
    match error {
        OrderError::Acme(AcmeError::HttpRequest(error)) => answered(&error.to_string()),
        OrderError::Acme(AcmeError::NoTlsAlpn01Challenge) => AcmeFailure::Refused(
            "it does not offer TLS-ALPN-01, the only proof that wellhead gives".to_owned(),
        ),
        OrderError::Acme(AcmeError::KeyRejected(_)) => AcmeFailure::Unavailable(
            "its account key in `cache` cannot be used: delete it".to_owned(),
        ),
        OrderError::BadAuth(proof) => {
            let mut challenges = proof.challenges.into_iter();
            let ours = challenges.find(|it| it.typ == ChallengeType::TlsAlpn01);
            let detail = ours.and_then(|it| it.error).and_then(|problem| problem.detail);
            let why = match (proof.status, detail) {
                (_, Some(detail)) => detail,
                (AuthStatus::Expired, None) => "the proof of the domain expired".to_owned(),
                (_, None) => "the proof of the domain failed".to_owned(),
            };
            let rustls_acme::acme::Identifier::Dns(domain) = proof.identifier;
            AcmeFailure::Refused(shown(&format_args!("`{domain}`: {why}")))
        }
        OrderError::BadOrder(order) => {
            let detail = order.error.and_then(|problem| problem.detail);
            let why = match order.status {
                OrderStatus::Invalid => "the order is invalid",
                OrderStatus::Pending
                | OrderStatus::Ready
                | OrderStatus::Processing
                | OrderStatus::Valid { .. } => "the order is in an unknown state",
            };
            AcmeFailure::Refused(shown(&detail.as_deref().unwrap_or(why)))
        }
        OrderError::TooManyAttemptsAuth(domain) => AcmeFailure::Refused(shown(&format_args!(
            "`{domain}`: its proof is still not verified"
        ))),
        OrderError::ProcessingTimeout(_) => {
            AcmeFailure::Unavailable("the order is still being processed".to_owned())
        }
        OrderError::Rcgen(error) => AcmeFailure::Unavailable(shown(&error)),
        OrderError::Acme(error) => AcmeFailure::Unavailable(shown(&error)),
    }
}

/// What a failed request means, by the library's words: its type has no name outside of the library.
fn answered(text: &str) -> AcmeFailure {
    let status = text.strip_prefix("non 2xx http status: ").and_then(|rest| rest.split(' ').next());
    let is_refusal = status.is_some_and(|status| status.len() == 3 && status.starts_with('4'));
    // Another nonce is fetched for the next order.
    if is_refusal && !text.contains("urn:ietf:params:acme:error:badNonce") {
        return AcmeFailure::Refused(shown(&text));
    }
    AcmeFailure::Unavailable(shown(&text))
}

/// A text of the ACME server or the library for one line of a log.
fn shown(text: &impl fmt::Display) -> String {
    let text = text.to_string().replace("\\n", " ").replace("\\\"", "\"");
    let words: Vec<&str> = text.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    let line = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(ANSWER_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(text: &str) -> bool {
        match answered(text) {
            AcmeFailure::Refused(_) => true,
            AcmeFailure::Unavailable(_) | AcmeFailure::File(_) => false,
        }
    }

    #[test]
    fn what_a_status_means() {
        for (text, refused) in [
            (r#"non 2xx http status: 403 "{}""#, true),
            (
                r#"non 2xx http status: 429 "{\"type\":\"urn:ietf:params:acme:error:rateLimited\"}""#,
                true,
            ),
            (
                r#"non 2xx http status: 400 "{\"type\":\"urn:ietf:params:acme:error:badNonce\"}""#,
                false,
            ),
            (r#"non 2xx http status: 503 """#, false),
            ("io error: Os { code: 111 }", false),
        ] {
            assert_eq!(is_refused(text), refused, "{text}");
        }
    }

    #[test]
    fn answers_are_shown_in_one_short_line() {
        assert_eq!(shown(&"a\n  b\\nc \\\"d\\\"\u{1b}[0m"), "a b c \"d\" [0m");
        assert_eq!(shown(&"é".repeat(500)).chars().count(), ANSWER_CHARS_MAX + 3);
    }
}
