//! Lines of requests in the log: written, and left out of a sample.

use prometheus_client::encoding::DescriptorEncoder;
use wellhead_telemetry::series::{EncodeResult, counter};

use super::Exposed;

impl Exposed {
    pub(super) fn lines(&self, encoder: &mut DescriptorEncoder<'_>) -> EncodeResult {
        let lines = self.0.lines().counts().into_iter().flat_map(|(outcome, counts)| {
            [("written", counts.written), ("left_out", counts.left_out)]
                .map(|(result, count)| ([("outcome", outcome), ("result", result)], count))
        });
        counter(
            encoder,
            "wellhead_log_lines",
            "Lines of requests in the log, by the outcome of the request: written, or left \
             out because there were more than `log.requests_per_second` or \
             `log.failures_per_second`",
            lines,
        )
    }
}
