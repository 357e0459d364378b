//! What is subscribed to, what was announced, and what that cost in calls.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Encoded, Exposed};
use crate::state::subscriptions::SubscriptionCounts;

impl Exposed {
    pub(super) fn subscriptions(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        // A chain that nothing ever subscribed to has no lines.
        let rows: Vec<_> = self
            .chains()
            .map(|(chain, served)| (chain, served.subscriptions.counts().read()))
            .filter(|(_, counts)| counts.begun > 0)
            .collect();
        let help = "Subscriptions of clients";
        let mut family =
            encoder.encode_descriptor("wellhead_subscriptions", help, None, MetricType::Gauge)?;
        for (chain, counts) in &rows {
            for (kind, count) in [("newHeads", counts.heads), ("logs", counts.logs)] {
                let labels = [("chain", *chain), ("kind", kind)];
                ConstGauge::new(count as u64).encode(family.encode_family(&labels)?)?;
            }
        }
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
                    ("nothing", counts.failed),
                ]
            },
        )?;
        counter(
            "wellhead_subscription_gaps",
            "Times that blocks were missed and the connections of subscribers were closed",
            "reason",
            |counts| vec![("resync", counts.resyncs)],
        )
    }
}
