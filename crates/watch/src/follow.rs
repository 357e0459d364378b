//! The loop of one upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wellhead_chain::Heads;
use wellhead_eth::BlockNumber;
use wellhead_transport::Transport;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{Condition, Standing, Upstream};

use crate::ask::{Asked, Asker, Reason, now};
use crate::feed::{self, FeedEnd, listen};
use crate::pulse::Pulse;
use crate::word;

/// How often a loop asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Polls come no faster, however quick the chain.
    pub poll_min: Duration,
    /// Polls come no slower while clients ask, however slow the chain; where
    /// `poll_min` is longer, that holds.
    pub poll_max: Duration,
    /// The poll while nobody asks; never faster than `poll_min`.
    pub idle: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll_min: Duration::from_millis(250),
            poll_max: Duration::from_secs(15),
            idle: Duration::from_secs(60),
        }
    }
}

/// The loop looks up at least so often, so that the end of a rest is not slept through.
const TICK_MAX: Duration = Duration::from_secs(1);
/// And at most so often.
const TICK_MIN: Duration = Duration::from_millis(10);
/// Before the pace of the chain is known.
const POLL_UNKNOWN: Duration = Duration::from_secs(1);
/// Polls come by this part of a block time slower than blocks.
const POLL_SLIDE: u32 = 8;
/// The first pause before asking again who does not answer at the start; doubles.
const VERIFY_PAUSE: Duration = Duration::from_millis(250);
/// And its bound.
const VERIFY_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Its bound while clients ask: they may be waiting for this very upstream.
const VERIFY_PAUSE_BUSY: Duration = Duration::from_secs(1);
/// After so many tries in vain (8 s) someone should know that it is not used.
const VERIFY_WARN_AFTER: u32 = 5;
/// A refused upstream is asked again so often: somebody may have mended its URL.
const WRONG_CHAIN_PAUSE: Duration = Duration::from_secs(60);
/// The first pause between two probes that changed nothing; doubles.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// The bound while clients ask. Where a probe makes a rest longer, the rest alone decides.
const PROBE_PAUSE_BUSY: Duration = Duration::from_secs(30);
/// The bound however quiet it is.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(600);
/// A syncing or lagging upstream is asked about it so often.
const SYNCING_EVERY: Duration = Duration::from_secs(60);
/// And so often while nobody asks, which is when the answer matters to nobody.
const SYNCING_EVERY_IDLE: Duration = Duration::from_secs(600);
/// The first pause before a feed is opened again; doubles.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// And its bound. Polling goes on, so nothing depends on the feed.
const FEED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// A feed is trusted to tell the next head for so many block times.
const FEED_TRUST_BLOCKS: u32 = 3;
/// But for this at least, and while the block time is not known.
const FEED_TRUST_MIN: Duration = Duration::from_secs(5);

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
    /// The feed was on another chain; it is asked before the upstream is used again.
    feed_was_wrong: AtomicBool,
    syncing_asked: Mutex<Option<Instant>>,
    /// The newest block that a poll told; another one in the view came from elsewhere.
    polled: Mutex<Option<BlockNumber>>,
}

/// What asking for the chain id brought.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Identity {
    /// It is on our chain.
    Right,
    /// It, or its feed, is on another.
    Wrong,
    /// It did not say.
    Unknown(String),
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
            asker: Asker { upstream, transport, asked, falls: Arc::default() },
            heads,
            pulse,
            feed,
            pace,
            feed_is_live: AtomicBool::new(false),
            feed_was_wrong: AtomicBool::new(false),
            syncing_asked: Mutex::new(None),
            polled: Mutex::new(None),
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
            // It was just seen to be on another chain, and is not used: asking at once
            // would only tell the same.
            tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
        }
    }

    /// Returns once the upstream is seen to be on its chain.
    async fn verify(&self) {
        let mut pause = VERIFY_PAUSE;
        let mut tries = 0_u32;
        loop {
            // Made before asking, so that a client who comes meanwhile is not missed.
            let woken = self.pulse.woken();
            match self.identify(Reason::Verify).await {
                Identity::Right => {
                    self.look_at_syncing().await;
                    self.poll_once().await;
                    return;
                }
                Identity::Wrong => tokio::time::sleep(WRONG_CHAIN_PAUSE).await,
                Identity::Unknown(detail) => {
                    tries = tries.saturating_add(1);
                    if tries == VERIFY_WARN_AFTER {
                        let id = &self.upstream().identity().id;
                        tracing::warn!(upstream = %id, %detail, "upstream does not tell its chain id and is not used; still asking");
                    }
                    let bound = match self.pulse.is_busy(now()) {
                        true => VERIFY_PAUSE_BUSY,
                        false => VERIFY_PAUSE_MAX,
                    };
                    tokio::select! {
                        () = tokio::time::sleep(pause.min(bound)) => {}
                        () = woken => {}
                    }
                    pause = (pause * 2).min(VERIFY_PAUSE_MAX);
                }
            }
        }
    }

    /// Asks for the chain id and takes the consequence.
    async fn identify(&self, reason: Reason) -> Identity {
        let id = &self.upstream().identity().id;
        let reported = match self.asker.chain_id(reason).await {
            Ok(reported) => reported,
            Err(detail) => {
                tracing::debug!(upstream = %id, %detail, "chain id not learnt");
                return Identity::Unknown(detail);
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
            return Identity::Wrong;
        }
        if self.feed_was_wrong.load(Ordering::Relaxed)
            && let Some(feed) = &self.feed
        {
            if !feed::verify(&**feed, &self.asker, &self.heads, &self.pulse).await {
                return Identity::Wrong;
            }
            self.feed_was_wrong.store(false, Ordering::Relaxed);
        }
        if self.upstream().set_standing(Standing::Verified) {
            tracing::info!(upstream = %id, chain = %expected, "upstream verified");
        }
        self.pulse.tell_verified();
        Identity::Right
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
                FeedEnd::WrongChain => {
                    self.feed_was_wrong.store(true, Ordering::Relaxed);
                    return;
                }
                FeedEnd::Broke { heads_seen, detail } => {
                    let id = &self.upstream().identity().id;
                    tracing::debug!(upstream = %id, %detail, "feed ended; polling until it is back");
                    if heads_seen > 0 {
                        pause = FEED_PAUSE;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(FEED_PAUSE_MAX);
        }
    }

    /// Polls and probes until the upstream is seen to be on another chain.
    async fn poll(&self) {
        let mut polled = now();
        let mut probes = Probes::default();
        loop {
            // Made before looking, so that a client who comes meanwhile is not missed.
            let woken = self.pulse.woken();
            let interval = self.interval();
            if let Some(due) = self.upstream().probe_due(now()) {
                // While it rests only the probe is worth a call. It was away: what
                // answers there now may be another node, so the chain id is what is asked.
                if due <= now() && probes.may(now(), self.probe_pause_max()) {
                    match self.identify(Reason::Probe).await {
                        Identity::Right | Identity::Unknown(_) => {}
                        Identity::Wrong => return,
                    }
                    let is_still_due =
                        self.upstream().probe_due(now()).is_some_and(|due| due <= now());
                    probes.made(now(), is_still_due || !self.pulse.is_busy(now()));
                }
            } else {
                probes = Probes::default();
                if now() >= polled + interval && self.poll_would_tell(interval) {
                    polled = now();
                    self.poll_once().await;
                }
                self.look_at_syncing_again().await;
            }
            let due = (polled + interval).saturating_duration_since(now());
            let tick = if due.is_zero() { interval } else { due }.clamp(TICK_MIN, TICK_MAX);
            tokio::select! {
                () = tokio::time::sleep(tick) => {}
                // A client came after a quiet time: what we know is old.
                () = woken => {}
            }
        }
    }

    fn interval(&self) -> Duration {
        if !self.pulse.is_busy(now()) {
            return self.pace.idle.max(self.pace.poll_min);
        }
        let block_time = self.heads.view().block_time.unwrap_or(POLL_UNKNOWN);
        // A little slower than the blocks come: in step with them a poll would always
        // be just ahead of the client's answer that tells the same for free.
        let slower = block_time.saturating_add(block_time / POLL_SLIDE);
        slower.min(self.pace.poll_max).max(self.pace.poll_min)
    }

    fn probe_pause_max(&self) -> Duration {
        if self.pulse.is_busy(now()) { PROBE_PAUSE_BUSY } else { self.pace.idle }
    }

    /// Not while the feed or the answers to clients tell its head as it moves.
    fn poll_would_tell(&self, interval: Duration) -> bool {
        let view = self.heads.view();
        let Some(head) = view.head(self.upstream().slot()) else { return true };
        // What a poll told, and nobody since, grows old at once.
        if *self.polled.lock() == Some(head.number) {
            return true;
        }
        // Others told it; that they are silent for longer may mean that they went deaf.
        let trust = if self.feed_is_live.load(Ordering::Relaxed) {
            let block_time = view.block_time.unwrap_or_default();
            block_time.saturating_mul(FEED_TRUST_BLOCKS).max(FEED_TRUST_MIN)
        } else {
            interval * 3 / 2
        };
        now().saturating_duration_since(head.seen_at) >= trust
    }

    async fn poll_once(&self) {
        match self.asker.head(Reason::Head).await {
            Ok(seen) => {
                *self.polled.lock() = Some(seen.number);
                word::take(&self.heads, self.upstream(), &self.asker.falls, seen);
            }
            Err(detail) => {
                let id = &self.upstream().identity().id;
                tracing::debug!(upstream = %id, %detail, "head not learnt");
            }
        }
    }

    async fn look_at_syncing(&self) {
        *self.syncing_asked.lock() = Some(now());
        let bound = self.heads.view().lag_bound();
        // One that does not know the method never said that it was syncing; one that
        // fails just now has not said that it is done.
        let Ok(syncing) = self.asker.is_syncing(bound).await else { return };
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
        let is_busy = self.pulse.is_busy(now());
        let every = if is_busy { SYNCING_EVERY } else { SYNCING_EVERY_IDLE };
        let asked_lately = self
            .syncing_asked
            .lock()
            .is_some_and(|asked| now().saturating_duration_since(asked) < every);
        if asked_lately {
            return;
        }
        let was_syncing = self.upstream().condition(now()) == Condition::Syncing;
        // While nobody asks, each head is as old as its own last poll, and they differ.
        let lags = || {
            let (slot, own) = (self.upstream().slot(), self.upstream().identity().lag_blocks_max);
            is_busy && self.heads.view().is_lagging(slot, own)
        };
        if was_syncing || lags() {
            self.look_at_syncing().await;
        }
    }
}

/// Keeps probes apart that would follow each other at every tick: a failure that
/// says nothing of health makes no rest longer.
#[derive(Debug, Default)]
struct Probes {
    last: Option<(Instant, Duration)>,
}

impl Probes {
    /// Whether one may be made now; no pause is longer than `pause_max`.
    fn may(&self, now: Instant, pause_max: Duration) -> bool {
        self.last.is_none_or(|(at, pause)| now >= at + pause.min(pause_max))
    }

    /// Notes that one was made, and whether the next has to wait for longer.
    fn made(&mut self, now: Instant, longer: bool) {
        let before = self.last.map_or(Duration::ZERO, |(_, pause)| pause);
        let pause = match longer {
            true => (before * 2).clamp(PROBE_PAUSE, PROBE_PAUSE_MAX),
            false => Duration::ZERO,
        };
        self.last = Some((now, pause));
    }
}
