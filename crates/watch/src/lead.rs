//! What a loop takes from other replicas, and what it tells them.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use wellhead_chain::{News, Observation, Source, Tag};
use wellhead_upstream::Standing;

use crate::ask::now;
use crate::peers::{
    BEAT, BlockWord, ChainWord, HeadWord, LoopPeers, MarksWord, StateWord, UpstreamWord,
};
use crate::watcher::Watcher;
use crate::word;

/// The store may take so long to pass on a block before it counts here. Longer is no use: a client that changes
/// replica is shown the block a moment late.
const ACK_WITHIN: Duration = Duration::from_millis(20);

impl Watcher {
    /// Whether this replica probes the upstream for all.
    pub(crate) fn is_prober(&self, now: Instant) -> bool {
        self.peers.as_ref().is_none_or(|peers| peers.is_prober(now))
    }

    /// Whether the upstream is asked from here while it is well: for all; or for itself, where the replica that
    /// probes cannot reach it, or tells too late for clients that call here.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        let Some(peers) = &self.peers else { return true };
        peers.is_prober(now) || peers.is_resting() || self.is_told_too_late(peers, now)
    }

    /// Whether no block was told for longer than one takes, though clients of this replica need it for as long.
    fn is_told_too_late(&self, peers: &LoopPeers, now: Instant) -> bool {
        let is_needed = self.pulse().is_busy_here(now) && self.is_tier_needed(now);
        let mut needed_since = peers.needed_since.lock();
        let since = *needed_since.get_or_insert(now);
        if !is_needed {
            *needed_since = None;
        }
        is_needed && self.is_the_newest_block_late(Some(since), now)
    }

    /// Whether probes of an upstream that fails are another replica's: it finds it failing, too.
    pub(crate) fn is_probed_by_another(&self, now: Instant) -> bool {
        let is = |peers: &LoopPeers| !peers.is_prober(now) && peers.is_resting();
        self.peers.as_ref().is_some_and(is)
    }

    /// Takes the news that another replica found the upstream well again: `true` once.
    pub(crate) fn take_recovery(&self) -> bool {
        let take = |peers: &LoopPeers| peers.upstream.has_recovered.swap(false, Relaxed);
        self.peers.as_ref().is_some_and(take)
    }

    /// Whether clients of another replica called it within this time.
    pub(crate) fn is_called_elsewhere(&self, within: Duration, now: Instant) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.upstream.is_called_within(within, now))
    }

    /// Takes the words of other replicas, and tells them what they need of this one, for ever.
    pub(crate) async fn follow_peers(&self) {
        match &self.peers {
            // Boxed: most have none.
            Some(peers) => Box::pin(self.follow(peers)).await,
            None => std::future::pending().await,
        }
    }

    async fn follow(&self, peers: &LoopPeers) {
        let mut beat = now();
        loop {
            let called = self.called.notified();
            tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                () = peers.upstream.heard.notified() => self.take_words(peers),
                () = called => self.tell_peers(UpstreamWord::Called),
                () = tokio::time::sleep_until(beat.into()) => {
                    beat = now() + BEAT;
                    match peers.is_prober(now()) {
                        true => self.tell_state(),
                        false if self.upstream().is_called_within(BEAT, now()) => {
                            self.tell_peers(UpstreamWord::Called);
                        }
                        false => {}
                    }
                }
            }
        }
    }

    fn take_words(&self, peers: &LoopPeers) {
        loop {
            // Not for longer: words arrive from another task.
            let Some(word) = peers.upstream.inbox.lock().pop_front() else { return };
            match word {
                UpstreamWord::State(state) => self.take_state(state),
                UpstreamWord::Head(head) => self.take_head(&head),
                UpstreamWord::Marks(marks) => self.take_marks(&marks),
                // What is needed is looked at anew with each round.
                UpstreamWord::Called => self.called.notify_waiters(),
            }
        }
    }

    fn take_state(&self, state: StateWord) {
        let is_news = self.upstream().set_syncing(state.is_syncing);
        self.state.lock().syncing = state.is_syncing;
        let slot = self.upstream().slot();
        if let Some(honours) = state.honours_hashes {
            self.pulse().tell_honours_hashes(slot, honours);
        }
        if is_news {
            let id = &self.upstream().identity().id;
            tracing::debug!(upstream = %id, is_syncing = state.is_syncing, "another replica was told by the upstream");
        }
    }

    fn take_head(&self, head: &HeadWord) {
        if self.upstream().standing() != Standing::Verified {
            return;
        }
        let (slot, seen) = (self.upstream().slot(), head.block.observation());
        let Some(took) = head.polled_ms else {
            if self.heads.observe(slot, seen, Source::Answer, now()) == News::BestHead {
                self.pulse().tell_head();
            }
            return;
        };
        let asked_at = now().checked_sub(Duration::from_millis(took)).unwrap_or_else(now);
        word::take(&self.heads, &self.asker, seen, Source::Polled(asked_at));
        if self.asker.is_needed.load(Relaxed) {
            self.heads.set_idle(slot, false, now());
        }
    }

    fn take_marks(&self, marks: &MarksWord) {
        let told = [(Tag::Finalized, &marks.finalized), (Tag::Safe, &marks.safe)];
        let told: Vec<(Tag, Observation)> = told
            .into_iter()
            .filter_map(|(tag, mark)| Some((tag, mark.as_ref()?.observation())))
            .collect();
        if !told.is_empty() {
            self.heads.observe_marks(self.upstream().slot(), &told, now());
        }
    }

    /// Tells the others how the upstream is, if this replica probes it and it is otherwise than it last said.
    pub(crate) fn tell_state_if_new(&self) {
        let Some(peers) = &self.peers else { return };
        if peers.is_prober(now()) && *peers.told.lock() != Some(self.own_state()) {
            self.tell_state();
        }
    }

    fn tell_state(&self) {
        let Some(peers) = &self.peers else { return };
        let state = self.own_state();
        *peers.told.lock() = Some(state);
        self.tell_peers(UpstreamWord::State(state));
    }

    fn own_state(&self) -> StateWord {
        let (slot, state) = (self.upstream().slot(), self.state.lock());
        let honours = self.pulse().honouring_hashes().contains(slot);
        StateWord {
            is_resting: self.upstream().probe_due(now()).is_some(),
            is_syncing: state.syncing || state.isolated,
            honours_hashes: state.block_hash.is_known.then_some(honours),
        }
    }

    /// Tells the others which block the upstream showed, before that counts here: a client that is told of it may
    /// call another replica at once. `took`: how long it was asked for.
    pub(crate) async fn tell_head(&self, seen: &Observation, took: Duration) {
        let Some(peers) = &self.peers else { return };
        let known = self.heads.look(|view| view.head(self.upstream().slot()).copied());
        let is_news =
            known.is_none_or(|known| known.number != seen.number || known.hash != seen.hash);
        let says = self.say(UpstreamWord::Head(HeadWord::polled(seen, took)));
        match is_news {
            // Without an acknowledgement the block counts all the same.
            true => drop(tokio::time::timeout(ACK_WITHIN, peers.chain.tell_acked(says)).await),
            false => peers.chain.tell(says),
        }
    }

    /// Tells the others which blocks the upstream holds to be safe and final.
    pub(crate) fn tell_marks(&self, told: &[(Tag, Observation)]) {
        if self.peers.is_none() {
            return;
        }
        let mut marks = MarksWord::default();
        for (tag, seen) in told {
            let mark = Some(BlockWord::of(seen));
            match tag {
                Tag::Safe => marks.safe = mark,
                Tag::Finalized => marks.finalized = mark,
            }
        }
        self.tell_peers(UpstreamWord::Marks(marks));
    }

    fn tell_peers(&self, word: UpstreamWord) {
        if let Some(peers) = &self.peers {
            peers.chain.tell(self.say(word));
        }
    }

    fn say(&self, says: UpstreamWord) -> ChainWord {
        ChainWord::Upstream { upstream: self.upstream().identity().id.to_string(), says }
    }
}
