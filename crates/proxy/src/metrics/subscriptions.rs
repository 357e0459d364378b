//! What is subscribed to, what was announced, and what that cost in calls.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use wellhead_watch::CheckCounts;

use super::{Encoded, Exposed};
use crate::state::subscriptions::{KindName, ReaderLag, SubscriptionCounts};

impl Exposed {
    pub(super) fn subscriptions(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        // A chain that nothing ever subscribed to has no lines.
        let counts = self.chains().map(|(chain, it)| (chain, it.subscriptions.counts().read()));
        let rows: Vec<_> = counts.filter(|(_, counts)| counts.begun > 0).collect();
        let help = "Subscriptions of clients";
        let mut family =
            encoder.encode_descriptor("wellhead_subscriptions", help, None, MetricType::Gauge)?;
        for (chain, counts) in &rows {
            for (kind, count) in KindName::ALL.into_iter().zip(counts.open) {
                let labels = [("chain", *chain), ("kind", kind.word())];
                ConstGauge::new(count as u64).encode(family.encode_family(&labels)?)?;
            }
        }
        self.reader_lag(encoder)?;
        self.relay_missed(encoder)?;
        let mut counter =
            |name, help, label, values: fn(&SubscriptionCounts) -> Vec<(&'static str, u64)>| {
                let mut family =
                    encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
                for (chain, counts) in &rows {
                    for (word, count) in values(counts) {
                        let labels = [("chain", *chain), (label, word)];
                        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                    }
                }
                Encoded::Ok(())
            };
        counter(
            "wellhead_announced_blocks",
            "Blocks announced to subscribers, and blocks taken back",
            "change",
            |counts| vec![("added", counts.added), ("removed", counts.removed)],
        )?;
        counter(
            "wellhead_announcer_calls",
            "Calls made for subscribers, by what they fetched and whether it was had",
            "fetched",
            |counts| {
                vec![
                    ("header", counts.headers),
                    ("logs", counts.log_blocks),
                    ("receipts", counts.receipt_blocks),
                    ("transactions", counts.transaction_blocks),
                    ("nothing", counts.failed),
                ]
            },
        )?;
        counter(
            "wellhead_announced_logs",
            "Blocks whose logs were read for subscribers, and blocks whose bloom excluded all filters",
            "logs",
            |counts| vec![("pulled", counts.log_blocks), ("avoided", counts.logs_avoided)],
        )?;
        counter(
            "wellhead_subscription_gaps",
            "Times that blocks were missed and the connections of subscribers were closed",
            "reason",
            |counts| vec![("resync", counts.resyncs)],
        )
    }

    fn relay_missed(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let help = "Pending transactions and other relayed notifications that slow clients missed";
        let mut family =
            encoder.encode_descriptor("wellhead_relay_missed", help, None, MetricType::Counter)?;
        for (chain, served) in self.chains() {
            if served.subscriptions.counts().read().begun > 0 {
                let missed = ConstCounter::new(served.streams.relays().missed());
                missed.encode(family.encode_family(&[("chain", chain)])?)?;
            }
        }
        Ok(())
    }

    /// How far connections are behind the journals.
    fn reader_lag(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
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
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (chain, served) in self.chains() {
                if served.subscriptions.counts().read().begun > 0 {
                    let lag = ConstGauge::new(value(served.subscriptions.lag()));
                    lag.encode(family.encode_family(&[("chain", chain)])?)?;
                }
            }
        }
        Ok(())
    }

    /// The feeds and relays of upstreams, as far as they were ever opened.
    pub(super) fn feeds(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        let rows = self.chains().flat_map(|(chain, served)| {
            let upstreams = served.roster.upstreams().iter().zip(&served.asked);
            upstreams.map(move |(upstream, asked)| (chain, upstream.identity().id.as_str(), asked))
        });
        let rows: Vec<_> = rows.filter(|(_, _, asked)| asked.has_been_subscribed()).collect();
        let help = "Whether the feed of new blocks of an upstream is open";
        let mut family =
            encoder.encode_descriptor("wellhead_feed_open", help, None, MetricType::Gauge)?;
        for (chain, upstream, asked) in &rows {
            let labels = [("chain", *chain), ("upstream", *upstream)];
            let open = u64::from(asked.feed_is_open());
            ConstGauge::new(open).encode(family.encode_family(&labels)?)?;
        }
        let help = "Subscriptions of clients that an upstream tells, each once for all clients";
        let mut family =
            encoder.encode_descriptor("wellhead_relays_open", help, None, MetricType::Gauge)?;
        for (chain, upstream, asked) in &rows {
            let labels = [("chain", *chain), ("upstream", *upstream)];
            let open = ConstGauge::new(asked.relays_open() as u64);
            open.encode(family.encode_family(&labels)?)?;
        }
        let mut counter = |name, help, count: fn(&CheckCounts) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (chain, upstream, asked) in &rows {
                let labels = [("chain", *chain), ("upstream", *upstream)];
                ConstCounter::new(count(asked)).encode(family.encode_family(&labels)?)?;
            }
            Encoded::Ok(())
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
