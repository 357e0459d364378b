//! Which chain an upstream is on: asked before anything is believed of it, and again when its
//! heads are hard to believe.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use wellhead_upstream::Standing;

use crate::ask::{CallReason, now};
use crate::checks::CheckKind;
use crate::feed;
use crate::state::HashProbe;
use crate::watcher::Watcher;

/// The first pause before the next try at an upstream that does not answer at the start; doubles.
const VERIFY_PAUSE: Duration = Duration::from_millis(250);
/// Its bound while clients ask: they may be waiting for this very upstream. Then one
/// that hangs is asked again meanwhile.
const VERIFY_PAUSE_BUSY: Duration = Duration::from_secs(1);
/// Questions that are open at once, at most.
const VERIFY_OPEN_MAX: usize = 8;
/// The interval at which the loop looks whether clients ask by now.
const VERIFY_TICK: Duration = Duration::from_secs(1);
/// After this many failed tries (8 s) a warning says that it is not used.
const VERIFY_WARN_AFTER: u32 = 5;
/// The interval at which a rejected upstream is tried again: its URL may have been corrected.
pub(crate) const WRONG_CHAIN_PAUSE: Duration = Duration::from_secs(62);
/// The result of a check of the chain id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChainIdentity {
    /// It is on our chain.
    Right,
    /// It, or its feed, is on another.
    Wrong,
    /// It did not say.
    Unknown(String),
}

/// How an upstream came to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verified {
    /// It told its chain id.
    ByAnswer,
    /// It is not asked, and the settings name the chain.
    BySettings,
}

impl Watcher {
    /// Returns once the upstream is seen to be on its chain, or is taken to be.
    pub(crate) async fn verify(self: &Arc<Self>) -> Verified {
        self.want_version();
        let mut open = JoinSet::new();
        let mut pause = VERIFY_PAUSE;
        let mut tries = 0_u32;
        // `None` while an answer is pending and no call waits for it.
        let mut next = Some(now());
        loop {
            // Created before the check, so that a client call in between is not missed.
            let (woken, verified) = (self.pulse().woken(), self.pulse().verified());
            let is_needed_anew = self.look_at_need();
            let may_ask =
                self.checks.asks(CheckKind::ChainId) && !self.asker.has_spent_allowance(now());
            if !may_ask && self.trust().await {
                return Verified::BySettings;
            }
            let is_busy = self.is_busy();
            if is_needed_anew && is_busy {
                next = Some(now());
            }
            if may_ask && next.is_some_and(|due| due <= now()) && open.len() < VERIFY_OPEN_MAX {
                let this = Arc::clone(self);
                open.spawn(async move { this.identify(CallReason::Verify).await });
                next = is_busy.then(|| now() + VERIFY_PAUSE_BUSY);
            }
            let due = next.filter(|_| may_ask && open.len() < VERIFY_OPEN_MAX);
            let wait = due.map_or(VERIFY_TICK, |due| due.saturating_duration_since(now()));
            tokio::select! {
                biased;
                Some(ended) = open.join_next() => match ended {
                    // What was asked meanwhile would tell nothing new.
                    Ok(ChainIdentity::Right) => return Verified::ByAnswer,
                    Ok(ChainIdentity::Wrong) => {
                        open.abort_all();
                        tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
                        next = Some(now());
                    }
                    Ok(ChainIdentity::Unknown(detail)) => {
                        tries = tries.saturating_add(1);
                        if tries == VERIFY_WARN_AFTER {
                            let id = &self.upstream().identity().id;
                            tracing::warn!(upstream = %id, %detail, "upstream did not report its chain id and is not used; retrying");
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

    /// While no client calls, slightly longer than a turn, to offset the frequent checks at the
    /// start within the hour.
    fn verify_pause_max(&self) -> Duration {
        match self.is_busy() {
            true => VERIFY_PAUSE_BUSY,
            false => self.pace.idle.max(self.pace.poll_min) * 5 / 4,
        }
    }

    /// Assumes that it is on the chain of the settings, without a check; false while that chain is
    /// not known, and if the upstream was seen to be on another one.
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
            tracing::info!(upstream = %id, %chain, "the chain id of the upstream is not checked; trusting the `id` of the chain");
        }
        self.pulse().tell_verified();
        true
    }

    /// Asks for the chain id and takes the consequence.
    pub(crate) async fn identify(&self, reason: CallReason) -> ChainIdentity {
        let id = &self.upstream().identity().id;
        let reported = match self.asker.chain_id(reason).await {
            Ok(reported) => reported,
            Err(detail) => {
                tracing::debug!(upstream = %id, %detail, "chain id not learnt");
                return ChainIdentity::Unknown(detail);
            }
        };
        self.asker.doubt.settle(now());
        let expected = self.pulse().agree_chain_id(reported);
        if reported != expected {
            if self.upstream().set_standing(Standing::WrongChain(reported)) {
                tracing::error!(
                    upstream = %id, %reported, %expected,
                    "upstream is on another chain and is not used; check its URL and the chain's `id`"
                );
            }
            self.heads.forget(self.upstream().slot(), now());
            let text = format!("it is on chain {reported}, expected chain {expected}");
            self.upstream().note_problem(text, now());
            return ChainIdentity::Wrong;
        }
        if self.feed_is_wrong()
            && let Some(feed) = &self.feed
        {
            if !feed::verify(&**feed, &self.asker, &self.heads).await {
                return ChainIdentity::Wrong;
            }
            self.feed_was_wrong.store(false, Ordering::Relaxed);
        }
        if self.upstream().set_standing(Standing::Verified) {
            tracing::info!(upstream = %id, chain = %expected, "upstream verified");
        }
        self.pulse().forget_origin(self.upstream().slot());
        self.pulse().tell_honours_hashes(self.upstream().slot(), false);
        self.state.lock().block_hash = HashProbe::default();
        self.pulse().tell_verified();
        ChainIdentity::Right
    }

    /// Asks an upstream whose heads are hard to believe for its chain id; true when it is on another
    /// chain, and out of use.
    pub(crate) async fn check_chain_again(&self) -> bool {
        self.asker.doubt.settle(now());
        match self.asker.chain_id(CallReason::Verify).await {
            Ok(reported) if self.pulse().chain_id() == Some(reported) => false,
            Ok(_) => self.identify(CallReason::Verify).await == ChainIdentity::Wrong,
            // It is asked again with the next head that is hard to believe.
            Err(_detail) => false,
        }
    }
}
