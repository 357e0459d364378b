//! The calls to one upstream while it is followed: for its head, its state, and its
//! recovery.
//!
//! While clients call, heads are polled at the pace of blocks. While no client calls, all
//! calls together wait for their turn (`budget::Turns`), and the most informative one takes
//! it: a probe if the breaker is open, else whether an upstream that was syncing still is, else the
//! head, which shows in one answer that the upstream lives and how far it is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinSet};
use wellhead_chain::{Source, Tag};
use wellhead_eth::{BlockTag, Bloom};
use wellhead_upstream::Condition;

use crate::ask::{CallReason, now};
use crate::checks::{CheckKind, Mode};
use crate::identify::ChainIdentity;
use crate::watcher::Watcher;
use crate::word;

/// The loop looks up at least this often, so that the end of a rest is not slept through.
const TICK_MAX: Duration = Duration::from_secs(1);
/// And at most this often.
const TICK_MIN: Duration = Duration::from_millis(10);
/// Before the pace of the chain is known.
const POLL_UNKNOWN: Duration = Duration::from_secs(1);
/// Polls come by this part of a block time slower than blocks.
const POLL_SLIDE: u32 = 8;
/// The first pause between two probes that changed nothing; doubles.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// The bound while clients ask. Where a probe makes a rest longer, the rest alone decides.
const PROBE_PAUSE_BUSY: Duration = Duration::from_secs(30);
/// The bound however quiet it is.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(600);
/// Each upstream is probed this often while clients ask and none is well: whatever comes
/// back first has to be found within a second.
const PROBE_URGENT: Duration = Duration::from_millis(500);
/// A probe that hangs does not keep the next one waiting then, up to this many: as many as
/// begin before the first gives up.
const PROBES_OPEN_MAX: usize = 10;
/// While clients ask for safe or final blocks an upstream is asked for both once in this many
/// blocks, so that the tags stand where a node's own would, but for that.
const TAGS_BLOCKS: u32 = 4;
/// But no more often: on the quickest chains that is once in eight blocks.
const TAGS_EVERY_MIN: Duration = Duration::from_secs(2);
/// While no client asks for them, and what is final is to be known, it is asked for that alone
/// once in this many blocks: epochs have more, and what was final stays so.
const FINALITY_BLOCKS: u32 = 32;
/// But no more often.
const FINALITY_EVERY_MIN: Duration = Duration::from_secs(15);
/// And either no less.
const FINALITY_EVERY_MAX: Duration = Duration::from_secs(60);
/// A syncing or lagging upstream is asked about it this often.
const STATE_EVERY: Duration = Duration::from_secs(60);
/// The interval while no client calls, when the answer matters less.
const STATE_EVERY_IDLE: Duration = Duration::from_secs(600);
/// The number of block times for which a feed is trusted to push the next head.
const FEED_TRUST_BLOCKS: u32 = 3;
/// But for this at least, and while the block time is not known.
const FEED_TRUST_MIN: Duration = Duration::from_secs(5);
/// For this long after it was reported, the head of an upstream that is not polled can exclude it:
/// as long as the interval of the slowest polls.
const UNASKED_TRUST: Duration = Duration::from_secs(15);

/// What the loop found at the beginning of a round.
#[derive(Debug, Clone, Copy)]
struct Round {
    interval: Duration,
    /// Clients' calls need the upstream from now on.
    is_needed_anew: bool,
    /// It failed until a moment ago.
    was_unwell: bool,
}

impl Watcher {
    /// Polls and probes until the upstream is seen to be on another chain.
    pub(crate) async fn poll(self: &Arc<Self>) {
        if self.checks.mode == Mode::Off {
            return self.look_on().await;
        }
        let mut polled = now();
        let mut was_unwell = false;
        let mut probes = Probes::default();
        loop {
            // Created before the check, so that a client call in between is not missed.
            let (woken, heard) = (self.pulse().woken(), self.pulse().head());
            let called = self.called.notified();
            let is_needed_anew = self.look_at_need();
            let is_spent = self.asker.has_spent_allowance(now());
            self.upstream().set_tried_by_clients(is_spent || self.checks.probe().is_none());
            let interval = self.interval();
            self.let_old_head_fade(self.checks.asks(CheckKind::Head) && !is_spent);
            self.tell_state_if_new();
            let tick = if let Some(due) = self.upstream().probe_due(now()) {
                was_unwell = true;
                // While it rests only the probe is worth a call.
                if !is_spent && self.may_probe(&probes, due) {
                    probes.begin(now(), Arc::clone(self));
                }
                if self.is_urgent() { PROBE_URGENT } else { TICK_MAX }
            } else {
                probes = self.none_probed();
                if was_unwell {
                    // It was away: what answers there now may be another node.
                    self.want_version();
                }
                let round = Round { interval, is_needed_anew, was_unwell };
                if !is_spent && self.ask_what_is_due(round, &mut polled).await {
                    return;
                }
                was_unwell = false;
                if self.upstream().probe_due(now()).is_some() {
                    continue;
                }
                self.tick(polled, interval)
            };
            tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                Some(ended) = probes.open.join_next() => {
                    if self.note_probe(&mut probes, &ended) {
                        return;
                    }
                }
                () = tokio::time::sleep(tick) => {}
                // A client came after a quiet time: what we know is old.
                () = woken => {}
                // One came to this very upstream.
                () = called => {}
                // Another upstream showed a block that this one may have, too.
                () = heard => {}
                // Its feed pushed an implausible head.
                () = self.asker.doubt.raised() => {}
            }
        }
    }

    /// Asks nothing, for ever: clients' calls tell how the upstream is.
    async fn look_on(&self) {
        loop {
            self.look_at_need();
            self.let_old_head_fade(false);
            tokio::time::sleep(TICK_MAX).await;
        }
    }

    /// Asks an upstream that is well for what is due; true when it is seen to be on another
    /// chain.
    async fn ask_what_is_due(&self, round: Round, polled: &mut Instant) -> bool {
        self.while_it_is_well(self.look_at_version_in_turn()).await;
        if !self.may_ask(now()) {
            return self.check_chain_if_doubted().await;
        }
        if self.checks.mode == Mode::On {
            // Before the head: while no client calls, there is one turn for both.
            self.while_it_is_well(self.look_at_state_again()).await;
            // The origin first: once the final block is known, the slow tiers can take final answers.
            if self.pulse().wants_finality(now()) {
                self.while_it_is_well(self.look_at_origin()).await;
                self.while_it_is_well(self.look_at_finality()).await;
            }
            if self.may_poll(*polled, round.interval)
                || (round.is_needed_anew && self.is_head_wanted_at_once(*polled))
            {
                *polled = now();
                let told = self.while_it_is_well(self.poll_once(CallReason::Head)).await;
                if !matches!(told, Some(Ok(()))) {
                    tracing::debug!(upstream = %self.upstream().identity().id, "head not learnt");
                }
            }
        }
        self.while_it_is_well(self.look_at_block_hashes()).await;
        // What it showed before it was away says nothing of now.
        if self.checks.mode == Mode::Ephemeral
            && self.checks.asks(CheckKind::Head)
            && (round.was_unwell
                || (round.is_needed_anew && self.is_busy())
                || (self.seems_to_lag() && now() >= *polled + round.interval))
        {
            *polled = now();
            self.while_it_is_well(self.poll_once(CallReason::Head)).await;
        }
        self.check_chain_if_doubted().await
    }

    /// True when its heads were hard to believe, and it is seen to be on another chain.
    async fn check_chain_if_doubted(&self) -> bool {
        self.checks.asks(CheckKind::ChainId)
            && self.asker.doubt.is_due(now())
            && (self.is_busy() || self.has_turn())
            && self.while_it_is_well(self.check_chain_again()).await == Some(true)
    }

    /// How long the loop waits while the upstream is well.
    fn tick(&self, polled: Instant, interval: Duration) -> Duration {
        let due = match self.is_busy() {
            true => self.poll_due(polled, interval),
            false => self.asker.turn_is_free_at(now()),
        };
        let due = due.saturating_duration_since(now());
        if due.is_zero() { interval } else { due }.clamp(TICK_MIN, TICK_MAX)
    }

    /// The probes of an upstream that is well: none, and that another replica found it well is no news.
    fn none_probed(&self) -> Probes {
        self.take_recovery();
        Probes::default()
    }

    /// Notes how a probe ended; true when the upstream is on another chain, and must be verified anew.
    fn note_probe(&self, probes: &mut Probes, ended: &Result<ChainIdentity, JoinError>) -> bool {
        let is_right = match ended {
            Ok(ChainIdentity::Wrong) => return true,
            Ok(ChainIdentity::Right) => true,
            // An error only when it was aborted.
            Ok(ChainIdentity::Unknown(_)) | Err(_) => false,
        };
        let is_still_due = self.upstream().probe_due(now()).is_some_and(|due| due <= now());
        probes.made(is_still_due && !is_right);
        false
    }

    /// Whether no upstream of the chain could take a call while clients ask.
    fn is_urgent(&self) -> bool {
        let could_serve = |condition| match condition {
            Condition::Ready | Condition::Overspent | Condition::Syncing => true,
            // A paused upstream serves no call now.
            Condition::Throttled
            | Condition::HalfOpen
            | Condition::BreakerOpen
            | Condition::OutOfService
            | Condition::Unverified
            | Condition::Spent
            | Condition::WrongChain => false,
        };
        self.pulse().is_busy(now())
            && !self.chain.load().iter().any(|it| could_serve(it.condition(now())))
    }

    fn may_probe(&self, probes: &Probes, due: Instant) -> bool {
        // A refused key or an empty account does not heal by asking more often.
        let is_out = self.upstream().condition(now()) == Condition::OutOfService;
        if self.is_probed_by_another(now()) {
            return false;
        }
        if self.take_recovery() && !is_out {
            return probes.open.is_empty();
        }
        if self.is_urgent() && !is_out {
            return probes.open.len() < PROBES_OPEN_MAX && probes.may(now(), PROBE_URGENT);
        }
        if !probes.open.is_empty() || due > now() {
            return false;
        }
        match self.is_busy() {
            true => probes.may(now(), PROBE_PAUSE_BUSY),
            false => self.has_turn(),
        }
    }

    /// Whether a call may be made although no client calls.
    fn has_turn(&self) -> bool {
        self.asker.turn_is_free_at(now()) <= now()
    }

    async fn probe(&self) -> ChainIdentity {
        let told = match self.checks.probe() {
            // It was away: what answers there now may be another node.
            Some(CheckKind::ChainId) => return self.identify(CallReason::Probe).await,
            Some(CheckKind::Head) => self.poll_once(CallReason::Probe).await,
            Some(CheckKind::Syncing) => {
                let bound = self.heads.view().lag_bound();
                self.asker.ask_syncing(CallReason::Probe, bound).await.map(drop)
            }
            Some(CheckKind::Peers) => self.asker.ask_isolated(CallReason::Probe).await.map(drop),
            // Its version tells nothing of its health, so that it is no probe.
            Some(CheckKind::Version) | None => Err("no check is allowed".to_owned()),
        };
        told.map_or_else(ChainIdentity::Unknown, |()| ChainIdentity::Right)
    }

    pub(crate) fn interval(&self) -> Duration {
        if !self.is_busy() {
            return self.pace.idle.max(self.pace.poll_min);
        }
        self.block_pace()
    }

    /// How far polls are apart while the upstream is followed.
    pub(crate) fn block_pace(&self) -> Duration {
        let block_time = self.heads.view().block_time.unwrap_or(POLL_UNKNOWN);
        // A little slower than the blocks come: in step with them a poll would always
        // be just ahead of the client's answer that tells the same for free.
        let slower = block_time.saturating_add(block_time / POLL_SLIDE);
        slower.min(self.pace.poll_max).max(self.pace.poll_min)
    }

    fn may_poll(&self, polled: Instant, interval: Duration) -> bool {
        let is_due = match self.is_busy() {
            true => now() >= self.poll_due(polled, interval),
            false => self.has_turn(),
        };
        is_due && self.checks.follows_by(CheckKind::Head) && self.poll_would_tell(interval)
    }

    /// When the next poll is due while clients ask: at the pace of blocks, and as soon as
    /// another one showed a block since, so that the two can agree on it. That costs no
    /// call more, as the next one comes that much later.
    fn poll_due(&self, polled: Instant, interval: Duration) -> Instant {
        let view = self.heads.view();
        let own = view.head(self.upstream().slot()).map(|head| head.number);
        let is_behind =
            view.best.is_some_and(|best| Some(best.number) > own && best.seen_at > polled);
        let soon = (view.block_time.unwrap_or(POLL_UNKNOWN) / 2).max(self.pace.poll_min);
        polled + if is_behind { soon.min(interval) } else { interval }
    }

    /// Whether one that was idle is asked for its head as soon as it is needed: at a client's
    /// call always, which comes after half a minute without one. Without a call not as often: its
    /// better tiers may come and go each second.
    fn is_head_wanted_at_once(&self, polled: Instant) -> bool {
        let block_time = self.heads.view().block_time.unwrap_or(POLL_UNKNOWN);
        let soon = (block_time / 2).max(self.pace.poll_min);
        let is_called = self.upstream().is_called_within(TICK_MAX, now())
            || self.is_called_elsewhere(TICK_MAX, now());
        self.is_busy()
            && self.checks.follows_by(CheckKind::Head)
            && (is_called || now() >= polled + soon)
    }

    /// Not while the feed or the answers to clients tell its head as it moves.
    fn poll_would_tell(&self, interval: Duration) -> bool {
        let view = self.heads.view();
        let Some(head) = view.head(self.upstream().slot()) else { return true };
        // A head from a poll, and not reported since, counts as old at once.
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

    /// Waits for an answer, unless clients' calls find out meanwhile that it is down: then
    /// what hangs must not keep it from being probed.
    ///
    /// Boxed, as the loop of an upstream waits far longer than it asks.
    async fn while_it_is_well<T>(&self, asking: impl Future<Output = T>) -> Option<T> {
        let mut asking = Box::pin(asking);
        loop {
            match tokio::time::timeout(PROBE_URGENT, &mut asking).await {
                Ok(told) => return Some(told),
                Err(_elapsed) if self.upstream().probe_due(now()).is_some() => return None,
                Err(_elapsed) => {}
            }
        }
    }

    /// Whether clients ask and it is left out for its head.
    fn seems_to_lag(&self) -> bool {
        let (slot, own) = (self.upstream().slot(), self.upstream().identity().lag_blocks_max);
        self.is_busy() && self.heads.view().is_lagging(slot, own)
    }

    /// Without polls, an old head would exclude the upstream from the calls that would show a newer
    /// one.
    fn let_old_head_fade(&self, is_asked: bool) {
        if is_asked || !self.seems_to_lag() {
            return;
        }
        let slot = self.upstream().slot();
        let view = self.heads.view();
        let age = view.head(slot).map(|head| now().saturating_duration_since(head.seen_at));
        if age.is_some_and(|age| age >= UNASKED_TRUST) {
            self.heads.fade(slot);
        }
    }

    pub(crate) async fn poll_once(&self, reason: CallReason) -> Result<(), String> {
        let asked_at = now();
        let (seen, block) = self.asker.block(reason, BlockTag::Latest).await?;
        *self.polled.lock() = Some(seen.number);
        self.pulse().note_header(seen.hash, &block);
        self.tell_head(&seen, now().saturating_duration_since(asked_at)).await;
        self.heads.observe_bloom(&seen, Bloom::of_block(&block).as_ref());
        word::take(&self.heads, &self.asker, seen, Source::Polled(asked_at));
        if self.asker.is_needed.load(Ordering::Relaxed) {
            self.heads.set_idle(self.upstream().slot(), false, now());
        }
        Ok(())
    }

    /// Polls for the final block, and for the safe block while clients use such tags: concurrently,
    /// and reported together.
    async fn look_at_finality(&self) {
        if !self.is_busy() {
            return;
        }
        let follows_tags = self.pulse().follows_tags(now());
        let every = finality_every(self.heads.view().block_time, follows_tags);
        let (asks_finalized, asks_safe) = {
            let finality = &mut self.state.lock().finality;
            let is_due = finality.asked.is_none_or(|asked| now() >= asked + every);
            if !is_due || !self.checks.follows_by(CheckKind::Head) {
                return;
            }
            finality.asked = Some(now());
            (finality.finalized.is_over(now()), follows_tags && finality.safe.is_over(now()))
        };
        let ask = async |tag, is_asked: bool| match is_asked {
            true => Some(self.asker.block(CallReason::Finality, tag).await),
            false => None,
        };
        let (finalized, safe) =
            tokio::join!(ask(BlockTag::Finalized, asks_finalized), ask(BlockTag::Safe, asks_safe));
        let mut told = Vec::with_capacity(2);
        {
            let finality = &mut self.state.lock().finality;
            let answers = [
                (Tag::Finalized, finalized, &mut finality.finalized),
                (Tag::Safe, safe, &mut finality.safe),
            ];
            for (tag, answer, refusal) in answers {
                let Some(answer) = answer else { continue };
                refusal.note(answer.is_ok(), every, now());
                told.extend(answer.ok().map(|(seen, _)| (tag, seen)));
            }
        }
        if !told.is_empty() {
            self.tell_marks(&told);
            self.heads.observe_marks(self.upstream().slot(), &told, now());
        }
    }

    /// Asks for its origin, once.
    async fn look_at_origin(&self) {
        let slot = self.upstream().slot();
        if !self.pulse().lacks_origin(slot) {
            return;
        }
        let is_due = self.state.lock().origin_due.is_none_or(|due| now() >= due);
        if !is_due || !self.is_busy() || !self.checks.follows_by(CheckKind::Head) {
            return;
        }
        match self.asker.origin().await {
            Ok(origin) => self.pulse().tell_origin(slot, origin),
            Err(_) => self.state.lock().origin_due = Some(now() + FINALITY_EVERY_MIN),
        }
    }

    /// Asks whether it is syncing, and whether it has peers, as far as that is wanted.
    pub(crate) async fn look_at_state(&self) {
        self.state.lock().asked = Some(now());
        // One that does not know a method never said that it was behind; one that fails
        // just now has not said that it is done.
        if self.checks.follows_by(CheckKind::Syncing) {
            let bound = self.heads.view().lag_bound();
            if let Ok(syncing) = self.asker.ask_syncing(CallReason::Syncing, bound).await {
                self.state.lock().syncing = syncing;
            }
        }
        if self.checks.follows_by(CheckKind::Peers)
            && let Ok(isolated) = self.asker.ask_isolated(CallReason::Peers).await
        {
            self.state.lock().isolated = isolated;
        }
        let (syncing, isolated) = {
            let state = self.state.lock();
            (state.syncing, state.isolated)
        };
        let is_news = self.upstream().set_syncing(syncing || isolated);
        let id = &self.upstream().identity().id;
        match (is_news, syncing, isolated) {
            (false, _, _) => {}
            (true, true, _) => {
                tracing::warn!(upstream = %id, "upstream is syncing and not used while others can serve");
            }
            (true, false, true) => {
                tracing::warn!(upstream = %id, "upstream has no peers and is not used while others can serve");
            }
            (true, false, false) => tracing::info!(upstream = %id, "upstream finished syncing"),
        }
    }

    /// Only one that was syncing or lags is asked again: the others' heads tell.
    async fn look_at_state_again(&self) {
        let is_busy = self.is_busy();
        let every = if is_busy { STATE_EVERY } else { STATE_EVERY_IDLE };
        let asked = self.state.lock().asked;
        let asked_lately =
            asked.is_some_and(|asked| now().saturating_duration_since(asked) < every);
        if asked_lately || (!is_busy && !self.has_turn()) {
            return;
        }
        let was_behind = self.upstream().condition(now()) == Condition::Syncing;
        // While no client calls, each head is as old as its own last poll, and they differ.
        let lags = || {
            let (slot, own) = (self.upstream().slot(), self.upstream().identity().lag_blocks_max);
            is_busy && self.heads.view().is_lagging(slot, own)
        };
        if was_behind || lags() {
            self.look_at_state().await;
        }
    }
}

/// How often an upstream is asked for safe and final blocks.
fn finality_every(block_time: Option<Duration>, follows_tags: bool) -> Duration {
    let block_time = block_time.unwrap_or(POLL_UNKNOWN);
    let (blocks, least) = match follows_tags {
        true => (TAGS_BLOCKS, TAGS_EVERY_MIN),
        false => (FINALITY_BLOCKS, FINALITY_EVERY_MIN),
    };
    (block_time * blocks).clamp(least, FINALITY_EVERY_MAX)
}

/// The probes under way, and when the next may follow: a failure that says nothing of
/// health makes no rest longer, and must not be asked for at every tick.
#[derive(Debug, Default)]
struct Probes {
    open: JoinSet<ChainIdentity>,
    last: Option<Instant>,
    pause: Duration,
}

impl Probes {
    /// Whether one may be made now; no pause is longer than `pause_max`.
    fn may(&self, now: Instant, pause_max: Duration) -> bool {
        self.last.is_none_or(|last| now >= last + self.pause.max(PROBE_URGENT).min(pause_max))
    }

    fn begin(&mut self, now: Instant, watcher: Arc<Watcher>) {
        self.last = Some(now);
        self.open.spawn(async move { watcher.probe().await });
    }

    /// Notes that one ended, and whether the next has to wait for longer.
    fn made(&mut self, longer: bool) {
        self.pause = match longer {
            true => (self.pause * 2).clamp(PROBE_PAUSE, PROBE_PAUSE_MAX),
            false => Duration::ZERO,
        };
    }
}
