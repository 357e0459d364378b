//! The keys of the issuers of tokens, fetched again and again.
//!
//! One task an issuer: it waits until a fetch is due, or until a token with an unknown key asks for one,
//! fetches the document, and installs its keys. What asks meanwhile is answered by the same fetch, so that
//! made-up tokens cost the issuer one fetch each [`RefreshSettings::early_gap`] at most, however many they
//! are. A failed fetch changes nothing: the keys stay in use until they are older than `stale_max`.

use std::fmt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use wellhead_access::jwt::{
    BadJwks, IssuerIndex, JWKS_BYTES_MAX, Jwks, KeySource as TokenKeys, KeysInstalled, RefreshPlan,
    RefreshSettings,
};
use wellhead_net::{
    DocumentFetcher, Endpoint, FetchError, FetchLimits, FetchedDocument, Resolver, TlsClient,
};
use wellhead_proxy::IssuerStatus;
use wellhead_telemetry::SecretUrl;
use wellhead_transport::BoxFuture;

use super::IssuerKeys;
use crate::config::{Jwt, is_local};

/// From the name look-up to the last byte; also what the start waits for issuers at most.
const FETCH_TIME: Duration = Duration::from_secs(5);

/// Fetches the document once.
type JwksWay =
    Arc<dyn Fn() -> BoxFuture<'static, Result<FetchedDocument, FetchError>> + Send + Sync>;

/// An issuer whose keys are fetched.
pub(crate) struct JwksSource {
    /// Its claim `iss`.
    name: Arc<str>,
    issuer: IssuerIndex,
    /// How long its keys are used after the last fetch.
    stale_max: Duration,
    keys: IssuerKeys,
    /// Another one when its file of authorities has other certificates.
    way: Mutex<JwksWay>,
    /// Of the instants of `record`.
    epoch: Instant,
    record: Mutex<JwksRecord>,
}

/// What came of the fetches so far.
#[derive(Debug)]
struct JwksRecord {
    plan: RefreshPlan,
    counts: JwksCounts,
    /// Why the last one brought no keys, if it did not.
    trouble: Option<String>,
    /// Whether it was told that the keys are too old.
    told_stale: bool,
}

/// Fetches by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JwksCounts {
    /// They brought keys.
    pub(crate) fetched: u64,
    /// No document came.
    pub(crate) failed: u64,
    /// The document holds no keys.
    pub(crate) invalid: u64,
}

/// Why a fetch brought no keys.
#[derive(Debug, thiserror::Error)]
enum JwksTrouble {
    #[error(transparent)]
    Fetch(FetchError),
    #[error(transparent)]
    Document(BadJwks),
}

/// Those of the settings whose keys are fetched. `tls` makes a client that trusts a file of authorities,
/// or the public ones. `Err`: what is wrong with the settings.
pub(crate) fn jwks_sources(
    settings: &[Jwt],
    keys: &IssuerKeys,
    resolver: &Arc<Resolver>,
    mut tls: impl FnMut(Option<&Path>) -> Result<Arc<TlsClient>, String>,
) -> Result<Vec<Arc<JwksSource>>, Vec<String>> {
    let (mut sources, mut problems) = (Vec::new(), Vec::new());
    let issuers = keys.tokens.verifier().issuers().zip(settings).enumerate();
    for (place, (issuer, settings)) in issuers {
        let (TokenKeys::Fetched { stale_max }, Some(url)) = (&issuer.keys, &settings.jwks) else {
            continue;
        };
        let fetcher = tls(settings.ca_file.as_deref())
            .map_err(|problem| format!("jwks: {problem}"))
            .and_then(|tls| fetcher(url, resolver, &tls).map_err(|it| format!("jwks: {it}")));
        match fetcher {
            Ok(fetcher) => sources.push(Arc::new(JwksSource::new(
                Arc::clone(&issuer.issuer),
                IssuerIndex(place),
                *stale_max,
                keys.clone(),
                way_of(fetcher),
            ))),
            Err(problem) => problems.push(format!("access.jwt[{place}].{problem}")),
        }
    }
    if problems.is_empty() { Ok(sources) } else { Err(problems) }
}

fn fetcher(
    url: &SecretUrl,
    resolver: &Arc<Resolver>,
    tls: &TlsClient,
) -> Result<DocumentFetcher, String> {
    // Whoever can change the document on its way can make tokens.
    if url.expose().scheme() == "http" && !is_local(url.expose()) {
        return Err("the keys are not protected on their way: use an `https://` URL".to_owned());
    }
    let limits = FetchLimits { bytes_max: JWKS_BYTES_MAX, timeout: FETCH_TIME };
    let endpoint = Endpoint::new(url.clone());
    DocumentFetcher::new(&endpoint, limits, Arc::clone(resolver), tls, rand::random())
        .map_err(|error| error.to_string())
}

fn way_of(fetcher: DocumentFetcher) -> JwksWay {
    let fetcher = Arc::new(fetcher);
    Arc::new(move || {
        let fetcher = Arc::clone(&fetcher);
        Box::pin(async move { fetcher.fetch().await })
    })
}

/// A way to the keys of an issuer whose file of authorities has other certificates than before; not used yet.
pub(crate) struct ChangedWay {
    source: Arc<JwksSource>,
    way: JwksWay,
}

/// The ways to these sources whose authorities have changed, as `has_changed` says of a file. `settings` and `tls`
/// are as for [`jwks_sources`].
pub(crate) fn changed_ways(
    settings: &[Jwt],
    sources: &[Arc<JwksSource>],
    resolver: &Arc<Resolver>,
    has_changed: impl Fn(&Path) -> bool,
    mut tls: impl FnMut(Option<&Path>) -> Result<Arc<TlsClient>, String>,
) -> Result<Vec<ChangedWay>, Vec<String>> {
    let (mut changed, mut problems) = (Vec::new(), Vec::new());
    for source in sources {
        // The list of issuers stays as it is until a restart.
        let Some(Jwt { jwks: Some(url), ca_file: Some(file), .. }) = settings.get(source.issuer.0)
        else {
            continue;
        };
        if !has_changed(file) {
            continue;
        }
        let made = tls(Some(file)).and_then(|tls| fetcher(url, resolver, &tls));
        match made {
            Ok(made) => {
                changed.push(ChangedWay { source: Arc::clone(source), way: way_of(made) });
            }
            Err(problem) => problems.push(format!("{}: {problem}", source.setting())),
        }
    }
    if problems.is_empty() { Ok(changed) } else { Err(problems) }
}

impl ChangedWay {
    /// The setting that names the file.
    pub(crate) fn setting(&self) -> String {
        format!("{}.ca_file", self.source.setting())
    }

    /// Fetches this way from now on, and soon, so that the operator who replaced the file sees whether the new
    /// authorities are the right ones.
    pub(crate) fn begin(self) {
        *self.source.way.lock() = self.way;
        self.source.wanted().notify_one();
    }
}

impl fmt::Debug for ChangedWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangedWay").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Fetches the keys of all once, so that the first requests find them. Takes [`FETCH_TIME`] at most:
/// an issuer that is down must not keep other callers out.
pub(crate) async fn fetch_first(sources: &[Arc<JwksSource>]) {
    let mut fetches = JoinSet::new();
    for source in sources {
        let source = Arc::clone(source);
        fetches.spawn(async move { source.fetch(&mut SmallRng::from_os_rng()).await });
    }
    while fetches.join_next().await.is_some() {}
}

impl JwksSource {
    fn new(
        name: Arc<str>,
        issuer: IssuerIndex,
        stale_max: Duration,
        keys: IssuerKeys,
        way: JwksWay,
    ) -> Self {
        let plan = RefreshPlan::new(RefreshSettings { stale_max, ..RefreshSettings::default() });
        let record =
            JwksRecord { plan, counts: JwksCounts::default(), trouble: None, told_stale: false };
        let (epoch, record) = (Instant::now(), Mutex::new(record));
        Self { name, issuer, stale_max, keys, way: Mutex::new(way), epoch, record }
    }

    /// Its claim `iss`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where the settings have it.
    fn setting(&self) -> String {
        format!("access.jwt[{}]", self.issuer.0)
    }

    /// How its fetches ended.
    pub(crate) fn counts(&self) -> JwksCounts {
        self.record.lock().counts
    }

    /// How long ago keys came for the last time.
    pub(crate) fn age(&self) -> Option<Duration> {
        let came = self.record.lock().plan.succeeded_at()?;
        Some(self.epoch.elapsed().saturating_sub(came))
    }

    /// What `/status` tells of it.
    pub(crate) fn status(&self) -> IssuerStatus {
        IssuerStatus {
            name: self.name.to_string(),
            keys: self.usable_keys(),
            fetched_seconds_ago: self.age().map(|age| age.as_secs()),
            last_error: self.record.lock().trouble.clone(),
        }
    }

    /// Fetches when it is due or wanted, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut rng = SmallRng::from_os_rng();
        loop {
            self.wait().await;
            self.fetch(&mut rng).await;
        }
    }

    /// Until a fetch is due. Keys that become too old meanwhile are used no more.
    async fn wait(&self) {
        let mut is_asked = false;
        loop {
            let stale_at = self.stale_at().filter(|_| self.usable_keys() > 0);
            let too_old = async {
                match stale_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(self.due_at()) => return,
                // A token that asks from then on has nothing to add.
                () = self.wanted().notified(), if !is_asked => {
                    self.record.lock().plan.request_early(self.epoch.elapsed());
                    is_asked = true;
                }
                () = too_old => self.retire_old_keys(),
            }
        }
    }

    fn stale_at(&self) -> Option<Instant> {
        self.record.lock().plan.stale_at().map(|at| self.epoch + at)
    }

    /// Uses the keys no more, if they are too old by the clock of the fetches, which does not step.
    fn retire_old_keys(&self) {
        if self.record.lock().plan.is_stale(self.epoch.elapsed()) {
            self.keys.tokens.verifier().retire_keys(self.issuer);
        }
    }

    fn due_at(&self) -> Instant {
        self.epoch + self.record.lock().plan.due_at()
    }

    fn wanted(&self) -> &Notify {
        &self.keys.wanted[self.issuer.0]
    }

    fn usable_keys(&self) -> usize {
        self.keys.tokens.verifier().usable_keys(self.issuer)
    }

    /// Fetches the keys once, and installs them.
    async fn fetch(&self, rng: &mut SmallRng) {
        let way = Arc::clone(&self.way.lock());
        let document = way().await.map_err(JwksTrouble::Fetch);
        let parsed = document
            .and_then(|document| Jwks::parse(&document.body).map_err(JwksTrouble::Document));
        match parsed {
            Ok(jwks) => self.take(&jwks, rng),
            Err(trouble) => self.note(&trouble, rng),
        }
        // What asked while it was on its way is answered, as well as it can be for now.
        pin!(self.wanted().notified()).enable();
    }

    fn take(&self, jwks: &Jwks, rng: &mut SmallRng) {
        let installed = self.keys.tokens.verifier().install_keys(self.issuer, jwks);
        let had_trouble = {
            let mut record = self.record.lock();
            record.counts.fetched += 1;
            record.plan.record_success(self.epoch.elapsed(), rng);
            record.told_stale = false;
            record.trouble.take().is_some()
        };
        let (issuer, keys) = (self.name(), jwks.keys().len());
        match installed {
            KeysInstalled::Changed => {
                tracing::info!(issuer, keys, %jwks, "the keys of an issuer of tokens were taken");
            }
            KeysInstalled::Unchanged if had_trouble => {
                tracing::info!(
                    issuer,
                    keys,
                    "the keys of an issuer of tokens can be fetched again"
                );
            }
            KeysInstalled::Unchanged | KeysInstalled::Ignored => {}
        }
    }

    fn note(&self, trouble: &JwksTrouble, rng: &mut SmallRng) {
        let reason = trouble.to_string();
        self.retire_old_keys();
        let is_stale = self.usable_keys() == 0;
        let (is_news, valid_for) = {
            let mut record = self.record.lock();
            let now = self.epoch.elapsed();
            match trouble {
                JwksTrouble::Fetch(_) => record.counts.failed += 1,
                JwksTrouble::Document(_) => record.counts.invalid += 1,
            }
            record.plan.record_failure(now, rng);
            let is_news = record.trouble.as_ref() != Some(&reason) || record.told_stale != is_stale;
            record.trouble = Some(reason.clone());
            record.told_stale = is_stale;
            let came = record.plan.succeeded_at();
            (is_news, came.map(|came| self.stale_max.saturating_sub(now.saturating_sub(came))))
        };
        let (issuer, valid_s) = (self.name(), valid_for.unwrap_or_default().as_secs());
        match (is_news, is_stale) {
            (true, false) => tracing::warn!(
                issuer,
                %reason,
                valid_s,
                "the keys of an issuer of tokens could not be fetched; keeping those in use"
            ),
            (true, true) => tracing::error!(
                issuer,
                %reason,
                "the keys of an issuer of tokens could not be fetched, and there are none to use: its tokens are refused with 503"
            ),
            (false, _) => tracing::debug!(issuer, %reason, "the keys could not be fetched again"),
        }
    }
}

impl fmt::Debug for JwksSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JwksSource")
            .field("name", &self.name)
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
