//! An upstream that is studied: its settings, how it is reached, and what counts its calls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use wellhead_analyze::measure::client::{CallMeter, TargetEndpoint};
use wellhead_analyze::monitor::{MonitorTerms, SpendBounds};
use wellhead_eth::MethodTable;
use wellhead_proxy::ServedChain;
use wellhead_upstream::{Condition, Upstream};
use wellhead_watch::{CallReason, CheckCounts};

use super::record::StudyKey;
use crate::assemble::{Assembly, UpstreamReach};
use crate::config::{self, Study};
use crate::target::as_configured;

/// See the module. Made anew with each assembly.
#[derive(Debug)]
pub(super) struct StudiedUpstream {
    pub(super) chain: Arc<ServedChain>,
    pub(super) upstream: Arc<Upstream>,
    counts: Arc<CheckCounts>,
    reach: Arc<UpstreamReach>,
    settings: config::Upstream,
    study: Study,
}

/// Those of an assembly, in the order of the settings.
pub(super) fn studied(assembly: &Assembly) -> Vec<Arc<StudiedUpstream>> {
    let mut found = Vec::new();
    for ((_, settings), parts) in assembly.settings.chains.iter().zip(&assembly.chains) {
        let served = &parts.served;
        let upstreams = settings.upstreams.iter().zip(served.roster.upstreams()).enumerate();
        for (place, (settings, upstream)) in upstreams {
            let Some(study) = &settings.study else { continue };
            found.push(Arc::new(StudiedUpstream {
                chain: Arc::clone(served),
                upstream: Arc::clone(upstream),
                counts: Arc::clone(&served.asked[place]),
                reach: Arc::clone(&parts.upstreams[place].reach),
                settings: settings.clone(),
                study: study.clone(),
            }));
        }
    }
    found
}

impl StudiedUpstream {
    pub(super) fn key(&self) -> StudyKey {
        let chain = Arc::clone(&self.chain.name.name);
        StudyKey { chain, upstream: self.upstream.identity().id.to_string() }
    }

    /// Whether a study of `self` is one of `next` as well.
    pub(super) fn goes_on_as(&self, next: &Self) -> bool {
        self.key() == next.key()
            && Arc::ptr_eq(&self.reach, &next.reach)
            && self.study == next.study
            && self.settings.provider == next.settings.provider
    }

    /// Its part of the directory.
    pub(super) fn place(&self) -> PathBuf {
        self.study.place(&self.chain.name.name, &self.upstream.identity().id)
    }

    pub(super) fn terms(&self) -> MonitorTerms {
        let Study { calls_per_hour, calls_per_day, every, rate_max, rate_time, .. } = self.study;
        MonitorTerms {
            bounds: SpendBounds { per_hour: calls_per_hour, per_day: calls_per_day },
            every,
            rate_max: rate_max as f64,
            rate_lasting: rate_time,
        }
    }

    /// How it is called. Reads the files of certificates.
    pub(super) fn endpoint(&self) -> Result<TargetEndpoint, String> {
        let endpoint = as_configured(&self.settings)?;
        Ok(match self.settings.known_provider() {
            Some(provider) => endpoint.at_provider(provider),
            None => endpoint,
        })
    }

    /// Whether this replica is the one that studies it.
    pub(super) fn is_led(&self, now: Instant) -> bool {
        let id = self.upstream.identity().id.as_str();
        self.chain.pulse.peers().is_none_or(|peers| peers.leads(id, now))
    }

    /// Whether replicas tell each other of it.
    pub(super) fn is_shared(&self) -> bool {
        self.chain.pulse.peers().is_some()
    }

    /// Whether another upstream of the chain could take its calls.
    pub(super) fn has_other(&self, now: Instant) -> bool {
        let slot = self.upstream.slot();
        let mut others = self.chain.roster.upstreams().iter().filter(|it| it.slot() != slot);
        others.any(|it| it.condition(now) == Condition::Ready)
    }

    /// Attempts of clients' calls so far.
    pub(super) fn clients_attempts(&self) -> u64 {
        self.upstream.totals().0.saturating_sub(self.counts.total())
    }

    /// Whether these calls would cost no more than half of what a cap leaves.
    pub(super) fn can_afford(&self, calls: u64, now: Instant) -> bool {
        let row = MethodTable::standard().row("eth_blockNumber");
        let credits = calls.saturating_mul(self.upstream.price(row));
        let spending = self.upstream.spending(now);
        let caps = [(spending.caps.day, spending.day), (spending.caps.month, spending.month)];
        caps.into_iter().all(|(cap, spent)| {
            cap.is_none_or(|cap| credits <= cap.saturating_sub(spent.unwrap_or(0)) / 2)
        })
    }
}

/// Counts the calls of a study where the proxy counts its own.
#[derive(Debug)]
pub(super) struct StudyMeter(pub(super) Arc<ArcSwap<StudiedUpstream>>);

impl CallMeter for StudyMeter {
    fn sends(&self, method: &'static str) {
        let it = self.0.load();
        let row = MethodTable::standard().row(method);
        let credits = it.upstream.charge_study(row, wellhead_dispatch::now());
        it.counts.count(CallReason::Study, credits);
    }
}
