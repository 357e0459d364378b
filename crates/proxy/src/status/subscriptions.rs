//! What clients subscribe to, what that cost, and the feeds of new blocks that are open.

use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;

use crate::state::chain::ServedChain;
use crate::state::subscriptions::KindName;

/// What clients subscribe to on one chain.
#[derive(Debug, Clone, Serialize)]
pub struct SubscriptionStatus {
    /// Subscriptions now, by kind.
    pub kinds: Vec<KindStatus>,
    /// Connections that have one.
    pub connections: u64,
    /// Blocks added or taken back that the slowest of them has yet to be told.
    pub lag_events_max: u64,
    /// Different filters among those to logs.
    pub filters: usize,
    /// Blocks that were announced since the start.
    pub blocks_added: u64,
    /// Blocks that were taken back.
    pub blocks_removed: u64,
    /// Headers that were fetched for that, by hash.
    pub headers_fetched: u64,
    /// Blocks whose logs were fetched.
    pub logs_pulled: u64,
    /// Blocks whose receipts were fetched.
    pub receipts_pulled: u64,
    /// Blocks whose transactions were fetched.
    pub transactions_pulled: u64,
    /// Blocks whose logs were not, because their bloom excludes all filters.
    pub logs_avoided: u64,
    /// Fetches that brought nothing, and were made again.
    pub fetches_failed: u64,
    /// Times that blocks were missed, and all connections closed.
    pub gaps: u64,
    /// Different subscriptions that upstreams are kept asked for, as only they can tell.
    pub relays: usize,
    /// Notifications of these that slow clients missed.
    pub relay_missed: u64,
}

/// The subscriptions of one kind.
#[derive(Debug, Clone, Serialize)]
pub struct KindStatus {
    /// As `eth_subscribe` names it.
    pub kind: &'static str,
    /// How many there are.
    pub subscriptions: usize,
}

/// wellhead's own subscription to the new blocks of one upstream.
#[derive(Debug, Clone, Serialize)]
pub struct FeedStatus {
    /// The upstream.
    pub upstream: String,
    /// Whether it is open now.
    pub feed: &'static str,
    /// How often it was opened since the start.
    pub opened: u64,
    /// Other subscriptions that it tells now, each once for all clients.
    pub relays: usize,
    /// Messages that it pushed.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// And what they cost.
    pub credits: u64,
}

/// `None` where nothing ever subscribed.
pub(super) fn subscriptions(chain: &ServedChain) -> Option<SubscriptionStatus> {
    let counts = &chain.subscriptions.counts;
    if counts.begun.load(Relaxed) == 0 {
        return None;
    }
    let lag = chain.subscriptions.lag();
    let status =
        |(kind, subscriptions): (KindName, usize)| KindStatus { kind: kind.word(), subscriptions };
    Some(SubscriptionStatus {
        kinds: counts.open_now().map(status).collect(),
        connections: lag.connections,
        lag_events_max: lag.events_max,
        filters: chain.subscriptions.filters(),
        blocks_added: counts.added.load(Relaxed),
        blocks_removed: counts.removed.load(Relaxed),
        headers_fetched: counts.headers.load(Relaxed),
        logs_pulled: counts.log_blocks.load(Relaxed),
        receipts_pulled: counts.receipt_blocks.load(Relaxed),
        transactions_pulled: counts.transaction_blocks.load(Relaxed),
        logs_avoided: counts.logs_avoided.load(Relaxed),
        fetches_failed: counts.failed.load(Relaxed),
        gaps: counts.resyncs.load(Relaxed),
        relays: chain.streams.relays.len(),
        relay_missed: chain.streams.relays.missed(),
    })
}

/// Of the upstreams that were ever subscribed to.
pub(super) fn feeds(chain: &ServedChain) -> Vec<FeedStatus> {
    let upstreams = chain.roster.upstreams().iter().zip(&chain.asked);
    upstreams
        .filter(|(_, asked)| asked.has_been_subscribed())
        .map(|(upstream, asked)| FeedStatus {
            upstream: upstream.identity().id.to_string(),
            // `open` is how a breaker fails.
            feed: if asked.feed_is_open() { "subscribed" } else { "ended" },
            opened: asked.feeds_opened(),
            relays: asked.relays_open(),
            messages: asked.pushed(),
            bytes: asked.pushed_bytes(),
            credits: asked.push_credits(),
        })
        .collect()
}
