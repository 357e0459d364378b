//! Searches for logs whose empty answer was doubtful.

use std::fmt;
use std::sync::atomic::Ordering;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::Exposed;

impl Exposed {
    pub(super) fn logs(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Doubtful empty answers to log searches, for which another upstream was called";
        let name = "wellhead_logs_doubted";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (chain, served) in self.chains() {
            let count = ConstCounter::new(served.counts().chain.doubted.load(Ordering::Relaxed));
            count.encode(family.encode_family(&[("chain", chain)])?)?;
        }
        let help = "Empty answers to searches for logs that were served though a header speaks \
                    against them, with a warning";
        let name = "wellhead_logs_unconfirmed";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (chain, served) in self.chains() {
            let count =
                ConstCounter::new(served.counts().chain.unconfirmed.load(Ordering::Relaxed));
            count.encode(family.encode_family(&[("chain", chain)])?)?;
        }
        let help = "Empty answers to log searches for which another upstream found logs";
        let name = "wellhead_upstream_missed_logs";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (chain, served) in self.chains() {
            for upstream in served.roster.upstreams() {
                let labels = [("chain", chain), ("upstream", upstream.identity().id.as_str())];
                let count = served.counts().missed_logs_so_far(upstream.slot());
                if count > 0 {
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}
