//! The life of a loop: which chain its upstream is on, then polls and the feed side by side.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wellhead_transport::feed::FeedConnector;

use crate::ask::{CallReason, now};
use crate::checks::{CheckKind, FeedUse};
use crate::feed::{FeedEnd, FeedPauses, listen};
use crate::identify::{Verified, WRONG_CHAIN_PAUSE};
use crate::watcher::Watcher;

impl Watcher {
    /// Follows for ever.
    pub async fn run(self) {
        let this = Arc::new(self);
        this.upstream().set_tried_by_clients(this.checks.probe().is_none());
        this.listen_for_calls();
        let (relays, slot) = (this.pulse().relays(), this.upstream().slot());
        if this.feed.is_some() && this.checks.feed != FeedUse::Never {
            relays.add_candidate(slot);
        }
        loop {
            match this.verify().await {
                Verified::ByAnswer => this.look_first().await,
                Verified::BySettings => {}
            }
            match this.feed.as_ref().filter(|_| this.checks.feed != FeedUse::Never) {
                None => {
                    tokio::select! {
                        // In this order, so that a simulated world has no chance but its own.
                        biased;
                        () = this.poll() => {}
                        () = this.follow_peers() => {}
                    }
                }
                Some(feed) => {
                    // Boxed, so that an upstream without a feed does not hold the room of one.
                    let heads = Box::pin(this.follow_feed(&**feed));
                    let relayed = Box::pin(this.follow_relays(&**feed));
                    relays.set_followed(slot, true);
                    tokio::select! {
                        // In this order, so that a simulated world has no chance but its own.
                        biased;
                        () = this.poll() => {}
                        () = heads => {}
                        () = relayed => {}
                        () = this.follow_peers() => {}
                    }
                    relays.set_followed(slot, false);
                    this.feed_is_live.store(false, Ordering::Relaxed);
                    this.pulse().seats.bid(this.upstream().slot(), None);
                }
            }
            // It was just seen to be on another chain, and is not used: asking at once
            // would only tell the same.
            tokio::time::sleep(WRONG_CHAIN_PAUSE).await;
        }
    }

    /// Asks what is to be known of an upstream that has just told its chain.
    async fn look_first(&self) {
        self.look_at_state().await;
        if self.checks.follows_by(CheckKind::Head) {
            self.poll_once(CallReason::Head).await.ok();
        }
        self.look_at_version().await;
        self.look_at_need();
    }

    /// Keeps a feed open while it is worth its price. Returns when the chain must be verified
    /// anew.
    async fn follow_feed(&self, connector: &dyn FeedConnector) {
        let mut pauses = FeedPauses::default();
        loop {
            self.until_a_feed_is_worth_it().await;
            let began = now();
            let end = tokio::select! {
                // In this order, so that a simulated world has no chance but its own.
                biased;
                end = listen(connector, self, &mut pauses) => Some(end),
                () = self.until_the_feed_is_idle() => None,
            };
            self.feed_is_live.store(false, Ordering::Relaxed);
            let Some(Err(end)) = end else {
                let id = &self.upstream().identity().id;
                tracing::debug!(upstream = %id, "feed closed: nothing needs it, or others are cheaper");
                pauses.reset();
                continue;
            };
            match end {
                FeedEnd::WrongChain => {
                    self.feed_was_wrong.store(true, Ordering::Relaxed);
                    return;
                }
                FeedEnd::Broke(why) => {
                    let id = &self.upstream().identity().id;
                    let detail = self.upstream().hidden(why.detail.clone());
                    tracing::debug!(upstream = %id, %detail, "feed ended; polling until it is back");
                    // Its seat goes to the next one meanwhile.
                    self.pulse().seats.note_failure(self.upstream().slot(), now());
                    tokio::time::sleep(pauses.next(&why, began)).await;
                }
            }
        }
    }
}
