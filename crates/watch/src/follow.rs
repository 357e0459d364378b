//! The loop of one upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_chain::{Heads, News, Observation, Source};
use wellhead_transport::Transport;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{Standing, Upstream};

use crate::ask::{Asked, Asker, Reason, now};
use crate::feed::{FeedEnd, listen};
use crate::pulse::Pulse;

/// How often a loop asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Polls come no faster, however quick the chain.
    pub poll_min: Duration,
    /// Polls come no slower while clients ask, however slow the chain.
    pub poll_max: Duration,
    /// The poll while nobody asks.
    pub idle: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll_min: Duration::from_millis(250),
            poll_max: Duration::from_secs(12),
            idle: Duration::from_secs(60),
        }
    }
}

/// The loop looks up at least so often, so that the end of a rest is not slept through.
const TICK_MAX: Duration = Duration::from_secs(1);
/// Before the pace of the chain is known.
const POLL_UNKNOWN: Duration = Duration::from_secs(1);
/// The first pause before asking again who does not answer at the start; doubles.
const VERIFY_PAUSE: Duration = Duration::from_millis(250);
/// And its bound.
const VERIFY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// A refused upstream is asked again so often: somebody may have mended its URL.
const WRONG_CHAIN_PAUSE: Duration = Duration::from_secs(60);
/// A syncing or lagging upstream is asked about it so often.
const SYNCING_EVERY: Duration = Duration::from_secs(60);
/// The first pause before a feed is opened again; doubles.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// And its bound.
const FEED_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Follows one upstream. Run it with [`Watcher::run`]; dropping the future ends it.
#[derive(Debug)]
pub struct Watcher {
    asker: Asker,
    heads: Arc<Heads>,
    pulse: Arc<Pulse>,
    feed: Option<Arc<dyn FeedConnector>>,
    pace: Pace,
    /// While the feed tells heads, polling would only cost.
    feed_is_live: AtomicBool,
    syncing_asked: Mutex<Option<Instant>>,
}

impl Watcher {
    /// A loop for `upstream`. It asks over `transport`, and listens to `feed` if there is one.
    pub fn new(
        upstream: Arc<Upstream>,
        transport: Arc<dyn Transport>,
        feed: Option<Arc<dyn FeedConnector>>,
        heads: Arc<Heads>,
        pulse: Arc<Pulse>,
        pace: Pace,
        asked: Arc<Asked>,
    ) -> Self {
        Self {
            asker: Asker { upstream, transport, asked },
            heads,
            pulse,
            feed,
            pace,
            feed_is_live: AtomicBool::new(false),
            syncing_asked: Mutex::new(None),
        }
    }

    /// Follows for ever.
    pub async fn run(self) {
        loop {
            self.verify().await;
            match &self.feed {
                None => self.poll().await,
                Some(feed) => {
                    tokio::select! {
                        () = self.poll() => {}
                        () = self.follow_feed(&**feed) => {}
                    }
                    self.feed_is_live.store(false, Ordering::Relaxed);
                }
            }
        }
    }

    /// Returns once the upstream is seen to be on its chain.
    async fn verify(&self) {
        let mut pause = VERIFY_PAUSE;
        loop {
            if self.verify_once(Reason::Verify).await {
                self.look_at_syncing().await;
                self.poll_once(Reason::Head).await;
                return;
            }
            let wait = match self.upstream().standing() {
                Standing::WrongChain(_) => WRONG_CHAIN_PAUSE,
                Standing::Unverified | Standing::Verified => pause,
            };
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(VERIFY_PAUSE_MAX);
        }
    }

    /// Asks for the chain id and takes the consequence. True when it is the right one.
    async fn verify_once(&self, reason: Reason) -> bool {
        let id = &self.upstream().identity().id;
        let reported = match self.asker.chain_id(reason).await {
            Ok(reported) => reported,
            Err(detail) => {
                tracing::debug!(upstream = %id, %detail, "chain id not learnt");
                return false;
            }
        };
        let expected = self.pulse.agree_chain_id(reported);
        if reported != expected {
            if self.upstream().set_standing(Standing::WrongChain(reported)) {
                tracing::error!(
                    upstream = %id, %reported, %expected,
                    "upstream is on another chain and will not be used; check its URL and the chain's `id`"
                );
            }
            self.heads.forget(self.upstream().slot());
            let text = format!("it is on chain {reported}, this is chain {expected}");
            self.upstream().note_problem(text, now());
            return false;
        }
        if self.upstream().set_standing(Standing::Verified) {
            tracing::info!(upstream = %id, chain = %expected, "upstream verified");
        }
        self.pulse.tell_verified();
        true
    }

    fn upstream(&self) -> &Upstream {
        &self.asker.upstream
    }

    /// Keeps a feed open. Returns when the chain must be verified anew.
    async fn follow_feed(&self, connector: &dyn FeedConnector) {
        let mut pause = FEED_PAUSE;
        loop {
            let end =
                listen(connector, &self.asker, &self.heads, &self.pulse, &self.feed_is_live).await;
            self.feed_is_live.store(false, Ordering::Relaxed);
            match end {
                FeedEnd::WrongChain => return,
                FeedEnd::Broke { heads_seen, detail } => {
                    let id = &self.upstream().identity().id;
                    tracing::debug!(upstream = %id, %detail, "feed ended; polling until it is back");
                    pause =
                        if heads_seen > 0 { FEED_PAUSE } else { (pause * 2).min(FEED_PAUSE_MAX) };
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Polls and probes until the chain must be verified anew.
    async fn poll(&self) {
        let mut polled = now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.interval().min(TICK_MAX)) => {}
                // A client came after a quiet time: what we know is old.
                () = self.pulse.woken() => {}
            }
            if let Some(due) = self.upstream().probe_due(now()) {
                // While it rests only the probe is worth a call. It was away: what
                // answers there now may be another node, so the chain id is what is asked.
                if due <= now() && !self.verify_once(Reason::Probe).await {
                    match self.upstream().standing() {
                        Standing::Verified => {}
                        Standing::Unverified | Standing::WrongChain(_) => return,
                    }
                }
                continue;
            }
            let waited = now().saturating_duration_since(polled);
            if waited >= self.interval() && self.poll_would_tell() {
                polled = now();
                self.poll_once(Reason::Head).await;
            }
            self.look_at_syncing_again().await;
        }
    }

    fn interval(&self) -> Duration {
        if !self.pulse.is_busy(now()) {
            return self.pace.idle;
        }
        let block_time = self.heads.view().block_time.unwrap_or(POLL_UNKNOWN);
        block_time.clamp(self.pace.poll_min, self.pace.poll_max)
    }

    /// Not while the feed is live, nor while answers to clients told its head lately.
    fn poll_would_tell(&self) -> bool {
        if self.feed_is_live.load(Ordering::Relaxed) {
            return false;
        }
        let view = self.heads.view();
        let Some(head) = view.head(self.upstream().slot()) else { return true };
        now().saturating_duration_since(head.seen_at) >= self.interval() / 2
    }

    async fn poll_once(&self, reason: Reason) {
        match self.asker.head(reason).await {
            Ok(seen) => self.saw(seen),
            Err(detail) => {
                let id = &self.upstream().identity().id;
                tracing::debug!(upstream = %id, %detail, "head not learnt");
            }
        }
    }

    fn saw(&self, seen: Observation) {
        let slot = self.upstream().slot();
        if self.heads.observe(slot, seen, Source::Word, now()) == News::BestHead {
            let id = &self.upstream().identity().id;
            tracing::trace!(upstream = %id, block = seen.number.0, "new best head");
        }
    }

    async fn look_at_syncing(&self) {
        *self.syncing_asked.lock() = Some(now());
        let bound = self.heads.view().lag_bound();
        // An upstream that does not know the method is taken to be in sync.
        let syncing = self.asker.is_syncing(bound).await.unwrap_or(false);
        if self.upstream().set_syncing(syncing) {
            let id = &self.upstream().identity().id;
            if syncing {
                tracing::warn!(upstream = %id, "upstream is syncing and left out while others can serve");
            } else {
                tracing::info!(upstream = %id, "upstream finished syncing");
            }
        }
    }

    /// Only one that was syncing or lags is asked again: the others' heads tell.
    async fn look_at_syncing_again(&self) {
        let asked_lately = self
            .syncing_asked
            .lock()
            .is_some_and(|asked| now().saturating_duration_since(asked) < SYNCING_EVERY);
        let slot = self.upstream().slot();
        let lags = self.heads.view().is_lagging(slot, self.upstream().identity().lag_blocks_max);
        let was_syncing = self.upstream().condition(now()) == wellhead_upstream::Condition::Syncing;
        if !asked_lately && (lags || was_syncing) {
            self.look_at_syncing().await;
        }
    }
}
