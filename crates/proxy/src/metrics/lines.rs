//! Lines of requests in the log: written, and left out of a sample.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::Exposed;

impl Exposed {
    pub(super) fn lines(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Lines of requests in the log, by the outcome of the request: written, or left \
                    out because there were more than `log.requests_per_second` or \
                    `log.failures_per_second`";
        let name = "wellhead_log_lines";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (outcome, counts) in self.0.lines().counts() {
            for (result, count) in [("written", counts.written), ("left_out", counts.left_out)] {
                let labels = [("outcome", outcome), ("result", result)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
