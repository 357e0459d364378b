//! One chain as the proxy serves it: its settings, and all that is remembered of it.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use wellhead_cache::{Assurance, Scrutiny};
use wellhead_chain::Heads;
use wellhead_dispatch::{Bounds, Inspect, Trail};
use wellhead_eth::MethodRow;
use wellhead_route::{NotServed, Roster, TEST_CHAINS};
use wellhead_subscribe::SavedFilter;
use wellhead_upstream::{Slot, UpstreamSet};
use wellhead_watch::{ChainWord, CheckCounts, Pulse};

use crate::state::by_hash::ByHash;
use crate::state::cache::{Cache, Shares};
use crate::state::counts::{CacheResult, Counts};
use crate::state::filter_store::{ChainFilterStore, FilterStore};
use crate::state::hopeless::Hopeless;
use crate::state::quorums::{QuorumRule, Quorums};
use crate::state::sent::SentTransactions;
use crate::state::sessions::Sessions;
use crate::state::streams::ChainStreams;
use crate::state::subscriptions::ChainSubscriptions;
use crate::state::verify::{Verifier, VerifyPool, VerifySettings};
use crate::state::virtual_filters::ChainFilters;

/// What a chain is called in a path: its name and its other names.
#[derive(Debug, Clone)]
pub struct ChainName {
    /// The name of the settings.
    pub name: Arc<str>,
    /// Other names that lead here.
    pub aliases: Vec<String>,
}

/// How far searches may be divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchBounds {
    /// Calls that one search may be made of, with those that were refused, retries and second
    /// opinions; with one it is never divided.
    pub calls_max: usize,
    /// Those under way at a time, at least one.
    pub parallel: usize,
}

impl Default for SearchBounds {
    fn default() -> Self {
        Self { calls_max: 100, parallel: 4 }
    }
}

/// Whose version clients hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientVersion {
    /// That of wellhead alone.
    Own,
    /// That of the first upstream that is ready, followed by that of wellhead.
    #[default]
    Upstream,
}

/// Everything that serving one chain needs. Shared by all workers.
#[derive(Debug)]
pub struct ServedChain {
    /// What it is called.
    pub name: ChainName,
    /// Its upstreams, and the methods that each serves.
    pub roster: Roster,
    /// Its view.
    pub heads: Arc<Heads>,
    /// What the loops and the requests tell each other.
    pub pulse: Arc<Pulse>,
    /// The calls made on our own behalf, in the order of the roster.
    pub asked: Vec<Arc<CheckCounts>>,
    /// How long and how often.
    pub bounds: Bounds,
    /// How far searches over many blocks may be divided.
    pub search: SearchBounds,
    /// Whether tags are replaced by the numbers of the agreed blocks, and each client is
    /// answered at what it was shown.
    pub pins: bool,
    /// Whose version clients hear.
    pub(crate) client_version: ClientVersion,
    /// Which methods several upstreams must answer alike.
    pub(crate) quorums: Quorums,
    /// What it keeps and shares, if anything.
    pub(crate) shares: Option<Shares>,
    /// Whether states may be asked for by the hash of their block.
    pub(crate) by_hash: Arc<ByHash>,
    /// What clients were shown.
    pub(crate) sessions: Arc<Sessions>,
    /// What they sent.
    pub(crate) sent: Arc<SentTransactions>,
    /// Checks answers, if `verify` is on.
    pub(crate) verifier: Option<Arc<Verifier>>,
    /// What subscribers read.
    pub(crate) subscriptions: Arc<ChainSubscriptions>,
    /// The filters that clients made.
    pub(crate) filters: Arc<ChainFilters>,
    head_changes: watch::Sender<()>,
    /// What they read beside the chain's blocks.
    pub(crate) streams: Arc<ChainStreams>,
    /// Searches that take too many calls.
    pub(crate) hopeless: Arc<Hopeless>,
    counts: Counts,
}

impl ServedChain {
    /// Puts the parts together.
    pub fn new(
        name: ChainName,
        roster: Roster,
        heads: Arc<Heads>,
        pulse: Arc<Pulse>,
        asked: Vec<Arc<CheckCounts>>,
        bounds: Bounds,
    ) -> Self {
        let counts = Counts::new(roster.slots());
        let by_hash = Arc::new(ByHash::new());
        let subscriptions = Arc::<ChainSubscriptions>::default();
        let streams = Arc::new(ChainStreams::new(Arc::clone(pulse.relays())));
        let head_changes = watch::Sender::new(());
        heads.on_latest({
            let (subscriptions, changes) = (Arc::clone(&subscriptions), head_changes.clone());
            let pulse = Arc::clone(&pulse);
            move |view| {
                if let (Some(peers), Some(latest)) = (pulse.peers(), view.latest) {
                    peers.tell(ChainWord::Latest(latest.number.0));
                }
                subscriptions.note_head();
                changes.send_replace(());
            }
        });
        Self {
            name,
            roster,
            heads,
            pulse,
            asked,
            bounds,
            search: SearchBounds::default(),
            pins: false,
            client_version: ClientVersion::default(),
            quorums: Quorums::default(),
            shares: None,
            by_hash,
            sessions: Arc::default(),
            sent: Arc::default(),
            verifier: None,
            subscriptions,
            filters: Arc::default(),
            head_changes,
            streams,
            hopeless: Arc::default(),
            counts,
        }
    }

    /// The chain after its settings changed: `self` has the new ones, and goes on with all that `old` remembers.
    /// Both have the same heads and the same pulse. The upstreams in the slots that are `kept` stayed what they are.
    #[must_use]
    pub fn succeeding(self, old: &Self, kept: UpstreamSet) -> Self {
        debug_assert!(Arc::ptr_eq(&self.heads, &old.heads), "one chain has one view");
        let verifier = match (self.verifier, &old.verifier) {
            (Some(verifier), Some(old)) => {
                Some(Arc::new(Arc::unwrap_or_clone(verifier).succeeding(old)))
            }
            (verifier, _) => verifier,
        };
        let shares = match (self.shares, &old.shares) {
            (Some(shares), Some(old)) => Some(shares.succeeding(old)),
            (shares, _) => shares,
        };
        Self {
            by_hash: Arc::clone(&old.by_hash),
            sessions: Arc::clone(&old.sessions),
            sent: Arc::clone(&old.sent),
            subscriptions: Arc::clone(&old.subscriptions),
            filters: Arc::clone(&old.filters),
            head_changes: old.head_changes.clone(),
            streams: Arc::clone(&old.streams),
            hopeless: Arc::clone(&old.hopeless),
            counts: self.counts.succeeding(&old.counts, kept),
            verifier,
            shares,
            ..self
        }
    }

    /// Forgets what is known of upstreams in other slots than those that are `kept`, at the begin of other settings.
    pub fn keep(&self, kept: UpstreamSet) {
        self.by_hash.keep(kept);
    }

    /// Ends what clients are subscribed to, because the chain is no longer served: their connections are closed.
    pub fn end_subscriptions(&self) {
        self.subscriptions.close();
        self.streams.published.tell();
    }

    /// The calls made on our own behalf to the upstream in `slot`.
    pub(crate) fn asked(&self, slot: Slot) -> &CheckCounts {
        &self.asked[self.roster.place(slot)]
    }

    /// With these bounds on how far searches are divided.
    #[must_use]
    pub fn searching(self, search: SearchBounds) -> Self {
        Self { search, ..self }
    }

    /// Whether tags are replaced by the numbers of the agreed blocks; by default they are not.
    #[must_use]
    pub fn pinning(self, pins: bool) -> Self {
        Self { pins, ..self }
    }

    /// With the version that clients hear; by default an upstream's.
    #[must_use]
    pub fn naming(self, client_version: ClientVersion) -> Self {
        Self { client_version, ..self }
    }

    /// With methods that several upstreams must answer alike; by default one is enough.
    #[must_use]
    pub fn agreeing_on(self, rules: &[QuorumRule]) -> Self {
        Self { quorums: Quorums::new(rules), ..self }
    }

    /// With answers kept here, and, where there is a seed for them, identical calls shared; by
    /// default neither is. The seed is a secret, as that of [`Cache::new`].
    #[must_use]
    pub fn sharing(self, cache: Option<Arc<Cache>>, calls: Option<u64>) -> Self {
        Self { shares: Shares::new(cache, calls), ..self }
    }

    /// With answers looked at as these settings say, those that take long in `pool`; by default
    /// none are. What it reaches them with has to be told: [`ServedChain::inspector`].
    #[must_use]
    pub fn verifying(self, settings: &VerifySettings, pool: Arc<VerifyPool>) -> Self {
        let verifier = Verifier::new(settings, Arc::clone(&self.pulse), pool);
        Self { verifier: verifier.map(Arc::new), ..self }
    }

    /// Tells upstreams' loops whether something subscribes: while something does the chain is in use,
    /// though no client calls.
    pub(crate) fn note_demand(&self, now: Instant) {
        let is_subscribed = self.subscriptions.count() > 0 || self.streams.wants_syncing();
        self.pulse.note_subscribed(is_subscribed, now);
    }

    /// What inspects answers, for the workers' upstreams of this chain.
    pub fn inspector(&self) -> Option<Arc<dyn Inspect>> {
        let verifier = self.verifier.as_ref()?;
        Some(Arc::clone(verifier) as Arc<dyn Inspect>)
    }

    /// Where answers are kept.
    pub(crate) fn cache(&self) -> Option<&Arc<Cache>> {
        self.shares.as_ref()?.cache.as_ref()
    }

    /// What has to stand behind an answer to this method that was kept: as much as behind one
    /// that any of the upstreams would give now.
    pub(crate) fn required(&self, row: &MethodRow) -> Assurance {
        let scrutiny = self.verifier.as_ref().map_or(Scrutiny::None, |it| it.required(row));
        let agreed = self.quorums.of(row).map_or(1, |quorum| votes(quorum.agree));
        Assurance { scrutiny, agreed }
    }

    /// What stands behind an answer that came of these attempts.
    pub(crate) fn assurance(&self, row: &MethodRow, trail: &Trail) -> Assurance {
        let scrutiny = self.verifier.as_ref().map_or(Scrutiny::None, |it| it.made(row, trail));
        let agreed = trail.heard.map_or(1, |heard| votes(heard.agreed));
        Assurance { scrutiny, agreed }
    }

    /// What stands behind an answer to a call that this upstream was sent once, judged by this
    /// rule.
    pub(crate) fn assurance_of(
        &self,
        row: &MethodRow,
        slot: Slot,
        rule: &'static str,
    ) -> Assurance {
        let verifier = self.verifier.as_ref();
        let scrutiny = verifier.map_or(Scrutiny::None, |it| it.made_of(row, slot, rule));
        Assurance { scrutiny, ..Assurance::WORD }
    }

    /// Counts what the cache had for a call, and what that saved.
    pub(crate) fn note_found(&self, row: &MethodRow, found: CacheResult) {
        self.counts.found(found);
        match found {
            CacheResult::Hit | CacheResult::Joined => self.counts.saved(self.least_credits(row)),
            CacheResult::Miss => {}
        }
    }

    /// The least that a call of this method costs at any upstream of the chain.
    pub(crate) fn least_credits(&self, row: &MethodRow) -> u64 {
        let prices = self.roster.upstreams().iter().map(|upstream| upstream.price(row));
        prices.min().unwrap_or(0)
    }

    /// The upstreams that may serve `method` by the settings. Methods that use keys or manipulate a
    /// test chain are allowed on a test chain, if the settings allow it; a chain without a known id is
    /// none.
    pub(crate) fn eligible(&self, row: &MethodRow, method: &str) -> Result<UpstreamSet, NotServed> {
        let roster = &self.roster;
        match roster.eligible(row, method) {
            Err(NotServed::Dangerous(access))
                if roster.allows_on_test_chains(access)
                    && self.pulse.chain_id().is_some_and(|id| TEST_CHAINS.contains(&id)) =>
            {
                roster.eligible_on_test_chain(method)
            }
            eligible => eligible,
        }
    }

    /// Shares the filters of clients with other replicas from now on, through this store.
    pub fn share_filters(&self, store: &Arc<dyn FilterStore>) {
        let chain = &self.name.name;
        self.filters.share(|| ChainFilterStore::new(Arc::clone(chain), Arc::clone(store)));
    }

    /// The filters of clients as JSON objects, for [`ServedChain::restore_filters`] after a restart.
    pub fn saved_filters(&self) -> Vec<String> {
        self.filters.save().iter().map(SavedFilter::to_json).collect()
    }

    /// Takes in filters that were saved, as far as they can be read and the bounds allow; how many.
    pub fn restore_filters(&self, saved: &[String], now: Instant) -> usize {
        let read = saved.iter().filter_map(|filter| SavedFilter::read(filter.as_bytes()));
        self.filters.restore(&read.collect::<Vec<_>>(), now)
    }

    /// Hears of each change of the agreed head from now on.
    pub(crate) fn head_changes(&self) -> watch::Receiver<()> {
        self.head_changes.subscribe()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }
}

fn votes(count: usize) -> u8 {
    u8::try_from(count).unwrap_or(u8::MAX)
}
