//! The filters of clients.

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_telemetry::series::{EncodeResult, by, counter, gauge};

use super::Exposed;

impl Exposed {
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
}
