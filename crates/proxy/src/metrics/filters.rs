//! The filters of clients.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::{Encoded, Exposed};

impl Exposed {
    pub(super) fn filters(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        // A chain on which no filter was ever made has no lines.
        let counts = self.chains().map(|(chain, served)| (chain, served.filters.counts()));
        let rows: Vec<_> = counts.filter(|(_, counts)| counts.made > 0).collect();
        let help = "Filters of clients that are kept";
        let mut family =
            encoder.encode_descriptor("wellhead_filters", help, None, MetricType::Gauge)?;
        for (chain, counts) in &rows {
            let labels = [("chain", *chain)];
            ConstGauge::new(counts.open as u64).encode(family.encode_family(&labels)?)?;
        }
        let help = "Bytes that the filters of clients hold, about";
        let mut family =
            encoder.encode_descriptor("wellhead_filters_bytes", help, None, MetricType::Gauge)?;
        for (chain, counts) in &rows {
            let labels = [("chain", *chain)];
            ConstGauge::new(counts.bytes as u64).encode(family.encode_family(&labels)?)?;
        }
        let help = "Filters made, polls of filters answered, and filters that ended because what they told \
                    could not be taken back";
        let mut family =
            encoder.encode_descriptor("wellhead_filter_events", help, None, MetricType::Counter)?;
        for (chain, counts) in &rows {
            let events = [("made", counts.made), ("polled", counts.polls), ("gone", counts.gone)];
            for (event, count) in events {
                let labels = [("chain", *chain), ("event", event)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
