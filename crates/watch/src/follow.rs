//! The loop of one upstream: which chain it is on, and its feed. What is asked once that
//! is known, and while it rests, is in `poll`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use wellhead_chain::Heads;
use wellhead_eth::BlockNumber;
use wellhead_transport::Transport;
use wellhead_transport::feed::FeedConnector;
use wellhead_upstream::{Standing, Upstream};

use crate::ask::{Asked, Asker, Reason, now};
use crate::budget::{Allowance, Turns};
use crate::checks::{Check, Checks, FeedUse, Pace};
use crate::doubt::Doubt;
use crate::fall::Falls;
use crate::feed::{self, FeedEnd, listen};
use crate::poll::State;
use crate::pulse::Pulse;

/// The first pause before asking again who does not answer at the start; doubles.
const VERIFY_PAUSE: Duration = Duration::from_millis(250);
/// Its bound while clients ask: they may be waiting for this very upstream. Then one
/// that hangs is asked again meanwhile.
const VERIFY_PAUSE_BUSY: Duration = Duration::from_secs(1);
/// So many questions may be open at once.
const VERIFY_OPEN_MAX: usize = 8;
/// The loop looks up so often whether clients ask by now.
const VERIFY_TICK: Duration = Duration::from_secs(1);
/// After so many tries in vain (8 s) someone should know that it is not used.
const VERIFY_WARN_AFTER: u32 = 5;
/// A refused upstream is asked again so often: somebody may have mended its URL.
const WRONG_CHAIN_PAUSE: Duration = Duration::from_secs(62);
/// The first pause before a feed is opened again; doubles.
const FEED_PAUSE: Duration = Duration::from_secs(1);
/// And its bound. Polling goes on, so nothing depends on the feed.
const FEED_PAUSE_MAX: Duration = Duration::from_secs(300);
/// While nobody asks turns come by this part slower than the settings say, so that an
/// hour never holds one more than it should.
const TURN_SLIDE: u32 = 32;

/// Follows one upstream. Run it with [`Watcher::run`]; dropping the future ends it.
#[derive(Debug)]
pub struct Watcher {
    pub(crate) asker: Asker,
    pub(crate) heads: Arc<Heads>,
    feed: Option<Arc<dyn FeedConnector>>,
    pub(crate) pace: Pace,
    pub(crate) checks: Checks,
    /// All upstreams of the chain, this one among them.
    pub(crate) chain: Vec<Arc<Upstream>>,
    /// While the feed tells heads, polling would only cost.
    pub(crate) feed_is_live: AtomicBool,
    /// The feed was on another chain; it is asked before the upstream is used again.
    feed_was_wrong: AtomicBool,
    pub(crate) state: Mutex<State>,
    /// It was verified, and has not been asked for its version since.
    pub(crate) version_is_due: AtomicBool,
    /// The newest block that a poll told; another one in the view came from elsewhere.
    pub(crate) polled: Mutex<Option<BlockNumber>>,
    /// A client's call came to this upstream after a quiet time.
    pub(crate) called: Arc<Notify>,
    /// Bytes of the last block that the feed told; zero before the first.
    pub(crate) push_bytes: AtomicUsize,
}

/// What asking for the chain id brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    /// It is on our chain.
    Right,
    /// It, or its feed, is on another.
    Wrong,
    /// It did not say.
    Unknown(String),
}

impl Watcher {
    /// A loop for `upstream`. It asks over `transport`, and listens to `feed` if there is
    /// one; with the default checks, unless told otherwise.
    pub fn new(
        upstream: Arc<Upstream>,
        transport: Arc<dyn Transport>,
        feed: Option<Arc<dyn FeedConnector>>,
        heads: Arc<Heads>,
        pulse: Arc<Pulse>,
        pace: Pace,
        asked: Arc<Asked>,
    ) -> Self {
        let idle = pace.idle.max(pace.poll_min);
        Self {
            chain: vec![Arc::clone(&upstream)],
            asker: Asker {
                upstream,
                transport,
                pulse,
                asked,
                falls: Falls::default(),
                doubt: Doubt::default(),
                allowance: Allowance::default(),
                turns: Turns::new(idle + idle / TURN_SLIDE),
                is_needed: AtomicBool::new(true),
            },
            heads,
            feed,
            pace,
            checks: Checks::default(),
            feed_is_live: AtomicBool::new(false),
            feed_was_wrong: AtomicBool::new(false),
            state: Mutex::default(),
            version_is_due: AtomicBool::new(false),
            polled: Mutex::new(None),
            called: Arc::default(),
            push_bytes: AtomicUsize::new(0),
        }
    }

    /// With these checks.
    #[must_use]
    pub fn checking(mut self, checks: Checks) -> Self {
        self.asker.allowance = Allowance::new(checks.credits_per_day);
        Self { checks, ..self }
    }

    /// One of these upstreams of its chain: while none of them is well it is probed more
    /// often.
    #[must_use]
    pub fn among(self, upstreams: &[Arc<Upstream>]) -> Self {
        Self { chain: upstreams.to_vec(), ..self }
    }

    /// Follows for ever.
    pub async fn run(self) {
        let this = Arc::new(self);
        this.upstream().set_tried_by_clients(this.checks.probe().is_none());
        this.listen_for_calls();
        loop {
            this.verify().await;
            match this.feed.as_ref().filter(|_| this.checks.feed != FeedUse::Never) {
                None => this.poll().await,
                Some(feed) => {
                    // Boxed, so that an upstream without a feed does not hold the room of one.
                    let feed = Box::pin(this.follow_feed(&**feed));
                    tokio::select! {
                        // In this order, so that a simulated world has no chance but its own.
                        biased;
                        () = this.poll() => {}
                        () = feed => {}
                    }
                    this.feed_is_live.store(false, Ordering::Relaxed);
                }
            }
            // It was just seen to be on another chain, and is not used: asking at once
            // would only tell the same.
            tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
        }
    }

    /// Returns once the upstream is seen to be on its chain, or is taken to be.
    async fn verify(self: &Arc<Self>) {
        self.want_version();
        let mut open = JoinSet::new();
        let mut pause = VERIFY_PAUSE;
        let mut tries = 0_u32;
        // `None` while an answer is waited for and nobody is in a hurry.
        let mut next = Some(now());
        loop {
            // Made before looking, so that a client who comes meanwhile is not missed.
            let (woken, verified) = (self.pulse().woken(), self.pulse().verified());
            let is_needed_anew = self.look_at_need();
            let may_ask = self.checks.verifies() && !self.asker.allowance.is_spent(now());
            if !may_ask && self.trust().await {
                return;
            }
            let is_busy = self.is_busy();
            if is_needed_anew && is_busy {
                next = Some(now());
            }
            if may_ask && next.is_some_and(|due| due <= now()) && open.len() < VERIFY_OPEN_MAX {
                let this = Arc::clone(self);
                open.spawn(async move { this.identify(Reason::Verify).await });
                next = is_busy.then(|| now() + VERIFY_PAUSE_BUSY);
            }
            let due = next.filter(|_| may_ask && open.len() < VERIFY_OPEN_MAX);
            let wait = due.map_or(VERIFY_TICK, |due| due.saturating_duration_since(now()));
            tokio::select! {
                biased;
                Some(ended) = open.join_next() => match ended {
                    Ok(Identity::Right) => {
                        // What was asked meanwhile would tell nothing new.
                        drop(open);
                        self.look_at_state().await;
                        if self.checks.follows_by(Check::Head) {
                            self.poll_once(Reason::Head).await.ok();
                        }
                        self.look_at_version().await;
                        self.look_at_need();
                        return;
                    }
                    Ok(Identity::Wrong) => {
                        open.abort_all();
                        tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
                        next = Some(now());
                    }
                    Ok(Identity::Unknown(detail)) => {
                        tries = tries.saturating_add(1);
                        if tries == VERIFY_WARN_AFTER {
                            let id = &self.upstream().identity().id;
                            tracing::warn!(upstream = %id, %detail, "upstream does not tell its chain id and is not used; still asking");
                        }
                        let due = now() + pause.min(self.verify_pause_max());
                        next = Some(next.map_or(due, |next| next.min(due)));
                        pause = pause.saturating_mul(2).min(self.pace.idle.max(VERIFY_PAUSE) * 2);
                    }
                    // Only when it was aborted.
                    Err(_) => {}
                },
                () = tokio::time::sleep(wait.min(VERIFY_TICK)) => {}
                () = woken => next = Some(now()),
                // It may be another upstream that tells the chain's id.
                () = verified, if !may_ask => {}
            }
        }
    }

    /// While nobody asks a little longer than a turn, so that the first quick questions
    /// are made good for within the hour.
    fn verify_pause_max(&self) -> Duration {
        match self.is_busy() {
            true => VERIFY_PAUSE_BUSY,
            false => self.pace.idle.max(self.pace.poll_min) * 5 / 4,
        }
    }

    /// Takes it to be on the chain of the settings without asking; false while nobody
    /// knows which chain that is, and when it was seen to be on another one.
    async fn trust(&self) -> bool {
        let Some(chain) = self.pulse().chain_id() else { return false };
        let upstream = self.upstream();
        if let Standing::WrongChain(_) = upstream.standing() {
            // Its feed said so, then its feed has to take it back.
            let Some(feed) = self.feed.as_ref().filter(|_| self.feed_is_wrong()) else {
                return false;
            };
            if !feed::verify(&**feed, &self.asker, &self.heads).await {
                tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
                return false;
            }
            self.feed_was_wrong.store(false, Ordering::Relaxed);
        }
        if upstream.set_standing(Standing::Verified) {
            let id = &upstream.identity().id;
            tracing::info!(upstream = %id, %chain, "upstream is not asked for its chain id and taken to be on the chain of the settings");
        }
        self.pulse().tell_verified();
        true
    }

    /// Asks for the chain id and takes the consequence.
    pub(crate) async fn identify(&self, reason: Reason) -> Identity {
        let id = &self.upstream().identity().id;
        let reported = match self.asker.chain_id(reason).await {
            Ok(reported) => reported,
            Err(detail) => {
                tracing::debug!(upstream = %id, %detail, "chain id not learnt");
                return Identity::Unknown(detail);
            }
        };
        self.asker.doubt.settle(now());
        let expected = self.pulse().agree_chain_id(reported);
        if reported != expected {
            if self.upstream().set_standing(Standing::WrongChain(reported)) {
                tracing::error!(
                    upstream = %id, %reported, %expected,
                    "upstream is on another chain and will not be used; check its URL and the chain's `id`"
                );
            }
            self.heads.forget(self.upstream().slot(), now());
            let text = format!("it is on chain {reported}, this is chain {expected}");
            self.upstream().note_problem(text, now());
            return Identity::Wrong;
        }
        if self.feed_is_wrong()
            && let Some(feed) = &self.feed
        {
            if !feed::verify(&**feed, &self.asker, &self.heads).await {
                return Identity::Wrong;
            }
            self.feed_was_wrong.store(false, Ordering::Relaxed);
        }
        if self.upstream().set_standing(Standing::Verified) {
            tracing::info!(upstream = %id, chain = %expected, "upstream verified");
        }
        self.pulse().forget_origin(self.upstream().slot());
        self.pulse().tell_honours_hashes(self.upstream().slot(), false);
        self.state.lock().block_hash.forget();
        self.pulse().tell_verified();
        Identity::Right
    }

    /// Asks an upstream whose heads are hard to believe for its chain id; true when it is on another
    /// chain, and out of use.
    pub(crate) async fn check_chain_again(&self) -> bool {
        self.asker.doubt.settle(now());
        match self.asker.chain_id(Reason::Verify).await {
            Ok(reported) if self.pulse().chain_id() == Some(reported) => false,
            Ok(_) => self.identify(Reason::Verify).await == Identity::Wrong,
            // It is asked again with the next head that is hard to believe.
            Err(_detail) => false,
        }
    }

    fn feed_is_wrong(&self) -> bool {
        self.feed_was_wrong.load(Ordering::Relaxed)
    }

    pub(crate) fn upstream(&self) -> &Upstream {
        &self.asker.upstream
    }

    pub(crate) fn pulse(&self) -> &Pulse {
        &self.asker.pulse
    }

    /// Keeps a feed open while it is worth its price. Returns when the chain must be verified
    /// anew.
    async fn follow_feed(&self, connector: &dyn FeedConnector) {
        let mut pause = FEED_PAUSE;
        loop {
            self.until_a_feed_is_worth_it().await;
            let end = tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                end = listen(connector, self) => Some(end),
                () = self.until_the_feed_is_idle() => None,
            };
            self.feed_is_live.store(false, Ordering::Relaxed);
            let Some(end) = end else {
                let id = &self.upstream().identity().id;
                tracing::debug!(upstream = %id, "feed closed: no calls need it, or polls are cheaper");
                pause = FEED_PAUSE;
                continue;
            };
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
}
