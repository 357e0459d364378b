//! What is subscribed to, the filters of clients, what was announced, and what that cost in calls.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_telemetry::series::{EncodeResult, by, counter, gauge};
use wellhead_watch::CheckCounts;

use super::Exposed;
use crate::state::chain::ServedChain;
use crate::state::subscriptions::{ReaderLag, SubscriptionCounters};

impl Exposed {
    /// A chain that nothing ever subscribed to has no lines.
    fn subscribed(&self) -> impl Iterator<Item = (&str, &ServedChain)> {
        self.chains().filter(|(_, it)| it.subscriptions.counts.begun.load(Relaxed) > 0)
    }

    pub(super) fn subscriptions(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let open = self.subscribed().flat_map(|(chain, it)| {
            let open = it.subscriptions.counts.open_now();
            open.map(move |(kind, count)| ([("chain", chain), ("kind", kind.word())], count as u64))
        });
        gauge(encoder, "wellhead_subscriptions", "Subscriptions of clients", open)?;
        self.reader_lag(encoder)?;
        counter(
            encoder,
            "wellhead_relay_missed",
            "Pending transactions and other relayed notifications that slow clients missed",
            by("chain", self.subscribed().map(|(chain, it)| (chain, it.streams.relays.missed()))),
        )?;
        let mut counter =
            |name,
             help,
             label,
             counts: fn(&SubscriptionCounters) -> Vec<(&'static str, &AtomicU64)>| {
                let rows = self.subscribed().flat_map(|(chain, it)| {
                    let counts = counts(&it.subscriptions.counts).into_iter();
                    counts.map(move |(word, count)| {
                        ([("chain", chain), (label, word)], count.load(Relaxed))
                    })
                });
                counter(encoder, name, help, rows)
            };
        counter(
            "wellhead_announced_blocks",
            "Blocks announced to subscribers, and blocks taken back",
            "change",
            |counts| vec![("added", &counts.added), ("removed", &counts.removed)],
        )?;
        counter(
            "wellhead_announcer_calls",
            "Calls made for subscribers, by what they fetched and whether it was had",
            "fetched",
            |counts| {
                vec![
                    ("header", &counts.headers),
                    ("logs", &counts.log_blocks),
                    ("receipts", &counts.receipt_blocks),
                    ("transactions", &counts.transaction_blocks),
                    ("nothing", &counts.failed),
                ]
            },
        )?;
        counter(
            "wellhead_announced_logs",
            "Blocks whose logs were read for subscribers, and blocks whose bloom excluded all filters",
            "logs",
            |counts| vec![("pulled", &counts.log_blocks), ("avoided", &counts.logs_avoided)],
        )?;
        counter(
            "wellhead_subscription_gaps",
            "Times that blocks were missed and the connections of subscribers were closed",
            "reason",
            |counts| vec![("resync", &counts.resyncs)],
        )
    }

    /// The filters of clients.
    pub(super) fn filters(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        // A chain on which no filter was ever made has no lines.
        let counts = self.chains().map(|(chain, served)| (chain, served.filters.counts()));
        let rows: Vec<_> = counts.filter(|(_, counts)| counts.made > 0).collect();
        let open = rows.iter().map(|(chain, counts)| (*chain, counts.open as u64));
        let help = "Filters of clients that are kept";
        gauge(encoder, "wellhead_filters", help, by("chain", open))?;
        let bytes = rows.iter().map(|(chain, counts)| (*chain, counts.bytes as u64));
        let help = "Bytes that the filters of clients hold, about";
        gauge(encoder, "wellhead_filters_bytes", help, by("chain", bytes))?;
        let events = rows.iter().flat_map(|(chain, counts)| {
            [("made", counts.made), ("polled", counts.polls), ("gone", counts.gone)]
                .map(|(event, count)| ([("chain", *chain), ("event", event)], count))
        });
        counter(
            encoder,
            "wellhead_filter_events",
            "Filters made, polls of filters answered, and filters that ended because what they told \
             could not be taken back",
            events,
        )
    }

    /// How far connections are behind the journals.
    fn reader_lag(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        for (name, help, value) in [
            (
                "wellhead_subscribed_connections",
                "Connections of clients with a subscription to blocks or logs",
                (|lag| lag.connections) as fn(ReaderLag) -> u64,
            ),
            (
                "wellhead_subscription_lag_events_max",
                "Events of the journal that the slowest subscribed connection has yet to be told",
                |lag| lag.events_max,
            ),
        ] {
            let lags = self.subscribed().map(|(chain, it)| (chain, value(it.subscriptions.lag())));
            gauge(encoder, name, help, by("chain", lags))?;
        }
        Ok(())
    }

    /// The feeds and relays of upstreams, as far as they were ever opened.
    pub(super) fn feeds(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let rows = || self.each_upstream().filter(|it| it.asked.has_been_subscribed());
        let open = rows().map(|it| (it.labels, u64::from(it.asked.feed_is_open())));
        let help = "Whether the feed of new blocks of an upstream is open";
        gauge(encoder, "wellhead_feed_open", help, open)?;
        let relays = rows().map(|it| (it.labels, it.asked.relays_open() as u64));
        let help = "Subscriptions of clients that an upstream tells, each once for all clients";
        gauge(encoder, "wellhead_relays_open", help, relays)?;
        let mut counter = |name, help, count: fn(&CheckCounts) -> u64| {
            counter(encoder, name, help, rows().map(|it| (it.labels, count(it.asked))))
        };
        let opened = CheckCounts::feeds_opened;
        counter("wellhead_feeds_opened", "Feeds of new blocks that were opened", opened)?;
        let help = "New blocks and other messages that upstreams pushed over subscriptions";
        counter("wellhead_self_pushed", help, CheckCounts::pushed)?;
        let bytes = CheckCounts::pushed_bytes;
        counter(
            "wellhead_self_pushed_bytes",
            "Bytes of the messages that upstreams pushed",
            bytes,
        )?;
        let help = "Credits spent on the messages that upstreams pushed";
        counter("wellhead_self_pushed_credits", help, CheckCounts::push_credits)
    }
}
